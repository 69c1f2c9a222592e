"""Maps that the tests of pictures share: every kind, and odd ones. Elements are numbered."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

import numpy as np

import tma_dlpack as tma


def stills(html: str) -> list[str]:
    """Return the SVG documents of the images in a fragment."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    return [base64.b64decode(data).decode() for data in found]


def pictured(html: str) -> str:
    """Return a fragment with the text of its images, and without its script."""
    return re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL) + "".join(stills(html))


@dataclass(frozen=True)
class Case:
    """A tensor of distinct values, its map, and the tile to draw."""

    tensor: np.ndarray = field(repr=False)
    tensor_map: tma.TensorMap
    coords: tuple[int, ...]
    offsets: tuple[int, ...] | None = None
    smem_offset: int = 0

    def tile(self) -> tma.Tile:
        return tma.load_tile(
            self.tensor_map,
            self.coords,
            im2col_offsets=self.offsets,
            smem_offset=self.smem_offset,
        )


def numbered(shape, dtype=np.int32):
    """Return a tensor whose element i is i + 1, so that a 0 in a tile is always a fill."""
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.int64) + 1).astype(dtype).reshape(shape)


def tiled(shape, box, coords, dtype=np.int32, smem_offset=0, **options):
    tensor = numbered(shape, dtype)
    return Case(tensor, tma.make_tma_descriptor(tensor, box, **options), coords, None, smem_offset)


def clipped():
    """A row of 38 elements in storage of 40, so that half of its last chunk is out of bounds."""
    tensor = numbered((20, 40))[:, :38]
    return Case(tensor, tma.make_tma_descriptor(tensor, (8, 32), swizzle="bytes128"), (0, 32))


def im2col(shape, channels, pixels, coords, kernel, padding, offsets=None, **options):
    tensor = numbered(shape)
    lower, upper = tma.im2col_corners(kernel, padding)
    tm = tma.make_im2col_descriptor(tensor, lower, upper, channels, pixels, **options)
    return Case(tensor, tm, coords, offsets)


TILED = {
    "a dense tile": tiled((64, 64), (16, 32), (16, 32)),
    "128B swizzle": tiled((64, 64), (16, 32), (16, 32), swizzle="bytes128"),
    "64B swizzle": tiled((64, 64), (16, 16), (0, 0), swizzle="bytes64"),
    "32B swizzle of padded rows": tiled((64, 64), (16, 4), (0, 0), swizzle="bytes32"),
    "128B swizzle of padded rows": tiled((64, 64), (16, 12), (0, 0), swizzle="bytes128"),
    "out of bounds below and right": tiled((20, 40), (16, 32), (8, 16), swizzle="bytes128"),
    "out of bounds above and left": tiled((20, 40), (16, 32), (-8, -16)),
    "every second row of a box": tiled(
        (3, 20, 40), (2, 5, 32), (2, 18, 16), elem_strides=(1, 2, 1), swizzle="bytes128"
    ),
    "clipped within a chunk": clipped(),
    "a tall tile": tiled((300, 32), (256, 32), (100, 0), swizzle="bytes128"),
    "wide rows": tiled((16, 512), (8, 256), (8, 256)),
    "rows of 48 bytes": tiled((64, 24), (40, 12), (0, 0)),
    "a vector": tiled((100,), (64,), (48,)),
    "rank 5": tiled((2, 3, 4, 5, 16), (1, 2, 2, 3, 8), (1, 1, 3, 4, 8)),
    "interleaved 16B": tiled(
        (2, 3, 9, 16), (1, 1, 4, 8), (0, 1, 2, 4), interleave_layout="bytes16"
    ),
    "a tile at 0x480": tiled((64, 64), (16, 32), (0, 0), swizzle="bytes128", smem_offset=0x480),
}
IM2COL = {
    "a 3x3 convolution": im2col((2, 7, 9, 32), 32, 40, (0, -1, -1, 0), (3, 3), 1),
    "its last tap": im2col(
        (2, 7, 9, 32), 32, 40, (0, 3, 2, 0), (3, 3), 1, offsets=(2, 2), swizzle="bytes128"
    ),
    "stride 2": im2col((2, 30, 40, 8), 8, 64, (0, 5, 35, 0), (3, 3), 1, elem_strides=(1, 2, 2, 1)),
    "a signal": im2col((3, 50, 16), 16, 80, (0, 30, 0), (3,), 1),
    "a volume": im2col((2, 4, 5, 6, 8), 8, 40, (0, 0, -1, 2, 0), (3, 3, 3), 1),
}
ALL = TILED | IM2COL
