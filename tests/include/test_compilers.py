"""The page of compilers: rows equal the header's guards; the installed NVRTC compiles all rows."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import compilers
import pytest
from compile_matrix import ROOT, text_of_headers

from tma_dlpack.debug.lint import lint
from tma_dlpack.include import get_include

PAGE = ROOT / "notebooks" / "reference" / "compilers.md"


def test_what_needs_a_later_release_than_its_target_is_guarded_in_the_header():
    rows = dict(re.findall(r"^\| \[`(\w+)`\]\S+ \| (\S+) \|", PAGE.read_text("utf-8"), re.M))
    assert rows == {"arrive_remote_relaxed": "12.8", "wgmma": "12.6"}
    guards = set(re.findall(r"TMA_DLPACK_NEEDS_NVCC_OR_NVRTC\(\"(\d+\.\d+)\"", text_of_headers()))
    assert guards == set(rows.values())


def test_releases_compare_by_their_numbers():
    assert sorted(["12.10", "12.9", "13.0"], key=compilers.release_of) == ["12.9", "12.10", "13.0"]


def test_a_verb_that_a_release_lacks_is_a_row_of_the_page():
    verbs = {target: {"load": first} for target, first in compilers.TARGETS.items()}
    assert "| [`load`]" not in compilers.page(["12.4"], verbs, {})
    verbs["sm_90a"]["load"] = "12.9"
    row = "| [`load`](headers_copies.md#load) | 12.9 | 12.8 | 12.8 |"
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


@pytest.fixture(scope="module")
def clang_command(tmp_path_factory):
    """Clang 20 or later for the device part: the clang in ziglang, with Debian's headers.

    ziglang's clang has the NVPTX backend, but not clang's own headers for CUDA. The headers of an
    older clang include two CUDA headers that CUDA 13 no longer has.
    """
    installed = sorted(Path("/usr/local").glob("cuda*/nvvm/libdevice"))
    toolkit = installed[-1].parents[1] if installed else None
    wrappers = sorted(
        Path("/usr/lib").glob("llvm-*/lib/clang/*/include/__clang_cuda_runtime_wrapper.h")
    )
    if importlib.util.find_spec("ziglang") is None or toolkit is None or not wrappers:
        pytest.skip("needs ziglang, a CUDA toolkit, and clang's headers for CUDA (clang-19)")
    empty = tmp_path_factory.mktemp("empty")
    for name in ("texture_fetch_functions.h", "curand_mtgp32_kernel.h"):
        (empty / name).touch()
    device_only = "-x cuda --cuda-device-only --cuda-gpu-arch=sm_90a -S -std=c++17 -O3"
    host = "--target=x86_64-linux-gnu -stdlib=libstdc++ -Wno-unknown-cuda-version"
    folders = [f"--cuda-path={toolkit}", "-resource-dir", wrappers[-1].parents[1], f"-I{empty}"]
    clang = [sys.executable, "-m", "ziglang", "clang", *device_only.split(), *host.split()]
    return [*clang, *folders, f"-I{get_include()}"], toolkit / "bin/ptxas"


@pytest.mark.slow
@pytest.mark.parametrize("checked", [0, 1])
@pytest.mark.parametrize(
    "source",
    ["tests/gpu/header_kernels.cu", "tests/gpu/ways.cu", "notebooks/puzzle_solutions.cu"],
)
def test_clang_22_compiles_every_kernel_without_a_tensor_core(
    clang_command, source, checked, tmp_path
):
    command, ptxas = clang_command
    ptx = tmp_path / "kernel.ptx"
    check = f"-DTMA_DLPACK_CHECK={checked}"
    subprocess.run([*command, check, str(ROOT / source), "-o", str(ptx)], check=True)
    assemble = [ptxas, "-arch=sm_90a", ptx, "-o", tmp_path / "kernel.cubin"]
    subprocess.run(assemble, check=True)
    if source.endswith("solutions.cu") and not checked:
        assert lint(ptx.read_text()).findings == ()


@pytest.mark.slow
def test_clang_names_the_compilers_that_have_wgmma(clang_command, tmp_path):
    command, _ = clang_command
    source = str(ROOT / "notebooks/hopper_gemm.cu")
    done = subprocess.run([*command, source, "-o", tmp_path / "x"], capture_output=True, text=True)
    assert 'NEEDS_NVCC_OR_NVRTC("12.6"' in done.stderr
