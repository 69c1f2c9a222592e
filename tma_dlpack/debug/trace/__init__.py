"""`trace`, which lists every tensor map that a process or a program makes through any library.

The recorder is a library, built from `native/inject.c`. The function `trace` loads it into this
process. For ``tma-dlpack trace -- PROGRAM``, the function `run` starts the program so that libcuda
loads the recorder. The recorder subscribes to CUPTI. It writes a record of every call that encodes
a map, and of every launch, into a folder. `result.py` reads the folder and shows the maps.
`traced.py` checks the maps against the rules.

To trace another driver function, add a row to `ENCODERS` or `LAUNCHES` of native/inject.c. The row
has the number of the function's callback (cupti_driver_cbid.h) and the offsets of its parameters
(generated_cuda_meta.h).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from tma_dlpack.debug import programs
from tma_dlpack.debug.core import driver, public, tma
from tma_dlpack.debug.programs import INJECTION, status_of
from tma_dlpack.debug.trace.result import (
    ALONE,
    Trace,
    parse,
    problem_text,
    refusal_text,
    refused_lines,
)
from tma_dlpack.debug.trace.traced import TracedMap, merged

# Environment variables that inject.c reads: the folder to write into, and paths of libcupti.so.
FOLDER, CUPTI = "TMA_DLPACK_TRACE", "TMA_DLPACK_TRACE_CUPTI"
# Seconds between two searches for new refused calls in the folder of a running program.
_PAUSE_SECONDS = 0.02
# Maximum number of refused calls that are printed to standard error. The report has all calls.
_MOST_EXPLAINED = 20
# Places where pip installs CUPTI. `_SITES` is relative to the prefix of a Python installation, and
# `_CUPTI_FILES` are relative to site-packages.
_SITES = "lib/python3*/site-packages"
_CUPTI_FILES = (
    "nvidia/cu13/lib/libcupti.so*",
    "nvidia/cuda_cupti/lib/libcupti.so*",
    "triton/backends/nvidia/lib/cupti/libcupti.so*",
)
# Paths of CUPTI relative to the root of a CUDA toolkit.
_TOOLKIT_FILES = ("extras/CUPTI/lib64/libcupti.so", "lib64/libcupti.so", "lib/libcupti.so")


@public.untraced
@contextmanager
def trace() -> Iterator[Trace]:
    """Record every tensor map that this process makes in the ``with`` block.

    The trace has the maps of all threads, and of all libraries that call the driver (torch, Triton,
    CUTLASS, CuPy, this package).

    Yields
    ------
    Trace
        `.maps` has each different map, with its arguments, the driver's result, broken rules,
        advice and kernels. ``print(t)`` shows the trace as text, and notebooks show it as HTML.

    Raises
    ------
    TmaUnsupportedError
        If there is no GPU, if CUPTI is not found, or if another tool uses CUPTI. CUPTI has one
        subscriber at a time, so torch.profiler, Proton, nsys, ncu and compute-sanitizer cannot run
        during a trace.
        The driver makes no GPU core dumps during a trace, so use `postmortem` in another run.

    Notes
    -----
    Maps that a kernel builds on the device are not recorded. To trace a whole program, in Python or
    another language, run ``tma-dlpack trace -- PROGRAM ARGS``.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> with tma.trace() as t:  # doctest: +SKIP
    ...     kernel[grid](TensorDescriptor.from_tensor(x, [64, 64]))
    >>> t.maps[0].arguments.box_dim, t.maps[0].kernels  # doctest: +SKIP
    ((64, 64), ('kernel',))
    """
    refuse_another_tool()
    reason = driver.status().reason
    if reason is not None:
        raise tma.TmaUnsupportedError(reason)
    library = _library()
    with tempfile.TemporaryDirectory(
        prefix="tma_dlpack_trace_", ignore_cleanup_errors=True
    ) as folder:
        traced = Trace(Path(folder))
        if not library.tma_dlpack_trace_start(os.fsencode(folder), cupti_paths().encode()):
            problems = [p for process in traced._raw["processes"] for p in process["problems"]]
            running = "another trace of this process is running: CUPTI has one subscriber at a time"
            raise tma.TmaUnsupportedError("; ".join(map(problem_text, problems)) or running)
        try:
            yield traced
        finally:
            library.tma_dlpack_trace_stop()
            traced._freeze()


@lru_cache(maxsize=1)
def _library() -> Any:
    return ctypes.PyDLL(str(library()))


def library() -> Path:
    """Return the path of the recorder's library; raise if the library was not built."""
    path = Path(__file__).with_name("_inject.abi3.so")
    if not path.exists():
        raise tma.TmaUnsupportedError(
            "this installation has no library for trace: it is built on Linux with glibc; install "
            "the wheel for Linux, or a C compiler and run pip install again"
        )
    return path


