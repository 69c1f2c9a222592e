"""`lint`: mistakes around TMA that PTX shows, without a GPU.

`ptx` reads the PTX, `values` follows the registers, `flow` the paths of a thread; `events` says
what the rules look at, `rules` has the rules of paths, `single` those of single instructions and of
the maps of a launch; `report` is what is returned, and `inputs` makes PTX of a .cu or a cubin. A
rule that follows a path is a row of `_PAIRS` in `rules`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tma_dlpack.debug.lint import inputs, ptx, report, rules, single
from tma_dlpack.debug.lint.events import Callees, Events, summaries
from tma_dlpack.debug.lint.flow import Flow, TooLargeError
from tma_dlpack.debug.lint.report import LintFinding, LintReport
from tma_dlpack.debug.lint.single import LaunchedMaps
from tma_dlpack.debug.lint.values import Values
from tma_dlpack.public import untraced

__all__ = ["LintFinding", "LintReport", "lint", "run"]


@untraced
def lint(
    source: str | os.PathLike[str], *, maps: Any = None, nvcc_flags: Sequence[str] = ()
) -> LintReport:
    """Return the mistakes around TMA that PTX shows.

    An error is proved by the PTX: the addresses overlap, and no path has the fence or the wait. A
    warning is possible only. What is computed at run time is not seen: no finding is no proof.

    Parameters
    ----------
    source : str or path
        PTX as text; or the path of PTX, of a .cu (which needs nvcc), or of a cubin, fatbin, object
        or library that holds PTX (which needs cuobjdump).
    maps : path, Trace or sequence of TensorMap, optional
        What ``trace --json`` wrote: instructions are compared with the maps that their kernels
        took. Of a sequence, the n-th map is the kernel's n-th parameter of 128 bytes.
    nvcc_flags : sequence of str
        Flags of nvcc, such as ``-Iinclude``; ``-arch=sm_90a`` is the default.

    Returns
    -------
    LintReport
        ``print(report)``, `_repr_html_`, `to_json()`, `to_sarif()`.

    Raises
    ------
    TmaPreconditionError
        If the source is not PTX.
    TmaUnsupportedError
        If nvcc or cuobjdump is needed and not found, or fails.

    Examples
    --------
    A tile is written by ordinary stores and then copied by TMA, without a fence:

    >>> import tma_dlpack as tma
    >>> kernel = '''
    ... .version 9.0
    ... .target sm_90a
    ... .address_size 64
    ... .shared .align 128 .b8 tile[4096];
    ... .visible .entry copy(.param .u64 out) {
    ...   ld.param.u64 %rd1, [out];
    ...   mov.u32 %r1, tile;
    ...   st.shared.u32 [%r1], 0;
    ...   bar.sync 0;
    ...   cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 4096;
    ...   cp.async.bulk.commit_group;
    ...   cp.async.bulk.wait_group.read 0;
    ...   ret;
    ... }'''
    >>> report = tma.lint(kernel)
    >>> [(f.rule, f.severity, f.line) for f in report.findings]
    [('PROXY_FENCE', 'error', 11)]
    >>> tma.lint(kernel.replace("bar.sync", "fence.proxy.async; bar.sync")).ok
    True
    """
    launched = maps if isinstance(maps, LaunchedMaps | None) else LaunchedMaps(maps)
    given = inputs.read(source, nvcc_flags)
    notes: list[str] = []
    comments: dict[int, str] = {}
    mistakes: dict[str, list[rules.Mistake]] = {}
    functions = 0
    for module in ptx.modules(given.text):
        callees = summaries(module.functions)
        notes += [f"{name}: its braces do not close; not checked" for name in module.unread]
        comments |= module.comments
        functions += len(module.functions)
        for function in module.functions:
            try:
                found = _mistakes(module, function, callees, launched)
            except TooLargeError:
                notes.append(f"{function.name}: too many paths; not checked")
            else:
                mistakes.setdefault(function.name, []).extend(found)
    suppressions = report.Suppressions(comments, given.folder)
    shown, hidden = report.findings(mistakes, suppressions)
    notes += [f"{text}: a suppression needs a reason" for text in suppressions.without_reason]
    return LintReport(tuple(shown), tuple(hidden), tuple(notes), functions, given.name)


def _mistakes(
    module: ptx.Module,
    function: ptx.Function,
    callees: Callees,
    launched: LaunchedMaps | None,
) -> list[rules.Mistake]:
    """Return what is wrong in one function, a pair of instructions each."""
    events = Events(Flow(Values(module, function)), callees)
    found = [*rules.paths(events), *single.alone(events)]
    return found if launched is None else [*found, *single.with_maps(events, launched)]


def run(
    sources: Iterable[str], maps: Any = None, nvcc_flags: Sequence[str] = ()
) -> tuple[list[LintReport], list[str]]:
    """Lint several files; return their reports, and what could not be read."""
    launched = None if maps is None else LaunchedMaps(maps)
    reports, failures = [], []
    for source in sources:
        try:
            reports.append(lint(Path(source), maps=launched, nvcc_flags=nvcc_flags))
        except (OSError, ValueError, RuntimeError) as error:
            words = (isinstance(error, OSError) and error.strerror) or str(error)
            failures.append(words if words.startswith(source) else f"{source}: {words}")
    return reports, failures


def printed(reports: Sequence[LintReport], failures: Sequence[str], *, sarif: bool) -> str:
    """Return reports as JSON or SARIF; files that were not read are notes."""
    unread = LintReport((), notes=tuple(failures))
    return (report.as_sarif if sarif else report.as_json)([*reports, unread])
