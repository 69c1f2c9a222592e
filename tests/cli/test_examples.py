"""Every example in ``--help`` runs in a folder that contains the files that the example names."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import webbrowser
from pathlib import Path

import pytest

import tma_dlpack
from tma_dlpack.cli.main import main
from tma_dlpack.cli.table import commands

ROOT = Path(__file__).parents[2]
EXAMPLES = [example for row in commands().values() for example in row.examples]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(Path(__file__).with_name("examples"), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    here = Path(sys.executable).parent  # this folder has the `python` that the examples call
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, folder, capfd):
    status = main(shlex.split(example))
    talk = capfd.readouterr().err
    if example.startswith("verify ") and status == 2:
        assert "no CUDA driver" in talk
        return
    assert status in (0, 1), talk
    assert "error:" not in talk
    for written in re.findall(r"(?:-o|--out|--html) (\S{2,})", example):
        assert (folder / written).stat().st_size > 50


def test_every_command_has_an_example_of_its_own_name():
    for name, row in commands().items():
        assert row.examples
        assert [example for example in row.examples if example.split()[0] != name] == []


def test_every_command_is_in_the_readme_or_the_guide_and_has_a_line_about_it():
    pages = [ROOT / "README.md", *(ROOT / "notebooks").rglob("*.md")]
    text = " ".join(" ".join(page.read_text("utf-8").split()) for page in pages)
    for name, row in commands().items():
        assert row.about[0].islower()
        assert row.about[-1] != "."
        assert f"tma-dlpack {name}" in text, f"no page of the guide names the command {name}"


def test_no_module_of_commands_imports_more_than_it_needs_to_register():
    """A command imports its modules when it runs, so --help is as quick as the import."""
    package = Path(tma_dlpack.__file__).parent
    late = ("checks", "draw", "make", "debug", "explorer", "suggestions", "verification", "copies")
    modules = [*(package / "cli").glob("*.py"), *package.glob("*/commands.py")]
    assert len(modules) >= 8
    for module in modules:
        text = module.read_text("utf-8")
        # `core.py` of a room imports each name on first use
        top = re.findall(r"^from tma_dlpack\.(\w+)(?!\w*\.core )", text, flags=re.MULTILINE)
        assert set(top) & set(late) == set(), module
