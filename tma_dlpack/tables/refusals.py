"""Rules about arguments, files, copies and a map's bytes, as rows of text tables.

Each row is one reason for a refusal, and becomes a `Rule`. Other modules have the rules about
operands (`consumer.refusals`), tensors (`dlpack.layout`) and the arguments of a map (`checks`).
`Rule.error` makes the error of a row. If the limit depends on the call, the column `asks` has a
general limit, which the list of rules shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tma_dlpack.tables.rule import ARGUMENT, Rule, rules_of
from tma_dlpack.tables.targets import PROVENANCE

#: Limits of the sizes of files that users pass. Larger files are refused.
MAX_PTX_BYTES = 96 << 20
MAX_LOG_BYTES = 1 << 27
# Limit of a core dump that is compressed or comes from a pipe. A plain file has no limit.
MAX_PIPED_DUMP_BYTES = 1 << 29
MAX_TRACE_CHARACTERS = 1 << 27  # the JSON of 10,000 different maps has about 1 << 24 characters
MAX_VERIFY_BYTES = 1 << 27  # `verify` with n=10,000 writes about 80 MB of JSON
VERIFY_FORMAT = "tma_dlpack verify, 1"

_PTX = "PTX ISA, cp.async.bulk.tensor"
_MEASURED = "measured: illegal instruction (H200, driver 580.159.04, 2026-11-20)"
_MEASURED_11_21 = "measured: illegal instruction (H200, driver 580.159.04, 2026-11-21)"

CALL_RULES: tuple[Rule, ...] = (
    ARGUMENT,
    *rules_of(
        "call",
        f"""
id | on | asks | limit | fix | source
C_TYPE | | fit its C type in cuda.h | | pass a value that fits the C type in cuda.h
    | cuda.h, prototypes of cuTensorMap*
MAP_BYTES | data | be 128 bytes, and those of a map |
    | dump the 128 bytes of a CUtensorMap, and pass the target that it was made for
    | the layout as {PROVENANCE}
REPLACE_VALUE | | be in the range of its field | | | PTX ISA, tensormap.replace
ADDRESS_LAYOUT | tensor_or_int | have the shape, strides, dtype and device that are in the map |
    | make a new map of this tensor with make_tma_descriptor(x, ...)
    | CUDA driver API, cuTensorMapReplaceAddress
DEVICE_CHECK | | be a call on the device that completes | |
    | a check of the checked build of tma_dlpack.h, on the device
GATHER4 | box_dim | | gather4 needs a map of rank 2 whose box has one row
    | make a map with box_sizes=(1, columns), and copy 4 x columns elements at a time: each copy
    names four rows | {_PTX}
SCATTER4 | target | | scatter4 exists on sm_10x and sm_110 alone
    | sm_90, sm_120 and sm_121 have none (sm_100a, sm_103a and sm_110a do): store the rows with
    ordinary stores, or one tile copy for each run of rows | {_PTX}
GATHER4_TARGET | target | | gather4 exists since compute capability 10.0
    | load the rows with ordinary loads; sm_120 and sm_121 have it for .shared::cta alone
    | {_PTX}
UNREADABLE | | point to memory of the process | the driver reads and writes through it
    | pass the address of memory that lives until the call returns
    | trace: process_vm_readv of the process itself
DRIVER_RESULT | tensor_map | be a call that the driver accepts |
    | report it with the arguments: this driver asks something that the rules do not know
    | trace: the result of the call
""",
    ),
)
FILE_RULES = rules_of(
    "file",
    f"""
id | on | must | fix | source
FILE_CORE_DUMP | path | be a whole GPU core dump
    | make one: tma-dlpack postmortem --keep FILE -- PROGRAM, or set
    CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 and CUDA_COREDUMP_FILE | tma_dlpack, postmortem
FILE_LOG | text | be a log of at most {MAX_LOG_BYTES >> 20} MiB
    | pass the part of it around the first error | tma_dlpack, explain
FILE_MAP | map | be 128 bytes
    | pass a dump of 128 bytes as gdb, xxd or C print it, or a file that holds one
    | tma_dlpack, decode
FILE_PTX | source
    | be PTX, which has a .version and a .target, of at most {MAX_PTX_BYTES >> 20} MiB
    | make it with nvcc -ptx -lineinfo, or pass the .cu itself | tma_dlpack, lint
