"""Simulation of the matrix instructions wgmma, mma.sync, ldmatrix, stmatrix and movmatrix.

A fragment is a matrix in the registers of a warp. If a register has n elements, the first register
of lane l has elements of row l / 4, beginning at column n * (l % 4). All registers of an operand
are one array (registers, lanes), so that a product takes a few NumPy calls.

wgmma reads its operands through the kernel's matrix descriptors. The simulator computes the
addresses of the elements with the function that `MatrixDescriptor.read` uses. So if a descriptor is
wrong, the simulator multiplies the elements that the hardware would read. Floating-point sums are
float32 sums in NumPy's order, because NVIDIA does not publish the order and the inner precision of
the hardware.

Source: PTX ISA 9.0, 9.7.14 (mma, ldmatrix, stmatrix), 9.7.15 (wgmma).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack.kernel.core import operand_addresses
from tma_dlpack.kernel.operations import Operation, operation
from tma_dlpack.ptx.parse import Instruction

Array = npt.NDArray[Any]
WARP, WARPGROUP = 32, 128
# Number of rows and columns of the matrices that ldmatrix and stmatrix move.
ROWS = 8
# Number of rows of A in one wgmma.
WGMMA_ROWS = 64
# Number of bytes along K in one wgmma or tcgen05.mma; it is equal for all element types.
K_BYTES = 32


class Element(NamedTuple):
    """An element type of matrices; `numbers` converts an array of raw bits to numbers."""

    bits: int
    numbers: Callable[[Array], Array]


def _small_float(exponent_bits: int, mantissa_bits: int, has_inf: bool) -> Array:
    """Return the values of the 256 codes of an 8-bit float type."""
    codes = np.arange(256)
    sign = np.where(codes >> 7, -1.0, 1.0)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    subnormal = mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    value = sign * np.where(exponent == 0, subnormal, normal)
    top = (1 << exponent_bits) - 1
    if has_inf:
        special = np.where(mantissa == 0, sign * np.inf, np.nan)
        value = np.where(exponent == top, special, value)
    else:
        # e4m3 has no infinity. Its only NaN has all bits of exponent and mantissa set.
        value = np.where(codes & 0x7F == 0x7F, np.nan, value)
    return value.astype(np.float32)


_E4M3, _E5M2 = _small_float(4, 3, False), _small_float(5, 2, True)


def _bfloat16(bits: Array) -> Array:
    # A bfloat16 is the upper half of a float32.
    return (bits.astype(np.uint32) << 16).view(np.float32)


#: Name of the type in the opcode -> element type. A tf32 has 19 bits, so the hardware ignores the
#: lower 13 bits of a 32-bit register.
ELEMENTS = {
    "f16": Element(16, lambda b: b.view(np.float16).astype(np.float32)),
    "bf16": Element(16, _bfloat16),
    "tf32": Element(32, lambda b: (b & np.uint32(0xFFFFE000)).view(np.float32)),
    "e4m3": Element(8, lambda b: _E4M3[b]),
    "e5m2": Element(8, lambda b: _E5M2[b]),
    "s8": Element(8, lambda b: b.view(np.int8).astype(np.int32)),
    "u8": Element(8, lambda b: b.astype(np.int32)),
    "f64": Element(64, lambda b: b.view(np.float64)),
}
WORD = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


# -- fragments -------------------------------------------------------------------------------------


def unpacked(registers: Array, bits: int) -> Array:
    """Split 32-bit registers (registers, lanes) into elements (registers, elements, lanes)."""
    if bits >= 32:
        return registers[:, None, :]
    per = 32 // bits
    shifts = (np.arange(per, dtype=np.uint32) * bits)[None, :, None]
    return (registers[:, None, :] >> shifts).astype(WORD[bits])


def rows_of_fragment(registers: Array, element: Element) -> Array:
    """Return the matrix (warps, 16, K) of an A fragment.

    The registers of a lane alternate between row r and row r + 8.
    """
    # The axes are (registers, elements of a register, lanes).
    parts = unpacked(registers, element.bits)
    count, per, lanes = parts.shape
    warps = lanes // WARP
    # A fragment of m8n8k4 (f64) has one register and 8 rows.
    if count == 1:
        matrix = parts.reshape(1, per, warps, 8, 4).transpose(2, 3, 0, 4, 1)
        return np.ascontiguousarray(element.numbers(matrix.reshape(warps, 8, 4 * per)))
    # Transpose the axes from (k half, row half, element, warp, row, lane in the row) to (warp, row
    # half, row, k half, lane in the row, element).
    shaped = parts.reshape(count // 2, 2, per, warps, 8, 4).transpose(3, 1, 4, 0, 5, 2)
    bits = np.ascontiguousarray(shaped).reshape(warps, 16, count // 2 * 4 * per)
    return element.numbers(bits)


def columns_of_fragment(registers: Array, element: Element) -> Array:
    """Return the matrix (warps, K, 8) of a B fragment."""
    parts = unpacked(registers, element.bits)
    count, per, lanes = parts.shape
    warps = lanes // WARP
    shaped = parts.reshape(count, per, warps, 8, 4).transpose(2, 0, 4, 1, 3)
    return element.numbers(np.ascontiguousarray(shaped).reshape(warps, count * 4 * per, 8))


def sums_of(registers: Array, kind: str) -> Array:
    """Return the accumulators (warps, rows, n) that registers contain.

    The values are float32, int32 or float64.
    """
    wide = {"f32": np.float32, "s32": np.int32, "f64": np.float64}
    if kind == "f16":
        values = unpacked(registers, 16).view(np.float16).astype(np.float32)
    else:
        # Two neighbouring columns are in two neighbouring registers.
        values = registers.reshape(-1, 2, registers.shape[1]).view(wide[kind])
    # The first axis of `values` counts matrices of 8 rows x 8 columns.
    count, _, lanes = values.shape
    warps, halves = lanes // WARP, 1 if count == 1 else 2
    shaped = values.reshape(count // halves, halves, 2, warps, 8, 4).transpose(3, 1, 4, 0, 5, 2)
    return np.ascontiguousarray(shaped).reshape(warps, 8 * halves, count // halves * 8)


def registers_of(sums: Array, kind: str) -> Array:
    """Convert accumulators (warps, rows, n) to registers (registers, lanes).

    This is the inverse of `sums_of`.
    """
    warps, rows, n = sums.shape
    halves = rows // 8
    shaped = sums.reshape(warps, halves, 8, n // 8, 4, 2).transpose(3, 1, 5, 0, 2, 4)
    flat = np.ascontiguousarray(shaped).reshape(n // 8 * halves, 2, warps * WARP)
    if kind == "f16":
        half = flat.astype(np.float16).view(np.uint16).astype(np.uint32)
        return half[:, 0] | half[:, 1] << 16
    return flat.reshape(-1, warps * WARP).view(np.uint64 if kind == "f64" else np.uint32)


# -- mma.sync --------------------------------------------------------------------------------------

# For example "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32".
_MMA = re.compile(
    r"mma\.sync\.aligned\.m(\d+)n8k(\d+)\.row\.col(?:\.satfinite)?(?:\.kind::f8f6f4)?"
    r"\.(f16|f32|f64|s32)\.(\w+)\.(\w+)\.(f16|f32|f64|s32)$"
)


@operation("mma.sync")
def mma(code: Instruction) -> Operation | None:
    """Return the operation of mma.sync, which computes D = A B + C in one warp's registers."""
    found = _MMA.match(code.opcode)
    if not found or found[4] not in ELEMENTS or found[5] not in ELEMENTS:
        return None
    d_kind, a_type, b_type, c_kind = found[3], ELEMENTS[found[4]], ELEMENTS[found[5]], found[6]
    saturates = ".satfinite" in code.opcode

    def run(g: Any, mask: Array | None, a: Array, b: Array, c: Array) -> Array:
        left, right = rows_of_fragment(a, a_type), columns_of_fragment(b, b_type)
        before = sums_of(c, c_kind)
        if d_kind == "s32":
            # Compute the sum in 64 bits. With .satfinite, clip the sum to the range of int32.
            # Without .satfinite, the sum wraps around.
            total = left.astype(np.int64) @ right.astype(np.int64) + before
            if saturates:
                total = total.clip(-(1 << 31), (1 << 31) - 1)
            return registers_of(total.astype(np.int32), d_kind)
        return registers_of(left @ right + before, d_kind)

    return Operation(run, destinations=1, needs_warp=True, register_block=True)


