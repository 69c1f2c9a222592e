"""Questions that the reader answers by a click, and one load by threads and by TMA."""

from __future__ import annotations

import doctest
import html
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from draw_cases import stills

import course
import tma_dlpack as tma
from tma_dlpack import draw

sys.path.insert(0, str(Path(__file__).parent.parent / "explorer"))
sys.path.insert(0, str(Path(__file__).parent.parent))
import harness
import test_notebooks

X = np.arange(20 * 64, dtype=np.float16).reshape(20, 64)
PLAIN = tma.make_tma_descriptor(X, (8, 64))
SWIZZLED = tma.make_tma_descriptor(X, (8, 64), swizzle="bytes128")
BYTES = [["512", "1024"], ["2048", "it depends"]]


def question(**changes):
    options = {"hints": {"512": "Filled elements count too."}, **changes}
    return course.ask(BYTES, "How many bytes?", "1024", "All 8 rows of 128.", **options)


def test_a_question_holds_its_answer_its_hints_and_its_words():
    asked = question()
    (facts,) = re.findall('data-ask="([^"]*)"', asked.html())
    assert json.loads(html.unescape(facts)) == {
        "right": ["1024"],
        "because": "All 8 rows of 128.",
        "hints": {"512": "Filled elements count too."},
        "otherwise": "Not this one. Try another, or open the answer.",
    }
    (picture,) = stills(asked.html())
    assert re.findall('data-k="([^"]*)"', picture) == ["512", "1024", "2048", "it depends"]
    assert str(asked) == "How many bytes?\nanswer: All 8 rows of 128."


def test_the_folded_answer_is_there_without_scripts():
    text = re.sub(r"<(script|style)>.*?</\1>", "", question().html(), flags=re.DOTALL)
    assert "<details><summary>Answer</summary><p>All 8 rows of 128.</p></details>" in text
    assert text.count("scripts run only in a trusted notebook") == 1  # why no click is judged
    assert re.search('<img class="tma-still" alt="cells: 512, 1024, 2048, it depends"', text)


def test_what_a_question_says_is_escaped():
    asked = course.ask([["<b>", "no"]], "Is <b> bold?", "no", "It is <i>not</i>.")
    assert "<i>" not in asked.html()
    assert "&lt;i&gt;not&lt;/i&gt;" in asked.html()


def test_a_figure_in_a_question_keeps_its_words_and_loses_its_titles():
    (picture,) = stills(course.ask(draw.shared(PLAIN), "Which?", "c3.8", "That.").html())
    assert "<title>" not in picture
    assert "data-to=" not in picture
    assert "c8..15" in picture


def test_a_blank_question_hides_what_is_asked_for_and_nothing_else():
    (picture,) = stills(
        course.ask(draw.shared(PLAIN), "Which?", "c3.8", "That.", blank=True).html()
    )
    assert "c8..15" not in picture
    assert not re.search(r't-tint\d"[^>]*data-k', picture)
    assert ">4..7<" in picture  # the banks


