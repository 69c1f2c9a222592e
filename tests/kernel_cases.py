"""The kernels of this repository as calls of `run_kernel`, with the results that NumPy computes.

Inputs are small integers, so that every sum is exact in float32. If a kernel rounds its results to
bfloat16, the expected arrays have these bits as uint16. The same cases run on the simulator
(tests/kernel) and on a GPU (tests/gpu).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tma_dlpack as tma

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
THREADS = 384
RING_BYTES = 1024 + 4 * (128 + 256) * 64 * 2 + 8 * 8 + 4 * 64 * 64 * 2


class Case(NamedTuple):
    """A call of `run_kernel`, with pairs (array that the kernel writes, expected array)."""

    source: Path
    name: str
    keywords: dict[str, Any]
    results: list[tuple[np.ndarray, np.ndarray]]


def integers(seed: int, *shape: int) -> np.ndarray:
    """Return small integers as bfloat16."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(ml_dtypes.bfloat16)


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16)


def map_of(x: np.ndarray, box: tuple[int, ...], swizzle: str = "bytes128", **more: Any) -> Any:
    return tma.make_tma_descriptor(
        bits(x), box, swizzle=swizzle, data_type="BFLOAT16", rules="driver", **more
    )


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return bits((a.astype(np.float32) @ b.astype(np.float32).T).astype(a.dtype))


def gemm(name: str, box: tuple[int, int], swizzle: str, m: int, n: int, k: int) -> Case:
    a, b = integers(1, m, k), integers(2, n, k)
    c = np.zeros((m, n), a.dtype)
    maps = map_of(a, box, swizzle), map_of(b, box, swizzle), map_of(c, (64, 64))
    keywords = {"grid": 4, "block": THREADS, "smem_bytes": RING_BYTES, "args": (*maps, m, n, k)}
    return Case(NOTEBOOKS / "hopper_gemm.cu", name, keywords, [(bits(c), product(a, b))])


def ladder(
    name: str, box: tuple[int, int], swizzle: str, threads: int, m: int, n: int, k: int
) -> Case:
    a, b = integers(1, m, k), integers(2, n, k)
    c = np.zeros((m, n), a.dtype)
    first = [bits(a), bits(b)] if name == "ladder_threads" else [
        map_of(a, box, swizzle), map_of(b, box, swizzle)
    ]  # fmt: skip
    args = (*first, map_of(c, (64, 64)), m, n, k)
    grid = 2 if name == "ladder_persistent" else (m + 127) // 128 * ((n + 255) // 256)
    keywords = {"grid": grid, "block": threads, "smem_bytes": RING_BYTES, "args": args}
    return Case(NOTEBOOKS / "gemm_ladder.cu", name, keywords, [(bits(c), product(a, b))])


def grouped(sizes: tuple[int, ...], n: int, k: int) -> Case:
    m = sum(sizes) + 5  # five rows belong to no group
    a, weights = integers(1, m, k), integers(2, len(sizes), n, k)
    c = np.zeros((m, n), a.dtype)
    ends = np.cumsum(sizes).astype(np.int32)
    experts = tma.make_tma_descriptors(
        [bits(w) for w in weights], (64, 64), swizzle="bytes128", data_type="BFLOAT16",
        rules="driver",
    )  # fmt: skip
    room = np.zeros(4 * 2 * 128 + 128, np.uint8)
    places = room[-room.ctypes.data % 128 :][: 4 * 2 * 128]
    expected = np.zeros_like(bits(c))
    begin = 0
    for size, weight in zip(sizes, weights, strict=True):
        expected[begin : begin + size] = product(a[begin : begin + size], weight)
        begin += size
    args = (
        map_of(a, (64, 64)), experts, map_of(c, (64, 64)), places, ends,
        len(sizes), n, k,
    )  # fmt: skip
    keywords = {"grid": 4, "block": THREADS, "smem_bytes": RING_BYTES, "args": args}
    return Case(NOTEBOOKS / "grouped_gemm.cu", "grouped_gemm", keywords, [(bits(c), expected)])


