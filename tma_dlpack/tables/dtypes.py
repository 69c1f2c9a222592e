"""The data types: a table with the name or number of each type in CUDA, NumPy and PTX.

Every fact about a data type is a column of `DATA_TYPES`. `_EXPORTED` lists the types of DLPack and
the data type that each of them becomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tma_dlpack.tables.coerce import rows
from tma_dlpack.tables.enums import DLDataTypeCode, TensorMapDataType
from tma_dlpack.tables.targets import PADDED_INNER_VALUES


class DLDataType(NamedTuple):
    """DLPack's DLDataType: type code, bits per lane and lanes of one element of a tensor."""

    code: int
    bits: int
    lanes: int = 1

    @property
    def itemsize_bits(self) -> int:
        """Bits of one element: the bits of all its lanes."""
        return self.bits * self.lanes

    def __str__(self) -> str:
        """Return NumPy's name of the type, such as ``bfloat16`` or ``uint4x16``."""
        name = _CODE_NAMES.get(self.code)
        if name is None:
            text = f"type code {self.code} with {self.bits} bits"
        elif name == "bool":
            text = "bool" if self.bits == 8 else f"bool{self.bits}"
        elif "_" in name:  # the name of a float8, float6 or float4 type contains its bits
            text = name if str(self.bits) in name.split("_")[0] else f"{name} in {self.bits} bits"
        else:
            text = f"{name}{self.bits}"
        return text if self.lanes == 1 else f"{text}x{self.lanes}"


_CODE_NAMES = {c.value: c.name[3:].lower() for c in DLDataTypeCode} | {
    DLDataTypeCode.kDLOpaqueHandle: "opaque"
}


