"""Handling of Ctrl-C while the command line starts: it ends without a traceback.

The package imports this module before all others. Importing NumPy alone takes a tenth of a second,
and Python prints a traceback if an import is interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from itertools import pairwise


def is_program(words: Sequence[str]) -> bool:
    """Whether Python was started for the command line of this package.

    >>> is_program(["python", "-m", "tma_dlpack", "demo"]), is_program(["python", "-m", "pytest"])
    (True, False)
    """
    if ("-m", "tma_dlpack") in pairwise(words):
        return True
    return any(word.replace("\\", "/").split("/")[-1] == "tma-dlpack" for word in words[:2])


IS_PROGRAM = is_program(sys.orig_argv)


def end_at_once() -> None:
    """Let Ctrl-C end the process, until `raise_as_usual` is called."""
    if IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_as_usual() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, which `main` and running commands handle."""
    if IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


end_at_once()
