"""Questions of the course: the answer is folded until the reader tries to answer."""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "explorer"))
sys.path.insert(0, str(Path(__file__).parent.parent))
import harness
import test_notebooks

import course

#: Notebook -> number of its questions.
QUESTIONS = {
    "00_what_is_tma": 6,
    "01_swizzle_and_banks": 5,
    "02_one_call": 4,
    "03_out_of_bounds_and_strides": 5,
    "04_pytorch_extension": 3,
    "05_im2col_convolution": 3,
    "06_hopper_gemm": 14,
    "07_grouped_gemm": 3,
    "08_blackwell": 7,
    "09_trace": 1,
    "10_postmortem": 2,
    "ring": 4,
}
#: The first line of an answer, which is all that JupyterLab shows of a folded cell.
LABEL = "# The answer: open it after your try."
SUMMARY = '<details class="tma-answer"><summary>What the library answers</summary>'

every_chapter = pytest.mark.parametrize("name", QUESTIONS)


def is_question(cell):
    return cell.cell_type == "code" and re.search(r"^course\.ask\(", cell.source, re.MULTILINE)


def is_heading(cell):
    return cell.cell_type == "markdown" and re.search("^#+ ", cell.source, re.MULTILINE)


def is_folded(cell):
    """Return whether source and output are folded in a way that JupyterLab keeps."""
    is_answer = "with course.answer():" in cell.source
    folds = [
        o.get("data", {}).get("text/html", "").startswith(SUMMARY) for o in cell.get("outputs", [])
    ]
    assert not is_answer or all(folds)
    return is_answer and cell.metadata.get("jupyter") == {"source_hidden": True}


def sections(name):
    """Return the cells of a notebook, cut before each heading."""
    parts = [[]]
    for cell in test_notebooks.read(name).cells:
        if is_heading(cell):
            parts.append([])
        parts[-1].append(cell)
    return parts


def open_text(cell):
    """Return the text of a cell that a reader sees before unfolding anything."""
    if is_folded(cell) or is_question(cell):
        return ""
    outputs = [
        o.get("text", o.get("data", {}).get("text/plain", "")) for o in cell.get("outputs", [])
    ]
    source = re.sub("<details>.*?</details>", "", cell.source, flags=re.DOTALL)
    return "\n".join([source, *outputs])


@every_chapter
def test_a_chapter_asks_as_often_as_it_should_and_folds_the_code_of_each_question(name):
    asking = [cell for cell in test_notebooks.read(name).cells if is_question(cell)]
    assert len(asking) == QUESTIONS[name]
    for cell in asking:
        assert cell.metadata["jupyter"] == {"source_hidden": True}
        assert cell.metadata["tags"] == ["hide-input"]
        (output,) = cell.outputs
        assert 'class="tma-ask"' in output.data["text/html"]
        assert "<details><summary>Answer</summary>" in output.data["text/html"]


@every_chapter
def test_no_prediction_is_a_paragraph_without_a_question(name):
    assert not [c for c in test_notebooks.read(name).cells if "**Predict" in c.source]


@every_chapter
def test_code_between_a_question_and_the_next_heading_is_folded_source_and_output(name):
    for section in sections(name):
        is_asked = False
        for cell in section:
            is_asked |= bool(is_question(cell))
            if is_asked and cell.cell_type == "code" and not is_question(cell):
                assert is_folded(cell), cell.source


@every_chapter
def test_an_answer_follows_a_question_and_shows_no_code_where_it_is_folded(name):
    cells = test_notebooks.read(name).cells
    answers = [cell for cell in cells if "course.answer(" in cell.source]
    assert answers
    for cell in answers:
        assert is_folded(cell)
        assert cell.metadata["tags"] == ["hide-input"]
        assert cell.source.startswith(f"{LABEL}\n")  # JupyterLab shows this line of folded source
        assert any(map(is_question, cells[: cells.index(cell)]))
        (output,) = cell.outputs
        assert output.data["text/html"].endswith("</details>")
    assert not [cell for cell in cells if "outputs_hidden" in cell.metadata.get("jupyter", {})]