def refuse_another_tool() -> None:
    """Raise if this environment loads another tool into every CUDA program."""
    programs.refuse_another_tool(
        "another tool is loaded into CUDA programs, and CUPTI has one subscriber at a time "
        f"({ALONE})"
    )


def cupti_paths(program: str | None = None) -> str:
    """Return the value of `TMA_DLPACK_TRACE_CUPTI`: possible paths of CUPTI, separated by colons.

    The user's value of this variable comes first. The packages of this Python and of the program's
    Python come next, and then CUDA toolkits.
    """
    sites = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    found = shutil.which(program) if program else None
    if found:
        # In a virtual environment, the program may be a link to a Python with other packages. So
        # the packages of both are searched.
        for python in (Path(found), Path(found).resolve()):
            sites += python.parent.parent.glob(_SITES)
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    paths = [path for site in sites for pattern in _CUPTI_FILES for path in site.glob(pattern)]
    paths += [Path(root, file) for root in toolkits if root for file in _TOOLKIT_FILES]
    known = [str(path) for path in dict.fromkeys(paths) if path.exists()]
    return ":".join([*filter(None, [os.environ.get(CUPTI)]), *known])


def run(program: Sequence[str], talks: bool = True) -> tuple[int, Trace]:
    """Run a program to its end; return its exit status and the trace.

    The status is 128 + n if signal n ended the program. Refused calls are explained on
    standard error while the program runs, unless `talks` is False.
    """
    refuse_another_tool()
    with tempfile.TemporaryDirectory(
        prefix="tma_dlpack_trace_", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        words = {INJECTION: str(library()), FOLDER: name, CUPTI: cupti_paths(program[0])}
        if talks:
            print(
                f"tma_dlpack trace: no other tool can use CUPTI at the same time ({ALONE})",
                file=sys.stderr,
                flush=True,
            )
        child = programs.begin(program, words)
        if isinstance(child, OSError):
            print(f"tma_dlpack trace: {program[0]}: {child.strerror}", file=sys.stderr)
            return status_of(child), Trace(folder)
        watch = _Watch(folder)
        with _signals_passed_to(child):
            while child.poll() is None:
                if talks:
                    watch.look()
                time.sleep(_PAUSE_SECONDS)
        if talks:
            watch.look()
        trace = Trace(folder)
        trace._freeze()
    return status_of(child), trace


class _Watch:
    """A reader of the records that a running program adds to the trace's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Path of a file -> the number of its bytes that were read.
        self.read: dict[Path, int] = {}
        self.explained = 0

    def look(self) -> None:
        """Print the new refused calls and the new problems to standard error."""
        for path in self.folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self.read.get(path, 0))
                content = file.read()
            # The last line may not be complete yet.
            content = content[: content.rfind(b"\n") + 1]
            self.read[path] = self.read.get(path, 0) + len(content)
            if content:
                self._explain(path, parse(content))

    def _explain(self, path: Path, lines: list[dict[str, object]]) -> None:
        process = {"pid": path.name.partition("-")[0], "pauses": 0}
        for line in lines:
            if line["is"] == "problem":
                text = f"tma_dlpack trace: process {process['pid']}: {problem_text(line)}"
                print(text, file=sys.stderr, flush=True)
        # `merged` needs the fields that `read_folder` adds. Counts and kernels are not known yet,
        # so the call gets count 1 and no kernels.
        refused = [
            {**line, "process": 0, "count": 1, "kernels": []} for line in refused_lines(lines)
        ]
        for traced in merged(refused, [process]):
            self.explained += 1
            if self.explained <= _MOST_EXPLAINED:
                print(refusal_text(traced), file=sys.stderr, flush=True)
            elif self.explained == _MOST_EXPLAINED + 1:
                print("tma_dlpack trace: more refused calls are in the report", file=sys.stderr)


@contextmanager
def _signals_passed_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass SIGTERM and SIGHUP on to the program, and ignore SIGINT and SIGQUIT.

    SIGINT (Ctrl-C) and SIGQUIT are not passed on, because the terminal sends them to both
    processes.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)
    }
    before |= {n: signal.signal(n, pass_on) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
