"""`ldmatrix_addresses`: the address of each lane, compared with the simulator's tile."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operand_cases import operand_cases

import tma_dlpack as tma
from tma_dlpack import ldmatrix_addresses

#: (num, transpose) -> place of matrix i, in units of 8 rows and 16 bytes
PLACES = {
    (1, False): [(0, 0)],
    (1, True): [(0, 0)],
    (2, False): [(0, 0), (0, 1)],
    (2, True): [(0, 0), (1, 0)],
    (4, False): [(0, 0), (1, 0), (0, 1), (1, 1)],
    (4, True): [(0, 0), (1, 0), (0, 1), (1, 1)],
}


@st.composite
def accesses(draw):
    case = draw(operand_cases("wgmma"))
    num, transpose = draw(st.sampled_from(sorted(PLACES)))
    rows = 8 * max(i for i, _ in PLACES[num, transpose]) + 8
    chunks = max(j for _, j in PLACES[num, transpose]) + 1
    width = case.columns * case.row_bytes // 16
    if case.rows < rows or width < chunks or (transpose and case.element_bytes != 2):
        num, transpose, rows, chunks = 1, False, 8, 1
    row = draw(st.integers(0, case.rows - rows))
    return case, num, transpose, row, draw(st.integers(0, width - chunks))


@given(accesses())
def test_each_lane_points_to_16_bytes_of_its_row(access):
    case, num, transpose, row, chunk = access
    matrix = case.matrix()
    tensor_map = case.tensor_map(matrix)
    tile = tma.load_tile(tensor_map, case.coords(), smem_offset=case.smem_address)
    logical = np.ascontiguousarray(case.logical(tile.array)).view(np.uint8).reshape(case.rows, -1)
    addresses = ldmatrix_addresses(
        tensor_map, row, chunk * 16 // case.element_bytes, num=num, transpose=transpose,
        smem_address=case.smem_address,
    )  # fmt: skip
    assert addresses.shape == (32,)
    assert addresses.dtype == np.int64
    for lane, address in enumerate(addresses):
        down, right = PLACES[num, transpose][lane // 8 % num]
        at = 16 * (chunk + right)
        wanted = logical[row + 8 * down + lane % 8, at : at + 16]
        assert np.array_equal(tile.smem[address : address + 16], wanted)


def test_an_unswizzled_tile_of_any_width_serves():
    x = np.arange(64 * 256, dtype=np.uint16).reshape(64, 256)
    tm = tma.make_tma_descriptor(x, (64, 200))
    addresses = ldmatrix_addresses(tm, 3, 184, smem_address=256)
    lanes = np.arange(32)
    assert addresses.tolist() == (256 + (3 + lanes % 16) * 400 + 368 + lanes // 16 * 16).tolist()


def test_pixels_of_an_im2col_tile_are_rows():
    x = np.zeros((2, 9, 9, 64), np.float16)
    lower, upper = tma.im2col_corners((3, 3), 1)
    tm = tma.make_im2col_descriptor(x, lower, upper, 64, 64, swizzle="bytes128")
    assert ldmatrix_addresses(tm, 0, 0)[1] == 128 ^ 16


MAP = {"box_sizes": (64, 64), "swizzle": "bytes128"}


@pytest.mark.parametrize(
    ("options", "asked", "rule", "said"),
    [
        (MAP, {"row": 56}, "LDMATRIX_OUTSIDE", "x4 at (56, 0) takes 16 rows and 16 columns; it "
         "must be within the tile, 64 rows of 64 elements"),
        (MAP, {"column": 56}, "LDMATRIX_OUTSIDE", "x4 at (0, 56) takes 16 rows"),
        (MAP, {"column": 4}, "LDMATRIX_COLUMN", "column is 4; it must be a multiple of 8"),
        (MAP, {"column": -8}, "LDMATRIX_COLUMN", "column is -8"),
        (MAP, {"row": -1}, "ARGUMENT", "row is -1; it must be an integer, 0 or more"),
        (MAP, {"row": 0.0}, "ARGUMENT", "row is 0.0"),
        (MAP, {"num": 3}, "ARGUMENT", "num is 3; it must be 1, 2 or 4 matrices"),
        (MAP, {"num": True}, "ARGUMENT", "num is True"),
        (MAP, {"transpose": 1}, "ARGUMENT", "transpose is 1; it must be True or False"),
        (MAP, {"smem_address": 64}, "LDMATRIX_ADDRESS", "smem_address is 64; it must be a "
         "multiple of 128"),
        ({"box_sizes": (64, 32), "swizzle": "bytes64", "data_type": "UINT16"},
         {"transpose": True, "num": 1}, None, ""),
    ],
)  # fmt: skip
def test_what_no_lane_can_read_is_refused(options, asked, rule, said):
    tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), **options)
    given = {"row": 0, "column": 0} | asked
    if rule is None:
        assert ldmatrix_addresses(tm, **given)[9] == 64 + 0  # lane 9 repeats lane 1
        return
    with pytest.raises(tma.TmaPreconditionError, match=re.escape(said)) as refused:
        ldmatrix_addresses(tm, **given)
    assert refused.value.violations[0].rule == rule


def test_a_neighbour_of_what_is_outside_is_inside():
    tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), **MAP)
    assert ldmatrix_addresses(tm, 48, 48).max() < 64 * 128


def test_only_16_bits_are_transposed():
    x = np.zeros((64, 32), np.float32)
    tm = tma.make_tma_descriptor(x, (64, 32), swizzle="bytes128")
    assert ldmatrix_addresses(tm, 0, 4, num=1)[0] == 16
    with pytest.raises(tma.TmaPreconditionError, match="transpose is True with elements of 32"):
        ldmatrix_addresses(tm, 0, 0, transpose=True)


def test_a_tile_of_three_dimensions_is_refused():
    x = np.zeros((4, 64, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (2, 64, 64), swizzle="bytes128")
    with pytest.raises(tma.TmaPreconditionError, match=r"the tile of \(2, 64, 64\) FLOAT16 is no"):
        ldmatrix_addresses(tm, 0, 0)
