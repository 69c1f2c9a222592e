"""Maps that other programs built: NVIDIA's CuTe DSL sets bit 65, Blackwell's drivers bit 85."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from foreign_maps import foreign_forms, random_coords, random_map, with_bits, without_tail

import tma_dlpack as tma
from tma_dlpack.tables.targets import TARGETS

#: What CuTe DSL 4.8.1 compiles for every architecture: f16, dims (1024, 512), box (64, 64), 128B.
CUTE = bytes.fromhex(
    "00703412347f00001263240080000000" + "00" * 16 + "ff030000ff0100000000000000000000"
    "000000000000003f3f00000000000000" + "00" * 64
)
BIT_65 = (
    "bit 65 is set: NVIDIA's CuTe DSL sets it in every map; it changes no copy (measured, H200,\n"
    "  2026-11-22)"
)
BIT_85 = textwrap.fill(
    "bit 85 is set: the map is of the allocation class LARGE: at least 128 KiB around what is "
    "copied must be accessible, or copies may fault; where they are, copies may be faster "
    "(documented, CUDA 13.5; on an H200 2,000 of 2,000 copies were the same with it and without, "
    "2026-11-22). Drivers before 13.2 set it for Blackwell, whatever the size; CuTe DSL where the "
    "tensor spans at least 128 KiB",
    100,
    subsequent_indent="  ",
)


@pytest.mark.parametrize("target", TARGETS)
def test_a_map_of_cute_is_read_on_every_target(target):
    tm = tma.TensorMap.from_bytes(CUTE, target)
    assert (tm.data_type.name, tm.global_dim, tm.global_strides) == (
        "FLOAT16", (1024, 512), (2048,),
    )  # fmt: skip
    assert (tm.box_dim, tm.swizzle.name, tm.l2_promotion.name) == ((64, 64), "bytes128", "bytes128")
    assert tm.global_address == 0x7F3412347000
    assert bytes(tm) == CUTE  # the bytes stay unchanged


def test_the_text_says_who_sets_the_bits():
    assert str(tma.TensorMap.from_bytes(CUTE)).endswith(f"{BIT_65}\n{BIT_85}")
    ours = tma.driver_encode_tiled(
        "FLOAT16", 2, 4096, (64, 64), (128,), (64, 64), (1, 1), encoder="model"
    )
    assert "bit " not in str(ours)
    assert str(tma.TensorMap.from_bytes(with_bits(bytes(ours), 85))).endswith(BIT_85)
    figure = tma.draw.fields_of(tma.TensorMap.from_bytes(CUTE))
    shown = {v.field: v.values for v in figure.values}
    assert (shown["bit_65"], shown["bit_85"]) == (("1",), ("1",))


@pytest.mark.parametrize("rows", [64, 1023, 1024, 4096])
def test_the_allocation_class_of_a_small_tensor_is_an_advice(rows):
    made = tma.driver_encode_tiled(
        "FLOAT16", 2, 4096, (64, rows), (128,), (64, 64), (1, 1), encoder="model"
    )
    assert "ALLOCATION_CLASS" not in [a.rule for a in made.advice]
    advice = tma.TensorMap.from_bytes(with_bits(bytes(made), 85)).advice
    assert [a.rule for a in advice] == ["ALLOCATION_CLASS"] * (rows < 1024)
    if advice:
        found = f"bit 85 is set, and the map spans {128 * rows} bytes"
        assert (advice[0].argument, advice[0].found) == ("data", found)
        assert f"advice: {found}" in str(tma.TensorMap.from_bytes(with_bits(bytes(made), 85)))
    assert [rule.group for rule in tma.rules("ALLOCATION_CLASS")] == ["advice"]


def test_the_bytes_beside_the_two_bits_are_those_of_the_model():
    ours = tma.driver_encode_tiled(
        "FLOAT16", 2, 0x7F3412347000, (1024, 512), (2048,), (64, 64), (1, 1),
        swizzle=3, l2_promotion=2, encoder="model",
    )  # fmt: skip
    assert with_bits(without_tail(bytes(ours)), 65, 85) == CUTE
    read = tma.TensorMap.from_bytes(CUTE)
    assert read.arguments == ours.arguments
    assert read != ours  # other bytes


def copies(tm: tma.TensorMap, coords: tuple[int, ...], memory: np.ndarray) -> tuple[bytes, bytes]:
    """Return the shared memory after a load, and the global memory after a store of the tile."""
    tile = tma.load_tile(tm, coords, memory=memory)
    changed = memory.copy()
    moved = tm.replace(global_address=changed.ctypes.data) if tm.encoder is None else tm
    data = (tile.array.view(np.uint16) ^ 0xFFFF).astype(np.uint16)
    here = moved.with_address(changed.ctypes.data)
    tma.store_tile(here, tuple(max(0, c) for c in coords), data, memory=changed)
    return tile.smem.tobytes(), changed.tobytes()


def test_a_copy_with_the_bits_equals_that_of_the_drivers_map():
    rng = np.random.default_rng(22)
    room = np.zeros((1 << 18) + 128, np.uint8)
    start = -room.ctypes.data % 128
    memory = room[start : start + (1 << 18)]
    memory[:] = rng.integers(0, 256, memory.size, dtype=np.uint8)
    for _ in range(60):
        ours = random_map(rng, memory.ctypes.data)
        coords = random_coords(rng, ours.rank)
        expected = copies(ours, coords, memory)
        for foreign in foreign_forms(bytes(ours)):
            read = tma.TensorMap.from_bytes(foreign)
            assert read.arguments == ours.arguments
            assert copies(read, coords, memory) == expected


@pytest.mark.parametrize("target", ["sm_100", "sm_120"])
@pytest.mark.parametrize(("rank", "corner"), [(3, (-300,)), (4, (-100, 90)), (5, (-16, 15, -3))])
def test_an_im2col_map_of_later_targets_reads_as_on_sm_90(target, rank, corner):
    dims = (*(64, 600, 300, 100)[: rank - 1], 2)
    strides = tuple(int(n) for n in np.cumprod(dims)[:-1] * 2)
    here = tma.driver_encode_im2col(
        "FLOAT16", rank, 4096, dims, strides, corner, corner, 32, 64, (1,) * rank, encoder="model"
    )
    there = tma.TensorMap.from_bytes(with_bits(bytes(here), 65), target)
    assert there.arguments == here.arguments
    assert there.pixel_box_lower_corner == corner
    assert there.is_derived


def test_128_zero_bytes_are_a_map_of_nothing():
    tm = tma.TensorMap.from_bytes(bytes(128))
    said = (
        "an all-zero map: all 128 bytes are 0, as before the first tensormap.replace;\n"
        "a copy with it is an illegal instruction (CUDA error 715)"
    )
    assert (str(tm), repr(tm)) == (said, "<TensorMap all-zero: 128 zero bytes, sm_90>")
    assert (tm.is_zero, tm.is_nothing) == (True, True)
    with pytest.raises(tma.TmaPreconditionError, match="the map is all zero"):
        tma.load_tile(tm, (0,), memory=np.zeros(64, np.uint8))
    begun = tm.replace(rank=2, global_dim={0: 64, 1: 64}, global_stride={0: 128})
    assert not begun.is_zero
    assert str(begun).startswith("tiled map of UINT8, rank 2, at 0x0")


@pytest.mark.parametrize("target", ["sm_100", "sm_120"])
def test_an_im2col_map_of_later_targets_copies_as_that_of_sm_90(target):
    memory = np.random.default_rng(3).integers(0, 256, 1 << 16, dtype=np.uint8)
    address = memory.ctypes.data + -memory.ctypes.data % 16
    here = tma.driver_encode_im2col(
        "UINT16", 4, address, (32, 14, 14, 2), (64, 896, 12544), (-1, -1), (-1, -1), 32, 48,
        (1, 1, 1, 1), swizzle=2, encoder="model",
    )  # fmt: skip
    there = tma.TensorMap.from_bytes(with_bits(without_tail(bytes(here)), 65, 85), target)
    where = {"im2col_offsets": (2, 0), "memory": memory}
    expected = tma.load_tile(here, (0, 3, -1, 0), **where)
    copied = tma.load_tile(there, (0, 3, -1, 0), **where)
    assert np.array_equal(copied.smem, expected.smem)
    assert np.array_equal(copied.filled, expected.filled)
    assert copied.filled.any()
    assert not copied.filled.all()
