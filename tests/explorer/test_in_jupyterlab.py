"""The explorer in a real JupyterLab, with a kernel: keys, and the outputs of a saved notebook."""

from __future__ import annotations

import contextlib

import harness
import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("anywidget", reason="anywidget is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(harness.MISSING or harness.NO_LAB), reason=harness.MISSING or harness.NO_LAB
    ),
]

EXPLORE = """import numpy as np, tma_dlpack as tma
e = tma.explore(np.zeros((64, 128), np.float32))
e"""
BARRIER = "from tma_dlpack import draw\ndraw.barrier()"
PAPER = """() => getComputedStyle(document.querySelector(".tmax-stage").shadowRoot
  .querySelector(".t-paper")).fill"""
VOLUME = EXPLORE.replace("64, 128), np.float32", "2, 4, 28, 28, 64), np.float16")
STORED = 'class="tma-still"'.replace('"', '\\"')  # of a picture, in the notebook's JSON
END_SESSIONS = """async () => {
  const headers = { "X-XSRFToken": document.cookie.match(/_xsrf=([^;]+)/)[1] };
  for (const session of await (await fetch("/api/sessions")).json())
    await fetch(`/api/sessions/${session.id}`, { method: "DELETE", headers });
}"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab(home):
    with harness.jupyterlab(home) as url:
        yield url


@pytest.fixture(scope="module")
def live(chromium, home, lab):
    """Open a notebook of three cells, whose first cell has run, so that the explorer is live."""
    codes = (EXPLORE, "print(e.choice.box_sizes)", "1 + 1")
    with running(chromium, home, lab, "live.ipynb", codes) as seen:
        yield seen


@contextlib.contextmanager
def running(chromium, home, lab, name, codes, shown=".tmax-stage svg"):
    """Open a notebook and run its first cell, which shows an explorer, or something else."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in codes], metadata={"kernelspec": kernel}
    )
    nbformat.write(notebook, home / name)
    seen = harness.Seen(chromium, 1600, height=1200)
    seen.name = name
    opened(seen, lab)
    seen.page.wait_for_selector("text=Python 3 (ipykernel) | Idle", timeout=60_000)
    seen.page.locator(".jp-Notebook .jp-Cell").first.click()
    seen.page.keyboard.press("Shift+Enter")
    seen.page.wait_for_selector(shown, timeout=60_000)
    if shown.startswith(".tmax"):
        seen.settle()
    yield seen
    seen.page.evaluate(END_SESSIONS)
    seen.page.close()


def opened(seen, lab):
    seen.page.goto(f"{lab}/lab/tree/{seen.name}?reset", wait_until="domcontentloaded")
    seen.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)


def cells(seen):
    return seen.page.locator(".jp-Notebook .jp-Cell").count()


def test_keys_are_the_explorers_and_not_jupyterlabs(live):
    keys = live.page.keyboard
    live.page.locator('input[type=range][aria-label="box_sizes[1]"]').focus()
    keys.press("ArrowLeft")
    live.settle()
    assert live.page.input_value('input[aria-label="box_sizes[1], typed"]') == "28"
    focused = (
        'input[type=range][aria-label="box_sizes[0]"]',
        'select[aria-label="swizzle"]',
        '[data-tab="tensor"]',
        ".tmax summary",
        ".tmax-stage svg",
        'input[aria-label="coords[0], typed"]',
    )
    for place in focused:
        live.page.locator(place).first.focus()
        for key in ("d", "d", "b", "a", "x"):
            keys.press(key)
        live.settle()
        assert cells(live) == 3, place
    live.page.locator(".tmax-stage svg").first.focus()
    keys.press("ArrowDown")
    live.settle()
    assert live.page.input_value('input[aria-label="coords[0], typed"]') == "1"
    keys.press("ArrowUp")
    live.settle()
    live.page.locator(".tmax-stage svg").nth(1).focus()
    keys.press("ArrowRight")
    assert live.page.inner_text(".tmax-said") == "banks 0..3: bytes 0..15 of every 128"
    live.shot("lab-explorer-live", full_page=False)


def test_it_is_light_in_a_light_theme_before_anything_is_touched(live):
    assert live.page.evaluate(PAPER) == "rgb(255, 255, 255)"
    assert live.page.evaluate("document.querySelector('.tmax').style.colorScheme") == "light"


def test_enter_takes_a_number_and_a_shape_that_are_typed(live):
    for value in ("4", "0"):
        live.page.fill('input[aria-label="coords[0], typed"]', value)
        live.page.keyboard.press("Enter")
        live.settle()
        assert live.page.input_value('input[type=range][aria-label="coords[0]"]') == value