# -- ldmatrix, stmatrix ----------------------------------------------------------------------------


def _rows_per_matrix(g: Any, address: Array, matrices: int) -> Array:
    """Return the row addresses (matrices, warps, 8) of ldmatrix and stmatrix.

    Lane 8 i + r passes the address of row r of matrix i.
    """
    lanes = np.broadcast_to(address, g.n).reshape(-1, WARP)[:, : matrices * ROWS]
    found: Array = lanes.reshape(-1, matrices, ROWS).transpose(1, 0, 2)
    return found


@operation("ldmatrix.sync")
def ldmatrix(code: Instruction) -> Operation | None:
    """Return the operation of ldmatrix, which loads 8 x 8 matrices of 16-bit elements.

    Lane l gets two elements of row l / 4 of each matrix.
    """
    words = code.opcode.split(".")
    if "m8n8" not in words or words[-1] != "b16":
        return None
    matrices = next((int(w[1]) for w in words if re.fullmatch(r"x[124]", w)), 1)
    transposes = "trans" in words

    def run(g: Any, mask: Array | None, address: Array) -> tuple[Array, ...]:
        at = _rows_per_matrix(g, address, matrices)
        rows = g.machine.memory.load_rows(g, at.reshape(-1), 16)  # (rows, 16) bytes
        elements = rows.view(np.uint16).reshape(matrices, -1, ROWS, ROWS)
        if transposes:
            elements = elements.swapaxes(2, 3)
        # A 32-bit register has two neighbouring elements, so the 64 elements of a matrix fill one
        # register in each of the 32 lanes.
        pairs = np.ascontiguousarray(elements).reshape(matrices, -1, ROWS * ROWS)
        return tuple(pairs.view(np.uint32).reshape(matrices, -1))

    return Operation(run, destinations=1, needs_warp=True)


