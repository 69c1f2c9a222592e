"""Questions of the course: what answers one is folded until the reader tries it."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "explorer"))
sys.path.insert(0, str(Path(__file__).parent.parent))
import harness
import test_notebooks

import course

#: Notebook -> how many questions it asks.
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
#: The first line of an answer: all that JupyterLab shows of a folded cell.
LABEL = "# The answer: open it after your try."
FOLDED = {"outputs_hidden": True, "source_hidden": True}

every_chapter = pytest.mark.parametrize("name", QUESTIONS)


def is_question(cell):
    return cell.cell_type == "code" and re.search(r"^course\.ask\(", cell.source, re.MULTILINE)


def is_heading(cell):
    return cell.cell_type == "markdown" and re.search("^#+ ", cell.source, re.MULTILINE)


def is_folded(cell):
    return cell.metadata.get("jupyter") == FOLDED


def sections(name):
    """Return the cells of a notebook, cut before each heading."""
    parts = [[]]
    for cell in test_notebooks.read(name).cells:
        if is_heading(cell):
            parts.append([])
        parts[-1].append(cell)
    return parts


def open_text(cell):
    """Return the words of a cell that a reader sees before opening anything."""
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
def test_an_answer_is_folded_by_every_viewer_and_shows_no_code_where_it_is_folded(name):
    cells = test_notebooks.read(name).cells
    folded = [cell for cell in cells if cell.metadata.get("jupyter", {}).get("outputs_hidden")]
    tagged = [cell for cell in cells if "hide-output" in cell.metadata.get("tags", [])]
    assert folded == tagged
    for cell in folded:
        assert is_folded(cell)
        assert {"hide-input", "hide-output"} <= {*cell.metadata["tags"]}
        assert cell.source.startswith(f"{LABEL}\n")
        assert any(map(is_question, cells[: cells.index(cell)]))


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


@pytest.mark.slow
def test_jupyterlab_shows_nothing_of_an_answer_before_it_is_opened(chromium, tmp_path):
    if harness.NO_LAB:
        pytest.skip(harness.NO_LAB)
    notebook = test_notebooks.NOTEBOOKS / "02_one_call.ipynb"
    (tmp_path / notebook.name).write_bytes(notebook.read_bytes())
    with harness.jupyterlab(tmp_path) as url:
        seen = harness.Seen(chromium, 1366, height=1000)
        seen.page.goto(f"{url}/lab/tree/{notebook.name}?reset", wait_until="domcontentloaded")
        answer = seen.page.locator(f".jp-CodeCell:has-text('{LABEL}')").nth(2)
        answer.scroll_into_view_if_needed(timeout=60_000)
        assert answer.inner_text().strip().endswith(LABEL)
        answer.locator(".jp-InputPlaceholder").click()
        answer.locator(".jp-OutputPlaceholder").click()
        assert "272 of 512 elements are filled" in answer.inner_text()
        seen.page.close()
