"""The page of `python -m tma_dlpack explore` in Chromium, opened from a file, without a network."""

from __future__ import annotations

import random
import re
from pathlib import Path
from urllib.parse import urljoin

import harness
import numpy as np
import pytest
from laws import many

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.explorer.page import page
from tma_dlpack.explorer.widget import explore

pytestmark = pytest.mark.skipif(bool(harness.MISSING), reason=harness.MISSING)

MOST_BYTES = 600_000
TABS = ("tensor", "shared", "copy", "banks", "core", "bytes", "code")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def whole(folder):
    """Write the page as the command does; return its URL."""
    path = folder / "whole.html"
    assert main(["explore", "--out", str(path)]) == 0
    assert path.stat().st_size <= MOST_BYTES
    return path.as_uri()


@pytest.fixture(scope="module")
def url(folder):
    """Write the page without its pictures of barriers, which opens sooner."""
    path = folder / "explorer.html"
    path.write_text(page(with_barriers=False), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_page(see, url):
    """Open the page in the state of an address, or open another page."""
    return lambda place="", *looks: see(Opened, urljoin(url, place), *looks)


class Opened(harness.Seen):
    """The page, and every request that it makes."""

    script = harness.COUNT_PAUSES

    def __init__(self, browser, url, width=1280, scheme="light"):
        super().__init__(browser, width, scheme)
        self.requests = []
        self.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector(".tmax-state")
        self.settle()

    def value(self, name):
        return self.page.evaluate(
            "(name) => document.querySelector(`[aria-label='${name}, typed'],"
            "select[aria-label='${name}'], input[type=text][aria-label='${name}']`).value",
            name,
        )

    def values(self, *names):
        return tuple(int(self.value(name)) for name in names)

    def address(self):
        return self.page.evaluate("location.hash")

    def written(self, words):
        """Wait until the address, which is written after a pause, contains these words."""
        self.page.wait_for_function("(words) => location.hash.includes(words)", arg=words)

    def type(self, name, words):
        self.reveal(f'input[type=text][aria-label="{name}"]').fill(words)
        self.page.keyboard.press("Enter")
        self.settle()

    def fill(self, name, number):
        self.reveal(f'input[aria-label="{name}, typed"]').fill(f"{number}")
        self.page.keyboard.press("Enter")
        self.settle()

    def choose(self, name, option):
        self.reveal(f'select[aria-label="{name}"]').select_option(option)
        self.settle()

    def shows(self, tab):
        self.page.click(f'[data-tab="{tab}"]')
        self.settle()

    def texts(self):
        return self.page.evaluate(
            "[...document.querySelector('.tmax-stage').shadowRoot.querySelectorAll('text')]"
            ".map((t) => t.textContent)"
        )

    def sizes_of_letters(self):
        """Return the heights of the letters of all pictures, in pixels of the screen."""
        return self.page.evaluate(
            "[...document.querySelector('.tmax-stage').shadowRoot.querySelectorAll('text')]"
            ".map((t) => parseFloat(getComputedStyle(t).fontSize)"
            " * t.ownerSVGElement.getBoundingClientRect().width"
            " / t.ownerSVGElement.viewBox.baseVal.width)"
        )


def test_the_page_asks_the_network_for_nothing(open_page, whole):
    seen = open_page(whole)
    for tab in TABS:
        seen.shows(tab)
    assert seen.requests == [whole]


def test_the_box_is_dragged_without_python_and_never_refused(open_page):
    seen = open_page("#shape=96,256&box_sizes=16,64&swizzle=bytes128")
    seen.page.evaluate(harness.WATCH_BLANK)
    seen.page.evaluate(
        "window.shownAfter = [];"
        "document.addEventListener('tmax-shown', (e) => shownAfter.push(e.detail))"
    )
    for start, end in (((4, 16), (70, 200)), ((72, 210), (-6, -20)), ((0, 0), (95, 255))):
        before = seen.values("coords[0]", "coords[1]")
        seen.drag(start, end)
        assert seen.state() == "✓ accepted"
        assert seen.values("coords[0]", "coords[1]") != before
    assert seen.page.evaluate("window.blankFrames") == 0
    took = sorted(seen.page.evaluate("window.shownAfter"))
    assert took[len(took) // 2] < 100  # ms; 20 on a machine with other work


def test_the_corner_of_the_box_is_dragged_to_another_size(open_page):
    seen = open_page("#shape=64,128&dtype=float32&box_sizes=8,32")
    seen.drag((8, 32), (33.4, 21.3))
    assert seen.values("box_sizes[0]", "box_sizes[1]") == (33, 20)  # in steps of 16 bytes


def test_a_copied_link_opens_what_was_seen(open_page, url):
    state = "#kind=im2col&shape=2,7,9,32&dtype=bfloat16&coords=1,0,-1,0&swizzle=bytes64&tab=banks"
    seen = open_page(state)
    seen.choose("access", "row")
    seen.page.fill('input[aria-label="pixels_per_column, typed"]', "24")
    seen.page.keyboard.press("Enter")
    seen.settle()
    link = seen.page.evaluate(
        "() => new Promise((done) => {"
        "  Object.defineProperty(navigator, 'clipboard',"
        "    { value: { writeText: done }, configurable: true });"
        "  [...document.querySelectorAll('button')]"
        "    .find((b) => b.textContent === 'copy link').click(); })"
    )
    assert link == url + seen.address()
    other = open_page(link)
    assert other.texts() == seen.texts()
    assert other.address() == seen.address()
    names = ("kind", "dtype", "swizzle", "shape", "pixels_per_column", "coords[2]", "access")
    assert [other.value(name) for name in names] == [
        "im2col", "bfloat16", "bytes64", "2, 7, 9, 32", "24", "-1", "row",
    ]  # fmt: skip


def test_another_address_is_shown_without_loading_the_page_again(open_page):
    seen = open_page("#shape=64,128")
    seen.page.evaluate("location.hash = '#shape=4,40,64&box_sizes=2,8,64&tab=shared'")
    seen.page.wait_for_selector('[aria-label="box_sizes[2], typed"]')
    seen.settle()
    assert seen.values("box_sizes[0]", "box_sizes[1]", "box_sizes[2]") == (2, 8, 64)
    assert seen.page.get_attribute('[data-tab="shared"]', "aria-selected") == "true"
    assert len(seen.requests) == 1


def test_a_refused_request_shows_the_reason_and_one_button_corrects_it(open_page):
    seen = open_page("#shape=96,250&box_sizes=16,60&swizzle=bytes64")
    assert "✗ refused" in seen.state()
    report = seen.page.inner_text(".tmax-report")
    assert "STRIDE_ALIGNED" in report
    assert "BOX_INNER_16B" in report
    assert seen.pictures()[0] == 2  # of the request with the fix, greyed
    assert seen.page.locator(".tmax-stale").count() == 1
    seen.shot("page-refused")
    button = seen.page.locator(".tmax-fixes button").first
    assert button.inner_text() == "apply strides=(256, 1), box_sizes=(16, 32)"
    button.click()
    seen.settle()
    assert seen.state() == "✓ accepted"
    assert seen.value("strides") == "256, 1"
    assert seen.values("box_sizes[0]", "box_sizes[1]") == (16, 32)


def test_a_fix_is_applied_in_the_tab_that_is_open(open_page):
    seen = open_page("#shape=96,256&box_sizes=16,60&swizzle=bytes64")
    seen.shows("banks")
    button = seen.page.locator(".tmax-fixes button").first
    assert button.inner_text() == "apply box_sizes=(16, 32)"
    button.click()
    seen.settle()
    assert seen.state() == "✓ accepted"
    assert seen.page.get_attribute("[aria-selected=true]", "data-tab") == "banks"


@pytest.mark.parametrize(
    ("width", "order"),
    [
        (1280, ["tmax-state", "tmax-report", "tmax-fixes", "tmax-stage", "tmax-tools"]),
        (390, ["tmax-state", "tmax-stage", "tmax-report", "tmax-fixes", "tmax-tools"]),
    ],
)
def test_the_reason_is_read_first_or_beside_the_controls_where_they_are_below(
    open_page, width, order
):
    seen = open_page("#shape=96,256&box_sizes=16,60&swizzle=bytes64", width)
    tops = """(names) => names.map((n) => {
      const e = document.querySelector(`.${n}`);  // the stage has no box of its own in one column
      return (e.shadowRoot?.querySelector("svg") ?? e).getBoundingClientRect().top;
    })"""
    found = seen.page.evaluate(tops, order)
    assert found == sorted(found)


@pytest.mark.parametrize("width", [1280, 390])
def test_pointing_at_a_chunk_moves_nothing(open_page, width):
    seen = open_page("#shape=4096,4096&box_sizes=64,64&swizzle=bytes128&coords=128,512", width)
    chunks = seen.page.locator(".tmax-stage svg [data-k^=c]")
    tools = ".tmax-tools"
    before = seen.page.eval_on_selector(tools, "(e) => e.getBoundingClientRect().top + scrollY")
    longest = 0
    for n in (0, 9, 30, 60):
        chunks.nth(n).dispatch_event("pointerover")
        longest = max(longest, len(seen.page.inner_text(".tmax-said")))
        after = seen.page.eval_on_selector(tools, "(e) => e.getBoundingClientRect().top + scrollY")
        assert after == before
    assert longest > 120


def test_a_refused_tensor_is_described_as_images_and_corrected(open_page):
    seen = open_page("#shape=4,8,12&dtype=float16")
    assert "✗ refused: 2 violations" in seen.state()
    seen.choose("kind", "im2col")
    assert "✗ refused: 2 violations" in seen.state()
    assert seen.values("channels_per_pixel", "pixels_per_column") == (12, 32)
    seen.page.locator(".tmax-fixes button").first.click()
    seen.settle()
    assert seen.state() == "✓ accepted"
    assert seen.value("strides") == "128, 16, 1"
    assert seen.values("channels_per_pixel") == (16,)


def test_a_refused_tile_is_moved_to_legal_coordinates(open_page):
    seen = open_page("#shape=64,128&box_sizes=8,64&coords=3,5")
    assert "this tile is refused" in seen.state()
    assert "COPY_INNER_16B" in seen.page.inner_text(".tmax-refused")
    seen.page.locator(".tmax-fixes button").first.click()
    seen.settle()
    assert seen.state() == "✓ accepted"
    assert seen.values("coords[0]", "coords[1]") == (3, 8)


def test_the_tensor_itself_is_changed_in_the_page(open_page):
    seen = open_page()
    seen.type("shape", "(8, 40, 64)")
    seen.choose("dtype", "float8_e4m3fn")
    seen.choose("swizzle", "bytes64")
    assert seen.state() == "✓ accepted"
    assert "Global memory: tensor (8, 40, 64), float8_e4m3fn as UINT8" in seen.texts()
    seen.choose("plane", "0, 1")
    assert seen.page.evaluate(
        "document.querySelector('.tmax-stage').shadowRoot.querySelector('svg').dataset.y"
    ).startswith("0 ")
    seen.choose("plane", "")
    for count, box, cells, words in (
        (56, 1, 56, "shape[0] = 56: the box takes 0"),
        (65, 1, 12, "shape[0] = 65: the box takes 0; drawn: 0..11"),
        (130, 4, 45, "shape[0]: 3 positions per cell"),
    ):
        seen.type("shape", f"{count}, 40, 64")
        seen.page.fill('input[aria-label="box_sizes[0], typed"]', f"{box}")
        seen.page.keyboard.press("Enter")
        seen.settle()
        assert seen.page.locator('.tmax-stage [data-k^="at0."]').count() == cells
        assert words in seen.texts()
    seen.type("shape", "8, 40, 64")
    seen.type("shape", "nonsense")
    assert seen.state() == "✓ accepted"
    assert seen.value("shape") in ("8, 40, 64", "nonsense")


def test_the_column_of_an_im2col_map_is_drawn_and_dragged(open_page):
    seen = open_page()
    seen.choose("kind", "im2col")
    assert seen.value("shape") == "2, 12, 14, 64"
    assert seen.state() == "✓ accepted"
    before = seen.values("coords[1]", "coords[2]")
    seen.drag((0.5, 0.5), (5.5, 6.5))
    assert seen.values("coords[1]", "coords[2]") != before
    assert seen.state() == "✓ accepted"
    words = "the whole walk; framed: what is drawn"
    assert words not in seen.texts()
    seen.type("shape", "2, 56, 56, 64")
    for name, value in (("pixels_per_column", 256), ("coords[1]", 12)):
        seen.page.fill(f'input[aria-label="{name}, typed"]', f"{value}")
        seen.page.keyboard.press("Enter")
        seen.settle()
    assert words in seen.texts()
    seen.shot("page-walk-map")


def test_phases_of_ldmatrix_are_read_by_the_threads_that_read_them(open_page):
    seen = open_page("#shape=128,64&box_sizes=16,64&swizzle=none&tab=banks")
    seen.choose("access", "ldmatrix")
    seen.page.locator('input[aria-label="phase of the access"]').focus()
    for first in (8, 16, 24):
        seen.page.keyboard.press("ArrowRight")
        seen.settle()
        phase = first // 8 + 1
        words = f"Phase {phase} of 4: threads {first}..{first + 7} read 8 rows of an 8 x 8 matrix"
        assert any(text.startswith(words) for text in seen.texts())
    assert "32, worst 8-way" in seen.texts()
    assert "4, free" in seen.texts()  # with the 128-byte swizzle


def test_the_copy_moves_from_the_tensor_to_shared_memory_and_the_barrier_counts_down(open_page):
    seen = open_page("#shape=32,240&box_sizes=4,64&coords=0,208&swizzle=bytes128&tab=copy")
    moving = seen.page.locator(".tmax-stage svg g[style*=animation]")
    assert moving.count() == 4 * 8  # chunks, those that are filled too
    css = seen.page.locator(".tmax-stage svg style").text_content()
    assert css.count("@keyframes c") == 32
    left = [text for text in seen.texts() if text.isdigit()]
    assert left == [str(512 - 16 * n) for n in range(32)]
    assert {"0: done", "One load: 512 bytes, swizzle bytes128", "3.3", "0.7"} <= set(seen.texts())
    seen.page.emulate_media(reduced_motion="reduce")
    assert moving.first.evaluate("(e) => getComputedStyle(e).animationName") == "none"
    seen.page.emulate_media(reduced_motion="no-preference")


@pytest.mark.parametrize(
    ("width", "names"), [(390, ["0", "4", "8"]), (1280, ["0..3", "4..7", "8..11"])]
)
def test_all_heads_of_banks_are_short_or_none_is(open_page, width, names):
    texts = open_page("#shape=64,128&box_sizes=8,64&tab=shared", width).texts()
    first = texts.index("bank") + 1
    assert texts[first : first + 3] == names
    assert len([text for text in texts[first : first + 8] if text.endswith(("..31", "28"))]) == 1


def test_a_copy_of_many_chunks_shows_the_first_64(open_page):
    seen = open_page("#shape=64,64&box_sizes=64,64&swizzle=bytes128&tab=copy")
    assert seen.page.locator(".tmax-stage svg g[style*=animation]").count() == 64
    assert "448 further chunks count with the last." in seen.texts()


def test_the_tensor_cores_view_has_the_descriptor_of_python_or_says_why_it_has_none(open_page):
    seen = open_page("#shape=64,256&box_sizes=32,128&split_inner=yes&swizzle=bytes128&tab=core")
    x = np.zeros((64, 256), np.float16)
    made = tma.make_tma_descriptor(x, (32, 128), split_inner=True, swizzle="bytes128")
    for major in ("K", "MN"):
        seen.choose("major", major)
        d = tma.matrix_descriptor(made, major=major)
        assert f"The matrix descriptor: {d.value:#018x}" in seen.texts()
        assert f"SBO {d.stride_byte_offset}" in seen.texts()
    assert "LBO 4096" in seen.texts()
    seen.written("major=MN")
    seen.choose("dtype", "float64")
    assert "MATRIX_TYPE: the map's data type is FLOAT64" in seen.page.inner_text(".tmax-refused")
    seen.choose("dtype", "float16")
    seen.choose("target", "sm_120")
    assert "whose tensor cores read registers" in seen.page.inner_text(".tmax-refused")


def test_an_im2col_wide_map_is_chosen_for_a_gpu_that_has_it(open_page):
    seen = open_page()
    seen.choose("kind", "im2col_wide")
    assert (seen.value("target"), seen.value("shape")) == ("sm_100", "2, 12, 14, 64")
    assert seen.state() == "✓ accepted"
    assert {"image 0", "image 1"} <= set(seen.texts())  # the width wraps to the next image
    before = seen.values("coords[2]")
    seen.drag((0, 0.5), (0, 5.5))
    assert seen.values("coords[2]") != before
    seen.choose("mode", "w128")
    assert seen.state() == "✓ accepted"
    seen.shows("code")
    code = seen.page.inner_text(".tmax-code >> nth=0")
    assert "make_im2col_wide_descriptor(tensor, lower_corner_width=-1" in code
    assert "mode='w128'" in code
    seen.written("kind=im2col_wide")
    seen.choose("kind", "tiled")
    assert seen.state() == "✓ accepted"


def test_a_packed_type_snaps_in_its_own_values_and_shows_its_gaps(open_page):
    state = "#shape=64,256&dtype=uint8&data_type=16U4_ALIGN16B&target=sm_100&box_sizes=8,128"
    seen = open_page(f"{state}&tab=shared")
    assert seen.state() == "✓ accepted"
    assert "gap of a packed type" in seen.texts()
    assert seen.page.locator("text=multiples of 128").count() == 1  # of coords[1]
    assert seen.page.get_attribute('input[type=range][aria-label="coords[1]"]', "max") == "576"


def test_the_bits_of_a_chunk_that_is_clicked_are_shown(open_page):
    seen = open_page("#shape=64,64&box_sizes=16,64&swizzle=bytes128&tab=shared")
    seen.page.locator('[data-k="c3.40"]').first.click(force=True)
    seen.settle()
    assert "The swizzle bytes128, bit by bit: row 3, elements 40..47" in seen.texts()
    assert "before 0x01d0" in seen.texts()
    assert "after 0x01e0" in seen.texts()


#: Returns the texts of the page, without its pictures, that are smaller than 10 px.
SMALL_WORDS = """() => [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility()
  && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
  && parseFloat(getComputedStyle(e).fontSize) < 10).map((e) => e.outerHTML)"""


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        (900, "light"),
        pytest.param(1090, "light", marks=pytest.mark.slow),  # pictures are side by side
        pytest.param(2560, "light", marks=pytest.mark.slow),
        pytest.param(900, "dark", marks=pytest.mark.slow),
        pytest.param(1280, "light", marks=pytest.mark.slow),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
    ],
)
def test_letters_are_legible_at_every_width(open_page, whole, width, scheme):
    seen = open_page(whole, width, scheme)
    for tab in TABS:
        seen.shows(tab)
        assert min([10, *seen.sizes_of_letters()]) >= 9.99, tab
        assert seen.page.evaluate(SMALL_WORDS) == [], tab
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.shot(f"page-{tab}-{width}-{scheme}")
    seen.shows("tensor")
    paper = seen.page.evaluate(
        "getComputedStyle(document.querySelector('.tmax-stage').shadowRoot"
        ".querySelector('.t-paper')).fill"
    )
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 31)"}[scheme]