@dataclass(frozen=True, slots=True)
class DataTypeRow:
    """The facts about one value of CUtensorMapDataType.

    Attributes
    ----------
    data_type : TensorMapDataType
    element_bits : int
        Bits of one element in global memory.
    numpy : str
        NumPy type of an element of a logical tile. It is uint16 for bfloat16, which NumPy lacks,
        and uint8 for packed types, with one value per uint8.
    ptx_elemtype : int
        The number of the type in PTX ``tensormap.replace``. Packed types have a number only on
        sm_100 and later. The field `element_type` of a map holds this number, except for TFLOAT32,
        TFLOAT32_FTZ and packed types.
    is_float : bool
        Whether out-of-bounds elements may be filled with NaN.
    smem_chunk_bytes : int
        Bytes that 16 packed values and the gap after them take in shared memory; 0 for other types.
    swizzles : int
        Bit i is set if the documents allow the TmaSwizzle of value i for the type.
    interleaves : bool
        Whether the documents allow interleaved layouts for the type.
    is_packed : bool
        Whether a value is smaller than a byte. Such types exist on sm_100 and later.
    is_padded : bool
        Whether 16 values take 16 bytes of shared memory because a gap follows them.
    packed_unit : int
        The innermost extent must be a multiple of this number of values.
    element_bytes : int
        Bytes of one element; 0 for packed types, whose elements are smaller than a byte.
    """

    data_type: TensorMapDataType
    element_bits: int
    numpy: str
    ptx_elemtype: int
    is_float: bool = False
    smem_chunk_bytes: int = 0
    swizzles: int = 0b111_1111
    interleaves: bool = True

    is_packed: bool = field(init=False)
    is_padded: bool = field(init=False)
    packed_unit: int = field(init=False)
    element_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Compute the derived columns."""
        packed, padded = self.element_bits < 8, self.smem_chunk_bytes == 16
        object.__setattr__(self, "is_packed", packed)
        object.__setattr__(self, "is_padded", padded)
        object.__setattr__(
            self, "packed_unit", PADDED_INNER_VALUES if padded else 2 if packed else 1
        )
        object.__setattr__(self, "element_bytes", self.element_bits // 8)


_T: type[TensorMapDataType] = TensorMapDataType

#: The rows are in the order of the enum's values, so `DATA_TYPES[t]` is the row of `t`. In
#: tensormap.replace, the number of TFLOAT32 is 11 and the number of TFLOAT32_FTZ is 12. In a map,
#: the field `element_type` is 7 for TFLOAT32 and 8 for TFLOAT32_FTZ, and the bit `tf32` is set
#: [measured, H200, driver 580.159.04].
DATA_TYPES: tuple[DataTypeRow, ...] = (
    DataTypeRow(_T.UINT8, 8, "uint8", 0),
    DataTypeRow(_T.UINT16, 16, "uint16", 1),
    DataTypeRow(_T.UINT32, 32, "uint32", 2),
    DataTypeRow(_T.INT32, 32, "int32", 3),
    DataTypeRow(_T.UINT64, 64, "uint64", 4),
    DataTypeRow(_T.INT64, 64, "int64", 5),
    DataTypeRow(_T.FLOAT16, 16, "float16", 6, is_float=True),
    DataTypeRow(_T.FLOAT32, 32, "float32", 7, is_float=True),
    DataTypeRow(_T.FLOAT64, 64, "float64", 9, is_float=True),
    DataTypeRow(_T.BFLOAT16, 16, "uint16", 10, is_float=True),
    DataTypeRow(_T.FLOAT32_FTZ, 32, "float32", 8, is_float=True),
    DataTypeRow(_T.TFLOAT32, 32, "float32", 11, is_float=True),
    DataTypeRow(_T.TFLOAT32_FTZ, 32, "float32", 12, is_float=True),
    DataTypeRow(_T["16U4_ALIGN8B"], 4, "uint8", 13, smem_chunk_bytes=8),
    DataTypeRow(_T["16U4_ALIGN16B"], 4, "uint8", 14, smem_chunk_bytes=16, swizzles=0b001_1001),
    DataTypeRow(
        _T["16U6_ALIGN16B"],
        6,
        "uint8",
        15,
        smem_chunk_bytes=16,
        swizzles=0b101_1001,
        interleaves=False,
    ),
)

#: `PACKED_TYPES` have values smaller than a byte; they exist on sm_100 and later. Of these types,
#: `PADDED_TYPES` have a gap after 16 values in shared memory, so 16 values take 16 bytes there.
PACKED_TYPES = frozenset(r.data_type for r in DATA_TYPES if r.is_packed)
PADDED_TYPES = frozenset(r.data_type for r in DATA_TYPES if r.is_padded)

_C: type[DLDataTypeCode] = DLDataTypeCode

#: The types of DLPack that maps support, one per line. The columns are DLPack's code | bits | the
#: map's data type if `data_type=` is omitted | names in C++, torch, PTX and CUTLASS that differ
#: from NumPy's name. DLPack's lanes must be 1, except for 4-bit types. For these, the number of
#: lanes is the number of values in an element (2 in torch, 1 in JAX, 16 in C++).
#: Source: make_tma_descriptor.h (NVIDIA/cccl 571f2fc3bc), __get_tensor_map_data_type.
_EXPORTED = tuple(
    (DLDataType(_C[f"kDL{code}"], int(bits)), own, names)
    for code, bits, own, names in rows("""
