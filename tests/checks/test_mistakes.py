"""Ordinary mistakes: check_* never raises, and make_* raises errors with these messages."""

from __future__ import annotations

from collections import deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from strategies import ADDRESS, check, im2col, rules_of, tiled, view, wide

import tma_dlpack as tma

X = np.zeros((64, 64), np.float32)
IMAGES = np.zeros((2, 14, 14, 64), np.float16)
CALLS = {
    "tiled": (tma.check_tma_descriptor, tma.make_tma_descriptor, X, tiled((16, 16))),
    "im2col": (
        tma.check_im2col_descriptor,
        tma.make_im2col_descriptor,
        IMAGES,
        im2col((0, 0), (0, 0), 8, 8),
    ),
    "im2col_wide": (
        tma.check_im2col_wide_descriptor,
        tma.make_im2col_wide_descriptor,
        IMAGES,
        wide(0, 0, 64, 8, target="sm_100"),
    ),
}

PER_DIMENSION = "it must be a sequence of ints, one per dimension"
PER_SPATIAL = "it must be a sequence of ints, one per spatial dimension"


def torch_values():
    torch = pytest.importorskip("torch")
    return {
        "a float tensor": torch.ones(2),
        "a 2-D tensor": torch.ones(2, 2, dtype=torch.int64),
        "a tensor without dimensions": torch.tensor(16),
    }


#: Values that are not a box, how a message shows them, and its words about them.
NO_BOXES = {
    "None": (None, "None", ""),
    "an int": (64, "64", ""),
    "a float": (64.0, "64.0", ""),
    "a bool": (True, "True", ""),
    "a string": ("64, 64", "'64, 64'", ""),
    "bytes": (b"\x10\x10", r"b'\x10\x10'", ""),
    "a set": ({16}, "{16}", ""),
    "a dict": ({0: 16, 1: 16}, "{0: 16, 1: 16}", ""),
    "a float among ints": ((16, 64.0), "(16, 64.0)", "entry 1 has type float"),
    "a numpy float": (
        (np.float32(16), 16),
        f"({np.float32(16)!r}, 16)",
        "entry 0 has type float32",
    ),
    "a bool among ints": ([16, True], "(16, True)", "entry 1 has type bool"),
    "a numpy bool": (
        (np.bool_(True), 16),
        f"({np.True_!r}, 16)",
        f"entry 0 has type {np.bool_.__name__}",
    ),
    "None among ints": ((None, 16), "(None, 16)", "entry 0 has type NoneType"),
    "strings": (("16", "16"), "('16', '16')", "entry 0 has type str"),
    "an enum member": (
        (tma.TmaSwizzle.bytes32, 16),
        "(<TmaSwizzle.bytes32: 1>, 16)",
        "entry 0 has type TmaSwizzle",
    ),
    "a complex number": ((16, 1j), "(16, 1j)", "entry 1 has type complex"),
    "a decimal": ((Decimal(16), 16), "(Decimal('16'), 16)", "entry 0 has type Decimal"),
    "a fraction": ((16, Fraction(16)), "(16, Fraction(16, 1))", "entry 1 has type Fraction"),
    "nested lists": ([[16, 16], [16, 16]], "([16, 16], [16, 16])", "entry 0 has type list"),
    "a shape within a shape": (((16, 16),), "((16, 16),)", "entry 0 has type tuple"),
    "a float array": (np.array([16.0, 16.0]), "array([16., 16.])", "entry 0 has type float64"),
    "a 2-D array": (
        np.array([[16, 16], [8, 8]]),
        "array([[16, 16], [ 8, 8]])",
        "entry 0 has type ndarray",
    ),
    "an array without dimensions": (np.array(16), "array(16)", ""),
    "the tensor itself": (X, "array([[0., 0., 0., ..., 0., 0., 0.], [0., 0., 0., ...", None),
    "a dtype": (np.float32, "<class 'numpy.float32'>", ""),
    "an ellipsis": (..., "Ellipsis", ""),
    "a function": (len, "<built-in function len>", ""),
    "a long int": (
        (10**200, 16),
        f"(1{'0' * 75}...",
        "entry 0 has type int of too many bits",
    ),
    "a slice": (slice(0, 16), "slice(0, 16, None)", ""),
}
#: The boxes of which the intended value is clear. The other boxes have no fix.
BOXES_MEANT = {
    "a string": (64, 64),
    "a float among ints": (16, 64),
    "a numpy float": (16, 16),
    "strings": (16, 16),
    "a fraction": (16, 16),
    "a float array": (16, 16),
}


