"""Pictures without Jupyter: the command line, and names that are imported on first use."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from draw_cases import TILED

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli.main import main

TENSOR = ["--shape", "64,64", "--dtype", "bfloat16", "--box", "16,64", "--swizzle", "bytes128"]


def test_draw_prints_the_picture_as_characters(capsys):
    assert main(["draw", *TENSOR]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "shared memory: 2048 bytes, 2048 written"
    assert "0x0080   r1c8       r1c0       r1c24      r1c16" in "\n".join(lines)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("what", ["tensor", "shared", "bytes", "banks"])
def test_draw_writes_svg(what, tmp_path):
    out = tmp_path / "figure.svg"
    assert main(["draw", *TENSOR, "--figure", what, "--coords", "48,0", "--out", str(out)]) == 0
    assert ET.fromstring(out.read_text(encoding="utf-8")).tag.endswith("svg")


def test_draw_writes_a_page_if_the_file_ends_in_html(tmp_path):
    out = tmp_path / "figure.html"
    assert main(["draw", *TENSOR, "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_draw_writes_no_svg_into_a_file_of_another_kind(tmp_path, capsys):
    out = tmp_path / "figure.png"
    assert main(["draw", *TENSOR, "--out", str(out)]) == 2
    assert f"--out is {out}: write .svg or .html, and convert it" in capsys.readouterr().err
    assert not out.exists()


def test_draw_says_why_a_request_is_refused(capsys):
    assert main(["draw", *TENSOR[:-1], "bytes32"]) == 1
    assert "BOX_SWIZZLE_SPAN" in capsys.readouterr().err


def test_check_writes_the_report_as_a_page(tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["check", *TENSOR[:-1], "bytes32", "--html", str(out)]) == 1
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "BOX_SWIZZLE_SPAN" in page
    assert "BOX_SWIZZLE_SPAN" in capsys.readouterr().out


def test_pictures_are_not_imported_before_they_are_asked_for():
    code = (
        "import sys, tma_dlpack as tma\n"
        "assert not any(name.startswith('tma_dlpack.draw') for name in sys.modules)\n"
        "assert 'ipywidgets' not in sys.modules\n"
        "tma.explore, tma.bank_conflicts, tma.draw.shared\n"
        "assert 'ipywidgets' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_names_are_those_of_the_pictures():
    assert tma.bank_conflicts is draw.bank_conflicts
    assert tma.draw is draw
    assert set(draw.__all__) <= set(dir(draw))


def test_maps_tiles_and_reports_show_themselves_in_notebooks():
    case = TILED["a dense tile"]
    assert case.tensor_map._repr_html_() == draw.tensor_map_html(case.tensor_map)
    tile = case.tile()
    assert tile._repr_html_() == draw.tile_html(tile)
    report = tma.check_tma_descriptor(case.tensor, (16, 32))
    assert report._repr_html_() == draw.report_html(report)


def test_a_tile_may_start_at_negative_coordinates(capsys):
    words = ["draw", "--shape", "64,64", "--dtype", "float16", "--box", "8,64"]
    assert main([*words, "--figure", "tensor", "--coords", "-4,32"]) == 0
    assert "at (-4, 32)" in capsys.readouterr().out


def test_an_im2col_walk_is_drawn_and_checked(tmp_path, capsys):
    picture = tmp_path / "walk.svg"
    column = ["--lower", "-1,-1", "--upper", "-1,-1", "--channels", "64", "--pixels", "16"]
    words = ["--shape", "2,6,6,64", "--dtype", "float16", *column]
    assert main(["draw", *words, "--figure", "walk", "--out", str(picture)]) == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert main(["check", *words]) == 0
    assert main(["check", *words, "--pixels", "2000"]) == 1
    assert "pixels_per_column is 2000" in capsys.readouterr().out


@pytest.mark.parametrize(
    "request_words", [[], ["--box", "8,8", "--channels", "8"], ["--channels", "8"]]
)
def test_a_box_or_a_whole_column_is_asked(request_words, capsys):
    assert main(["check", "--shape", "8,8,8", "--dtype", "float16", *request_words]) == 2
    assert "--lower, --upper, --channels and --pixels" in capsys.readouterr().err
