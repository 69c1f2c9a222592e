"""``python -m tma_dlpack demo``: make a map, copy a tile, see a refusal; NumPy is enough."""

from __future__ import annotations

import numpy as np

import tma_dlpack as tma
from tma_dlpack.tensor_map import text


def main() -> None:
    """Make the map of a NumPy array, copy a tile, and show a refusal."""
    x = np.arange(128 * 64, dtype=np.float16).reshape(128, 64)
    _say('tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")')
    print("   # x: NumPy float16 (128, 64)")
    tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    print(tm)
    print(f"\nits 128 bytes (encoder: {tm.encoder}):")
    print("\n".join(text.hex_lines(bytes(tm))))

    _say("tma.load_tile(tm, (120, 0)).array   # rows 120..135 of 128: half is out of bounds")
    tile = tma.load_tile(tm, (120, 0))
    filled = int(tile.filled.sum())
    same = np.array_equal(tile.array[:8], x[120:])
    print(f"{tile.array.shape}: {tile.array.size - filled} elements copied, {filled} filled")
    print(f"its first 8 rows equal x[120:]: {same}")

    y = np.zeros((4, 1733), dtype=np.float16)
    _say('tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")')
    print("   # y: NumPy float16 (4, 1733)")
    try:
        tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")
    except tma.TmaPreconditionError as error:
        print(f"TmaPreconditionError: {len(error.violations)} violations\n{error}")


def _say(code: str) -> None:
    print(f"\n>>> {code}")