@pytest.mark.parametrize("name", NO_BOXES)
def test_what_is_no_box_is_named(name):
    value, shown, wrong = NO_BOXES[name]
    (violation,) = tma.check_tma_descriptor(X, value).violations
    assert violation.rule == "ARGUMENT"
    assert violation.argument == "box_sizes"
    if wrong is not None:
        where = f", where {wrong}" if wrong else ""
        assert violation.found == f"box_sizes is {shown}{where}"
    assert violation.limit == PER_DIMENSION
    meant = BOXES_MEANT.get(name)
    hint = f"; did you mean {meant}?" if meant else ""
    assert violation.fix == f"pass a tuple of ints, such as (64, 64){hint}"
    fixed = tma.check_tma_descriptor(X, value).fixed()
    assert (fixed and fixed["box_sizes"]) == meant


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("a float tensor", "entry 0 has type Tensor"),
        ("a 2-D tensor", "entry 0 has type Tensor"),
        ("a tensor without dimensions", ""),
    ],
)
def test_a_torch_tensor_that_is_no_box_is_named(name, wrong):
    (violation,) = tma.check_tma_descriptor(X, torch_values()[name]).violations
    assert violation.limit == PER_DIMENSION
    assert violation.found.endswith(f", where {wrong}") if wrong else "where" not in violation.found


@pytest.mark.parametrize(
    "box",
    [
        [16, 32],
        (16, 32),
        np.array([16, 32]),
        np.array([16, 32], np.uint8),
        (np.int64(16), np.uint8(32)),
        range(16, 33, 16),
        deque([16, 32]),
        iter((16, 32)),
        (n for n in (16, 32)),
        {16: "rows", 32: "columns"}.keys().__iter__(),
    ],
    ids=lambda box: type(box).__name__,
)
def test_any_ordered_sequence_of_integers_is_a_box(box):
    tm = tma.make_tma_descriptor(X, box)
    assert tm.box_sizes == (16, 32)
    assert all(type(n) is int for n in tm.box_sizes)


def test_torch_sizes_and_integer_tensors_are_boxes():
    torch = pytest.importorskip("torch")
    for box in (torch.Size((16, 32)), torch.tensor([16, 32]), (torch.tensor(16), 32)):
        assert tma.make_tma_descriptor(X, box).box_sizes == (16, 32)


@pytest.mark.parametrize(
    ("box", "rule", "found"),
    [
        ((), "BOX_RANK", "box_sizes has 0 entries"),
        ((16,), "BOX_RANK", "box_sizes has 1 entry"),
        ((1, 16, 16), "BOX_RANK", "box_sizes has 3 entries"),
        ((-16, 16), "BOX_RANGE", "box_sizes[0] is -16"),
        ((16, 0), "BOX_RANGE", "box_sizes[1] is 0"),
        ((16, 300), "BOX_RANGE", "box_sizes[1] is 300"),
        ((16, 1 << 70), "BOX_RANGE", "box_sizes[1] is 1180591620717411303424"),
        ((65, 16), "BOX_IN_SHAPE", "box_sizes[0] is 65"),
        ((16, 3), "BOX_INNER_16B", "box_sizes[1] spans 12 bytes"),
    ],
)
def test_a_box_of_wrong_numbers_is_named(box, rule, found):
    (violation,) = tma.check_tma_descriptor(X, box).violations
    assert (violation.rule, violation.found) == (rule, found)


