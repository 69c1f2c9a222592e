"""Maps of tiles that a tensor core reads, for the tests of matrix descriptors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import tma_dlpack as tma

SPANS = {"none": 16, "bytes32": 32, "bytes64": 64, "bytes128": 128}
#: data_type -> NumPy type of the storage
STORAGE = {"FLOAT16": "f2", "BFLOAT16": "u2", "TFLOAT32": "f4", "UINT8": "u1"}


@dataclass(frozen=True)
class OperandCase:
    """A tile that an instruction can read.

    The matrix has `shape` elements, row-major. The box has `rows` rows, and `columns` spans of
    `row_bytes` bytes side by side.
    """

    instruction: str
    major: str
    data_type: str
    swizzle: str
    shape: tuple[int, int]
    rows: int
    columns: int
    row_bytes: int
    at: tuple[int, int]  # coordinates: row, element of the row
    smem_address: int

    @property
    def element_bytes(self) -> int:
        return np.dtype(STORAGE[self.data_type]).itemsize

    @property
    def row(self) -> int:
        """Number of elements of a box row that are in one span."""
        return self.row_bytes // self.element_bytes

    def matrix(self) -> np.ndarray:
        """Return random bits, or random numbers for tf32, whose rounding would change a NaN."""
        rng = np.random.default_rng(sum(self.shape) + self.smem_address)
        raw = rng.integers(0, 256, (self.shape[0], self.shape[1] * self.element_bytes), np.uint8)
        if self.data_type == "TFLOAT32":
            return rng.standard_normal(self.shape).astype(np.float32)
        return raw.view(STORAGE[self.data_type])

    def tensor_map(self, matrix: np.ndarray) -> tma.TensorMap:
        target = "sm_100" if self.instruction == "tcgen05" else None
        options = {"swizzle": self.swizzle, "data_type": self.data_type, "rules": "driver"}
        options["target"] = target
        if self.columns == 1:
            return tma.make_tma_descriptor(matrix, (self.rows, self.row), **options)
        view = as_strided(
            matrix,
            (self.shape[1] // self.row, self.shape[0], self.row),
            (self.row_bytes, *matrix.strides),
        )
        box = (self.columns, self.rows, self.row)
        return tma.make_tma_descriptor(view, box, **options)

    def coords(self) -> tuple[int, ...]:
        row, element = self.at
        return (element // self.row, row, 0) if self.columns > 1 else (row, element)

    def logical(self, array: np.ndarray) -> np.ndarray:
        """Return the tile as a matrix of `rows` rows."""
        if self.columns == 1:
            return array
        return array.transpose(1, 0, 2).reshape(self.rows, -1)


@st.composite
def operand_cases(draw: st.DrawFn, instruction: str = "wgmma") -> OperandCase:
    """Draw any tile, of any matrix and at any place, that an instruction can read."""
    data_type = draw(st.sampled_from(sorted(STORAGE)))
    size = np.dtype(STORAGE[data_type]).itemsize
    majors = ("K", "MN") if size == 2 or (instruction == "tcgen05" and size == 1) else ("K",)
    major = draw(st.sampled_from(majors))
    swizzle = draw(st.sampled_from(sorted(SPANS)))
    span, k_elements = SPANS[swizzle], 32 // size

    columns = draw(st.integers(1, 4))
    row_bytes = span
    if swizzle == "none":
        columns = columns if major == "MN" else 2 * draw(st.integers(1, 3))
    elif major == "K":
        row_bytes = draw(st.integers(1, span // 32)) * 32
    elif columns == 1:
        row_bytes = draw(st.integers(1, span // 16)) * 16
    step = 8 if major == "K" else k_elements
    rows = step * draw(st.integers(1, 64 // step))

    spans = draw(st.integers(columns, columns + 2))
    row = row_bytes // size
    width = -(-spans * row * size // 16) * 16 // size  # a matrix row is a multiple of 16 bytes
    if columns > 1:
        width = spans * row
    shape = (draw(st.integers(1, 100)), width)
    at_row = draw(st.integers(-8, shape[0]))
    at_element = draw(st.integers(-1, spans)) * row
    step_address = 1024 if instruction == "tcgen05" else 128
    address = step_address * draw(st.integers(0, 12))
    return OperandCase(
        instruction, major, data_type, swizzle, shape, rows, columns, row_bytes,
        (at_row, at_element), address,
    )  # fmt: skip
