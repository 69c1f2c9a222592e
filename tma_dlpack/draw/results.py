"""Results as HTML: batches of maps, lists of rules, results of `verify` and `bandwidth`, refusals.

The modules of `verify`, `bandwidth` and `rules` import `draw`. To avoid a cycle, this file does not
import these modules, and it declares the types of their results as Any.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from tma_dlpack.draw.cards import bold, finding_html, plain, table_html
from tma_dlpack.draw.figure import Figure, fragment, require
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out, words
from tma_dlpack.make.batch import TensorMapBatch
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError, argument_error

MOST_ROWS = 12  # maximum number of maps in the table of a batch
BAR_WIDTH, BAR = 260, 20  # px
PACKAGE = str(Path(__file__).parents[1])
AROUND = 2  # lines shown before and after the user's line
_SHOWN = "_tma_card_shown"


def batch_html(batch: TensorMapBatch) -> str:
    """Return a batch as HTML: the number of maps, the number of layouts, and the first 12 maps.

    Parameters
    ----------
    batch : TensorMapBatch
        The result of `make_tma_descriptors`.

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tensors = [np.zeros((n, 64), np.float16) for n in (64, 32)]
    >>> batch = tma.make_tma_descriptors(tensors, (16, 64))
    >>> "2 maps of 128 bytes, 2 layouts" in batch_html(batch)
    True
    """
    require("batch", batch, (TensorMapBatch,), "make one: make_tma_descriptors(tensors, ...)")
    # Maps with equal arguments have one layout, because they differ only in their address.
    layouts = len({tm.arguments for tm in batch})
    where = "launchable" if batch.launchable else "not launchable: host memory is among them"
    head = f"{counted(len(batch), 'map')} of 128 bytes, {counted(layouts, 'layout')}, {where}"
    rows = [
        (n, tm.data_type.name, tm.shape, tm.box_sizes, tm.swizzle.name, f"{tm.global_address:#x}")
        for n, tm in enumerate(islice(batch, MOST_ROWS))
    ]
    heads = ("", "data_type", "shape", "box_sizes", "swizzle", "address")
    further = len(batch) - MOST_ROWS
    more = [plain(f"and {further} further ones")] * (further > 0)
    return fragment([bold(head), table_html(heads, rows), *more])


def rules_html(rules: Any) -> str:
    """Return a list of rules as an HTML table.

    Parameters
    ----------
    rules : RuleList
        The result of `tma.rules()`.

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> "<td>BOX_IN_SHAPE</td>" in rules_html(tma.rules("rule"))
    True
    """
    _known("rules", rules, "tma_dlpack.report.RuleList", "pass tma.rules()")
    heads, *rows = rules.table()
    return fragment([table_html(heads, rows)])


def verify_html(report: Any) -> str:
    """Return a report of `verify` as HTML: one row per check, and the first disagreements in full.

    Parameters
    ----------
    report : VerifyReport

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> from tma_dlpack.verification import VerifyReport, VerifyRow
    >>> report = VerifyReport("a GPU", 0, (VerifyRow("tile loads", 1000, 990, 0),))
    >>> "all agree" in verify_html(report)
    True
    """
    _known("report", report, "tma_dlpack.verification.VerifyReport", "pass the result of verify()")
    return str(report._repr_html_())


def bandwidth_html(report: Any) -> str:
    """Return a report of `bandwidth` as HTML: bars relative to a memcpy, and a table.

    Parameters
    ----------
    report : BandwidthReport

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> from tma_dlpack.verification.bandwidth import BandwidthReport
    >>> report = BandwidthReport("a GPU", "FLOAT16 of shape (8192, 8192)", 1 << 27, 4.0e12, ())
    >>> "a GPU: FLOAT16 of shape (8192, 8192), 128 MiB" in bandwidth_html(report)
    True
    """
    _known(
        "report",
        report,
        "tma_dlpack.verification.BandwidthReport",
        "pass the result of bandwidth(x)",
    )
    return str(report._repr_html_())


@dataclass(frozen=True, slots=True, repr=False)
class BandwidthBars(Figure):
    """Bandwidths as bars. A bar is (name, ratio to the reference, description)."""

    title: str
    bars: tuple[tuple[str, float, str], ...]
    reference: str

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel with all bars."""
        most = max([1.0, *(ratio for _, ratio, _ in self.bars)])
        # The vertical line at ratio 1.
        cells = [Cell(1 / most, 0, "axis", columns=0, rows=len(self.bars))]
        for n, (name, ratio, about) in enumerate(self.bars):
            # There is room for 21 letters right of the longest bar, and for 26 left of the bars.
            length, text = ratio / most, f"{ratio:.2f}: {about}"[:21]
            cells.append(Cell(0, n, "taken", "", about, length, 0.7))
            cells.append(words(length + 0.02, n, text, "label", 0.7))
            cells.append(label(0, n, name[:26], "label", 0.7))
        return (lay_out(self.title, [Grid(tuple(cells), (BAR_WIDTH, BAR))], "", [self.reference]),)

    def text(self) -> str:
        """Return one line per bar."""
        rows = [f"{name:<28} {ratio:.3f}  {about}"[:100] for name, ratio, about in self.bars]
        return "\n".join([self.title[:100], self.reference[:100], *rows])