@operation("stmatrix.sync")
def stmatrix(code: Instruction) -> Operation | None:
    """Return the operation of stmatrix, the inverse of ldmatrix."""
    words = code.opcode.split(".")
    if "m8n8" not in words or words[-1] != "b16":
        return None
    matrices = next((int(w[1]) for w in words if re.fullmatch(r"x[124]", w)), 1)
    transposes = "trans" in words

    def run(g: Any, mask: Array | None, address: Array, values: Any) -> None:
        at = _rows_per_matrix(g, address, matrices)
        registers = values if isinstance(values, tuple) else (values,)
        lanes = np.stack([np.broadcast_to(v, g.n) for v in registers]).astype(np.uint32)
        elements = lanes.view(np.uint16).reshape(matrices, -1, ROWS, ROWS)
        if transposes:
            elements = elements.swapaxes(2, 3)
        rows = np.ascontiguousarray(elements).reshape(-1, ROWS)
        g.machine.memory.store_rows(g, at.reshape(-1), rows.view(np.uint8))

    return Operation(run, needs_warp=True)


@operation("movmatrix.sync")
def movmatrix(code: Instruction) -> Operation:
    """Return the operation of movmatrix, which transposes an 8 x 8 matrix in a warp's registers."""

    def run(g: Any, mask: Array | None, value: Array) -> Array:
        lanes = np.broadcast_to(value, g.n).astype(np.uint32)
        elements = lanes.view(np.uint16).reshape(-1, ROWS, ROWS).swapaxes(1, 2)
        moved: Array = np.ascontiguousarray(elements).reshape(-1, ROWS * ROWS).view(np.uint32)
        return moved.reshape(-1)

    return Operation(run, destinations=1, needs_warp=True)


# -- wgmma -----------------------------------------------------------------------------------------

# For example "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16".
_WGMMA = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)(\.satfinite)?"
    r"\.(f16|f32|s32)\.(\w+)\.(\w+)$"
)


