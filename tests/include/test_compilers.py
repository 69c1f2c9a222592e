"""The page of compilers: its rows are the header's own guards; the installed NVRTC compiles all."""

import re
import shutil
import subprocess
from pathlib import Path

import compilers
import pytest
from compile_matrix import ROOT, text_of_headers

from tma_dlpack.include import get_include

PAGE = ROOT / "notebooks" / "reference" / "compilers.md"


def test_what_needs_a_later_release_than_its_target_is_guarded_in_the_header():
    rows = dict(re.findall(r"^\| \[`(\w+)`\]\S+ \| (\S+) \|", PAGE.read_text("utf-8"), re.M))
    assert rows == {"arrive_remote_relaxed": "12.8", "wgmma": "12.6"}
    guards = set(re.findall(r"TMA_DLPACK_NEEDS_CUDA\(\"(\d+\.\d+)\"", text_of_headers()))
    assert guards == set(rows.values())


def test_releases_compare_by_their_numbers():
    assert sorted(["12.10", "12.9", "13.0"], key=compilers.release_of) == ["12.9", "12.10", "13.0"]


def test_a_verb_that_a_release_lacks_is_a_row_of_the_page():
    verbs = {target: {"load": first} for target, first in compilers.TARGETS.items()}
    assert "| [`load`]" not in compilers.page(["12.4"], verbs, {})
    verbs["sm_90a"]["load"] = "12.9"
    row = "| [`load`](headers.md#load) | 12.9 | 12.8 | 12.8 |"
    assert row in compilers.page(["12.4"], verbs, {})


@pytest.mark.slow
def test_the_installed_nvrtc_compiles_every_verb_of_hopper_with_and_without_the_checks():
    nvidia = pytest.importorskip("nvidia")
    found = [
        library
        for folder in nvidia.__path__
        for library in Path(folder).rglob("libnvrtc.so.1?")
        if "alt" not in library.name
    ]
    if not found:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    plain, checked = (compilers.verbs_of(found[0], "sm_90a", check) for check in (False, True))
    assert plain == checked
    assert {"load", "wgmma", "reduce_bulk", "arrive_remote_relaxed"} <= plain
    assert "tcgen05_mma" not in plain


@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
def test_a_clang_that_ignores_grid_constant_is_refused(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text("#include <tma_dlpack.h>\n")
    options = ["-x", "cuda", "--cuda-gpu-arch=sm_90a", "-std=c++17", "-fsyntax-only"]
    command = ["clang++", *options, "-nocudainc", "-nocudalib", f"-I{get_include()}", source]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    asked = "#if __has_attribute(grid_constant)\nint yes;\n#endif"
    macro = ["clang++", "-E", "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-"]
    knows = "yes" in subprocess.run(macro, input=asked, capture_output=True, text=True).stdout
    assert ("this clang ignores __grid_constant__" in said) == (not knows)