#: Returns the sections of controls that are open.
OPEN_SECTIONS = """() => [...document.querySelectorAll(".tmax-controls details[open]")]
  .map((e) => e.dataset.title)"""


def test_it_opens_with_the_tensor_and_the_box_and_the_rest_folded(open_page):
    seen = open_page()
    assert seen.page.evaluate(OPEN_SECTIONS) == ["Tensor", "Box", "Tile: coords"]
    visible = seen.page.locator(".tmax-controls :is(select, [type=text], [type=range]):visible")
    assert visible.count() == 7


@pytest.mark.parametrize(
    ("state", "title"),
    [
        ("oobfill=nan", "Options"),
        ("target=sm_100", "Options"),
        ("strides=512,1", "In memory: strides, address"),
        ("elem_strides=2,1", "Traversal: elem_strides"),
    ],
)
def test_an_address_that_uses_folded_controls_opens_their_section(open_page, state, title):
    seen = open_page(f"#shape=32,256&{state}")
    assert seen.page.evaluate(OPEN_SECTIONS)[3:] == [title]
    seen.page.evaluate("location.hash = '#shape=64,64,64&ragged=0'")
    seen.page.wait_for_selector('[aria-label="coords[2], typed"]')
    assert "Options" in seen.page.evaluate(OPEN_SECTIONS)


