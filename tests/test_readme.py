"""The README: its code runs and prints the shown output, and .ci/run uses its commands."""

import re
import shlex
from pathlib import Path

import pytest

from tma_dlpack.cli.main import main
from tma_dlpack.cli.table import commands
from tma_dlpack.debug import Trace
from tma_dlpack.verification import VerifyReport, VerifyRow

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFUSED = "check --shape 64,1733 --dtype float16 --box 64,64"
FIRST_SCREEN = 60  # lines


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


LAUNCH, *ON_THE_HOST = blocks("python")


def run(code):
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("code", ON_THE_HOST, ids=("simulator", "descriptor"))
def test_each_block_of_code_runs_by_itself_without_a_gpu(code):
    if "import torch" in code:
        pytest.importorskip("torch", reason="torch is not installed")
        on_the_cpu = code.replace('device="cuda"', 'device="cpu"')
        assert on_the_cpu != code
        code = re.sub(r"^tm\.ptr .*$", "", on_the_cpu, flags=re.MULTILINE)  # a host map has no ptr
    run(code)


@pytest.mark.gpu
def test_the_kernel_is_launched_and_copies_its_tile():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    run(LAUNCH)


def test_the_kernel_is_the_example_that_the_gpu_tests_run():
    example = (ROOT / "notebooks/extension/twelve_lines.py").read_text(encoding="utf-8")
    lines = [line for line in LAUNCH.splitlines() if line]
    assert lines == [line for line in example.partition('"""\n')[2].splitlines() if line]


def test_the_block_without_a_gpu_needs_what_the_first_command_installs():
    imported = re.findall(r"^import (\w+)", ON_THE_HOST[0], flags=re.MULTILINE)
    assert imported == ["numpy", "tma_dlpack"]


def test_the_first_screen_has_a_picture_a_launch_and_the_same_without_a_gpu():
    first = "\n".join(README.splitlines()[:FIRST_SCREEN])
    assert "](notebooks/figures/copy.svg)" in first
    assert LAUNCH in first
    assert "tma.load_tile" in first
    assert "tma-dlpack demo" in first


def test_the_refusal_is_what_the_command_prints(capsys):
    assert f"`tma-dlpack {REFUSED}`" in README
    assert main(REFUSED.split()) == 1
    assert capsys.readouterr().out.strip() in README


#: A row of the table of tools: the command, and a line that it prints.
TOOLS = dict(re.findall(r"^\| \[`(\w+)`\]\(.*\| `([^`|]+)` \|$", README, flags=re.MULTILINE))


@pytest.mark.parametrize(
    "words",
    [
        "check --shape 128,64 --dtype float16 --box 16,6",
        "suggest --shape 4096,4096 --dtype bfloat16 --tile 128,64",
        "explain error 715",
        f"postmortem {ROOT / 'tests/cli/examples/dead.core'}",
        f"lint {ROOT / 'tests/cli/examples/kernel.ptx'}",
    ],
)
def test_a_tool_prints_the_line_that_the_table_shows(words, capsys):
    main(shlex.split(words))
    assert TOOLS[words.split()[0]] in " ".join(capsys.readouterr().out.split())


def test_the_tools_that_need_a_gpu_print_the_lines_that_the_table_shows():
    trace = Trace.from_json((ROOT / "notebooks/09_trace.json").read_text(encoding="utf-8"))
    assert TOOLS["trace"] in str(trace)
    report = VerifyReport("a GPU", 0, (VerifyRow("tile loads", 1, 1, 0),))
    assert TOOLS["verify"] == str(report).splitlines()[-1]


def test_every_tool_of_the_table_is_a_command():
    listed = set(re.findall(r"^\| \[`(\w+)`\]", README, flags=re.MULTILINE))
    assert listed <= set(commands())
    assert {
        "check",
        "suggest",
        "explore",
        "explain",
        "trace",
        "postmortem",
        "lint",
        "verify",
    } <= listed


def test_the_speeds_are_those_of_the_guide_rounded():
    guide = (ROOT / "notebooks/guide/speed.md").read_text(encoding="utf-8")
    ours = re.search(r"torch CUDA tensor, repeated.*? \| ([\d.]+) / ", guide)[1]
    theirs = re.search(r"cuda\.core / .*? \| ([\d.]+) / ", guide)[1]
    said = re.findall(r"takes ([\d.]+) us; cuda.core takes ([\d.]+)", README)
    assert said == [(f"{float(ours):.1f}", f"{float(theirs):.0f}")]
    assert "bare `__dlpack__`" not in README  # a unit of ours


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install -e . && .venv/bin/tma-dlpack demo" in README
    assert "pip install -e .\n" in script
    assert 'tma-dlpack" demo' in script
    assert "pip install -e '.[test]' && .venv/bin/pytest" in README
    assert "-e '.[test]'" in script
    assert '"$venv/bin/pytest"' in script
    assert "pip install 'tma_dlpack[docs," in script
    assert "sphinx-build -W notebooks build/site" in README  # as test_site.py does


def test_links_are_relative_and_lead_to_files():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 20
    assert [link for link in links if not (ROOT / link).is_file()] == []
    assert [link for link in links if not link.startswith("notebooks/")] == []  # the site has these
