"""Compiled kernels are cached until the source, an option or an included header changes."""

import shutil
import subprocess

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.kernel import compile as compiler

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

KERNELS = """
#include "value.cuh"
#include <scaled.cuh>
__global__ void one(int* out) { *out = VALUE; }
__global__ void scaled(int* out) { *out = SCALE * VALUE; }
template <int N> __global__ void times(int* out) { *out = N * VALUE; }
int main() {}
"""


@pytest.fixture
def source(tmp_path):
    """A file with its header, and a folder of -I with another header, which includes a third."""
    (tmp_path / "k.cu").write_text(KERNELS)
    (tmp_path / "value.cuh").write_text("#define VALUE 1\n")
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "scaled.cuh").write_text('#include "scale.cuh"\n')
    (folder / "scale.cuh").write_text("#define SCALE 10\n")
    return tmp_path / "k.cu"


def value(source, name):
    out = np.zeros(1, np.int32)
    options = ["-I", str(source.parent / "more")]
    tma.run_kernel(source, name=name, grid=1, block=1, args=[out], options=options)
    return int(out[0])


def test_a_changed_header_is_compiled_again(source):
    assert [value(source, "one"), value(source, "scaled")] == [1, 10]
    (source.parent / "value.cuh").write_text("#define VALUE 23\n")
    assert [value(source, "one"), value(source, "scaled")] == [23, 230]
    (source.parent / "more" / "scale.cuh").write_text("#define SCALE 100\n")
    assert value(source, "scaled") == 2300


def test_kernels_of_one_file_are_compiled_once_by_nvcc(source, monkeypatch):
    runs, run = [], subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda *words, **more: runs.append(run(*words, **more)) or runs[-1]
    )
    monkeypatch.setattr(compiler, "nvrtc_bindings", missing)
    assert [value(source, name) for name in ("one", "scaled", "one")] == [1, 10, 1]
    assert len(runs) == 1
    assert [value(source, f"times<{n}>") for n in (3, 4)] == [3, 4]
    assert len(runs) == 3


def missing():
    raise tma.TmaUnsupportedError("no NVRTC here")
