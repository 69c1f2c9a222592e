"""`TiledCopy`, which copies a tensor on the GPU tile by tile, and times the copy."""

from __future__ import annotations

import ctypes
import math
import statistics
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from tma_dlpack.verification.core import driver, launch, tma

#: Number of bytes of shared memory that the system reserves for each block (CUDA C++ Programming
#: Guide, compute capability 9.0). The shared memory of a multiprocessor has RESERVED_SMEM_BYTES
#: bytes more than a block may request.
RESERVED_SMEM_BYTES = 1024
BARRIER_BYTES = 8
# The kernel counts tiles in 32 bits.
MAX_TILES = 1 << 31
#: Maximum number of stages. At most half of the stages have pending stores, and the kernel in
#: kernels/bandwidth.cu supports at most 4 pending stores.
MAX_STAGES = 8
#: Number of additional bytes of memory after the tensor's copy. If the size of a row is not a
#: multiple of 16 bytes, a store may write up to this number of bytes after the end of the row.
OVERRUN_BYTES = 16
# ISSUING_THREADS is the number of threads per block of the copying kernel; only one of these
# threads issues copies. LOOKING_THREADS is the number of threads per block of the kernels `invert`
# and `compare`, and LOOKING_CTAS_PER_SM is the number of blocks of these kernels per
# multiprocessor.
ISSUING_THREADS, LOOKING_THREADS, LOOKING_CTAS_PER_SM = 32, 256, 8
_PREFERRED_SHARED_MEMORY_CARVEOUT = 9  # CUfunction_attribute (cuda.h)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parameters of the copying kernel, which keeps several copies in flight.

    Attributes
    ----------
    stages : int
        Number of tiles in shared memory per CTA.
    ctas_per_sm : int
    stores_in_flight : int
        Number of stages whose stores may be pending. The other stages are for loads.
    neighbours : int
        Number of adjacent tiles that one CTA copies at a time. If it is 2, CTA 0 copies tiles 0 and
        1, CTA 1 copies tiles 2 and 3, and two adjacent rows of 128 bytes share one L2 fetch of 256
        bytes.
    """

    stages: int
    ctas_per_sm: int
    stores_in_flight: int
    neighbours: int

    @classmethod
    def family(cls, stages: int, ctas_per_sm: int) -> Iterator[Pipeline]:
        """Yield the pipelines to try that have these values of `stages` and `ctas_per_sm`."""
        for stores_in_flight in sorted({min(1, stages - 1), stages // 2}):
            for neighbours in (1, 2):
                yield cls(stages, ctas_per_sm, stores_in_flight, neighbours)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of copying a tensor with one map and one pipeline.

    Attributes
    ----------
    tensor_map : TensorMap
    pipeline : Pipeline
    seconds : float
        Median time of a copy in seconds.
    verified : bool
        Whether the copy wrote every byte correctly. Before the copy, every byte of the destination
        was wrong.
    """

    tensor_map: tma.TensorMap
    pipeline: Pipeline
    seconds: float
    verified: bool


def fits(pipeline: Pipeline, tensor_map: tma.TensorMap, target: tma.Target) -> bool:
    """Return whether a pipeline's blocks fit into the shared memory of a multiprocessor."""
    block_bytes = _block_bytes(pipeline, tensor_map)
    needed = pipeline.ctas_per_sm * (block_bytes + RESERVED_SMEM_BYTES)
    return (
        needed <= target.max_smem_bytes + RESERVED_SMEM_BYTES
        and block_bytes <= target.max_smem_bytes
    )


