"""Enums of options, data types and DLPack's codes, and the types of arguments for type checkers.

The enums of options have libcu++'s names, the enum of data types has the driver's names, and the
enums of DLPack's codes have DLPack's names. Every enum is an `IntEnum` with the values of the C
header, so a member can be passed to any API that takes the C value. `meanings.parse` converts a
user's value to a member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex


class TmaInterleaveLayout(IntEnum):
    """Layout of channels in global memory: plain, or in slices of 16 or 32 bytes.

    The members have the names of `cuda::tma_interleave_layout` and the values of
    CUtensorMapInterleave (cuda.h).

    Attributes
    ----------
    none
        Channels without slices, for matrices and for images with dimensions N, [[D,] H,] W, C.
    bytes16
        Slices of 16 bytes (NC/8HWC8 for 16-bit types). The dimensions are N, slice, [[D,] H,] W;
        the rank is 3 to 5. A copy moves one slice of each pixel.
    bytes32
        Slices of 32 bytes (NC/16HWC16 for 16-bit types), with the dimensions of bytes16. Address
        and strides must be multiples of 32 bytes, and the swizzle must be bytes32.
    """

    none = 0
    bytes16 = 1
    bytes32 = 2


class TmaSwizzle(IntEnum):
    """Order of a tile's bytes in shared memory.

    The members have the names of `cuda::tma_swizzle` and the values of CUtensorMapSwizzle (cuda.h).
    A swizzle XORs bits of the shared-memory address `a`. This exchanges atoms (runs of bytes that
    stay together) within spans of 32, 64 or 128 bytes, so reads of a column use different banks. A
    row of the box must not be wider than one span. Choose the span that is as wide as the row.

    Attributes
    ----------
    none
        No exchange: rows of any width, which are simple to index but cause bank conflicts.
    bytes32
        Span 32 bytes, atoms of 16: ``a ^ (a >> 7 & 1) << 4``; the pattern repeats every 256 bytes.
    bytes64
        Span 64 bytes, atoms of 16: ``a ^ (a >> 7 & 3) << 4``; the pattern repeats every 512 bytes.
    bytes128
        Span 128 bytes, atoms of 16: ``a ^ (a >> 7 & 7) << 4``; it repeats every 1024 bytes.
    bytes128_atom_32B
        Span 128 bytes, atoms of 32: ``a ^ (a >> 7 & 3) << 5``; the pattern repeats every 512 bytes.
        All members with an atom in their name need compute capability 10.0 or later.
    bytes128_atom_32B_flip_8B
        The same as bytes128_atom_32B, and a second XOR: ``^ (a >> 7 & 1) << 3``. In every second
        row of 128 bytes it exchanges the two 8-byte halves of each 16 bytes. For loads only.
    bytes128_atom_64B
        Span 128 bytes, atoms of 64: ``a ^ (a >> 7 & 1) << 6``; the pattern repeats every 256 bytes.
    """

    none = 0
    bytes32 = 1
    bytes64 = 2
    bytes128 = 3
    bytes128_atom_32B = 4
    bytes128_atom_32B_flip_8B = 5
    bytes128_atom_64B = 6


class TmaL2FetchSize(IntEnum):
    """Number of bytes that the L2 cache fetches at a time from global memory.

    The members have the names of `cuda::tma_l2_fetch_size` and the values of CUtensorMapL2promotion
    (cuda.h). The fetch size changes only the speed of copies, mostly for narrow boxes. If the rows
    of the box are 64 bytes, copies reach 0.74 of memcpy's speed with the member none and 0.88 with
    bytes128 [measured, H200, driver 580.159.04, 2026-11-20]. `bandwidth` measures the speed for
    your tensor.

    Attributes
    ----------
    none
        L2 fetches no more than the copy needs.
    bytes64
        L2 fetches 64 bytes.
    bytes128
        L2 fetches 128 bytes, which is one line of L2.
    bytes256
        L2 fetches 256 bytes.
    """

    none = 0
    bytes64 = 1
    bytes128 = 2
    bytes256 = 3


class TmaOobFill(IntEnum):
    """Value that a load writes for elements outside of the tensor.

    The members have the names of `cuda::tma_oob_fill` and the values of CUtensorMapFloatOOBfill
    (cuda.h).

    Attributes
    ----------
    none
        Zeros.
    nan
        NaN: the 16-bit word 0x7FF7, repeated for wider types (float32: 0x7FF77FF7). Only
        floating-point types can have this fill.
    """

    none = 0
    nan = 1


class TensorMapIm2ColWideMode(IntEnum):
    """Number of pixels that an im2col-wide copy loads along W: CUtensorMapIm2ColWideMode (cuda.h).

    Attributes
    ----------
    w
        A copy loads `pixels_per_column` pixels.
    w128
        A copy loads 128 pixels and ignores `pixels_per_column`.
    """

    w = 0
    w128 = 1


class TensorMapDataType(IntEnum):
    """Data type of a map's elements: CUtensorMapDataType (cuda.h).

    Members have the header's names without `CU_TENSOR_MAP_DATA_TYPE_`; the full names are aliases.
    The names of the three packed types start with a digit, so Python cannot read them as
    attributes. Write the string ``"16U4_ALIGN8B"``, or the alias
    ``TensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B``.

    Attributes
    ----------
    FLOAT32_FTZ
        float32. Loads and stores copy the bits, also of subnormals. Only reductions replace
        subnormals with zero.
    TFLOAT32, TFLOAT32_FTZ
        float32. Loads round to 10 bits of mantissa, to nearest even; stores copy the bits.
    16U4_ALIGN8B
        16 values of 4 bits in 8 bytes, in global and in shared memory. All three packed types need
        compute capability 10.0 or later.
    16U4_ALIGN16B
        16 values of 4 bits in 8 bytes, followed by a gap of 8 bytes in shared memory.
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
    vars()["16U4_ALIGN8B"] = 13  # this name is not a Python identifier
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


