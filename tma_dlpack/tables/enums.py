"""Enums: libcu++'s names for options, the driver's names for data types, DLPack's for its own.

Every enum is an `IntEnum` with the values of the C header, so a member can be passed to any API
that takes the C value. `meanings.parse` converts a user's value to a member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex


class TmaInterleaveLayout(IntEnum):
    """Layout of channels in global memory: plain, or in slices of 16 or 32 bytes.

    `cuda::tma_interleave_layout`; the values of CUtensorMapInterleave (cuda.h).

    Attributes
    ----------
    none
        No slices: matrices, and images as N, [[D,] H,] W, C.
    bytes16
        Slices of 16 bytes (NC/8HWC8 for 16-bit types): N, slice, [[D,] H,] W, rank 3 to 5. One copy
        takes one slice of each pixel.
    bytes32
        Slices of 32 bytes (NC/16HWC16 for 16-bit types). Address and strides must be multiples of
        32 bytes, and the swizzle must be bytes32.
    """

    none = 0
    bytes16 = 1
    bytes32 = 2


class TmaSwizzle(IntEnum):
    """Order of a tile's bytes in shared memory.

    `cuda::tma_swizzle`; the values of CUtensorMapSwizzle (cuda.h). An XOR on the shared-memory
    address `a` exchanges atoms (runs of bytes that stay together) within spans of 32, 64 or 128
    bytes, so that reads of a column spread over all banks. A row of the box is at most one span
    wide; choose the span equal to the row.

    Attributes
    ----------
    none
        Rows of any width, in their plain order: simple to index, but with bank conflicts.
    bytes32
        Span 32 bytes, atoms of 16: ``a ^ (a >> 7 & 1) << 4``; the pattern repeats every 256 bytes.
    bytes64
        Span 64 bytes, atoms of 16: ``a ^ (a >> 7 & 3) << 4``, every 512 bytes.
    bytes128
        Span 128 bytes, atoms of 16: ``a ^ (a >> 7 & 7) << 4``, every 1024 bytes.
    bytes128_atom_32B
        Span 128 bytes, atoms of 32: ``a ^ (a >> 7 & 3) << 5``, every 512 bytes. This and the next
        two need compute capability 10.0.
    bytes128_atom_32B_flip_8B
        The same, and in every second row of 128 bytes the two 8-byte halves of each 16 bytes are
        exchanged: ``^ (a >> 7 & 1) << 3``. For loads only.
    bytes128_atom_64B
        Span 128 bytes, atoms of 64: ``a ^ (a >> 7 & 1) << 6``, every 256 bytes.
    """

    none = 0
    bytes32 = 1
    bytes64 = 2
    bytes128 = 3
    bytes128_atom_32B = 4
    bytes128_atom_32B_flip_8B = 5
    bytes128_atom_64B = 6


class TmaL2FetchSize(IntEnum):
    """Bytes that L2 fetches at a time from global memory.

    `cuda::tma_l2_fetch_size`; the values of CUtensorMapL2promotion (cuda.h). It changes only the
    speed, mostly for narrow boxes: with rows of 64 bytes, copies reach 0.74 of memcpy's speed with
    none and 0.88 with bytes128 [measured, H200, driver 580.159.04, 2026-11-20]. `bandwidth`
    measures it for a tensor of yours.

    Attributes
    ----------
    none
        No more than the copy needs.
    bytes64
        64 bytes.
    bytes128
        128 bytes, a line of L2.
    bytes256
        256 bytes.
    """

    none = 0
    bytes64 = 1
    bytes128 = 2
    bytes256 = 3


class TmaOobFill(IntEnum):
    """Value that a load writes for elements outside of the tensor.

    `cuda::tma_oob_fill`; the values of CUtensorMapFloatOOBfill (cuda.h).

    Attributes
    ----------
    none
        Zero bytes.
    nan
        A NaN: the 16-bit word 0x7FF7 repeated (float32: 0x7FF77FF7). For floating-point types only.
    """

    none = 0
    nan = 1


class TensorMapIm2ColWideMode(IntEnum):
    """How far an im2col-wide copy walks along W: CUtensorMapIm2ColWideMode (cuda.h).

    Attributes
    ----------
    w
        Over `pixels_per_column` pixels.
    w128
        Over 128 pixels; `pixels_per_column` is ignored.
    """

    w = 0
    w128 = 1


class TensorMapDataType(IntEnum):
    """Data type of a map's elements: CUtensorMapDataType (cuda.h).

    Members have the header's names without `CU_TENSOR_MAP_DATA_TYPE_`; the full names are aliases.
    The three packed types start with a digit: write them as strings, ``"16U4_ALIGN8B"``, or as
    ``TensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B``.

    Attributes
    ----------
    FLOAT32_FTZ
        float32. Loads and stores copy the bits, subnormals too; only reductions flush.
    TFLOAT32, TFLOAT32_FTZ
        float32. Loads round to 10 bits of mantissa, to nearest even; stores copy the bits.
    16U4_ALIGN8B
        16 values of 4 bits in 8 bytes, packed in shared memory too. This and the next two need
        compute capability 10.0.
    16U4_ALIGN16B
        The same, followed by a gap of 8 bytes in shared memory.
    16U6_ALIGN16B
        16 values of 6 bits in 12 bytes, followed by a gap of 4 bytes in shared memory.
    """

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12
    vars()["16U4_ALIGN8B"] = 13  # the header's name is not a Python identifier
    vars()["16U4_ALIGN16B"] = 14
    vars()["16U6_ALIGN16B"] = 15

    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0
    CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1
    CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2
    CU_TENSOR_MAP_DATA_TYPE_INT32 = 3
    CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4
    CU_TENSOR_MAP_DATA_TYPE_INT64 = 5
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7
    CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ = 10
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ = 12
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B = 13
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B = 14
    CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B = 15


#: What arguments take: a member, its name or its value, which may be a NumPy integer. Here are the
#: names that type checkers know and editors offer; `meanings.parse` understands more.
Interleave = (
    TmaInterleaveLayout
    | Literal["none", "bytes16", "bytes32", "INTERLEAVE_NONE", "INTERLEAVE_16B", "INTERLEAVE_32B"]
    | SupportsIndex
)
Swizzle = (
    TmaSwizzle
    | Literal["none", "bytes32", "bytes64", "bytes128"]
    | Literal["bytes128_atom_32B", "bytes128_atom_32B_flip_8B", "bytes128_atom_64B"]
    | Literal["SWIZZLE_NONE", "SWIZZLE_32B", "SWIZZLE_64B", "SWIZZLE_128B"]
    | Literal["Swizzle<0,4,3>", "Swizzle<1,4,3>", "Swizzle<2,4,3>", "Swizzle<3,4,3>"]
    | SupportsIndex
)
L2FetchSize = (
    TmaL2FetchSize
    | Literal["none", "bytes64", "bytes128", "bytes256"]
    | Literal["L2_64B", "L2_128B", "L2_256B"]
    | SupportsIndex
)
OobFill = TmaOobFill | Literal["none", "nan"] | SupportsIndex
WideMode = TensorMapIm2ColWideMode | Literal["w", "w128"] | SupportsIndex
DataTypeName = (
    Literal["UINT8", "UINT16", "UINT32", "UINT64", "INT32", "INT64"]
    | Literal["FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32"]
    | Literal["TFLOAT32_FTZ", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"]
    | Literal["uint8", "uint16", "uint32", "uint64", "int32", "int64"]
    | Literal["float16", "fp16", "half", "bfloat16", "bf16", "float32", "fp32", "float64", "tf32"]
    | Literal["float8_e4m3fn", "float8_e5m2"]
)
#: A data type may also be a framework's dtype. These have no common type, so type checkers need a
#: cast.
DataType = TensorMapDataType | DataTypeName | SupportsIndex
Rules = Literal["libcu++", "driver"]
Im2colRules = Literal["documented", "driver"]


class HasDLPack(Protocol):
    """A tensor: an object with ``__dlpack__``."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