FILE_TRACE | text | be the JSON of a trace, of at most {MAX_TRACE_CHARACTERS} characters
    | run tma-dlpack trace --json -o FILE -- PROGRAM | tma_dlpack, trace
FILE_VERIFY | path
    | be a file of the format {VERIFY_FORMAT!r}, of at most {MAX_VERIFY_BYTES >> 20} MiB
    | pass what `tma-dlpack verify --out FILE` wrote | tma_dlpack, verify
""",
)

#: Id -> row, for arguments and files.
REFUSALS: dict[str, Rule] = {row.id: row for row in (*CALL_RULES, *FILE_RULES)}

#: Reasons to refuse a copy, for all backends. The column `unsupported` is "hardware" if the
#: hardware fails on such a copy, and empty otherwise.
_COPY_ROWS = rules_of(
    "copy",
    f"""
id | unsupported | limit | fix | source
COPY_COORDS_COUNT | hardware | there must be one coordinate per dimension, outermost first
    | pass as many coordinates as the map has dimensions
    | measured: a rank other than the map's is an illegal instruction (H200, driver 580.159.04)
COPY_COORDS_TYPE | hardware | coordinates must be a sequence of integers (not bool), one per
    dimension
    | pass a tuple or list of integers, or an integer array of shape (n, rank) for many tiles
    | {_PTX}
COPY_COORD_32_BITS | hardware | a coordinate must fit a signed 32-bit register,
    -2147483648..2147483647
    | move the map, tensor_map.with_address(address), and count coordinates from there
    | {_PTX}: tensorCoords are .s32
COPY_INNER_16B | hardware | the innermost coordinate must be at a multiple of 16 bytes, even if out
    of bounds
    | round the innermost coordinate down to that multiple, and use a wider box | {_MEASURED}
COPY_INNER_128_VALUES | hardware | the innermost coordinate of an ALIGN16B type must be a multiple
    of 128 values
    | round the innermost coordinate down to a multiple of 128
    | PTX ISA, sub-byte types; documented, not measured
COPY_SMEM_OFFSET | hardware | smem_offset must be a multiple of 128 bytes, 0 or more
    | use a multiple of 128, or better of tensor_map.smem_alignment; in a kernel, declare the
    buffer alignas(128) | measured: misaligned address (H200, driver 580.159.04, 2026-11-20)
COPY_SMEM_SIZE | | the tile must fit into the shared memory of a block
    | make the map with smaller box_sizes, or pass a smaller smem_offset
    | CUDA driver API, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
COPY_IM2COL_START | hardware | a column must start inside the bounding box
    | start at one of the rows of tma.tile_coords(tensor_map) | {_MEASURED}
COPY_IM2COL_OFFSETS | | im2col_offsets must be integers, one per spatial dimension, row-major (D,
    H, W): 0..65535 at rank 3, 0..255 at rank 4, 0..31 at rank 5; an im2col-wide map takes one,
    along W
    | pass tap x dilation for each spatial dimension, or None for zeros | measured: larger values
    are cut off or change the next offset (H200, driver 580.159.04, 2026-11-20)
COPY_OFFSETS_WITHOUT_IM2COL | hardware | only loads of im2col maps take im2col_offsets
    | omit im2col_offsets | {_PTX}: im2colOffsets; stores are im2col_no_offs
COPY_STORE_NEGATIVE | hardware | a store or reduction must not start at a negative coordinate
    | start at 0 or more; a tile may still reach past the end of the tensor | {_MEASURED}
COPY_IM2COL_STORE_CORNERS | hardware | a store through an im2col map needs lower corners >= 0 and
    upper corners <= 0
    | make a second map for the store, with pixel_box_lower_corner and pixel_box_upper_corner all 0
    | {_MEASURED}
COPY_REDUCTION | hardware | it must be an operation that the hardware has for the data type
    | use one of these, or combine the tile yourself: load_tile, then store_tile | {_MEASURED}
COPY_DATA | | data must be the logical tile (row-major, packed) or the raw shared-memory bytes
    | pass an array like Tile.array, or uint8 bytes like Tile.smem | tma_dlpack, store_tile
