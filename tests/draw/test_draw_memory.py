"""The picture of shared memory has the bytes of the simulator, which equals the hardware."""

from __future__ import annotations

import re

import numpy as np
import pytest
from draw_cases import ALL, TILED, tiled

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.draw.chunks import MAX_LINES


def picture(case):
    return draw.shared(
        case.tensor_map,
        case.coords,
        im2col_offsets=case.offsets,
        smem_offset=case.smem_offset,
    )


def chunks(layout):
    return [c for block in layout.blocks for line in block.lines for c in line.chunks]


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_drawn_chunk_holds_the_bytes_that_the_simulator_put_there(case):
    tile, layout = case.tile(), picture(case).layouts[-1]
    for chunk in chunks(layout):
        held = tile.smem[chunk.address : chunk.address + 16]
        written = tile.written[chunk.address : chunk.address + 16]
        if chunk.state == "padding":
            assert not written.any()
        else:
            assert written.all()
            lines = tile.array.reshape(-1, tile.array.shape[-1])
            row = lines[chunk.row, chunk.first : chunk.last + 1]
            assert held.tobytes() == np.ascontiguousarray(row).tobytes()


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_chunk_is_marked_out_of_bounds_where_the_simulator_filled_it(case):
    filled = case.tile().filled
    filled = filled.reshape(-1, filled.shape[-1])
    names = {(True, True): "filled", (False, False): "data", (True, False): "clipped"}
    for chunk in chunks(picture(case).layouts[-1]):
        if chunk.state != "padding":
            part = filled[chunk.row, chunk.first : chunk.last + 1]
            assert chunk.state == names[bool(part.any()), bool(part.all())]


#: An interleaved map's positions count units of 16 bytes, not elements of the tensor.
BY_ELEMENTS = {name: case for name, case in TILED.items() if not case.tensor_map.interleave}


@pytest.mark.parametrize("case", BY_ELEMENTS.values(), ids=BY_ELEMENTS)
def test_hovering_names_the_element_and_the_global_address_of_what_lies_there(case):
    smem = case.tile().smem
    for chunk in chunks(picture(case).layouts[-1]):
        if chunk.state == "data":
            value = int(smem[chunk.address : chunk.address + 4].view(np.int32)[0])
            assert case.tensor[chunk.element] == value
            strides = case.tensor.strides
            offset = sum(i * s for i, s in zip(chunk.element, strides, strict=True))
            assert chunk.global_offset == offset
            assert f"global_address {offset:+#x}" in chunk.about
            assert f"element {chunk.element}" in chunk.about
            bank = chunk.address % 128 // 4
            assert f"banks {bank}..{bank + 3}" in chunk.about


def rows_of(text):
    found = re.fullmatch(r"rows (\d+)\.\.(\d+)", text)
    return range(int(found[1]), int(found[2]) + 1)


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_rows_left_out_are_like_those_they_are_said_to_be_like(case):
    tile = case.tile()
    plan_pitch = tile.tensor_map.smem_bytes // (tile.array.size // tile.array.shape[-1])
    for block in picture(case).layouts[-1].blocks:
        for part in filter(None, block.then.split("; ")):
            if part.endswith("not drawn"):
                continue
            left, shown = map(rows_of, part.split(" like "))
            drawn = {c.row for line in block.lines for c in line.chunks if c.state != "padding"}
            assert set(shown) == drawn
            further = left.start - shown.start
            for chunk in chunks_of_rows(block):
                for row in range(chunk.row + further, left.stop, len(shown)):
                    address = chunk.address + (row - chunk.row) * plan_pitch
                    held = tile.smem[address : address + 16]
                    lines = tile.array.reshape(-1, tile.array.shape[-1])
                    expected = np.ascontiguousarray(lines[row, chunk.first : chunk.last + 1])
                    assert held.tobytes() == expected.tobytes()


def chunks_of_rows(block):
    return [c for line in block.lines for c in line.chunks if c.state != "padding"]


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_every_row_is_drawn_or_told_to_be_left_out(case):
    rows = set()
    layout = picture(case).layouts[-1]
    for block in layout.blocks:
        rows |= {c.row for c in chunks_of_rows(block)}
        for part in filter(None, block.then.split("; ")):
            rows |= set(rows_of(part.split(" like ")[0].removesuffix(" not drawn")))
    assert rows == set(range(case.tile().array.size // case.tile().array.shape[-1]))


def test_a_swizzle_of_128_bytes_moves_chunk_c_of_row_r_to_c_xor_r():
    figure = picture(TILED["128B swizzle"])
    before, after = figure.layouts
    assert before.name == "before the swizzle"
    for line in after.blocks[0].lines:
        assert [c.first // 4 for c in line.chunks] == [k ^ line.chunks[0].row % 8 for k in range(8)]
    for line in before.blocks[0].lines:
        assert [c.first // 4 for c in line.chunks] == list(range(8))


def test_the_pattern_follows_the_absolute_address_of_the_tile():
    line = picture(TILED["a tile at 0x480"]).layouts[-1].blocks[0].lines[0]
    assert line.address == 0x480
    assert [c.first // 4 for c in line.chunks] == [1, 0, 3, 2, 5, 4, 7, 6]


def test_without_swizzle_there_is_one_layout():
    assert [layout.name for layout in picture(TILED["a dense tile"]).layouts] == ["unswizzled"]


def test_padding_of_rows_is_seen_untouched():
    layout = picture(TILED["128B swizzle of padded rows"]).layouts[0]
    states = [c.state for c in layout.blocks[0].lines[0].chunks]
    assert states == ["data"] * 3 + ["padding"] * 5


def test_a_tall_tile_is_abbreviated_and_says_so():
    figure = picture(TILED["a tall tile"])
    layout = figure.layouts[-1]
    assert "rows 8..199 like rows 0..7" in [block.then for block in layout.blocks]
    assert sum(len(block.lines) for block in layout.blocks) <= MAX_LINES
    assert "rows 8..199 like rows 0..7" in figure.svg()


def test_a_chunk_that_is_partly_out_of_bounds_is_told_apart():
    layout = picture(TILED["clipped within a chunk"]).layouts[0]
    assert [c.state for c in layout.blocks[0].lines[0].chunks][:3] == ["data", "clipped", "filled"]


def test_a_tile_brings_its_own_coordinates():
    case = TILED["out of bounds below and right"]
    assert draw.shared(case.tile()) == picture(case)


def test_flipped_halves_of_an_atom_of_8_bytes_are_marked():
    tm = tma.make_tma_descriptor(
        np.zeros((64, 32), np.int32), (16, 32), swizzle="bytes128_atom_32B_flip_8B", target="sm_100"
    )
    lines = draw.shared(tm).layouts[-1].blocks[0].lines
    assert [line.chunks[0].swapped for line in lines[:4]] == [False, True, False, True]
    assert "⇄" in lines[1].chunks[0].label


def test_coordinates_that_kill_a_kernel_are_refused_not_drawn():
    with pytest.raises(tma.TmaPreconditionError, match="16 bytes"):
        draw.shared(TILED["a dense tile"].tensor_map, (0, 1))


def test_many_tiles_at_once_are_refused():
    case = tiled((64, 64), (16, 32), (0, 0))
    with pytest.raises(tma.TmaUnsupportedError, match="2 tiles at once"):
        draw.shared(tma.load_tiles(case.tensor_map, [(0, 0), (16, 0)]))
