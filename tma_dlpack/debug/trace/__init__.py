"""`trace`: every tensor map that a process or a program makes, whoever makes it.

`_inject.c` is a library that libcuda loads into the program, or `trace` into this process. Through
CUPTI it sees every call that encodes a map and every launch, and writes them into a folder;
`result` reads the folder and shows the maps, which `traced` checks against the rules; `program`
runs a program with the library in it.

A new call of the driver takes a row in `ENCODERS` or `LAUNCHES` of _inject.c: the number of its
callback (cupti_driver_cbid.h) and the offsets of its parameters (generated_cuda_meta.h).
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tma_dlpack import driver
from tma_dlpack.debug.trace import program
from tma_dlpack.debug.trace.result import Trace, problem_text
from tma_dlpack.debug.trace.traced import TracedMap
from tma_dlpack.public import untraced
from tma_dlpack.tables.errors import TmaUnsupportedError


@untraced
@contextmanager
def trace() -> Iterator[Trace]:
    """Record every tensor map that this process makes meanwhile, whoever makes it.

    torch, Triton, CUTLASS, CuPy, this package: all that call the driver, in every thread.

    Yields
    ------
    Trace
        `.maps` has each different map with the driver's arguments, result, verdict, advice and
        kernels. Text as ``print(t)``, HTML in notebooks.

    Raises
    ------
    TmaUnsupportedError
        Without a GPU or CUPTI, or where another tool listens already: CUPTI has one subscriber at a
        time, so torch.profiler, Proton, nsys, ncu and compute-sanitizer do not work beside it.
        The driver makes no GPU core dumps meanwhile: `postmortem` is for another run.

    Notes
    -----
    Maps that a kernel builds on the device are not seen. For a whole program, Python or not:
    ``python -m tma_dlpack trace -- PROGRAM ARGS``.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> with tma.trace() as t:  # doctest: +SKIP
    ...     kernel[grid](TensorDescriptor.from_tensor(x, [64, 64]))
    >>> t.maps[0].arguments.box_dim, t.maps[0].kernels  # doctest: +SKIP
    ((64, 64), ('kernel',))
    """
    program.refuse_another_tool()
    reason = driver.status().reason
    if reason is not None:
        raise TmaUnsupportedError(reason)
    library = _library()
    with tempfile.TemporaryDirectory(
        prefix="tma_dlpack_trace_", ignore_cleanup_errors=True
    ) as folder:
        traced = Trace(Path(folder))
        if not library.tma_dlpack_trace_start(os.fsencode(folder), program.cupti_paths().encode()):
            problems = [p for process in traced._raw["processes"] for p in process["problems"]]
            running = "another trace of this process is running: CUPTI has one subscriber at a time"
            raise TmaUnsupportedError("; ".join(map(problem_text, problems)) or running)
        try:
            yield traced
        finally:
            library.tma_dlpack_trace_stop()
            traced._freeze()


@lru_cache(maxsize=1)
def _library() -> Any:
    return ctypes.PyDLL(str(program.library()))
