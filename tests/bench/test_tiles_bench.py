"""`bench tiles` measures only accepted boxes, and `suggest` can read the table that it prints."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tma_dlpack as tma
from bench import tiles
from tma_dlpack.suggestions.speeds import CARDS, Card


@pytest.mark.parametrize("padding", tiles.PADDING_BYTES)
@pytest.mark.parametrize("row_bytes", tiles.ROW_BYTES)
def test_every_box_is_accepted_and_has_a_pipeline(row_bytes, padding):
    x = np.zeros((512, (row_bytes + padding) // 2), np.float16)[:, : row_bytes // 2]
    kinds = set()
    for words in tiles.boxes(row_bytes):
        tm = tma.make_tma_descriptor(x, **words)
        assert any(tiles.fits(p, tm, tma.TARGETS["sm_90"]) for p in tiles.PIPELINES)
        kinds.add((tm.arguments.inner_box_bytes, tm.rank))
    widths = {n for n in tiles.LINE_BYTES if row_bytes % n == 0}
    assert kinds == {(n, 2) for n in widths} | {(n, 3) for n in tiles.SPANS}


def test_the_table_has_medians_in_thousandths_and_is_read_by_suggest():
    rows = [
        {"begin": begin, "spans": spans, "line_bytes": 64, "lines": 32, "l2": l2,
         "share": begin / 100 + spans / 1000 + n / 100 + off}
        for begin, spans in itertools.product((16, 32), (1, 4))
        for n, l2 in enumerate(tiles.L2_FETCH_SIZES)
        for off in (0, 0.0001, 0.3)
    ]  # fmt: skip
    text = tiles.table(rows)
    assert text.splitlines()[1:3] == [
        "32  1    64 ---/---/--- ---/---/--- 321/331/341" + " ---/---/---" * 4,
        "32  4    64 ---/---/--- ---/---/--- 324/334/344" + " ---/---/---" * 4,
    ]
    card = Card("GPU", "GPU", 100, text)
    assert card.shares(32, 4, 64, 32) == (0.324, 0.334, 0.344)
    assert card.shares(16, 3, 300, 8) == (0.161, 0.171, 0.181)  # the nearest of less, or all


def test_the_cases_of_a_seed_are_always_the_same():
    first = [str(case) for case in itertools.islice(tiles.cases(20261122), 3)]
    assert first == [str(case) for case in itertools.islice(tiles.cases(20261122), 3)]
    assert all(512 <= np.prod(case.tile) * tiles.TYPES[case.data_type][1] <= tiles.MOST_TILE_BYTES
               for case in itertools.islice(tiles.cases(5), 200))  # fmt: skip


def test_the_tables_of_the_package_are_printed_ones():
    width = len(tiles.table([]).splitlines()[0])
    for card in CARDS:
        head, *lines = card.table.strip().splitlines()
        assert head == tiles.table([])
        assert {len(line) for line in lines} == {width}
