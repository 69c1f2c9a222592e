"""The README: its code runs, its commands are those of .ci/run, its refusal is the printed one."""

import re
from pathlib import Path

import pytest

from tma_dlpack.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFUSED = "check --shape 64,1733 --dtype float16 --box 64,64"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"), ids=("first", "descriptor"))
def test_each_block_of_code_runs_by_itself_without_a_gpu(code):
    if "import torch" in code:
        pytest.importorskip("torch", reason="torch is not installed")
        on_the_cpu = code.replace('device="cuda"', 'device="cpu"')
        assert on_the_cpu != code
        code = re.sub(r"^tm\.ptr .*$", "", on_the_cpu, flags=re.MULTILINE)  # a host map has no ptr
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_the_first_block_needs_what_the_first_command_installs():
    assert set(re.findall(r"^import (\w+)", blocks("python")[0], flags=re.MULTILINE)) == {
        "numpy",
        "tma_dlpack",
    }


def test_the_refusal_is_what_the_command_prints(capsys):
    assert f"`python -m tma_dlpack {REFUSED}`" in README
    assert main(REFUSED.split()) == 1
    assert capsys.readouterr().out.strip() in README


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install -e . && .venv/bin/python -m tma_dlpack demo" in README
    assert "pip install -e .\n" in script
    assert "-m tma_dlpack demo" in script
    assert "pip install -e '.[test]' && .venv/bin/pytest" in README
    assert "-e '.[test]'" in script
    assert '"$venv/bin/pytest"' in script
    assert "pip install 'tma_dlpack[docs," in script
    assert "sphinx-build -W notebooks build/site" in README  # as test_site.py does


def test_files_that_the_readme_names_exist():
    paths = re.findall(r"(?:notebooks|tests|\.packaging)/[\w./]+\.(?:svg|ipynb|cu|py|md)", README)
    assert len(paths) >= 5
    assert [p for p in paths if not (ROOT / p).exists()] == []