@pytest.mark.parametrize(
    ("argument", "value", "found", "limit", "fix"),
    [
        (
            "elem_strides", 2, "elem_strides is 2", PER_DIMENSION,
            "pass a tuple of ints, such as (1, 1)",
        ),
        (
            "elem_strides", (1, 1.0), "elem_strides is (1, 1.0), where entry 1 has type float",
            PER_DIMENSION, "pass a tuple of ints, such as (1, 1); did you mean (1, 1)?",
        ),
        (
            "interleave_layout", None, "interleave_layout is None",
            "it must be a TmaInterleaveLayout, its name or its value",
            "choose one of none (0), bytes16 (1), bytes32 (2); did you mean 'none'?",
        ),
        (
            "swizzle", 256, "swizzle is 256", "it must be a TmaSwizzle, its name or its value",
            "choose one of none (0), bytes32 (1), bytes64 (2), bytes128 (3), bytes128_atom_32B (4),"
            " bytes128_atom_32B_flip_8B (5), bytes128_atom_64B (6)",
        ),
        (
            "swizzle", "byte128", "swizzle is 'byte128'",
            "it must be a TmaSwizzle, its name or its value",
            "choose one of none (0), bytes32 (1), bytes64 (2), bytes128 (3), bytes128_atom_32B (4),"
            " bytes128_atom_32B_flip_8B (5), bytes128_atom_64B (6); did you mean 'bytes128'?",
        ),
        (
            "swizzle", tma.TmaL2FetchSize.bytes128, "swizzle is <TmaL2FetchSize.bytes128: 2>",
            "it must be a TmaSwizzle, its name or its value",
            "choose one of none (0), bytes32 (1), bytes64 (2), bytes128 (3), bytes128_atom_32B (4),"
            " bytes128_atom_32B_flip_8B (5), bytes128_atom_64B (6)",
        ),
        (
            "l2_fetch_size", "byte128", "l2_fetch_size is 'byte128'",
            "it must be a TmaL2FetchSize, its name or its value",
            "choose one of none (0), bytes64 (1), bytes128 (2), bytes256 (3); "
            "did you mean 'bytes128'?",
        ),
        (
            "oobfill", True, "oobfill is True", "it must be a TmaOobFill, its name or its value",
            "choose one of none (0), nan (1)",
        ),
        (
            "oobfill", float("nan"), "oobfill is nan",
            "it must be a TmaOobFill, its name or its value",
            "choose one of none (0), nan (1); did you mean 'nan'?",
        ),
        (
            "rules", "cuda", "rules is 'cuda'", "it must be one of 'libcu++', 'driver'",
            "pass rules='libcu++'",
        ),
        (
            "rules", None, "rules is None", "it must be one of 'libcu++', 'driver'",
            "pass rules='libcu++'",
        ),
    ],
)  # fmt: skip
def test_a_mistaken_option_is_named(argument, value, found, limit, fix):
    (violation,) = tma.check_tma_descriptor(X, **tiled((16, 16)) | {argument: value}).violations
    assert (violation.rule, violation.argument) == ("ARGUMENT", argument)
    assert (violation.found, violation.limit, violation.fix) == (found, limit, fix)


@pytest.mark.parametrize("value", [float, "u4", "fp8", "torch", 99, -1, 7.0, ...])
def test_a_mistaken_data_type_is_named(value):
    (violation,) = tma.check_tma_descriptor(X, (16, 16), data_type=value).violations
    assert violation.argument == "data_type"
    assert violation.found == f"data_type is {value!r}"
    assert violation.limit == "it must be a TensorMapDataType, its name or its value"
    assert violation.fix.startswith("choose one of UINT8 (0), UINT16 (1)")


@pytest.mark.parametrize(
    ("value", "name"), [("int4", "16U4_ALIGN8B"), ("fp4", "16U4_ALIGN8B"), ("fp6", "16U6_ALIGN16B")]
)
def test_a_type_of_fewer_than_8_bits_says_what_it_needs(value, name):
    (violation,) = tma.check_tma_descriptor(X, (16, 16), data_type=value).violations
    assert violation.fix.startswith(f"{value} values are packed: pass a uint8 tensor that holds ")
    assert f"with data_type={name!r}, on sm_100 or later" in violation.fix
    packed = view((64, 96), (1, 8))  # both types need whole groups of 128 values
    assert check("tiled", packed, tiled((16, 128), data_type=name, target="sm_100")).ok