@operation("wgmma.mma_async")
def wgmma(code: Instruction) -> Operation | None:
    """Return the operation of wgmma, with which a warpgroup computes D = A B + D.

    B is in shared memory, and A is in shared memory or in registers. `run` computes the values
    immediately. But the hardware may read the operands until `wgmma.wait_group`, so `Order` reports
    conflicting accesses before `wgmma.wait_group`.
    """
    found = _WGMMA.match(code.opcode)
    if not found or found[5] not in ELEMENTS or found[6] not in ELEMENTS:
        return None
    n, d_kind = int(found[1]), found[4]
    names, types = (found[5], found[6]), (ELEMENTS[found[5]], ELEMENTS[found[6]])
    k = K_BYTES * 8 // types[0].bits
    has_transpose = types[0].bits == 16

    def run(
        g: Any, mask: Array | None, d: Array, a: Any, b: Any, scale_d: Any, *rest: Any
    ) -> Array:
        # A matrix A in registers is an array (registers, lanes). A descriptor of A is a number or
        # an array (lanes,).
        from_registers = isinstance(a, np.ndarray) and a.ndim == 2
        negate_a, negate_b, *transposed = (int(number) for number in rest) if rest else (1, 1)
        # Transpose operands exist only for 16-bit types. The transpose operand for A exists only if
        # A is in shared memory.
        trans_b = transposed[-1] if has_transpose and transposed else 0
        trans_a = transposed[0] if has_transpose and transposed and not from_registers else 0
        out = np.empty_like(d)
        for first in range(0, g.n, WARPGROUP):
            lanes = slice(first, first + WARPGROUP)
            if from_registers:
                left = rows_of_fragment(a[:, lanes], types[0]).reshape(WGMMA_ROWS, k)
            else:
                left = _operand(g, lanes, a, names[0], trans_a, WGMMA_ROWS, k)
            right = _operand(g, lanes, b, names[1], trans_b, n, k).T
            if negate_a < 0:
                left = -left
            if negate_b < 0:
                right = -right
            product = left @ right if d_kind != "s32" else _whole(left, right)
            keeps = _uniform(scale_d, lanes)
            # Each of the four warps of a warpgroup has 16 of the 64 rows.
            shaped = product.reshape(4, 16, n)
            if keeps:
                shaped = shaped + sums_of(d[:, lanes], d_kind)
            out[:, lanes] = registers_of(shaped.astype(product.dtype), d_kind)
        return out

    return Operation(run, destinations=1, needs_warp=True, register_block=True, updates=True)


def _whole(left: Array, right: Array) -> Array:
    # Use float64, because sums of products of 8-bit integers are exact in float64, and NumPy
    # multiplies float64 matrices fast.
    return (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int32)


def _uniform(value: Any, lanes: slice) -> int:
    """Return the value of an operand that is equal in all threads of a warpgroup."""
    return int(value) if np.ndim(value) == 0 else int(value[lanes][0])


@lru_cache(maxsize=1024)
def _places(value: int, bits: int, transposed: int, mn: int, k: int) -> tuple[Array, Array]:
    """Return (element indices (mn, k), chunks) of an operand in shared memory.

    An element index is the offset of an element in units of elements. `chunks` are the offsets, in
    units of 16 bytes, of all chunks that contain elements; they are distinct and ascending.
    """
    major = "MN" if transposed else "K"
    addresses = operand_addresses("wgmma", value, major, mn, k, bits // 8)
    return addresses // (bits // 8), np.unique(addresses // 16)


def _operand(
    g: Any, lanes: slice, descriptor: Any, name: str, transposed: int, mn: int, k: int
) -> Array:
    """Return the operand (mn, k) that a warpgroup's 64-bit descriptor describes, as numbers."""
    value = _uniform(descriptor, lanes)
    element = ELEMENTS[name]
    index, chunks = _places(value, element.bits, transposed, mn, k)
    smem = g.block.smem
    if (int(chunks[-1]) + 1) * 16 > len(smem):
        g.machine.fault(
            g,
            "ILLEGAL_ADDRESS",
            f"wgmma reads shared memory up to {(int(chunks[-1]) + 1) * 16:#x}; the block has "
            f"{len(smem):#x} bytes",
            "correct the matrix descriptor: tma.matrix_descriptor(map) prints its fields",
        )
    order = g.machine.order
    if order is not None:
        threads = g.lanes[lanes]
        groups = g.block.sync.wgmma[int(threads[0]) // WARPGROUP]
        agent = groups.agent(order, "wgmma", g.block, "wgmma")
        units = order.units(g.block, chunks * 16, 16)
        order.async_read(g, threads, g.block, units, agent, groups.clock)
    words = smem[: len(smem) // 8 * 8].view(WORD[element.bits])
    return element.numbers(words[index])
