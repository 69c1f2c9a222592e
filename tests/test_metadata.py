"""The metadata of the wheel: README's links have targets, and no extra pins a framework."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BACKEND = ROOT / ".packaging" / "tma_dlpack_build.py"
URL = "https://example.com/owner/tma_dlpack"

if not BACKEND.exists() or not (ROOT / "tma_dlpack").is_dir():
    pytest.skip("the build backend is not part of the wheel", allow_module_level=True)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    """Return a function that makes the metadata for a URL of the repository, or for none."""
    pytest.importorskip("setuptools")
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / ".packaging", tree / ".packaging")
    (tree / "tma_dlpack").mkdir()
    shutil.copy(ROOT / "tma_dlpack" / "__init__.py", tree / "tma_dlpack")
    code = (
        "import sys; sys.path.insert(0, '.packaging'); import tma_dlpack_build as b; "
        "print(b.prepare_metadata_for_build_wheel('.'))"
    )

    def of(url: str):
        environment = os.environ | {"TMA_DLPACK_URL": url}
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        folder = tree / done.stdout.splitlines()[-1]
        return message_from_string((folder / "METADATA").read_text("utf-8"))

    return of


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


def test_with_the_repositorys_address_every_link_is_to_a_file_of_the_release(metadata):
    found = metadata(URL)
    version = found["Version"]
    links = links_of(found.get_payload())
    assert len(links) == len(links_of((ROOT / "README.md").read_text("utf-8"))) > 20
    for link in links:
        assert link.startswith(("https://", "#")), link
        if link.startswith(URL):
            path = re.match(rf"{URL}/(?:blob|raw)/v{version}/([^#]+)", link)[1]
            assert (ROOT / path).is_file(), path
    urls = dict(line.split(", ", 1) for line in found.get_all("Project-URL"))
    assert urls["Source"] == URL
    assert {"Issues", "Documentation", "Changelog", "Security"} < urls.keys()


def test_without_it_no_link_leads_nowhere(metadata):
    found = metadata("")
    assert found.get_all("Project-URL") is None
    links = links_of(found.get_payload())
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "[`check`](" not in found.get_payload()
    assert "`check`" in found.get_payload()


def test_no_extra_pins_a_framework_and_the_readmes_extras_exist(metadata):
    found = metadata("")
    required = found.get_all("Requires-Dist")
    assert [text for text in required if "==" in text.split(";")[0]] == []
    assert {"test", "frameworks", "cuda", "docs"} <= {*found.get_all("Provides-Extra")}
    assert "Dependency-Groups" not in found.as_string()


def test_links_of_every_kind():
    spec = importlib.util.spec_from_file_location("tma_dlpack_build", BACKEND)
    pytest.importorskip("setuptools")
    from setuptools import Distribution

    before = Distribution.parse_config_files
    backend = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(backend)
    finally:
        Distribution.parse_config_files = before
    text = "![one](a/b.svg) [two](c.md#d) [three](#e) [four](https://f.org)"
    assert backend.absolute_links(text, URL, "1.2.3") == (
        f"![one]({URL}/raw/v1.2.3/a/b.svg) [two]({URL}/blob/v1.2.3/c.md#d) "
        "[three](#e) [four](https://f.org)"
    )
    assert backend.absolute_links(text, "", "1.2.3") == " two [three](#e) [four](https://f.org)"