def test_every_task_begins_undone_and_its_hint_does_it(open_page):
    seen = open_page()
    done = {
        "edge": lambda: seen.drag((4, 32), (16.4, 256)),
        "break": lambda: seen.fill("box_sizes[1]", 60),
        "banks": lambda: seen.choose("swizzle", "bytes128"),
        "wide": lambda: (seen.choose("split_inner", "yes"), seen.fill("box_sizes[1]", 128)),
        "core": lambda: (seen.fill("box_sizes[0]", 64), seen.choose("swizzle", "bytes128")),
    }
    buttons = seen.page.locator("[data-task]")
    assert buttons.evaluate_all("(all) => all.map((e) => e.dataset.task)") == list(done)
    for task, act in done.items():
        seen.page.click(f'[data-task="{task}"]')
        seen.settle()
        assert seen.page.locator("[data-task][aria-pressed=true]").count() == 1
        text = seen.page.locator(".tmax-task > p")
        assert not text.inner_text().startswith("✓"), task
        seen.written(f"task={task}")
        assert not seen.page.locator(".tmax-task details p").is_visible()
        act()
        assert text.inner_text().startswith("✓ Done. "), task
        seen.shot(f"page-task-{task}")
    seen.page.evaluate(GO % "history.back()")
    seen.settle()
    assert not text.inner_text().startswith("✓")
    seen.page.click('[data-task="core"]')
    seen.settle()
    assert not seen.page.locator(".tmax-task").is_visible()
    seen.page.wait_for_function("!location.hash.includes('task=')")


