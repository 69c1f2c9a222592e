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


def test_the_code_runs_on_a_machine_without_a_gpu():
    pytest.importorskip("torch")
    code = "\n".join(blocks("python")).replace('device="cuda"', 'device="cpu"')
    on_the_cpu = re.sub(r"^tm\.ptr .*$", "", code, flags=re.MULTILINE)  # a host map has no ptr
    assert on_the_cpu != code
    names: dict[str, object] = {}
    exec(compile(on_the_cpu, "README.md", "exec"), names)
    assert names["x"][96, 64:].tolist() == list(range(36))


def test_the_refusal_is_what_the_command_prints(capsys):
    assert f"`python -m tma_dlpack {REFUSED}`" in README
    assert main(REFUSED.split()) == 1
    assert capsys.readouterr().out.strip() in README


def test_ci_installs_with_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install -e '.[test]' && .venv/bin/pytest" in README
    assert "-e '.[test]'" in script
    assert '"$venv/bin/pytest"' in script


def test_files_that_the_readme_names_exist():
    paths = re.findall(r"(?:notebooks|tests)/[\w./]+\.(?:svg|ipynb|cu|py|npz)", README)
    assert len(paths) >= 5
    assert [p for p in paths if not (ROOT / p).exists()] == []