def test_a_control_leaves_saving_to_jupyterlab(live, home):
    field = live.page.locator('input[aria-label="coords[0], typed"]')
    before = (home / live.name).stat().st_mtime_ns
    live.page.wait_for_selector(".jp-mod-current.jp-mod-dirty", state="attached")
    field.focus()
    live.page.keyboard.press("Control+s")
    live.page.wait_for_selector(".jp-mod-current.jp-mod-dirty", state="detached")
    assert (home / live.name).stat().st_mtime_ns > before
    assert field.get_attribute("data-lm-suppress-shortcuts") == "true"  # again


def test_the_page_is_saved_from_the_notebook(live, tmp_path):
    with live.page.expect_download() as waited:
        live.page.click("text=save page")
    path = tmp_path / waited.value.suggested_filename
    waited.value.save_as(path)
    assert path.name == "explorer.html"
    assert "shape=64,128" in path.read_text(encoding="utf-8")


def test_a_notebook_opened_again_without_its_kernel_shows_pictures_and_no_error(live, home, lab):
    live.page.wait_for_timeout(600)
    live.page.click('[data-command="docmanager:save"]')
    for _ in range(100):
        if STORED in (home / live.name).read_text(encoding="utf-8"):
            break
        live.page.wait_for_timeout(50)
    live.page.evaluate(END_SESSIONS)
    opened(live, lab)
    live.page.wait_for_selector(".jp-OutputArea .tma-live, .jp-OutputArea img.tma-still")
    live.page.wait_for_selector("text=Error displaying widget", state="attached")  # and hidden
    live.shot("lab-explorer-opened-again", full_page=False)
    assert "Error displaying widget" not in live.page.inner_text(".jp-Notebook")
    assert live.page.locator(".tma-live:visible").count() == 3
    live.page.click("summary:has-text('explore it here')")
    frame = live.page.frame_locator("iframe[srcdoc]")
    frame.locator(".tmax-stage svg").first.wait_for()
    assert frame.locator("input[aria-label=shape]").input_value() == "64, 128"
    frame.locator('[data-tab="banks"]').click()
    frame.locator("text=wavefront 1").first.wait_for()


def test_what_is_chosen_goes_to_python_and_what_python_sets_to_the_page(chromium, home, lab):
    codes = (VOLUME, "print('plane', e.choice.plane)", "e.coords = (1, 0, 2, 0, 0)")
    with running(chromium, home, lab, "volume.ipynb", codes) as seen:
        seen.page.select_option('select[aria-label="plane"]', "2, 3")
        seen.settle()
        picture = seen.page.locator(".tmax-stage svg").first
        assert picture.get_attribute("data-x").startswith("3 ")
        assert picture.get_attribute("data-y").startswith("2 ")
        seen.page.keyboard.press("Escape")
        seen.page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea-editor").nth(1).click()
        seen.page.keyboard.press("Shift+Enter")
        seen.page.wait_for_selector("text=plane (2, 3)", timeout=20_000)
        seen.page.keyboard.press("Shift+Enter")
        coords = [f'input[aria-label="coords[{d}], typed"]' for d in (0, 2)]
        seen.page.wait_for_function(
            "(names) => names.map((n) => document.querySelector(n).value).join() === '1,2'",
            arg=coords,
        )
        assert picture.get_attribute("data-y").startswith("2 ")  # the plane that was chosen stays
        seen.shot("lab-explorer-plane", full_page=False)


def test_a_control_leaves_running_to_jupyterlab(chromium, home, lab):
    with running(chromium, home, lab, "again.ipynb", (EXPLORE, "1 + 1")) as seen:
        field = seen.page.locator('input[aria-label="coords[0], typed"]')
        old = field.get_attribute("id")
        field.focus()
        seen.page.keyboard.press("Shift+Enter")
        seen.page.wait_for_selector(f"#{old}", state="detached")  # the cell ran again
        seen.page.wait_for_selector(".tmax-stage svg")


def test_keys_after_a_click_on_the_barriers_picture_delete_no_cell(chromium, home, lab):
    with running(chromium, home, lab, "barrier.ipynb", (BARRIER, "1 + 1"), ".tma-seek") as seen:
        seen.page.locator(".tma-play .tma-live svg").click(position={"x": 60, "y": 60})
        slider = seen.page.locator('.tma-seek input[aria-label="event"]')
        first = int(slider.input_value())  # the story begins at its beginning
        for key in ("d", "d", "x", "ArrowRight"):
            seen.page.keyboard.press(key)
        seen.page.wait_for_timeout(300)
        assert cells(seen) == 2
        assert int(slider.input_value()) == first + 1
