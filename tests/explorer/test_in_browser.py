"""The explorer in Chromium: drags, typed text and clicks; no blank frame, no console error."""

from __future__ import annotations

import harness
import numpy as np
import pytest
from draw_cases import numbered

import tma_dlpack as tma
from tma_dlpack.explorer.widget import explore

pytestmark = pytest.mark.skipif(bool(harness.MISSING), reason=harness.MISSING)


def torch_tensor(shape):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.zeros(shape, dtype=torch.float16)


def column():
    lower, upper = tma.im2col_corners((3, 3), padding=1)
    images = numbered((2, 7, 9, 32), np.float16)
    return tma.make_im2col_descriptor(images, lower, upper, 32, 40, swizzle="bytes64")


SHAPES = [(4096,), (300, 512), (4, 40, 64), (2, 3, 20, 64), (2, 2, 3, 20, 64)]
SUBJECTS = {
    **{f"NumPy rank {len(s)}": lambda s=s: np.zeros(s, np.float32) for s in SHAPES},
    **{f"torch rank {len(s)}": lambda s=s: torch_tensor(s) for s in SHAPES},
    "im2col": column,
    "im2col_wide": lambda: tma.make_im2col_wide_descriptor(
        numbered((2, 7, 9, 32), np.float16), -1, -1, 32, 40, target="sm_100"
    ),
    "rows of 12 bytes": lambda: np.zeros((5, 7, 12), np.uint8),
}


@pytest.fixture
def show(see):
    return lambda explorer, *looks: see(harness.Seen, *looks).show(explorer)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_tensor_is_dragged_typed_into_and_clicked_without_a_blank_frame(show, name):
    explorer = explore(SUBJECTS[name]())
    seen = show(explorer)
    seen.page.evaluate(harness.WATCH_BLANK)
    assert "✓ accepted" in seen.state()
    panels, parts = seen.pictures()
    assert panels >= 1
    assert parts > 10

    rank = len(explorer.choice.coords)
    before = explorer.choice
    if explorer.look.tensor_map.kind == "tiled":
        shape = explorer.look.tensor_map.shape
        seen.drag((1, 1), (0.6 * (shape[-2] if rank > 1 else 1), 0.7 * shape[-1]))
        assert explorer.look.ok  # the box snaps to legal values wherever the pointer is
        assert explorer.choice != before
    else:
        seen.page.locator('input[type=range][aria-label="im2col_offsets[0]"]').focus()
        seen.page.keyboard.press("ArrowRight")
        seen.settle()
        assert explorer.choice.im2col_offsets[0] == 1

    inner = f"coords[{rank - 1}]"
    seen.page.fill(f'input[aria-label="{inner}, typed"]', "3")
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert "this tile is refused" in seen.state()
    assert seen.pictures()[0] >= 1  # the last accepted picture stays
    assert seen.page.locator(".tmax-stale").count() == 1
    seen.page.click(".tmax-fixes button >> nth=0")
    seen.settle()
    assert explorer.look.ok
    assert seen.page.locator(".tmax-stale").count() == 0

    bytes_ = ["bytes"] * explorer.map.target.has_model if explorer.map else []
    for tab in ("shared", "copy", "banks", *bytes_, "tensor"):
        seen.page.click(f'[data-tab="{tab}"]')
        seen.settle()
        assert seen.pictures()[1] > 4, tab
    assert seen.page.evaluate("window.blankFrames") == 0
    seen.page.click('[data-tab="core"]')
    seen.settle()
    assert seen.pictures()[1] > 4 or seen.page.inner_text(".tmax-refused")
    seen.page.click('[data-tab="code"]')
    seen.settle()
    assert "load_tile" in seen.page.inner_text(".tmax-code")
    seen.shot(f"explorer-{name.replace(' ', '-')}")


