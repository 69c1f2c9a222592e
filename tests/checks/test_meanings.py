"""A word for an enum's member is accepted if it is unambiguous, and otherwise refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.meanings import dtype_called, near_name, parse

WORDS = {
    TmaInterleaveLayout: {
        "none": ["NONE", "no_interleave", "CU_TENSOR_MAP_INTERLEAVE_NONE"],
        "bytes16": [16, "16", "16B", "INTERLEAVE_16B", "interleave_16b"],
        "bytes32": [32, "32B", "Bytes32", "TmaInterleaveLayout.bytes32"],
    },
    TmaSwizzle: {
        "none": ["None", "SWIZZLE_NONE", "Swizzle<0,4,3>", "K_INTER", "no_swizzle", "DISABLE"],
        "bytes32": [32, "32", "Swizzle<1,4,3>", "MN_SW32", "swizzle_32b"],
        "bytes64": [64, np.int64(64), "64B", "Swizzle<2,4,3>", "SW64", "K_SW64"],
        "bytes128": [
            3, np.uint8(3), 128, "128", "128B", "BYTES128", "bytes_128", "SWIZZLE_128B",
            "cu_tensor_map_swizzle_128b", "CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B",
            "Swizzle<3,4,3>", "cute::Swizzle<3, 4, 3>", "Sw<3,4,3>", "S<3,4,3>", "SW128",
            "K_SW128", "MN_SW128", "GMMA::Layout_K_SW128_Atom", "SmemLayoutAtomKind.K_SW128",
            "cute::TMA::SmemSwizzleBits::B128", "TensorMapSwizzle.SWIZZLE_128B",
        ],
        "bytes128_atom_32B": ["128B_ATOM_32B", "MN_SW128_32B", "Swizzle<2,5,2>"],
        "bytes128_atom_32B_flip_8B": ["SWIZZLE_128B_ATOM_32B_FLIP_8B"],
        "bytes128_atom_64B": ["128B_ATOM_64B", "Swizzle<1,6,1>"],
    },
    TmaL2FetchSize: {
        "none": ["L2_PROMOTION_NONE"],
        "bytes64": [64, "L2_64B"],
        "bytes128": [128, "L2::128B", "l2promo_128b", "128B"],
        "bytes256": [256, "256", "CU_TENSOR_MAP_L2_PROMOTION_L2_256B", "L2Promotion::B256"],
    },
    TmaOobFill: {
        "none": ["zero", "zeros", "OOBFill::ZERO", "FLOAT_OOB_FILL_NONE"],
        "nan": ["NaN", "NAN_REQUEST_ZERO_FMA", "OOB_NAN", "FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"],
    },
    TensorMapIm2ColWideMode: {"w": ["W", "im2col::w"], "w128": ["W128", "im2col::w::128"]},
    TensorMapDataType: {
        "UINT8": ["u8", ".u8", "uint8_t", "int8", "bool", "e4m3", "torch.float8_e5m2"],
        "UINT16": ["int16", "s16"],
        "INT32": ["s32", "int", "int32_t"],
        "FLOAT16": ["fp16", "half", "__half", "float16", "torch.float16", "cutlass::half_t", 6],
        "BFLOAT16": ["bf16", "torch.bfloat16", "__nv_bfloat16", "jax.numpy.bfloat16"],
        "FLOAT32": ["fp32", "float", "f32", "numpy.float32"],
        "FLOAT64": ["double", "f64"],
        "FLOAT32_FTZ": [".f32.ftz"],
        "TFLOAT32": ["tf32", "tfloat32_t"],
        "TFLOAT32_FTZ": ["tf32.ftz"],
        "16U4_ALIGN8B": ["b4x16", "16u4_align8b"],
        "16U4_ALIGN16B": [".b4x16_p64"],
        "16U6_ALIGN16B": [".b6x16_p32", "b6p2x16"],
    },
}  # fmt: skip
UNDERSTOOD = [
    (enum, word, name)
    for enum, members in WORDS.items()
    for name, words in members.items()
    for word in words
]


@pytest.mark.parametrize(("enum", "word", "name"), UNDERSTOOD, ids=str)
def test_a_word_that_can_mean_nothing_else_is_understood(enum, word, name):
    assert parse(enum, word) is enum[name]


@pytest.mark.parametrize(
    ("enum", "word"),
    [
        (TmaSwizzle, 16),  # some documents call 16 bytes "no swizzle", others a span
        (TmaSwizzle, 96),
        (TmaSwizzle, 256),
        (TmaSwizzle, "3"),  # a value as text
        (TmaSwizzle, "Swizzle<3,3,3>"),  # of elements, not of bytes
        (TmaSwizzle, "Swizzle<34,3>"),
        (TmaSwizzle, "bytes256"),
        (TmaSwizzle, "L2_128B"),
        (TmaSwizzle, "CU_TENSOR_MAP_INTERLEAVE_32B"),
        (TmaSwizzle, "TmaL2FetchSize.bytes128"),
        (TmaSwizzle, "swizzle"),
        (TmaSwizzle, "True"),
        (TmaSwizzle, "\u00f1128"),
        (TmaSwizzle, "128 " * 1000),
        (TmaL2FetchSize, 32),
        (TmaL2FetchSize, "SWIZZLE_128B"),
        (TmaInterleaveLayout, 64),
        (TmaOobFill, "one"),
        (TensorMapIm2ColWideMode, 128),
        (TensorMapDataType, "u4"),
        (TensorMapDataType, "uint4"),
        (TensorMapDataType, "fp4"),
        (TensorMapDataType, "fp8"),
        (TensorMapDataType, "complex64"),
        (TensorMapDataType, "6"),  # ambiguous: the driver's number or PTX's number
        (TensorMapDataType, 16),
    ],
    ids=str,
)
def test_a_word_that_may_mean_two_things_or_nothing_is_refused(enum, word):
    assert parse(enum, word) is None


@pytest.mark.parametrize(
    ("enum", "word", "near"),
    [
        (TmaSwizzle, "byte128", "bytes128"),
        (TmaSwizzle, "byte129", None),
        (TmaSwizzle, "bytes256", None),
        (TmaOobFill, "nann", "nan"),
        (TmaOobFill, "nane", None),  # nan or none
        (TensorMapDataType, "UNIT8", "UINT8"),
        (TensorMapDataType, "u4", None),
        (TensorMapDataType, "FLAOT16", None),  # FLOAT16 or BFLOAT16
    ],
)
def test_a_name_is_near_only_with_the_same_digits_and_alone(enum, word, near):
    assert near_name(enum, word) == near


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("fp16", "float16"), ("half", "float16"), ("torch.float16", "float16"),
        ("bf16", "bfloat16"), ("double", "float64"), ("e4m3", "float8_e4m3fn"),
        ("float8_e4m3", "float8_e4m3"), ("fp8", None), ("fp4", None), ("float", "float32"),
    ],
)  # fmt: skip
def test_a_dtype_is_called_by_its_other_names(word, name):
    assert dtype_called(word) == name


# -- in a call ------------------------------------------------------------------------------------

X = np.zeros((64, 64), np.float16)


@pytest.mark.parametrize("swizzle", [128, "SWIZZLE_128B", "Swizzle<3,4,3>", "k_sw128", 3])
def test_every_call_takes_the_words(swizzle):
    expected = tma.make_tma_descriptor(X, (64, 64), swizzle="bytes128")
    assert tma.make_tma_descriptor(X, (64, 64), swizzle=swizzle) == expected
    report = tma.check_tma_descriptor(X, (64, 64), swizzle=swizzle)
    assert report.ok
    assert report.fixed()["swizzle"] == swizzle  # a valid option stays
    bare = tma.driver_encode_tiled(
        "fp16", 2, X.ctypes.data, (64, 64), (128,), (64, 64), (1, 1), 0, swizzle, encoder="model"
    )
    assert bytes(bare) == bytes(expected)
    (map_of_batch,) = tma.make_tma_descriptors([X], (64, 64), swizzle=swizzle)
    assert map_of_batch == expected


def dtypes():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    return [np.float16, np.dtype("float16"), torch.float16, jax.numpy.float16, "torch.float16"]


def test_a_data_type_may_be_the_dtype_of_a_framework():
    for dtype in dtypes():
        assert tma.make_tma_descriptor(X, (64, 64), data_type=dtype).data_type.name == "FLOAT16"
    for other in (float, object, np.dtype("V16")):  # float is 64 bits for NumPy, 32 for C
        assert not tma.check_tma_descriptor(X, (64, 64), data_type=other).ok


@pytest.mark.parametrize(
    ("change", "fixed"),
    [
        ({"swizzle": "byte128"}, {"swizzle": "bytes128"}),
        ({"swizzle": 256}, None),
        ({"swizzle": "Swizzle<3,3,3>"}, None),
        ({"l2_fetch_size": 512}, None),
        ({"data_type": "u4"}, None),
        ({"box_sizes": "64,64"}, {"box_sizes": (64, 64)}),
        ({"box_sizes": "(64, 64)"}, {"box_sizes": (64, 64)}),
        ({"box_sizes": "64x64"}, None),
        ({"box_sizes": 64}, None),
        ({"elem_strides": 2}, None),
        ({"shape": "64"}, None),  # the box has two entries, so one entry would be dropped
        ({"shape": "64", "box_sizes": (64,)}, {"shape": (64,), "box_sizes": (64,)}),
        ({"shape": "64", "box_sizes": (1, 64)}, {"shape": (64,), "box_sizes": (64,)}),
        ({"shape": "64 by 64"}, None),
        ({"offset": 0.5}, None),
        ({"target": "SM_90a"}, {"target": "sm_90"}),
        ({"target": "hopper"}, None),
        ({"rules": "Driver"}, {"rules": "driver"}),
        ({"rules": "cuda"}, None),
    ],
    ids=str,
)
def test_fixed_never_changes_a_meaning(change, fixed):
    report = tma.check_tma_descriptor(X, **{"box_sizes": (8, 64)} | change)
    assert not report.ok
    assert "choose one of" in str(report) or "it must be" in str(report)
    if fixed is None:
        assert report.fixed() is None
        with pytest.raises(tma.TmaPreconditionError):
            report.accepted_arguments()
    else:
        assert {name: report.fixed()[name] for name in change} == fixed


def test_the_choices_are_listed_where_nothing_is_near():
    (violation,) = tma.check_tma_descriptor(X, (64, 64), swizzle="Swizzle<3,3,3>").violations
    assert violation.found == "swizzle is 'Swizzle<3,3,3>'"
    assert violation.fix == (
        "choose one of none (0), bytes32 (1), bytes64 (2), bytes128 (3), bytes128_atom_32B (4), "
        "bytes128_atom_32B_flip_8B (5), bytes128_atom_64B (6)"
    )


@given(
    st.sampled_from(["interleave_layout", "swizzle", "l2_fetch_size", "oobfill", "data_type"]),
    st.text(max_size=20) | st.integers(-300, 300),
)
def test_no_word_is_fixed_to_other_digits(argument, word):
    """A random word is understood, or gets a fix with the same digits, or gets no fix."""
    report = tma.check_tma_descriptor(X, (8, 8), **{argument: word})
    if "ARGUMENT" in [v.rule for v in report.violations] and (fixed := report.fixed()):
        assert re.findall(r"\d+", fixed[argument]) == re.findall(r"\d+", str(word))
