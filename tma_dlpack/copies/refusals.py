"""Why a copy is refused: one row per reason, the same for every backend."""

from __future__ import annotations

from typing import NoReturn

from tma_dlpack.types.errors import TmaPreconditionError, Violation

__all__ = ["PTX", "REFUSALS", "refuse"]

_MEASURED = "measured: illegal instruction (H200, driver 580.159.04, 2026-11-20)"
_MEASURED_11_21 = "measured: illegal instruction (H200, driver 580.159.04, 2026-11-21)"
PTX = "PTX ISA, cp.async.bulk.tensor"

#: rule -> the limit, a fix, the source.
REFUSALS: dict[str, tuple[str, str, str]] = {
    "COPY_COORDS_COUNT": (
        "there must be one coordinate per dimension, row-major, outermost first",
        "pass as many coordinates as the map has dimensions",
        "measured: an instruction of another rank is illegal (H200, driver 580.159.04)",
    ),
    "COPY_COORDS_TYPE": (
        "coordinates must be integers, not bool, in an order, one per dimension",
        "pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles",
        PTX,
    ),
    "COPY_COORD_32_BITS": (
        "a coordinate must fit a signed 32-bit register, -2147483648..2147483647",
        "move the tensor's address (with_address) and count from there",
        f"{PTX}: tensorCoords are .s32",
    ),
    "COPY_INNER_16B": (
        "the innermost coordinate must fall on 16 bytes, also when negative or out of bounds",
        "round the innermost coordinate to that multiple",
        _MEASURED,
    ),
    "COPY_INNER_128_VALUES": (
        "the innermost coordinate of an ALIGN16B type must be a multiple of 128 values",
        "round the innermost coordinate to a multiple of 128",
        "PTX ISA, sub-byte types; documented, not measured",
    ),
    "COPY_SMEM_OFFSET": (
        "smem_offset must be a multiple of 128 bytes, 0 or more",
        "align the shared-memory buffer to 128 bytes, better to the map's smem_alignment",
        "measured: misaligned address (H200, driver 580.159.04, 2026-11-20)",
    ),
    "COPY_SMEM_SIZE": (
        "the tile must end within the shared memory of a block",
        "use a smaller box or a smaller smem_offset",
        "CUDA driver API, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    ),
    "COPY_IM2COL_START": (
        "a column must start inside the bounding box",
        "start at one of tile_coords(tensor_map), or widen the corners",
        _MEASURED,
    ),
    "COPY_IM2COL_OFFSETS": (
        "im2col_offsets must be unsigned integers that share 16 bits: 0..65535 at rank 3, 0..255 "
        "at rank 4, 0..31 at rank 5; one per spatial dimension, row-major (D, H, W); an "
        "im2col-wide map takes one, of W",
        "pass tap x dilation for each spatial dimension, or None for zeros",
        "measured: bits beyond are dropped or change the next offset (H200, driver 580.159.04, "
        "2026-11-20)",
    ),
    "COPY_OFFSETS_WITHOUT_IM2COL": (
        "only loads of im2col maps take im2col_offsets",
        "omit im2col_offsets",
        f"{PTX}: im2colOffsets; stores are im2col_no_offs",
    ),
    "COPY_STORE_NEGATIVE": (
        "a store or reduction must not start at a negative coordinate",
        "start at 0 or more; shift the box, not the tensor",
        _MEASURED,
    ),
    "COPY_IM2COL_STORE_CORNERS": (
        "a store through an im2col map needs lower corners >= 0 and upper corners <= 0",
        "make a second map without padding for the store",
        _MEASURED,
    ),
    "COPY_REDUCTION": (
        "the hardware has no such reduction of this type",
        "use one that it has, or load, combine and store",
        _MEASURED,
    ),
    "COPY_DATA": (
        "data must be the logical tile (row-major, packed) or the raw shared-memory bytes",
        "pass an array like Tile.array, or uint8 bytes like Tile.smem",
        "tma_dlpack, store_tile",
    ),
    "COPY_DATA_AMBIGUOUS": (
        "the two would store different bytes, so say which it is",
        "pass data[None] for the logical tile, or data.tobytes() for shared memory",
        "tma_dlpack, store_tile",
    ),
    "COPY_DATA_HOST": (
        "data must lie in host memory and hold its values, also for a copy on the GPU",
        "pass x.cpu() of torch (with .resolve_conj() and .resolve_neg()), or x.get() of CuPy",
        "tma_dlpack, store_tile",
    ),
    "COPY_ADDRESS": (
        "it must be a multiple of 16 bytes, of 32 with interleave bytes32 and the ALIGN16B types",
        "pass with_address() an address that is one",
        "measured: misaligned address (H200, driver 580.159.04, 2026-11-21); CUDA driver API, "
        "cuTensorMapEncodeTiled: globalAddress",
    ),
    "COPY_BOX_ROW": (
        "a row of the box must be a multiple of 16 bytes, and with a swizzle fit its span",
        "change the box or the swizzle back with replace(), or make the map anew",
        _MEASURED_11_21,
    ),
    "COPY_NAN_FILL": (
        "only floating-point types can be filled with NaN",
        "replace(fill_mode='none'), or make the map anew",
        _MEASURED_11_21,
    ),
    "COPY_STRIDE": (
        "every stride must be a multiple of 16 bytes, of 32 with interleave bytes32",
        "change the strides or the interleave back with replace(), or make the map anew",
        _MEASURED_11_21,
    ),
    "COPY_DIM_31_BITS": (
        "no extent may be over 2147483648, although the driver encodes maps up to 4294967296",
        "describe the tensor in parts, each a map of its own",
        _MEASURED,
    ),
    "COPY_GATHER4": (
        "gather4 and scatter4 take a tiled map of rank 2 with one row in its box, and four rows",
        "make the map with box_sizes=(1, columns), and pass four row coordinates",
        "PTX ISA, tile::gather4 and tile::scatter4; documented, not measured",
    ),
    "COPY_MEMORY": (
        "memory must be the contiguous NumPy uint8 array whose own storage holds the addresses",
        "pass memory=, such as x.view(numpy.uint8), or make the map from a tensor; for an address "
        'of a GPU pass backend="cuda"',
        "tma_dlpack, memory of the simulator",
    ),
    "COPY_MOVED": (
        "it must lie where and as the map describes it; a map keeps its tensor alive, but not in "
        "its place",
        "make the map again, or pass tensor_map.with_address(x) where only the address is another",
        "tma_dlpack, memory of a copy",
    ),
    "COPY_OUTSIDE_MEMORY": (
        "every byte that a copy touches must lie inside",
        "pass memory= with the array that holds the map's addresses, or smaller dimensions",
        "tma_dlpack, memory of a copy",
    ),
    "COPY_PAGES": (
        "a copy there would end this process",
        "keep the memory mapped while the map is used; map it with write permission for stores",
        "proc(5), /proc/self/maps: only memory that no framework allocated is looked at",
    ),
    "COPY_STORE_OVERRUN": (
        "stores write whole chunks of 16 bytes, so each row must be padded to 16 bytes",
        "pad the rows of the tensor to 16 bytes, or pass memory= with the whole allocation",
        "measured (H200, driver 580.159.04, 2026-11-20)",
    ),
    "COPY_READ_ONLY": (
        "stores and reductions need memory that may be written",
        "make the map of a writeable copy: x.copy() of NumPy; numpy.array(x) of JAX, whose arrays "
        "never change, or on the GPU cupy.array(x) or a clone in torch; or pass memory=",
        "DLPACK_FLAG_BITMASK_READ_ONLY (dlpack.h 1.3); numpy.ndarray.flags; JAX: arrays are "
        "immutable",
    ),
}


def refuse(rule: str, argument: str, found: str, cause: BaseException | None = None) -> NoReturn:
    """Raise the refusal of a row, with what was found."""
    limit, fix, source = REFUSALS[rule]
    raise TmaPreconditionError(Violation(rule, argument, found, limit, fix, source)) from cause
