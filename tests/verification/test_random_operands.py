"""The generators of the tensor core's checks, without a GPU, draw only readable tiles."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.copies.simulator import SimulatorBackend
from tma_dlpack.tables import bits
from tma_dlpack.verification.on_device import _registers, wgmma_macro
from tma_dlpack.verification.random_operands import MULTIPLIED, random_matrices, random_product

MAX_SMEM_BYTES = 232_448
PRODUCTS = [random_product(Random(n), MAX_SMEM_BYTES) for n in range(600)]
ARENA = np.random.default_rng(0).integers(0, 256, 1 << 18, np.uint8)


def loaded(layout, arena):
    """Return a tile and its map, of a matrix at the arena's first aligned address."""
    start = -arena.ctypes.data % 128
    address = arena.ctypes.data + start
    tensor_map = tma.TensorMap.from_bytes(bits.encode(layout.arguments(), address))
    tile = SimulatorBackend().load_tile(
        tensor_map, layout.coords, memory=arena, smem_offset=layout.smem_offset
    )
    return tensor_map, tile


def test_every_type_major_and_swizzle_is_multiplied():
    drawn = Counter((p.ptx, p.a_major, p.b_major) for p in PRODUCTS)
    assert len(drawn) == 2 * 4 + 5
    for side, kinds in (("a", 12), ("b", 15)):
        layouts = [(getattr(p, side), getattr(p, f"{side}_major")) for p in PRODUCTS]
        assert len({(x.swizzle, major, x.columns > 1) for x, major in layouts}) == kinds
        assert any(x.row_bytes < 128 for x, _ in layouts if x.swizzle == 3)
        assert any(x.smem_offset % 1024 for x, _ in layouts)
    assert {p.blocks for p in PRODUCTS} == {1, 2, 3}
    assert {p.k_steps for p in PRODUCTS} == set(range(1, 13))


def test_every_drawn_tile_is_read_by_its_descriptor():
    arena = np.concatenate([np.zeros(128, np.uint8), ARENA, np.zeros(128, np.uint8)])
    for product in PRODUCTS[:100]:
        for layout, major in ((product.a, product.a_major), (product.b, product.b_major)):
            tensor_map, tile = loaded(layout, arena)
            descriptor = tma.matrix_descriptor(
                tensor_map, major=major, smem_address=layout.smem_offset
            )
            assert descriptor.k_steps == product.k_steps
            seen, wanted = descriptor.read(tile.smem), layout.logical(tile.array)
            assert seen.tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("factor", MULTIPLIED, ids=[f.ptx for f in MULTIPLIED])
def test_integers_are_written_and_read_exactly(factor):
    numbers = np.arange(factor.least, factor.most + 1)
    raw = np.ascontiguousarray(factor.encode(numbers))
    assert raw.itemsize == factor.element_bytes
    element = {4: np.float32, 2: np.float16, 1: np.uint8}[factor.element_bytes]
    if factor.ptx == "bf16":
        element = np.uint16
    assert factor.decode(raw.view(element)).tolist() == numbers.tolist()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    known = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
    if factor.ptx in known:
        values = raw.view(getattr(ml_dtypes, known[factor.ptx])).astype(np.int64)
        assert values.tolist() == numbers.tolist()


def test_the_registers_of_ldmatrix_are_pairs_of_its_matrices():
    """Each lane's register i has two words of matrix i. Expected values by hand, for x4."""
    matrices = next(
        m for m in (random_matrices(Random(n), MAX_SMEM_BYTES) for n in range(500))
        if m.num == 4 and m.transpose
    )  # fmt: skip
    rows, words = matrices.layout.rows, matrices.layout.columns * matrices.layout.row_bytes // 2
    logical = np.arange(rows * words, dtype=np.uint16).reshape(rows, words)
    registers = _registers(matrices, logical)
    lane, i = 13, 3  # (1, 1): 8 rows down, 8 words on; transposed: rows 2 (13 % 4) + 0, 1
    row, word = matrices.row + 8 + 2 * (lane % 4), matrices.column + 8 + lane // 4
    wanted = int(logical[row, word]) | int(logical[row + 1, word]) << 16
    assert registers[lane, i] == wanted


def test_the_instruction_names_its_registers():
    text = wgmma_macro("e4m3", "float", 8, 32, False, False)
    assert "m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, p, 1, 1;" in text
    assert "m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 1;" in wgmma_macro(
        "f16", "float", 8, 16, False, True
    )
    assert "m64n8k32.s32.s8.s8 {%0, %1, %2, %3}, %4, %5, p;" in wgmma_macro(
        "s8", "int", 8, 32, False, False
    )
