"""The one table of data types."""

import numpy as np
import pytest

from tma_dlpack.tables.dtypes import (
    DATA_TYPES,
    PACKED_TYPES,
    DLDataType,
    data_type_of,
    overrides_of,
)
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.meanings import dtype_named

FLOAT8_CODES = range(7, 15)

#: The types that libcu++ maps (make_tma_descriptor.h at 571f2fc3bc), and float4 as exported.
MAPPED = {
    (0, 32, 1): "INT32",
    (0, 64, 1): "INT64",
    (1, 4, 16): "16U4_ALIGN8B",
    (1, 8, 1): "UINT8",
    (1, 16, 1): "UINT16",
    (1, 32, 1): "UINT32",
    (1, 64, 1): "UINT64",
    (2, 16, 1): "FLOAT16",
    (2, 32, 1): "FLOAT32",
    (2, 64, 1): "FLOAT64",
    (4, 16, 1): "BFLOAT16",
    (6, 8, 1): "UINT8",
    (17, 4, 16): "16U4_ALIGN8B",
    (17, 4, 2): "16U4_ALIGN8B",
    (17, 4, 1): "16U4_ALIGN8B",
    **{(code, 8, 1): "UINT8" for code in FLOAT8_CODES},
}


def test_every_dlpack_type_is_mapped_as_libcudacxx_does_and_no_other_is():
    mapped = {
        (code, bits, lanes): data_type_of(DLDataType(code, bits, lanes))
        for code in range(20)
        for bits in (1, 2, 4, 6, 8, 16, 32, 64, 128)
        for lanes in (1, 2, 4, 8, 16)
    }
    assert {key: t.name for key, t in mapped.items() if t is not None} == MAPPED


def test_rows_stand_in_the_order_of_the_enum():
    assert [r.data_type for r in DATA_TYPES] == list(TensorMapDataType)
    assert all(DATA_TYPES[t].data_type is t for t in TensorMapDataType)


def test_ptx_numbers_are_those_of_tensormap_replace():
    numbers = {r.data_type.name: r.ptx_elemtype for r in DATA_TYPES}
    assert numbers == {
        "UINT8": 0, "UINT16": 1, "UINT32": 2, "INT32": 3, "UINT64": 4, "INT64": 5, "FLOAT16": 6,
        "FLOAT32": 7, "FLOAT32_FTZ": 8, "FLOAT64": 9, "BFLOAT16": 10, "TFLOAT32": 11,
        "TFLOAT32_FTZ": 12, "16U4_ALIGN8B": 13, "16U4_ALIGN16B": 14, "16U6_ALIGN16B": 15,
    }  # fmt: skip


def test_the_numpy_type_of_a_row_has_its_size():
    for r in DATA_TYPES:
        assert np.dtype(r.numpy).itemsize == (1 if r.is_packed else r.element_bytes)
    assert {r.data_type.name for r in DATA_TYPES if r.is_float} == {
        "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ((2, 32), ["UINT32", "INT32", "FLOAT32", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"]),
        ((0, 8), ["UINT8", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"]),
        ((10, 8), ["UINT8"]),
        ((0, 16), ["UINT16", "FLOAT16", "BFLOAT16"]),
        ((5, 64), ["UINT64", "INT64", "FLOAT64"]),
        ((1, 8), ["UINT8", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"]),
        ((17, 4, 2), ["UINT8", "16U4_ALIGN8B", "16U4_ALIGN16B"]),
        ((17, 4, 1), ["16U4_ALIGN8B", "16U4_ALIGN16B"]),
        ((5, 128), []),
        ((3, 64), []),
        ((99, 32), []),
    ],
)
def test_an_override_keeps_the_size_of_an_element(dtype, names):
    assert [t.name for t in overrides_of(DLDataType(*dtype))] == names


def test_the_type_of_a_tensor_is_among_its_overrides():
    for code, bits, lanes in MAPPED:
        dtype = DLDataType(code, bits, lanes)
        assert data_type_of(dtype) in overrides_of(dtype)


def test_packed_types_are_those_below_a_byte():
    assert {t.name for t in PACKED_TYPES} == {"16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"}
    assert [DATA_TYPES[t].smem_chunk_bytes for t in sorted(PACKED_TYPES)] == [8, 16, 16]


def test_names_are_of_types_that_can_be_described():
    with pytest.raises(TmaPreconditionError, match="dtype is 'uint4'") as caught:
        dtype_named("uint4")
    names = caught.value.violations[0].limit.removeprefix("it must be one of ").split(", ")
    assert {"uint4x16", "float4_e2m1fn", "float16"} <= set(names)
    assert "uint4" not in names
    assert dtype_named("float4_e2m1fn_x2") == dtype_named("float4_e2m1fnx2") == (17, 4, 2)
    assert all(overrides_of(dtype_named(name)) or name == "complex128" for name in names)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ((2, 32), "float32"),
        ((4, 16), "bfloat16"),
        ((6, 8), "bool"),
        ((10, 8), "float8_e4m3fn"),
        ((17, 4, 2), "float4_e2m1fnx2"),
        ((1, 4, 16), "uint4x16"),
        ((42, 8), "type code 42 with 8 bits"),
    ],
)
def test_a_dlpack_type_is_named_as_numpy_names_it(dtype, name):
    assert str(DLDataType(*dtype)) == name
