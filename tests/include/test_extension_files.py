"""notebooks/extension builds without a GPU: PyTorch's operator, JAX's handler, CMake's lines."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tma_dlpack as tma

TEMPLATE = Path(__file__).parents[2] / "notebooks" / "extension"
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")


def text_of(name):
    return (TEMPLATE / name).read_text(encoding="utf-8")


def test_every_file_makes_maps_of_the_kernels_tile():
    found = re.search(
        r"ROWS = (\d+), COLUMNS = (\d+), THREADS = (\d+), BLOCKS = (\d+);",
        text_of("double_tiles.cu"),
    )
    rows, columns, threads, blocks = found.groups()
    for name in ("torch_operator.cpp", "jax_handler.cpp"):
        assert f"{{{rows}, {columns}}}, tma_dlpack::Swizzle::none" in text_of(name)
    python = text_of("cupy_double.py")
    assert f"make_tma_descriptor(m, ({rows}, {columns})," in python
    assert f"-(-x.shape[1] // {columns})" in python
    assert f"-(-x.shape[0] // {rows})" in python
    assert f"((min(tiles, {blocks}),), ({threads},)," in python


def test_setup_py_and_the_first_import_build_the_same_sources():
    for name in ("setup.py", "tma_example.py"):
        sources = re.findall(r'"(\w+\.(?:cu|cpp))"', text_of(name))
        assert sources == ["double_tiles.cu", "torch_operator.cpp"]
        assert "-gencode=arch=compute_90a,code=sm_90a" in text_of(name)


@pytest.mark.slow
@needs_nvcc
def test_cmake_builds_the_handler_of_jax(tmp_path):
    pytest.importorskip("jax")
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    subprocess.run(["cmake", "-S", TEMPLATE, "-B", tmp_path, python], check=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True)
    assert ctypes.CDLL(str(tmp_path / "libtma_example_jax.so")).Doubled


@pytest.mark.slow
@needs_nvcc
def test_the_operator_compiles_with_torchs_headers(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    from torch.utils import cpp_extension

    left_out = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"  # by torch without CUDA
    left_out.parent.mkdir(parents=True)
    left_out.touch()
    torchs = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
    include = [f"-I{tma.get_include()}", *torchs, f"-I{tmp_path}"]
    command = [NVCC, "-std=c++20", "-Werror=all-warnings", "-c", *include]
    source, built = TEMPLATE / "torch_operator.cpp", tmp_path / "torch_operator.o"
    subprocess.run([*command, source, "-o", built], check=True)
    assert b"tma_example" in built.read_bytes()


@needs_nvcc
def test_the_kernel_compiles_with_and_without_the_checks(tmp_path):
    flags = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", f"-I{tma.get_include()}"]
    for checks in (0, 1):
        built = tmp_path / f"{checks}.cubin"
        command = [NVCC, *flags, f"-DTMA_DLPACK_CHECK={checks}", "-cubin", "-o", built]
        subprocess.run([*command, TEMPLATE / "double_tiles.cu"], check=True)
        assert (b"double_tiles.cu" in built.read_bytes()) == bool(
            checks
        )  # the lines that it prints
