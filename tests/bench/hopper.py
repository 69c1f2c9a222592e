"""The kernels of notebooks/*.cu, compiled by NVRTC and launched on torch tensors.

`bench gemm` and `bench conv` time them, and tests/gpu compares their results.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import re
import statistics
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.make.batch import make_tma_descriptors
from tma_dlpack.make.conv import im2col_corners
from tma_dlpack.make.descriptors import make_im2col_descriptor, make_tma_descriptor
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

#: The folder of the kernels in a checkout. A wheel does not have this folder.
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
#: Threads of a block, and blocks of a cluster, for every kernel in these files.
THREADS, CLUSTER = 384, 2
#: The boxes of C, and the box of 64 channels of 128 pixels.
C_BOX, CHANNELS, PIXELS = (64, 64), 64, 128
#: smem_bytes<Fast> of hopper_gemm.cu; grouped_gemm.cu has 256 bytes more of its own.
SMEM_BYTES = 1024 + 4 * (128 + 256) * 64 * 2 + 8 * 8 + 4 * 64 * 64 * 2
MAP_BYTES = 128

Launch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel of hopper_gemm.cu and the boxes (rows, columns) that its maps of A and B have."""

    label: str
    kernel: str
    box_sizes: tuple[int, int]
    swizzle: str


CHOICES = (
    Choice("128-byte swizzle, boxes of 128 rows", "hopper_gemm", (128, 64), "bytes128"),
    Choice("no swizzle, boxes of 16 bytes", "hopper_gemm_without_swizzle", (128, 8), "none"),
    Choice("128-byte swizzle, boxes of 8 rows", "hopper_gemm_small_boxes", (8, 64), "bytes128"),
)


def require_torch() -> Any:
    """Return torch, or raise an error if there is no GPU of compute capability 9.0."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise TmaUnsupportedError(f"this bench compares with torch, and {error}") from error
    found = driver.status()
    if found.reason is not None:
        raise TmaUnsupportedError(found.reason)
    if not torch.cuda.is_available():
        raise TmaUnsupportedError("this torch sees no GPU: install one built for CUDA")
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        raise TmaUnsupportedError(
            f"the GPU's compute capability is {capability}: the kernel uses wgmma, which needs 9.0"
        )
    torch.zeros(1, device="cuda")  # makes torch's context current
    return torch


def compile_file(path: Path) -> launch.Library:
    """Compile a .cu file, and the .cu files of its folder that it includes, for the current GPU.

    Raises `TmaUnsupportedError` if the file is missing: wheels do not include it.
    """
    if not path.is_file():
        raise TmaUnsupportedError(
            f"there is no {path}: the kernel lies in the repository, not in the wheel; pass "
            f"--source with the path of notebooks/{path.name} of a checkout"
        )
    source = re.sub(
        r'^#include "(\w+\.cu)"$',
        lambda found: (path.parent / found[1]).read_text(encoding="utf-8"),
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    torch = importlib.import_module("torch")
    target = driver.device_target(torch.cuda.current_device())
    return launch.compile_source(source, path.name, target)


def gemm_maps(choice: Choice, a: Any, b: Any, c: Any) -> tuple[TensorMap, TensorMap, TensorMap]:
    """Return the maps of one call: a is (m, k), b is (n, k), c is (m, n), row-major, bfloat16.

    Boxes may be larger than the matrices, which the driver's rules allow. `make_tma_descriptor`
    refuses matrices whose row stride is not a multiple of 16 bytes.
    """
    box, swizzle = choice.box_sizes, choice.swizzle
    return (
        make_tma_descriptor(a, box, swizzle=swizzle, rules="driver"),
        make_tma_descriptor(b, box, swizzle=swizzle, rules="driver"),
        make_tma_descriptor(c, C_BOX, swizzle="bytes128", rules="driver"),
    )


def gemm_launcher(library: launch.Library, choice: Choice, a: Any, b: Any, c: Any) -> Launch:
    """Make the maps, and return a function that launches c = a @ b.T on torch's current stream."""
    sizes = [ctypes.c_int(n) for n in (*c.shape, a.shape[1])]
    return _launcher(library, choice.kernel, gemm_maps(choice, a, b, c), sizes)


