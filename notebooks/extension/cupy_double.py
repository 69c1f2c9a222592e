"""The kernel of double_tiles.cu as a CuPy RawKernel, with maps made in Python."""

from pathlib import Path

import cupy

import tma_dlpack as tma

double_tiles = cupy.RawKernel(
    (Path(__file__).parent / "double_tiles.cu").read_text(),
    "double_tiles",
    options=("-std=c++17", f"-I{tma.get_include()}"),
)


def doubled(x: cupy.ndarray) -> cupy.ndarray:
    """Return 2 * x for a float32 matrix on a GPU with TMA."""
    out = cupy.empty(x.shape, x.dtype)
    maps = [tma.make_tma_descriptor(m, (16, 32), allow=["BOX_IN_SHAPE"]) for m in (x, out)]
    # The number of tiles of 16 x 32, rounded up in both dimensions.
    across = -(-x.shape[1] // 32)
    tiles = -(-x.shape[0] // 16) * across
    # CuPy passes a NumPy element by value. Here an element is the 128 bytes of a map.
    by_value = (tm.numpy().view("V128") for tm in maps)
    # At most 2112 blocks (BLOCKS in double_tiles.cu) of 128 threads. A block may get several tiles.
    double_tiles((min(tiles, 2112),), (128,), (*by_value, cupy.int32(across), cupy.int32(tiles)))
    return out