def convolution() -> Case:
    images, height, width, channels, kernels = 1, 8, 16, 64, 256
    x, weights = integers(1, images, height, width, channels), integers(2, kernels, 3, 3, channels)
    out = np.zeros((images, height, width, kernels), x.dtype)
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
    total = np.zeros(out.shape, np.float32)
    for i in range(3):
        for j in range(3):
            part = padded[:, i : i + height, j : j + width]
            total += part @ weights[:, i, j].astype(np.float32).T
    corners = tma.im2col_corners((3, 3), padding=1)
    image = tma.make_im2col_descriptor(
        bits(x), *corners, 64, 128, swizzle="bytes128", data_type="BFLOAT16", rules="driver"
    )
    taps = map_of(weights.reshape(kernels, 9, channels), (128, 1, 64))
    pixels = map_of(out.reshape(-1, kernels), (64, 64))
    sizes = np.array([(width, height, images, channels)], "i4,i4,i4,i4")[0]
    keywords = {
        "grid": 2, "block": THREADS, "smem_bytes": RING_BYTES,
        "args": (image, taps, pixels, sizes, kernels),
    }  # fmt: skip
    expected = bits(total.astype(x.dtype))
    return Case(NOTEBOOKS / "hopper_conv.cu", "hopper_conv", keywords, [(bits(out), expected)])


def doubled() -> Case:
    x = np.arange(70 * 72, dtype=np.float32).reshape(70, 72)
    out = np.zeros_like(x)
    maps = [tma.make_tma_descriptor(t, (16, 32)) for t in (x, out)]
    keywords = {"grid": 4, "block": 128, "args": (*maps, 3, 15)}
    source = NOTEBOOKS / "extension" / "double_tiles.cu"
    return Case(source, "double_tiles", keywords, [(out, 2 * x)])


def streamed(name: str) -> Case:
    tiles = np.zeros((8 * 32, 64), np.float32)
    tm = tma.make_tma_descriptor(tiles.view(np.uint8), (64, 256), rules="driver")
    keywords: dict[str, Any] = {"grid": 2, "block": 32, "args": (tm, 2, 10)}
    if name.startswith("streamed"):
        keywords = {"grid": 2, "block": 32, "smem_bytes": 200_000, "args": (tm, tm, 4, 2)}
    return Case(NOTEBOOKS / "l2_cache.cu", name, keywords, [])


def blackwell(blocks: int, k: int = 192) -> Case:
    m, n = 256, 256
    a, b = integers(1, m, k), integers(2, n, k)
    c = np.zeros((m, n), a.dtype)
    maps = [
        map_of(x, box, target="sm_100")
        for x, box in ((a, (128, 64)), (b, (256 // blocks, 64)), (c, (128, 64)))
    ]
    keywords = {
        "grid": (m // 128, n // 256), "block": 128, "target": "sm_100",
        "smem_bytes": 1024 + 4 * 128 * (128 + 256 // blocks), "args": (*maps, k),
        "options": (f"-DBLOCKS={blocks}",),
    }  # fmt: skip
    source = NOTEBOOKS / "blackwell_gemm.cu"
    return Case(source, "blackwell_gemm", keywords, [(bits(c), product(a, b))])


#: Name -> case, for the kernels that a GPU of compute capability 9.0 can run.
CASES: dict[str, Callable[[], Case]] = {
    "double_tiles": doubled,
    "hopper_gemm": lambda: gemm("hopper_gemm", (128, 64), "bytes128", 256, 512, 320),
    "hopper_gemm, ragged": lambda: gemm("hopper_gemm", (128, 64), "bytes128", 136, 264, 72),
    "hopper_gemm, no swizzle": lambda: gemm(
        "hopper_gemm_without_swizzle", (128, 8), "none", 256, 256, 64
    ),
    "hopper_gemm, small boxes": lambda: gemm(
        "hopper_gemm_small_boxes", (8, 64), "bytes128", 256, 256, 64
    ),
    "grouped_gemm": lambda: grouped((70, 0, 130, 1), 264, 72),
    "hopper_conv": convolution,
    "ladder_threads": lambda: ladder("ladder_threads", (128, 8), "none", 256, 128, 256, 128),
    "ladder_tma": lambda: ladder("ladder_tma", (128, 8), "none", 256, 128, 256, 128),
    "ladder_swizzle": lambda: ladder("ladder_swizzle", (128, 64), "bytes128", 256, 128, 256, 128),
    "ladder_ring": lambda: ladder("ladder_ring", (128, 64), "bytes128", 256, 128, 256, 384),
    "ladder_specialized": lambda: ladder(
        "ladder_specialized", (128, 64), "bytes128", 384, 128, 256, 384
    ),
    "ladder_persistent": lambda: ladder(
        "ladder_persistent", (128, 64), "bytes128", 384, 512, 256, 384
    ),
    "ladder_multicast": lambda: ladder(
        "ladder_multicast", (128, 64), "bytes128", 384, 256, 256, 384
    ),
    "streamed_plain": lambda: streamed("streamed_plain"),
    "streamed_both": lambda: streamed("streamed_both"),
    "waiting_prefetch": lambda: streamed("waiting_prefetch"),
}
#: The cases for sm_100, which only the simulator runs here.
BLACKWELL = {"one block": lambda: blackwell(1), "two blocks": lambda: blackwell(2)}