def test_a_task_is_not_done_by_another_tile(open_page):
    seen = open_page("#task=wide&shape=128,256&box_sizes=64,64&swizzle=bytes128")
    assert seen.state() == "✓ accepted"
    assert "with one copy" in seen.page.inner_text(".tmax-task > p")
    seen.page.evaluate("location.hash = '#task=banks&shape=128,64&box_sizes=16,8&tab=banks'")
    seen.page.wait_for_selector("text=Make it 1, with the same box")
    seen.choose("kind", "im2col")
    assert "Make it 1" in seen.page.inner_text(".tmax-task > p")


def test_what_is_pressed_has_a_name(open_page):
    seen = open_page()
    assert seen.page.evaluate(harness.NAMELESS) == []


#: Returns the pictures without a name for a screen reader, including folded pictures.
NAMELESS_PICTURES = """() => {
  const hosts = [...document.querySelectorAll(".tma-live, .tmax-stage")];
  const drawn = hosts.flatMap((host) => [...host.shadowRoot.querySelectorAll("svg")]);
  return [drawn.length, drawn.filter((svg) => !svg.getAttribute("aria-label")).length];
}"""


def test_every_picture_has_a_name(open_page, whole):
    seen = open_page(whole)
    seen.page.wait_for_selector(".tma-live")
    assert seen.page.evaluate(NAMELESS_PICTURES) == [5, 0]
    label = seen.page.locator(".tmax-stage svg").first.get_attribute("aria-label")
    assert label == "tensor (32, 256), box (8, 64) at (0, 0)"


#: Goes through the history, and waits until the page has handled the event.
GO = """() => new Promise((done) => {
  addEventListener("hashchange", () => done(), { once: true });
  %s;
})"""


