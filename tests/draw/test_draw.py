"""All figures: facts of the models, escaping, size, and at most 100 columns on terminals."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from draw_cases import ALL, IM2COL, TILED, numbered, pictured, stills, tiled

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.draw.figure import style_sheet, svg_panel
from tma_dlpack.draw.grid import STYLES, Cell, Scene

MOST_BYTES = 400_000
SVG = "{http://www.w3.org/2000/svg}"


def all_figures():
    for name, case in ALL.items():
        own = draw.tensor if case.tensor_map.kind == "tiled" else draw.walk
        tile = case.tile()
        yield f"{own.__name__} of {name}", own(tile)
        yield f"shared memory of {name}", draw.shared(tile)
        yield f"bytes of {name}", draw.fields_of(case.tensor_map)
        yield f"banks of {name}", draw.bank_conflicts(tile)
    first, second = TILED["a dense tile"].tensor_map, IM2COL["a volume"].tensor_map
    yield "two kinds of map", draw.diff(first, second)
    yield "banks of 32 threads", draw.bank_conflicts(first, lambda t: (t // 2, t % 2))
    large = tma.make_tma_descriptor(
        np.zeros((256, 128), np.uint8), (256, 128), swizzle="bytes128", oobfill="none"
    )
    yield "the largest swizzled tile", draw.shared(large, (1, 16))
    images = numbered((4, 3, 3, 128), np.float16)
    column = tma.make_im2col_descriptor(images, (-8, -8), (8, 8), 64, 1024)
    yield "the longest column", draw.walk(column, (0, -8, -8, 0))


FIGURES = dict(all_figures())
every_figure = pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)


@every_figure
def test_a_figure_is_well_formed_and_at_most_400_kilobytes(figure):
    root = ET.fromstring(figure.svg())
    assert root.tag == f"{SVG}svg"
    assert len(figure.svg()) < MOST_BYTES
    assert len(figure.html()) < MOST_BYTES
    for picture in stills(figure.html()):
        assert ET.fromstring(picture).tag == f"{SVG}svg"


@every_figure
def test_its_text_fits_100_columns(figure):
    lines = str(figure).splitlines()
    assert lines[0] == figure.title
    assert max(map(len, lines)) <= 100
    assert len(lines) > 1


@every_figure
def test_it_is_a_value_and_says_what_it_is(figure):
    assert hash(figure) == hash(figure)
    assert repr(figure) == f"<{type(figure).__name__}: {figure.title}>"
    assert figure.title in "".join(ET.fromstring(figure.svg()).itertext())


@every_figure
def test_a_saved_picture_has_a_name_and_its_sentence(figure):
    root = ET.fromstring(figure.svg())
    name = root.find(f"{SVG}title").text
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.find(f"{SVG}desc").text
    assert name == figure.title
    assert root.get("aria-label").startswith(name)
    said = " ".join(text.text for text in root.iter(f"{SVG}text"))
    assert re.sub(r"\[(.+?)\]\(.+?\)", r"\1", figure.sentence) in said


@every_figure
def test_its_panels_fit_a_page_640_pixels_wide(figure):
    """In a notebook of 640 pixels, outputs are about 595 pixels wide."""
    assert max(scene.width for scene in figure.scenes()) <= 576


# --- The tensor and its box ---------------------------------------------------------------------


@pytest.mark.parametrize("case", TILED.values(), ids=TILED)
def test_the_axes_count_in_bounds_what_the_simulator_copies(case):
    figure, tile = draw.tensor(case.tensor_map, case.coords), case.tile()
    axes = (*figure.outer, figure.rows, figure.columns)
    unit = tile.array.shape[-1] if case.tensor_map.interleave else 1
    assert math.prod(axis.inside for axis in axes) * unit == (~tile.filled).sum()
    assert math.prod(len(axis.taken) for axis in axes) * unit == tile.array.size


def test_both_orders_of_an_axis_are_named():
    figure = draw.tensor(TILED["rank 5"].tensor_map)
    names = [(a.name, a.driver_name) for a in (*figure.outer, figure.rows, figure.columns)]
    assert names == [(f"shape[{d}]", f"global_dim[{4 - d}]") for d in range(5)]


def test_a_large_tensor_is_cut_to_twelve_tiles_around_the_box_and_says_so():
    tm = tma.make_tma_descriptor(numbered((4096, 4096)), (64, 32))
    figure = draw.tensor(tm, (2048, 4064))
    assert figure.rows.shown == (1664, 2432)
    assert figure.columns.shown == (3712, 4096)
    assert "3712..4095 drawn" in str(figure)


def test_a_box_wholly_out_of_bounds_takes_nothing():
    figure = draw.tensor(TILED["a dense tile"].tensor_map, (64, 0))
    assert "shape[0] = 64 (driver global_dim[1]): box 64..79, 16 of 16 out of bounds" in str(figure)
    (scene,) = figure.scenes()
    taken = [i for i in scene.items if i.style == "taken" and i.rows > 14]
    assert taken == []


@pytest.mark.parametrize("plane", [(2, 3), (3, 1), (0, 4), (4, 3)], ids=str)
def test_the_plane_that_is_drawn_can_be_chosen(plane):
    case = TILED["rank 5"]
    figure = draw.tensor(case.tensor_map, case.coords, plane=plane)
    assert (figure.rows.dimension, figure.columns.dimension) == plane
    assert [a.dimension for a in figure.outer] == [d for d in range(5) if d not in plane]
    usual = draw.tensor(case.tensor_map, case.coords)
    assert figure.notes == usual.notes  # the same facts, outermost first
    (scene,) = figure.scenes()
    texts = [item.text for item in scene.items]
    contiguous = ", contiguous" * (plane[1] == 4)
    shape = case.tensor.shape
    d, name = plane[1], f"global_dim[{4 - plane[1]}]"
    assert f"→ shape[{d}] = {shape[d]} ({name}{contiguous})" in texts
    assert {i.key.partition(".")[0] for i in scene.items if i.key.startswith("at")} == {
        f"at{d}" for d in range(5) if d not in plane
    }
    assert [text.split()[0] for name, text in scene.data] == [str(plane[1]), str(plane[0])]


def test_without_a_plane_the_two_innermost_dimensions_are_drawn():
    case = TILED["rank 5"]
    assert draw.tensor(case.tensor_map, plane=(3, 4)) == draw.tensor(case.tensor_map)
    matrix = TILED["a dense tile"].tensor_map
    assert draw.tensor(matrix, plane=(0, 1)) == draw.tensor(matrix)


@pytest.mark.parametrize("plane", [None, (1, 2), (4, 1), (1, 4)], ids=str)
def test_chunks_are_drawn_where_the_plane_has_them(plane):
    case = tiled((2, 3, 4, 5, 16), (1, 2, 2, 3, 8), (1, 1, 0, 0, 8))
    figure = draw.tensor(case.tensor_map, case.coords, plane=plane)
    down, across = figure.rows.dimension, figure.columns.dimension
    found = {c.key: c for c in figure.hits}
    drawn = {(int(c.row), int(c.column), int(c.rows), int(c.columns)) for c in figure.hits}
    expected = set()
    for chunk in draw.shared(case.tile()).layouts[0].blocks[0].lines[0].chunks:
        at = chunk.element
        if all(at[d] == case.coords[d] for d in range(4) if d not in (down, across)):
            size = [4 if d == 4 else 1 for d in (down, across)]
            expected.add((at[down], at[across], *size))
    assert expected
    assert expected <= drawn
    assert len(found) == len(drawn)


@pytest.mark.parametrize("plane", [(0, 0), (0, 5), (-1, 0), (0, 1, 2), (0,), 1, "01", (0.0, 1)])
def test_a_plane_that_is_not_two_dimensions_of_the_tensor_is_refused(plane):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        draw.tensor(TILED["rank 5"].tensor_map, plane=plane)
    (violation,) = caught.value.violations
    assert violation.found == f"plane is {plane!r}"
    assert violation.limit == "it must be two different dimensions of the tensor, each from 0 to 4"


def test_nan_fill_is_named():
    tm = tma.make_tma_descriptor(numbered((20, 40), np.float32), (8, 32), oobfill="nan")
    assert "out-of-bounds elements become NaN (16-bit words 0x7FF7)" in str(draw.tensor(tm))


def test_tensor_and_walk_send_each_other_the_maps_that_they_cannot_draw():
    with pytest.raises(tma.TmaUnsupportedError, match=r"draw\.walk"):
        draw.tensor(IM2COL["a volume"].tensor_map)
    with pytest.raises(tma.TmaUnsupportedError, match=r"draw\.tensor"):
        draw.walk(TILED["a vector"].tensor_map)


# --- The walk -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", IM2COL.values(), ids=IM2COL)
def test_a_pixel_is_the_row_that_the_simulator_loads_from_its_position(case):
    figure = draw.walk(case.tensor_map, case.coords, im2col_offsets=case.offsets)
    tile = case.tile()
    rows = [pixel for image in figure.images for pixel in image.pixels]
    assert [pixel.row for pixel in rows] == list(range(len(rows)))
    for pixel in rows:
        assert pixel.inside == (not tile.filled[pixel.row, 0])
        if pixel.inside:
            assert case.tensor[pixel.position] == tile.array[pixel.row, 0]
            assert case.tensor.reshape(-1)[pixel.global_offset // 4] == tile.array[pixel.row, 0]


def test_the_bounding_box_is_that_of_the_corners():
    figure = draw.walk(IM2COL["a 3x3 convolution"].tensor_map)
    assert figure.box == (-1, 5, -1, 7)
    assert figure.extent == (7, 9)


def test_a_volume_is_drawn_depth_by_depth():
    names = [image.name for image in draw.walk(IM2COL["a volume"].tile()).images]
    assert names[:2] == ["image n = 0, d = 0", "image n = 0, d = 1"]


def test_a_depth_before_the_volume_is_told_to_be_out_of_bounds():
    figure = draw.walk(IM2COL["a volume"].tensor_map)
    assert [(image.name, image.exists) for image in figure.images] == [
        ("image n = 0, d = -1, out of bounds", False),
        ("image n = 0, d = 0", True),
    ]
    assert not any(pixel.inside for pixel in figure.images[0].pixels)


def test_pixels_that_are_not_drawn_are_counted():
    case = IM2COL["stride 2"]
    figure = draw.walk(case.tile())
    (image,) = figure.images
    rows, columns = figure.window(image)
    left = sum(p.h not in rows or p.w not in columns for p in image.pixels)
    assert left > 0
    assert f"{left} pixels are elsewhere" in figure.svg()
    assert image.pixels[0].h in rows
    assert image.pixels[0].w in columns


# --- The bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_segments_cover_the_bits_of_each_field_once(case):
    figure = draw.fields_of(case.tensor_map)
    bits = [b for s in figure.segments for b in range(s.bit, s.bit + s.width)]
    assert len(bits) == len(set(bits))
    stray = int.from_bytes(figure.data[0], "little")
    for bit in bits:
        stray &= ~(1 << bit)
    assert stray == 0


@pytest.mark.parametrize("case", TILED.values(), ids=TILED)
def test_decoded_values_are_the_maps(case):
    tm = case.tensor_map
    said = {v.field: v.values[0] for v in draw.fields_of(tm).values}
    assert said["global_address"] == f"{tm.global_address:#x}"
    assert said["swizzle"] == tm.swizzle.name
    assert [said[f"box_dim[{d}]"] for d in range(tm.rank)] == [str(n) for n in tm.box_dim]
    assert [said[f"global_strides[{d}]"] for d in range(tm.rank - 1)] == [
        f"{n} bytes" for n in tm.global_strides
    ]


def test_diff_names_the_fields_and_bits_that_differ():
    x = numbered((64, 64))
    a, b = (tma.make_tma_descriptor(x, box) for box in ((16, 32), (24, 32)))
    figure = draw.diff(a, b)
    assert [(v.field, *v.values) for v in figure.values if v.differs] == [
        ("box_dim[1]", "16", "24"),
        ("box_bytes", "2048", "3072"),
    ]
    words = [int.from_bytes(bytes(tm), "little") for tm in (a, b)]
    assert sum(1 << bit for bit in figure.changed) == words[0] ^ words[1]
    assert "≠" in figure.svg()
    assert "box_dim[1]" in figure.title


def test_the_address_of_a_host_tensor_is_not_drawn_and_a_bare_one_is():
    host = TILED["a dense tile"].tensor_map
    copied = tma.TensorMap.from_bytes(bytes(host))
    bare = copied.replace(global_address=0x7F00_1234_5680)
    for figure in (draw.fields_of(host), draw.diff(host, copied)):
        assert f"{host.global_address:x}" not in str(figure) + figure.svg()
        assert "byte   0  ·· ·· ·· ·· ·· ·· ·· ··" in str(figure)
        assert figure.values[0].values[0] == f"{host.global_address:#x}"  # still a fact
    assert "0x7f0012345680" in str(draw.fields_of(bare))
    assert "byte   0  80 56 34 12 00 7f 00 00" in str(draw.diff(host, bare))


def test_diff_of_equal_maps_has_nothing_to_show():
    tm = TILED["a vector"].tensor_map
    assert draw.diff(tm, tm).title == "two maps: 0 bits differ"
    assert "≠" not in draw.diff(tm, tm).svg()


def test_a_map_without_bytes_says_why_and_is_drawn_without_them():
    tm = tma.make_tma_descriptor(numbered((64, 64)), (16, 32), target="sm_100")
    with pytest.raises(tma.TmaUnsupportedError, match="has not been measured"):
        draw.fields_of(tm)
    shown = pictured(draw.tensor_map_html(tm))
    assert "has not been measured" in shown
    assert "shared memory: 2048 bytes" in shown


# --- Escaping, colours, pages -------------------------------------------------------------------

EVIL = '<script>alert("&")</script>'


def test_every_label_and_title_is_escaped():
    items = (Cell(0, 0, "cell", EVIL, EVIL, 900, 40), Cell(0, 60, "label", EVIL))
    drawn = svg_panel(Scene(900, 80, EVIL, items))
    assert "<script" not in drawn
    said = [e.text for e in ET.fromstring(drawn).iter() if e.text and "style" not in e.tag]
    assert said == [EVIL] * 4


def test_what_a_user_passed_is_escaped_in_the_report():
    report = tma.check_tma_descriptor(numbered((64, 64)), (16, 32), swizzle=EVIL)
    shown = draw.report_html(report)
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in draw.page(EVIL, [shown])


def test_a_report_shows_every_finding_and_what_would_be_accepted():
    report = tma.check_tma_descriptor(numbered((64, 64)), (16, 33), swizzle="bytes64")
    shown = draw.report_html(report)
    assert "✗ refused: 2 violations" in shown
    for violation in report.violations:
        assert violation.rule in shown
    assert "accepted with <code>box_sizes=(16, 16)</code>" in shown


def test_an_accepted_report_says_so_and_shows_its_advice():
    report = tma.check_tma_descriptor(numbered((64, 64)), (16, 32))
    shown = draw.report_html(report)
    assert "✓ accepted" in shown
    assert "advice BANK_CONFLICTS" in shown


def test_a_tile_shows_its_first_values_and_marks_the_filled_ones():
    case = TILED["out of bounds below and right"]
    shown = draw.tile_html(case.tile())
    assert f"<td>{case.tensor[8, 16]}</td>" in shown
    corner = draw.tile_html(tma.load_tile(case.tensor_map, (16, 32)))
    assert "<td>0*</td>" in corner
    assert len(shown) < MOST_BYTES


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_map_in_a_notebook_shows_facts_and_pictures_within_400_kilobytes(case):
    shown = draw.tensor_map_html(case.tensor_map)
    assert "shared memory: " in shown
    assert f"{case.tensor_map.tx_bytes} bytes copied" in shown
    assert len(shown) < MOST_BYTES


def test_what_is_left_without_scripts_and_styles_is_an_image_per_panel_with_words():
    figure = FIGURES["shared memory of 128B swizzle"]
    kept = re.sub(r"<(script|style)>.*?</\1>", "", figure.html(), flags=re.DOTALL)
    assert "<svg" not in kept
    assert kept.count("<img ") == len(figure.scenes()) == 2
    assert re.findall(r'alt="([^"]+)"', kept) == [scene.about for scene in figure.scenes()]


def test_every_style_has_a_light_and_a_dark_colour():
    sheet = style_sheet()
    for name, style in STYLES.items():
        for light, dark in (style.fill, style.stroke):
            assert (light == "none") == (dark == "none"), name
        assert f".t-{name}{{" in sheet
    assert "prefers-color-scheme:dark" in sheet


def test_a_figure_in_a_notebook_gives_html_and_text():
    bundle = FIGURES["shared memory of a vector"]._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/svg+xml", "text/plain"}
    assert "<title>element (48,) and 3 more" in pictured(bundle["text/html"])


# --- By name ------------------------------------------------------------------------------------


def test_every_public_name_is_there_or_is_imported_when_asked_for():
    later = {name for names in draw._LATER.values() for name in names}
    assert later | {"FIGURES", "Figure", "barrier", "figure"} == set(draw.__all__) == set(dir(draw))
    assert all(getattr(draw, name).__name__ == name for name in later)
    with pytest.raises(AttributeError, match=r"'tma_dlpack\.draw' has no attribute 'cake'"):
        draw.cake  # noqa: B018


def test_the_names_of_figures_cost_no_import_of_any():
    code = (
        "import sys; from tma_dlpack.draw import FIGURES, _LATER; assert len(FIGURES) == 9;"
        "print([m for m in _LATER if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_documentation_of_figure_has_the_name_of_each():
    (names,) = re.findall(r"what : \{(.*?)\}", draw.figure.__doc__)
    assert names == ", ".join(f'"{name}"' for name in draw.FIGURES)


@pytest.mark.parametrize("what", draw.FIGURES)
def test_every_figure_of_the_catalogue_can_be_drawn(what):
    case = IM2COL["a volume"] if what == "walk" else TILED["a dense tile"]
    figure = draw.figure(case.tensor_map, what, case.coords)
    assert figure == draw.figure(case.tile(), what)


def test_a_name_that_the_catalogue_lacks_is_refused():
    with pytest.raises(
        tma.TmaPreconditionError, match="is 'cake'; it must be the name of a figure"
    ):
        draw.figure(TILED["a vector"].tensor_map, "cake")


# --- gather4 --------------------------------------------------------------------------------------


def gathered(rows):
    x = np.zeros((64, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (1, 64), swizzle="bytes128", target="sm_100")
    return tma.backend("simulator").gather4(tm, 0, rows)


def test_gather4_is_drawn_as_its_rows_and_not_as_a_box():
    figure = draw.tensor(gathered((40, 3, 20, 64)))
    assert figure.title == "tensor (64, 64) FLOAT16, gather4 of rows 40, 3, 20, 64"
    assert figure.rows.about().endswith("rows 40, 3, 20, 64, 1 of 4 out of bounds")
    assert [line.strip()[:1] for line in str(figure).splitlines()[-4:]] == ["#", "#", "#", "x"]
    assert sorted(figure.rows.bands(1.0)) == [(3, 4), (20, 21), (40, 41)]
    (scene,) = figure.scenes()
    assert sum(cell.style == "box" for cell in scene.items) == 4


def test_rows_of_gather4_side_by_side_share_a_label():
    (scene,) = draw.tensor(gathered((5, 6, 7, 60))).scenes()
    assert [cell.text for cell in scene.items if cell.text.startswith("row ")] == [
        "row 5",
        "row 60",
    ]
