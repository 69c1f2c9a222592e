"""Tools that find mistakes of a TMA program in its logs, driver calls, core dumps or PTX.

`explain/` reads printed arguments and symptoms, `trace/` lists the maps of a running program,
`postmortem/` reads the core dump of a dead kernel, and `lint/` finds mistakes in PTX. `core.py`
lists all names from outside of `debug/` that these tools use. `foreign.py` reads untrusted files,
and converts a printed dump of a map to the map's 128 bytes. `programs.py` runs other programs,
`names.py` demangles C++ names, and `commands.py` defines the commands. This package exports the
classes of the tools' results.
"""

from typing import TYPE_CHECKING

from tma_dlpack.debug.core import public

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
# Module -> its names. A module is imported when one of its names is first used.
_LATER = {
    "tma_dlpack.debug.explain": ("Explanation", "PrintedArguments"),
    "tma_dlpack.debug.lint": ("LintFinding", "LintReport"),
    "tma_dlpack.debug.postmortem": ("DeadBarrier", "DeadKernel", "Fault", "FoundMap", "PostMortem"),
    "tma_dlpack.debug.trace": ("Trace", "TracedMap"),
}
__getattr__ = public.imported_later(__name__, _LATER)