def test_back_undoes_a_change_and_forward_does_it_again(open_page):
    seen = open_page("#shape=64,128&box_sizes=8,64&swizzle=bytes128")
    seen.choose("swizzle", "bytes32")
    seen.written("swizzle=bytes32")
    seen.drag((4, 16), (30, 90))
    seen.written("coords=")
    moved = seen.values("coords[0]", "coords[1]")
    assert moved != (0, 0)
    for step, swizzle, coords in (
        ("history.back()", "bytes32", (0, 0)),
        ("history.back()", "bytes128", (0, 0)),
        ("history.forward()", "bytes32", (0, 0)),
        ("history.forward()", "bytes32", moved),
    ):
        seen.page.evaluate(GO % step)
        seen.settle()
        assert (seen.value("swizzle"), seen.values("coords[0]", "coords[1]")) == (swizzle, coords)
    assert len(seen.requests) == 1


def test_back_goes_through_tabs_and_what_reads_the_tile(open_page):
    seen = open_page("#shape=64,128&box_sizes=8,64&swizzle=bytes128")
    seen.choose("swizzle", "none")
    seen.shows("banks")  # before the pause: an entry of its own all the same
    seen.written("tab=banks")
    seen.choose("access", "row")
    seen.written("access=row")
    for step, swizzle, tab in (
        ("history.back()", "none", "banks"),
        ("history.back()", "none", "tensor"),
        ("history.back()", "bytes128", "tensor"),
        ("history.forward()", "none", "tensor"),
        ("history.forward()", "none", "banks"),
    ):
        seen.page.evaluate(GO % step)
        seen.settle()
        shown = seen.page.get_attribute("[aria-selected=true]", "data-tab")
        assert (seen.value("swizzle"), shown) == (swizzle, tab)
    assert seen.value("access") == "column"


def test_what_is_turned_on_without_a_pause_is_one_entry_of_the_history(open_page):
    seen = open_page("#shape=64,128&box_sizes=8,64")
    seen.page.evaluate(
        "() => { window.entries = 0; const push = history.pushState.bind(history);"
        "history.pushState = (...state) => { window.entries += 1; push(...state); };"
        "window.now = 0; performance.now = () => window.now; }"
    )
    seen.page.locator('input[type=range][aria-label="coords[0]"]').focus()
    for now, row, entries in ((0, 1, 1), (999, 2, 1), (1998, 3, 1), (2998, 4, 2)):
        seen.page.evaluate("(now) => { window.now = now; }", now)
        seen.page.keyboard.press("ArrowRight")
        seen.written(f"coords={row},0")
        assert seen.page.evaluate("window.entries") == entries
    seen.type("shape", "nonsense")  # changes nothing
    assert seen.page.evaluate("window.entries") == 2


def test_back_from_the_first_change_opens_the_first_state(open_page, tmp_path):
    path = tmp_path / "mine.html"
    path.write_text(page({"shape": (48, 96)}, with_barriers=False), encoding="utf-8")
    seen = open_page(path.as_uri())
    seen.type("shape", "24, 96")
    seen.written("shape=24,96")
    seen.page.evaluate(GO % "history.back()")
    seen.settle()
    assert seen.address() == ""
    assert seen.value("shape") == "48, 96"


def test_a_state_without_a_picture_speaks_of_none(open_page):
    seen = open_page("#shape=2,2,2,2,2,2")
    assert seen.state() == "✗ refused: 1 violation; there is no picture of it"
    assert seen.pictures()[0] == 0
    assert seen.page.locator("text=back to the last accepted").count() == 0
    seen.type("shape", "64, 128")
    assert seen.state() == "✓ accepted"
    seen.page.evaluate("location.hash = '#shape=2,2,2,2,2,2'")
    seen.page.wait_for_selector("text=there is no picture of it")
    assert seen.pictures()[0] == 0  # none of the address before


def test_paper_has_the_pictures_in_light_colours_and_no_controls(open_page):
    seen = open_page("#shape=64,128", 1280, "dark")
    seen.page.emulate_media(media="print")
    for hidden in (".tmax-controls", ".tmax-tools", "[role=tablist]", ".tmax-fixes"):
        assert not seen.page.locator(hidden).first.is_visible(), hidden
    assert seen.page.locator(".tmax-stage svg").first.is_visible()
    paper = seen.page.evaluate(
        "getComputedStyle(document.querySelector('.tmax-stage').shadowRoot"
        ".querySelector('.t-paper')).fill"
    )
    seen.page.emulate_media(media="screen")
    assert paper == "rgb(255, 255, 255)"


#: Returns the smallest letter of the barrier pictures in px, and whether each picture can be
#: scrolled.
BARRIERS = """() => {
  for (const folded of document.querySelectorAll(".tmax-waiting details")) folded.open = true;
  const letters = [], whole = [];
  for (const host of document.querySelectorAll(".tmax-waiting .tma-live")) {
    const svg = host.shadowRoot.querySelector("svg"), drawn = svg.getBoundingClientRect().width;
    for (const text of svg.querySelectorAll("text"))
      letters.push(parseFloat(getComputedStyle(text).fontSize) * drawn / svg.viewBox.baseVal.width);
    whole.push(host.scrollWidth >= Math.floor(drawn));
  }
  return [whole, Math.min(...letters), document.documentElement.scrollWidth <= innerWidth];
}"""


@pytest.mark.parametrize("width", [390, 768, 1280, 2560])
def test_barriers_are_legible_and_scroll_inside_their_panels(open_page, whole, width):
    seen = open_page(whole, width)
    seen.page.wait_for_function("document.querySelectorAll('.tma-seek input').length === 3")
    scrolled, letters, fits = seen.page.evaluate(BARRIERS)
    assert scrolled == [True] * 3
    assert letters >= 9.99  # px
    assert fits


#: Returns the controls that are less than 24 px high or wide.
SMALL = """() => [...document.querySelectorAll("button, input, select, summary, [role=tab]")]
  .map((e) => [e, e.getBoundingClientRect()])
  .filter(([e, { width, height }]) => width && (width < 24 || height < 24))
  .map(([e]) => e.outerHTML.slice(0, 90))"""