COPY_DATA_AMBIGUOUS | | it must be clear whether data is the tile or shared memory: here they store
    other bytes
    | pass data[None] for the logical tile, or data.tobytes() for shared memory
    | tma_dlpack, store_tile
COPY_DATA_HOST | | data must be in host memory and hold its values, for a copy on the GPU too
    | pass x.cpu() of torch (with .resolve_conj() and .resolve_neg()), or x.get() of CuPy
    | tma_dlpack, store_tile
COPY_ADDRESS | hardware | the address of a map must be a multiple of 16 bytes; of 32 with
    interleave bytes32 and the ALIGN16B types
    | use tensor_map.with_address(address) with an aligned address | measured: misaligned address
    (H200, driver 580.159.04, 2026-11-21); CUDA driver API, cuTensorMapEncodeTiled: globalAddress
COPY_BOX_ROW | hardware | a row of the box must be a multiple of 16 bytes, and at most the span of
    the swizzle
    | use tensor_map.replace(box_dim={{0: n}}) or replace(swizzle_mode=...) with values that fit
    | {_MEASURED_11_21}
COPY_NAN_FILL | hardware | only floating-point types can be filled with NaN
    | use tensor_map.replace(fill_mode='none'), which fills with zeros | {_MEASURED_11_21}
COPY_STRIDE | hardware | every stride must be a multiple of 16 bytes; of 32 with interleave bytes32
    | use tensor_map.replace(global_stride={{i: bytes}}) with a multiple of that, i = 0 for the
    innermost stride | {_MEASURED_11_21}
COPY_DIM_31_BITS | hardware | no extent may be over 2147483648 (the driver encodes maps up to
    4294967296)
    | make one map for each part of the tensor, such as x[:2**31] and x[2**31:] | {_MEASURED}
COPY_GATHER4 | hardware | gather4 and scatter4 take a tiled map of rank 2 with one row in its box,
    and four rows
    | make the map with box_sizes=(1, columns), and pass four row coordinates
    | PTX ISA, tile::gather4 and tile::scatter4; documented, not measured
COPY_MEMORY | | memory must be a contiguous NumPy uint8 array that contains the map's addresses
    | pass memory=x.view(numpy.uint8).reshape(-1), or make the map from a tensor; for a GPU address
    pass backend="cuda" | tma_dlpack, memory of the simulator
COPY_MOVED | | a map's tensor must have the memory and layout that it had when the map was made
    | call make_tma_descriptor again, or use tensor_map.with_address(x) if only the address has
    changed | tma_dlpack, memory of a copy
COPY_OUTSIDE_MEMORY | | every byte that a copy touches must lie in the tensor's storage, or in
    memory= if given
    | pass memory= with an array that contains all these bytes, or copy only tiles that lie in the
    storage | tma_dlpack, memory of a copy
COPY_PAGES | | the memory must be mapped, and writeable for stores: the copy would crash this
    process
    | keep the memory mapped while the map is used; map it with write permission for stores
    | proc(5), /proc/self/maps: only memory that no framework allocated is checked
COPY_STORE_OVERRUN | | stores write whole chunks of 16 bytes, so each row must be padded to 16
    bytes
    | pad the rows of the tensor to 16 bytes, or pass memory= with the whole allocation
    | measured (H200, driver 580.159.04, 2026-11-20)
COPY_READ_ONLY | | stores and reductions need writeable memory
    | make the map of a writeable copy: x.copy() of NumPy, numpy.array(x) of JAX (on the GPU
    cupy.array(x) or torch.from_dlpack(x).clone()); or pass memory=
    | DLPACK_FLAG_BITMASK_READ_ONLY (dlpack.h 1.3); numpy.ndarray.flags; JAX: arrays are immutable
""",
)
#: Id -> row, for copies. In these rows, `unsupported` is a bool.
COPY_REFUSALS = {row.id: replace(row, unsupported=bool(row.unsupported)) for row in _COPY_ROWS}


def refuse(
    rule: str,
    argument: str,
    found: str,
    cause: BaseException | None = None,
    *,
    fix: str | None = None,
) -> NoReturn:
    """Raise the error of a row of `COPY_REFUSALS`; `found` is the first half of the message.

    `fix` replaces the fix of the row. A caller that knows an allowed value passes `fix`.
    """
    COPY_REFUSALS[rule].refuse(argument, found, cause, fix)