@every_chapter
def test_a_number_that_answers_a_question_is_not_read_elsewhere_in_its_section(name):
    for section in sections(name):
        seen = "\n".join(map(open_text, section))
        for cell in filter(is_question, section):
            (facts,) = re.findall('data-ask="([^"]*)"', cell.outputs[0].data["text/html"])
            for answer in json.loads(html.unescape(facts))["right"]:
                if re.fullmatch(r"\d{3,}|0x[0-9a-f]{3,}", answer):
                    assert not re.search(rf"(?<!\w){answer}(?!\w)", seen), answer


@pytest.mark.parametrize("name", [*QUESTIONS, "puzzles"])
def test_the_first_cell_says_to_run_all_cells_first(name):
    assert "Run all cells first (Run > Run All Cells)." in test_notebooks.read(name).cells[0].source


def test_a_question_in_an_untrusted_notebook_says_to_run_all_cells_first():
    asked = course.ask([["512", "1024"]], "How many bytes?", "1024", "8 rows of 128.").html()
    assert "In JupyterLab, run all cells first (Run > Run All Cells)." in asked


def test_a_folded_answer_has_what_is_printed_and_shown_and_escapes_text():
    shown = [{"text/plain": "figure", "text/html": "<b>figure</b>"}, {"text/plain": "<Report>"}]
    bundle = course.folded("2 < 3\n", shown)
    parts = "<pre>2 &lt; 3\n</pre>", "<b>figure</b>", "<pre>&lt;Report&gt;</pre>"
    assert bundle["text/html"] == f"{SUMMARY}{''.join(parts)}</details>"
    assert bundle["text/plain"] == "2 < 3\nfigure\n<Report>"


@pytest.mark.slow
@pytest.mark.parametrize("is_run", [False, True], ids=["untrusted", "after Run All Cells"])
def test_jupyterlab_shows_nothing_of_an_answer_before_a_try(
    chromium, tmp_path, monkeypatch, is_run
):
    if harness.NO_LAB:
        pytest.skip(harness.NO_LAB)
    from playwright.sync_api import TimeoutError as PageTimeout

    name = "01_swizzle_and_banks.ipynb"
    shutil.copy(test_notebooks.NOTEBOOKS / name, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(test_notebooks.NOTEBOOKS))
    # Every cell stays in the page; else JupyterLab removes those far from the cell that it runs.
    extension = tmp_path / "config/lab/user-settings/@jupyterlab/notebook-extension"
    extension.mkdir(parents=True)
    (extension / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    with harness.jupyterlab(tmp_path) as url:
        page = harness.Seen(chromium, 1366, height=1000).page
        page.goto(f"{url}/lab/tree/{name}?reset", wait_until="domcontentloaded")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        asked = page.locator(".jp-CodeCell:has(.tma-ask)", has_text="How many wavefronts").first
        if is_run:
            page.wait_for_selector("[data-status=idle]", timeout=60_000)
            is_waiting = "[...document.querySelectorAll('.jp-InputPrompt')]"
            is_waiting += ".some((prompt) => prompt.textContent.includes('*'))"
            accept = page.locator(".jp-Dialog .jp-mod-accept")
            # On a busy machine the menu does nothing until the kernel is known, and a kernel that
            # starts late loses what was run: then run it again.
            for _ in range(30):
                try:
                    if accept.count():  # JupyterLab asks for a kernel
                        accept.first.click(timeout=5_000)
                    page.get_by_text("Run", exact=True).first.click(timeout=5_000)
                    page.get_by_text("Run All Cells", exact=True).first.click(timeout=5_000)
                    page.wait_for_function(is_waiting, timeout=5_000)
                    page.wait_for_function(f"!{is_waiting}", timeout=120_000)
                    asked.wait_for(state="attached", timeout=10_000)
                    break
                except PageTimeout:
                    page.keyboard.press("Escape")  # closes the menu
        asked.scroll_into_view_if_needed(timeout=60_000)
        cell = asked.locator("xpath=following-sibling::*[1]")
        answer = cell.locator("pre:has-text('8-way with none')")
        assert LABEL in cell.inner_text()
        assert answer.is_hidden()
        if is_run:
            asked.locator('[data-k="4"]').first.click(force=True)  # a wrong one
            verdict = asked.locator(".tma-verdict")
            verdict.wait_for(state="visible")
            assert verdict.inner_text().startswith("✗ ")
        else:
            cell.locator("summary").first.click()
        answer.wait_for(state="visible")
        page.close()
