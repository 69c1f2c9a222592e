"""`trace` with the real driver and CUPTI: our maps, Triton's, refused ones, ended programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.debug import Trace
from tma_dlpack.debug import trace as program
from tma_dlpack.tables.errors import TmaDriverError, TmaUnsupportedError

BARE = ("FLOAT16", 2, 0x1000, (64, 128), (128,))


@pytest.fixture
def tracer(torch):
    """Trace a `with` block; skip the test if another program uses CUPTI."""
    try:
        with tma.trace():
            pass
    except TmaUnsupportedError as error:
        pytest.skip(str(error))
    return tma.trace


def test_a_map_of_ours_is_seen_with_its_bytes_and_its_kernel(tracer, torch):
    x = torch.arange(128 * 64, device="cuda").to(torch.float16).reshape(128, 64)
    with tracer() as t:
        tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
        tile = tma.load_tile(tm, (0, 0))
    assert np.array_equal(tile.array, x[:64].cpu().numpy())
    (made,) = t.maps
    assert made.bytes == bytes(tm)
    assert made.arguments.global_address == x.data_ptr()
    assert made.arguments.box_dim == tm.box_dim
    assert made.result == 0
    assert made.kernels == ("load_tiles",)
    assert [advice.rule for advice in made.report.advice] == [a.rule for a in tm.advice]


def test_all_four_calls_are_seen(tracer):
    dims, strides = (64, 14, 14, 2), (128, 1792, 25088)
    column = (64, 32, (1, 1, 1, 1), 0)
    with tracer() as t:
        tm = tma.driver_encode_tiled(*BARE, (64, 8), (1, 1), encoder="driver")
        tma.driver_encode_im2col(
            "FLOAT16", 4, 0x1000, dims, strides, (-1, -1), (-1, -1), *column, 3, encoder="driver"
        )
        tma.driver_encode_im2col_wide(
            "FLOAT16", 4, 0x1000, dims, strides, -1, -1, *column, 0, 3, encoder="driver"
        )
        tma.driver_replace_address(tm, 0x2000)
    calls = ["cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide"]
    assert [made.call for made in t.maps] == [*calls, "cuTensorMapReplaceAddress"]
    assert [made.result for made in t.maps] == [0, 0, 0, 0]
    assert t.maps[1].arguments.pixel_box_lower_corner == (-1, -1)
    assert t.maps[2].arguments.pixel_box_lower_corner == (-1,)
    assert t.maps[3].arguments.global_address == 0x2000


def test_a_refused_call_is_explained(tracer):
    with tracer() as t, pytest.raises(TmaDriverError):
        tma.driver_encode_tiled(*BARE, (64, 512), (1, 1), encoder="driver")
    (made,) = t.maps
    assert made.result == 1
    assert [violation.rule for violation in made.report.violations] == ["BOX_RANGE"]


def test_the_maps_of_triton_are_seen_with_the_line_that_launched(tracer, torch, tmp_path):
    pytest.importorskip("triton.tools.tensor_descriptor", reason="this Triton has no descriptors")
    (tmp_path / "copied.py").write_text(TRITON)
    sys.path.insert(0, str(tmp_path))
    try:
        import copied

        with tracer() as t:
            x, y = copied.run()
    finally:
        sys.path.remove(str(tmp_path))
    assert torch.equal(x, y)
    (made,) = t.maps
    assert made.count == 2
    assert made.arguments.global_dim == (64, 256)
    assert made.kernels == ("copy_kernel",)
    assert made.made_at.startswith(f"{tmp_path / 'copied.py'}:15 in run")


TRITON = """
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy_kernel(x, y, BM: tl.constexpr):
    i = tl.program_id(0)
    y.store([i * BM, 0], x.load([i * BM, 0]))

def run():
    x = torch.randn(256, 64, device="cuda", dtype=torch.float16)
    y = torch.zeros_like(x)
    of = TensorDescriptor.from_tensor
    copy_kernel[(4,)](of(x, [64, 64]), of(y, [64, 64]), 64)
    return x, y
"""

KILLED = """
import os, torch, tma_dlpack as tma
x = torch.zeros(256, 128, device="cuda", dtype=torch.bfloat16)
tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
os.kill(os.getpid(), 9)
"""


def test_a_program_that_is_killed_loses_nothing(torch, tmp_path):
    record = tmp_path / "t.json"
    command = [sys.executable, "-m", "tma_dlpack", "trace", "--json", "-o", record, "--"]
    done = subprocess.run([*command, sys.executable, "-c", KILLED], capture_output=True, text=True)
    assert done.returncode == 137
    (made,) = Trace.from_json(Path(record).read_text()).maps
    assert (made.count, made.result) == (1, 0)
    assert Path(made.made_by).name.startswith(("_core.", "python", "libpython"))


def test_beside_a_second_trace_the_reason_is_named(tracer):
    with tracer(), pytest.raises(TmaUnsupportedError, match="another trace of this process"):
        tma.trace().__enter__()


def test_cupti_is_found_without_being_named(monkeypatch):
    monkeypatch.delenv(program.CUPTI, raising=False)
    assert program.cupti_paths()
