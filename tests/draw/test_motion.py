"""Moving copies and accesses, and the comparison of two maps: facts, and parts that do not move."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from draw_cases import ALL, IM2COL, TILED, stills

import course
import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.draw.grid import bounds

X = np.zeros((64, 64), np.float16)


@pytest.fixture
def swizzled():
    return tma.make_tma_descriptor(X, (16, 64), swizzle="bytes128")


@pytest.fixture
def plain():
    return tma.make_tma_descriptor(X, (16, 64))


# --- One copy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_each_chunk_ends_where_the_simulator_puts_it_and_the_barrier_ends_at_zero(case):
    tile = case.tile()
    motion = draw.copy_motion(tile)
    lines = tile.array.reshape(-1, tile.array.shape[-1])
    for chunk in motion.chunks:
        held = tile.smem[chunk.address : chunk.address + 16].tobytes()
        row = np.ascontiguousarray(lines[chunk.row, chunk.first : chunk.last + 1])
        assert held == row.tobytes()
    assert motion.left_after[0] == tile.tx_bytes
    assert motion.left_after[-1] == 0
    assert list(motion.left_after) == sorted(motion.left_after, reverse=True)
    assert ET.fromstring(motion.svg()).tag.endswith("svg")
    assert max(map(len, str(motion).splitlines())) <= 100


@pytest.mark.parametrize(
    ("data_type", "row_bytes", "chunk_bytes"),
    [("16U4_ALIGN16B", 64, 8), ("16U6_ALIGN16B", 96, 12), ("16U4_ALIGN8B", 64, 16)],
)
def test_a_packed_chunk_counts_the_bytes_that_come_from_the_tensor(
    data_type, row_bytes, chunk_bytes
):
    room = np.zeros(4 * row_bytes + 32, np.uint8)
    start = -room.ctypes.data % 32
    x = room[start : start + 4 * row_bytes].reshape(4, row_bytes)
    tensor_map = tma.make_tma_descriptor(x, (4, 128), data_type=data_type, target="sm_100")
    motion = draw.copy_motion(tensor_map)
    assert motion.all_chunks == len(motion.chunks)
    counts = range(4 * row_bytes, -1, -chunk_bytes)
    assert motion.left_after == (*counts,)
    assert f"{chunk_bytes} bytes at a time" in motion.html()


def test_the_text_counts_all_chunks_that_it_does_not_list():
    motion = draw.copy_motion(tma.make_tma_descriptor(X, (64, 64)))
    assert str(motion).endswith("and so on: 500 further chunks")


def test_a_copy_moves_in_an_image_and_stands_still_where_motion_is_not_wanted(swizzled):
    (picture,) = stills(draw.copy_motion(swizzled).html())
    assert len(re.findall(r"@keyframes c\d+", picture)) == len(draw.copy_motion(swizzled).chunks)
    assert "prefers-reduced-motion:reduce){g{animation:none!important}}" in picture


def test_chunks_out_of_bounds_appear_in_the_engine(swizzled):
    motion = draw.copy_motion(swizzled, (60, 0))
    outside = [n for n, chunk in enumerate(motion.chunks) if chunk.state == "filled"]
    (picture,) = stills(motion.html())
    hidden = [int(n) for n in re.findall(r"@keyframes c(\d+)\{0%,[\d.]+%\{opacity:0\}", picture)]
    assert hidden == outside
    assert outside == [n for n, chunk in enumerate(motion.chunks) if chunk.row >= 4]


# --- One access ---------------------------------------------------------------------------------


def test_the_phases_of_an_ldmatrix_and_their_wavefronts(plain, swizzled):
    def fragment(thread):
        return thread % 16, 8 * (thread // 16)

    for tensor_map, wavefronts in ((plain, 32), (swizzled, 4)):
        steps = draw.access_steps(tensor_map, fragment, bytes_per_thread=16)
        assert (len(steps.phases), steps.wavefronts) == (4, wavefronts)
        conflicts = draw.bank_conflicts(tensor_map, fragment, bytes_per_thread=16)
        assert steps.degrees == conflicts.swizzles[0].degrees
        assert f"{wavefronts} wavefronts" in steps.title


def test_threads_are_numbered_through_all_phases(plain):
    steps = draw.access_steps(plain, tma.ldmatrix_addresses(plain, 0, 0, num=4))
    for n in range(4):
        names = [text for text in panel_texts(steps.step(n)) if text.startswith("thread ")]
        assert names == [f"thread {t}" for t in range(8 * n, 8 * n + 8)]
    assert "phase  4: 8 wavefronts   24:4 25:4" in str(steps)
    fifth = [t for t in panel_texts(draw.access_steps(plain).step(4)) if t.startswith("thread ")]
    assert fifth[0] == "thread 0"  # the next instruction of the warp


def test_a_strip_has_a_cell_per_position_or_groups_of_one_size():
    cases = ((56, 1, 56, "55"), (64, 16, 64, "63"), (130, 16, 44, "129..129"))
    for extent, box, count, name in cases:
        tm = tma.make_tma_descriptor(np.zeros((extent, 8, 8), np.float16), (box, 8, 8))
        (scene,) = draw.tensor(tm).scenes()
        cells = [i for i in scene.items if i.key.startswith("at0.")]
        assert len(cells) == count
        assert cells[-1].title == f"shape[0]: position {name}"
        is_said = "shape[0]: 3 positions per cell" in panel_texts(scene)
        assert is_said == (count < extent)


def test_a_long_strip_is_cut_to_twelve_boxes_and_says_so():
    tm = tma.make_tma_descriptor(np.zeros((65, 8, 8), np.float16), (1, 8, 8))
    figure = draw.tensor(tm, (30, 0, 0))
    cells = [i for i in figure.scenes()[0].items if i.key.startswith("at0.")]
    assert len(cells) == 12
    assert "shape[0] = 65 (driver global_dim[2]): box 30; 24..35 drawn" in figure.notes


def test_the_rows_of_the_box_are_named_beside_its_middle():
    tm = tma.make_tma_descriptor(np.zeros((4096, 64), np.float16), (128, 64))
    (scene,) = draw.tensor(tm, (1024, 0)).scenes()
    (name,) = (i for i in scene.items if i.text == "rows 1024..1151")
    (box,) = (i for i in scene.items if i.style == "box")
    assert abs(name.row + name.rows / 2 - box.row - box.rows / 2) < 0.1


def test_chunks_that_the_copy_does_not_write_have_no_label():
    case = TILED["128B swizzle of padded rows"]
    (scene, _) = draw.shared(case.tile()).scenes()
    assert "untouched" not in panel_texts(scene)
    assert "untouched by the copy" in panel_texts(scene)  # the legend


def test_a_step_can_be_shown_alone_and_says_how_many_were_asked_so_far(plain):
    steps = draw.access_steps(plain)
    assert "8 wavefronts, 24 of 128 so far" in panel_texts(steps.step(2))
    assert "@keyframes" not in steps.step(2).css
    assert f"0%{{opacity:1}}{100 / 16:.4g}%{{opacity:0}}" in steps.scenes()[0].css


def test_one_swizzle_is_shown_among_the_others_and_has_the_colour(plain):
    conflicts = draw.bank_conflicts(plain)
    bars = {"none (this map)": "128, worst 8-way", "bytes128": "16, free"}
    for scene, style in zip(conflicts.scenes(), ("conflict", "taken"), strict=True):
        texts = panel_texts(scene)
        assert texts[1:5] == [text for bar in bars.items() for text in bar]
        assert [i.style for i in scene.items if i.title == "wavefronts"].count(style) == 1
    free, conflict = (panel_texts(conflicts.scenes()[n]) for n in (1, 0))
    assert "bytes128: no conflict" in free
    assert "none: 8-way conflict" in conflict


def test_the_still_of_bank_conflicts_shows_the_swizzles_in_turn(plain):
    html = draw.bank_conflicts(plain).html()
    (picture,) = stills(html)
    assert "prefers-reduced-motion:reduce){g{animation:none!important}}" in picture
    assert "@keyframes turn{0%{opacity:1}50%{opacity:0}100%{opacity:0}}" in picture
    assert "none: 8-way conflict" in picture
    assert "bytes128: no conflict" in picture
    assert "data-steps=" in html


# --- Two maps -----------------------------------------------------------------------------------


def test_two_maps_are_compared_by_their_fields_and_their_tiles(plain, swizzled):
    found = draw.compare(plain, swizzled)
    assert [v.field for v in found.changed] == ["swizzle", "swizzle_repeat_bytes"]
    assert [layout.name for layout in found.layouts] == ["A: unswizzled", "B: swizzle bytes128"]
    assert str(found).splitlines()[0] == "A against B: 2 fields differ"


def test_a_map_compared_with_itself_differs_in_nothing(plain):
    assert str(draw.compare(plain, plain)).splitlines() == [
        "A against B: 0 fields differ",
        "no field differs",
    ]


# --- What is cropped, shifted, deep or packed -----------------------------------------------------


def panel_texts(scene):
    return [item.text for item in scene.items if item.text]


@pytest.mark.parametrize(
    ("shape", "box", "coords"),
    [((4096,), (256,), (0,)), ((4096, 4096), (64, 32), (2048, 4064))],
    ids=["a long vector", "a large matrix"],
)
def test_a_cropped_tensor_has_a_zigzag_where_it_goes_on_and_has_a_minimap(shape, box, coords):
    tm = tma.make_tma_descriptor(np.zeros(shape, np.float16), box)
    figure = draw.tensor(tm, coords)
    (scene,) = figure.scenes()
    assert "the whole tensor; framed: what is drawn" in panel_texts(scene)
    axes = (figure.columns,) if len(shape) == 1 else (figure.rows, figure.columns)
    cut = sum((a.shown[0] > 0) + (a.shown[1] < a.extent) for a in axes)
    zigzags = [i for i in scene.items if i.style == "zigzag"]
    assert len(zigzags) == cut > 0


def test_a_tensor_that_is_drawn_whole_has_no_zigzag():
    (scene,) = draw.tensor(TILED["a dense tile"].tile()).scenes()
    assert "the whole tensor; framed: what is drawn" not in panel_texts(scene)
    assert "zigzag" not in {item.style for item in scene.items}


def test_two_to_the_31_rows_are_drawn_within_the_panel():
    row = np.lib.stride_tricks.as_strided(np.zeros(64, np.uint8), (1 << 31, 64), (0, 1))
    tm = tma.driver_encode_tiled(
        0, 2, row.ctypes.data & ~63, (64, 1 << 31), (64,), (64, 64), (1, 1), encoder="model"
    )
    (scene,) = draw.tensor(tm, ((1 << 31) - 64, 0)).scenes()
    for item in scene.items:
        left, top, right, bottom = bounds(item)
        assert 0 <= left <= right <= scene.width
        assert 0 <= top <= bottom <= scene.height
    assert scene.width <= 576


def test_the_window_can_be_asked_for_and_is_kept_while_the_box_is_in_it():
    tm = TILED["a dense tile"].tensor_map
    assert draw.tensor(tm, (8, 0), shown={0: (-8, 72)}).rows.shown == (-8, 72)
    assert draw.tensor(tm, (60, 0), shown={0: (-8, 72)}).rows.shown == (0, 76)


def test_slices_of_a_deep_box_are_separated_in_shared_memory():
    case = TILED["rank 5"]
    lines = [line for b in draw.shared(case.tile()).layouts[0].blocks for line in b.lines]
    assert [line.slices for line in lines] == [
        ((0, 0, 0), (0, 0, 1)),
        ((0, 0, 1), (0, 1, 0)),
        ((0, 1, 0), (0, 1, 1)),
    ]
    (scene,) = draw.shared(case.tile()).scenes()
    assert "box[0, 0, 0, ...] to box[0, 0, 1, ...]" in panel_texts(scene)


def test_the_outer_dimensions_of_a_deep_tensor_are_strips_with_the_box_on_them():
    (scene,) = draw.tensor(TILED["rank 5"].tile()).scenes()
    cells = {i.key: i.style for i in scene.items if i.key.startswith("at")}
    assert cells["at1.0"] == "tensor"
    assert cells["at1.1"] == cells["at1.2"] == "taken"
    assert cells["at2.4"] == "filled"


@pytest.mark.parametrize("case", IM2COL.values(), ids=IM2COL)
def test_a_walk_that_is_drawn_in_part_has_a_map_of_all_of_it(case):
    figure = draw.walk(case.tile())
    for image, scene in zip(figure.images, figure.scenes(), strict=True):
        frames = [item for item in scene.items if item.style == "frame"]
        is_cut = bool(figure.missing(image))
        assert len(frames) == is_cut
        assert ("the whole walk; framed: what is drawn" in panel_texts(scene)) == is_cut
        rows = {pixel.h for pixel in image.pixels}
        bars = [i for i in scene.items if i.style == "taken" and i.title.startswith("h ")]
        assert len(bars) == len(rows) * is_cut


def test_the_map_of_a_walk_shows_each_row_of_pixels_and_the_way_to_the_next():
    case = IM2COL["stride 2"]
    figure = draw.walk(case.tensor_map, (0, 5, 35, 0))
    (image,) = figure.images
    assert figure.runs(image) == [(5, 35, 37), *((h, -1, 37) for h in (7, 9, 11)), (13, -1, 1)]
    (scene,) = figure.scenes()
    bars = [i for i in scene.items if i.style == "taken" and i.title.startswith("h ")]
    ways = [i for i in scene.items if i.style == "way"]
    assert [bar.title for bar in bars] == [f"h {h}, w {w}..{e}" for h, w, e in figure.runs(image)]
    assert len(ways) == len(bars) - 1
    unit = bars[0].rows
    for way, bar, after in zip(ways, bars, bars[1:], strict=False):
        right, down = way.column + way.columns, way.row + way.rows
        assert way.column + unit / 2 == pytest.approx(bar.column + bar.columns, abs=0.05)
        assert way.row == pytest.approx(bar.row + unit / 2, abs=0.05)
        assert right == pytest.approx(after.column + unit / 2, abs=0.05)
        assert down == pytest.approx(after.row + unit / 2, abs=0.05)
    (frame,) = (i for i in scene.items if i.style == "frame")
    assert frame.columns == pytest.approx(14 * unit)


def test_a_walk_draws_its_bounding_box_where_the_offsets_move_it():
    figure = draw.walk(IM2COL["its last tap"].tile())
    assert figure.box == (-1, 5, -1, 7)
    assert figure.shifted == (1, 7, 1, 9)
    pixels = [p for image in figure.images for p in image.pixels]
    assert {p.h for p in pixels} <= set(range(1, 8))
    styles = [item.style for item in figure.scenes()[0].items]
    assert styles.count("shifted") == 5  # the sides of the box, and its entry in the legend


def test_packed_types_show_their_gaps():
    storage = np.zeros(64 * 256 + 64, np.uint8)
    y = storage[-storage.ctypes.data % 64 :][: 64 * 256].reshape(64, 256)
    tm = tma.make_tma_descriptor(y, (8, 128), data_type="16U4_ALIGN16B", target="sm_100")
    figure = draw.shared(tm)
    chunk = figure.layouts[0].blocks[0].lines[0].chunks[0]
    assert (chunk.data_bytes, chunk.first, chunk.last) == (8, 0, 15)
    assert "8 bytes of gap after 8 of values" in chunk.about
    assert "gap of a packed type" in panel_texts(figure.scenes()[0])


def test_partly_filled_chunks_have_their_entry_in_the_legend_and_only_where_there_are_some():
    for name, there in (("clipped within a chunk", True), ("a dense tile", False)):
        texts = panel_texts(draw.shared(TILED[name].tile()).scenes()[0])
        assert ("partly out of bounds" in texts) == there


def test_values_that_are_stored_less_one_say_so():
    values = {v.field: v.shown[0] for v in draw.fields_of(TILED["a dense tile"].tensor_map).values}
    assert values["global_dim[0]"] == "64 (0x3f)"
    assert values["box_dim[1]"] == "16 (0xf)"
    assert values["global_strides[0]"] == "256 bytes (0x10)"
    assert values["swizzle"] == "none"


@pytest.mark.parametrize(
    ("tensor", "box", "coords", "wrong"),
    [
        (X, (4, 8), None, []),
        (X, (4, 12), None, ["a row of the box"]),
        (X, (4, 8), (0, 4), ["the offset of the first column"]),
        (X[:, 4:], (4, 8), None, ["the address"]),
        (np.zeros((4, 1733), np.float16), (4, 8), None, ["the row stride"]),
    ],
    ids=["all right", "box", "column", "address", "stride"],
)
def test_the_picture_of_16_bytes_says_what_the_rules_say(tensor, box, coords, wrong):
    figure = course.sixteen_bytes(tensor, box, coords)
    assert [m.name for m in figure.measures if not m.ok] == wrong
    assert figure.ok == (not wrong)
    refused = tma.check_tma_descriptor(tensor, box)
    if wrong and wrong != ["the offset of the first column"]:
        assert len(refused.violations) == 1
    else:
        assert refused.ok


# --- Links --------------------------------------------------------------------------------------


def test_a_chunk_has_one_key_in_every_picture_and_names_what_decided_it(swizzled):
    memory, box = draw.shared(swizzled, (60, 0)), draw.tensor(swizzled, (60, 0))
    before, after = (
        {c.key: c for b in layout.blocks for line in b.lines for c in line.chunks}
        for layout in memory.layouts
    )
    hits = {hit.key: hit for hit in box.hits}
    assert set(before) == set(after) == set(hits)
    chunk = after["c1.8"]
    assert chunk.moved == "linear 0x0090 to 0x0080: addr[6:4] ^= addr[9:7] (= 1)"
    assert (chunk.address, before["c1.8"].address) == (0x80, 0x90)
    assert (hits["c1.8"].row, hits["c1.8"].column) == (61, 8)
    assert chunk.fields == ("swizzle",)
    assert after["c5.8"].fields == ("global_dim[1]",)
    assert chunk.cell(0, 0, "").to == ("row1", "bank0", "is-data", "swizzle")
    keys = {i.key for i in draw.fields_of(swizzled).scenes()[0].items}
    assert {"swizzle", "global_dim[1]"} <= keys
