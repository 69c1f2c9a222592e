"""`KernelRun`, the result of a run of a kernel, as text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tma_dlpack.kernel.core import picture, report, tma
from tma_dlpack.kernel.findings import BarrierState

# Maximum number of lanes, and of bars, in the picture of the timeline. A lane shows the waits of a
# warp, the loads of a block that complete on one barrier, or the bulk stores of a warp.
_MOST_LANES, _MOST_BARS = 24, 300
# Names of the first two schedules. All further schedules are random.
SCHEDULES = ("late", "early")


class TmaKernelError(tma.TmaError, RuntimeError):
    """Error that `KernelRun.raise_if_wrong` raises."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """The result of `run_kernel`.

    ``print(run)`` shows the findings. A notebook also draws the timeline.

    Attributes
    ----------
    kernel : str
    backend : {"simulator", "cuda"}
        Where the kernel ran. A run on the GPU has no findings.
    findings : tuple of Finding
        The findings, errors first. Each finding has rule, severity, line of the .cu file, PTX line,
        block, thread, message and fix.
    barriers : tuple of BarrierState
        After a hang, the mbarriers that warps wait at. An entry of `PostMortem.barriers` has the
        same fields, and also the field `kernel`.
    steps : int
        Number of executed instructions. If several threads execute an instruction together, the
        instruction counts once.
    schedule : str
        Schedule of the run: "late", "early", or for example "random 2".
    timeline : tuple of TimelineRow
        Loads, bulk stores, and waits of warps at mbarriers, each with its begin and end. The unit
        of the times is one step (see `steps`).
    printed : str
        Text that the kernel printed.
    """

    kernel: str
    backend: str = "simulator"
    findings: tuple[report.Finding, ...] = ()
    barriers: tuple[BarrierState, ...] = ()
    steps: int = 0
    schedule: str = ""
    timeline: tuple[picture.TimelineRow, ...] = ()
    printed: str = ""

    @classmethod
    def of_machine(cls, machine: Any, compiled: Any, number: int) -> KernelRun:
        """Return the result of a machine that has run the schedule with this number."""
        name = SCHEDULES[number] if number < len(SCHEDULES) else f"random {number}"
        return cls(
            kernel=machine.findings.kernel,
            findings=tuple(report.worst_first(machine.findings.all())),
            barriers=machine.findings.barriers,
            steps=machine.steps,
            schedule=name,
            timeline=machine.timeline.rows(),
            printed="".join(machine.printed),
        )

    @property
    def ok(self) -> bool:
        """Whether the run has no error; it may have warnings."""
        return not any(finding.severity == "error" for finding in self.findings)

    def merged(self, other: KernelRun) -> KernelRun:
        """Return a copy of this run, extended by the new findings of another schedule's run."""
        mine = {_key(finding) for finding in self.findings}
        more = [finding for finding in other.findings if _key(finding) not in mine]
        return replace(self, findings=tuple(report.worst_first([*self.findings, *more])))

    def with_order_dependent(self, names: Sequence[str], number: int) -> KernelRun:
        """Return a copy of this run with a warning that schedule `number` wrote different bytes."""
        found = report.Finding(
            "SCHEDULE_RESULT", "warning",
            f"schedule {number} writes other bytes to {', '.join(names)}: the result depends on "
            "the order in which blocks, copies or atomics happen",
            "expected of floating-point atomics and reductions; else look for a missing wait",
            self.kernel,
        )  # fmt: skip
        return replace(self, findings=tuple(report.worst_first([*self.findings, found])))

    def raise_if_wrong(self) -> None:
        """Raise `TmaKernelError` with the text of the run if the run has an error.

        Raises
        ------
        TmaKernelError
        """
        if not self.ok:
            raise TmaKernelError(str(self))

    def to_json(self) -> str:
        """Return findings, barriers, timeline, kernel, schedule and steps as JSON."""
        return report.as_json(
            self.findings,
            notes=[],
            ok=self.ok,
            kernel=self.kernel,
            backend=self.backend,
            schedule=self.schedule,
            steps=self.steps,
            barriers=[barrier._asdict() for barrier in self.barriers],
            timeline=[row._asdict() for row in self.timeline],
            printed=self.printed,
        )

    @property
    def head(self) -> str:
        """First line of the text, with the kernel's name and the number of findings."""
        if self.backend != "simulator":
            return f"{self.kernel}: ran on the GPU"
        when = f"schedule {self.schedule}, " if not self.ok else ""
        return f"{self.kernel}: {report.total(self.findings)} ({when}{self.steps:,} steps)"

    def __repr__(self) -> str:
        return f"<KernelRun: {self.head}>"

    def __str__(self) -> str:
        return report.as_text(self.head, report.merged(self.findings))

    def _repr_html_(self) -> str:
        """Return the findings above a picture of the timeline."""
        rows, notes = _shown(self.timeline)
        title = f"{self.kernel}, in steps of schedule {self.schedule}"
        drawn = [picture.lanes(rows, title=title, notes=notes).html()] if rows else []
        timeline = report.Section(pictures=drawn)
        return report.as_html(self.head, [*report.merged(self.findings), timeline])


def _shown(rows: Sequence[picture.TimelineRow]) -> tuple[list[picture.TimelineRow], list[str]]:
    """Return (bars that the picture shows, note about the bars that the picture omits).

    The actor of a bar is the name of its lane in the picture. The picture has room for a limited
    number of actors, so actors with a wait that never ends are chosen first.
    """
    stuck = [row.actor for row in rows if row.end is None]
    actors = list(dict.fromkeys([*stuck, *(row.actor for row in rows)]))
    shown = set(actors[:_MOST_LANES])
    kept = [row for row in rows if row.actor in shown][-_MOST_BARS:]
    note = f"{len(actors)} warps and slots, {len(rows):,} bars; run.timeline has all"
    return kept, [note] if len(kept) < len(rows) else []


def _key(finding: report.Finding) -> tuple[Any, ...]:
    return finding.rule, finding.ptx_line, finding.evidence[:1]
