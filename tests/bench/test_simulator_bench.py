"""The simulator's bench: its output, and limits on function calls and memory."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import tma_dlpack as tma
from bench.simulator import main, measure_bulk


@pytest.mark.slow
def test_bench_prints_a_row_per_size_and_swizzle_and_single_tiles(capsys):
    assert main(["--mebibytes", "1", "2", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["1", "none"], ["1", "bytes128"], ["2", "none"], ["2", "bytes128"],
    ]  # fmt: skip
    assert [part.rsplit(maxsplit=1)[0] for part in lines[-1].split(", ")] == [
        "  bytes128  load", "clipped load", "im2col load", "store", "reduce",
    ]  # fmt: skip


def test_load_tiles_holds_little_beside_its_result():
    for swizzle in ("none", "bytes128"):
        assert measure_bulk(32, swizzle, rounds=1).extra_bytes < 4 << 20


def calls_of(call):
    """Return the number of Python and C functions that a call runs."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # a framework may have left callbacks there
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def calls_of_load_tiles(mebibytes, swizzle, box_rows=64, missing_rows=0):
    """Return the number of functions called to load every tile of a 16-bit matrix."""
    matrix = np.zeros(((mebibytes << 9) - missing_rows, 1024), np.uint16)
    tensor_map = tma.make_tma_descriptor(matrix, (box_rows, 64), swizzle=swizzle)
    coords = tma.tile_coords(tensor_map)
    tma.load_tiles(tensor_map, coords)  # plans are made once
    return calls_of(lambda: tma.load_tiles(tensor_map, coords))


def test_load_tiles_without_a_swizzle_is_as_many_calls_for_any_size():
    assert calls_of_load_tiles(32, "none") == calls_of_load_tiles(8, "none") < 400


@pytest.mark.parametrize(("swizzle", "missing_rows"), [("bytes128", 0), ("none", 3)])
def test_load_tiles_is_as_many_calls_for_each_block_of_1_mib(swizzle, missing_rows):
    calls = [calls_of_load_tiles(n, swizzle, 64, missing_rows) for n in (8, 16, 32)]
    first, second = np.diff(calls)
    assert second == 2 * first
    assert 0 < first < 8 * 100


def test_load_tiles_calls_nothing_for_each_tile():
    """8192, 1024 and 512 tiles of the same bytes; a first use of something may call once more."""
    calls = [calls_of_load_tiles(8, "bytes128", rows) for rows in (8, 64, 128)]
    assert max(calls) - min(calls) <= 1