class FloatType:
    def __init__(self, *dlpack):
        self.dlpack = dlpack

    def __dlpack_data_type__(self):
        return self.dlpack


@pytest.mark.parametrize(
    ("dlpack", "name"), [((2, 32, 1), "FLOAT32"), ((0, 32, 1), "INT32"), ((1, 32, 1), "UINT32")]
)
def test_a_type_with_dlpacks_protocol_is_a_data_type(dlpack, name):
    tm = tma.make_tma_descriptor(X, (16, 16), data_type=FloatType(*dlpack))
    assert tm.data_type.name == name


@pytest.mark.parametrize("dlpack", [(2, 16), None, (2, "a", 1), (99, 13, 1)])
def test_a_type_whose_protocol_returns_no_type_is_named(dlpack):
    wrong = FloatType()
    wrong.dlpack = dlpack
    (violation,) = tma.check_tma_descriptor(X, (16, 16), data_type=wrong).violations
    assert violation.argument == "data_type"


@pytest.mark.parametrize(
    ("value", "fix"),
    [(True, "name the dimension: ragged=0 for the rows"), (False, "omit ragged")],
)
def test_ragged_is_a_dimension_and_no_flag(value, fix):
    (violation,) = tma.check_tma_descriptor(X, (16, 16), ragged=value).violations
    assert violation.found == f"ragged is {value}"
    assert violation.limit == "it must be the dimension that is cut into slices, an int"
    assert violation.fix == fix


@pytest.mark.parametrize(
    ("kind", "argument", "value", "example"),
    [
        ("im2col", "elem_strides", 2, (1, 2, 2, 1)),
        ("im2col", "elem_strides", "2", (1, 1, 1, 1)),
        ("im2col", "pixel_box_lower_corner", -1, (-1, -1)),
        ("tiled", "elem_strides", 2, (1, 1)),
        ("tiled", "box_sizes", 64, (64, 64)),
    ],
)
def test_the_example_of_a_list_is_one_that_the_tensor_takes(kind, argument, value, example):
    check, _, x, fine = CALLS[kind]
    (violation,) = check(x, **fine | {argument: value}).violations
    assert violation.fix.startswith(f"pass a tuple of ints, such as {example}")
    assert check(x, **fine | {argument: example}).ok


def test_the_example_of_a_box_has_the_rank_and_whole_units():
    x = np.zeros((2, 3, 40, 12), np.float16)  # rows of 24 bytes
    (violation, *_) = tma.check_tma_descriptor(x, 64).violations
    assert violation.fix == "pass a tuple of ints, such as (1, 1, 40, 8)"


@pytest.mark.parametrize("target", ["sm_80", "hopper", 90, (9, 0), 9.0, "cuda:0", b"sm_90"])
def test_a_mistaken_target_is_named(target):
    (violation,) = tma.check_tma_descriptor(X, (16, 16), target=target).violations
    assert violation.argument == "target"
    assert violation.found == f"target={target!r}"


@pytest.mark.parametrize(
    ("argument", "value", "found", "limit"),
    [
        ("channels_per_pixel", "8", "channels_per_pixel is '8'", "it must be an int"),
        ("channels_per_pixel", (8,), "channels_per_pixel is (8,)", "it must be an int"),
        ("pixels_per_column", 8.0, "pixels_per_column is 8.0", "it must be an int"),
        ("pixels_per_column", True, "pixels_per_column is True", "it must be an int"),
        ("pixels_per_column", None, "pixels_per_column is None", "it must be an int"),
        (
            "pixels_per_column",
            1 << 600,
            "pixels_per_column is an int of 601 bits",
            "it must be an int of at most 512 bits",
        ),
        ("pixel_box_lower_corner", -1, "pixel_box_lower_corner is -1", PER_SPATIAL),
        (
            "pixel_box_upper_corner",
            (0, -0.5),
            "pixel_box_upper_corner is (0, -0.5), where entry 1 has type float",
            PER_SPATIAL,
        ),
    ],
)
def test_a_mistaken_column_is_named(argument, value, found, limit):
    options = im2col((0, 0), (0, 0), 8, 8) | {argument: value}
    (violation,) = tma.check_im2col_descriptor(IMAGES, **options).violations
    assert (violation.rule, violation.argument) == ("ARGUMENT", argument)
    assert (violation.found, violation.limit) == (found, limit)