def test_controls_on_a_phone_are_at_least_24_px_high_and_wide(open_page, whole):
    seen = open_page(whole, 390)
    seen.page.wait_for_function("document.querySelectorAll('.tma-seek input').length === 3")
    seen.page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true")
    for tab in TABS:
        seen.shows(tab)
        assert seen.page.evaluate(SMALL) == [], tab
    seen.shot("page-phone")


def test_arrows_move_the_box_from_one_legal_place_to_the_next(open_page):
    seen = open_page("#shape=64,128&dtype=float16&box_sizes=8,64&swizzle=bytes128&coords=0,112")
    seen.page.locator(".tmax-stage svg").first.focus()
    for key, coords in (
        ("ArrowRight", (0, 120)),  # in steps of 16 bytes
        ("ArrowLeft", (0, 112)),
        ("ArrowDown", (1, 112)),
        ("Shift+ArrowDown", (9, 112)),
        ("ArrowUp", (8, 112)),
        ("Shift+ArrowLeft", (8, 48)),
    ):
        seen.page.keyboard.press(key)
        seen.settle()
        assert seen.values("coords[0]", "coords[1]") == coords, key
        assert seen.state() == "✓ accepted"
    least = int(seen.page.get_attribute('input[type=range][aria-label="coords[0]"]', "min"))
    seen.page.fill('input[aria-label="coords[0], typed"]', f"{least}")
    seen.page.keyboard.press("Enter")
    seen.settle()
    seen.page.locator(".tmax-stage svg").first.focus()
    seen.page.keyboard.press("ArrowUp")
    seen.settle()
    assert seen.values("coords[0]") == (least,)  # its end


def test_arrows_walk_through_the_chunks_of_the_other_pictures(open_page):
    seen = open_page("#shape=64,128&box_sizes=8,64")
    seen.page.locator(".tmax-stage svg").nth(1).focus()
    seen.page.keyboard.press("ArrowRight")
    assert seen.page.inner_text(".tmax-said") == "banks 0..3: bytes 0..15 of every 128"
    assert seen.values("coords[0]", "coords[1]") == (0, 0)


# --- Random addresses ---------------------------------------------------------------------------

# fmt: off
NAMES = [
    "shape", "strides", "box_sizes", "elem_strides", "coords", "pixel_box_lower_corner",
    "pixel_box_upper_corner", "im2col_offsets", "plane", "address", "channels_per_pixel",
    "pixels_per_column", "ragged", "kind", "dtype", "split_inner", "target", "tab", "access",
    "swizzle", "interleave_layout", "oobfill", "l2_fetch_size", "data_type", "rules", "allow",
    "lower_corner_width", "upper_corner_width", "mode", "major", "task", "unknown",
]
WORDS = [
    "tiled", "im2col", "im2col_wide", "float16", "float4_e2m1fnx2", "int8", "complex128", "yes",
    "sm_90", "sm_120", "sm_100", "MN", "w128", "copy", "core", "shared", "banks", "bytes",
    "code", "row", "ldmatrix", "bytes32", "bytes64", "bytes128", "bytes128_atom_64B", "bytes16",
    "nan", "FLOAT16", "16U6_ALIGN16B", "driver", "libcu++", "BOX_IN_SHAPE",
]
# fmt: on


def any_value(rng):
    kind = rng.random()
    if kind < 0.6:
        sizes = (0, 1, 2, 3, 7, 8, 16, 32, 64, 100, 128, 256, 257, 1000, 4096, -1, 2**32, 2**53)
        return ",".join(str(rng.choice(sizes)) for _ in range(rng.randint(1, 6)))
    return rng.choice([*WORDS, "", ",", "1e9", "%", "٣", "<b>", "0x10", "null"])


def any_address(rng):
    if rng.random() < 0.3:
        return "".join(rng.choice("#&=%,shape0129<>\\\"'") for _ in range(rng.randint(0, 30)))
    names = rng.sample(NAMES, rng.randint(1, 9))
    return "&".join(f"{name}={any_value(rng)}" for name in names)


def likely_address(rng):
    """Return an address whose request is often accepted, so that its pictures are drawn."""
    rank = rng.randint(1, 5)
    shape = [rng.choice([1, 2, 5, 16, 40]) for _ in range(rank - 1)] + [rng.choice([64, 96, 256])]
    parts = [f"shape={','.join(map(str, shape))}"]
    parts += [f"dtype={rng.choice(['float16', 'float32', 'uint8', 'float8_e5m2', 'bool'])}"]
    if rank > 2 and rng.random() < 0.4:
        parts += [f"pixels_per_column={rng.randint(1, 200)}"]
        parts += [rng.choice(["kind=im2col", "kind=im2col", "kind=im2col_wide"])]
    else:
        box = [rng.randint(1, max(1, min(n, 20))) for n in shape[:-1]] + [rng.choice([16, 32, 64])]
        parts += [f"box_sizes={','.join(map(str, box))}"]
        coords = [rng.randint(-3, n + 3) for n in shape[:-1]] + [rng.choice([0, 16, 64, -16])]
        parts += [f"coords={','.join(map(str, coords))}"]
        steps = ",".join(str(rng.choice([1, 1, 2, 3])) for _ in shape)
        parts += [f"elem_strides={steps}"] * (rng.random() < 0.3)
        parts += ["split_inner=yes"] * (rng.random() < 0.1)
        parts += [f"ragged={rng.randrange(rank)}"] * (rng.random() < 0.1)
    for name, words in (
        ("swizzle", "none bytes32 bytes64 bytes128"),
        ("interleave_layout", "none none none bytes16 bytes32"),
        ("oobfill", "none nan"),
        ("target", "sm_90 sm_90 sm_100"),
        ("tab", " ".join(TABS)),
        ("major", "K MN"),
        ("task", "edge break banks wide core"),
        ("access", "column row ldmatrix"),
    ):
        parts.append(f"{name}={rng.choice(words.split())}")
    return "&".join(parts)