Int | 32 | INT32 | s32 i32 int
Int | 64 | INT64 | s64 i64
UInt | 4 | 16U4_ALIGN8B |
UInt | 8 | UINT8 | u8
UInt | 16 | UINT16 | u16
UInt | 32 | UINT32 | u32
UInt | 64 | UINT64 | u64
Float | 16 | FLOAT16 | fp16 f16 half
Float | 32 | FLOAT32 | fp32 f32 float
Float | 64 | FLOAT64 | fp64 f64 double
Bfloat | 16 | BFLOAT16 | bf16 nv_bfloat16
Bool | 8 | UINT8 |
Float8_e3m4 | 8 | UINT8 | e3m4
Float8_e4m3 | 8 | UINT8 |
Float8_e4m3b11fnuz | 8 | UINT8 | e4m3b11fnuz
Float8_e4m3fn | 8 | UINT8 | e4m3 e4m3fn fp8_e4m3 fp8e4m3fn f8e4m3fn float_e4m3 nv_fp8_e4m3
Float8_e4m3fnuz | 8 | UINT8 | e4m3fnuz
Float8_e5m2 | 8 | UINT8 | e5m2 fp8_e5m2 f8e5m2 float_e5m2 nv_fp8_e5m2
Float8_e5m2fnuz | 8 | UINT8 | e5m2fnuz
Float8_e8m0fnu | 8 | UINT8 | e8m0 ue8m0 e8m0fnu float_ue8m0 nv_fp8_e8m0
Float4_e2m1fn | 4 | 16U4_ALIGN8B |
Int | 8 | | s8 i8
Int | 16 | | s16 i16
""")
)
#: DLPack's (code, bits) -> the map's data type if `data_type=` is omitted.
FROM_DLPACK = {(t.code, t.bits): TensorMapDataType[own] for t, own, _ in _EXPORTED if own}
LANES_OF_4_BITS: dict[int, tuple[int, ...]] = {_C.kDLUInt: (16,), _C.kDLFloat4_e2m1fn: (1, 2, 16)}

#: Name in NumPy, torch or JAX -> type of DLPack.
NAMED_DTYPES: dict[str, DLDataType] = {
    str(t): t
    for t in (
        *(t for t, _, _ in _EXPORTED if (t.code, t.bits) != (_C.kDLUInt, 4)),
        *(DLDataType(_C.kDLComplex, bits) for bits in (32, 64, 128)),
        *(DLDataType(_C.kDLUInt, 4, lanes) for lanes in LANES_OF_4_BITS[_C.kDLUInt]),
        *(DLDataType(_C.kDLFloat4_e2m1fn, 4, lanes) for lanes in (2, 16)),
    )
}
NAMED_DTYPES["float4_e2m1fn_x2"] = NAMED_DTYPES["float4_e2m1fnx2"]  # torch's name
#: NumPy's name of a type of 8 or more bits -> its other names, separated by spaces.
NAMES_OF_DTYPES = {str(t): names for t, _, names in _EXPORTED if t.bits >= 8}


def data_type_of(dtype: DLDataType) -> TensorMapDataType | None:
    """Return the data type that libcu++ chooses for a DLPack type; None if it chooses none.

    >>> data_type_of(DLDataType(4, 16)).name
    'BFLOAT16'
    >>> data_type_of(DLDataType(0, 8)) is None  # int8: pass data_type="UINT8"
    True
    """
    data_type = FROM_DLPACK.get((dtype.code, dtype.bits))
    lanes = LANES_OF_4_BITS.get(dtype.code, (1,)) if dtype.bits == 4 else (1,)
    return data_type if dtype.lanes in lanes else None


def overrides_of(dtype: DLDataType) -> tuple[TensorMapDataType, ...]:
    """Return the data types that `data_type=` may name for a tensor of a DLPack type.

    The result has all data types of the same element size. For a 4-bit type, it also has the packed
    types of 4 bits. For uint8 and int8, it also has all packed types, because a byte may hold
    packed values.

    >>> [t.name for t in overrides_of(DLDataType(2, 16))]
    ['UINT16', 'FLOAT16', 'BFLOAT16']
    """
    if dtype.code == _C.kDLOpaqueHandle or dtype.code not in _CODE_NAMES:
        return ()
    size = dtype.itemsize_bits
    four_bits = dtype.bits == 4 and data_type_of(dtype) is not None
    bytes_of_values = dtype in (DLDataType(_C.kDLUInt, 8), DLDataType(_C.kDLInt, 8))
    return tuple(
        r.data_type
        for r in DATA_TYPES
        if (r.element_bits == size and not r.is_packed)
        or (four_bits and r.element_bits == 4)
        or (bytes_of_values and r.is_packed)
    )
