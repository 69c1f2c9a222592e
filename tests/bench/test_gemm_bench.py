"""`bench gemm`, `conv` and `grouped` without a GPU, and the compilation of their kernels."""

import shutil
import subprocess
from pathlib import Path

import pytest
from laws import slow_if

import tma_dlpack as tma
from bench import conv, gemm, grouped, hopper, l2, ladder
from tma_dlpack import driver

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SM_90A = "-gencode=arch=compute_90a,code=sm_90a"


def test_a_missing_kernel_says_where_it_lies(tmp_path):
    with pytest.raises(tma.TmaUnsupportedError, match=r"not in the wheel; pass --source with the"):
        hopper.compile_file(tmp_path / "hopper_gemm.cu")


@pytest.mark.skipif(driver.status().reason is None, reason="there is a GPU here")
@pytest.mark.parametrize("bench", [gemm, conv, grouped, ladder, l2])
def test_without_a_gpu_a_bench_says_what_is_missing(bench):
    pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(tma.TmaUnsupportedError, match="no CUDA driver"):
        bench.main([])


def test_a_ratio_is_our_speed_over_torchs():
    assert hopper.Comparison(ours=600.0, torchs=800.0).ratio == 0.75


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "name",
    [
        "hopper_gemm.cu",
        "grouped_gemm.cu",
        "l2_cache.cu",
        pytest.param("gemm_ladder.cu", marks=pytest.mark.slow),
        pytest.param("hopper_conv.cu", marks=pytest.mark.slow),
    ],
)
def test_a_kernel_compiles_for_sm_90a_without_spilling(name, tmp_path):
    compile_without_spilling(tmp_path, NOTEBOOKS / name, SM_90A)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("checked", [0, 1])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(
    "target", [slow_if(t != "100a", t) for t in ("100a", "100f", "103a", "110a")]
)
def test_the_blackwell_kernel_compiles_for_every_target_with_tcgen05(
    target, blocks, checked, tmp_path
):
    options = (
        f"-gencode=arch=compute_{target},code=sm_{target}",
        f"-DBLOCKS={blocks}",
        f"-DTMA_DLPACK_CHECK={checked}",
    )
    compile_without_spilling(tmp_path, NOTEBOOKS / "blackwell_gemm.cu", *options)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("blocks", [1, 2])
def test_lint_finds_nothing_in_the_blackwell_kernel(blocks):
    flags = ["-arch=sm_100a", f"-DBLOCKS={blocks}"]
    assert tma.lint(NOTEBOOKS / "blackwell_gemm.cu", nvcc_flags=flags).findings == ()


def compile_without_spilling(folder, source, *options):
    command = ["nvcc", "-std=c++17", *options, "-cubin", "-Xptxas", "-v", f"-I{tma.get_include()}"]
    command += ["-Werror=all-warnings", "-o", str(folder / "out.cubin"), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    spills = [line for line in built.stderr.splitlines() if "spill stores" in line]
    assert spills
    assert all("0 bytes spill stores, 0 bytes spill loads" in line for line in spills)


@pytest.mark.parametrize(
    ("name", "most"),
    [("hopper_gemm.cu", 350), ("grouped_gemm.cu", 200), ("blackwell_gemm.cu", 140)],
)
def test_a_kernel_is_short_enough_to_be_read_from_top_to_bottom(name, most):
    assert len((NOTEBOOKS / name).read_text().splitlines()) <= most
