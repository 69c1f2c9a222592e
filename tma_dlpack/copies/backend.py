"""`Backend`, the base class of the simulator and of the CUDA backend, and the reductions.

`Backend` checks the arguments of a copy. The functions of reductions compute what
``cp.reduce.async.bulk.tensor`` computes, for each data type and operation.

Source of the arithmetic: measured on an H200 (driver 580.159.04, 2026-11-20).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from tma_dlpack.copies.request import (
    CopyRequest,
    gather4_request,
    load_request,
    scatter4_request,
    store_request,
)
from tma_dlpack.copies.tile import Tile, Values
from tma_dlpack.public import public
from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.refusals import refuse
from tma_dlpack.tensor_map.map import TensorMap


@public
class Backend(ABC):
    """A backend that copies tiles: `backend("simulator")` uses NumPy, `backend("cuda")` the GPU.

    `load_tile`, `load_tiles`, `store_tile` and `reduce_tile` have the parameters of the functions
    of the same name in `tma_dlpack`. Each method checks all arguments before it copies a byte.

    Every method also takes `stream`: a stream of torch, CuPy or cuda.core, or a CUstream as an
    integer. Only the CUDA backend accepts a stream. If `stream` is None, a copy of a torch or CuPy
    tensor uses the current stream of torch or CuPy, and other copies use the legacy default stream.

    To write a backend, implement `load` and `store`. Both methods receive a checked request.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.ones((8, 8), np.float32), box_sizes=(2, 4))
    >>> tma.backend("simulator").load_tile(tm, (0, 0)).array.tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """

    name: str

    @abstractmethod
    def load(self, request: CopyRequest, memory: object, stream: object) -> Tile:
        """Execute a checked load."""

    @abstractmethod
    def store(
        self, request: CopyRequest, data: object, op: str, memory: object, stream: object
    ) -> None:
        """Execute a checked store or reduction; `op` is ``"store"`` or the reduction's name."""

    def load_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        *,
        im2col_offsets: Sequence[int] | None = None,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> Tile:
        """Load one tile into shared memory; see `tma_dlpack.load_tile`."""
        request = load_request(tensor_map, coords, im2col_offsets, smem_offset, many=False)
        return self.load(request, memory, stream)

    def load_tiles(
        self,
        tensor_map: TensorMap,
        coords: object,
        *,
        im2col_offsets: Sequence[int] | None = None,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> Tile:
        """Load n tiles; the shape of `coords` is (n, rank). See `tma_dlpack.load_tiles`."""
        request = load_request(tensor_map, coords, im2col_offsets, smem_offset, many=True)
        return self.load(request, memory, stream)

    def store_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        data: object,
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> None:
        """Store one tile to global memory; see `tma_dlpack.store_tile`."""
        request = store_request(tensor_map, coords, smem_offset)
        self.store(request, data, "store", memory, stream)

    def reduce_tile(
        self,
        tensor_map: TensorMap,
        coords: Sequence[int],
        data: object,
        op: str,
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> None:
        """Reduce one tile into global memory; see `tma_dlpack.reduce_tile`."""
        request = store_request(tensor_map, coords, smem_offset)
        # Check the coordinates first, then the operation.
        reduction = reduction_of(tensor_map.data_type, op)
        self.store(request, data, reduction, memory, stream)

    def gather4(
        self,
        tensor_map: TensorMap,
        column: int,
        rows: Sequence[int],
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> Tile:
        """Load four rows of a matrix into one tile (tile::gather4, sm_100 and later).

        `column` is the coordinate of the first column, and `rows` are the coordinates of the four
        rows. The map's box must be (1, columns). Only the simulator supports this copy. Its result
        is documented, not measured.
        """
        return self.load(gather4_request(tensor_map, column, rows, smem_offset), memory, stream)

    def scatter4(
        self,
        tensor_map: TensorMap,
        column: int,
        rows: Sequence[int],
        data: object,
        *,
        memory: object = None,
        smem_offset: int = 0,
        stream: object = None,
    ) -> None:
        """Store one tile to four rows of a matrix (tile::scatter4: sm_100, sm_103, sm_107, sm_110).

        `column` is the coordinate of the first column, and `rows` are the coordinates of the four
        rows. The map's box must be (1, columns). Only the simulator supports this copy. Its result
        is documented, not measured.
        """
        request = scatter4_request(tensor_map, column, rows, smem_offset)
        self.store(request, data, "store", memory, stream)


# --- Reductions ---------------------------------------------------------------------------------

Operation = Callable[[Values, Values], Values]
_T = TensorMapDataType

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")

_ORDERED = ("min", "max")
_BITWISE = ("and", "or", "xor")

#: Data type -> operations that the hardware executes; other operations are illegal instructions
#: [measured].
REDUCTIONS: dict[TensorMapDataType, tuple[str, ...]] = {
    _T.UINT32: ("add", *_ORDERED, "inc", "dec", *_BITWISE),
    _T.INT32: ("add", *_ORDERED, *_BITWISE),
    _T.UINT64: ("add", *_ORDERED, *_BITWISE),
    _T.INT64: _ORDERED,
    _T.FLOAT16: ("add", *_ORDERED),
    _T.BFLOAT16: ("add", *_ORDERED),
    _T.FLOAT32: ("add",),
    _T.FLOAT64: ("add",),
    _T.FLOAT32_FTZ: ("add",),
    _T.TFLOAT32: ("add",),
    _T.TFLOAT32_FTZ: ("add",),
}


def reduction_of(data_type: TensorMapDataType, op: object) -> str:
    """Return `op` as text; refuse an operation that the hardware lacks for the data type."""
    allowed, word = REDUCTIONS.get(data_type, ()), text_of(op)
    if word is not None and word in allowed:
        return word
    if word not in OPERATIONS:
        refuse("COPY_REDUCTION", "op", f"op is {shown(op)}, not one of {', '.join(OPERATIONS)}")
    has = f"has {', '.join(allowed)}" if allowed else "has no reductions"
    refuse("COPY_REDUCTION", "op", f"op is {shown(op)}, but {data_type.name} {has}")


def combine(data_type: TensorMapDataType, op: str, old: Values, new: Values) -> Values:
    """Return ``op(old, new)`` element by element, as the engine computes it.

    `old` and `new` have the NumPy type of `data_type`; bfloat16 values are in uint16 arrays. Sums
    are rounded to nearest even. Only the ..._FTZ types treat subnormals as zero.
    """
    if op in _WORD_OPERATIONS:
        return _WORD_OPERATIONS[op](old, new)
    if data_type in _INFINITY_WORDS and op in _ORDERED:
        infinity = _INFINITY_WORDS[data_type]
        return _ordered(old.view(np.uint16), new.view(np.uint16), op, infinity).view(old.dtype)
    if op in _ORDERED:
        return np.minimum(old, new) if op == "min" else np.maximum(old, new)
    with np.errstate(all="ignore"):
        return _ADDITIONS.get(data_type, np.add)(old, new)


def _increment(old: Values, new: Values) -> Values:
    return np.where(old >= new, 0, old + np.uint32(1)).astype(old.dtype)


def _decrement(old: Values, new: Values) -> Values:
    return np.where((old == 0) | (old > new), new, old - np.uint32(1)).astype(old.dtype)


def _ordered(old: Values, new: Values, op: str, infinity: int) -> Values:
    """Return the min or max of 16-bit floats; `old` and `new` are the bits of the floats.

    -0 is less than +0. If one operand is NaN, the result is the other operand. If both are NaN, the
    result is 0x7FFF.
    """
    # A rank is an unsigned number; a larger float has a larger rank. Of two negative floats, the
    # larger one has the smaller bits, so the rank of a negative float is its inverted bits.
    old_nan, new_nan = (old & 0x7FFF) > infinity, (new & 0x7FFF) > infinity
    old_rank, new_rank = (np.where(w >> 15, ~w, w | 0x8000) for w in (old, new))
    takes_new = new_rank < old_rank if op == "min" else new_rank > old_rank
    chosen = np.where(old_nan | (takes_new & ~new_nan), new, old)
    return np.where(old_nan & new_nan, 0x7FFF, chosen).astype(np.uint16)


def _add_float(old: Values, new: Values) -> Values:
    """Add float16 or float32; a NaN result has sign 0 and ones in all other bits."""
    total = old + new
    words = total.view(f"u{total.itemsize}")
    words[np.isnan(total)] = np.iinfo(words.dtype).max >> 1
    return total


def _add_float32_ftz(old: Values, new: Values) -> Values:
    return _flushed(_add_float(_flushed(old), _flushed(new)))


def _add_float64(old: Values, new: Values) -> Values:
    """Add float64; if one operand is NaN, the result is this operand, bit for bit.

    If both operands are NaN, the result is `new`. The result of inf - inf is a negative NaN.
    """
    total, old_words, new_words = (v.view(np.uint64) for v in (old + new, old, new))
    total[np.isnan(total.view(np.float64))] = 0xFFF8000000000000
    kept = np.where(np.isnan(old), old_words, total)
    return np.where(np.isnan(new), new_words, kept).view(np.float64)


def _add_bfloat16(old: Values, new: Values) -> Values:
    """Add bfloat16 in float32, and round the sum to bfloat16.

    Each sum is rounded twice, to float32 and to bfloat16. float32 has enough bits, so the two
    roundings give the result of one rounding to bfloat16.
    """
    # The bits of a bfloat16 are the upper half of a float32. The sum is rounded to nearest even.
    total = (old.astype(np.uint32) << 16).view(np.float32)
    total += (new.astype(np.uint32) << 16).view(np.float32)
    words = total.view(np.uint32)
    rounded = (words + 0x7FFF + (words >> 16 & 1)) >> 16
    return np.where(np.isnan(total), 0x7FFF, rounded).astype(np.uint16)


def _flushed(values: Values) -> Values:
    # A subnormal becomes a zero of the same sign.
    subnormal = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(subnormal, np.copysign(np.float32(0), values), values)


_WORD_OPERATIONS: dict[str, Operation] = {
    "inc": _increment,
    "dec": _decrement,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
#: 16-bit float type -> the bits of +infinity. Without the sign bit, the bits of every NaN are
#: larger.
_INFINITY_WORDS = {_T.FLOAT16: 0x7C00, _T.BFLOAT16: 0x7F80}
_ADDITIONS: dict[TensorMapDataType, Operation] = {
    **dict.fromkeys((_T.FLOAT16, _T.FLOAT32, _T.TFLOAT32), _add_float),
    **dict.fromkeys((_T.FLOAT32_FTZ, _T.TFLOAT32_FTZ), _add_float32_ftz),
    _T.BFLOAT16: _add_bfloat16,
    _T.FLOAT64: _add_float64,
}