def test_the_picture_follows_the_pointer(show):
    explorer = explore(np.zeros((300, 512), np.float32))
    seen = show(explorer)
    seen.page.evaluate(harness.WATCH_BLANK)
    for start, end in (((4, 16), (150, 300)), ((152, 310), (20, 40))):
        seen.page.evaluate("window.shownAfter = []")
        before = explorer.choice
        seen.drag(start, end, steps=12)
        seen.settle()
        # milliseconds from pointer event to picture, per picture; a busy machine draws fewer
        # pictures
        assert len(seen.page.evaluate("window.shownAfter")) >= 1
        assert explorer.choice != before
        assert explorer.look.ok
    assert seen.page.evaluate("window.blankFrames") == 0


def test_the_corner_of_the_box_is_dragged_to_another_size(show):
    explorer = explore(np.zeros((64, 128), np.float32))
    seen = show(explorer)
    box = explorer.choice.box_sizes
    seen.drag(box, (33.4, 21.3))
    assert explorer.look.ok
    assert explorer.choice.box_sizes == (33, 20)  # the inner extent in steps of 16 bytes
    assert explorer.choice.coords == (0, 0)


def test_a_slider_snaps_with_the_keyboard_and_shades_what_is_refused(show):
    explorer = explore(np.zeros((64, 128), np.float32))
    seen = show(explorer)
    deaf = seen.page.evaluate(harness.WITHOUT_SHORTCUTS_OF_JUPYTER)
    assert deaf == []
    slider = seen.page.locator('input[type=range][aria-label="box_sizes[1]"]')
    slider.focus()
    seen.page.keyboard.press("ArrowLeft")
    seen.settle()
    assert explorer.choice.box_sizes == (8, 28)
    steps = seen.page.locator(".tmax-number small")
    assert [s.strip() for s in steps.all_inner_texts()][:2] == ["", "multiples of 4"]
    title = seen.page.locator(".tmax-shade i").first.get_attribute("title")
    assert "refused. " in title
    assert "BOX_" in title


def test_a_chunk_is_lit_in_every_picture_and_stays_when_clicked(show):
    explorer = explore(np.zeros((64, 128), np.float32))
    seen = show(explorer)
    seen.page.click('[data-tab="shared"]')
    seen.settle()
    seen.page.locator('[data-k="c1.4"]').nth(1).click(force=True)
    assert seen.page.locator('[data-k="c1.4"].lit').count() == 2
    said = seen.page.inner_text(".tmax-said")
    assert "the line number 1 is XORed into the chunk number 1" in said
    seen.page.click('[data-tab="tensor"]')
    seen.settle()
    assert seen.page.locator('[data-k="c1.4"].lit').count() >= 1


def test_an_access_is_stepped_through(show):
    x = np.zeros((128, 64), np.float16)
    seen = show(explore(tma.make_tma_descriptor(x, (16, 64))))
    seen.page.click('[data-tab="banks"]')
    seen.settle()
    seen.page.select_option('select[aria-label="access"]', "ldmatrix")
    seen.settle()
    seen.page.locator('input[aria-label="phase of the access"]').focus()
    for _ in range(2):
        seen.page.keyboard.press("ArrowRight")
        seen.settle()
    texts = seen.page.evaluate(
        "[...document.querySelector('.tmax-stage').shadowRoot.querySelectorAll('text')]"
        ".map((t) => t.textContent)"
    )
    assert any(text.startswith("Phase 3 of 4: threads 16..23 read") for text in texts)
    assert "32, worst 8-way" in texts
    seen.shot("explorer-banks")


def test_a_slice_is_chosen_on_its_strip(show):
    explorer = explore(np.zeros((4, 40, 64), np.float32))
    seen = show(explorer)
    seen.page.locator('[data-k="at0.2"]').click(force=True)
    seen.settle()
    assert explorer.choice.coords == (2, 0, 0)