#: Types of arguments for type checkers. An argument may be a member, the name of a member, or its
#: value as an int or a NumPy integer. These types have the names that type checkers accept and
#: editors offer; `meanings.parse` accepts more names.
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
#: A data type may also be a framework's dtype. The dtypes of all frameworks have no common base
#: class, so type checkers accept a dtype only with a cast.
DataType = TensorMapDataType | DataTypeName | SupportsIndex
Rules = Literal["libcu++", "driver"]
Im2colRules = Literal["documented", "driver"]


class HasDLPack(Protocol):
    """A tensor: an object with ``__dlpack__``."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...


class HasCudaArrayInterface(Protocol):
    """A tensor without ``__dlpack__``: an object with ``__cuda_array_interface__``."""

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
    """Device types of DLPack: DLDeviceType (dlpack.h 1.3)."""

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
    """Codes of DLPack's data types: DLDataTypeCode (dlpack.h 1.3)."""

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


#: The members of each enum, indexed by their C values. Indexing such a tuple takes a tenth of the
#: time of calling the enum.
DATA_TYPE_MEMBERS = tuple(TensorMapDataType)
INTERLEAVE_MEMBERS = tuple(TmaInterleaveLayout)
SWIZZLE_MEMBERS = tuple(TmaSwizzle)
L2_MEMBERS = tuple(TmaL2FetchSize)
FILL_MEMBERS = tuple(TmaOobFill)
MODE_MEMBERS = tuple(TensorMapIm2ColWideMode)

#: The names of each enum's members in cuda.h: a common prefix, and a suffix for each value. The
#: enums are in the same order as in the C code of native/.
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
    """Return a member's name in cuda.h.

    >>> c_name(TmaSwizzle.bytes128_atom_32B)
    'CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B'
    """
    prefix, suffixes = C_ENUMS[type(member)]
    return prefix + suffixes[member]


#: Enum -> the names of its members: name -> member. The names of cuda.h are included, with and
#: without the prefix CU_TENSOR_MAP_. The C extension accepts the same names.
NAMES: dict[type[IntEnum], dict[str, IntEnum]] = {
    enum: {
        **enum.__members__,
        **{c_name(m): m for m in enum},
        **{c_name(m).removeprefix("CU_TENSOR_MAP_"): m for m in enum},
    }
    for enum in C_ENUMS
}