def conv_launcher(library: launch.Library, x: Any, weights: Any, out: Any) -> Launch:
    """Return a function that launches the 3 x 3 convolution of hopper_conv.cu.

    x is (N, H, W, C), weights are (K, 3, 3, C), out is (N, H, W, K), row-major, bfloat16.
    """
    images, height, width, channels = x.shape
    kernels = weights.shape[0]
    corners = im2col_corners((3, 3), padding=1)
    taps, pixels = weights.reshape(kernels, 9, channels), out.reshape(-1, kernels)
    maps = (
        make_im2col_descriptor(x, *corners, CHANNELS, PIXELS, swizzle="bytes128", rules="driver"),
        make_tma_descriptor(taps, (PIXELS, 1, CHANNELS), swizzle="bytes128", rules="driver"),
        make_tma_descriptor(pixels, C_BOX, swizzle="bytes128", rules="driver"),
    )
    image = launch.by_value(struct.pack("<4i", width, height, images, channels))
    return _launcher(library, "hopper_conv", maps, [image, ctypes.c_int(kernels)])


def grouped_launcher(
    library: launch.Library, a: Any, weights: Iterable[Any], c: Any, ends: Any
) -> Launch:
    """Return a function that launches c[group] = a[group] @ weights[group].T.

    a is (m, k) and c is (m, n), row-major, bfloat16, with the groups' rows one below the other;
    weights are one (n, k) for each group; ends is int32 on the GPU: the row after each group.
    """
    torch = importlib.import_module("torch")
    experts = make_tma_descriptors(weights, C_BOX, swizzle="bytes128", rules="driver")
    on_gpu = experts.as_torch().cuda()
    places = torch.empty(_grid()[1] * 2 * MAP_BYTES, dtype=torch.uint8, device="cuda")
    a_map, c_map = (
        make_tma_descriptor(t, C_BOX, swizzle="bytes128", rules="driver") for t in (a, c)
    )
    sizes = [ctypes.c_int(n) for n in (len(experts), c.shape[1], a.shape[1])]
    b, room, stops = (ctypes.c_uint64(t.data_ptr()) for t in (on_gpu, places, ends))
    maps = a_map, b, c_map, room, stops
    return _launcher(library, "grouped_gemm", maps, sizes, alive=(experts, on_gpu, places, ends))


def _grid() -> tuple[int, int]:
    """Return the current device, and a block for each multiprocessor, in whole clusters."""
    device_id = importlib.import_module("torch").cuda.current_device()
    multiprocessors = driver.device_target(device_id).multiprocessors
    assert multiprocessors is not None  # the driver's facts have it
    return device_id, multiprocessors // CLUSTER * CLUSTER


def _launcher(
    library: launch.Library,
    name: str,
    maps: tuple[TensorMap | Any, ...],
    rest: list[Any],
    alive: object = None,
) -> Launch:
    torch = importlib.import_module("torch")
    device_id, grid = _grid()
    kernel = library.kernel(name, device_id)
    arguments = [
        launch.by_value(bytes(each)) if isinstance(each, TensorMap) else each for each in maps
    ] + rest

    def run(_: object = alive) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        launch.launch(kernel, grid, THREADS, SMEM_BYTES, stream, arguments)

    return run


@dataclass(frozen=True, slots=True)
class Comparison:
    """The speeds of two functions with the same result, timed in turns: medians in TFLOP/s."""

    ours: float
    torchs: float

    @property
    def ratio(self) -> float:
        """Return our speed over torch's."""
        return self.ours / self.torchs


#: Names of what is measured, the comparison, and whether our result is right.
Measured = tuple[tuple[object, ...], Comparison, bool]


def print_table(columns: str, heads: tuple[str, ...], rows: Iterable[Measured]) -> int:
    """Print each row after it was measured; return 1 if a result is wrong, else 0.

    `columns` is the format of a line: the names, TFLOP/s of both, their ratio, the verdict.
    """
    print(columns.format(*heads, "ratio", "result"))
    status = 0
    for names, found, right in rows:
        cells = f"{found.ours:.0f}", f"{found.torchs:.0f}", f"{found.ratio:.3f}"
        print(columns.format(*names, *cells, "right" if right else "WRONG"))
        status = status if right else 1
    return status


def parser_of(verb: str, about: str | None, source: str) -> argparse.ArgumentParser:
    """Return the parser of a bench of one of the notebooks' kernels."""
    parser = argparse.ArgumentParser(prog=f"python tests/bench {verb}", description=about)
    parser.add_argument("--source", type=Path, default=NOTEBOOKS / source)
    parser.add_argument("--rounds", type=int, default=20)
    return parser


def compare(ours: Launch, torchs: Launch, flop: float, rounds: int, calls: int) -> Comparison:
    """Time both functions in every round, so that a lower GPU clock slows both functions down."""
    both = ours, torchs
    for work in both:
        milliseconds(work, calls)  # warms up
    times = [[milliseconds(work, calls) for work in both] for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return Comparison(*(flop / ms / 1e9 for ms in medians))


def milliseconds(work: Launch, calls: int) -> float:
    torch = importlib.import_module("torch")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / calls
