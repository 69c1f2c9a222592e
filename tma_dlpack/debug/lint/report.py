"""The result of `lint`: findings as text, HTML, JSON and SARIF.

`findings` groups the mistakes. All mistakes with the same cause, such as one missing instruction,
become one finding. Mistakes at the same source lines of several kernels, such as instances of a
template, also become one finding. `Suppressions` reads the comments that suppress a finding.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tma_dlpack.debug.core import counted, public, report, tma
from tma_dlpack.debug.lint.rules import RULES, SEVERITIES, Mistake
from tma_dlpack.debug.names import short_name
from tma_dlpack.ptx.parse import Instruction, Place

NOTE = report.NOTE
# maximum number of source lines that a finding shows for one inlined instruction
_MOST_FRAMES = 6
# maximum number of pictures of missing fences in HTML
_MOST_PICTURES = 3


@public.public_in("tma_dlpack.debug")
@dataclass(frozen=True)
class LintFinding:
    """A mistake with TMA in PTX code.

    Attributes
    ----------
    rule : str
        Id of the rule, such as "PROXY_FENCE". The meaning of an id never changes.
    severity : str
        "error" if the PTX proves the mistake, "warning" if the mistake is possible, "note" if the
        code breaks the PTX ISA but works on hardware, according to measurements.
    kernel : str
        Name of the function in the PTX.
    line : int
        Line of the PTX.
    source : str or None
        "file:line" of the CUDA source; None if the PTX has no source lines (from ``-lineinfo``).
    sites : int
        Number of instructions that have this mistake with the same cause.
    message, fix : str
        Descriptions of the mistake and of its fix.
    path : tuple of str
        The instructions of the mistake: the cause, such as a write, then the use, such as a copy of
        the written memory.
    """

    rule: str
    severity: str
    kernel: str
    line: int
    source: str | None
    sites: int
    message: str
    fix: str
    path: tuple[str, ...]

    @property
    def where(self) -> str:
        """The source line, or the line of the PTX if the source line is not known."""
        return self.source or f"line {self.line}"

    @property
    def finding(self) -> report.Finding:
        """The same finding as a `report.Finding`, the record that all tools use."""
        return report.Finding(
            self.rule, self.severity, self.message, self.fix, short_name(self.kernel), self.source,
            self.line, sites=self.sites, evidence=self.path, source=RULES[self.rule].source,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, for JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        return str(self.finding)


#: Kinds of instructions and objects that are counted in a function that uses TMA.
COUNTED = ("copy", "barrier", "wait", "fence")


class Examined(NamedTuple):
    """A function that uses TMA: its counts by names of `COUNTED`, and the parts lint skipped."""

    kernel: str
    counts: dict[str, int]
    skipped: tuple[str, ...]


@public.public_in("tma_dlpack.debug")
@dataclass(frozen=True, repr=False)
class LintReport:
    """The findings of `lint`.

    Attributes
    ----------
    findings : tuple of LintFinding
        The shown findings, errors first.
    suppressed : tuple of LintFinding
        Findings that are suppressed by a comment with a reason.
    notes : tuple of str
        Parts of the source that could not be read, such as a function whose braces do not close.
    functions : int
        Number of functions that were read.
    examined : tuple of Examined
        The functions that use TMA, the counts of their copies and barriers, and the parts that were
        skipped.
    hidden : tuple of LintFinding
        Findings of severity "note". With ``lint(..., notes=True)`` they are in `findings` instead.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> report = tma.lint(".version 9.0 .target sm_90a .address_size 64")
    >>> print(report)
    no mistake was found in 0 functions
    """

    findings: tuple[LintFinding, ...]
    suppressed: tuple[LintFinding, ...] = ()
    notes: tuple[str, ...] = ()
    functions: int = 0
    file: str = field(default="", repr=False)
    examined: tuple[Examined, ...] = ()
    hidden: tuple[LintFinding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.severity == report.ERROR for finding in self.findings)

    def __str__(self) -> str:
        head = "\n".join([self._total(), *(self._examined() if self.functions else ())])
        return report.as_text(head, self._found(), self.notes)

    def __repr__(self) -> str:
        return f"LintReport({self._total()})"

    def _found(self) -> list[report.Finding]:
        return [finding.finding for finding in self.findings]

    def _total(self) -> str:
        more = f"; {counted(len(self.suppressed), 'finding')} suppressed" * bool(self.suppressed)
        more += f"; {counted(len(self.hidden), 'note')} not shown" * bool(self.hidden)
        return f"{report.total(self._found())} in {counted(self.functions, 'function')}{more}"

    def _examined(self) -> list[str]:
        """Return a summary of the code that was examined, and of the parts that were skipped."""
        if not self.examined:
            return ["examined: no function uses TMA"]
        of = sum(map(Counter, (one.counts for one in self.examined)), Counter[str]())
        counts = ", ".join(counted(of[name], name) for name in COUNTED if of[name])
        lines = [f"examined: {len(self.examined)} of {counted(self.functions, 'function')} with "
                 f"TMA: {counts}"]  # fmt: skip
        lines += [f"not followed in {short_name(one.kernel)}: {', '.join(one.skipped)}"
                  for one in self.examined if one.skipped]  # fmt: skip
        return lines

    def _repr_html_(self) -> str:
        pictures = report.Section(pictures=self._pictures())
        return report.as_html(self._total(), [*self._found(), pictures], self.notes)

    def _pictures(self) -> list[tma.draw.Figure]:
        """Return pictures of the first missing fences, with a lane for each proxy."""
        found = [f for f in self.findings if f.rule == "PROXY_FENCE" and len(f.path) > 1]
        pictures: list[tma.draw.Figure] = []
        for f in found[:_MOST_PICTURES]:
            ends = [f.path[n] for n in (0, -1)]
            first, second = (end.partition(": ")[2] or end for end in ends)
            title = f"{f.where}: a missing fence"
            pictures.append(tma.draw.missing_fence(first, second, title=title))
        return pictures

    def to_json(self) -> str:
        """Return the findings as JSON, ``{"findings": [...]}``.

        The keys of a finding are the attributes of `LintFinding`.
        """
        return as_json([self])

    def to_sarif(self) -> str:
        """Return the findings as SARIF 2.1.0, which code hosts show next to the source lines."""
        return as_sarif([self])


def as_json(reports: Iterable[LintReport]) -> str:
    """Return the findings of several files as one JSON object."""
    of = [*reports]
    return report.as_json(
        (f for r in of for f in r.findings),
        suppressed=[f.to_dict() for r in of for f in r.suppressed],
        notes=[note for r in of for note in r.notes],
    )


def as_sarif(reports: Iterable[LintReport]) -> str:
    """Return the findings of several files as one run of SARIF 2.1.0."""
    of = [*reports]
    # SARIF shows the mangled name of the kernel, as in the PTX.
    return report.as_sarif(
        "tma_dlpack lint",
        {rule.id: (rule.about, rule.source) for rule in RULES.values()},
        [(replace(f.finding, kernel=f.kernel), r.file) for r in of for f in r.findings],
        [(replace(f.finding, kernel=f.kernel), r.file) for r in of for f in r.suppressed],
        [note for r in of for note in r.notes],
    )


# -- one finding per cause ------------------------------------------------------------------------


def findings(
    mistakes: Mapping[str, list[Mistake]], suppressions: Suppressions
) -> tuple[list[LintFinding], list[LintFinding]]:
    """Return the shown and the suppressed findings, with one finding for each cause."""
    # (reason of the suppression, rule, source lines) -> the findings of all kernels
    merged: dict[tuple[object, ...], list[LintFinding]] = defaultdict(list)
    for kernel, found in mistakes.items():
        for group in _causes(found):
            worst = min(group, key=lambda m: SEVERITIES.index(m.severity))
            finding = _finding(kernel, group, worst)
            ends = [code.place for code in worst.ends]
            where = tuple(ends) if all(ends) else (kernel, finding.line)
            merged[suppressions.reason(worst.rule, group), worst.rule, where].append(finding)
    shown: list[LintFinding] = []
    hidden: list[LintFinding] = []
    for (reason, *_), alike in merged.items():
        # if several findings are equally severe, `min` returns the first
        finding = min(alike, key=_rank)
        others = len(alike) - 1
        more = f" (and in {counted(others, 'more kernel')})" * bool(others)
        sites = sum(f.sites for f in alike)
        finding = replace(finding, sites=sites, message=finding.message + more)
        (hidden if reason else shown).append(finding)
    for rows in (shown, hidden):
        rows.sort(key=lambda f: (_rank(f), f.rule, f.source or "", f.line))
    return shown, hidden


def _rank(finding: LintFinding) -> int:
    return SEVERITIES.index(finding.severity)


def _causes(mistakes: list[Mistake]) -> list[list[Mistake]]:
    """Return groups of mistakes; two mistakes are in one group if `_nodes` returns a common key."""
    # union-find: following `leader` from a key ends at the representative of the key's group
    leader: dict[object, object] = {}

    def find(node: object) -> object:
        while leader.setdefault(node, node) != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for mistake in mistakes:
        for node in _nodes(mistake)[1:]:
            leader[find(node)] = find(_nodes(mistake)[0])
    groups = defaultdict(list)
    for mistake in mistakes:
        groups[find(_nodes(mistake)[0])].append(mistake)
    return list(groups.values())


def _nodes(mistake: Mistake) -> list[object]:
    """Return a key for each instruction of a mistake: (rule, fix, line of the instruction)."""
    # one missing fence or barrier causes the mistakes with all mbarriers of the kernel, so these
    # mistakes have one key
    if mistake.rule == "BARRIER_INIT":
        return [(mistake.rule, "")]
    return [(mistake.rule, mistake.fix, code.place or code.line) for code in mistake.ends]


def _finding(kernel: str, group: list[Mistake], worst: Mistake) -> LintFinding:
    use = worst.use or worst.cause
    # the line of a kernel's end does not help a reader, so the line of the cause is shown
    at = worst.cause if use.opcode in ("ret", "exit") else use
    return LintFinding(
        worst.rule,
        worst.severity,
        kernel,
        at.line,
        where(at),
        len({id(mistake.use or mistake.cause) for mistake in group}),
        worst.message,
        worst.fix,
        tuple(step(code) for code in worst.ends),
    )


def _own(code: Instruction) -> Place:
    """Return the source lines of an instruction that are outside of library headers.

    If the kernel itself is in a header, return the lines in the same project that are not in a
    wrapper. If all lines would be left out, return all lines. The innermost line is first.
    """
    outermost = code.place[-1][0] if code.place else ""
    project = _PROJECT.search(outermost)
    kept = (
        (p for p in code.place if project[0] in p[0] and not _WRAPPERS.search(p[0]))
        if project
        else (p for p in code.place if "/include/" not in p[0])
    )
    return tuple(kept) or code.place


#: The folder of a project whose kernel is in a header, such as "/a/include/cutlass/" in
#: "/a/include/cutlass/gemm/kernel.h".
_PROJECT = re.compile(r".*/include/(?:[^/]+/)?")
#: Folders or files with wrappers of single instructions, in a project whose kernels are in headers.
_WRAPPERS = re.compile(r"/(?:arch|barrier|common|detail|pipeline|ptx|types|utils?)(?:/|\.[^/]*$)")


def where(code: Instruction) -> str | None:
    """Return the source line of an instruction, or None if the PTX has no source lines."""
    return next((f"{file}:{line}" for file, line in _own(code)), None)


def step(code: Instruction) -> str:
    """Return the text of an instruction: PTX line, opcode, and source lines, innermost first."""
    frames = [f"{Path(file).name}:{line}" for file, line in _own(code)[:_MOST_FRAMES]]
    return f"line {code.line}: {code.opcode}" + f" ({' < '.join(frames)})" * bool(frames)


# -- suppressions ---------------------------------------------------------------------------------

#: A comment ``// lint: allow PROXY_FENCE: the other warp fences``, which is on the instruction's
#: line or on the line above.
_ALLOW = re.compile(r"lint:\s*allow\s*\(?\s*([A-Z_]+)\s*\)?\s*:?\s*(.*?)\s*(?:\*/|$)")


class Suppressions:
    """The comments that suppress findings, in the PTX and in the sources that the PTX names."""

    def __init__(self, comments: Mapping[int, str], folder: Path | None) -> None:
        self._comments = comments
        self._folder = folder
        self._read: dict[str, dict[int, str]] = {}
        # suppressions without a reason, which suppress nothing
        self.without_reason: list[str] = []

    def reason(self, rule: str, group: list[Mistake]) -> str:
        """Return the reason why a finding is suppressed; "" if the finding is not suppressed."""
        for mistake in group:
            for code in mistake.ends:
                for comment in self._near(code):
                    found = _ALLOW.search(comment)
                    if found and found[1] == rule:
                        if found[2]:
                            return found[2]
                        self.without_reason.append(f"line {code.line}: {found[0].strip()}")
        return ""

    def _near(self, code: Instruction) -> Iterator[str]:
        for line in (code.line, code.line - 1):
            if line in self._comments:
                yield self._comments[line]
        for file, number in code.place:
            lines = self._lines(file)
            for at in (number, number - 1):
                if at in lines:
                    yield lines[at]

    def _lines(self, file: str) -> dict[int, str]:
        """Return the lines of a source file that contain "lint:", by line number."""
        # read the file at the path in the PTX; if there is no such file, read the file of the same
        # name in the folder of the PTX
        if file not in self._read:
            places = [Path(file), *([self._folder / Path(file).name] if self._folder else [])]
            found = next((path for path in places if _is_source(path)), None)
            text = found.read_text(encoding="utf-8", errors="replace") if found else ""
            lines = enumerate(text.splitlines(), 1)
            self._read[file] = {n: line for n, line in lines if "lint:" in line}
        return self._read[file]


def _is_source(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size < _MOST_SOURCE_BYTES
    # the path in the PTX may not be a valid path here
    except (OSError, ValueError):
        return False


# maximum size of a source file in which suppressions are searched
_MOST_SOURCE_BYTES = 16 << 20
