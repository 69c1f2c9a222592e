"""Stored notebooks as a reader first sees them: untrusted in JupyterLab, and exported."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from laws import by_cost, slow_if

sys.path.insert(0, str(Path(__file__).parent / "explorer"))
import harness

import course

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
HTMLExporter = pytest.importorskip("nbconvert", reason="nbconvert is not installed").HTMLExporter
pytestmark = pytest.mark.skipif(bool(harness.MISSING), reason=harness.MISSING)

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
first_notebook_and_slowly_the_others = pytest.mark.parametrize(
    "name", [slow_if(name != "00_what_is_tma", name) for name in NAMES]
)


def cells_of(name):
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells


def images_of(name):
    return sum(map(images_in, cells_of(name)))


def images_in(cell):
    htmls = [output.get("data", {}).get("text/html", "") for output in cell.get("outputs", [])]
    return sum(html.count('class="tma-still"') for html in htmls)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export notebooks once: name -> URL of the page."""
    folder = tmp_path_factory.mktemp("exported")

    def export(name, theme="light"):
        page = folder / f"{name}-{theme}.html"
        if not page.exists():
            exporter = HTMLExporter(theme=theme, mathjax_url="", require_js_url="", jquery_url="")
            notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
            page.write_text(exporter.from_notebook_node(notebook)[0], encoding="utf-8")
        return page.as_uri()

    return export


@first_notebook_and_slowly_the_others
def test_an_exported_page_shows_every_picture_and_its_console_is_quiet(chromium, exported, name):
    seen = harness.Seen(chromium, 900)
    seen.page.goto(exported(name))
    shown = (
        "[...document.querySelectorAll('.tma-live')].filter((h) => h.closest('details') ||"
        "h.shadowRoot.querySelector('svg').getBoundingClientRect().width > 90).length"
    )
    seen.page.wait_for_function(f"{shown} === {images_of(name)}")
    assert seen.page.locator("img.tma-still").count() == 0
    ours = [e for e in seen.errors if "ERR_NAME_NOT_RESOLVED" not in e and "MathJax" not in e]
    assert ours == []
    seen.page.close()


@first_notebook_and_slowly_the_others
def test_without_scripts_every_picture_is_an_image_that_loads(chromium, exported, name):
    context = chromium.new_context(
        java_script_enabled=False, viewport={"width": 900, "height": 800}
    )
    page = context.new_page()
    page.goto(exported(name))
    stills = page.locator("img.tma-still")
    folded = page.locator("details:not([open]) img.tma-still").count()
    boxes = [image.bounding_box() for image in stills.all() if image.is_visible()]
    assert stills.count() == images_of(name)
    assert len(boxes) >= images_of(name) - folded
    assert all(box["width"] > 90 and box["height"] > 30 for box in boxes)
    context.close()


@pytest.mark.parametrize("how", ["a click", "the folded answer"])
def test_what_answers_a_question_is_hidden_until_a_try(chromium, exported, how):
    seen = harness.Seen(chromium, 1280)
    page = seen.page
    page.goto(exported("00_what_is_tma"))
    asked = page.locator(".jp-Cell:has(.tma-ask)").first
    cell = asked.locator("xpath=following-sibling::*[1]")
    code, answer = cell.locator(".jp-Cell-inputWrapper"), cell.locator("details.tma-answer pre")
    assert code.is_hidden()
    assert answer.is_hidden()
    if how == "a click":
        asked.locator('[data-k="20 copies"]').click(force=True)  # a wrong one
    else:
        asked.locator("summary").click()
    answer.wait_for(state="visible")  # the toggle event comes a moment after the click
    assert code.is_visible()
    assert page.locator("details.tma-answer[open]").count() == 1
    page.close()


