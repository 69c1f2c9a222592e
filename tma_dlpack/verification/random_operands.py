"""Random tiles for wgmma and ldmatrix, and the products of such tiles."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.verification.core import (
    DATA_TYPES,
    K_STEP_BYTES,
    SPAN_BYTES,
    EncodeArguments,
    Major,
    geometry,
    tma,
)

Array = npt.NDArray[Any]
SWIZZLES = (
    tma.TmaSwizzle.none,
    tma.TmaSwizzle.bytes32,
    tma.TmaSwizzle.bytes64,
    tma.TmaSwizzle.bytes128,
)
#: Number of bytes of the arena that each of the two matrices may use.
ROOM_BYTES = 1 << 18
MAX_K_STEPS = 12
# Values of N to test. wgmma supports multiples of 8 up to 256.
N_CHOICES = (8, 64, 192)
# Maximum gap before each tile in shared memory, in units of 128 bytes.
MAX_OFFSET_UNITS = 16


@dataclass(frozen=True, slots=True)
class Factor:
    """An element type of the matrices A and B of wgmma.

    Attributes
    ----------
    ptx : str
        Name of the type in PTX.
    data_type : TensorMapDataType
    accumulator : {"float", "int"}
        Type of the product in CUDA C++.
    least : int
        The smallest integer in random matrices. The range of the integers is small, so that all
        sums of products are exact.
    codes : array of unsigned integers
        The bits of the elements whose values are `least`, `least` + 1, and so on.
    """

    ptx: str
    data_type: tma.TensorMapDataType
    accumulator: str
    least: int
    codes: Array

    @property
    def most(self) -> int:
        """The largest integer in random matrices."""
        return self.least + len(self.codes) - 1

    def encode(self, numbers: Array) -> Array:
        """Return the bits of elements with these integer values."""
        bits: Array = self.codes[numbers - self.least]
        return bits

    def decode(self, elements: Array) -> Array:
        """Return the integer values of the elements of a `Tile.array`."""
        # Sort `codes`, so that a binary search finds each element.
        order = self.codes.argsort()
        places = self.codes.searchsorted(elements.view(self.codes.dtype), sorter=order)
        numbers: Array = order[places] + self.least
        return numbers

    @property
    def element_bytes(self) -> int:
        """Size of an element in bytes."""
        return DATA_TYPES[self.data_type].element_bytes

    @property
    def k_elements(self) -> int:
        """Number of elements along K in one wgmma."""
        return K_STEP_BYTES // self.element_bytes


_T = tma.TensorMapDataType
_SMALL = np.arange(-8, 9)
_BYTES = np.arange(256)
_FLOATS = _SMALL.astype(np.float32).view(np.uint32)
# The bits of a bf16 are the upper half of a float32. For e4m3 and e5m2, the last argument has the
# bits of -2, -1, 0, 1 and 2.
MULTIPLIED = (
    Factor("f16", _T.FLOAT16, "float", -8, _SMALL.astype(np.float16).view(np.uint16)),
    Factor("bf16", _T.BFLOAT16, "float", -8, (_FLOATS >> 16).astype(np.uint16)),
    Factor("tf32", _T.TFLOAT32, "float", -8, _FLOATS),
    Factor("e4m3", _T.UINT8, "float", -2, np.array([0xC0, 0xB8, 0, 0x38, 0x40], np.uint8)),
    Factor("e5m2", _T.UINT8, "float", -2, np.array([0xC0, 0xBC, 0, 0x3C, 0x40], np.uint8)),
    Factor("s8", _T.UINT8, "int", -128, (_BYTES - 128).astype(np.uint8)),
    Factor("u8", _T.UINT8, "int", 0, _BYTES.astype(np.uint8)),
)
_BY_PTX = {factor.ptx: factor for factor in MULTIPLIED}


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """A row-major matrix in global memory, and a tile of the matrix in shared memory.

    Attributes
    ----------
    data_type : TensorMapDataType
    swizzle : TmaSwizzle
    shape : tuple of int
        Number of rows of the matrix, and number of elements of a row.
    pitch_bytes : int
        Number of bytes from the start of a row to the start of the next row in global memory.
    rows, columns, row_bytes : int
        The tile consists of `columns` parts side by side. Each part has `rows` rows of `row_bytes`
        bytes, and the parts follow each other in shared memory.
    at : tuple of int
        Index of the row, and index of the element in this row, at which the tile begins. Both may
        be outside of the matrix.
    smem_offset : int
        Offset in bytes of the tile in shared memory.
    """

    data_type: tma.TensorMapDataType
    swizzle: tma.TmaSwizzle
    shape: tuple[int, int]
    pitch_bytes: int
    rows: int
    columns: int
    row_bytes: int
    at: tuple[int, int]
    smem_offset: int

    @property
    def wide(self) -> int:
        """Number of elements in `row_bytes` bytes."""
        return self.row_bytes // DATA_TYPES[self.data_type].element_bytes

    @property
    def coords(self) -> tuple[int, ...]:
        """Row-major coordinates of the tile."""
        first_row, element = self.at
        return (element // self.wide, first_row, 0) if self.columns > 1 else self.at

    def arguments(self) -> EncodeArguments:
        """Return the arguments of a map whose box is the tile.

        The rank is 2 if `columns` is 1. Otherwise the rank is 3, as in a map that `split_inner`
        makes.
        """
        rows, width = self.shape
        dims: tuple[int, ...] = (width, rows)
        strides: tuple[int, ...] = (self.pitch_bytes,)
        box: tuple[int, ...] = (self.wide, self.rows)
        if self.columns > 1:
            dims = (self.wide, rows, width // self.wide)
            strides = (self.pitch_bytes, self.row_bytes)
            box = (*box, self.columns)
        return EncodeArguments(
            "tiled", self.data_type, dims, strides, (1,) * len(dims), box, swizzle=self.swizzle
        )

    def logical(self, array: Array) -> Array:
        """Return the tile as a row-major matrix.

        `array` is a `Tile.array`, in which the parts of the tile follow each other.
        """
        if self.columns == 1:
            return array
        side_by_side: Array = array.transpose(1, 0, 2)
        return side_by_side.reshape(self.rows, -1)

    @property
    def end(self) -> int:
        """Offset in bytes of the end of the tile in shared memory."""
        return self.smem_offset + geometry.smem_bytes(self.arguments())


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two tiles, with M = 64 * `blocks`, N = `n`, and `k_steps` wgmma along K."""

    ptx: str
    n: int
    blocks: int
    k_steps: int
    a_major: Major
    b_major: Major
    a: OperandLayout
    b: OperandLayout
    data_seed: int

    @property
    def factor(self) -> Factor:
        """Element type of A and B."""
        return _BY_PTX[self.ptx]


