"""Checks that run on the GPU: matrix descriptors, ldmatrix addresses, maps that kernels change.

In the checks of wgmma and ldmatrix, TMA loads tiles with the driver's maps. Then wgmma reads the
tiles with this package's descriptors, or ldmatrix reads them at this package's addresses. The
expected results are computed from the tiles of the simulator. The elements of the matrices are
small integers, so that every sum of products is exact.

In the check of changed maps, a kernel gets the driver's map with wrong values in some fields. The
kernel writes the correct values with ``tensormap.replace``, and loads a tile with the changed map.
Then the map must equal the driver's map, and the tile must equal the simulator's tile. In half of
the cases the kernel changes the map in shared memory and copies it to global memory. In all other
cases the kernel changes the map in global memory. Different cases may have different maps at the
same address, so a missing fence would be noticed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.verification.arena import Arena, byte_difference
from tma_dlpack.verification.core import DATA_TYPES, bits, targets, tma
from tma_dlpack.verification.random_copies import Copy, random_copy
from tma_dlpack.verification.random_operands import ROOM_BYTES, Matrices, OperandLayout, Product

WARP = 32


def compare_product(product: Product, arena: Arena) -> str | None:
    """Multiply two tiles with wgmma and this package's descriptors.

    Return the first difference from the exact product, or None.
    """
    _put_integers(product, arena)
    try:
        a, a_host = arena.maps(product.a.arguments(), 0)
        b, b_host = arena.maps(product.b.arguments(), ROOM_BYTES)
        a_tile = arena.simulated(a_host, product.a)
        b_tile = arena.simulated(b_host, product.b)
        exact = _exact(product, a_tile, b_tile)
        a_is = tma.matrix_descriptor(a, major=product.a_major, smem_address=product.a.smem_offset)
        b_is = tma.matrix_descriptor(b, major=product.b_major, smem_address=product.b.smem_offset)
        # A wgmma multiplies 64 rows of A by B for one step of K. So B needs one descriptor per step
        # of K, and A needs one descriptor per step of K for every 64 rows.
        blocks, steps = range(product.blocks), range(product.k_steps)
        a_values = [a_is.advance(k, mn_elements=64 * m).value for m in blocks for k in steps]
        b_values = [b_is.advance(k).value for k in steps]
        dtype = np.float32 if product.factor.accumulator == "float" else np.int32
        # An element that the kernel does not write remains -1. Most elements of the product differ
        # from -1, so missing elements are noticed.
        out = np.full(exact.shape, -1, dtype)
        factor, turned = product.factor, (product.a_major == "MN", product.b_major == "MN")
        macro = wgmma_macro(factor.ptx, factor.accumulator, product.n, factor.k_elements, *turned)
        maps = [bytes(a), bytes(b), _tile_argument(product.a, a), _tile_argument(product.b, b)]
        descriptors = [np.array(values, np.uint64) for values in (a_values, b_values)]
        counts = product.blocks, product.k_steps
        arrays: list[npt.NDArray[Any]] = [*descriptors, out]
        _read_tiles(arena, ("multiply", macro), 4 * WARP, product.b.end, maps, counts, arrays)
    finally:
        arena.reset()
    return _difference("the product", exact, out)


def _exact(product: Product, a_tile: tma.Tile, b_tile: tma.Tile) -> npt.NDArray[np.int64]:
    """Return the product of the simulator's tiles, computed in int64."""
    a = product.factor.decode(product.a.logical(a_tile.array))
    b = product.factor.decode(product.b.logical(b_tile.array))
    m_by_k = a if product.a_major == "K" else a.T
    k_by_n = b.T if product.b_major == "K" else b
    exact: npt.NDArray[np.int64] = m_by_k @ k_by_n
    return exact


def compare_matrices(matrices: Matrices, arena: Arena) -> str | None:
    """Read a tile with ldmatrix at this package's addresses.

    Return the first difference from the expected registers, or None.
    """
    layout = matrices.layout
    tensor_map, on_host = arena.maps(layout.arguments(), 0)
    tile = arena.simulated(on_host, layout)
    addresses = tma.ldmatrix_addresses(
        tensor_map,
        matrices.row,
        matrices.column,
        num=matrices.num,
        transpose=matrices.transpose,
        smem_address=layout.smem_offset,
    )
    out = np.zeros((WARP, 4), np.uint32)
    maps = [bytes(tensor_map), _tile_argument(layout, tensor_map)]
    counts, arrays = (matrices.num, matrices.transpose), [addresses.astype(np.uint32), out]
    _read_tiles(arena, ("read_matrices",), WARP, layout.end, maps, counts, arrays)
    return _difference("a register", _registers(matrices, layout.logical(tile.array)), out)