def test_height_and_width_of_a_volume_are_chosen_and_the_box_is_dragged_in_them(show):
    explorer = explore(np.zeros((2, 4, 28, 28, 64), np.float16))
    seen = show(explorer)
    seen.page.select_option('select[aria-label="plane"]', "2, 3")
    seen.settle()
    texts = seen.page.evaluate(
        "[...document.querySelector('.tmax-stage').shadowRoot.querySelectorAll('text')]"
        ".map((t) => t.textContent)"
    )
    assert "→ shape[3] = 28   ↓ shape[2] = 28" in texts
    box = explorer.choice.box_sizes
    seen.drag((0.5, 0.5), (10.5 - box[2] / 2, 12.5))
    assert explorer.choice.coords[2:4] != (0, 0)
    assert explorer.choice.coords[:2] + explorer.choice.coords[4:] == (0, 0, 0)
    seen.page.locator('[data-k="at1.2"]').click(force=True)
    seen.settle()
    assert explorer.choice.coords[1] == 2
    seen.shot("explorer-plane")


def test_what_is_pressed_has_a_name(show):
    seen = show(explore(np.zeros((64, 128), np.float32)))
    nameless = seen.page.evaluate(harness.NAMELESS)
    assert nameless == []
    cut = seen.page.evaluate(
        "() => [...document.querySelectorAll('.tmax label')].filter("
        "(l) => l.scrollWidth > l.clientWidth + 1).map((l) => l.textContent)"
    )
    assert cut == []


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (900, "dark"),
        (1280, "light"),
        pytest.param(900, "light", marks=pytest.mark.slow),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
    ],
)
def test_pictures_are_right_of_the_controls_or_above_and_as_dark_as_the_page(show, width, scheme):
    seen = show(explore(numbered((64, 128), np.float32)), width, scheme)
    controls, pictures = (
        seen.page.locator(name).first.bounding_box()
        for name in (".tmax-controls", ".tmax-stage svg")
    )
    if width >= 1000:
        assert controls["x"] + controls["width"] <= pictures["x"]
        assert controls["y"] < pictures["y"] < controls["y"] + 200
    else:
        assert pictures["y"] + pictures["height"] <= controls["y"]
    is_open = seen.page.evaluate("document.querySelector('[data-title=Options]').open")
    assert not is_open
    letters = seen.page.evaluate(
        "Math.min(...[...document.querySelector('.tmax-stage').shadowRoot.querySelectorAll('svg')]"
        ".map((s) => 10 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
    )
    assert letters >= 9.5  # px
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    paper = seen.page.evaluate(
        "getComputedStyle(document.querySelector('.tmax-stage').shadowRoot"
        ".querySelector('.t-paper')).fill"
    )
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 31)"}[scheme]
    seen.shot(f"explorer-{width}-{scheme}")


def test_pictures_are_saved_and_the_code_is_copied(show, tmp_path):
    explorer = explore(np.zeros((64, 128), np.float32))
    seen = show(explorer)
    for kind, begins in (("SVG", b"<svg "), ("PNG", b"\x89PNG")):
        with seen.page.expect_download() as waited:
            seen.page.click(f"text=save {kind}")
        saved = tmp_path / waited.value.suggested_filename
        waited.value.save_as(saved)
        assert saved.name == f"tma-tensor.{kind.lower()}"
        assert saved.read_bytes().startswith(begins)
    written = seen.page.evaluate(
        "() => new Promise((done) => {"
        "  Object.defineProperty(navigator, 'clipboard',"
        "    { value: { writeText: done }, configurable: true });"
        "  [...document.querySelectorAll('button')]"
        "    .find((b) => b.textContent === 'copy code').click(); })"
    )
    assert written.startswith(f"{explorer.choice.call()}\n\n")
    assert "CUresult result = cuTensorMapEncodeTiled(" in written


# --- Live both ways -----------------------------------------------------------------------------

#: Gives the names of the controls, without an index.
CONTROLS = """() => [...new Set([...document.querySelectorAll(".tmax-controls [aria-label]")]
  .map((e) => e.ariaLabel.split(/[[,]/)[0]))]"""
ADDRESS_OF_TENSOR = ("shape", "strides", "address", "dtype")


