"""Cards of maps and tiles: no error for any map, and at most 400 KB."""

from __future__ import annotations

import random

import numpy as np
import pytest
from draw_cases import pictured
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.tables.bits import fields_of

MOST_BYTES = 400_000
COLUMNS = 100
#: Fields for which most other values are invalid.
KEPT = ("im2col", "rank", "element_type", "tf32")


def held_to_the_bounds(tensor_map):
    """Show a map in every way; return the HTML."""
    shown = tensor_map._repr_html_()
    assert len(shown.encode()) <= MOST_BYTES
    shown = pictured(shown)
    assert "<script" not in shown
    assert "the 128 bytes" in shown
    assert max(map(len, str(tensor_map).splitlines())) <= COLUMNS
    return shown


# --- Copies that are refused --------------------------------------------------------------------


def test_a_map_whose_extent_kills_a_copy_is_shown_with_its_bits_and_the_refusal_once():
    tm = tma.driver_encode_tiled(
        7, 2, 0x10000, (64, 1 << 32), (256,), (16, 16), (1, 1), encoder="model"
    )
    shown = held_to_the_bounds(tm)
    assert "<td>(64, 4294967296)</td>" in shown
    assert shown.count("<p>not drawn: an extent of the map is 4294967296; ") == 1
    assert "(COPY_DIM_31_BITS)</p>" in shown


def test_a_map_larger_than_shared_memory_is_shown_without_its_tile():
    tm = tma.driver_encode_tiled(
        0, 3, 0x10000, (256,) * 3, (256, 1 << 16), (256, 228, 4), (1,) * 3, encoder="model"
    )
    assert "(COPY_SMEM_SIZE)</p>" in held_to_the_bounds(tm)


def test_a_decoded_map_of_an_odd_address_is_shown_without_its_tile():
    data = bytearray(bytes(128))
    data[0] = 8
    assert "(COPY_ADDRESS)</p>" in held_to_the_bounds(tma.TensorMap.from_bytes(bytes(data)))


def test_an_interleaved_map_of_rank_1_says_that_no_copy_is_possible():
    tm = tma.TensorMap.from_bytes(bytes(128)).replace(interleave_layout=1)
    shown = held_to_the_bounds(tm)
    assert "no copy is possible: an interleaved map of rank 1 cannot be copied" in shown
    assert "no copy is possible: an interleaved map of rank 1 cannot be copied" in str(tm)
    with pytest.raises(tma.TmaUnsupportedError, match="rank 1 cannot be copied"):
        _ = tm.tx_bytes
    with pytest.raises(tma.TmaUnsupportedError, match="rank 1 cannot be copied"):
        tma.load_tile(tm, (0,))


def test_a_tuple_of_one_is_printed_as_one():
    tm = tma.make_tma_descriptor(np.zeros(128, np.uint8), (16,))
    assert "(128,)" in str(tm)
    assert "(128)" not in str(tm)


# --- Size ---------------------------------------------------------------------------------------


def longest_column(address=1 << 56):
    strides = [(1 << 20) + (d << 36) for d in range(4)]
    return tma.driver_encode_im2col(
        "UINT8", 5, address, (128, 13, 13, 13, 1 << 20), strides, (-1,) * 3, (0,) * 3, 128, 1024,
        (1,) * 5, swizzle=3, encoder="model",
    )  # fmt: skip


def test_the_card_of_the_longest_column_is_cut_short_and_says_so():
    tm = longest_column()
    whole = draw.walk(tm).panels() + draw.shared(tm).panels()
    assert len(whole) > MOST_BYTES
    shown = held_to_the_bounds(tm)
    assert "further images: see draw.walk" in shown
    assert "before the swizzle: see draw.shared" in shown
    assert draw.walk(tm).images[0].name in shown


def test_a_tile_of_the_longest_column_keeps_to_the_same_bound():
    x = np.zeros((6, 13, 13, 13, 32), np.float32)
    lower, upper = tma.im2col_corners((2, 2, 2), padding=1)
    tm = tma.make_im2col_descriptor(x, lower, upper, 32, 1024, swizzle="bytes128")
    tile = tma.load_tile(tm, (0, -1, -1, -1, 0))
    shown = draw.tile_html(tile)
    assert len(shown.encode()) <= MOST_BYTES
    assert len(draw.walk(tile).panels() + draw.shared(tile).panels()) > MOST_BYTES
    assert "further images: see draw.walk" in pictured(shown)


