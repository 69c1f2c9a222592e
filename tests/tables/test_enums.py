"""Names and numbers of enums become members; other values do not."""

import inspect
import re

import numpy as np
import pytest

from tma_dlpack.geometry import SWIZZLES, swizzle_offset
from tma_dlpack.tables.enums import (
    C_ENUMS,
    DLDeviceType,
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
    c_name,
)
from tma_dlpack.tables.meanings import choices_of, parse

#: Values of cuda.h (CUDA 13.0), by the names in cuda.h.
CUDA_H = {
    "CU_TENSOR_MAP_DATA_TYPE_UINT8": 0,
    "CU_TENSOR_MAP_DATA_TYPE_UINT16": 1,
    "CU_TENSOR_MAP_DATA_TYPE_UINT32": 2,
    "CU_TENSOR_MAP_DATA_TYPE_INT32": 3,
    "CU_TENSOR_MAP_DATA_TYPE_UINT64": 4,
    "CU_TENSOR_MAP_DATA_TYPE_INT64": 5,
    "CU_TENSOR_MAP_DATA_TYPE_FLOAT16": 6,
    "CU_TENSOR_MAP_DATA_TYPE_FLOAT32": 7,
    "CU_TENSOR_MAP_DATA_TYPE_FLOAT64": 8,
    "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16": 9,
    "CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ": 10,
    "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32": 11,
    "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ": 12,
    "CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B": 13,
    "CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B": 14,
    "CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B": 15,
    "CU_TENSOR_MAP_INTERLEAVE_NONE": 0,
    "CU_TENSOR_MAP_INTERLEAVE_16B": 1,
    "CU_TENSOR_MAP_INTERLEAVE_32B": 2,
    "CU_TENSOR_MAP_SWIZZLE_NONE": 0,
    "CU_TENSOR_MAP_SWIZZLE_32B": 1,
    "CU_TENSOR_MAP_SWIZZLE_64B": 2,
    "CU_TENSOR_MAP_SWIZZLE_128B": 3,
    "CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B": 4,
    "CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B": 5,
    "CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B": 6,
    "CU_TENSOR_MAP_L2_PROMOTION_NONE": 0,
    "CU_TENSOR_MAP_L2_PROMOTION_L2_64B": 1,
    "CU_TENSOR_MAP_L2_PROMOTION_L2_128B": 2,
    "CU_TENSOR_MAP_L2_PROMOTION_L2_256B": 3,
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE": 0,
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA": 1,
    "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W": 0,
    "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128": 1,
}
MEMBERS = [member for enum in C_ENUMS for member in enum]


def test_every_member_has_the_name_and_value_of_cuda_h():
    assert {c_name(member): member.value for member in MEMBERS} == CUDA_H


@pytest.mark.parametrize("member", MEMBERS, ids=c_name)
def test_a_member_is_read_from_itself_its_names_and_its_value(member):
    for word in (member, member.name, c_name(member), member.value, np.int8(member.value)):
        assert parse(type(member), word) is member


def test_packed_types_are_attributes_by_their_full_names():
    assert (
        TensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B is TensorMapDataType["16U4_ALIGN8B"]
    )


@pytest.mark.parametrize("value", [True, 1.0, None, (), b"none", TmaL2FetchSize.bytes128])
def test_what_is_no_integer_or_word_means_no_member(value):
    assert parse(TmaSwizzle, value) is None


@pytest.mark.parametrize("value", [-1, 7, 16, 256, 1 << 70, "bytes256", "", "3.7", "(3)"])
def test_a_word_or_number_that_the_enum_lacks_means_no_member(value):
    assert parse(TmaSwizzle, value) is None
    assert choices_of(TmaSwizzle, value).startswith("choose one of none (0), bytes32 (1), ")


def test_a_misspelt_word_is_met_with_the_closest():
    assert parse(TmaSwizzle, "byte128") is None
    assert choices_of(TmaSwizzle, "byte128").endswith("; did you mean 'bytes128'?")


@pytest.mark.parametrize(
    "enum", [TmaInterleaveLayout, TmaSwizzle, TmaL2FetchSize, TmaOobFill, TensorMapIm2ColWideMode]
)
def test_every_option_says_what_it_is_for(enum):
    described = re.findall(r"^(\w+)\n {4}\S", inspect.getdoc(enum), re.MULTILINE)
    assert described == [member.name for member in enum]


@pytest.mark.parametrize("swizzle", list(TmaSwizzle)[1:])
def test_the_formula_of_a_swizzle_in_its_words_is_that_of_geometry(swizzle):
    words = dict(re.findall(r"^(\w+)\n((?: {4}.+\n?)+)", inspect.getdoc(TmaSwizzle), re.MULTILINE))
    said = words[swizzle.name]
    formula = re.search("``(.*?)``", said)[1]
    goes_on = said.lstrip().startswith("The same")
    if goes_on:
        formula = re.search("``(.*?)``", words["bytes128_atom_32B"])[1] + formula
    for a in range(0, 2048, 8):
        assert eval(formula, {"a": a}) == swizzle_offset(swizzle, a)
    if goes_on:
        return
    row = SWIZZLES[swizzle]
    assert said.startswith(f"    Span {row.span_bytes} bytes, atoms of {row.granule_bytes}: ")
    assert f"every {row.repeat_bytes} bytes" in said


def test_the_enums_of_libcudacxx_have_its_member_names():
    assert [m.name for m in TmaInterleaveLayout] == ["none", "bytes16", "bytes32"]
    assert [m.name for m in TmaOobFill] == ["none", "nan"]
    assert [m.name for m in TensorMapIm2ColWideMode] == ["w", "w128"]
    assert DLDeviceType.kDLCUDAManaged == 13
