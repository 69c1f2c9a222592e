"""CUDA tensors on a machine without a GPU: on_stand_in_gpu.py, and first calls.

The driver is loaded once per process, so each of these tests runs in a separate process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from laws import law
from stand_in_gpu import COMPILER, build, environment

from tma_dlpack.make import extension

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="libcuda.so.1 is looked for on Linux"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("libcuda")
    build(made)
    return made


def run(command, folder, **variables):
    done = subprocess.run(
        [sys.executable, *command],
        env=environment(folder, **variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_script(source, folder, **variables):
    """Run a program with `gpu`, the stand-in, with or without the extension as this process."""
    start = f"""
        import sys, warnings
        warnings.simplefilter("ignore")
        sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}, {str(Path(__file__).parent)!r}]
        {"" if extension.COMPILED else "import tests.python_lane"}
        import numpy as np, tma_dlpack as tma
        from tma_dlpack.make import extension
        from in_c import IN_C, by_python
        from stand_in_gpu import StandIn, zeros
        gpu = StandIn()
        OPTIONS = {{"box_sizes": (16, 64), "swizzle": "bytes128"}}
    """
    run(["-c", textwrap.dedent(start) + textwrap.dedent(source)], folder, **variables)


@law
def test_cuda_tensors_are_served_by_c_and_python_alike(folder):
    pytest.importorskip("torch", reason="torch is not installed")
    lane = [] if extension.COMPILED else ["-p", "tests.python_lane"]
    options = ["-q", "-p", "no:cacheprovider", *lane]
    said = run(["-m", "pytest", *options, "tests/make/on_stand_in_gpu.py"], folder)
    assert " passed" in said


def test_the_first_map_looks_the_driver_up_and_retains_the_gpus_context(folder):
    run_script(
        """
        x = zeros((128, 64), gpu=1)
        made = tma.make_tma_descriptor(x, **OPTIONS)
        if extension.COMPILED:
            assert gpu.calls == [
                "cuInit", "cuDeviceGetCount", *["cuDeviceGetAttribute"] * 3, "cuCtxGetDevice",
                "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuTensorMapEncodeTiled@1",
                "cuCtxPopCurrent_v2",
            ]
        assert (made.encoder, gpu.contexts) == ("driver", "")
        gpu.forget()
        tma.make_tma_descriptor(x, **OPTIONS)
        assert gpu.calls == [
            "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuTensorMapEncodeTiled@1",
            "cuCtxPopCurrent_v2",
        ]
        """,
        folder,
    )


@pytest.mark.skipif(not extension.COMPILED, reason="the extension is not built here")
@pytest.mark.parametrize(("gpus", "questions"), [("1", []), ("3", ["cuCtxGetDevice"])])
def test_a_context_is_taken_for_granted_until_it_was_missed(folder, gpus, questions):
    run_script(
        f"""
        questions = {questions}
        x = zeros((128, 64))
        gpu.set_context("own 0")
        expected = bytes(tma.make_tma_descriptor(x, **OPTIONS))
        gpu.forget()
        assert bytes(tma.make_tma_descriptor(x, **OPTIONS)) == expected
        assert gpu.calls == [*questions, "cuTensorMapEncodeTiled@0"]

        gpu.set_context("")  # as in a thread that has not used CUDA yet
        pushed = ["cuCtxPushCurrent_v2", "cuTensorMapEncodeTiled@0", "cuCtxPopCurrent_v2"]
        missed = questions or ["cuTensorMapEncodeTiled"]
        for asked in ([*missed, "cuDevicePrimaryCtxRetain"], ["cuCtxGetCurrent"]):
            gpu.forget()
            made = tma.make_tma_descriptor(x, **OPTIONS)
            assert gpu.calls == [*asked, *pushed]
            assert (bytes(made), made.encoder, gpu.contexts) == (expected, "driver", "")

        gpu.set_context("primary 0")
        gpu.forget()
        assert bytes(tma.make_tma_descriptor(x, **OPTIONS)) == expected
        assert gpu.calls == ["cuCtxGetCurrent", *questions, "cuTensorMapEncodeTiled@0"]
        """,
        folder,
        STAND_IN_GPUS=gpus,
    )


def test_a_context_that_cannot_be_retained_is_explained_and_asked_for_again(folder):
    run_script(
        """
        x = zeros((128, 64))
        gpu.fail("cuDevicePrimaryCtxRetain", 3)
        assert IN_C["tiled"](x, **OPTIONS) is None
        try:
            tma.make_tma_descriptor(x, (16, 64))
        except tma.TmaDriverError as error:
            assert str(error).startswith("cuDevicePrimaryCtxRetain returned CUDA_ERROR_NOT_INIT")
        else:
            raise AssertionError("a map was made without a context")
        gpu.fail("")
        assert tma.make_tma_descriptor(x, **OPTIONS).encoder == "driver"
        """,
        folder,
    )


@pytest.mark.parametrize(
    "variables", [{"STAND_IN_GPUS": "0"}, {"STAND_IN_INIT": "3"}], ids=["no GPU", "cuInit fails"]
)
def test_without_a_usable_driver_cuda_tensors_are_left_to_python(folder, variables):
    run_script(
        """
        x = zeros((128, 64))
        assert IN_C["tiled"](x, **OPTIONS) is None
        made = tma.make_tma_descriptor(x, (16, 64))
        assert (made.encoder, gpu.encodes) == ("model", [])
        assert tma.make_tma_descriptors([x, x], (16, 64))[1] == made
        """,
        folder,
        **variables,
    )


def test_a_driver_before_cuda_12_8_has_no_wide_encoder(tmp_path):
    build(tmp_path, "-DBEFORE_CUDA_12_8")
    run_script(
        """
        x = zeros((2, 14, 14, 64))
        wide = dict(zip(("lower_corner_width", "upper_corner_width"), (-1, 1)), rules="driver",
                    channels_per_pixel=64, pixels_per_column=64)
        assert tma.make_tma_descriptor(zeros((128, 64)), **OPTIONS).encoder == "driver"
        assert IN_C["im2col_wide"](x, **wide) is None
        try:
            tma.make_im2col_wide_descriptor(x, **wide)
        except tma.TmaUnsupportedError as error:
            assert "has no cuTensorMapEncodeIm2colWide" in str(error)
        else:
            raise AssertionError("a map was made without its encoder")
        """,
        tmp_path,
    )


@pytest.mark.parametrize("has_api", [True, False], ids=["exchange API", "torch before 2.10"])
def test_torch_tensors_on_a_gpu_are_served_by_c_and_python_alike(folder, has_api):
    pytest.importorskip("torch")
    run_script(
        f"""
        import torch
        if not {has_api}:
            del torch.Tensor.__dlpack_c_exchange_api__
        """
        """
        from stand_in_gpu import put_torch_tensors_on_gpu, put_torch_tensors_on_gpus
        put_torch_tensors_on_gpus(gpu)
        for context in ("", "primary 0", "own 1"):
            for ordinal in (0, 1):
                put_torch_tensors_on_gpu(gpu, ordinal)
                for dtype in (torch.float16, torch.uint8, torch.float8_e4m3fn, torch.float32):
                    x = torch.zeros(128, 64).to(dtype)[1:]
                    options = {"box_sizes": (16, 32), "swizzle": "bytes128"}
                    gpu.set_context(context)
                    gpu.forget()
                    made = tma.make_tma_descriptor(x, **options)
                    assert (gpu.encodes, gpu.contexts) == (
                        [f"cuTensorMapEncodeTiled@{ordinal}"], context
                    )
                    long = by_python("tiled", x, options)
                    assert (bytes(made), made, made.encoder) == (bytes(long), long, "driver")
                    assert made.description == long.description
                    y = torch.zeros(128, 64).to(dtype)[1:]
                    assert made.with_address(y) == by_python("tiled", y, options)
                batch = tma.make_tma_descriptors([x, y], **options)
                assert list(batch) == [by_python("tiled", one, options) for one in (x, y)]
                assert batch.ptr % 128 == 0
        assert IN_C["tiled"](torch._neg_view(x), **options) is None
        assert tma.make_tma_descriptor(torch.nn.Parameter(x), **options).encoder == "driver"
        """,
        folder,
    )
