"""`geometry`: counts, footprints, swizzles and tile coordinates, tested by laws and by examples."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

from tma_dlpack import geometry
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import TmaUnsupportedError

T = TensorMapDataType
SWIZZLES = list(TmaSwizzle)
UNITS_OF_16 = TmaInterleaveLayout.bytes16


def tiled(data_type, dims, box, estr=None, **options):
    strides = tuple(np.cumprod([dims[0] * 16, *dims[1:-1]]).tolist()) if len(dims) > 1 else ()
    return EncodeArguments(
        "tiled", data_type, dims, strides, estr or (1,) * len(dims), box, **options
    )


def element_positions(args, coords, offsets=()):
    """Return the position in the tensor of every element of one tile: (*tile_shape, rank)."""
    plan = geometry.plan(args)
    out = np.empty((*plan.tile_shape, args.rank), np.int64)
    out[..., 0] = coords[0] + np.arange(plan.tile_shape[-1])
    for line in geometry.line_positions(plan, np.array([coords], np.int64), offsets):
        out[..., line.dimension] = line.positions[0][..., None]
    return out


def im2col(dims, lower, upper, estr=None, kind="im2col", **options):
    strides = tuple(np.cumprod([dims[0] * 4, *dims[1:-1]]).tolist())
    return EncodeArguments(
        kind, T.FLOAT32, dims, strides, estr or (1,) * len(dims),
        pixel_box_lower_corner=lower, pixel_box_upper_corner=upper, **options,
    )  # fmt: skip


# --- In bounds ----------------------------------------------------------------------------------


@given(
    start=st.integers(-40, 40),
    step=st.integers(1, 8),
    count=st.integers(1, 12),
    dim=st.integers(1, 30),
)
def test_positions_in_bounds_are_those_counted_one_by_one(start, step, count, dim):
    first, last = geometry.in_bounds(start, step, count, dim)
    taken = [j for j in range(count) if 0 <= start + j * step < dim]
    assert list(range(first, last)) == taken
    assert 0 <= first <= last <= count
    many = geometry.in_bounds(np.array([start, 0]), step, count, dim)
    assert [int(n[0]) for n in many] == [first, last]


@st.composite
def boxes(draw):
    """Return a tiled map and coordinates of a box near its tensor, both in driver order."""
    interleave = draw(st.sampled_from(TmaInterleaveLayout))
    rank = draw(st.integers(3 if interleave else 1, 5))
    ranges = ((1, 9), (1, 6), (1, 3), (-7, 10), (0, 40))
    dims, box, estr, coords, strides = (
        draw(st.tuples(*[st.integers(*least_most)] * rank)) for least_most in ranges
    )
    if not interleave:  # 16 bytes are four values
        box, coords = (4 * box[0], *box[1:]), (4 * coords[0], *coords[1:])
    strides = tuple(16 * stride for stride in strides[1:])
    args = EncodeArguments("tiled", T.FLOAT32, dims, strides, estr, box, interleave=interleave)
    return geometry.plan(args), coords


@examples(300)
@given(boxes())
def test_what_is_cut_of_a_box_are_its_lines_in_bounds(box):
    plan, coords = box
    one = np.array([coords], np.int64)
    cut = geometry.cut_box(plan, coords)
    origins, inside = geometry.line_origins(plan, one)
    start, first, last = geometry.inner_window(plan, one[:, 0])
    expected = inside.reshape(plan.line_shape)

    taken = np.zeros(plan.line_shape, np.bool_)
    taken[cut.lines] = True
    np.testing.assert_array_equal(taken, expected)
    assert (cut.first, cut.last) == (first[0], last[0])
    assert cut.size_bytes == expected.sum() * (last[0] - first[0])
    assert geometry.wholly_in_bounds(plan, one)[0] == (
        cut.size_bytes == plan.lines * plan.line_bytes
    )
    if expected.any():
        steps = [np.arange(n) * stride for n, stride in zip(cut.shape, cut.strides, strict=True)]
        begins = geometry.box_starts(plan, one) + cut.start + sum(np.ix_(*steps))
        np.testing.assert_array_equal(begins.reshape(-1), (origins + start + first)[inside])
        assert begins.max() - begins.min() == cut.reach


# --- Swizzle ------------------------------------------------------------------------------------


@pytest.mark.parametrize("swizzle", SWIZZLES)
@given(address=st.integers(0, 1 << 20))
def test_swizzle_is_its_own_inverse(swizzle, address):
    once = geometry.swizzle_offset(swizzle, address)
    assert geometry.swizzle_offset(swizzle, once) == address


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_swizzle_permutes_each_span_within_itself(swizzle):
    row = geometry.SWIZZLES[swizzle]
    addresses = np.arange(4 * row.repeat_bytes)
    swizzled = geometry.swizzle_offset(swizzle, addresses)
    assert sorted(swizzled) == addresses.tolist()
    np.testing.assert_array_equal(swizzled // row.span_bytes, addresses // row.span_bytes)


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_swizzle_keeps_granules_whole_and_repeats(swizzle):
    row = geometry.SWIZZLES[swizzle]
    addresses = np.arange(2 * row.repeat_bytes)
    swizzled = geometry.swizzle_offset(swizzle, addresses)
    np.testing.assert_array_equal(swizzled % row.granule_bytes, addresses % row.granule_bytes)
    np.testing.assert_array_equal(
        swizzled[row.repeat_bytes :], swizzled[: row.repeat_bytes] + row.repeat_bytes
    )
    halves = swizzled[row.repeat_bytes // 2 : row.repeat_bytes] - row.repeat_bytes // 2
    assert not row.terms or (halves != swizzled[: row.repeat_bytes // 2]).any(), "repeats sooner"


@pytest.mark.parametrize(
    ("swizzle", "chunks"),
    [
        ("bytes32", [1, 0, 3, 2, 5, 4, 7, 6]),
        ("bytes64", [1, 0, 3, 2, 5, 4, 7, 6]),
        ("bytes128", [1, 0, 3, 2, 5, 4, 7, 6]),
        ("bytes128_atom_32B", [2, 3, 0, 1, 6, 7, 4, 5]),
        ("bytes128_atom_64B", [4, 5, 6, 7, 0, 1, 2, 3]),
    ],
)
def test_second_128_byte_line_of_each_pattern(swizzle, chunks):
    line = geometry.swizzle_offset(TmaSwizzle[swizzle], np.arange(128, 256, 16))
    assert ((line - 128) // 16).tolist() == chunks


def test_sixth_line_of_swizzle_128b_is_xored_with_5():
    line = geometry.swizzle_offset(TmaSwizzle.bytes128, np.arange(640, 768, 16))
    assert ((line - 640) // 16).tolist() == [5, 4, 7, 6, 1, 0, 3, 2]


def test_flip_8b_also_swaps_halves_of_chunks_on_odd_lines():
    flip = TmaSwizzle.bytes128_atom_32B_flip_8B
    assert geometry.swizzle_offset(flip, 128) == 128 + 32 + 8
    assert geometry.swizzle_offset(flip, 256) == 256 + 64


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("smem_offset", [0, 128, 384, 896, 1024])
def test_swizzle_order_follows_the_absolute_address(swizzle, smem_offset):
    args = tiled(T.UINT8, (64, 64), (32, 13), swizzle=swizzle)
    plan = geometry.plan(args)
    order = geometry.swizzle_order(plan, smem_offset)
    granule = plan.swizzle.granule_bytes
    assert len(order) * granule == plan.smem_bytes
    for place, held in enumerate(order.tolist()):
        absolute = geometry.swizzle_offset(swizzle, smem_offset + place * granule)
        assert absolute == smem_offset + held * granule


# --- Plans --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "shape", "tx", "smem", "alignment"),
    [
        (tiled(T.UINT8, (64,), (16,)), (16,), 16, 16, 128),
        (tiled(T.FLOAT32, (64, 64), (8, 6)), (6, 8), 192, 192, 128),
        (
            tiled(T.FLOAT32, (64, 64), (4, 6), swizzle=TmaSwizzle.bytes64),
            (6, 4), 96, 384, 512,
        ),
        (
            tiled(T.FLOAT16, (64, 64, 9), (64, 7, 5), (4, 3, 2), swizzle=TmaSwizzle.bytes128),
            (3, 3, 64), 1152, 1152, 1024,
        ),
        (
            tiled(T.FLOAT16, (9, 9, 9), (5, 4, 3), (2, 1, 1), interleave=UNITS_OF_16),
            (3, 1, 3, 8), 144, 144, 128,
        ),
        (
            tiled(
                T.FLOAT16, (9, 9, 9), (5, 4, 3), (2, 1, 1),
                interleave=UNITS_OF_16, swizzle=TmaSwizzle.bytes128,
            ),
            (3, 1, 3, 8), 144, 256, 1024,
        ),
        (
            im2col((8, 9, 2), (0,), (0,), channels_per_pixel=8, pixels_per_column=5),
            (5, 8), 160, 160, 128,
        ),
        (
            im2col(
                (32, 9, 2), (0,), (0,), kind="im2col_wide", channels_per_pixel=32,
                pixels_per_column=5, mode=TensorMapIm2ColWideMode.w128,
                swizzle=TmaSwizzle.bytes128,
            ),
            (128, 32), 128 * 128, 128 * 128, 1024,
        ),
        (tiled(T["16U4_ALIGN8B"], (128, 4), (32, 2)), (2, 32), 32, 32, 128),
        (tiled(T["16U4_ALIGN16B"], (128, 4), (128, 2)), (2, 128), 128, 256, 128),
        (tiled(T["16U6_ALIGN16B"], (128, 4), (128, 2)), (2, 128), 192, 256, 128),
        (tiled(T["16U4_ALIGN16B"], (128, 64), (128, 64)), (64, 128), 4096, 8192, 128),
    ],
    ids=lambda value: value.data_type.name if isinstance(value, EncodeArguments) else None,
)  # fmt: skip
def test_plan_has_shape_bytes_and_alignment(args, shape, tx, smem, alignment):
    assert geometry.plan(args).tile_shape == shape
    assert geometry.tx_bytes(args) == tx
    assert geometry.smem_bytes(args) == smem
    assert geometry.smem_alignment(args) == alignment


def test_plan_is_made_once_per_map():
    args = tiled(T.FLOAT32, (64, 64), (8, 6))
    again = tiled(T.FLOAT32, (64, 64), (8, 6))
    assert args is not again
    assert geometry.plan(args) is geometry.plan(again)


def test_element_positions_follow_the_element_strides():
    args = tiled(T.INT32, (8, 8, 8), (4, 4, 3), (1, 3, 2))
    positions = element_positions(args, (4, -1, 2))
    assert positions.shape == (2, 2, 4, 3)
    assert positions[1, 1, 3].tolist() == [7, 2, 4]
    assert positions[0, 0, 0].tolist() == [4, -1, 2]


def test_element_positions_of_a_column_walk_w_then_h_then_n():
    args = im2col((4, 3, 2, 9), (0, 0), (-1, 0), channels_per_pixel=4, pixels_per_column=6)
    positions = element_positions(args, (0, 1, 0, 0), (1, 0))
    # W walks 1 of 0..1, H 0..1: (1,0) (0,1) (1,1) (0,0)n=1 ...; the offset adds one to W.
    assert positions[:, 0, 1:].tolist() == [
        [2, 0, 0], [1, 1, 0], [2, 1, 0], [1, 0, 1], [2, 0, 1], [1, 1, 1],
    ]  # fmt: skip


# --- Covering coordinates -----------------------------------------------------------------------


@given(
    dims=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    box=st.lists(st.integers(1, 20), min_size=4, max_size=4),
)
def test_tiles_cover_every_element_exactly_once(dims, box):
    args = tiled(T.UINT8, tuple(dims), tuple(box[: len(dims)]))
    seen = np.zeros(dims[::-1], np.int64)
    for coords in geometry.tile_coords(args):
        seen[tuple(slice(c, c + b) for c, b in zip(coords, args.box_dim[::-1], strict=True))] += 1
    assert (seen == 1).all()


def test_tile_coords_are_row_major_and_the_last_changes_fastest():
    args = tiled(T.FLOAT32, (20, 3, 2), (8, 2, 1))
    assert geometry.tile_coords(args)[:4].tolist() == [[0, 0, 0], [0, 0, 8], [0, 0, 16], [0, 2, 0]]


def test_interleaved_tiles_take_slices_one_by_one():
    args = tiled(T.UINT8, (4, 3, 2), (4, 2, 2), interleave=UNITS_OF_16)
    assert geometry.tile_coords(args).tolist() == [[0, 0, 0], [0, 1, 0], [0, 2, 0]]


def test_column_starts_step_through_pixels_of_all_images_then_channels():
    args = im2col((8, 4, 2), (-1,), (-1,), channels_per_pixel=4, pixels_per_column=3)
    # W walks -1..2: eight pixels in two images, three a column.
    assert geometry.tile_coords(args).tolist() == [
        [0, -1, 0], [0, -1, 4], [0, 2, 0], [0, 2, 4], [1, 1, 0], [1, 1, 4],
    ]  # fmt: skip


@given(
    dims=st.tuples(*(st.integers(1, 6) for _ in range(3))),
    estr=st.tuples(*(st.integers(1, 3) for _ in range(3))),
    lower=st.tuples(st.integers(-2, 1), st.integers(-2, 1)),
    pixels=st.integers(1, 9),
)
def test_columns_meet_every_pixel_of_the_walk_once(dims, estr, lower, pixels):
    w, h, n = dims
    upper = (max(lower[0] - w + 1, 0), max(lower[1] - h + 1, -1))
    args = im2col(
        (4, w, h, n), lower, upper, (1, *estr), channels_per_pixel=4, pixels_per_column=pixels
    )
    box = list(geometry.im2col_box(args).values())
    if any(last < first for first, last in box):
        return
    expected = [
        (a, b, c)
        for c in range(0, n, estr[2])
        for b in range(box[1][0], box[1][1] + 1, estr[1])
        for a in range(box[0][0], box[0][1] + 1, estr[0])
    ]
    walked = [
        tuple(p)
        for coords in geometry.tile_coords(args)
        for p in element_positions(args, coords[::-1].tolist())[:, 0, 1:].tolist()
    ]
    assert walked[: len(expected)] == expected
    assert len(walked) - len(expected) < pixels


def test_a_wide_column_that_starts_left_of_its_box_walks_into_it():
    args = im2col(
        (4, 3, 2, 2), (0,), (0,), kind="im2col_wide", channels_per_pixel=4, pixels_per_column=8
    )
    walked = element_positions(args, (0, -4, 1, 0))[:, 0, 1:].tolist()
    assert walked == [*([w, 1, 0] for w in range(-4, 3)), [0, 1, 1]]


def test_wide_columns_hold_h_fixed():
    args = im2col(
        (4, 3, 2, 2), (0,), (0,), kind="im2col_wide", channels_per_pixel=4, pixels_per_column=4
    )
    assert geometry.tile_coords(args).tolist() == [
        [0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0],
    ]  # fmt: skip


def test_more_tiles_than_a_list_should_hold_are_refused():
    args = tiled(T.UINT8, (1 << 31, 1 << 20), (16, 1))
    with pytest.raises(TmaUnsupportedError, match="tiles cover this tensor"):
        geometry.tile_coords(args)


def test_a_list_is_refused_by_its_coordinates_not_its_tiles():
    fits = tiled(T.UINT8, (16 << 10, 1 << 10), (16, 1))
    assert geometry.tile_coords(fits).shape == (1 << 20, 2)
    four = EncodeArguments(
        "tiled", T.UINT8, (16, 1 << 25, 1, 2), (16, 16, 16), (1,) * 4, (16, 1, 1, 1)
    )
    with pytest.raises(
        TmaUnsupportedError, match=r"67108864 tiles .* at most 33554432 tiles of rank 4"
    ):
        geometry.tile_coords(four)


def test_the_list_is_all_that_is_held_while_it_is_made():
    args = tiled(T.UINT8, (16 << 10, 1 << 10), (16, 1))
    tracemalloc.start()
    try:
        coords = geometry.tile_coords(args)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert coords.nbytes == 2 << 23
    assert peak_bytes < 1.1 * coords.nbytes
    assert coords.flags.c_contiguous


def test_a_walk_longer_than_len_can_say_is_refused_with_the_number_of_its_tiles():
    most = 1 << 32
    args = im2col((4, most, most, most), (0, 0), (0, 0), channels_per_pixel=4, pixels_per_column=1)
    with pytest.raises(TmaUnsupportedError, match=f"^{1 << 96} tiles .* Compute the coordinates"):
        geometry.tile_coords(args)


def test_a_bounding_box_without_pixels_has_no_columns():
    args = im2col((4, 3, 3, 2), (2, 2), (-2, -2), channels_per_pixel=4, pixels_per_column=1)
    assert geometry.tile_coords(args).shape == (0, 4)


def test_an_empty_bounding_box_has_no_columns_however_many_images_there_are():
    args = EncodeArguments(
        "im2col_wide", T.FLOAT32, (4, 1 << 16, 1 << 32, 1 << 32), (16, 16, 16), (1,) * 4,
        pixel_box_lower_corner=(1 << 15,), pixel_box_upper_corner=(-(1 << 15),),
        channels_per_pixel=4, pixels_per_column=1,
    )  # fmt: skip
    assert geometry.tile_coords(args).shape == (0, 4)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    "ask", [geometry.plan, geometry.tx_bytes, geometry.smem_bytes, geometry.tile_coords]
)
def test_interleaved_maps_below_rank_3_describe_no_copy(ask, rank):
    args = tiled(T.UINT8, (4, 4)[:rank], (4, 4)[:rank], interleave=UNITS_OF_16)
    with pytest.raises(TmaUnsupportedError, match=f"rank {rank} cannot be copied"):
        ask(args)