def _stage_bytes(tensor_map: tma.TensorMap) -> int:
    # Align stages to 1024 bytes, because the pattern of the 128-byte swizzle repeats every 1024
    # bytes.
    return -(-tensor_map.smem_bytes // 1024) * 1024


def _block_bytes(pipeline: Pipeline, tensor_map: tma.TensorMap) -> int:
    return pipeline.stages * (_stage_bytes(tensor_map) + BARRIER_BYTES)


class TiledCopy:
    """A context manager with a tensor, memory for the copy of the tensor, and the kernels.

    `tensor_map` is any map of the tensor. Each copy may use a different map of the tensor.
    """

    copy: int

    def __init__(self, tensor_map: tma.TensorMap) -> None:
        """Refuse a tensor with a stride of 0, because all its rows are in the same memory.

        The speed of copying such a tensor is not the bandwidth of the memory.
        """
        if 0 in tensor_map.global_strides:
            raise tma.TmaUnsupportedError(
                f"the tensor's strides are {tensor_map.strides}: where one is 0, rows are the same "
                "memory and a copy has no bandwidth of its own; pass a tensor without overlap"
            )
        self.source: int = tensor_map.global_address
        row_bytes = tensor_map.arguments.row_bytes
        counts = tensor_map.global_dim[1:]
        self.tensor_bytes: int = math.prod(counts) * row_bytes
        steps = zip(counts, tensor_map.global_strides, strict=True)
        # Number of bytes from the first to the last byte of the tensor, including the gaps between
        # rows.
        self.extent_bytes: int = sum((n - 1) * stride for n, stride in steps) + row_bytes
        # `_rows` is a struct Rows of kernels/bandwidth.cu, which always has 4 dimensions.
        missing = 4 - len(counts)
        strides, ones = (*tensor_map.global_strides, *(0,) * missing), (1,) * missing
        self._rows = launch.by_value(
            struct.pack("<4Q4I2Q", *strides, *counts, *ones, math.prod(counts), row_bytes)
        )
        self._tensor = tensor_map.tensor

    def __enter__(self) -> TiledCopy:
        with ExitStack() as stack:
            self.device_id: int = stack.enter_context(driver.in_context_of(self.source))
            self.target: tma.Target = driver.device_target(self.device_id)
            self._sms = multiprocessors(self.target)
            self._library = library(self.target)
            self._stream = launch.ordered_stream(self._tensor, self.device_id, None)
            self.copy = stack.enter_context(launch.scratch(self.extent_bytes + OVERRUN_BYTES))
            self._answer = stack.enter_context(launch.scratch(4))
            self._events = stack.enter_context(_events())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def memcpy_seconds(self, repeats: int) -> float:
        """Return the median time in seconds of device-to-device memcpys of the tensor.

        The memcpy also copies the gaps between rows.
        """

        def memcpy() -> None:
            where = self.copy, self.source, self.extent_bytes
            driver.call("cuMemcpyDtoDAsync_v2", *where, self._stream)

        memcpy()  # Do not time the first memcpy, because it is slower.
        return statistics.median(self._seconds(memcpy) for _ in range(repeats))

    def run(self, tensor_map: tma.TensorMap, pipeline: Pipeline, repeats: int) -> Run:
        """Copy the tensor with a map, compare the copy with the tensor, and time the copy."""
        copy = self._launcher(tensor_map, pipeline)
        # Write the inverted source to the destination, so that every byte is wrong.
        self._look("invert")
        self._require_done(self._answer_after(copy))
        differences = self._answer_after(lambda: self._look("compare", self._answer))
        seconds = statistics.median(self._seconds(copy) for _ in range(repeats))
        return Run(tensor_map, pipeline, seconds, differences == 0)

    def seconds(self, tensor_map: tma.TensorMap, pipeline: Pipeline, repeats: int) -> float:
        """Return the median time in seconds of copies with a map, without comparing the results."""
        copy = self._launcher(tensor_map, pipeline)
        return statistics.median(self._seconds(copy) for _ in range(repeats))

    def _launcher(self, tensor_map: tma.TensorMap, pipeline: Pipeline) -> Callable[[], None]:
        rank, box = tensor_map.rank, tensor_map.box_dim
        counts = [-(-n // b) for n, b in zip(tensor_map.global_dim, box, strict=True)]
        tiles = math.prod(counts)
        if tiles > MAX_TILES:
            raise tma.TmaUnsupportedError(
                f"{tiles} tiles of {tensor_map.box_sizes} cover the tensor; at most {MAX_TILES} "
                "are counted. Pass larger boxes"
            )
        ones = (1,) * (5 - rank)
        # In a map that `split_inner` made, the outermost dimension counts the parts of a row, and
        # has the smallest stride. For such a map, the kernel counts the tiles along the outermost
        # dimension first. So tiles with consecutive numbers are adjacent in memory.
        strides = tensor_map.global_strides
        last_first = rank > 2 and strides[-1] < min(strides[:-1])
        tiling = struct.pack("<5I5iII", *counts, *ones, *box, *ones, tiles, last_first)
        sizes = pipeline.stages, _stage_bytes(tensor_map), tensor_map.tx_bytes
        ring = struct.pack("<5I", *sizes, pipeline.stores_in_flight, pipeline.neighbours)
        arguments = (
            launch.by_value(bytes(tensor_map)),
            launch.by_value(bytes(tensor_map.with_address(self.copy))),
            launch.by_value(tiling),
            launch.by_value(ring),
            ctypes.c_uint64(self._answer),
        )
        # Configure the largest possible shared memory (and the smallest L1 cache), so that all
        # blocks are resident.
        kernel = self._library.kernel(f"copy_tiles_{rank}", self.device_id)
        carveout = _PREFERRED_SHARED_MEMORY_CARVEOUT
        driver.call("cuKernelSetAttribute", carveout, 100, kernel, self.device_id)
        grid = min(tiles, self._sms * pipeline.ctas_per_sm)
        size = (grid, ISSUING_THREADS, _block_bytes(pipeline, tensor_map))
        return lambda: launch.launch(kernel, *size, self._stream, arguments)

    def _look(self, name: str, *answer: int) -> None:
        addresses = [ctypes.c_uint64(a) for a in (self.source, self.copy)]
        arguments = (*addresses, self._rows, *map(ctypes.c_uint64, answer))
        kernel = self._library.kernel(name, self.device_id)
        grid = self._sms * LOOKING_CTAS_PER_SM
        launch.launch(kernel, grid, LOOKING_THREADS, 0, self._stream, arguments)

    def _answer_after(self, work: Callable[[], None]) -> int:
        """Set a word in GPU memory to 0, call `work`, and return the word that its kernels left."""
        word = np.zeros(1, np.uint32)
        launch.upload(self._answer, word, self._stream)
        work()
        launch.download(word, self._answer, self._stream)
        launch.synchronize(self._stream)
        return int(word[0])

    def _require_done(self, status: int) -> None:
        if status:
            raise tma.TmaDriverError(
                f"the copy did not run to its end (status {status}: 1 is an mbarrier that still "
                "waits for bytes after 2 s, 2 is misaligned shared memory)"
            )

    def _seconds(self, work: Callable[[], None]) -> float:
        begin, end = self._events
        milliseconds = ctypes.c_float()
        driver.call("cuEventRecord", begin, self._stream)
        work()
        driver.call("cuEventRecord", end, self._stream)
        driver.call("cuEventSynchronize", end)
        driver.call("cuEventElapsedTime", milliseconds, begin, end)
        return milliseconds.value / 1e3


def library(target: tma.Target) -> launch.Library:
    return launch.compile_packaged("bandwidth.cu", __package__, target)


def multiprocessors(target: tma.Target) -> int:
    assert target.multiprocessors is not None  # `driver.device_target` sets this attribute.
    return target.multiprocessors


@contextmanager
def _events() -> Iterator[tuple[ctypes.c_void_p, ctypes.c_void_p]]:
    events = ctypes.c_void_p(), ctypes.c_void_p()
    for event in events:
        driver.call("cuEventCreate", event, 0)
    try:
        yield events
    finally:
        for event in events:
            driver.call("cuEventDestroy_v2", event)