#: Opens each address in one page; returns the failed addresses, and the number of drawn pictures.
OPEN_ALL = """async (hashes) => {
  const failed = [];
  let drawn = 0;
  addEventListener("error", (e) => failed.push([location.hash, e.message]));
  for (const hash of hashes) {
    location.hash = hash;
    await new Promise((done) => setTimeout(done, 0));
    await new Promise((done) => setTimeout(done, 0));
    const state = document.querySelector(".tmax-state").textContent;
    if (!/^[✓✗]/.test(state)) failed.push([hash, state]);
    const refused = document.querySelector(".tmax-refused").textContent;
    const thrown = /is not a function|not iterable|undefined|of null/;
    if (thrown.test(refused)) failed.push([hash, refused]);
    const pictures = document.querySelector(".tmax-stage").shadowRoot.innerHTML;
    const bad = pictures.match(/ (x|y|d|width|height)="[^"]*(NaN|undefined)|>[^<]*undefined/);
    if (bad) failed.push([hash, bad[0]]);
    drawn += state.startsWith("✓") && pictures.length > 0;
  }
  return [failed, drawn];
}"""


@pytest.mark.parametrize(
    "count", [50, pytest.param(many(2000), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_no_address_makes_the_page_fail(open_page, count):
    rng = random.Random(27)
    addresses = [any_address(rng) if n % 2 else likely_address(rng) for n in range(count)]
    seen = open_page()
    failed, drawn = seen.page.evaluate(OPEN_ALL, [f"#{text}" for text in addresses])
    assert failed == []
    assert drawn > count / 8


#: Changes controls, presses buttons and opens tabs by numbers; returns the number of accepted
#: states.
TURN_ALL = """(turns) => {
  const words = "64,64 4,8,12 2,12,14,64 2,3,4,5,64 0,64 2,2,2,2,2,2 7 64,1 nonsense 16".split(" ");
  const numbers = [0, 1, 3, 8, 32, 64, 128, 300, -1, 1024];
  let accepted = 0;
  for (const [which, n] of turns) {
    const all = document.querySelectorAll(".tmax-controls :is(select, [type=text], [type=number]),"
      + ".tmax-fixes button, [data-tab]");
    const one = all[which % all.length];
    if (one.tagName === "BUTTON") one.click();
    else {
      if (one.options) one.selectedIndex = n % one.options.length;
      else one.value = (one.type === "text" ? words : numbers)[n % 10];
      one.dispatchEvent(new Event("change"));
    }
    accepted += document.querySelector(".tmax-state").textContent === "✓ accepted";
  }
  return accepted;
}"""


@pytest.mark.parametrize(
    "count", [150, pytest.param(many(3000), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_no_choices_make_the_page_fail(open_page, count):
    rng = random.Random(27)
    accepted = 0
    for start in ("#shape=64,64", "#shape=4,8,12", "#kind=im2col"):
        turns = [[rng.randrange(1 << 20), rng.randrange(1 << 20)] for _ in range(count // 3)]
        accepted += open_page(start).page.evaluate(TURN_ALL, turns)
    assert accepted > count / 15


def test_a_state_stands_in_the_file_where_the_address_has_none(open_page, tmp_path):
    path = tmp_path / "mine.html"
    tensor = ["--shape", "300,512", "--dtype", "bf16"]
    tile = ["--box", "8,32", "--swizzle", "SWIZZLE_64B", "--coords", "-4,32"]
    assert main(["explore", *tensor, *tile, "--out", str(path)]) == 0
    seen = open_page(path.as_uri())
    assert seen.value("shape") == "300, 512"
    assert seen.value("dtype") == "bfloat16"
    assert seen.value("swizzle") == "bytes64"
    assert seen.values("coords[0]", "coords[1]", "box_sizes[1]") == (-4, 32, 32)
    assert seen.state() == "✓ accepted"


def test_a_page_without_an_address_of_its_own_works(see):
    seen = see(harness.Seen, 1000)
    seen.page.set_content("<iframe style='width:960px;height:800px'></iframe>")
    seen.page.evaluate(
        "(text) => { document.querySelector('iframe').srcdoc = text; }", page({"shape": (64, 64)})
    )
    inner = seen.page.frame_locator("iframe")
    inner.locator(".tmax-stage svg").first.wait_for()
    inner.locator('[data-tab="banks"]').click()
    seen.page.wait_for_timeout(300)
    assert inner.locator(".tmax-stage svg").count() == 3
    assert inner.get_by_text("copy link").count() == 0


def test_an_exported_notebook_carries_the_explorer(see, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed")
    still = explore(np.zeros((64, 128), np.float32)).still()
    output = nbformat.v4.new_output("display_data", {"text/html": still})
    cell = nbformat.v4.new_code_cell("tma.explore(x)", outputs=[output])
    exporter = nbconvert.HTMLExporter(mathjax_url="", require_js_url="", jquery_url="")
    path = tmp_path / "exported.html"
    notebook = nbformat.v4.new_notebook(cells=[cell])
    path.write_text(exporter.from_notebook_node(notebook)[0], encoding="utf-8")
    seen = see(harness.Seen, 1280)
    seen.page.goto(path.as_uri())
    seen.page.click("summary:has-text('explore it here')")
    frame = seen.page.frame_locator("iframe[srcdoc]")
    frame.locator(".tmax-stage svg").first.wait_for()
    assert frame.locator("input[aria-label=shape]").input_value() == "64, 128"
    frame.locator('select[aria-label="swizzle"]').select_option("none")
    frame.locator("svg text:has-text('row after row')").first.wait_for()
    seen.shot("page-exported")


#: The distance by which pictures have moved their neighbours since the page was opened.
WATCH_SHIFTS = """window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });"""


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_shifts_while_the_page_loads(chromium, tmp_path, width):
    file = tmp_path / "page.html"
    file.write_text(page(), encoding="utf-8")
    opened = chromium.new_page(viewport={"width": width, "height": 844})
    opened.add_init_script(WATCH_SHIFTS)
    opened.goto(file.as_uri())
    opened.wait_for_timeout(600)
    assert opened.evaluate("shifted") <= 0.05
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


ACCEPTED = "#shape=64,128&dtype=float16&box_sizes=64,64&swizzle=bytes128"
STATES = [ACCEPTED, "#shape=64,1733&dtype=float16&box_sizes=33,8"]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_axe_finds_nothing_in_any_tab(chromium, tmp_path, width, scheme):
    """axe-core tests roles, names, contrast and focus: deque.com/axe, as packaged on PyPI."""
    package = pytest.importorskip("axe_playwright_python")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    file = tmp_path / "page.html"
    file.write_text(page(), encoding="utf-8")
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for state in STATES:
        opened = context.new_page()
        opened.goto(file.as_uri() + state)
        opened.wait_for_selector("[role=tab]")
        opened.evaluate(axe)
        for tab in opened.query_selector_all("[role=tab]"):
            tab.click()
            opened.wait_for_timeout(100)
            found = opened.evaluate("axe.run()")["violations"]
            assert [(v["id"], v["nodes"][0]["html"]) for v in found] == [], (
                state,
                tab.inner_text(),
            )
        opened.close()
    context.close()


def test_a_page_without_scripts_shows_a_still_picture_and_says_what_is_missing(chromium, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(file.as_uri())
    assert opened.locator("noscript img.tma-still").count() >= 2
    assert "the box cannot be dragged" in opened.locator("noscript p").first.inner_text()
    context.close()


def touch_page(chromium, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    opened = context.new_page()
    opened.goto(file.as_uri() + "#shape=32,256&box_sizes=8,64&coords=0,64")
    opened.wait_for_selector(".tmax-stage svg")
    return context, opened


#: Return the place of a tensor's element on the screen.
PLACE = """([row, column]) => {
  const svg = document.querySelector(".tmax-stage").shadowRoot.querySelector("svg");
  const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
  const at = (text, n) => {
    const [, offset, length, first, last] = text.split(" ").map(Number);
    return (offset + (n - first) / (last - first) * length) * scale;
  };
  return [box.left + at(svg.dataset.x, column), box.top + at(svg.dataset.y, row)];
}"""


def swipe(opened, start, by):
    """Send the browser the events of a finger that moves over the screen."""
    session = opened.context.new_cdp_session(opened)
    (x, y), (dx, dy) = start, by
    send = session.send
    send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for n in range(1, 11):
        point = {"x": x + dx * n / 10, "y": y + dy * n / 10}
        send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    opened.wait_for_timeout(400)


COORDS = """() => ["coords[0]", "coords[1]"].map((name) =>
  document.querySelector(`input[type=range][aria-label="${name}"]`).valueAsNumber)"""


def test_a_finger_scrolls_past_the_tensor_and_drags_the_box_alone(chromium, tmp_path):
    context, opened = touch_page(chromium, tmp_path)
    empty = opened.evaluate(PLACE, [24, 230])
    opened.touchscreen.tap(*empty)
    assert opened.evaluate(COORDS) == [0, 64]  # a tap throws nothing
    swipe(opened, empty, (0, -200))
    assert opened.evaluate("scrollY") > 100
    assert opened.evaluate(COORDS) == [0, 64]

    context.close()

    context, opened = touch_page(chromium, tmp_path)  # a fling continues
    inside = opened.evaluate(PLACE, [4, 96])
    opened.touchscreen.tap(*inside)
    assert opened.evaluate(COORDS) == [0, 64]
    swipe(opened, inside, (60, 20))
    assert opened.evaluate("scrollY") == 0
    down, across = opened.evaluate(COORDS)
    assert down > 0
    assert across > 64
    context.close()


def test_the_picture_stays_in_sight_above_the_control_that_changes_it(chromium, tmp_path):
    context, opened = touch_page(chromium, tmp_path)
    slider = opened.locator('input[type=range][aria-label="box_sizes[0]"]')
    slider.evaluate("(e) => e.scrollIntoView({ block: 'end' })")
    picture = opened.locator(".tmax-stage svg").first.bounding_box()
    control = slider.bounding_box()
    assert picture["y"] >= 0
    assert picture["y"] + picture["height"] <= control["y"]
    assert control["y"] + control["height"] <= 844
    context.close()


def test_each_move_and_each_refusal_is_announced(open_page):
    seen = open_page("#shape=96,256&box_sizes=8,64&coords=0,0")
    seen.page.locator(".tmax-stage svg").first.focus()
    said = []
    for _ in range(2):
        seen.page.keyboard.press("ArrowDown")
        seen.settle()
        said.append(seen.page.text_content(".tmax-spoken"))
    assert said == [f"tile at ({n}, 0), box (8, 64): accepted" for n in (1, 2)]
    assert seen.page.get_attribute(".tmax-spoken", "role") == "status"
    seen.type("shape", "96, 250")
    seen.settle()
    spoken = seen.page.text_content(".tmax-spoken")
    assert "refused by" in spoken
    assert "STRIDE_ALIGNED" in spoken
    assert seen.page.get_attribute(".tmax-stage svg >> nth=0", "role") == "application"


@pytest.mark.parametrize(
    ("address", "first"),
    [("#shape=96,256&box_sizes=16,33", 32), ("#shape=4,1733", 1728)],
)
def test_what_is_refused_is_drawn_and_marked(open_page, address, first):
    seen = open_page(address)
    svg = seen.page.locator(".tmax-stage svg").first
    assert svg.get_attribute("data-refused")
    marked = svg.locator("g:has(> .t-conflict) > title").all_text_contents()
    assert len(marked) == 1
    assert re.search(rf": {first}\b", marked[0])


def test_the_tensor_core_shows_the_rows_that_it_cannot_read(open_page):
    seen = open_page("#shape=128,64&box_sizes=60,64&swizzle=bytes128&tab=core")
    marked = seen.page.locator(".tmax-stage g:has(> .t-conflict) > title").all_text_contents()
    assert marked == ["4 rows: no atom of 8"]
    assert "MATRIX_ROWS" in " ".join(seen.texts())


@pytest.mark.parametrize(("shape", "ratio"), [("64,64", 1), ("512,384", 4 / 3), ("64,256", 1 / 4)])
def test_a_tensor_has_its_proportions(open_page, shape, ratio):
    seen = open_page(f"#shape={shape}&box_sizes=16,32")
    drawn = seen.page.locator(".tmax-stage svg .t-tensor").first.bounding_box()
    assert drawn["height"] / drawn["width"] == pytest.approx(ratio, rel=0.05)
