"""Compare matrix descriptors and ldmatrix addresses with the hardware.

TMA loads tiles with the driver's maps; wgmma reads them with our descriptors, or ldmatrix at our
addresses. The results are compared with those computed from the simulator's tiles: products of
small integers, so that every sum is exact.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.consumer import ldmatrix_addresses, matrix_descriptor
from tma_dlpack.copies import launch
from tma_dlpack.copies.tile import Tile
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.verification.arena import Arena
from tma_dlpack.verification.random_operands import (
    ROOM_BYTES,
    Matrices,
    OperandLayout,
    Product,
)

THREADS, WARP = 128, 32
DONE = 1
KERNELS = "operands.cu"


def compare_product(product: Product, arena: Arena) -> str | None:
    """Multiply two tiles by wgmma with our descriptors; return the difference to the exact."""
    _put_integers(product, arena)
    try:
        a, a_host = arena.maps(product.a.arguments(), 0)
        b, b_host = arena.maps(product.b.arguments(), ROOM_BYTES)
        a_tile = arena.simulated(a_host, product.a)
        b_tile = arena.simulated(b_host, product.b)
        exact = _exact(product, a_tile, b_tile)
        a_is = matrix_descriptor(a, major=product.a_major, smem_address=product.a.smem_offset)
        b_is = matrix_descriptor(b, major=product.b_major, smem_address=product.b.smem_offset)
        blocks, steps = range(product.blocks), range(product.k_steps)
        a_values = [a_is.advance(k, mn_elements=64 * m).value for m in blocks for k in steps]
        b_values = [b_is.advance(k).value for k in steps]
        dtype = np.float32 if product.factor.accumulator == "float" else np.int32
        out = np.full(exact.shape, -1, dtype)
        kernel = arena.kernel(KERNELS, "multiply", _macro(product))
        barrier = -(-product.b.end // 8) * 8
        maps = [bytes(a), bytes(b), _tile_argument(product.a, a), _tile_argument(product.b, b)]
        counts = [struct.pack("<I", n) for n in (barrier, product.blocks, product.k_steps)]
        values = [np.array(a_values, np.uint64), np.array(b_values, np.uint64)]
        _run(kernel, THREADS, barrier + 8, maps + counts, values, out)
    finally:
        arena.reset()
    return _difference("the product", exact, out)


def _exact(product: Product, a_tile: Tile, b_tile: Tile) -> npt.NDArray[np.int64]:
    """Multiply the tiles of the simulator, in int64."""
    a = product.factor.decode(product.a.logical(a_tile.array))
    b = product.factor.decode(product.b.logical(b_tile.array))
    m_by_k = a if product.a_major == "K" else a.T
    k_by_n = b.T if product.b_major == "K" else b
    exact: npt.NDArray[np.int64] = m_by_k @ k_by_n
    return exact


def compare_matrices(matrices: Matrices, arena: Arena) -> str | None:
    """Read a tile by ldmatrix at our addresses; return the difference to the simulated tile."""
    layout = matrices.layout
    tensor_map, on_host = arena.maps(layout.arguments(), 0)
    tile = arena.simulated(on_host, layout)
    addresses = ldmatrix_addresses(
        tensor_map,
        matrices.row,
        matrices.column,
        num=matrices.num,
        transpose=matrices.transpose,
        smem_address=layout.smem_offset,
    )
    out = np.zeros((WARP, 4), np.uint32)
    barrier = -(-layout.end // 8) * 8
    counts = [struct.pack("<I", n) for n in (barrier, matrices.num, matrices.transpose)]
    arguments = [bytes(tensor_map), _tile_argument(layout, tensor_map), *counts]
    kernel = arena.kernel(KERNELS, "read_matrices")
    _run(kernel, WARP, barrier + 8, arguments, [addresses.astype(np.uint32)], out)
    return _difference("a register", _registers(matrices, layout.logical(tile.array)), out)


def _registers(matrices: Matrices, logical: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Return the registers of each lane: PTX ISA, ldmatrix, fragments of 8 x 8 16-bit values."""
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
    """Fill both matrices with integers that their type represents exactly; leave the padding."""
    rng, factor = np.random.default_rng(product.data_seed), product.factor
    for layout, start in ((product.a, 0), (product.b, ROOM_BYTES)):
        rows, width = layout.shape
        numbers = rng.integers(factor.least, factor.most + 1, layout.shape)
        raw = factor.encode(numbers).view(np.uint8).reshape(rows, -1)
        room = arena.host[start : start + rows * layout.pitch_bytes]
        room.reshape(rows, layout.pitch_bytes)[:, : width * factor.element_bytes] = raw
    arena.device.put(arena.host)


def _tile_argument(layout: OperandLayout, tensor_map: TensorMap) -> bytes:
    """Write the kernel's struct Tile."""
    coords = (*layout.coords[::-1], 0, 0)[:3]
    words = (tensor_map.rank, layout.smem_offset, tensor_map.tx_bytes)
    return struct.pack("<3i3I", *coords, *words)


# --- Kernels ------------------------------------------------------------------------------------


def _macro(product: Product) -> str:
    factor = product.factor
    turned = (product.a_major == "MN", product.b_major == "MN")
    return wgmma_macro(factor.ptx, factor.accumulator, product.n, factor.k_elements, *turned)


def wgmma_macro(
    ptx: str, accumulator: str, n: int, k_elements: int, a_turned: bool, b_turned: bool
) -> str:
    """Write one wgmma instruction, with all its registers, as a macro of CUDA C++."""
    registers = n // 2
    d = ", ".join(f"%{i}" for i in range(registers))
    constraint = "f" if accumulator == "float" else "r"
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(registers))
    result = "f32" if accumulator == "float" else "s32"
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


def _run(
    kernel: int,
    threads: int,
    smem_bytes: int,
    by_value: list[bytes],
    inputs: list[npt.NDArray[Any]],
    out: npt.NDArray[Any],
) -> None:
    """Launch one block: values, then the addresses of the inputs, of `out` and of a done word."""
    stream = launch.LEGACY_DEFAULT_STREAM
    done = np.zeros(1, np.uint32)
    arrays = [*inputs, out, done]
    with launch.scratch(sum(-(-array.nbytes // 16) * 16 for array in arrays)) as room:
        addresses = []
        for array in arrays:
            addresses.append(room)
            launch.upload(room, array, stream)
            room += -(-array.nbytes // 16) * 16
        values = [*by_value, *(struct.pack("<Q", address) for address in addresses)]
        arguments = [launch.by_value(value) for value in values]
        launch.launch(kernel, 1, threads, smem_bytes, stream, arguments)
        launch.download(out, addresses[-2], stream)
        launch.download(done, addresses[-1], stream)
        launch.synchronize(stream)
    if done[0] != DONE:
        raise RuntimeError("shared memory does not start at a multiple of 1024: nothing was read")


def _difference(what: str, mine: npt.NDArray[Any], real: npt.NDArray[Any]) -> str | None:
    """Return how many elements differ, and the first."""
    places = np.argwhere(mine != real)
    if not len(places):
        return None
    at = tuple(places[0].tolist())
    return (
        f"{what} differs in {len(places)} of {mine.size} elements, first at {at}: expected "
        f"{mine[at]}, the hardware has {real[at]}"
    )
