"""Tools that examine a program by its logs, its driver calls, its core dumps or its PTX.

`explain/` reads printed arguments and symptoms, `trace/` lists the maps of a running program,
`postmortem/` reads the core dump of a dead kernel, and `lint/` finds mistakes in PTX. `core.py`
lists the names of the core that these tools use. `foreign.py` reads files, and the 128 bytes of a
map in the forms that tools print. `programs.py` runs other programs, `names.py` demangles C++
names, and `commands.py` defines the commands. The classes of the results are importable from this
package.
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
# Modules that are imported when one of their names is first used.
_LATER = {
    "tma_dlpack.debug.explain": ("Explanation", "PrintedArguments"),
    "tma_dlpack.debug.lint": ("LintFinding", "LintReport"),
    "tma_dlpack.debug.postmortem": ("DeadBarrier", "DeadKernel", "Fault", "FoundMap", "PostMortem"),
    "tma_dlpack.debug.trace": ("Trace", "TracedMap"),
}
__getattr__ = public.imported_later(__name__, _LATER)