@dataclass(frozen=True, slots=True)
class Matrices:
    """An ldmatrix that reads `num` matrices of a tile.

    The first matrix begins at row `row` and element `column` of the tile.
    """

    layout: OperandLayout
    row: int
    column: int
    num: int
    transpose: bool


def random_product(rng: Random, max_smem_bytes: int) -> Product:
    """Return a product of two random tiles that wgmma can read."""
    while True:
        factor = rng.choice(MULTIPLIED)
        k_steps, n, blocks = rng.randint(1, MAX_K_STEPS), rng.choice(N_CHOICES), rng.randint(1, 3)
        # wgmma can read MN-major tiles only if the type has 16 bits.
        majors: tuple[Major, ...] = ("K", "MN") if factor.element_bytes == 2 else ("K",)
        a_major, b_major = rng.choice(majors), rng.choice(majors)
        first = 128 * rng.randint(0, MAX_OFFSET_UNITS)
        a = _operand(rng, factor, a_major, 64 * blocks, k_steps, first)
        if a is None:
            continue
        second = -(-a.end // 128) * 128 + 128 * rng.randint(0, MAX_OFFSET_UNITS)
        b = _operand(rng, factor, b_major, n, k_steps, second)
        if b is not None and b.end + 8 <= max_smem_bytes:
            seed = rng.getrandbits(32)
            return Product(factor.ptx, n, blocks, k_steps, a_major, b_major, a, b, seed)


def _operand(
    rng: Random, factor: Factor, major: Major, mn: int, k_steps: int, smem_offset: int
) -> OperandLayout | None:
    """Return a random tile for an operand with the extent `mn` in M or N and `k_steps` steps of K.

    Return None if `total_bytes`, the size of the tile's contiguous dimension, is not a multiple of
    the random `row_bytes`.
    """
    swizzle = rng.choice(SWIZZLES)
    span = SPAN_BYTES[swizzle]
    if major == "K":
        rows, row_bytes = mn, span
        if swizzle is not tma.TmaSwizzle.none:
            row_bytes = K_STEP_BYTES * rng.randint(1, span // K_STEP_BYTES)
        total_bytes = k_steps * K_STEP_BYTES
    else:
        rows, total_bytes = k_steps * factor.k_elements, mn * factor.element_bytes
        row_bytes = span if swizzle is tma.TmaSwizzle.none else min(span, total_bytes)
    if total_bytes % row_bytes:
        return None
    columns = total_bytes // row_bytes
    return _layout(rng, factor.data_type, swizzle, rows, columns, row_bytes, smem_offset)


def _layout(
    rng: Random,
    data_type: tma.TensorMapDataType,
    swizzle: tma.TmaSwizzle,
    rows: int,
    columns: int,
    row_bytes: int,
    smem_offset: int,
) -> OperandLayout | None:
    """Return a tile at a random place of a random matrix, or None if a box extent exceeds 256.

    The matrix may be smaller than the tile, and the tile may begin outside of the matrix.
    """
    if rows > 256 or columns > 256:
        return None
    wide = row_bytes // DATA_TYPES[data_type].element_bytes
    spans = columns + rng.randint(0, 2)
    pitch_bytes = spans * row_bytes + 16 * rng.choice((0, 0, 1, 5))
    height = min(rng.randint(1, 300), ROOM_BYTES // pitch_bytes)
    at = (rng.choice((0, rng.randint(-9, height))), wide * rng.choice((0, rng.randint(-1, spans))))
    width = spans * wide
    # Sometimes shorten the rows of the matrix, so that they end inside of the tile. Keep the pitch.
    if columns == 1 and rng.random() < 0.5:
        width = rng.randint(1, width)
    shape = (height, width)
    return OperandLayout(
        data_type, swizzle, shape, pitch_bytes, rows, columns, row_bytes, at, smem_offset
    )


def random_matrices(rng: Random, max_smem_bytes: int) -> Matrices:
    """Return a random ldmatrix of a random tile, whose row size is a multiple of 16 bytes."""
    while True:
        data_type = rng.choice((_T.UINT8, _T.UINT16, _T.FLOAT16, _T.BFLOAT16, _T.UINT32))
        num = rng.choice((1, 2, 4))
        transpose = DATA_TYPES[data_type].element_bytes == 2 and rng.random() < 0.5
        swizzle = rng.choice(SWIZZLES)
        widest = 256 * DATA_TYPES[data_type].element_bytes
        most = widest if swizzle is tma.TmaSwizzle.none else SPAN_BYTES[swizzle]
        row_bytes = 16 * rng.randint(1, most // 16)
        offset = 128 * rng.randint(0, MAX_OFFSET_UNITS)
        rows, columns = rng.randint(8, 80), rng.randint(1, 4)
        layout = _layout(rng, data_type, swizzle, rows, columns, row_bytes, offset)
        # The `num` matrices form a grid: `down` matrices of 8 rows below each other, and `right`
        # matrices of 16 bytes side by side.
        down, right = (2, 2) if num == 4 else ((num, 1) if transpose else (1, num))
        chunks = columns * row_bytes // 16
        if layout is None or rows < 8 * down or chunks < right:
            continue
        if layout.end + 8 <= max_smem_bytes:
            column = 16 * rng.randint(0, chunks - right) // DATA_TYPES[data_type].element_bytes
            first_row = rng.randint(0, rows - 8 * down)
            return Matrices(layout, first_row, column, num, transpose)
