"""`tma.bandwidth` without a GPU: its boxes, its table, and what it refuses."""

import dataclasses

import numpy as np
import pytest
from laws import require_immutable

import tma_dlpack as tma
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.tables.enums import TmaL2FetchSize, TmaSwizzle
from tma_dlpack.tables.targets import TARGETS
from tma_dlpack.verification.bandwidth import (
    BandwidthReport,
    BandwidthRow,
    _default_tiles,
    bandwidth,
)
from tma_dlpack.verification.pipeline import Pipeline, TiledCopy, fits


def default_tiles(*shape, dtype=np.uint16):
    return _default_tiles(as_tensor_view(np.broadcast_to(np.zeros(1, dtype), shape)))


def test_default_boxes_of_a_large_matrix_are_those_of_the_readme():
    assert default_tiles(65536, 16384) == [
        ((16, 256), TmaSwizzle.none),
        ((32, 256), TmaSwizzle.none),
        ((64, 256), TmaSwizzle.none),
        ((64, 128), TmaSwizzle.none),
        ((64, 64), TmaSwizzle.bytes128),
        ((128, 64), TmaSwizzle.bytes128),
        ((256, 64), TmaSwizzle.bytes128),
        ((128, 64), TmaSwizzle.none),
        ((64, 32), TmaSwizzle.bytes64),
        ((64, 16), TmaSwizzle.bytes32),
        ((64, 8), TmaSwizzle.none),
        ((256, 8), TmaSwizzle.none),
    ]


def test_default_boxes_take_one_of_every_outer_dimension():
    assert ((1, 1, 64, 128), TmaSwizzle.none) in default_tiles(4, 5, 1000, 1000)


def test_default_boxes_keep_inside_a_small_tensor_and_come_once():
    assert default_tiles(20, 64) == [
        ((20, 64), TmaSwizzle.bytes128),
        ((20, 64), TmaSwizzle.none),
        ((20, 32), TmaSwizzle.bytes64),
        ((20, 16), TmaSwizzle.bytes32),
        ((20, 8), TmaSwizzle.none),
    ]


def test_default_boxes_of_a_vector_are_rows():
    assert default_tiles(1000)[0] == ((256,), TmaSwizzle.none)


def test_default_boxes_of_bytes_stay_at_256_elements_a_row():
    assert max(box[-1] for box, _ in default_tiles(4096, 4096, dtype=np.uint8)) == 256


def test_a_tensor_without_dimensions_gets_the_refusal_of_make_tma_descriptor():
    ((box, _),) = _default_tiles(as_tensor_view(np.zeros(())))
    with pytest.raises(tma.TmaPreconditionError, match="RANK"):
        tma.make_tma_descriptor(np.zeros(()), box)


ROW = BandwidthRow(
    (64, 64), 128, TmaSwizzle.bytes128, TmaL2FetchSize.bytes256, Pipeline(6, 2, 3, 1), 3.78e12, 0.9,
    True,
)  # fmt: skip


def report(*rows):
    return BandwidthReport("a GPU", "UINT16 of shape (65536, 16384)", 1 << 31, 4.2e12, rows)


def test_the_table_names_the_gpu_the_memcpy_and_every_row():
    first, memcpy, header, row = str(report(ROW)).splitlines()
    assert first.startswith("a GPU: UINT16 of shape (65536, 16384), 2048 MiB")
    assert memcpy == "memcpy device-to-device: 4.20 TB/s; ratio 1 (bytes read and written)"
    assert header.split() == [
        *("box", "row", "bytes", "swizzle", "L2", "fetch", "stages", "stores", "CTAs/SM", "turn"),
        *("TB/s", "ratio", "copy"),
    ]
    assert row.split() == [
        *("64x64", "128", "bytes128", "bytes256", "6", "3", "2", "1"),
        *("3.78", "0.900", "right"),
    ]


def test_a_wrong_copy_shows_in_the_table_and_in_ok():
    wrong = dataclasses.replace(ROW, verified=False)
    assert report(ROW).ok
    assert not report(ROW, wrong).ok
    assert str(report(wrong)).endswith("WRONG")


