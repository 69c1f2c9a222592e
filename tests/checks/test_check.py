"""`check`: libcu++'s order of rules, rules that depend on an earlier rule, and targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from strategies import (
    ADDRESS,
    LIFTED,
    MAPPED_DTYPES,
    check,
    im2col,
    requests,
    rules_of,
    tiled,
    view,
    wide,
)

import tma_dlpack as tma
from tma_dlpack.checks.fixes import faults_of
from tma_dlpack.checks.struct import RULE_SETS
from tma_dlpack.tables.dtypes import data_type_of
from tma_dlpack.tables.enums import DLDataTypeCode, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.tables.targets import Target

# -- the first violation is the one that libcu++ throws -------------------------------------------


def what_libcudacxx_throws(x, given, target) -> str | None:
    """Return the first check of make_tma_descriptor that fails; None if all pass.

    This oracle was written from the header's checks (NVIDIA/cccl 571f2fc3bc), independently of the
    package's table. x is row-major.
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
                continue  # a valid stride replaces this stride
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
    """Requests with libcu++'s options only; they are near the limits of accepted values."""
    x = draw(requests("tiled")).tensor
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


@examples(400)
@given(libcudacxx_requests())
def test_the_first_violation_is_the_one_that_libcudacxx_throws(request_):
    x, options, target = request_
    thrown = what_libcudacxx_throws(x, options, target)
    rules = rules_of(check("tiled", x, options))
    assert [r for r in rules if r not in DRIVER_ALONE][:1] == ([] if thrown is None else [thrown])
    first_of_driver = next((n for n, r in enumerate(rules) if r in DRIVER_ALONE), len(rules))
    assert all(r in DRIVER_ALONE for r in rules[first_of_driver:])


ALLOWED = ": the driver itself accepts this"

# -- what only libcu++ refuses -------------------------------------------------------------------


@examples(200)
@given(requests())
def test_rules_driver_is_offered_exactly_where_the_driver_then_accepts(drawn):
    _, kind, x, options = drawn
    options["rules"] = RULE_SETS[kind][0]
    if kind == "tiled" and options["elem_strides"]:  # libcu++ ignores the innermost element stride
        options["elem_strides"] = (*options["elem_strides"][:-1], 1)
    report = check(kind, x, options)
    offered = [v.fix.endswith(LIFTED) or ALLOWED in v.fix for v in report.violations]
    accepted = check(kind, x, options | {"rules": "driver"}).ok
    allowed = tuple(v.rule for v in report.violations if ALLOWED in v.fix)
    if allowed:  # for other targets than sm_90, the documentation is the source of the im2col rules
        accepted = accepted or check(kind, x, options | {"allow": allowed}).ok
    if "WIDE_CAPABILITY" in rules_of(report):  # no instruction can use such a map
        accepted = False
    assert offered == [accepted] * len(report.violations)
    if accepted and not report.ok and "pass allow=" in report.violations[0].fix:
        allow = {v.fix.partition("pass allow=")[2].partition(":")[0] for v in report.violations}
        assert check(kind, x, options | {"allow": eval(allow.pop())}).ok
        assert not allow


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
    assert f"pass allow=({rule!r},){ALLOWED}" in report.violations[0].fix
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


def test_strides_of_a_transposed_tensor_are_reported_once():
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
    ("kind", "x", "options", "reported"),
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
def test_followers_of_a_fault_are_not_reported(kind, x, options, reported):
    assert rules_of(check(kind, x, options)) == reported


READABLE = {
    "swizzle": list(TmaSwizzle),
    "interleave_layout": list(TmaInterleaveLayout),
    "oobfill": list(TmaOobFill),
    "target": ["sm_90", "sm_100", "sm_120", Target((9, 0), 1 << 20)],
}


@examples(300)
@given(requests(), st.sampled_from(sorted(READABLE)))
def test_what_is_reported_beside_an_unreadable_argument_holds_whatever_it_was(drawn, argument):
    _, kind, x, options = drawn
    reported = rules_of(check(kind, x, options | {argument: "?"}))
    for value in READABLE[argument]:
        report = check(kind, x, options | {argument: value})
        faults = faults_of(report._request_of(report._given))
        rules = [v.rule for v in report.violations] + [f.rule.id for f in faults]
        assert set(reported) - {"ARGUMENT"} <= set(rules)


def test_the_innermost_elem_stride_of_a_column_is_not_reported_beside_an_unreadable_target():
    options = im2col((0, 0), (0, 0), 8, 8, rules="driver", elem_strides=(1, 1, 1, 15))
    assert rules_of(check("im2col", IMAGES, options)) == ["ELEM_STRIDES_RANGE"]
    assert rules_of(check("im2col", IMAGES, options | {"target": "?"})) == ["ARGUMENT"]
    assert check("im2col", IMAGES, options | {"target": "sm_100"}).ok


def test_nothing_is_said_of_the_bytes_of_a_box_whose_type_is_refused():
    x = view((64, 64))
    assert rules_of(check("tiled", x, tiled((300, 3), data_type="FLOAT64"))) == [
        "DATA_TYPE_OVERRIDE",
        "BOX_RANGE",
    ]
    odd = view((64, 64), (2, 128))
    assert rules_of(check("tiled", odd, tiled((64, 300), swizzle="bytes32"))) == [
        "DTYPE",
        "BOX_RANGE",
    ]
    assert rules_of(check("tiled", odd, tiled((64, 64), swizzle="bytes32"))) == ["DTYPE"]


# -- targets ---------------------------------------------------------------------------------------


def test_what_the_target_lacks_is_both_kinds_of_error():
    for options in ({"swizzle": "bytes128_atom_32B"}, {"target": Target((8, 0))}):
        with pytest.raises(tma.TmaTargetError) as caught:
            tma.make_tma_descriptor(np.zeros((64, 64), np.float32), (16, 16), **options)
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
        power_of_two = 1 << rows.bit_length() - 1
        assert refused.fixed()["box_sizes"] == (power_of_two, 256)


def test_what_is_measured_on_sm_90_is_asked_there_alone():
    x = view((1024, 1024))
    for target, reported in (("sm_90", ["BOX_BYTES"]), ("sm_100", []), (Target((9, 1)), [])):
        options = tiled((229, 256), rules="driver", target=target)
        assert rules_of(check("tiled", x, options)) == reported
    column = im2col((0, 0), (0, 0), 9, 8)
    assert rules_of(check("im2col", IMAGES, column)) == ["CHANNELS_16B"]
    assert check("im2col", IMAGES, column | {"target": "sm_100"}).ok


@examples(100)
@given(st.sampled_from(MAPPED_DTYPES), st.sampled_from((None, "sm_90", "sm_100", "sm_120")))
def test_every_mapped_type_is_accepted_by_some_target(dtype, target):
    x = view((64, 256), dtype)
    options = tiled((1, 32 if dtype[1] < 8 else 16), target=target)
    refused = rules_of(check("tiled", x, options))
    packed = dtype[1] == 4 and (target is None or Target.of(target).is_sm_9x)
    assert refused == (["PACKED_TYPE"] if packed else [])


def test_the_rank_is_reported_after_the_device_as_in_the_overload_with_element_strides():
    options = tiled((1,) * 6, swizzle="bytes128_atom_32B")
    for elem_strides in (None, (1,) * 6):
        report = check("tiled", view((1,) * 6), options | {"elem_strides": elem_strides})
        assert rules_of(report) == ["ATOM_SWIZZLE", "RANK"]
    assert "overload without element strides checks the rank before the device" in " ".join(
        tma.TmaPreconditionError.__doc__.split()
    )