MISTAKES = (
    None,
    True,
    1.5,
    "abc",
    b"ab",
    (1, 2.0),
    [[1, 2]],
    {0: 1},
    np.ones((2, 2)),
    ...,
    1 << 80,
)


@pytest.mark.parametrize("kind", CALLS)
def test_a_report_of_a_mistake_proposes_what_is_accepted(kind):
    check, make, x, fine = CALLS[kind]
    for argument in fine:
        for mistake in MISTAKES[: -1 if argument == "offset" else None]:  # 2^80 is a number
            report = check(x, **fine | {argument: mistake})
            fixed = report.fixed()
            assert fixed is None or check(x, **fixed).ok
            assert str(report).startswith("accepted" if report.ok else "refused")
            if report.ok:
                assert make(x, **fine | {argument: mistake}).tensor is x
            else:
                with pytest.raises(tma.TmaPreconditionError) as caught:
                    make(x, **fine | {argument: mistake})
                assert caught.value.violations == report.violations


@pytest.mark.parametrize("x", [None, 3, "x", [[1.0, 2.0]], {"a": 1}, np.ndarray, range(4), b"1234"])
def test_what_is_no_tensor_is_the_first_violation(x):
    report = tma.check_tma_descriptor(x, (16, 16.0))
    assert rules_of(report) == ["TENSOR_TYPE", "ARGUMENT"]
    assert report.fixed() is None
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptor(x, (16, 16.0))
    assert caught.value.violations == report.violations


@pytest.mark.parametrize(
    ("argument", "value", "found", "limit"),
    [
        ("tensor_rank", 2.0, "tensor_rank is 2.0", "it must be an int"),
        ("global_address", None, "global_address is None", "it must be an int"),
        ("global_address", X, None, "it must be an int"),
        ("global_dim", 64, "global_dim is 64", PER_DIMENSION),
        ("global_dim", (64,), "global_dim has 1 entry",
         "it must have 2 entries, for the rank that is given"),
        ("global_strides", (256.0,), "global_strides is (256.0,), where entry 0 has type float",
         "it must be a sequence of ints, one per dimension but the innermost, in bytes"),
        ("box_dim", "16,16", "box_dim is '16,16'", PER_DIMENSION),
        ("element_strides", None, "element_strides is None", PER_DIMENSION),
        ("tensor_data_type", "fp4", "tensor_data_type is 'fp4'",
         "it must be a TensorMapDataType, its name or its value"),
        ("interleave", 3, "interleave is 3",
         "it must be a TmaInterleaveLayout, its name or its value"),
        ("oob_fill", False, "oob_fill is False", "it must be a TmaOobFill, its name or its value"),
    ],
)  # fmt: skip
def test_a_mistaken_argument_of_the_driver_is_named(argument, value, found, limit):
    fine = {
        "tensor_data_type": "FLOAT32", "tensor_rank": 2, "global_address": ADDRESS,
        "global_dim": (64, 64), "global_strides": (256,), "box_dim": (16, 16),
        "element_strides": (1, 1),
    }  # fmt: skip
    assert len(bytes(tma.driver_encode_tiled(**fine, encoder="model"))) == 128
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.driver_encode_tiled(**fine | {argument: value}, encoder="model")
    violation = next(v for v in caught.value.violations if v.argument == argument)
    assert found is None or violation.found == found
    assert violation.limit == limit


def test_an_iterator_is_read_once():
    report = tma.check_tma_descriptor(X, iter((16, 3)))
    assert rules_of(report) == ["BOX_INNER_16B"]
    assert report.fixed()["box_sizes"] == (16, 4)


def test_a_list_without_end_is_refused():
    import itertools

    assert rules_of(tma.check_tma_descriptor(X, itertools.count())) == ["ARGUMENT"]
