"""Other programs: where CUDA's tools are, what they answer, and how a program began and ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tma_dlpack.driver import tool as tool  # of the CUDA toolkit
from tma_dlpack.tables.errors import TmaUnsupportedError

INJECTION = "CUDA_INJECTION64_PATH"
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit statuses, as shells have them


def refuse_another_tool(why: str) -> None:
    """Raise where another tool is loaded into every CUDA program of this environment."""
    if other := os.environ.get(INJECTION):
        raise TmaUnsupportedError(
            f"{INJECTION} is {other}: {why}; unset it, or run without that tool"
        )


def answer(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end; raise if that takes too long."""
    try:
        return subprocess.run(
            words, capture_output=True, timeout=seconds, encoding="utf-8", errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise TmaUnsupportedError(f"{words[0]} took more than {seconds:g} s") from None


def begin(words: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[bytes] | OSError:
    """Start a program with more environment variables; return the error where it does not exist."""
    try:
        return subprocess.Popen(words, env={**os.environ, **variables})
    except OSError as error:
        return error


def status_of(program: subprocess.Popen[bytes] | OSError) -> int:
    """Return the exit status of a program that ended, or never began, as a shell has it."""
    if isinstance(program, OSError):
        return NOT_FOUND if isinstance(program, FileNotFoundError) else NOT_EXECUTABLE
    status = program.returncode
    return 128 - status if status < 0 else status
