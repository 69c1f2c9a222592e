"""Every notebook runs from top to bottom without a GPU, and prints the stored outputs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import screens
from laws import slow_if
from screens import DARK, LIGHT

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
HTMLExporter = pytest.importorskip("nbconvert", reason="nbconvert is not installed").HTMLExporter

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import execute  # noqa: E402  (in the notebooks' folder)

MOST_FIGURE_BYTES = 400_000

#: Notebook -> a sentence or a number that it prints.
SAYS = {
    "00_what_is_tma": [
        "[[0, 0], [8, 0], [16, 0]]",
        "64 elements filled, 256 bytes counted",
        "35 KiB in flight in each multiprocessor use 4.2 TB/s",
        "x[3, 16] = 208.0, at byte 400: 208.0",
        "the row stride is 66 bytes: 2 too many, or 14 too few",
        "doubled: True",
    ],
    "01_swizzle_and_banks": [
        "bank conflicts of a column: 8-way with none, free with bytes128",
        "bytes64 takes 1024 bytes, bytes128 2048",
        "x[5, 24] = 344.0 lies at 0x2e0: 344.0",
        "the access in 4 phases: 32 wavefronts with none",
        "A against B: 2 fields differ",
    ],
    "02_one_call": [
        "272 of 512 elements are filled",
        "load_bulk from byte 1664 loads 1664 bytes",
        "frameworks, 1 layout",
        "tensor.strides[0] is 1733 elements, 3466 bytes",
        "BOX_SMEM: the box takes 262144 bytes",
        "two maps: 2 bits differ, in l2_promotion",
    ],
    "03_out_of_bounds_and_strides": [
        "coords[1] is 2",
        "fill: 0x7ff77ff7",
        "(4, 16), 256 bytes",
        "STORE_OVERRUN",
        "8 bytes past the end of the tensor",
        "[1 1 2 2 1 1 0]",
    ],
    "04_pytorch_extension": ["this map is not launchable", "simulated: True"],
    "05_im2col_convolution": [
        "4 columns of 32 pixels cover 126 output pixels",
        "largest difference to torch: 0.0",
    ],
    "06_hopper_gemm": [
        "7616 of 8192 elements are filled with zeros",
        "tensor.strides[0] is 12 elements, 24 bytes",
        "operand of bf16: 128 of M or N, 64 of K in 4 steps of 16",
        "66 tiles of 256 x 256 read 2048 rows of A and 2304 rows of B",
        "the product of 200 x 136 and 136 x 328 is exact: True",
        "large: evict_first         7,168 GB/s",
        "with prefetch_tile         1,368 ns",
        "a step of wgmma takes 32 of K; the descriptor is the same:",
    ],
    "07_grouped_gemm": [
        "group 3, 300 rows: 0a 1a | 0b 1b | 2a 2b",
        "(1073741824, 22, 1073741810, 0) is byte 2048",
        "128 rows of 8 experts, 2 maps",
        "rows: 512 -> 150",
        "all 5 groups are exact: True",
    ],
    "08_blackwell": [
        "bits 46..48 fixed                     0x1",
        "bits that differ: [46]",
        "gather4 of rows 40, 3, 20, 64",
        "512 bytes counted, 1024 bytes of shared memory",
        "thread 37, register d4",
        "K steps start at (0, 32, 64, 96) K-major, (0, 2048, 4096, 6144) MN-major",
        "sm_120    yes      -         yes        99 KiB",
    ],
    "09_trace": [
        "6 different tensor maps of 33 calls: 2 refused",
        "B (768, 512): a tile of (64, 256) is 4 x (64, 64), 8192 bytes each",
        "C: parameter 10 of matmul, 10 launches",
        "bank conflicts of a column: 8-way with none, free with bytes128",
        "global_strides[0] is 2002 bytes; it must be a multiple of 16 bytes",
    ],
    "10_postmortem": [
        "UTMALDG.2D at /src/dying/dying.cu:62 called at /src/dying/dying.cu:199",
        "COORDINATE_16B - the innermost coordinate is 3, 6 bytes; it must be a multiple of 16",
        "0x400: 0 of 1 arrivals and 4096 bytes pending, phase 0 1 warps wait for parity 0",
        "HANG_BYTES - 16,384 bytes are expected, 12,288 came, and 4,096 are missing (1 x 4,096:",
        "HANG_FOLLOWS - nobody has arrived in this phase",
        "0xc400: 0 of 1 arrivals and 1024 bytes pending, phase 0 16 warps wait for parity 0",
        "16 warps of 4 blocks wait at /src/k/triton_slips.py:43",
    ],
    "ring": ["2048 bytes a tile", "3 stages: 400 ns a tile", "tile 7: stage 1, round 2, parity 0"],
    "puzzles": [
        "ring(const __grid_constant__ Map x, float* out, int tiles)",
        "not yet: LOAD_WAIT, kernel.cu:17",
        "not yet: PROXY_FENCE, kernel.cu:",
        "not yet: COORDINATE_16B",
        "elements are wrong: out[1][0]",
        "not yet: HANG_CYCLE",
    ],
}
REFUSED_ON_PURPOSE = {"02_one_call": 1, "03_out_of_bounds_and_strides": 1}

PRACTICE = ["puzzles"]  # every cell is an exercise; tests/course/test_puzzles.py tests them

every_notebook = pytest.mark.parametrize("name", SAYS)
every_lesson = pytest.mark.parametrize("name", [n for n in SAYS if n not in PRACTICE])
first_notebook_and_slowly_the_others = pytest.mark.parametrize(
    "name", [slow_if(name != "00_what_is_tma", name) for name in SAYS]
)


def read(name):
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def outputs(notebook):
    return [o for cell in notebook.cells for o in cell.get("outputs", [])]


def said(notebook):
    """Return everything that a notebook printed or showed as text."""
    text, printed = "", False
    for output in outputs(notebook):
        if output.get("name") == "stderr":  # torch's warnings depend on the machine
            continue
        parts = [*output.get("traceback", []), output.get("data", {}).get("text/plain", "")]
        if output.output_type == "stream":  # join a line that a warning split in two
            parts = [output.text if printed else "\n" + output.text]
        else:
            parts = ["\n".join(["", *parts])]
        printed = output.output_type == "stream"
        text += "".join(parts)
    return text


def errors(notebook):
    return [o for o in outputs(notebook) if o.output_type == "error"]


def test_the_notebooks_are_those_that_are_tested():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SAYS)


@pytest.fixture(scope="module")
def runs():
    """Return a function: name -> notebook. Each notebook runs once for all tests."""
    done = {}

    def run(name):
        if name not in done:
            imports = "\n".join(cell.source for cell in read(name).cells)
            for framework in re.findall(r"^ *import (torch|jax)\b", imports, flags=re.MULTILINE):
                pytest.importorskip(framework, reason=f"{framework} is not installed")
            done[name] = execute.stored(execute.execute(NOTEBOOKS / f"{name}.ipynb"))
        return done[name]

    return run


@first_notebook_and_slowly_the_others
def test_a_notebook_runs_and_says_what_it_should(name, runs):
    notebook = runs(name)
    assert len(errors(notebook)) == REFUSED_ON_PURPOSE.get(name, 0)
    for sentence in SAYS[name]:
        assert sentence in said(notebook)
    asserts = [c for c in notebook.cells if c.cell_type == "code" and "assert " in c.source]
    assert asserts


@pytest.mark.slow
@every_notebook
def test_what_is_stored_is_what_a_run_gives(name, runs):
    stored, fresh = read(name), runs(name)
    assert [c.source for c in stored.cells] == [c.source for c in fresh.cells]
    assert [c.get("execution_count") for c in stored.cells] == [
        c.get("execution_count") for c in fresh.cells
    ]
    assert without_addresses(said(stored)) == without_addresses(said(fresh))
    assert list(map(shown, stored.cells)) == list(map(shown, fresh.cells))


def without_addresses(text):
    """Remove differences between runs: addresses, and the places where streams are split."""
    return re.sub(r"\n+", "\n", re.sub(r"0x[0-9a-f]{8,}|byte +0  .*", "...", text))


def shown(cell):
    """Return the types of a cell's outputs, without warnings."""
    told = (o for o in cell.get("outputs", []) if o.get("name") != "stderr")
    kinds = [sorted(output.get("data", {})) for output in told]
    return [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind or before]


