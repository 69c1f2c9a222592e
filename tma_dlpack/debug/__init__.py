"""Tools for other people's programs: their logs, their calls, their dead kernels, their PTX.

`explain/` reads printed arguments and symptoms, `trace/` lists the maps of a running program,
`postmortem/` reads the core dump of a dead kernel, `lint/` finds mistakes in PTX; `hexdump.py`
reads the 128 bytes of a map in the forms that tools print, `names.py` demangles. Each has a
docstring of its own; the commands are in `commands.py`. The classes of their results are
importable from here.
"""

from typing import TYPE_CHECKING

from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack.debug.explain import Explanation, PrintedArguments
    from tma_dlpack.debug.lint import LintFinding, LintReport
    from tma_dlpack.debug.postmortem import DeadBarrier, DeadKernel, Fault, FoundMap, PostMortem
    from tma_dlpack.debug.trace import Trace, TracedMap

__all__ = [
    "DeadBarrier",
    "DeadKernel",
    "Explanation",
    "Fault",
    "FoundMap",
    "LintFinding",
    "LintReport",
    "PostMortem",
    "PrintedArguments",
    "Trace",
    "TracedMap",
]
_LATER = {
    "tma_dlpack.debug.explain": ("Explanation", "PrintedArguments"),
    "tma_dlpack.debug.lint": ("LintFinding", "LintReport"),
    "tma_dlpack.debug.postmortem": ("DeadBarrier", "DeadKernel", "Fault", "FoundMap", "PostMortem"),
    "tma_dlpack.debug.trace": ("Trace", "TracedMap"),
}
__getattr__ = imported_later(__name__, _LATER)
