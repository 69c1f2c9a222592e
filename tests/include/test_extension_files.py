"""notebooks/extension builds without a GPU: PyTorch's operator, JAX's handler, CMake's lines."""

from __future__ import annotations

import ctypes
import importlib.util
import os
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
    for name in ("torch_operator.cpp", "jax_handler.cpp", "stable_operator.cpp"):
        assert f"{{{rows}, {columns}}}, tma_dlpack::Swizzle::none" in text_of(name)
    assert f"make_tma_descriptor(m, ({rows}, {columns})," in text_of("test_wheel.py")
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


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_cmake_finds_only_the_versions_of_the_request(tmp_path):
    for file in Path(tma.get_include()).glob("*.cmake"):
        shutil.copy(file, tmp_path)
    (tmp_path / "tma_dlpack_tables.h").write_text("#define TMA_DLPACK_VERSION 10203\n")
    requests = {
        "1.2.3": True,
        "1.0": True,
        "1.2.4": False,
        "2.0": False,
        "1.2.3 EXACT": True,
        "1.2.2 EXACT": False,
        "1.0...1.2.3": True,
        "1.0...1.3": True,
        "1.0...2.0": True,
        "1.0...1.2": False,
        "1.0...<1.2.4": True,
        "1.0...<1.2.3": False,
        "1.2.4...1.3": False,
        "0.4...1.3": False,
    }
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(finds LANGUAGES NONE)\n"
        + "".join(
            f"set(tma_dlpack_DIR {tmp_path})\n"
            f"find_package(tma_dlpack {request} CONFIG QUIET)\n"
            'message("found: ${tma_dlpack_FOUND}")\n'
            for request in requests
        )
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [word == "1" for word in re.findall(r"found: (\d)", done.stderr)]
    assert dict(zip(requests, found, strict=True)) == requests


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


def copy_of_template(folder):
    ignored = shutil.ignore_patterns("*.so", "build", "__pycache__")
    return shutil.copytree(TEMPLATE, folder / "extension", ignore=ignored)


def require_defined_in_libtorch_cpu(library):
    """Check that the library calls only functions of torch that libtorch_cpu.so defines.

    The library is linked to no other library of torch. A weak symbol of libtorch_cuda.so would be
    NULL, because torch does not load its libraries into the global scope.
    """
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"\b(?:aoti_)?torch_\w+", printed)
    (folder,) = importlib.util.find_spec("torch").submodule_search_locations
    linked = ctypes.CDLL(str(Path(folder) / "lib" / "libtorch_cpu.so"))
    assert names
    assert [name for name in names if not hasattr(linked, name)] == []


@pytest.mark.slow
@needs_nvcc
def test_the_wheel_by_the_stable_abi_passes_its_tests_without_a_gpu(tmp_path):
    for needed in ("torch", "scikit_build_core"):
        pytest.importorskip(needed)
    folder, site = copy_of_template(tmp_path), tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    built = ["wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(folder)]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        pytest.skip("pip is not installed")
    subprocess.run([*pip, *built], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-linux_" in wheel.name  # no function of Python is called
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    require_defined_in_libtorch_cpu(*site.glob("tma_example_wheel/*.so"))
    package = str(Path(tma.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), package])}
    tests = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    command = [*tests, "--rootdir", str(folder), "test_wheel.py"]  # as in the guide
    subprocess.run(command, cwd=folder, env=environment, check=True)


CMAKE = """
cmake_minimum_required(VERSION 3.24)
project(finds LANGUAGES CXX)
find_package(tma_dlpack ${VERSION} CONFIG REQUIRED)
message(STATUS "found ${tma_dlpack_VERSION} in ${tma_dlpack_INCLUDE_DIR}")
add_library(finds OBJECT finds.cpp)
target_link_libraries(finds PRIVATE tma_dlpack::headers)
"""


def configured(folder, version):
    """Return CMake's output for a project that requests a version."""
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "finds.cpp").write_text("#include <tma_dlpack_make.hpp>\n")
    options = [f"-Dtma_dlpack_ROOT={tma.get_include()}", f"-DVERSION={version}"]
    command = ["cmake", "-S", folder, "-B", folder / f"build{version}", *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_find_package_finds_the_headers_of_a_version_that_serves(tmp_path):
    version = tma.__version__.split(".dev")[0]
    found = configured(tmp_path, version)
    assert found.returncode == 0, found.stderr
    assert f"found {version} in {tma.get_include()}" in found.stdout
    subprocess.run(["cmake", "--build", tmp_path / f"build{version}"], check=True)
    later = configured(tmp_path, "0.99")
    assert later.returncode != 0
    assert f"version: {version}" in later.stderr
    assert configured(tmp_path, "1.0").returncode != 0


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