def test_an_exported_page_is_hovered_without_a_kernel(chromium, exported):
    seen = harness.Seen(chromium, 1366)
    seen.page.goto(exported("01_swizzle_and_banks"))
    seen.page.locator("summary:has-text('Answer')").first.click()  # unfolds the figure, too
    figure = ".tma:not(:has(.tma-ask))"  # a question would hide the linked element
    chunk = seen.page.locator(f'{figure} [data-k="c1.8"]').first
    chunk.hover(force=True)
    lit = seen.page.locator('[data-k="c1.8"].lit')
    assert lit.count() == 2  # before and after the swizzle
    said = seen.page.locator(".tma-said:not([hidden])").inner_text()
    assert "linear 0x0090 to 0x0080: addr[6:4] ^= addr[9:7] (= 1)" in said
    assert "decided by swizzle" in said
    assert seen.page.locator('[data-k="bank0"].near').count() >= 1
    seen.shot("exported-hovered", full_page=False)
    seen.page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_are_dark_where_the_page_is_dark_whatever_the_system_is(chromium, exported, theme):
    other = {"light": "dark", "dark": "light"}[theme]
    seen = harness.Seen(chromium, 900, scheme=other)
    seen.page.goto(exported("03_out_of_bounds_and_strides", theme))
    paper = seen.page.evaluate(
        "getComputedStyle(document.querySelector('.tma-live').shadowRoot"
        ".querySelector('.t-paper')).fill"
    )
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 31)"}[theme]
    seen.page.close()


# --- JupyterLab ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Serve copies of the notebooks without a known signature, so they are not trusted."""
    if harness.NO_LAB:
        pytest.skip(harness.NO_LAB)
    home = tmp_path_factory.mktemp("lab")
    for name in NAMES:
        shutil.copy(NOTEBOOKS / f"{name}.ipynb", home)
    asked = course.ask([["512", "1024"]], "How many bytes?", "1024", "8 rows of 128.").html()
    output = nbformat.v4.new_output("display_data", {"text/html": asked})
    cell = nbformat.v4.new_code_cell("ask(...)", outputs=[output])
    metadata = nbformat.read(NOTEBOOKS / f"{NAMES[0]}.ipynb", as_version=4).metadata
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata=metadata)
    nbformat.write(notebook, home / "asked.ipynb")
    with harness.jupyterlab(home) as url:
        yield url


@pytest.mark.slow
def test_a_question_in_an_untrusted_notebook_says_why_no_click_is_judged(chromium, lab):
    seen = harness.Seen(chromium, 1366, height=1000)
    seen.page.goto(f"{lab}/lab/tree/asked.ipynb?reset", wait_until="domcontentloaded")
    why = seen.page.get_by_text(
        "Clicks are not judged here: scripts run only in a trusted notebook. In JupyterLab, run"
    )
    why.wait_for(timeout=60_000)
    assert why.is_visible()
    seen.page.click("summary:has-text('Answer')")
    assert seen.page.get_by_text("8 rows of 128.").is_visible()
    seen.shot("lab-asked-untrusted", full_page=False)
    seen.page.close()


@pytest.mark.parametrize(
    "name", by_cost(NAMES, slow=["00_what_is_tma", "02_one_call", "06_hopper_gemm"])
)
def test_an_untrusted_notebook_in_jupyterlab_shows_its_pictures(chromium, lab, name):
    seen = harness.Seen(chromium, 1366, height=1000)
    seen.page.goto(f"{lab}/lab/tree/{name}.ipynb?reset", wait_until="domcontentloaded")
    seen.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    expected = images_of(name)
    count = "document.querySelectorAll('.jp-OutputArea img.tma-still').length"
    seen.page.wait_for_function(f"{count} >= {expected}", timeout=30_000)
    shown = seen.page.evaluate(
        "() => [...document.querySelectorAll('img.tma-still')].filter((i) => i.complete &&"
        "i.naturalWidth > 0 &&"
        "(i.closest('details') || i.getBoundingClientRect().width > 90)).length"
    )
    assert shown == expected
    assert seen.page.locator(".tma-live").count() == 0  # scripts were dropped: it is untrusted
    assert seen.page.locator(".jp-OutputArea svg[role=img]").count() == 0
    seen.shot(f"lab-{name}", full_page=False)
    seen.page.close()
