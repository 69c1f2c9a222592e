"""notebooks/extension is built as a reader builds it, and its own tests run on the GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tma_dlpack as tma

TEMPLATE = Path(__file__).parents[2] / "notebooks" / "extension"
SECONDS = 300


@pytest.fixture
def folder(tmp_path):
    """A copy of the template."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is needed to build the extension")
    ignored = shutil.ignore_patterns("*.so", "build", "__pycache__")
    return shutil.copytree(TEMPLATE, tmp_path / "extension", ignore=ignored)


def python(folder, *arguments):
    """Run Python in the folder, with all compilation caches in the folder; return the output."""
    caches = (
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "TRITON_CACHE_DIR",
        "CUPY_CACHE_DIR",
    )
    environment = os.environ | {name: str(folder / "caches" / name) for name in caches}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    package = str(Path(tma.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        timeout=SECONDS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0
    return done.stdout


def own_tests(folder, name):
    plain = ("-q", "-rs", f"--rootdir={folder}", "-c", os.devnull, "-p", "no:cacheprovider")
    return python(folder, "-m", "pytest", *plain, name)  # the status is 0 if all tests pass


@pytest.mark.slow
def test_the_operator_built_by_setup_py_passes_its_tests(torch, folder):
    python(folder, "setup.py", "-q", "build_ext", "--inplace")
    assert [*folder.glob("_tma_example*.so")]
    printed = own_tests(folder, "test_torch.py")
    assert ("skipped" in printed) == (torch.cuda.device_count() < 2)


@pytest.mark.slow
def test_the_wheel_by_the_stable_abi_passes_its_tests(torch, folder):
    pytest.importorskip("scikit_build_core")
    python(folder, "-m", "pip", "-q", "wheel", "--no-build-isolation", "--no-deps", ".")
    (wheel,) = folder.glob("tma_example-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # the library next to tma_example_wheel/__init__.py
    assert "skipped" not in own_tests(folder, "test_wheel.py")


@pytest.mark.slow
def test_the_operator_compiled_at_its_first_import_doubles(torch, folder):
    if shutil.which("ninja") is None:
        pytest.skip("cpp_extension.load needs ninja")
    run = (
        "import torch; from tma_example import doubled; x = torch.rand(100, 64, device='cuda'); "
        "print('equal:', torch.equal(doubled(x), 2 * x))"
    )
    assert "equal: True" in python(folder, "-c", run)


@pytest.mark.slow
def test_the_handler_of_jax_passes_its_tests(jax, folder):
    assert "skipped" not in own_tests(folder, "test_jax.py")


@pytest.mark.slow
def test_the_raw_kernel_of_cupy_passes_its_tests(cupy, folder):
    assert "skipped" not in own_tests(folder, "test_cupy.py")


@pytest.mark.slow
def test_the_handler_built_by_cmake_passes_the_same_tests(jax, folder):
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    defined = f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"
    cmake = "import subprocess, sys; subprocess.run(['cmake', *sys.argv[1:]], check=True)"
    python(folder, "-c", cmake, "-B", "build", *defined)
    python(folder, "-c", cmake, "--build", "build")
    shutil.copy(folder / "build" / "libtma_example_jax.so", folder)
    assert "skipped" not in own_tests(folder, "test_jax.py")


@pytest.mark.slow
def test_the_twelve_lines_of_the_readme_run_and_find_their_tile_right(cupy, folder):
    wrong = (folder / "twelve_lines.py").read_text().replace("x[16:32, 32:64]", "x[16:32, 31:63]")
    python(folder, "twelve_lines.py")
    (folder / "wrong.py").write_text(wrong)
    with pytest.raises(AssertionError):
        python(folder, "wrong.py")
