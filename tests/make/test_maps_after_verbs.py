"""Maps that are made from a map by its methods: C and Python have the same results."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter

import numpy as np
import pytest
from in_c import IN_C, answer, by_python, compiled, hold_equal
from laws import SHARE, law
from random_requests import request_at_random

import tma_dlpack as tma

#: Addresses at which this process has no tensor: very low, medium, and very high.
ADDRESSES = (32, 4096, 1 << 56)

VERBS = {
    **{
        f"with_address({address})": lambda m, address=address: m.with_address(address)
        for address in ADDRESSES
    },
    "with_address(x)": lambda m: m.with_address(m.tensor),
    "driver_replace_address": lambda m: tma.driver_replace_address(m, 64),
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "copy": copy.deepcopy,
    "from_bytes": lambda m: tma.TensorMap.from_bytes(bytes(m), m.target),
    "replace(nothing)": lambda m: m.replace(),
    "replace(global_address)": lambda m: m.replace(global_address=160),
    "replace(box_dim)": lambda m: m.replace(box_dim={0: 16 if m.box_dim[:1] != (16,) else 32}),
    "replace(rank)": lambda m: m.replace(rank=1),
    "replace(global_dim)": lambda m: m.replace(global_dim={m.rank // 2: 7}),
    "replace(global_stride)": lambda m: m.replace(global_stride={m.rank // 2: 48}),
    "replace(elemtype)": lambda m: m.replace(elemtype="UINT8"),
}


def hold_after_verbs(made, expected, rng: random.Random, refused: Counter[str]) -> None:
    """Compare two equal maps after one method, and after a second method."""
    pairs = [(made, expected)]
    for verb in (*VERBS, rng.choice(list(VERBS))):
        first, second = pairs[-1] if rng.random() < 0.3 else (made, expected)
        ours, theirs = answer(VERBS[verb], first), answer(VERBS[verb], second)
        if isinstance(ours, str):
            assert ours == theirs
            refused[verb] += 1
            continue
        hold_equal(ours, theirs)
        pairs.append((ours, theirs))


@law
@compiled
def test_maps_of_c_and_python_are_equal_after_every_verb():
    rng = random.Random(20261123)
    refused: Counter[str] = Counter()
    count = 0
    while count < 400 // SHARE:
        asked = request_at_random(rng)
        made = None if asked is None else IN_C[asked.kind](asked.tensor, **asked.given)
        if made is None:
            continue
        count += 1
        expected = by_python(*asked)
        hold_after_verbs(made, expected, rng, refused)
        if asked.kind == "tiled" and count % 4 == 0:
            (item,) = tma.make_tma_descriptors([asked.tensor], **asked.given)
            hold_after_verbs(item, expected, rng, refused)
    assert max(refused.values()) < count * 1.25  # every method succeeds for some map


@pytest.mark.parametrize("offset", [65536, -16])
@pytest.mark.parametrize("make", [tma.make_tma_descriptor, "batch"])
def test_a_map_with_an_offset_moves_below_it(make, offset):
    x = np.zeros(1 << 20, np.float32)
    given = {"shape": (64, 64), "strides": (64, 1), "offset": offset}
    if make == "batch":
        (tm,) = tma.make_tma_descriptors([x], (8, 16), **given)
    else:
        tm = make(x, (8, 16), **given)
    for address in (16, 4096, (1 << 57) - 16):
        moved = tm.with_address(address)
        assert moved.global_address == address
        assert bytes(moved) == address.to_bytes(8, "little") + bytes(tm)[8:]
        assert (moved.global_dim, moved.tx_bytes, moved.key()) == ((64, 64), 512, tm.key())
        assert (moved == tm, moved.tensor, moved.shape) == (False, None, tm.shape)
        assert repr(moved) == repr(tm).replace(f"{tm.global_address:#x}", f"{address:#x}")
        assert pickle.loads(pickle.dumps(moved)) == moved
        assert moved.with_address(x) == tm