class HasCudaArrayInterface(Protocol):
    """A tensor of a framework without ``__dlpack__``."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


Tensor = HasDLPack | HasCudaArrayInterface
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
else:
    Ints = Sequence


class DLDeviceType(IntEnum):
    """DLDeviceType (dlpack.h 1.3)."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17
    kDLTrn = 18


class DLDataTypeCode(IntEnum):
    """DLDataTypeCode (dlpack.h 1.3)."""

    kDLInt = 0
    kDLUInt = 1
    kDLFloat = 2
    kDLOpaqueHandle = 3
    kDLBfloat = 4
    kDLComplex = 5
    kDLBool = 6
    kDLFloat8_e3m4 = 7
    kDLFloat8_e4m3 = 8
    kDLFloat8_e4m3b11fnuz = 9
    kDLFloat8_e4m3fn = 10
    kDLFloat8_e4m3fnuz = 11
    kDLFloat8_e5m2 = 12
    kDLFloat8_e5m2fnuz = 13
    kDLFloat8_e8m0fnu = 14
    kDLFloat6_e2m3fn = 15
    kDLFloat6_e3m2fn = 16
    kDLFloat4_e2m1fn = 17


#: Members by their C values: this lookup takes a tenth of the time of calling the enum.
DATA_TYPE_MEMBERS = tuple(TensorMapDataType)
INTERLEAVE_MEMBERS = tuple(TmaInterleaveLayout)
SWIZZLE_MEMBERS = tuple(TmaSwizzle)
L2_MEMBERS = tuple(TmaL2FetchSize)
FILL_MEMBERS = tuple(TmaOobFill)
MODE_MEMBERS = tuple(TensorMapIm2ColWideMode)

#: How cuda.h spells each enum: prefix, then one suffix per value. _state.h has them in this order.
C_ENUMS: dict[type[IntEnum], tuple[str, tuple[str, ...]]] = {
    TmaInterleaveLayout: ("CU_TENSOR_MAP_INTERLEAVE_", ("NONE", "16B", "32B")),
    TmaSwizzle: (
        "CU_TENSOR_MAP_SWIZZLE_",
        ("NONE", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"),
    ),
    TmaL2FetchSize: ("CU_TENSOR_MAP_L2_PROMOTION_", ("NONE", "L2_64B", "L2_128B", "L2_256B")),
    TmaOobFill: ("CU_TENSOR_MAP_FLOAT_OOB_FILL_", ("NONE", "NAN_REQUEST_ZERO_FMA")),
    TensorMapDataType: ("CU_TENSOR_MAP_DATA_TYPE_", tuple(t.name for t in TensorMapDataType)),
    TensorMapIm2ColWideMode: ("CU_TENSOR_MAP_IM2COL_WIDE_MODE_", ("W", "W128")),
}


def c_name(member: IntEnum) -> str:
    """Return a member's spelling in cuda.h.

    >>> c_name(TmaSwizzle.bytes128_atom_32B)
    'CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B'
    """
    prefix, suffixes = C_ENUMS[type(member)]
    return prefix + suffixes[member]


#: Every name of every member, including those of cuda.h with and without CU_TENSOR_MAP_; calls with
#: these are read in C too.
NAMES: dict[type[IntEnum], dict[str, IntEnum]] = {
    enum: {
        **enum.__members__,
        **{c_name(m): m for m in enum},
        **{c_name(m).removeprefix("CU_TENSOR_MAP_"): m for m in enum},
    }
    for enum in C_ENUMS
}
