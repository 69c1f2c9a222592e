"""`KernelRun`: what a run of a kernel found, as text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tma_dlpack.kernel.core import (
    Finding,
    TmaError,
    as_html,
    as_json,
    as_text,
    merged_findings,
    total,
    worst_first,
)
from tma_dlpack.kernel.findings import BarrierState
from tma_dlpack.kernel.timeline import TimelineRow

SCHEDULES = ("late", "early")


class TmaKernelError(TmaError, RuntimeError):
    """A run of a kernel found an error."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """What `run_kernel` found; ``print(run)`` shows it, notebooks draw its timeline.

    Attributes
    ----------
    kernel : str
    backend : {"simulator", "cuda"}
        A run on the GPU has no findings.
    findings : tuple of Finding
        Errors first. Each has rule, severity, line of the .cu, PTX line, block, thread, message and
        fix.
    barriers : tuple of BarrierState
        After a hang, the mbarriers that warps wait at, as `PostMortem.barriers`.
    steps : int
        Instructions that groups of threads executed.
    schedule : str
        "late", "early" or "random 2": of the run whose findings these are.
    timeline : tuple of TimelineRow
        Who waited for which barrier and phase, and which copy filled what, in steps.
    printed : str
        What the kernel printed.
    """

    kernel: str
    backend: str = "simulator"
    findings: tuple[Finding, ...] = ()
    barriers: tuple[BarrierState, ...] = ()
    steps: int = 0
    schedule: str = ""
    timeline: tuple[TimelineRow, ...] = ()
    printed: str = ""

    @classmethod
    def of_machine(cls, machine: Any, compiled: Any, number: int) -> KernelRun:
        """Return what a machine that has run found, in schedule `number`."""
        name = SCHEDULES[number] if number < len(SCHEDULES) else f"random {number}"
        return cls(
            kernel=machine.findings.kernel,
            findings=tuple(worst_first(machine.findings.all())),
            barriers=machine.findings.barriers,
            steps=machine.steps,
            schedule=name,
            timeline=machine.timeline.rows(),
            printed="".join(machine.printed),
        )

    @property
    def ok(self) -> bool:
        """Whether no error was found; warnings are allowed."""
        return not any(finding.severity == "error" for finding in self.findings)

    def merged(self, other: KernelRun) -> KernelRun:
        """Return this run with the findings of another schedule."""
        mine = {_key(finding) for finding in self.findings}
        more = [finding for finding in other.findings if _key(finding) not in mine]
        return replace(self, findings=tuple(worst_first([*self.findings, *more])))

    def with_order_dependent(self, names: Sequence[str], number: int) -> KernelRun:
        """Return this run with the warning that another schedule wrote other bytes."""
        found = Finding(
            "SCHEDULE_RESULT", "warning",
            f"schedule {number} writes other bytes to {', '.join(names)}: the result depends on "
            "the order in which blocks, copies or atomics happen",
            "expected of floating-point atomics and reductions; else look for a missing wait",
            self.kernel,
        )  # fmt: skip
        return replace(self, findings=tuple(worst_first([*self.findings, found])))

    def raise_if_wrong(self) -> None:
        """Raise `TmaKernelError` if an error was found, with the text of the run.

        Raises
        ------
        TmaKernelError
        """
        if not self.ok:
            raise TmaKernelError(str(self))

    def to_json(self) -> str:
        """Return the run as JSON: findings, barriers, timeline, kernel, schedule, steps."""
        return as_json(
            self.findings,
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
        """What was found, in one line."""
        if self.backend != "simulator":
            return f"{self.kernel}: ran on the GPU"
        when = f"schedule {self.schedule}, " if not self.ok else ""
        return f"{self.kernel}: {total(self.findings)} ({when}{self.steps:,} steps)"

    def __repr__(self) -> str:
        return f"<KernelRun: {self.head}>"

    def __str__(self) -> str:
        return as_text(self.head, merged_findings(self.findings))

    def _repr_html_(self) -> str:
        """Return the findings as a table."""
        return as_html(self.head, merged_findings(self.findings))


def _key(finding: Finding) -> tuple[Any, ...]:
    return finding.rule, finding.ptx_line, finding.evidence[:1]