def test_best_is_the_highest_ratio_among_boxes_of_that_row():
    faster = dataclasses.replace(ROW, ratio=0.91)
    wide = dataclasses.replace(ROW, row_bytes=512, ratio=0.96)
    assert report(ROW, faster, wide).best(128) is faster
    with pytest.raises(tma.TmaPreconditionError) as refused:
        report(faster, wide).best(64)
    (violation,) = refused.value.violations
    assert (violation.argument, violation.found) == ("row_bytes", "row_bytes is 64")
    assert violation.limit == "it must be one that was measured: 128, 512"


def test_a_host_tensor_is_refused():
    with pytest.raises(tma.TmaUnsupportedError, match="bandwidth is measured on a GPU"):
        bandwidth(np.zeros((64, 64), np.float32))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stages": (0,)}, "stages is (0,); it must be integers of 1 to 8"),
        ({"stages": (9,)}, "stages is (9,); it must be integers of 1 to 8"),
        ({"stages": ()}, "stages is (); it must be integers of 1 to 8"),
        ({"stages": 4}, "stages is 4; it must be integers of 1 to 8"),
        ({"ctas_per_sm": (33,)}, "ctas_per_sm is (33,); it must be integers of 1 to 32"),
        ({"repeats": 0}, "repeats is 0; it must be an integer of at least 1"),
        ({"repeats": 1.5}, "repeats is 1.5; it must be an integer of at least 1"),
    ],
)
def test_options_out_of_range_are_refused(options, said):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        bandwidth(np.zeros((64, 64), np.float32), **options)
    (violation,) = refused.value.violations
    assert f"{violation.found}; {violation.limit}" == said
    assert (violation.rule, violation.argument) == ("ARGUMENT", next(iter(options)))
    assert violation.fix.startswith(f"pass {violation.argument}=")


@pytest.mark.parametrize("options", [{"stages": (1, 8)}, {"ctas_per_sm": (1, 32)}, {"repeats": 1}])
def test_options_at_the_ends_of_their_ranges_are_not_refused(options):
    with pytest.raises(tma.TmaUnsupportedError, match="bandwidth is measured on a GPU"):
        bandwidth(np.zeros((64, 64), np.float32), **options)


@pytest.mark.parametrize("frozen", [ROW, report(ROW)])
def test_a_report_and_its_rows_cannot_be_changed(frozen):
    require_immutable(frozen)


def tile_of(rows):
    return tma.driver_encode_tiled(
        "UINT16", 2, 1 << 40, (4096, 4096), (8192,), (64, rows), (1, 1), encoder="model"
    )


def test_a_pipeline_fits_while_its_blocks_share_a_multiprocessor():
    sm_90 = TARGETS["sm_90"]
    assert fits(
        Pipeline(7, 1, 1, 1), tile_of(256), sm_90
    )  # 7 tiles of 32 KiB, and 56 bytes of barriers
    assert not fits(Pipeline(8, 1, 1, 1), tile_of(256), sm_90)
    assert fits(Pipeline(3, 2, 1, 1), tile_of(256), sm_90)
    assert not fits(Pipeline(4, 2, 1, 1), tile_of(256), sm_90)


@pytest.mark.parametrize(
    ("stages", "stores"), [(1, {0}), (2, {1}), (3, {1}), (4, {1, 2}), (8, {1, 4})]
)
def test_the_family_of_a_pipeline_leaves_stages_to_loads_or_has_but_one(stages, stores):
    family = list(Pipeline.family(stages, 2))
    assert {p.stores_in_flight for p in family} == stores
    assert {p.neighbours for p in family} == {1, 2}
    assert len(set(family)) == len(family) == 2 * len(stores)


def test_overlapping_rows_are_refused_before_anything_runs():
    overlapping = tma.driver_encode_tiled(
        "UINT16", 2, 1 << 40, (64, 64), (0,), (64, 16), (1, 1), encoder="model"
    )
    with pytest.raises(tma.TmaUnsupportedError, match="rows are the same memory"):
        TiledCopy(overlapping)
