"""Functions that run other programs: CUDA's tools, and the user's programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tma_dlpack.debug.core import tma

# The environment variable with the path of a library that libcuda loads into each CUDA program.
INJECTION = "CUDA_INJECTION64_PATH"
# The exit statuses that a shell reports if a program does not exist, or cannot be executed.
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def refuse_another_tool(why: str) -> None:
    """Raise if an environment variable makes libcuda load another tool into CUDA programs."""
    if other := os.environ.get(INJECTION):
        raise tma.TmaUnsupportedError(
            f"{INJECTION} is {other}: {why}; unset it, or run without that tool"
        )


def answer(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a tool and return the finished process; raise if it needs more than `seconds`."""
    try:
        return subprocess.run(
            words, capture_output=True, timeout=seconds, encoding="utf-8", errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise tma.TmaUnsupportedError(f"{words[0]} took more than {seconds:g} s") from None


def begin(words: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[bytes] | OSError:
    """Start a program with additional environment variables; return the error if this fails."""
    try:
        return subprocess.Popen(words, env={**os.environ, **variables})
    except OSError as error:
        return error


def status_of(program: subprocess.Popen[bytes] | OSError) -> int:
    """Return the exit status that a shell reports for a program that ended or did not start."""
    if isinstance(program, OSError):
        return NOT_FOUND if isinstance(program, FileNotFoundError) else NOT_EXECUTABLE
    # If signal n ended the program, Python reports -n, and a shell reports 128 + n.
    status = program.returncode
    return 128 - status if status < 0 else status
