"""Limits of the engine and the driver, each in one place.

Names that end in `END` are the first value that is too large. Source: CUDA driver API,
cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col. The limits marked as measured are from an H200
(driver 580.159.04, 2026-11-20).
"""

from __future__ import annotations

MAP_BYTES = 128  # of a CUtensorMap; its address field comes first
ADDRESS_BYTES = 8
ALIGNMENT_BYTES = 128  # alignas of CUtensorMap in CUDA 13's cuda.h (64 in the documents)

MAX_RANK = 5
MIN_RANK_IM2COL = 3
MIN_RANK_INTERLEAVED = 3

ADDRESS_END = 1 << 57  # measured
STRIDE_BYTES_END = 1 << 40
MAX_DIM = 1 << 32

MAX_BOX = 256  # entries of a box, and channels per pixel
MAX_PIXELS = 1024
MAX_ELEM_STRIDE = 8
#: A ragged map (make.recipes has the arithmetic): the extent of the ragged dimension, the extent of
#: the two dimensions that are added, and the smallest stride that is too large, in elements: its
#: product with RAGGED_EXTENT is 2^64.
RAGGED_EXTENT = 1 << 30
RAGGED_EXTRA_EXTENT = 0x7FFF_0000
RAGGED_STRIDE_END = 1 << 34

CORNER_ENDS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}  # rank -> a corner entry lies in [-end, end)
MAX_BOX_BYTES = 233_472  # 228 KB; measured
INNER_BYTES = 16  # a row of a box is a multiple of it
PACKED_GROUP = 16  # values of a packed type in one chunk of shared memory
PADDED_INNER_VALUES = 128  # a row of a box, for the two packed types that are padded to 16 bytes

#: nvbug 5736804: on compute capability 10.0 and later, drivers before this one set bit 85, the
#: allocation class (tables/bits.py), in maps whose memory is smaller than this and not dense,
#: and copies through them can fault. Source: release notes of driver 595.71.05; documented, not
#: measured.
BIT_85_MENDED_IN = 13020  # CUDA 13.2, as cuDriverGetVersion returns it
BIT_85_SMALL_BYTES = 128 * 1024

DLPACK_VERSION = (1, 3)  # the highest that is read

WIDE_SWIZZLES = 0b001_1100  # of im2col-wide maps: bit i for TmaSwizzle i

#: Bytes of one row of the pattern, by TmaSwizzle; a box must not be wider.
SWIZZLE_SPAN_BYTES = (0, 32, 64, 128, 128, 128, 128)

#: CUresults that are an error of a kernel: every later call of the process returns them.
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})
HOW_TO_FIND = (
    "Run the program again with CUDA_LAUNCH_BLOCKING=1, so that the failing launch itself raises, "
    "or under compute-sanitizer, which names the kernel and the access."
)
