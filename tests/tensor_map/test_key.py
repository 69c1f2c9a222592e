"""`TensorMap.key` has the values on which a kernel depends, without the numbers that may change."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tma_dlpack as tma

BASE = {"box_sizes": (2, 8, 16), "swizzle": "bytes64"}


def tiled(shape=(16, 64, 64), dtype=np.float32, **options):
    return tma.make_tma_descriptor(np.zeros(shape, dtype), **BASE | options)


def column(images=2, lower=(0, 0), upper=(0, 0), channels=32, pixels=16, **options):
    x = np.zeros((images, 14, 14, 64), np.float16)
    return tma.make_im2col_descriptor(x, lower, upper, channels, pixels, **options)


@pytest.mark.parametrize(
    "other",
    [
        tiled(),
        tiled((2, 8, 128)),
        tiled(shape=(64, 64, 16)),
        tiled(l2_fetch_size="bytes256"),
        tiled(target="sm_100"),
        tiled(rules="driver"),
        tiled().with_address(0x7F0000000000),
    ],
)
def test_what_changes_from_call_to_call_is_not_in_the_key(other):
    assert other.key() == tiled().key()
    assert hash(other.key()) == hash(tiled().key())


@pytest.mark.parametrize(
    "other",
    [
        tiled(data_type="TFLOAT32"),
        tiled(dtype=np.int32),
        tiled(box_sizes=(1, 8, 16)),
        tiled(elem_strides=(2, 1, 1)),
        tiled(swizzle="bytes128"),
        tiled(swizzle="none", interleave_layout="bytes16"),
        tiled(oobfill="nan"),
        tma.make_tma_descriptor(np.zeros((64, 64), np.float32), (8, 16), swizzle="bytes64"),
    ],
)
def test_what_a_kernel_specialises_on_is_in_the_key(other):
    assert other.key() != tiled().key()


def test_a_column_has_the_key_of_its_tile():
    base = column()
    assert base.key() == column(images=3, lower=(-1, -1), upper=(-1, -1)).key()
    for other in (column(channels=16), column(pixels=32), column(oobfill="nan"), tiled()):
        assert other.key() != base.key()


def test_a_key_names_its_parts_and_survives_pickle():
    key = tiled().key()
    assert (key.kind, key.rank, key.box_sizes, key.swizzle.name) == (
        "tiled", 3, (2, 8, 16), "bytes64",
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(key)) == key
