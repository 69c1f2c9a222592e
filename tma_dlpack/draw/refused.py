"""What a notebook shows of an error of ours: the user's line and the findings, not our frames."""

from __future__ import annotations

import linecache
import sys
import traceback
from pathlib import Path
from types import FrameType

from tma_dlpack.draw.results import error_html
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError

PACKAGE = str(Path(__file__).parents[1])
_SHOWN = "_tma_card_shown"
AROUND = 2  # lines before and after the user's


def render_traceback(error: TmaError) -> list[str]:
    """Give a traceback without our own frames, as IPython asks for it (``_render_traceback_``).

    In a notebook the violations are also displayed as HTML above it, and the traceback ends with
    the ids of the rules. In a terminal it ends with the whole message.

    Parameters
    ----------
    error : TmaError

    Returns
    -------
    list of str
        Lines.

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
    if _show_card(error):
        assert isinstance(error, TmaPreconditionError)
        return [*lines, f"{name}: {', '.join(v.rule for v in error.violations)}"]
    return [*lines, f"{name}: {error}"]


def _is_hidden(frame: FrameType) -> bool:
    """Whether a frame is ours or the notebook's own."""
    filename = frame.f_code.co_filename
    if filename.startswith(PACKAGE):
        return True
    return "IPython" in Path(filename).parts or "ipykernel" in Path(filename).parts


def _user_lines(frame: FrameType, line: int) -> list[str]:
    """Give the line that called us, with an arrow, and those around it."""
    filename = frame.f_code.co_filename
    source = linecache.getlines(filename, frame.f_globals)
    first = max(1, line - AROUND)
    shown = [
        f"{'---->' if n == line else '     '} {n:>3} {source[n - 1].rstrip()}"
        for n in range(first, min(len(source), line + AROUND) + 1)
    ]
    return [f"{_place(filename)}, line {line}", *shown, ""]


def _place(filename: str) -> str:
    """Name a cell as IPython does, ``Cell In[3]``; a file by its name."""
    shell = _shell()
    compiler = getattr(shell, "compile", None)
    if compiler is not None and hasattr(compiler, "format_code_name"):
        named = compiler.format_code_name(filename)
        if named is not None:
            return " ".join(named)
    return Path(filename).name


def _show_card(error: TmaError) -> bool:
    """Show the card of a refusal in a front end that takes HTML; say whether it was shown."""
    if not isinstance(error, TmaPreconditionError) or not hasattr(_shell(), "kernel"):
        return False
    if _SHOWN in error.__dict__:  # IPython asks twice
        return True
    error.__dict__[_SHOWN] = True
    data = {"text/html": error_html(error), "text/plain": str(error)}
    sys.modules["IPython"].display.display(data, raw=True)
    return True


def _shell() -> object:
    """Give the running IPython, which is asked for and never imported."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
