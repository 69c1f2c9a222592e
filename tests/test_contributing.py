"""The text for contributors is true: packages, links, commands and forms."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from test_layers import PACKAGE, ROOMS

import tma_dlpack as tma
from tma_dlpack.make import extension

ROOT = Path(__file__).parent.parent
FORMS = sorted((ROOT / ".github").rglob("*.yml"))
ARCHITECTURE = (ROOT / "notebooks/guide/architecture.md").read_text("utf-8")


def test_the_architecture_has_every_room_in_the_order_of_the_floors():
    listed = re.findall(r"^\| \d \| `(\w+)/` \|", ARCHITECTURE, flags=re.MULTILINE)
    folders = [room for room in ROOMS if (PACKAGE / room).is_dir()]
    assert sorted(listed) == sorted(folders)
    floors = [int(n) for n in re.findall(r"^\| (\d) \| `", ARCHITECTURE, flags=re.MULTILINE)]
    assert floors == sorted(floors)


def test_the_picture_of_the_floors_has_the_rooms_of_the_table():
    table = re.findall(r"^\| (\d) \| `(\w+/)` \|", ARCHITECTURE, flags=re.MULTILINE)
    table += [
        ("7", "torch_ops.py"),
        ("7", "__init__.py"),
    ]  # files that a sentence below the table names
    lines = re.findall(r"^  (\d)   (\S+(?:   \S+)*)", ARCHITECTURE, flags=re.MULTILINE)
    drawn = [(floor, name) for floor, names in lines for name in names.split()]
    assert sorted(drawn) == sorted(table)
    assert [floor for floor, _ in lines] == sorted({floor for floor, _ in table}, reverse=True)


def test_the_files_that_the_architecture_names_exist():
    named = re.findall(r"(?<![.\w/])((?:[a-z]+/)+\w+\.(?:py|h|hpp|c))\b", ARCHITECTURE)
    assert len(named) >= 8
    in_checkout = (ROOT / "tma_dlpack").is_dir()  # a wheel has no C sources
    named = [n for n in named if in_checkout or not re.search(r"\.c$|^native/", n)]
    missing = [n for n in named if not (PACKAGE / n).is_file() and not (ROOT / n).is_file()]
    assert missing == []


LOG = "globalDim (64,64)\nglobalStrides (128)\nboxDim (64,100)\ncuTensorMapEncodeTiled returned 700"
PATHS = {  # heading of the page -> a call of this kind
    "a refused call": lambda x: str(tma.check_tma_descriptor(x, (64, 100), swizzle="bytes128")),
    "an explained call": lambda x: str(tma.explain(LOG)),
}


@pytest.mark.skipif(not extension.COMPILED, reason="the page has the path with the extension")
@pytest.mark.parametrize("path", PATHS)
def test_a_call_enters_the_files_that_the_architecture_has_on_its_path(path):
    x = np.zeros((256, 128), np.float16)
    section = ARCHITECTURE.partition(f"## The path of {path}")[2].partition("\n## ")[0]
    named = set(re.findall(r"^  ((?:\w+/)+\w+\.py) ", section, flags=re.MULTILINE))
    entered = set()

    def watch(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if PACKAGE in file.parents:
            entered.add(str(file.relative_to(PACKAGE)))

    sys.setprofile(watch)
    try:
        PATHS[path](x)
    finally:
        sys.setprofile(None)
    assert len(named) > 5
    assert named - entered == set()


def test_links_of_the_contributing_page_lead_to_files():
    page = ROOT / ".github/CONTRIBUTING.md"
    links = re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).is_file()] == []


def test_commits_are_linted_by_what_ci_runs():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    script = (ROOT / ".ci/run").read_text("utf-8")
    script = re.sub(r'"\$venv/bin/(\w+)"', r"\1", script)
    for lint in ("ruff format", "ruff check", "mypy --strict tma_dlpack"):
        assert f"entry: {lint}" in hooks
        assert lint in script


def test_the_workflow_runs_the_ci_script():
    assert "- run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text("utf-8")


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_forms_and_workflows_are_yaml(form):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    content = yaml.safe_load(form.read_text("utf-8"))
    assert content["name"]
    fields = [field for field in content.get("body", []) if field["type"] != "markdown"]
    assert all(field["id"] and field["attributes"]["label"] for field in fields)
