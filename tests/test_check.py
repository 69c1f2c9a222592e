"""`check` and its Report: libcu++'s order, what `fixed` promises, and that nothing raises."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import (
    ADDRESS,
    KINDS,
    MAPPED_DTYPES,
    TARGETS,
    check,
    fine_views,
    im2col,
    odd_views,
    options_of,
    tiled,
    view,
    wide,
)

import tma_dlpack as tma
from tma_dlpack.case import RULE_SETS
from tma_dlpack.dtypes import data_type_of, row
from tma_dlpack.enums import (
    DLDataTypeCode,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.errors import Violation
from tma_dlpack.request import make_case
from tma_dlpack.target import Target

LIFTED = "; or pass rules='driver': the driver itself accepts this"


def rules_of(report):
    return [v.rule for v in report.violations]


# -- reports are values ---------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.zeros((64, 64), np.float32), object], ids=["array", "no tensor"])
def test_a_report_survives_pickle_with_its_repairs(x):
    report = tma.check_tma_descriptor(x, [16, 3])
    again = pickle.loads(pickle.dumps(report))
    assert (again, str(again), again.fixed()) == (report, str(report), report.fixed())


@pytest.mark.parametrize("name", ["ok", "violations", "anything"])
def test_a_report_and_its_findings_are_immutable(name):
    report = tma.check_tma_descriptor(np.zeros((64, 64), np.float32), (16, 3))
    for value in (report, report.violations[0]):
        with pytest.raises(AttributeError, match="is immutable"):
            setattr(value, name, 1)
        with pytest.raises(AttributeError, match="is immutable"):
            delattr(value, name)


def test_a_type_that_does_not_tell_its_name_is_refused_like_others():
    class Silent(type):
        __name__ = __module__ = property(lambda cls: 1 / 0)

    x = Silent("Odd", (), {})()
    assert [v.rule for v in tma.check_tma_descriptor(x, x).violations] == [
        "TENSOR_TYPE",
        "ARGUMENT",
    ]


def test_the_driver_counts_a_column_of_pixels_whole():
    case = make_case("im2col", None, 0, im2col((0,), (0,), 64, 128), Target.of("sm_90"), False)
    case = dataclasses.replace(case, data_type=TensorMapDataType.FLOAT16)
    assert case.floor_box_bytes == case.box_bytes == 16384


# -- the number that a fix names is one that is accepted ------------------------------------------


@given(
    shape=st.lists(
        st.sampled_from([1, 4, 8, 10, 16, 24, 100, 256, 300, 4096]), min_size=1, max_size=2
    ),
    numpy_type=st.sampled_from(["uint8", "float16", "float32", "float64"]),
    entry=st.sampled_from([-1, 0, 257, 300, 5000]),
    place=st.integers(0, 2),
    swizzle=st.sampled_from(["none", "bytes32", "bytes128"]),
)
def test_the_entry_that_a_fix_names_is_accepted(shape, numpy_type, entry, place, swizzle):
    row_bytes = -(-shape[-1] * np.dtype(numpy_type).itemsize // 16) * 16
    room = np.zeros((*shape[:-1], row_bytes // np.dtype(numpy_type).itemsize), numpy_type)
    x = room[..., : shape[-1]]
    assume(shape[-1] * x.itemsize >= 16)  # no box fits a narrower row
    box = [1] * (len(shape) - 1) + [16 // x.itemsize]
    place = place % len(shape)
    box[place] = entry
    report = tma.check_tma_descriptor(x, box, swizzle=swizzle)
    assume([v.rule for v in report.violations] in (["BOX_RANGE"], ["BOX_IN_SHAPE"]))
    (violation,) = report.violations
    box[place] = int(re.search(r"use (?:at least )?(\d+)", violation.fix)[1])
    assert tma.check_tma_descriptor(x, box, swizzle=swizzle).ok


# -- the first violation is the one that libcu++ throws -------------------------------------------


def what_libcudacxx_throws(x, given, target) -> str | None:
    """Walk through make_tma_descriptor's checks, as its code does; None where it passes them.

    Written from the header's checks (NVIDIA/cccl 571f2fc3bc), apart from our table. x is row-major.
    """
    rank, shape, strides = len(x.shape), x.shape, x.strides
    box, steps = given["box_sizes"], given["elem_strides"]
    interleave, swizzle = given["interleave_layout"], given["swizzle"]
    wide_units = interleave is TmaInterleaveLayout.bytes32
    bits = x.dtype.itemsize_bits
    packed = x.dtype.bits == 4
    alignment = 32 if wide_units else 16

    def check_device():
        major = target.compute_capability[0]
        if major < 9:
            return "CAPABILITY"
        if major == 9 and swizzle >= TmaSwizzle.bytes128_atom_32B:
            return "ATOM_SWIZZLE"
        if major == 9 and packed and data_type_of(x.dtype) is not None:
            return "PACKED_TYPE"
        return None

    def check_rank():
        if not 1 <= rank <= 5:
            return "RANK"
        return "RANK_INTERLEAVED" if interleave and rank < 3 else None

    def check_address():
        if x.address == 0:
            return "ADDRESS_NULL"
        return "ADDRESS_ALIGNED" if x.address % alignment else None

    def check_dtype():
        if data_type_of(x.dtype) is None:
            return "DTYPE"
        whole = (DLDataTypeCode.kDLInt, DLDataTypeCode.kDLUInt, DLDataTypeCode.kDLBool)
        return "OOB_NAN" if given["oobfill"] is TmaOobFill.nan and x.dtype.code in whole else None

    def check_sizes():
        if packed and shape[-1] * x.dtype.lanes % 2:
            return "DIM_PACKED"
        for i in range(rank):
            extent = shape[i] * (x.dtype.lanes if packed and i == rank - 1 else 1)
            if not 1 <= extent <= 1 << 32:
                return "DIM_RANGE"
        return None

    def check_strides():
        if strides[-1] != 1:
            return "STRIDE_INNERMOST"
        for i in range(rank - 2, -1, -1):
            if shape[i] == 1:
                continue  # ours: no access uses it, and it is made to fit
            inner = next((k for k in range(i + 1, rank - 1) if shape[k] != 1), rank - 1)
            if strides[i] != 0 and strides[i] < shape[inner] * strides[inner]:
                return "STRIDE_UNIQUE"
            if strides[i] * bits % (8 * alignment):
                return "STRIDE_ALIGNED"
            if strides[i] * bits >= 8 << 40:
                return "STRIDE_RANGE"
        return None

    def check_interleave():
        return (
            "INTERLEAVE_32B_SWIZZLE" if wide_units and swizzle is not TmaSwizzle.bytes32 else None
        )

    def check_box():
        values = (*shape[:-1], shape[-1] * (x.dtype.lanes if packed else 1))
        value_bits = x.dtype.bits if packed else bits
        if len(box) != rank:
            return "BOX_RANK"
        for i in range(rank - 1, -1, -1):
            if not 1 <= box[i] <= 256:
                return "BOX_RANGE"
            if box[i] > values[i]:
                return "BOX_IN_SHAPE"
        if not interleave:
            if box[-1] * value_bits % (16 * 8):
                return "BOX_INNER_16B"
            span = {0: 1 << 60, 1: 32, 2: 64}.get(int(swizzle), 128)
            if box[-1] * value_bits > span * 8:
                return "BOX_SWIZZLE_SPAN"
        tile_bits = value_bits
        for n in box:
            tile_bits *= n
        return "BOX_SMEM" if tile_bits > 8 * target.max_smem_bytes else None

    def check_elem_strides():
        if steps is None:
            return None
        if len(steps) != rank:
            return "ELEM_STRIDES_RANK"
        for i in range(rank - 1 if interleave else rank - 2, -1, -1):
            extent = shape[i] * (x.dtype.lanes if packed and i == rank - 1 else 1)
            if not 1 <= steps[i] <= 8:
                return "ELEM_STRIDES_RANGE"
            if steps[i] > extent:
                return "ELEM_STRIDES_IN_SHAPE"
        return None

    checks = (
        check_device, check_rank, check_address, check_dtype, check_sizes, check_strides,
        check_interleave, check_box, check_elem_strides,
    )  # fmt: skip
    return next((thrown for c in checks if (thrown := c()) is not None), None)


DRIVER_ALONE = {"ADDRESS_RANGE", "BOX_INNER_16B_INTERLEAVED", "BOX_BYTES", "OOB_NAN_FLOAT8"}
LIBCUDACXX_TARGETS = st.sampled_from(
    [
        Target((8, 9)),
        Target((9, 0)),
        Target((9, 0), 16_384),
        Target((10, 0)),
        Target((12, 0), 101_376),
    ]
)


@st.composite
def libcudacxx_requests(draw):
    """Readable requests, in the words of libcu++ alone, around what is accepted."""
    x = draw(st.one_of(fine_views(), fine_views(), odd_views()))
    rank = len(x.shape)
    near = [st.sampled_from((1, 2, 4, 8, 16, 32, 64, 128, n, n + 1, 256, 257, 0)) for n in x.shape]
    box = list(draw(st.tuples(*near)))
    steps = draw(st.one_of(st.none(), st.lists(st.integers(0, 9), min_size=rank, max_size=rank)))
    if draw(st.integers(0, 9)) == 0:
        box = [*box, 1]
    if steps is not None and draw(st.integers(0, 9)) == 0:
        steps = steps[1:]
    target = draw(LIBCUDACXX_TARGETS)
    options = tiled(
        tuple(box),
        elem_strides=steps,
        interleave_layout=draw(st.sampled_from(TmaInterleaveLayout)),
        swizzle=draw(st.sampled_from(TmaSwizzle)),
        oobfill=draw(st.sampled_from(TmaOobFill)),
        target=target,
    )
    return x, options, target


@settings(max_examples=400)
@given(libcudacxx_requests())
def test_the_first_violation_is_the_one_that_libcudacxx_throws(request_):
    x, options, target = request_
    thrown = what_libcudacxx_throws(x, options, target)
    rules = rules_of(check("tiled", x, options))
    assert [r for r in rules if r not in DRIVER_ALONE][:1] == ([] if thrown is None else [thrown])
    first_of_driver = next((n for n, r in enumerate(rules) if r in DRIVER_ALONE), len(rules))
    assert all(r in DRIVER_ALONE for r in rules[first_of_driver:])


# -- what only libcu++ refuses -------------------------------------------------------------------


@settings(max_examples=200)
@given(KINDS, st.data())
def test_rules_driver_is_offered_exactly_where_the_driver_then_accepts(kind, data):
    x = data.draw(st.one_of(fine_views(), odd_views()))
    options = data.draw(st.fixed_dictionaries(options_of(kind, len(x.shape))))
    options["rules"] = RULE_SETS[kind][0]
    report = check(kind, x, options)
    offered = [v.fix.endswith(LIFTED) for v in report.violations]
    accepted = check(kind, x, options | {"rules": "driver"}).ok
    assert offered == [accepted] * len(report.violations)


@pytest.mark.parametrize(
    ("x", "options", "rule"),
    [
        (view((64, 64)), tiled((16, 128)), "BOX_IN_SHAPE"),
        (view((64, 64), strides=(32, 1)), tiled((16, 32)), "STRIDE_UNIQUE"),
        (view((2, 64)), tiled((1, 16), elem_strides=(4, 1)), "ELEM_STRIDES_IN_SHAPE"),
        (view((1024, 1024)), tiled((227, 256), target="sm_120"), "BOX_SMEM"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_a_refusal_of_libcudacxx_alone_says_that_the_driver_accepts_it(x, options, rule):
    report = check("tiled", x, options)
    assert rules_of(report) == [rule]
    assert report.violations[0].fix.endswith(LIFTED)
    assert check("tiled", x, options | {"rules": "driver"}).ok


def test_an_innermost_elem_stride_that_libcudacxx_ignores_is_no_way_past_the_driver():
    x, options = view((64, 64)), tiled((16, 128), elem_strides=(1, 9))
    assert rules_of(check("tiled", x, options)) == ["BOX_IN_SHAPE"]
    assert "rules='driver'" not in check("tiled", x, options).violations[0].fix
    assert rules_of(check("tiled", x, options | {"rules": "driver"})) == ["ELEM_STRIDES_RANGE"]


# -- followers of an earlier fault ---------------------------------------------------------------


def test_all_violations_come_at_once_in_order():
    options = tiled((300, 80), swizzle="bytes128_atom_64B", elem_strides=(9, 1))
    assert rules_of(check("tiled", view((64, 64), address=ADDRESS + 8), options)) == [
        "ATOM_SWIZZLE",
        "ADDRESS_ALIGNED",
        "BOX_IN_SHAPE",
        "BOX_RANGE",
        "BOX_SWIZZLE_SPAN",
        "ELEM_STRIDES_RANGE",
    ]


def test_strides_of_a_transposed_tensor_are_told_once():
    report = check("tiled", view((64, 33), strides=(1, 65)), tiled((16, 16)))
    assert rules_of(report) == ["STRIDE_INNERMOST"]


def test_a_box_of_another_length_has_no_other_faults():
    assert rules_of(check("tiled", view((64, 64)), tiled((300, 3, 3)))) == ["BOX_RANK"]


def test_an_unreadable_argument_hides_only_what_depends_on_it():
    options = tiled((16, 3), swizzle="byte128", elem_strides=(9, 1))
    assert rules_of(check("tiled", view((64, 64)), options)) == [
        "ARGUMENT",
        "BOX_INNER_16B",
        "ELEM_STRIDES_RANGE",
    ]


BYTES = view((8, 8, 512), (1, 8))
IMAGES = view((2, 14, 14, 64), (2, 16))


@pytest.mark.parametrize(
    ("kind", "x", "options", "told"),
    [
        ("tiled", BYTES, tiled((1, 1, 257), swizzle="bytes128"), ["BOX_RANGE"]),
        ("tiled", BYTES, tiled((1, 300, 16), rules="driver"), ["BOX_RANGE"]),
        ("tiled", view((0, 64)), tiled((1, 16), elem_strides=(2, 1)), ["DIM_RANGE"]),
        ("tiled", BYTES, tiled((1, 1, 16), elem_strides=(1, 9, 1)), ["ELEM_STRIDES_RANGE"]),
        (
            "tiled",
            view((8, 63), (17, 4, 1)),
            tiled((1, 32)),
            ["PACKED_TYPE", "STRIDE_ALIGNED"],
        ),
        (
            "tiled",
            BYTES,
            tiled((1, 1, 16), data_type="16U6_ALIGN16B", interleave_layout="bytes16"),
            ["PACKED_TYPE"],
        ),
        (
            "tiled",
            BYTES,
            tiled(
                (1, 1, 128),
                data_type="16U4_ALIGN16B",
                interleave_layout="bytes32",
                swizzle="bytes64",
                target="sm_100",
            ),
            ["INTERLEAVE_32B_SWIZZLE"],
        ),
        (
            "tiled",
            BYTES,
            tiled((1, 1, 16), swizzle="bytes128_atom_64B", target=Target((8, 0))),
            ["CAPABILITY"],
        ),
        ("tiled", view(()), tiled((), interleave_layout="bytes16"), ["RANK"]),
        (
            "im2col_wide",
            IMAGES,
            wide(0, 0, 64, 8, swizzle="bytes128_atom_64B"),
            ["ATOM_SWIZZLE", "WIDE_CAPABILITY"],
        ),
        ("im2col", IMAGES, im2col((0, -200), (0, 0), 8, 8), ["LOWER_CORNER"]),
        ("im2col", IMAGES, im2col((0,), (0, -99), 8, 8), ["LOWER_CORNER_COUNT"]),
        ("im2col", IMAGES, im2col((0, 0), (0, 0), 0, 1025), ["CHANNELS", "PIXELS"]),
        ("im2col", IMAGES, im2col((0, 0), (0, 0), 300, 8, swizzle="bytes64"), ["CHANNELS"]),
    ],
)
def test_followers_of_a_fault_are_not_told(kind, x, options, told):
    assert rules_of(check(kind, x, options)) == told


READABLE = {
    "swizzle": list(TmaSwizzle),
    "interleave_layout": list(TmaInterleaveLayout),
    "oobfill": list(TmaOobFill),
    "target": ["sm_90", "sm_100", "sm_120", Target((9, 0), 1 << 20)],
}


@settings(max_examples=300)
@given(KINDS, st.sampled_from(sorted(READABLE)), st.data())
def test_what_is_told_beside_an_unreadable_argument_holds_whatever_it_was(kind, argument, data):
    x = data.draw(st.one_of(fine_views(), odd_views()))
    options = data.draw(st.fixed_dictionaries(options_of(kind, len(x.shape))))
    told = rules_of(check(kind, x, options | {argument: "?"}))
    for value in READABLE[argument]:
        rules = rules_of(check(kind, x, options | {argument: value}))
        assert set(told) - {"ARGUMENT"} <= set(rules)


def test_the_innermost_elem_stride_of_a_column_is_not_told_beside_an_unreadable_target():
    options = im2col((0, 0), (0, 0), 8, 8, rules="driver", elem_strides=(1, 1, 1, 15))
    assert rules_of(check("im2col", IMAGES, options)) == ["ELEM_STRIDES_RANGE"]
    assert rules_of(check("im2col", IMAGES, options | {"target": "?"})) == ["ARGUMENT"]
    assert check("im2col", IMAGES, options | {"target": "sm_100"}).ok


def test_an_override_of_another_size_leaves_the_tensor_its_own():
    options = tiled((16, 3), data_type="FLOAT64")
    assert rules_of(check("tiled", view((64, 64)), options)) == [
        "DATA_TYPE_OVERRIDE",
        "BOX_INNER_16B",
    ]


# -- what a fix says -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer", "fix"),
    [
        ("torch.Tensor", "y = torch.empty(..., 1736)[..., :1733]; y.copy_(x)"),
        ("torch.nn.parameter.Parameter", "y = torch.empty(..., 1736)[..., :1733]; y.copy_(x)"),
        ("numpy.ndarray", "y = numpy.empty((4, 1736), x.dtype)[..., :1733]; y[...] = x"),
        ("cupy.ndarray", "y = cupy.empty((4, 1736), x.dtype)[..., :1733]; y[...] = x"),
        ("jaxlib._jax.ArrayImpl", "y = jax.numpy.pad(x, ((0, 0), (0, 3)))"),
        ("tvm_ffi.core.Tensor", "allocate rows of 1736 elements, and pass the first 1733 of each"),
    ],
)
def test_a_ragged_row_is_padded_in_the_words_of_its_framework(producer, fix):
    x = view((4, 1733), (2, 16), producer=producer)
    (violation,) = check("tiled", x, tiled((4, 64))).violations
    assert violation.found == "tensor.strides[0] is 1733 elements, 3466 bytes"
    assert violation.limit == "it must be a multiple of 16 bytes"
    assert violation.fix == f"pad the last dimension from 1733 to 1736 elements: {fix}"


def test_what_the_fix_of_a_ragged_numpy_array_says_works():
    x = np.arange(4 * 1733, dtype=np.float16).reshape(4, 1733)
    fix = tma.check_tma_descriptor(x, (4, 64)).violations[0].fix
    names = {"numpy": np, "x": x}
    exec(fix.partition(": ")[2], names)
    assert np.array_equal(names["y"], x)
    assert tma.check_tma_descriptor(names["y"], (4, 64)).ok


def test_what_the_fix_of_a_ragged_jax_array_says_works():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones((4, 1733), dtype="float32")
    fix = tma.check_tma_descriptor(x, (4, 64)).violations[0].fix
    names = {"jax": jax, "x": x}
    exec(fix.partition(": ")[2], names)
    assert tma.check_tma_descriptor(names["y"], (4, 64)).ok


@pytest.mark.parametrize(
    ("x", "fix"),
    [
        (
            view((64, 32), strides=(1, 64)),
            "dimension 0 is the contiguous one: pass x.permute(1, 0), and box_sizes in that order; "
            "or copy it: x = x.contiguous()",
        ),
        (
            view((64, 32), strides=(1, 64), producer="numpy.ndarray"),
            "dimension 0 is the contiguous one: pass x.transpose(1, 0), and box_sizes in that "
            "order; or copy it: x = numpy.ascontiguousarray(x)",
        ),
        (
            view((64, 32), strides=(64, 2)),
            "copy it to a row-major tensor: x = x.contiguous(); elem_strides cannot step the last "
            "dimension",
        ),
    ],
)
def test_a_last_dimension_that_is_not_contiguous_is_explained(x, fix):
    assert check("tiled", x, tiled((16, 16))).violations[0].fix == fix


@pytest.mark.parametrize(
    ("shape", "order"), [((2, 8, 5, 5), "0, 2, 3, 1"), ((2, 8, 4, 5, 5), "0, 2, 3, 4, 1")]
)
def test_channels_last_memory_is_explained_with_the_permutation(shape, order):
    torch = pytest.importorskip("torch")
    memory = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x = torch.zeros(shape).to(memory_format=memory)
    spatial = (0,) * (len(shape) - 2)
    (violation,) = tma.check_im2col_descriptor(x, spatial, spatial, 8, 32).violations
    assert violation.rule == "STRIDE_INNERMOST"
    assert violation.fix == (
        "this is an N, C, [D,] [H,] W tensor in channels_last memory: pass "
        f"x.permute({order}), which moves no data"
    )
    permuted = x.permute(*map(int, order.split(", ")))
    assert tma.check_im2col_descriptor(permuted, spatial, spatial, 8, 32).ok


def test_a_numpy_array_is_copied_to_a_multiple_of_32_bytes():
    memory = np.zeros(4 * 8 * 16 * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 32 + 16
    x = memory[start : start + 4 * 8 * 16 * 4].view(np.float32).reshape(4, 8, 16)
    x[...] = np.arange(x.size).reshape(x.shape)
    options = {"interleave_layout": "bytes32", "swizzle": "bytes32"}
    (violation,) = tma.check_tma_descriptor(x, (1, 8, 8), **options).violations
    assert "or use interleave_layout='bytes16'" in violation.fix
    names = {"numpy": np, "x": x}
    exec(violation.fix.partition("such an address: ")[2], names)
    assert np.array_equal(names["y"], x)
    assert tma.check_tma_descriptor(names["y"], (1, 8, 8), **options).ok


def test_a_bounding_box_that_only_wraps_is_told_as_such():
    x = view((1, 1, 1 << 31, 64), (2, 16))
    (violation,) = check("im2col", x, im2col((0, 0), (0, 0), 8, 8)).violations
    assert violation.rule == "BOUNDING_BOX"
    assert "adds in 32-bit integers: size + upper must be below 2^31" in violation.limit
    assert violation.fix == "split the tensor along W, one map per part"
    assert check("im2col", x, im2col((0, 0), (0, -1), 8, 8)).ok
    (violation,) = check("im2col", IMAGES, im2col((0, 0), (0, -14), 8, 8)).violations
    assert violation.fix.startswith("use a kernel no larger than the padded image")


def test_a_lone_uint4_is_told_how_many_lanes_it_takes():
    (violation, *_) = check("tiled", view((64, 64), (1, 4)), tiled((1, 32))).violations
    assert violation.rule == "DTYPE"
    assert violation.limit.endswith("or 4-bit values of 16 lanes (or float4_e2m1fn)")


def test_strides_of_extent_one_are_not_looked_at():
    for strides in ((7, 3, 1), (0, 1 << 50, 1), (1, 1, 1)):
        assert check("tiled", view((1, 1, 64), strides=strides), tiled((1, 1, 16))).ok
    wide_units = tiled((1, 1, 8), interleave_layout="bytes32", swizzle="bytes32")
    x = view((1, 1, 12), strides=(12, 12, 1))  # 48 bytes: no multiple of 32, and never used
    assert check("tiled", x, wide_units).ok


# -- fixed -----------------------------------------------------------------------------------------


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(KINDS, st.data())
def test_what_fixed_returns_is_accepted_always(kind, data):
    x = data.draw(st.one_of(fine_views(), odd_views()))
    options = data.draw(st.fixed_dictionaries(options_of(kind, len(x.shape))))
    report = check(kind, x, options)
    fixed = report.fixed()
    assert report.ok <= (fixed == options)
    if fixed is not None:
        assert set(fixed) == set(options)
        assert check(kind, x, fixed).violations == ()


#: All but the lone 4-bit value, which has no type to fall back on where the target lacks its own.
WITH_WHOLE_BYTES = [dtype for dtype in MAPPED_DTYPES if dtype != (17, 4, 1)]


def plain_request(kind, x):
    """The humblest request: if a tensor can be described at all, then by this one."""
    unit = max(1, 128 // row(data_type_of(x.dtype)).element_bits)
    spatial = (0,) * (len(x.shape) - 2)
    if kind == "tiled":
        return tiled((*(1,) * (len(x.shape) - 1), unit), rules="driver", target="sm_100")
    if kind == "im2col":
        return im2col(spatial, spatial, unit, 1, rules="driver", target="sm_100")
    return wide(0, 0, unit, 1, target="sm_100")


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(KINDS, st.data())
def test_fixed_finds_a_way_whenever_the_tensor_can_be_described(kind, data):
    """Only arguments are at fault if other arguments would be accepted for the same tensor."""
    x = data.draw(fine_views(WITH_WHOLE_BYTES, min_rank=1 if kind == "tiled" else 3))
    options = data.draw(st.fixed_dictionaries(options_of(kind, len(x.shape))))
    assert check(kind, x, plain_request(kind, x)).ok
    assert check(kind, x, options).fixed() is not None


#: Arguments that a repair may change though the violation names another one.
ALSO_CHANGED = {
    "BOX_SWIZZLE_SPAN": {"swizzle"},
    "ADDRESS_ALIGNED": {"interleave_layout", "data_type"},
    "STRIDE_ALIGNED": {"interleave_layout", "data_type"},
    "INTERLEAVE_32B_SWIZZLE": {"interleave_layout"},
    "WIDE_SWIZZLE": {"interleave_layout"},
    "PACKED_SWIZZLE": {"interleave_layout"},
    "DTYPE": {"data_type"},
    "PACKED_TYPE": {"data_type"},
    "DIM_PACKED": {"data_type"},
    "BOUNDING_BOX": {"pixel_box_lower_corner", "lower_corner_width"},
}


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(KINDS, st.data())
def test_arguments_that_were_fine_stay_as_they_were(kind, data):
    """From an accepted request with one argument broken: only what is refused changes."""
    x = data.draw(fine_views(WITH_WHOLE_BYTES, min_rank=1 if kind == "tiled" else 3))
    drawn = options_of(kind, len(x.shape))
    accepted = check(kind, x, data.draw(st.fixed_dictionaries(drawn))).fixed()
    name = data.draw(st.sampled_from(sorted(drawn)))
    broken = accepted | {name: data.draw(drawn[name])}
    report = check(kind, x, broken)
    fixed = report.fixed()
    changed = {argument for argument in fixed if fixed[argument] != broken[argument]}
    if "rules" in changed:
        return  # the last resort starts again under the driver's rules
    seen = set()
    while not report.ok:  # a repair may meet another rule, whose argument then changes too
        for violation in report.violations:
            seen |= {violation.argument} | ALSO_CHANGED.get(violation.rule, set())
        step = {argument: fixed[argument] for argument in seen if argument in fixed}
        if broken | step == broken:
            break
        broken = broken | step
        report = check(kind, x, broken)
    assert changed <= seen


@pytest.mark.parametrize(
    ("x", "broken", "change"),
    [
        (view((64, 64)), tiled((16, 3)), {"box_sizes": (16, 4)}),
        (view((64, 64)), tiled((16, 5)), {"box_sizes": (16, 4)}),
        (view((64, 64)), tiled((16, 7)), {"box_sizes": (16, 8)}),
        (view((512, 512)), tiled((16, 300)), {"box_sizes": (16, 256)}),
        (view((64, 64)), tiled((0, 16)), {"box_sizes": (1, 16)}),
        (view((64, 64)), tiled((65, 16)), {"box_sizes": (64, 16)}),
        (view((4, 64, 64)), tiled((16, 16)), {"box_sizes": (1, 16, 16)}),
        (view((64, 64)), tiled((1, 16, 16)), {"box_sizes": (16, 16)}),
        (view((64, 64)), tiled((16, 16), elem_strides=(9, 1)), {"elem_strides": (8, 1)}),
        (view((64, 64)), tiled((16, 16), elem_strides=(2,)), {"elem_strides": (1, 2)}),
        (view((64, 64)), tiled((16, 16), swizzle="bytes32"), {"swizzle": TmaSwizzle.bytes64}),
        (view((64, 64)), tiled((16, 64), swizzle="bytes64"), {"box_sizes": (16, 16)}),
        (view((64, 64)), tiled((16, 16), swizzle="byte128"), {"swizzle": "bytes128"}),
        (view((64, 64), (0, 32)), tiled((16, 16), oobfill="nan"), {"oobfill": TmaOobFill.none}),
        (view((64, 64), (0, 8)), tiled((16, 16)), {"data_type": tma.TensorMapDataType.UINT8}),
        (view((64, 64)), tiled((16, 16), data_type="FLOAT16"), {"data_type": None}),
        (view((64, 64)), tiled((16, 16), target="sm_80"), {"target": None}),
        (view((64, 64)), tiled((16, 16), target=Target((8, 0))), {"target": None}),
        (view((64, 64)), tiled((16, 16), rules="cuda"), {"rules": "libcu++"}),
        (view((64, 64)), tiled("ab"), {"box_sizes": (1, 4)}),
        (view((128, 64), (2, 16)), tiled((16, 64.0)), {"box_sizes": (16, 64)}),
        (view((128, 64), (2, 16)), tiled((16.0, 64)), {"box_sizes": (16, 64)}),
        (view((128, 64), (2, 16)), tiled([None, 64]), {"box_sizes": (1, 64)}),
        (view((128, 64), (2, 16)), tiled((10**30, 64)), {"box_sizes": (128, 64)}),
        (view((128, 64)), tiled((16, 16), elem_strides=(2.0, 1)), {"elem_strides": (2, 1)}),
        (
            view((8, 512), (1, 8), address=ADDRESS + 16),
            tiled((1, 128), data_type="16U4_ALIGN16B", target="sm_100"),
            {"data_type": tma.TensorMapDataType["16U4_ALIGN8B"]},
        ),
        (
            view((8, 512), (1, 8), address=ADDRESS + 16),
            tiled((1, 128), data_type="16U4_ALIGN16B", target="sm_90"),
            {"data_type": None},
        ),
        (
            view((8, 256, 64, 64), (1, 32)),
            tiled((8, 153, 32, 4), rules="driver"),
            {"box_sizes": (8, 57, 32, 4)},
        ),
        (
            view((8, 256, 64, 64), (1, 32)),
            tiled((8, 256, 32, 8), rules="driver", elem_strides=(1, 4, 1, 1)),
            {"box_sizes": (8, 115, 32, 8)},
        ),
        (view((8, 1024, 1024)), tiled((4, 64, 256)), {"box_sizes": (4, 56, 256)}),
        (
            view((64, 64)),
            tiled((16, 16), interleave_layout="bytes16"),
            {"interleave_layout": TmaInterleaveLayout.none},
        ),
        (
            view((4, 8, 64)),
            tiled((1, 8, 8), interleave_layout="bytes32"),
            {"swizzle": TmaSwizzle.bytes32},
        ),
        (
            view((4, 8, 68)),
            tiled((1, 8, 8), interleave_layout="bytes32", swizzle="bytes32"),
            {"interleave_layout": TmaInterleaveLayout.bytes16},
        ),
        (view((4, 4), strides=(4, 1)), tiled((1, 3)), {"box_sizes": (1, 4)}),
        (view((4, 3), strides=(4, 1)), tiled((1, 3)), {"rules": "driver", "box_sizes": (1, 4)}),
    ],
)
def test_the_smallest_change_of_a_tiled_request(x, broken, change):
    assert check("tiled", x, broken).fixed() == broken | change


@pytest.mark.parametrize(
    ("kind", "broken", "change"),
    [
        ("im2col", im2col((0,), (0, 0), 8, 8), {"pixel_box_lower_corner": (0, 0)}),
        ("im2col", im2col((0, 0), (-14, 0), 8, 8), {"pixel_box_upper_corner": (-13, 0)}),
        ("im2col", im2col((-129, 0), (0, 0), 8, 8), {"pixel_box_lower_corner": (-128, 0)}),
        ("im2col", im2col((0, 0), (0, 0), 9, 8), {"channels_per_pixel": 8}),
        ("im2col", im2col((0, 0), (0, 0), 300, 8), {"channels_per_pixel": 256}),
        ("im2col", im2col((0, 0), (0, 0), 64.0, 8), {"channels_per_pixel": 64}),
        ("im2col", im2col((0, 0), (0, 0), 8, 10**30), {"pixels_per_column": 1024}),
        ("im2col", im2col((-1.0, 0), (0, 0), 8, 8), {"pixel_box_lower_corner": (-1, 0)}),
        ("im2col", im2col((0, 0), (0, 0), 17, 8, swizzle="bytes32"), {"channels_per_pixel": 16}),
        ("im2col", im2col((0, 0), (0, 0), 256, 1024), {"pixels_per_column": 456}),
        ("im2col", im2col((0, 0), (0, 0), 8, 2000), {"pixels_per_column": 1024}),
        ("im2col_wide", wide(0, 0, 64, 8), {"rules": "driver"}),
        (
            "im2col_wide",
            wide(0, 0, 8, 8, swizzle="none", target="sm_100"),
            {"swizzle": TmaSwizzle.bytes128},
        ),
    ],
)  # fmt: skip
def test_the_smallest_change_of_an_im2col_request(kind, broken, change):
    x = view((2, 14, 14, 512), (2, 16))
    assert check(kind, x, broken).fixed() == broken | change


def test_channels_are_made_whole_before_the_swizzle_is_widened():
    x = view((2, 14, 14, 64), (1, 8))
    assert check("im2col", x, im2col((0, 0), (0, 0), 37, 8, swizzle="bytes32")).changes() == {
        "channels_per_pixel": 32
    }


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(KINDS, st.data())
def test_fixed_changes_nothing_that_could_stay(kind, data):
    x = data.draw(st.one_of(fine_views(), odd_views()))
    options = data.draw(st.fixed_dictionaries(options_of(kind, len(x.shape))))
    report = check(kind, x, options)
    for name in report.changes() or ():
        assert not check(kind, x, report.fixed() | {name: options[name]}).ok


@pytest.mark.parametrize(
    "x",
    [
        view((4, 1733)),
        view((64, 64), strides=(1, 64)),
        view((64, 64), address=ADDRESS + 4),
        view((0, 64)),
        view((1, 2, 3, 4, 5, 4)),
        view((64, 64), (5, 128)),
    ],
    ids=["ragged", "transposed", "misaligned", "empty", "rank 6", "complex128"],
)
def test_a_tensor_that_must_change_itself_has_no_fix_by_arguments(x):
    report = check("tiled", x, tiled((16,) * len(x.shape)))
    assert not report.ok
    assert report.fixed() is None


def test_what_was_refused_before_the_arguments_has_no_fix():
    assert tma.check_tma_descriptor("abc", (16, 3), swizzle="byte32").fixed() is None


# -- the report ------------------------------------------------------------------------------------


def test_a_report_reads_as_text():
    report = check("tiled", view((64, 64)), tiled((16, 3), elem_strides=(9, 1)))
    assert str(report).splitlines() == [
        "refused: 2 violations",
        "box_sizes[1] spans 12 bytes; it must be a multiple of 16 bytes when interleave_layout is "
        "none",
        "  fix: use a multiple of 4 elements (16 bytes); the nearest that fits is box_sizes="
        "(16, 4)",
        "  rule: BOX_INNER_16B (libcu++ make_tma_descriptor.h at 571f2fc3bc, __get_box_sizes; CUDA "
        "driver",
        "    API, cuTensorMapEncodeTiled)",
        "elem_strides[0] is 9; it must be 1..8",
        "  fix: use 1 to take every element; for larger steps, index the tensor: x[::n]",
        "  rule: ELEM_STRIDES_RANGE (libcu++ make_tma_descriptor.h at 571f2fc3bc, "
        "__get_elem_strides; CUDA",
        "    driver API, cuTensorMapEncodeTiled (libcu++ and document ignore the innermost unless",
        "    interleaved; the driver does not))",
    ]


def test_the_choices_of_an_argument_are_printed_within_100_columns():
    options = tiled((16, 16), data_type="?", swizzle="?", elem_strides="?")
    report = check("tiled", view((64, 64)), options)
    assert len(report.violations) == 3
    assert max(map(len, str(report).splitlines())) <= 100
    assert "16U6_ALIGN16B (15)" in str(report)


def test_a_report_is_true_exactly_when_accepted():
    accepted = check("tiled", view((64, 64)), tiled((16, 16), swizzle="bytes64"))
    assert accepted
    assert str(accepted).startswith("accepted")
    accepted.raise_if_refused()
    refused = check("tiled", view((64, 64)), tiled((16, 3)))
    assert not refused
    with pytest.raises(tma.TmaPreconditionError) as caught:
        refused.raise_if_refused()
    assert caught.value.violations == refused.violations
    assert not isinstance(caught.value, tma.TmaUnsupportedError)


def test_the_html_of_a_report_is_escaped():
    report = check("tiled", view((64, 64)), tiled((16, 16), swizzle="<i9>"))
    assert "<i9>" not in report._repr_html_()
    assert "&lt;i9&gt;" in report._repr_html_()


def test_a_report_does_not_follow_a_list_that_changes_later():
    box = [16, 3]
    report = check("tiled", view((64, 64)), tiled(box))
    box[:] = [1, 1, 1, 1]
    assert report.fixed()["box_sizes"] == (16, 4)


# -- advice ----------------------------------------------------------------------------------------


def advice_of(x, options, kind="tiled"):
    report = check(kind, x, options)
    assert report.ok, str(report)
    return [a.rule for a in report.advice]


def test_advice_of_neighbours():
    even = view((64, 64))
    ragged = view((64, 63), strides=(64, 1))
    assert advice_of(even, tiled((16, 32), swizzle="bytes128")) == []
    assert advice_of(ragged, tiled((16, 32), swizzle="bytes128")) == [
        "STORE_OVERRUN",
        "COORDINATE_STEP",
    ]
    assert advice_of(even, tiled((16, 32))) == ["BANK_CONFLICTS"]
    assert advice_of(even, tiled((1, 32))) == []
    assert advice_of(even, tiled((16, 16), swizzle="bytes128")) == ["SWIZZLE_PADDING"]
    padded = view((64, 64), strides=(128, 1))
    assert advice_of(padded, tiled((1, 16), target="sm_100")) == ["BIT_85"]
    assert advice_of(even, tiled((1, 16), target="sm_100")) == []
    assert advice_of(padded, tiled((1, 16), target=Target((10, 0), driver_version=13020))) == []


def test_a_dimension_over_2_31_comes_with_advice():
    options = tiled((1, 16), swizzle="bytes64")
    assert "DIM_OVER_2_31" in advice_of(view((1, (1 << 31) + 4)), options)
    assert "DIM_OVER_2_31" not in advice_of(view((1, 1 << 31)), options)


# -- nothing raises --------------------------------------------------------------------------------


class Hostile:
    """An object each of whose methods raises."""

    def _raise(self, *args, **kwargs):
        raise RuntimeError("no")

    __index__ = __int__ = __iter__ = __len__ = __getitem__ = __eq__ = __hash__ = _raise
    __repr__ = __str__ = __bool__ = __float__ = __format__ = _raise


class HostileText(str):
    def _raise(self, *args, **kwargs):
        raise RuntimeError("no")

    __eq__ = __hash__ = __repr__ = __str__ = __format__ = __iter__ = __len__ = _raise


class HostileInt(int):
    def _raise(self, *args, **kwargs):
        raise RuntimeError("no")

    __index__ = __eq__ = __hash__ = __repr__ = __str__ = __format__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _raise


class Classless:
    @property
    def __class__(self):
        raise RuntimeError("no")


class Endless:
    def __iter__(self):
        return itertools.count()


class AnyInteger:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self):
        return self.value


def garbage():
    """Values that no argument expects; made anew each time, because some can be used only once."""
    return {
        "none": None,
        "true": True,
        "float": 1.5,
        "nan": float("nan"),
        "complex": 1j,
        "text": "abc",
        "empty text": "",
        "bytes": b"\x10\x10",
        "hostile": Hostile(),
        "hostile entries": [Hostile(), Hostile()],
        "hostile text": HostileText("bytes128"),
        "hostile int": HostileInt(16),
        "hostile ints": (HostileInt(16), HostileInt(16)),
        "classless": Classless(),
        "a class": Hostile,
        "endless": Endless(),
        "generator": (n for n in (16, 16)),
        "exhausted": iter(()),
        "lists": [[16, 16], [16, 16]],
        "set": {16, 17},
        "mapping": {0: 16, 1: 16},
        "array": np.array([16, 16]),
        "2-d array": np.ones((2, 2), dtype=int),
        "float array": np.array([16.0, 16.0]),
        "bools": (True, False),
        "numpy bools": np.array([True, True]),
        "numpy bool": np.bool_(True),
        "huge": 10**5000,
        "huge ints": [10**5000, -(10**5000)],
        "65 bits": (1 << 64, 1 << 64),
        "lone surrogate": "\ud800",
        "long": [1] * 1000,
        "wrong __index__": AnyInteger("16"),
        "other enum": tma.TmaL2FetchSize.bytes128,
        "other enums": (tma.TmaSwizzle.bytes32, tma.TmaSwizzle.bytes32),
        "function": len,
        "target": Target((9, 0)),
        "ellipsis": ...,
        "recursive": _recursive(),
    }


def _recursive():
    inner: list[Any] = []
    inner.append(inner)
    return inner


CALLS = {
    "tiled": (tma.check_tma_descriptor, tma.make_tma_descriptor, tiled((16, 16))),
    "im2col": (
        tma.check_im2col_descriptor,
        tma.make_im2col_descriptor,
        im2col((0, 0), (0, 0), 8, 8),
    ),
    "im2col_wide": (
        tma.check_im2col_wide_descriptor,
        tma.make_im2col_wide_descriptor,
        wide(0, 0, 64, 8, target="sm_100"),
    ),
}
ARRAYS = {
    "tiled": np.zeros((64, 64), np.float32),
    "im2col": np.zeros((2, 14, 14, 64), np.float16),
    "im2col_wide": np.zeros((2, 14, 14, 64), np.float16),
}
PLACES = [(kind, argument) for kind, (_, _, fine) in CALLS.items() for argument in fine]


@pytest.mark.parametrize(("kind", "argument"), PLACES)
@pytest.mark.parametrize("name", sorted(garbage()))
def test_check_never_raises_and_make_raises_our_errors_only(kind, argument, name):
    check_call, make_call, fine = CALLS[kind]
    x = ARRAYS[kind]
    report = check_call(x, **fine | {argument: garbage()[name]})
    text = str(report) + report._repr_html_()
    assert text.startswith("accepted" if report.ok else "refused")
    fixed = report.fixed()
    assert fixed is not None
    assert check_call(x, **fixed).ok
    if report.ok:
        assert make_call(x, **fine | {argument: garbage()[name]}).tensor is x
    else:
        with pytest.raises(tma.TmaPreconditionError) as caught:
            make_call(x, **fine | {argument: garbage()[name]})
        assert [v.rule for v in caught.value.violations] == rules_of(report)
        assert str(caught.value)


@pytest.mark.parametrize("name", sorted(garbage()))
def test_no_garbage_as_tensor_raises_anything_else(name):
    for kind, (check_call, make_call, fine) in CALLS.items():
        report = check_call(garbage()[name], **fine)
        if report.ok or report.violations[0].argument != "tensor":
            assert name in ("array", "2-d array", "float array", "numpy bools"), kind
            continue
        assert report.fixed() is None
        assert all(isinstance(v, Violation) for v in report.violations)
        with pytest.raises(tma.TmaPreconditionError):
            make_call(garbage()[name], **fine)


MIRROR_ARGUMENTS = tuple(inspect.signature(tma.driver_encode_tiled).parameters)


@pytest.mark.parametrize("name", sorted(garbage()))
@pytest.mark.parametrize("argument", range(13))
def test_mirrors_raise_our_errors_only(argument, name):
    fine = ["FLOAT32", 2, ADDRESS, (64, 64), (256,), (16, 16), (1, 1), 0, 0, 0, 0, "sm_90", "model"]
    fine[argument] = garbage()[name]
    try:
        tm = tma.driver_encode_tiled(*fine[:11], target=fine[11], encoder=fine[12])
    except tma.TmaPreconditionError as error:
        assert all(v.argument in MIRROR_ARGUMENTS for v in error.violations)  # noqa: PT017
    else:
        assert len(bytes(tm)) == 128


@pytest.mark.parametrize(
    "box", [(16, True), (np.bool_(True), 16), (tma.TmaSwizzle.bytes32, 16), {16, 32}, (16.0, 16)]
)
def test_entries_that_are_no_plain_integers_are_refused(box):
    assert rules_of(tma.check_tma_descriptor(ARRAYS["tiled"], box)) == ["ARGUMENT"]


@pytest.mark.parametrize(
    "box",
    [[16, 32], np.array([16, 32]), (np.int64(16), np.uint8(32)), range(16, 33, 16), iter((16, 32))],
)
def test_any_ordered_sequence_of_integers_serves(box):
    tm = tma.make_tma_descriptor(ARRAYS["tiled"], box)
    assert tm.box_sizes == (16, 32)
    assert all(type(n) is int for n in tm.box_sizes)


def test_a_box_that_can_be_read_but_once_is_read_but_once():
    report = tma.check_tma_descriptor(ARRAYS["tiled"], iter((16, 3)))
    assert rules_of(report) == ["BOX_INNER_16B"]
    assert report.fixed()["box_sizes"] == (16, 4)


# -- targets ---------------------------------------------------------------------------------------


def test_what_the_target_lacks_is_both_kinds_of_error():
    for options in ({"swizzle": "bytes128_atom_32B"}, {"target": Target((8, 0))}):
        with pytest.raises(tma.TmaTargetError) as caught:
            tma.make_tma_descriptor(ARRAYS["tiled"], (16, 16), **options)
        assert isinstance(caught.value, tma.TmaPreconditionError)
        assert isinstance(caught.value, tma.TmaUnsupportedError)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("target", ["sm_100", "sm_103", "sm_120", Target((11, 0))])
@pytest.mark.parametrize("swizzle", [s for s in TmaSwizzle if s > TmaSwizzle.bytes128])
def test_atom_swizzles_are_of_sm_100_and_later(target, swizzle):
    options = tiled((16, 32), swizzle=swizzle)
    assert rules_of(check("tiled", view((64, 64)), options)) == ["ATOM_SWIZZLE"]
    assert check("tiled", view((64, 64)), options | {"target": target}).ok


def test_the_shared_memory_of_the_target_counts():
    x = view((1024, 1024))
    for target, rows in (
        ("sm_90", 227),
        ("sm_100", 227),
        ("sm_120", 99),
        (Target((9, 0), 4096), 4),
    ):
        assert check("tiled", x, tiled((rows, 256), target=target)).ok
        refused = check("tiled", x, tiled((rows + 1, 256), target=target))
        assert rules_of(refused) == ["BOX_SMEM"]
        assert refused.fixed()["box_sizes"] == (rows, 256)


def test_what_is_measured_on_sm_90_is_asked_there_alone():
    x = view((1024, 1024))
    for target, told in (("sm_90", ["BOX_BYTES"]), ("sm_100", []), (Target((9, 1)), [])):
        options = tiled((229, 256), rules="driver", target=target)
        assert rules_of(check("tiled", x, options)) == told
    column = im2col((0, 0), (0, 0), 9, 8)
    assert rules_of(check("im2col", IMAGES, column)) == ["CHANNELS_16B"]
    assert check("im2col", IMAGES, column | {"target": "sm_100"}).ok


@settings(max_examples=100)
@given(st.sampled_from(MAPPED_DTYPES), TARGETS)
def test_every_mapped_type_is_accepted_by_some_target(dtype, target):
    x = view((64, 256), dtype)
    options = tiled((1, 32 if dtype[1] < 8 else 16), target=target)
    refused = rules_of(check("tiled", x, options))
    packed = dtype[1] == 4 and (target is None or Target.of(target).is_sm_9x)
    assert refused == (["PACKED_TYPE"] if packed else [])
