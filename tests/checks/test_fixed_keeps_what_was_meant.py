"""`Report.fixed` drops no argument of the call, and changes the meaning of no argument."""

import copy
import pickle

import numpy as np
import pytest

import tma_dlpack as tma


def changes(tensor, **given):
    """Return the changes. The changed call is accepted, and copies the same elements."""
    report = tma.check_tma_descriptor(tensor, **given)
    assert not report.ok
    fixed = report.fixed()
    if fixed is not None:
        tma.make_tma_descriptor(tensor, **fixed)
    return report.changes()


@pytest.mark.parametrize(
    ("shape", "dtype", "given"),
    [
        ((64, 64), "float16", {"box_sizes": (2, 64, 64)}),
        ((64, 64), "float16", {"box_sizes": (64, 64, 2)}),
        ((64, 64), "float16", {"box_sizes": (8, 64), "split_inner": 0}),
        ((64, 64), "float16", {"box_sizes": (8, 64), "split_inner": "no"}),
        (
            (8, 100),
            "uint64",
            {"box_sizes": (8, 64), "swizzle": "bytes128", "interleave_layout": "bytes32"},
        ),
    ],
)
def test_a_proposal_that_would_drop_what_was_given_is_none(shape, dtype, given):
    assert changes(np.zeros(shape, dtype), **given) is None


@pytest.mark.parametrize(
    ("shape", "dtype", "given", "expected"),
    [
        ((64, 64), "float16", {"box_sizes": (1, 1, 8, 64)}, {"box_sizes": (8, 64)}),
        ((4, 8, 64), "float16", {"box_sizes": (8, 64)}, {"box_sizes": (1, 8, 64)}),
        (
            (5, 2, 16, 128),
            "float16",
            {"box_sizes": (5, 2, 16, 128), "swizzle": "bytes128", "split_inner": 1},
            {"split_inner": True},
        ),
        (
            (15, 512),
            "float32",
            {"box_sizes": (15, 512), "swizzle": "none"},
            {"split_inner": True},
        ),
        (
            (16, 3, 3, 512),
            "uint64",
            {
                "box_sizes": (16, 3, 3, 64),
                "swizzle": "bytes64",
                "elem_strides": (1, 2, 1, 0),
                "data_type": "FLOAT64",
                "rules": "driver",
            },
            {"elem_strides": (1, 2, 1, 1), "split_inner": True},
        ),
    ],
)
def test_a_tile_is_kept_where_arguments_can_keep_it(shape, dtype, given, expected):
    assert changes(np.zeros(shape, dtype), **given) == expected


def permuted(tensor, order):
    return np.ascontiguousarray(tensor).transpose(order)


@pytest.mark.parametrize(
    ("shape", "order", "box", "shape_then", "box_then"),
    [
        ((4096, 128), (1, 0), (64, 128), (4096, 128), (128, 64)),
        ((4096, 128), (1, 0), (64, 64), (4096, 128), None),
        ((2, 14, 14, 64), (0, 3, 1, 2), (1, 64, 8, 4), (2, 14, 14, 64), (1, 8, 4, 64)),
        ((4, 16, 64), (2, 0, 1), (32, 1, 16), (4, 16, 64), (1, 16, 32)),
    ],
)
def test_a_permute_is_described_with_the_box_in_that_order(shape, order, box, shape_then, box_then):
    base = np.arange(np.prod(shape)).reshape(shape).astype(np.float32)
    tensor = permuted(base, order)
    found = changes(tensor, box_sizes=box)
    assert found["shape"] == shape_then
    assert found.get("box_sizes") == box_then
    tm = tma.make_tma_descriptor(tensor, **tma.check_tma_descriptor(tensor, box_sizes=box).fixed())
    tile = tma.load_tile(tm, (0,) * len(shape)).array
    part = base[tuple(slice(n) for n in box_then or box)]
    assert np.array_equal(np.asarray(tile).reshape(part.shape), part)


@pytest.mark.parametrize(
    ("box", "options"),
    [
        ((3, 64), {}),  # the box would have to change
        ((64,), {}),  # it is unknown which entry is missing
    ],
)
def test_a_permute_whose_box_must_change_is_left_to_the_reader(box, options):
    tensor = permuted(np.zeros((4096, 128), np.float32), (1, 0))
    found = changes(tensor, box_sizes=box, **options)
    assert found is None


def test_a_copied_report_is_the_same_report():
    x = np.zeros((64, 512), np.float16)
    for given in (
        {"box_sizes": (64, 512), "split_inner": True},
        {"box_sizes": (64, 512)},
        {"box_sizes": (64, 512), "swizzle": "none"},
        {"box_sizes": (64, 512), "swizzle": "none", "split_inner": True, "elem_strides": (0, 1)},
    ):
        report = tma.check_tma_descriptor(x, **given)
        for other in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
            assert other.changes() == report.changes()
            assert str(other) == str(report)