def _registers(matrices: Matrices, logical: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Return the values that ldmatrix should write to the registers of each lane.

    Source: PTX ISA, ldmatrix, matrices of 8 x 8 elements of 16 bits.
    """
    # `places` has the offset of each 8 x 8 matrix, in the order of the matrices in ldmatrix. An
    # offset is (number of matrices down, number of matrices to the right).
    words = np.ascontiguousarray(logical).view(np.uint16)
    column = matrices.column * logical.itemsize // 2
    places = {4: ((0, 0), (1, 0), (0, 1), (1, 1)), 2: ((0, 0), (0, 1)), 1: ((0, 0),)}[matrices.num]
    if matrices.num == 2 and matrices.transpose:
        places = ((0, 0), (1, 0))
    registers = np.zeros((WARP, 4), np.uint32)
    for i, (down, right) in enumerate(places):
        first_row, first_word = matrices.row + 8 * down, column + 8 * right
        matrix = words[first_row : first_row + 8, first_word : first_word + 8]
        if matrices.transpose:
            matrix = matrix.T
        registers[:, i] = np.ascontiguousarray(matrix).view(np.uint32).reshape(WARP)
    return registers


# --- Tiles --------------------------------------------------------------------------------------


def _put_integers(product: Product, arena: Arena) -> None:
    """Fill both matrices in the arena with integers that their element type represents exactly.

    The padding between rows keeps its random bytes.
    """
    rng, factor = np.random.default_rng(product.data_seed), product.factor
    for layout, start in ((product.a, 0), (product.b, ROOM_BYTES)):
        rows, width = layout.shape
        numbers = rng.integers(factor.least, factor.most + 1, layout.shape)
        raw = factor.encode(numbers).view(np.uint8).reshape(rows, -1)
        room = arena.host[start : start + rows * layout.pitch_bytes]
        room.reshape(rows, layout.pitch_bytes)[:, : width * factor.element_bytes] = raw
    arena.device.put(arena.host)


def _tile_argument(layout: OperandLayout, tensor_map: tma.TensorMap) -> bytes:
    """Return the bytes of a struct Tile, a parameter of the kernels in kernels/operands.cu."""
    # The kernel expects the innermost coordinate first.
    coords = (*layout.coords[::-1], 0, 0)[:3]
    words = (tensor_map.rank, layout.smem_offset, tensor_map.tx_bytes)
    return struct.pack("<3i3I", *coords, *words)


# --- Kernels ------------------------------------------------------------------------------------


def _words(*numbers: int) -> list[bytes]:
    """Return 32-bit unsigned arguments of a kernel as bytes."""
    return [struct.pack("<I", number) for number in numbers]


def _read_tiles(
    arena: Arena,
    kernel: tuple[str, ...],
    threads: int,
    end: int,
    maps: list[bytes],
    counts: tuple[int, ...],
    arrays: list[npt.NDArray[Any]],
) -> None:
    """Run a kernel of operands.cu. Its tiles end at byte `end` of shared memory."""
    # The mbarrier follows the tiles. Its size and its alignment are 8 bytes (PTX ISA).
    barrier, done = -(-end // 8) * 8, np.zeros(1, np.uint32)
    values = [*maps, *_words(barrier, *counts)]
    arena.run(("operands.cu", *kernel), threads, barrier + 8, values, [*arrays, done])
    if not done[0]:
        raise RuntimeError("shared memory does not start at a multiple of 1024: nothing was read")


def wgmma_macro(
    ptx: str, accumulator: str, n: int, k_elements: int, a_turned: bool, b_turned: bool
) -> str:
    """Return the definition of a C++ macro with one wgmma instruction and all its registers."""
    # Each of 128 threads has 64 * n / 128 accumulators of 32 bits (PTX ISA, wgmma.mma_async).
    registers = n // 2
    d = ", ".join(f"%{i}" for i in range(registers))
    constraint = "f" if accumulator == "float" else "r"
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(registers))
    result = "f32" if accumulator == "float" else "s32"
    # If the accumulator is float, wgmma has two more immediate operands: the signs of A and B, here
    # 1. If the elements have 16 bits, the transpose flags of A and B follow.
    immediates = {"float": ", 1, 1", "int": ""}[accumulator]
    if ptx in ("f16", "bf16"):
        immediates += f", {int(a_turned)}, {int(b_turned)}"
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{k_elements}.{result}.{ptx}.{ptx}"
    return (
        f"#define ACCUMULATOR {accumulator}\n#define REGISTERS {registers}\n"
        "#define WGMMA(d, a, b, accumulate) "
        f'asm volatile("{{.reg .pred p; setp.ne.b32 p, %{registers + 2}, 0; '
        f'{name} {{{d}}}, %{registers}, %{registers + 1}, p{immediates};}}" '
        f': {outputs} : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))\n'
    )


def _difference(what: str, mine: npt.NDArray[Any], real: npt.NDArray[Any]) -> str | None:
    """Return a text with the first difference and the number of different elements, or None."""
    places = np.argwhere(mine != real)
    if not len(places):
        return None
    at = tuple(places[0].tolist())
    return (
        f"{what} differs in {len(places)} of {mine.size} elements, first at {at}: expected "
        f"{mine[at]}, the hardware has {real[at]}"
    )


# --- Changed maps --------------------------------------------------------------------------------

#: Number of bytes of shared memory for the kernel's map and mbarrier, in addition to the tile.
CHANGES_BYTES = 512
# Value to which the bytes of the output are set before the kernel runs.
UNTOUCHED = 0xEE
#: Fields whose new value is a constant in the instruction (PTX ISA, tensormap.replace).
CONSTANTS = ("interleave_layout", "swizzle_mode", "fill_mode", "elemtype")
# Fields whose new value is in a register. The last four fields have one value for each dimension.
_BY_DIMENSION = (
    "global_address",
    "rank",
    "global_dim",
    "global_stride",
    "box_dim",
    "element_stride",
)
# Field -> number of the field in changes.cu. The `switch` in changes.cu reserves 8 cases for each
# number. elemtype needs more than 8 cases, so elemtype has the highest number.
NUMBERS = {name: n for n, name in enumerate((*_BY_DIMENSION, *CONSTANTS))} | {"elemtype": 16}
TF32 = (tma.TensorMapDataType.TFLOAT32, tma.TensorMapDataType.TFLOAT32_FTZ)
#: Field that has invalid values -> first invalid value.
_ENDS = {"interleave": 3, "element_type": 11}


@dataclass(frozen=True, slots=True)
class Change:
    """A load with a map. The kernel corrects some fields of the map before the load.

    Before the launch, the host overwrites `fields` of the driver's map with the values
    `overwritten_by`. The kernel writes the driver's values back. If `in_place` is True, the kernel
    changes the map in global memory; otherwise it changes the map in shared memory.
    """

    copy: Copy
    fields: tuple[bits.Field, ...]
    overwritten_by: tuple[int, ...]
    in_place: bool

    def __str__(self) -> str:
        names = ", ".join(field.label for field in self.fields)
        where = "in place" if self.in_place else "published"
        return f"{self.copy}\nchanged, {where}: {names}"


def random_change(rng: Random, max_smem_bytes: int) -> Change:
    """Return a random tile load, and random values that overwrite some fields of its map."""
    copy = random_copy("load", "tiled", rng, max_smem_bytes - CHANGES_BYTES)
    rows = [f for f in bits.fields_of("tiled", copy.arguments.rank) if f.ptx is not None]
    # tensormap.replace can set the field for tf32, but cannot clear this field.
    if copy.arguments.data_type not in TF32:
        rows = [field for field in rows if field.name != "tf32"]
    chosen = set(rng.sample(rows, rng.randint(1, len(rows))))
    ordered = tuple(field for field in rows if field in chosen)
    values = tuple(_legal(field, rng) for field in ordered)
    return Change(copy, ordered, values, rng.random() < 0.5)


def _legal(field: bits.Field, rng: Random) -> int:
    # The number `raw` that a field stores is value / unit - bias.
    raw = rng.randrange(min(field.raw.stop, _ENDS.get(field.name, field.raw.stop)))
    return (raw + field.bias) * field.unit


def compare_change(change: Change, arena: Arena) -> str | None:
    """Change a map on the GPU, and load a tile with the changed map.

    Return the first difference from the expected map and tile, or None.
    """
    copy = change.copy
    tensor_map, on_host = arena.maps(copy.arguments, copy.start)
    expected = bytes(tensor_map)
    before = expected
    for field, value in zip(change.fields, change.overwritten_by, strict=True):
        before = field.write(before, value)
    tile = arena.simulated(on_host, copy).smem
    changes = np.array(instructions(change, expected), np.uint64)
    out = np.full(targets.MAP_BYTES + len(tile), UNTOUCHED, np.uint8)
    coords = struct.pack("<5i", *copy.coords[::-1], *(0,) * (5 - len(copy.coords)))
    numbers = len(copy.coords), int(change.in_place), len(changes), copy.smem_offset, len(tile)
    arena.run(
        ("changes.cu", "change_and_load"),
        WARP,
        len(tile) + CHANGES_BYTES,
        [before, coords, *_words(*numbers, tensor_map.tx_bytes)],
        [out, changes],
    )
    changed = out[: targets.MAP_BYTES].tobytes()
    # Compare all 128 bytes. The kernel must not change bytes 64 to 127.
    if changed != expected:
        return f"the map is   {changed.hex()}\nand should be {expected.hex()}"
    return byte_difference("the tile", tile, out[targets.MAP_BYTES :])


def instructions(change: Change, expected: bytes) -> list[tuple[int, int]]:
    """Return the changes that write the correct values.

    Each change is (`Change.field`, `Change.value`) of the struct `Change` in changes.cu.
    """
    # One instruction of tensormap.replace may write several fields of a map. The dictionary keeps
    # one entry for each instruction.
    found = {}
    for field in change.fields:
        assert field.ptx is not None
        value, number = field.read(expected), 8 * NUMBERS[field.ptx]
        if field.ptx == "elemtype":
            value = DATA_TYPES[change.copy.arguments.data_type].ptx_elemtype
        place = value if field.ptx in CONSTANTS else field.index or 0
        found[field.ptx, place] = number + place, value
    return [*found.values()]
