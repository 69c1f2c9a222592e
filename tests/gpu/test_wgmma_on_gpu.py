"""wgmma with the package's matrix descriptors, and ldmatrix at its addresses, on the hardware."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tma_dlpack import driver
from tma_dlpack.consumer import MatrixDescriptor
from tma_dlpack.geometry import SWIZZLES
from tma_dlpack.verification import on_device
from tma_dlpack.verification.arena import Arena
from tma_dlpack.verification.random_operands import random_matrices, random_product

SEED = 20261121


@pytest.fixture(scope="module")
def arena(_needs_a_gpu):
    if not driver.device_target(0).is_sm_9x:
        pytest.skip("wgmma is an instruction of compute capability 9.0 alone")
    with Arena(SEED, 0) as arena:
        yield arena


def products(count, seed):
    rng = Random(seed)
    return [random_product(rng, driver.device_target(0).max_smem_bytes) for _ in range(count)]


def test_wgmma_with_our_descriptors_gives_the_exact_products(arena):
    drawn = products(1500, SEED)
    differences = {p: on_device.compare_product(p, arena) for p in drawn}
    wrong = [f"{p}\n{difference}" for p, difference in differences.items() if difference]
    assert not wrong, "\n".join(wrong[:3]) + f"\n{len(wrong)} of {len(drawn)} are wrong"
    kinds = Counter((p.ptx, p.a_major, p.b_major, p.a.swizzle, p.b.swizzle) for p in drawn)
    assert len(kinds) > 180  # of the existing 13 x 16 cases


def test_ldmatrix_at_our_addresses_reads_the_simulated_tile(arena):
    rng = Random(SEED)
    drawn = [random_matrices(rng, arena.target.max_smem_bytes) for _ in range(1000)]
    differences = {m: on_device.compare_matrices(m, arena) for m in drawn}
    wrong = [f"{m}\n{difference}" for m, difference in differences.items() if difference]
    assert not wrong, "\n".join(wrong[:3]) + f"\n{len(wrong)} of {len(drawn)} are wrong"
    assert {(m.num, m.transpose) for m in drawn} == {(n, t) for n in (1, 2, 4) for t in (0, 1)}


def test_with_the_base_offset_of_the_ptx_isa_products_off_the_pattern_are_wrong(arena, monkeypatch):
    """Base offset = (pattern start >> 7) & 7, if the pattern is assumed to start at the tile."""
    from tma_dlpack.consumer import verbs as matrix

    def by_the_document(operand):
        right = original(operand)
        off_pattern = operand.smem_address % SWIZZLES[right.swizzle].repeat_bytes
        offset = operand.smem_address >> 7 & 7 if off_pattern else 0
        values = {name: getattr(right, name) for name in MatrixDescriptor.__dataclass_fields__}
        return MatrixDescriptor(**values | {"base_offset": offset})

    original = matrix._descriptor
    monkeypatch.setattr(matrix, "_descriptor", by_the_document)
    on_pattern, off_pattern = Counter(), Counter()
    for p in products(300, SEED + 1):
        aligned = all(x.smem_offset % SWIZZLES[x.swizzle].repeat_bytes == 0 for x in (p.a, p.b))
        wrong = on_device.compare_product(p, arena) is not None
        (on_pattern if aligned else off_pattern)[wrong] += 1
    print(f"right, wrong: on the pattern {on_pattern}, off it {off_pattern}")
    assert not on_pattern[True]
    assert off_pattern[True] > 100


def test_steps_in_another_order_are_found(arena, monkeypatch):
    from tma_dlpack.consumer import verbs as matrix

    starts = matrix._k_major_starts
    monkeypatch.setattr(matrix, "_k_major_starts", lambda *of: starts(*of)[::-1])
    turned = [
        p
        for p in products(100, SEED + 2)
        if {p.a_major, p.b_major} == {"K", "MN"} and p.k_steps > 1
    ]
    wrong = [p for p in turned if on_device.compare_product(p, arena)]
    assert len(wrong) > len(turned) // 2 > 2