@every_notebook
def test_refusals_shown_on_purpose_carry_their_tag_and_nothing_else_fails(name):
    notebook = read(name)
    for cell in notebook.cells:
        failed = any(o.output_type == "error" for o in cell.get("outputs", []))
        assert failed == ("raises-exception" in cell.metadata.get("tags", []))
    assert len(errors(notebook)) == REFUSED_ON_PURPOSE.get(name, 0)


@every_notebook
def test_what_is_stored_names_no_place_of_a_machine(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    outputs_only = nbformat.writes(nbformat.v4.new_notebook(cells=read(name).cells))
    for place in ("/work", "/root", "/home", "/tmp", "site-packages", "\\u001b["):
        assert place not in text
        assert place not in outputs_only


@every_notebook
def test_a_stored_figure_is_images_with_words_its_text_and_of_bounded_size(name):
    for output in outputs(read(name)):
        data = output.get("data", {})
        # An untrusted JupyterLab drops SVG, and a sanitizing viewer drops HTML.
        assert "image/svg+xml" not in data or "text/html" in data
        assert execute.LIVE not in data
        assert not data or data.get("text/plain")
        assert all(len(content) < MOST_FIGURE_BYTES for content in data.values())
        kept = re.sub(r"<(script|style)>.*?</\1>", "", data.get("text/html", ""), flags=re.DOTALL)
        assert "<svg" not in kept
        for image in re.findall("<img [^>]*>", kept):
            assert re.search(r'alt="[^"]{8,}"', image)
            assert 'src="data:image/svg+xml;base64,' in image


@every_notebook
def test_a_notebook_names_its_packages_at_the_top(name):
    first, *others = read(name).cells
    assert "Packages: " in first.source
    needs_torch = any(re.search(r"^ *import torch", c.source, re.MULTILINE) for c in others)
    assert f"pip install -e '.[{'course' if needs_torch else 'notebook'}]'" in first.source


# --- Exercises ------------------------------------------------------------------------------------


def exercise_of(name):
    """Return the learner's cell, the cell that judges it, and the source of the solution."""
    cells = read(name).cells
    (at,) = (n for n, c in enumerate(cells) if "exercise" in c.metadata.get("tags", []))
    (heading,) = (c for c in cells if c.source.startswith("## Exercise"))
    assert heading is cells[at - 1]
    folded = r"<details><summary>Solution</summary>\s+```python\n(.+?)\n```.*</details>"
    return cells[at], cells[at + 1], re.fullmatch(folded, cells[at + 2].source, re.DOTALL)[1]


@every_lesson
def test_an_exercise_is_not_solved_as_stored_and_says_what_is_wrong(name):
    _, judge, _ = exercise_of(name)
    (output,) = judge.outputs
    assert output.text.startswith("not yet: ")
    assert output.text.count("\n") <= 3


def imported(name):
    """Return the names that a notebook imports at the top level."""
    lines = [
        line
        for cell in read(name).cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if re.fullmatch(r"(import|from) .+", line)
    ]
    for line in lines:
        if framework := re.match(r"import (torch|jax)\b", line):
            pytest.importorskip(framework[1], reason=f"{framework[1]} is not installed")
    names = {}
    exec("\n".join(lines), names)
    return names


@every_lesson
def test_the_folded_solution_solves_the_exercise(name, capsys, monkeypatch):
    monkeypatch.chdir(NOTEBOOKS)
    stub, judge, solution = exercise_of(name)
    names = imported(name)
    exec(stub.source, names)
    names["y"] = None  # as in the notebook, so that a fix overwrites no existing name
    exec(judge.source, names)
    assert capsys.readouterr().out == judge.outputs[0].text
    exec(solution, names)
    exec(judge.source, names)
    assert capsys.readouterr().out.startswith("solved: ")


@pytest.mark.parametrize("name", REFUSED_ON_PURPOSE)
def test_a_refusal_is_the_users_line_and_a_card(name):
    (cell,) = (c for c in read(name).cells if "raises-exception" in c.metadata.get("tags", []))
    card, error = cell.outputs
    assert "tma-violation" in card.data["text/html"]
    (line,) = (text for text in error.traceback if text.startswith("---->"))
    assert line.split(maxsplit=2)[2] in cell.source
    rules = error.traceback[-1].removeprefix("TmaPreconditionError: ").split(", ")
    assert all(f"violation {rule}" in card.data["text/html"] for rule in rules)


def test_the_kernel_for_blackwell_is_compiled_and_marked_as_not_run():
    notebook = read("08_blackwell")
    assert "compiled, not run here: sm_100a, sm_103a, sm_110a" in said(notebook)
    assert "**Nothing in this chapter was run on a Blackwell GPU" in notebook.cells[0].source


def test_the_h200_output_of_the_extension_is_marked_as_stored():
    text = said(read("04_pytorch_extension"))
    assert re.search(r"stored output, not run here \(NVIDIA H200, driver \d+\.\d+", text)
    assert "189 tiles of (16, 32) doubled: True" in text


def test_the_h200_table_of_the_gemm_is_marked_as_stored_and_right():
    text = said(read("06_hopper_gemm"))
    assert re.search(r"stored output, not run here \(NVIDIA H200, driver \d+\.\d+", text)
    rows = [line for line in text.splitlines() if re.match(r"  (8192|4096)  ", line)]
    assert len(rows) == 6
    assert all(row.endswith("right") for row in rows)


def test_the_h200_table_of_the_grouped_gemm_is_marked_as_stored_and_right():
    text = said(read("07_grouped_gemm"))
    assert re.search(r"stored output, not run here \(NVIDIA H200, driver \d+\.\d+", text)
    rows = [line for line in text.splitlines() if re.match(r"(8|32|64), \d+, \d+, \d+ ", line)]
    assert len(rows) == 3
    assert all(row.endswith("right") for row in rows)


def test_the_readmes_figures_are_what_the_command_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "FIGURES", tmp_path)
    execute.draw_readme_figures()
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_bytes() for path in (NOTEBOOKS / "figures").iterdir()}
    assert set(drawn) == set(execute.README_FIGURES)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, LIGHT),
        pytest.param(640, DARK, marks=pytest.mark.slow),
        pytest.param(1280, DARK, marks=pytest.mark.slow),
        pytest.param(640, LIGHT, marks=pytest.mark.slow),
    ],
)
def test_an_executed_notebook_has_no_label_out_of_place(chromium, width, scheme):
    exporter = HTMLExporter(theme=scheme, mathjax_url="", require_js_url="", jquery_url="")
    page, _ = exporter.from_notebook_node(read("02_one_call"))
    found = screens.audit(chromium, "notebook", page, width, scheme)
    assert found["wrong"] == []
    assert found["labels"] > 150
    is_dark = sum(map(int, re.findall(r"\d+", found["ground"])[:3])) < 3 * 128
    assert is_dark == (scheme == DARK)