def test_a_map_in_a_question_changes_nothing_in_the_figure():
    figure = draw.shared(PLAIN)
    course.ask(figure, "Which?", "c3.8", "That.", blank=True).html()
    assert figure == draw.shared(PLAIN)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((BYTES, "How many?", "7", "So."), "answer has '7'"),
        ((BYTES, "How many?", [], "So."), "answer is empty"),
        ((BYTES, "How many?", "512", "So.", {"8": "no"}), "hints has '8'"),
        ((BYTES, "?" * 101, "512", "So."), "question has 101 characters"),
        ((BYTES, "", "512", "So."), "question has 0 characters"),
        ((BYTES, 7, "512", "So."), "question is of type int"),
        ((BYTES, "How many?", "512", None), "because is of type NoneType"),
        (([["a", "a"]], "How many?", "a", "So."), "figure is (['a', 'a'],)"),
        ((["a", "b"], "How many?", "a", "So."), "figure is ('a', 'b')"),
        (([[]], "How many?", "a", "So."), "figure is ([],)"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(arguments, found):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        course.ask(*arguments)
    assert str(refused.value).startswith(found)


@pytest.mark.parametrize(
    "module", [course.ask, course.bars, course.contrast, course.sixteen_bytes, course.source]
)
def test_the_examples_of_the_course_run(module):
    assert doctest.testmod(sys.modules[module.__module__]).failed == 0


def test_a_function_of_a_file_ends_where_it_ends():
    text = course.Source("a;\n\n  __device__ int f(int x)\n  {\n    g();\n  }\n\n  b;\n}\n")
    assert text.function("int f") == "  __device__ int f(int x)\n  {\n    g();\n  }"
    with pytest.raises(ValueError, match="substring not found"):
        text.function("int g")


def test_a_question_of_100_characters_is_accepted():
    assert course.ask(BYTES, "?" * 100, "512", "So.").title == "?" * 100


def anchors(name):
    """Return the anchors of a notebook's headings, as MyST makes them."""
    text = "\n".join(c.source for c in test_notebooks.read(name).cells if c.cell_type == "markdown")
    titles = re.findall("^#+ (.+)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_chapters_end_with_the_puzzles_that_train_them_and_each_puzzle_is_linked():
    linked = []
    for name in test_notebooks.SAYS:
        if name not in ("06_hopper_gemm", "puzzles"):
            last = test_notebooks.read(name).cells[-1].source
            assert last.startswith("**Puzzle**: ")
            links = re.findall(r"\[puzzle (\d+)\]\(puzzles\.ipynb#([\w-]+)\)", last)
            assert links
            assert all(anchor.startswith(f"{number}-") for number, anchor in links)
            linked += [anchor for _, anchor in links]
    assert {*linked} == {*anchors("puzzles")[1:]}


# --- In a browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked_page(chromium, tmp_path_factory):
    path = tmp_path_factory.mktemp("ask") / "page.html"
    shared = course.ask(
        draw.shared(PLAIN), "Where is column 8 of row 3?", "c3.8", "Row 3, chunk 1."
    )
    contrast = course.contrast(SWIZZLED, (16, 0)).html()
    whole = draw.page("questions", [question()])
    whole = whole.replace("</body>", shared.html() + contrast + "</body>")
    path.write_text(whole, encoding="utf-8")
    seen = harness.Seen(chromium, 1280)
    seen.page.goto(path.as_uri())
    yield seen
    seen.close()


def test_a_click_is_judged_in_words(asked_page):
    page = asked_page.page
    verdict = page.locator(".tma-verdict").first
    assert verdict.is_hidden()
    assert page.get_by_text("Clicks are not judged here").count() == 0  # they are
    for key, words in {
        "512": "✗ Filled elements count too.",
        "2048": "✗ Not this one. Try another, or open the answer.",
        "1024": "✓ Right. All 8 rows of 128.",
    }.items():
        page.locator(f'[data-k="{key}"]').first.click(force=True)
        assert verdict.inner_text() == words


def test_each_question_of_a_page_has_its_own_verdict(asked_page):
    page = asked_page.page
    second = page.locator(".tma-verdict").nth(1)
    assert second.is_hidden()
    page.get_by_text("c8..15").nth(3).click(force=True)  # on the text, not on the rectangle
    assert second.inner_text() == "✓ Right. Row 3, chunk 1."
    assert asked_page.errors == []


def test_a_question_is_answered_by_keys_alone(asked_page):
    page = asked_page.page
    page.keyboard.press("Escape")
    svg = page.locator(".tma-ask svg").first
    svg.focus()
    for key in ("Escape", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.locator(".tma-verdict").first.inner_text() == "✗ Filled elements count too."


# --- The contrast -------------------------------------------------------------------------------


def placed(figure, piece):
    """Return the byte of the tile that the listing computes for a piece, by running the listing."""
    names = {"r": piece.row, "c": piece.column}
    for line in figure.by_threads:
        if match := re.match(r" +(?:int )?to (\^?)= (.*);", line.text):
            value = eval(match[2], {}, names)
            names["to"] = names["to"] ^ value if match[1] else value
    return names["to"]


@pytest.mark.parametrize("swizzle", ["none", "bytes32", "bytes64", "bytes128"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
def test_the_threads_of_the_listing_copy_what_the_engine_copies(swizzle, dtype):
    span = {"none": 64, "bytes32": 32, "bytes64": 64, "bytes128": 128}[swizzle]
    item = np.dtype(dtype).itemsize
    x = (np.arange(20 * 128) % 251 + 1).astype(dtype).reshape(20, 128)
    tm = tma.make_tma_descriptor(x, (8, span // item), swizzle=swizzle)
    tile = tma.load_tile(tm, (16, 0))
    figure = course.contrast(tile)
    written = np.zeros_like(tile.smem)
    for piece in figure.pieces:
        each = figure.piece_bytes // item
        start = piece.column
        if piece.inside:
            data = x[16 + piece.row, start : start + each].tobytes()
            to = placed(figure, piece)
            written[to : to + figure.piece_bytes] = np.frombuffer(data, np.uint8)
    assert np.array_equal(written, tile.smem)
    assert sum(piece.inside for piece in figure.pieces) * figure.piece_bytes == 4 * span


def test_every_field_of_the_map_replaces_a_line_of_the_threads_code():
    figure = course.contrast(SWIZZLED, (16, 0))
    lines = {line.key: line for line in figure.by_threads}
    for name in figure.fields:
        assert any(to in lines for to in name.to), name
    linked = {to for line in figure.by_threads for to in line.to}
    assert linked == {field.key for field in figure.fields} | {"load", "wait", "expect"}
    assert "test" in lines
    assert "if (row < 20 && column < 64)" in lines["test"].text


def test_a_line_that_is_clicked_lights_its_twin(asked_page):
    page = asked_page.page
    page.locator('[data-k="test"]').first.click(force=True)
    near = page.locator(".near").evaluate_all("(es) => es.map((e) => e.dataset.k)")
    assert "shape" in near
    assert "strides" not in near
    assert "t7.60" in near  # the last piece: its thread runs the test too


@pytest.mark.parametrize(
    ("shape", "box", "options"),
    [
        ((4, 20, 64), (1, 8, 64), {}),
        ((20, 128), (8, 128), {}),
        ((32, 64), (17, 64), {}),
        ((32, 64), (8, 64), {"elem_strides": (2, 1)}),
    ],
)
def test_a_tile_whose_code_would_not_fit_is_refused(shape, box, options):
    tm = tma.make_tma_descriptor(np.zeros(shape, np.float16), box, **options)
    with pytest.raises(tma.TmaUnsupportedError, match="at most 16 rows of 128 bytes"):
        course.contrast(tm)


def test_a_tile_of_16_rows_of_128_bytes_is_drawn():
    tm = tma.make_tma_descriptor(np.zeros((32, 64), np.float16), (16, 64))
    assert course.contrast(tm).piece_bytes == 16
