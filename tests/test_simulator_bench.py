"""The simulator's bench: what it prints, that time is linear and memory bounded."""

from __future__ import annotations

from tma_dlpack.bench.simulator import main, measure_bulk


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


def test_load_tiles_takes_time_in_proportion_to_the_bytes():
    small, large = (measure_bulk(n, "bytes128", rounds=3).load_ms for n in (8, 32))
    assert large < 10 * small