def test_what_is_set_in_python_moves_the_page(show):
    explorer = explore(np.zeros((64, 128), np.float32))
    seen = show(explorer)
    seen.page.click('[data-tab="banks"]')
    seen.settle()
    explorer.box_sizes = (16, 8)
    explorer.swizzle = "none"
    explorer.coords = (4, 32)
    seen.tell(explorer)
    numbers = [
        seen.page.input_value(f'input[aria-label="{name}, typed"]')
        for name in ("box_sizes[0]", "box_sizes[1]", "coords[0]", "coords[1]")
    ]
    assert numbers == ["16", "8", "4", "32"]
    assert seen.page.input_value('select[aria-label="swizzle"]') == "none"
    assert seen.page.get_attribute("[aria-selected=true]", "data-tab") == "banks"
    explorer.box_sizes = (16, 7)
    seen.tell(explorer)
    assert "✗ refused: 1 violation" in seen.state()
    seen.page.click(".tmax-fixes button >> nth=0")
    seen.settle()
    assert explorer.box_sizes == (16, 8)
    assert explorer.map is not None


@pytest.mark.parametrize("name", ["NumPy rank 2", "im2col", "rows of 12 bytes", "im2col_wide"])
def test_the_page_has_the_code_and_the_bytes_of_pythons_map(show, name):
    explorer = explore(SUBJECTS[name]())
    explorer.set(l2_fetch_size="bytes128")
    seen = show(explorer)
    seen.page.click('[data-tab="code"]')
    seen.settle()
    assert seen.page.inner_text(".tmax-code >> nth=0") == explorer.choice.call()
    seen.page.click('[data-tab="bytes"]')
    seen.settle()
    if name == "im2col_wide":
        assert "The bytes of a map for sm_100 are not known" in seen.page.inner_text(".tmax")
        return
    bytes_ = seen.page.evaluate(
        "[...document.querySelector('.tmax-stage svg, .tmax-stage').shadowRoot"
        ".querySelector('svg').querySelectorAll('text.t-label')].map((t) => t.textContent)"
        ".filter((t) => /^[0-9a-f]{2}$/.test(t)).join('')"
    )
    whole = bytes(explorer.look.tensor_map).hex()
    assert bytes_ == whole[: len(bytes_)]  # lines of zeros at the end are left out
    assert len(bytes_) >= 2 * 64
    assert set(whole[len(bytes_) :]) <= {"0"}


def test_a_tensor_of_python_cannot_become_another_and_has_no_tasks(show):
    seen = show(explore(np.zeros((64, 128), np.float32)))
    controls = seen.page.evaluate(CONTROLS)
    assert {"box_sizes", "coords", "swizzle", "target", "split_inner"} <= set(controls)
    assert set(ADDRESS_OF_TENSOR).isdisjoint(controls)
    assert "kind" not in controls  # of two dimensions
    assert seen.page.locator("[data-task]").count() == 0
    images = show(explore(np.zeros((2, 12, 14, 64), np.float16)))
    images.reveal('select[aria-label="kind"]').select_option("im2col")
    images.settle()
    assert images.state() == "✓ accepted"
    assert harness.EXPLORERS[images.page].map.kind == "im2col"


def test_of_a_map_without_its_tensor_only_the_tile_is_chosen(show):
    explorer = explore(tma.TensorMap.from_bytes(bytes(column())))
    seen = show(explorer)
    assert seen.page.evaluate(CONTROLS) == ["coords", "im2col_offsets"]
    assert explorer.note in seen.page.inner_text(".tmax-note")
    seen.page.fill('input[aria-label="coords[0], typed"]', "1")
    seen.page.keyboard.press("Enter")
    seen.settle()
    assert explorer.coords == (1, -1, -1, 0)


def test_undo_goes_back_to_the_last_accepted(show):
    explorer = explore(np.zeros((64, 128), np.float32))
    seen = show(explorer)
    for value in (24, 33):
        seen.page.fill(f'input[aria-label="box_sizes[{int(value == 33)}], typed"]', f"{value}")
        seen.page.keyboard.press("Enter")
        seen.settle()
    assert explorer.map is None
    seen.page.click("text=back to the last accepted")
    seen.settle()
    assert explorer.box_sizes == (24, 32)