def error_html(error: TmaPreconditionError) -> str:
    """Return a refusal as HTML: every violation with its limit, fix and source.

    Parameters
    ----------
    error : TmaPreconditionError

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> try:
    ...     tma.make_tma_descriptor(np.zeros((64, 64), np.float32), (16, 3))
    ... except tma.TmaPreconditionError as error:
    ...     print("BOX_INNER_16B" in error_html(error))
    True
    """
    require("error", error, (TmaPreconditionError,), "pass the error that was raised")
    count = counted(len(error.violations), "violation")
    return fragment([bold(f"✗ refused: {count}"), *map(finding_html, error.violations)])


def _known(argument: str, value: object, name: str, fix: str) -> None:
    kind = type(value)
    if f"{kind.__module__}.{kind.__name__}" != name:
        found = f"{argument} is of type {kind.__name__}"
        raise argument_error(argument, found, f"be a {name.rpartition('.')[2]}", fix)


# --- Refusals in a notebook -----------------------------------------------------------------------


def render_traceback(error: TmaError) -> list[str]:
    """Return a traceback without frames of this package, for IPython (``_render_traceback_``).

    In a notebook, the violations are also displayed as HTML above the traceback, and the traceback
    ends with the ids of the broken rules. In a terminal, the traceback ends with the whole message.

    Parameters
    ----------
    error : TmaError

    Returns
    -------
    list of str
        The lines of the traceback.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> try:
    ...     tma.make_tma_descriptor(np.zeros(4), (3,))
    ... except tma.TmaError as error:
    ...     print(render_traceback(error)[-1])  # doctest: +ELLIPSIS
    TmaPreconditionError: box_sizes[0] spans 24 bytes; it must be a multiple of 16 bytes ...
    """
    lines: list[str] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_hidden(frame):
            lines += _user_lines(frame, line)
    name = type(error).__name__
    message = f"{error}"
    if isinstance(error, TmaPreconditionError) and _show_card(error):
        message = ", ".join(violation.rule for violation in error.violations)
    return [*lines, f"{name}: {message}"]


def _is_hidden(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package, to IPython or to ipykernel."""
    filename = frame.f_code.co_filename
    hidden = {"IPython", "ipykernel"}
    return filename.startswith(PACKAGE) or not hidden.isdisjoint(Path(filename).parts)


def _user_lines(frame: FrameType, line: int) -> list[str]:
    """Return line number `line` of a frame's file with an arrow, and the lines around it."""
    filename = frame.f_code.co_filename
    source = linecache.getlines(filename, frame.f_globals)
    first = max(1, line - AROUND)
    shown = [
        f"{'---->' if n == line else '     '} {n:>3} {source[n - 1].rstrip()}"
        for n in range(first, min(len(source), line + AROUND) + 1)
    ]
    return [f"{_place(filename)}, line {line}", *shown, ""]


def _place(filename: str) -> str:
    """Return IPython's name of a cell, such as ``Cell In[3]``, or the name of a file."""
    compiler = getattr(_shell(), "compile", None)
    can_name = hasattr(compiler, "format_code_name")
    name = compiler.format_code_name(filename) if can_name else None  # type: ignore[union-attr]
    return " ".join(name) if name is not None else Path(filename).name


def _show_card(error: TmaPreconditionError) -> bool:
    """Display a refusal as HTML if the front end shows HTML; return whether it does."""
    has_html = hasattr(_shell(), "kernel")
    if has_html and _SHOWN not in error.__dict__:  # IPython renders a traceback twice
        error.__dict__[_SHOWN] = True
        data = {"text/html": error_html(error), "text/plain": str(error)}
        sys.modules["IPython"].display.display(data, raw=True)
    return has_html


def _shell() -> object:
    """Return the running IPython shell or None, without importing IPython."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