def test_no_tiles_at_all_are_shown_as_none():
    tm = tma.make_tma_descriptor(np.zeros((64, 64), np.int32), (8, 8))
    tile = tma.load_tiles(tm, np.zeros((0, 2), np.int64))
    assert "no tiles" in draw.tile_html(tile)


# --- Any map ------------------------------------------------------------------------------------


def some(rng, most):
    """Return a number up to `most`: a small number, any number, or `most`."""
    return rng.choice([rng.randint(1, min(most, 20)), rng.randint(1, most), most])


def encoded(rng):
    """Return a random map that the driver would encode, or None."""
    rank = rng.randint(1, 5)
    place = {
        "global_address": 32 * some(rng, 1 << 50),
        "global_dim": [some(rng, rng.choice([64, 1 << 10, 1 << 32])) for _ in range(rank)],
        "global_strides": [32 * some(rng, 1 << 20) for _ in range(rank - 1)],
        "element_strides": [rng.choice([1, 1, 2, 8]) for _ in range(rank)],
        "interleave": rng.choice([0, 0, 0, 1, 2]),
        "swizzle": rng.randint(0, 3),
        "encoder": "model",
    }
    column = {
        "channels_per_pixel": rng.choice([16, 32, some(rng, 256)]),
        "pixels_per_column": some(rng, 1024),
    }
    corners = [[rng.randint(-3, 3) for _ in range(max(rank - 2, 0))] for _ in range(2)]
    kind, data_type = rng.choice(["tiled", "im2col", "wide"]), rng.randint(0, 12)
    try:
        if kind == "tiled":
            box = [rng.choice([16, some(rng, 256)]) for _ in range(rank)]
            return tma.driver_encode_tiled(data_type, rank, box_dim=box, **place)
        if kind == "im2col":
            names = ("pixel_box_lower_corner", "pixel_box_upper_corner")
            return tma.driver_encode_im2col(
                data_type, rank, **dict(zip(names, corners, strict=True)), **column, **place
            )
        return tma.driver_encode_im2col_wide(
            data_type,
            rank,
            pixel_box_lower_corner_width=rng.randint(-3, 3),
            pixel_box_upper_corner_width=rng.randint(-3, 3),
            mode=rng.randint(0, 1),
            **column,
            **place,
        )
    except tma.TmaError:
        return None


@pytest.mark.slow
@examples(240)
@given(seed=st.integers(0, 1 << 30))
def test_any_map_that_encodes_is_shown_and_so_is_what_replace_makes_of_it(seed):
    rng = random.Random(seed)
    maps = [tm for tm in (encoded(rng) for _ in range(20)) if tm is not None]
    for tm in maps:
        held_to_the_bounds(tm)
        if tm.kind == "tiled":
            held_to_the_bounds(
                tm.replace(interleave_layout=rng.randint(0, 2), swizzle_mode=rng.randint(0, 3))
            )


def changed(rng, example):
    """Return the example with other bits in some fields, or None if no map has these bits."""
    word = int.from_bytes(bytes(example), "little")
    for field in fields_of(example.kind, example.rank):
        if field.name in KEPT or rng.random() < 0.7:
            continue
        for bit, width in field.pieces:
            ones = (1 << width) - 1
            word = word & ~(ones << bit) | rng.choice([0, 1, ones, rng.getrandbits(width)]) << bit
    try:
        return tma.TensorMap.from_bytes(word.to_bytes(128, "little"))
    except tma.TmaPreconditionError:
        return None


@pytest.mark.slow
@examples(240)
@given(seed=st.integers(0, 1 << 30))
def test_any_bytes_that_decode_are_shown(seed):
    rng = random.Random(seed)
    tiled = tma.make_tma_descriptor(np.zeros((3, 30, 104), np.float16), (2, 8, 64))
    maps = [changed(rng, rng.choice([tiled, longest_column()])) for _ in range(10)]
    assert any(maps)
    for tm in filter(None, maps):
        held_to_the_bounds(tm)
