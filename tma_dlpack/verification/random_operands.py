"""Random tiles that tensor cores read, and the products that they make."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack import geometry
from tma_dlpack.consumer.descriptor import Major
from tma_dlpack.consumer.operand import K_STEP_BYTES, SPAN_BYTES
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle

Array = npt.NDArray[Any]
SWIZZLES = (TmaSwizzle.none, TmaSwizzle.bytes32, TmaSwizzle.bytes64, TmaSwizzle.bytes128)
#: Of the arena, bytes: one half each.
ROOM_BYTES = 1 << 18
MAX_K_STEPS = 12
N_CHOICES = (8, 64, 192)
MAX_OFFSET_UNITS = 16  # of 128 bytes, before each tile in shared memory


@dataclass(frozen=True, slots=True)
class Factor:
    """A type that wgmma multiplies.

    Attributes
    ----------
    ptx : str
        Its name in PTX.
    data_type : TensorMapDataType
    accumulator : {"float", "int"}
        CUDA's word for the type of the product.
    least : int
        The smallest integer in random matrices; all sums of products are exact.
    codes : unsigned array
        The bits of the integers from `least` on.
    """

    ptx: str
    data_type: TensorMapDataType
    accumulator: str
    least: int
    codes: Array

    @property
    def most(self) -> int:
        """The largest integer in random matrices."""
        return self.least + len(self.codes) - 1

    def encode(self, numbers: Array) -> Array:
        """Turn integers into the bits of elements."""
        bits: Array = self.codes[numbers - self.least]
        return bits

    def decode(self, elements: Array) -> Array:
        """Turn elements as in `Tile.array` into integers."""
        order = self.codes.argsort()
        places = self.codes.searchsorted(elements.view(self.codes.dtype), sorter=order)
        numbers: Array = order[places] + self.least
        return numbers

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return DATA_TYPES[self.data_type].element_bytes

    @property
    def k_elements(self) -> int:
        """Elements of K in one instruction."""
        return K_STEP_BYTES // self.element_bytes


_T = TensorMapDataType
_SMALL = np.arange(-8, 9)
_BYTES = np.arange(256)
_FLOATS = _SMALL.astype(np.float32).view(np.uint32)
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
    """A matrix in global memory and the tile of it that is loaded, rows by row.

    Attributes
    ----------
    data_type : TensorMapDataType
    swizzle : TmaSwizzle
    shape : tuple of int
        Rows and elements of a row, of the matrix.
    pitch_bytes : int
        From row to row in global memory.
    rows, columns, row_bytes : int
        Of the tile: `columns` columns of spans of `row_bytes` bytes, with `rows` rows each.
    at : tuple of int
        Row and element of the tile's first one; may lie outside.
    smem_offset : int
    """

    data_type: TensorMapDataType
    swizzle: TmaSwizzle
    shape: tuple[int, int]
    pitch_bytes: int
    rows: int
    columns: int
    row_bytes: int
    at: tuple[int, int]
    smem_offset: int

    @property
    def wide(self) -> int:
        """Elements of a row of the tile in one span."""
        return self.row_bytes // DATA_TYPES[self.data_type].element_bytes

    @property
    def coords(self) -> tuple[int, ...]:
        """The tile's coordinates, row-major."""
        first_row, element = self.at
        return (element // self.wide, first_row, 0) if self.columns > 1 else self.at

    def arguments(self) -> EncodeArguments:
        """Return the map: of rank 3 where spans lie side by side, as `split_inner` makes it."""
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
        """Turn `Tile.array` into the matrix that it is, rows by row."""
        if self.columns == 1:
            return array
        side_by_side: Array = array.transpose(1, 0, 2)
        return side_by_side.reshape(self.rows, -1)

    @property
    def end(self) -> int:
        """Where the tile ends in shared memory."""
        return self.smem_offset + geometry.smem_bytes(self.arguments())


@dataclass(frozen=True, slots=True)
class Product:
    """One product: 64 x `blocks` by `n`, over `k_steps`."""

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
        """The type that is multiplied."""
        return _BY_PTX[self.ptx]


@dataclass(frozen=True, slots=True)
class Matrices:
    """One ldmatrix of a tile."""

    layout: OperandLayout
    row: int
    column: int
    num: int
    transpose: bool


def random_product(rng: Random, max_smem_bytes: int) -> Product:
    """Return a product of two random tiles of any kind that wgmma reads."""
    while True:
        factor = rng.choice(MULTIPLIED)
        k_steps, n, blocks = rng.randint(1, MAX_K_STEPS), rng.choice(N_CHOICES), rng.randint(1, 3)
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
    """Return a tile with these extents of M or N and of K; None if the swizzle does not fit."""
    swizzle = rng.choice(SWIZZLES)
    span = SPAN_BYTES[swizzle]
    if major == "K":
        rows, row_bytes = mn, span
        if swizzle is not TmaSwizzle.none:
            row_bytes = K_STEP_BYTES * rng.randint(1, span // K_STEP_BYTES)
        total_bytes = k_steps * K_STEP_BYTES
    else:
        rows, total_bytes = k_steps * factor.k_elements, mn * factor.element_bytes
        row_bytes = span if swizzle is TmaSwizzle.none else min(span, total_bytes)
    if total_bytes % row_bytes:
        return None
    columns = total_bytes // row_bytes
    return _layout(rng, factor.data_type, swizzle, rows, columns, row_bytes, smem_offset)


def _layout(
    rng: Random,
    data_type: TensorMapDataType,
    swizzle: TmaSwizzle,
    rows: int,
    columns: int,
    row_bytes: int,
    smem_offset: int,
) -> OperandLayout | None:
    """Put a tile somewhere in and around a matrix that is larger or smaller than it."""
    if rows > 256 or columns > 256:
        return None
    wide = row_bytes // DATA_TYPES[data_type].element_bytes
    spans = columns + rng.randint(0, 2)
    pitch_bytes = spans * row_bytes + 16 * rng.choice((0, 0, 1, 5))
    height = min(rng.randint(1, 300), ROOM_BYTES // pitch_bytes)
    at = (rng.choice((0, rng.randint(-9, height))), wide * rng.choice((0, rng.randint(-1, spans))))
    width = spans * wide
    if columns == 1 and rng.random() < 0.5:  # a ragged row, with the same pitch
        width = rng.randint(1, width)
    shape = (height, width)
    return OperandLayout(
        data_type, swizzle, shape, pitch_bytes, rows, columns, row_bytes, at, smem_offset
    )


def random_matrices(rng: Random, max_smem_bytes: int) -> Matrices:
    """Return an ldmatrix of any tile of rows of whole 16 bytes."""
    while True:
        data_type = rng.choice((_T.UINT8, _T.UINT16, _T.FLOAT16, _T.BFLOAT16, _T.UINT32))
        num = rng.choice((1, 2, 4))
        transpose = DATA_TYPES[data_type].element_bytes == 2 and rng.random() < 0.5
        swizzle = rng.choice(SWIZZLES)
        widest = 256 * DATA_TYPES[data_type].element_bytes
        most = widest if swizzle is TmaSwizzle.none else SPAN_BYTES[swizzle]
        row_bytes = 16 * rng.randint(1, most // 16)
        offset = 128 * rng.randint(0, MAX_OFFSET_UNITS)
        rows, columns = rng.randint(8, 80), rng.randint(1, 4)
        layout = _layout(rng, data_type, swizzle, rows, columns, row_bytes, offset)
        down, right = (2, 2) if num == 4 else ((num, 1) if transpose else (1, num))
        chunks = columns * row_bytes // 16
        if layout is None or rows < 8 * down or chunks < right:
            continue
        if layout.end + 8 <= max_smem_bytes:
            column = 16 * rng.randint(0, chunks - right) // DATA_TYPES[data_type].element_bytes
            first_row = rng.randint(0, rows - 8 * down)
            return Matrices(layout, first_row, column, num, transpose)
