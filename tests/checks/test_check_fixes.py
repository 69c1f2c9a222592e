"""The fixes of a refusal: sentences, and arguments that are accepted."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import examples
from strategies import ADDRESS, check, im2col, requests, rules_of, tiled, view, wide

import tma_dlpack as tma
from tma_dlpack.checks import RULES
from tma_dlpack.checks import report as reports
from tma_dlpack.checks.fixes import faults_of
from tma_dlpack.tables.dtypes import DATA_TYPES, data_type_of
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.tables.targets import Target

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
    assume(shape[-1] * x.itemsize >= 16)  # a narrower row is too small for every box
    box = [1] * (len(shape) - 1) + [16 // x.itemsize]
    place = place % len(shape)
    box[place] = entry
    report = tma.check_tma_descriptor(x, box, swizzle=swizzle)
    assume([v.rule for v in report.violations] in (["BOX_RANGE"], ["BOX_IN_SHAPE"]))
    (violation,) = report.violations
    box[place] = int(re.search(r"use (?:at least )?(\d+)", violation.fix)[1])
    if entry > 256 or violation.rule == "BOX_RANGE":
        assert f"{box[place]} instead of {entry} " in violation.fix or entry < 1
    assert tma.check_tma_descriptor(x, box, swizzle=swizzle).ok


# -- what a fix says -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer", "fix"),
    [
        ("torch.Tensor", "y = x.new_empty((4, 1736))[..., :1733]; y.copy_(x)"),
        ("torch.nn.parameter.Parameter", "y = x.new_empty((4, 1736))[..., :1733]; y.copy_(x)"),
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int64"])
def test_what_the_fix_of_a_ragged_torch_tensor_says_works_under_its_own_name(dtype):
    torch = pytest.importorskip("torch")
    weights = torch.arange(4 * 1733).reshape(4, 1733).to(getattr(torch, dtype))
    fix = tma.check_tma_descriptor(weights, (4, 64)).violations[0].fix
    code = fix.partition(": ")[2]
    assert code.endswith("y.copy_(weights)")
    names = {"weights": weights}
    exec(code, names)
    assert (names["y"].dtype, names["y"].device) == (weights.dtype, weights.device)
    assert torch.equal(names["y"].view(torch.uint8), weights.view(torch.uint8))
    assert tma.check_tma_descriptor(names["y"], (4, 64)).ok
    assert isinstance(tma.make_tma_descriptor(names["y"], (4, 64)), tma.TensorMap)


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
            "dimension 0 is the contiguous one: pass x.permute(1, 0) with box_sizes=(16, 8); or "
            "copy it: x = x.contiguous()",
        ),
        (
            view((64, 32), strides=(1, 64), producer="numpy.ndarray"),
            "dimension 0 is the contiguous one: pass x.transpose(1, 0) with box_sizes=(16, 8); or "
            "copy it: x = numpy.ascontiguousarray(x)",
        ),
        (
            view((64, 32), strides=(64, 2)),
            "elem_strides cannot step the last dimension; copy it: x = x.contiguous()",
        ),
    ],
)
def test_a_last_dimension_that_is_not_contiguous_is_explained(x, fix):
    assert check("tiled", x, tiled((8, 16))).violations[0].fix == fix


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
    assert violation.fix.startswith("use interleave_layout='bytes16'; or start the view at ")
    names = {"numpy": np, "x": x}
    exec(violation.fix.partition("copy it to a multiple of 32 bytes: ")[2], names)
    assert np.array_equal(names["y"], x)
    assert tma.check_tma_descriptor(names["y"], (1, 8, 8), **options).ok


def test_a_bounding_box_that_only_wraps_is_reported_as_such():
    x = view((1, 1, 1 << 31, 64), (2, 16))
    (violation,) = check("im2col", x, im2col((0, 0), (0, 0), 8, 8)).violations
    assert violation.rule == "BOUNDING_BOX"
    assert "adds in 32-bit integers: size + upper must be below 2^31" in violation.limit
    assert violation.fix == "make one map per part: x[:, :, :2**30], x[:, :, 2**30:2**31] and so on"
    assert check("im2col", x, im2col((0, 0), (0, -1), 8, 8)).ok
    (violation,) = check(
        "im2col", view((2, 14, 14, 64), (2, 16)), im2col((0, 0), (0, -14), 8, 8)
    ).violations
    assert violation.fix == (
        "use a kernel no larger than the padded image: tma.im2col_corners(kernel_size, padding, "
        "dilation) gives both corners; the nearest that fit are pixel_box_upper_corner=(0, -13)"
    )


@pytest.mark.parametrize(
    ("kind", "x", "options", "rule", "fix"),
    [
        (
            "tiled", view((64, 64)), tiled((16,)), "BOX_RANK",
            "pass 2 entries, row-major, such as box_sizes=(1, 16)",
        ),
        (
            "tiled", view((64, 64)), tiled((16, 16), elem_strides=(0, 1)), "ELEM_STRIDES_RANGE",
            "use 1 to take every element",
        ),
        (
            "tiled", view((4, 72, 64)), tiled((1, 16, 16), elem_strides=(1, 12, 1)),
            "ELEM_STRIDES_RANGE",
            "use 8, the largest step; or step the tensor itself: pass x[:, ::12] with box_sizes="
            "(1, 2, 16) and elem_strides=(1, 1, 1)",
        ),
        (  # libcu++ considers rows of 12 x 6 elements in 64 as overlapping
            "tiled", view((4, 64, 64)), tiled((1, 16, 16), elem_strides=(1, 12, 1)),
            "ELEM_STRIDES_RANGE",
            "use 8, the largest step",
        ),
        (
            "tiled", view((4, 2, 64), strides=(1 << 39, 64, 1)), tiled((1, 1, 16)),
            "STRIDE_RANGE",
            "make one map for each index n of dimension 0, of x[n:n+1] with box_sizes=(1, 1, 16)",
        ),
        (
            "im2col", view((2, 14, 14, 64), (2, 16)), im2col((0,), (0, 0), 8, 8),
            "LOWER_CORNER_COUNT",
            "pass 2 entries, in the order HW: tma.make_conv_descriptor(x, kernel_size, ...) works "
            "out both corners, and so does tma.im2col_corners for a kernel_size of 2 entries",
        ),
        (
            "im2col", view((2, 14, 14, 64), (2, 16)), im2col((-129, 0), (0, 0), 8, 8),
            "LOWER_CORNER",
            "use -128, the nearest that fits, or a convolution with a smaller padding",
        ),
    ],
)  # fmt: skip
def test_a_fix_names_what_to_pass(kind, x, options, rule, fix):
    violation = check(kind, x, options).violations[0]
    assert (violation.rule, violation.fix) == (rule, fix)


def test_a_lone_uint4_is_reported_how_many_lanes_it_takes():
    (violation, *_) = check("tiled", view((64, 64), (1, 4)), tiled((1, 32))).violations
    assert violation.rule == "DTYPE"
    assert violation.limit.endswith("or 4-bit values of 16 lanes (or float4_e2m1fn)")


def test_strides_of_extent_one_are_not_looked_at():
    for strides in ((7, 3, 1), (0, 1 << 50, 1), (1, 1, 1)):
        assert check("tiled", view((1, 1, 64), strides=strides), tiled((1, 1, 16))).ok
    wide_units = tiled((1, 1, 8), interleave_layout="bytes32", swizzle="bytes32")
    x = view((1, 1, 12), strides=(12, 12, 1))  # 48 bytes, a stride that no access uses
    assert check("tiled", x, wide_units).ok


@pytest.mark.parametrize(
    ("strides", "fix"),
    [
        (
            (64, 512, 1),
            "; or order the dimensions by stride: pass x.permute(1, 0, 2) with box_sizes=(1, 1, 16)"
            "; or copy it: x = x.contiguous()",
        ),
        ((64, 64, 1), "; or copy it: x = x.contiguous()"),  # every order overlaps
        ((32, 64, 1), "; or copy it: x = x.contiguous()"),
    ],
)
def test_an_order_of_dimensions_is_proposed_only_if_it_is_accepted(strides, fix):
    x = view((8, 4, 64), strides=strides)
    violation = check("tiled", x, tiled((1, 1, 16))).violations[0]
    assert violation.rule == "STRIDE_UNIQUE"
    allow = "pass allow=('STRIDE_UNIQUE',): the driver itself accepts this"
    assert violation.fix == f"{allow} and copies the elements at these strides{fix}"
    if "permute" in fix:
        ordered = view((4, 8, 64), strides=(512, 64, 1))
        assert check("tiled", ordered, tiled((1, 1, 16))).ok


@pytest.mark.parametrize(
    ("dtype", "columns", "swizzle"),
    [("float16", 128, "bytes128"), ("float32", 32, "bytes64"), ("uint8", 256, "bytes128")],
)
def test_a_row_wider_than_the_span_is_proposed_to_be_split(dtype, columns, swizzle):
    x = np.arange(64 * 256).reshape(64, 256).astype(dtype)
    report = tma.check_tma_descriptor(x, (16, columns), swizzle=swizzle)
    (violation,) = report.violations
    assert violation.rule == "BOX_SWIZZLE_SPAN"
    assert "pass split_inner=True, to copy it at once; or narrow it to " in violation.fix
    tm = tma.make_tma_descriptor(x, (16, columns), swizzle=swizzle, split_inner=True)
    assert tm.tx_bytes == 16 * columns * x.itemsize
    tile = tma.load_tile(tm, (0, 0, 0)).array  # (columns of spans, rows, span)
    assert np.array_equal(np.concatenate(list(tile), axis=1), x[:16, :columns])
    wider = {"bytes64": "bytes128"}.get(swizzle)  # 128 bytes are enough for 32 float32 values
    assert report.changes() == ({"swizzle": 3} if wider else {"split_inner": True})


@pytest.mark.parametrize(
    ("shape", "columns"), [((64, 200), 128), ((64, 256), 96), ((2, 2, 2, 64, 256), 128)]
)
def test_what_cannot_be_split_evenly_is_not_proposed(shape, columns):
    box = (1,) * (len(shape) - 1) + (columns,)
    (violation,) = check("tiled", view(shape, (2, 16)), tiled(box, swizzle="bytes128")).violations
    assert violation.rule == "BOX_SWIZZLE_SPAN"
    entries = math.prod(box[:-1])
    assert violation.fix == (
        "narrow it to 64 elements (128 bytes) and copy in several steps (copies 64 instead of "
        f"{columns} columns: the kernel must expect {128 * entries} bytes); or use swizzle='none'"
    )


@pytest.mark.parametrize(
    ("dtype", "columns", "hint"),
    [
        ((1, 8), 512, "; or pass x.view(torch.int32) with box_sizes=(1, 128)"),
        ((1, 8), 2048, "; or pass x.view(torch.int64) with box_sizes=(1, 256)"),
        ((2, 16), 1024, "; or pass x.view(torch.int64) with box_sizes=(1, 256)"),
        ((2, 32), 512, "; or pass x.view(torch.int64) with box_sizes=(1, 256)"),
        ((1, 8), 4096, ""),  # there is no dtype of this width
        ((1, 8), 300, ""),  # not a multiple of 16 bytes
        ((0, 64), 512, ""),
    ],
)
def test_a_row_that_a_wider_dtype_would_fit_is_proposed_as_a_view(dtype, columns, hint):
    x = view((64, 4096), dtype)
    violation = check("tiled", x, tiled((1, columns), target=Target((9, 0), 1 << 20))).violations[0]
    tile_bytes = 256 * DATA_TYPES[data_type_of(x.dtype)].element_bits // 8
    unit = 128 // DATA_TYPES[data_type_of(x.dtype)].element_bits
    split = "pass split_inner=True, to copy it at once as columns of 16 bytes; or "
    assert violation.fix == (
        f"{'' if columns % unit else split}"
        f"use 256, and several copies for a larger tile (copies 256 instead of {columns} columns: "
        f"the kernel must expect {tile_bytes} bytes){hint}"
    )


def test_what_the_hint_of_a_wider_dtype_says_works():
    torch = pytest.importorskip("torch")
    x = torch.zeros(64, 4096, dtype=torch.uint8)
    (violation,) = tma.check_tma_descriptor(x, (8, 512)).violations
    code, _, box = violation.fix.partition("or pass ")[2].partition(" with box_sizes=")
    assert tma.make_tma_descriptor(eval(code), eval(box)).tx_bytes == 8 * 512


#: Arguments of tiled maps for which no value is drawn, with their defaults.
ALSO_GIVEN = {"allow": (), "split_inner": False}

# -- fixed -----------------------------------------------------------------------------------------


@examples(300)
@given(requests())
def test_what_fixed_returns_is_accepted_always(drawn):
    _, kind, x, options = drawn
    report = check(kind, x, options)
    fixed = report.fixed()
    assert report.ok <= (fixed == options)
    if fixed is not None:
        assert set(fixed) - set(options) <= set(ALSO_GIVEN)
        assert check(kind, x, fixed).violations == ()


def plain_request(kind, x):
    """The simplest request. If it is refused, no map can describe the tensor."""
    unit = max(1, 128 // DATA_TYPES[data_type_of(x.dtype)].element_bits)
    spatial = (0,) * (len(x.shape) - 2)
    if kind == "tiled":
        return tiled((*(1,) * (len(x.shape) - 1), unit), rules="driver", target="sm_100")
    if kind == "im2col":
        return im2col(spatial, spatial, unit, 1, rules="driver", target="sm_100")
    return wide(0, 0, unit, 1, target="sm_100")


def can_be_described(kind, x):
    """Return whether a map can describe the tensor as it is.

    False for a single 4-bit value, whose bytes no other type can describe, and for images of about
    2^31 pixels along a dimension, which need one map per part.
    """
    if data_type_of(x.dtype) is None or x.dtype == (17, 4, 1):
        return False
    if kind != "tiled" and max(x.shape, default=0) >= 1 << 30:
        return False
    return check(kind, x, plain_request(kind, x)).ok


@examples(300)
@given(requests())
def test_fixed_finds_a_way_whenever_the_tensor_can_be_described(drawn):
    """If `fixed` returns None for a describable tensor, only arguments that it keeps are wrong.

    Arguments whose meaning is unclear are not replaced. Corners are not replaced by the corners of
    another convolution. No entry of a box is dropped. A tile may become smaller only if a violation
    is about the tile.
    """
    _, kind, x, options = drawn
    assume(can_be_described(kind, x))
    report = check(kind, x, options)
    unclear = {"ARGUMENT", "BOX_RANK", "LOWER_CORNER_COUNT", "UPPER_CORNER_COUNT"}
    fixed = report.fixed()
    if fixed is None:
        of_box = {v.argument for v in report.violations} & {"box_sizes", "channels_per_pixel"}
        assert unclear.intersection(rules_of(report)) or not of_box


ROWS = {rule.id: rule for rule in RULES}
#: Arguments that change together: the type, and the box, whose unit depends on the type.
_TYPE = {"data_type", "box_sizes", "channels_per_pixel"}
_ORDER = {
    "shape",
    "strides",
    "box_sizes",
    "elem_strides",
}  # these change if the dimensions are permuted


def named(kind, rule):
    """Return the names of the arguments that the fixes of a rule change, for a kind of map."""
    wide = {f"pixel_box_{which}_corner": f"{which}_corner_width" for which in ("lower", "upper")}
    others = {"tiled": {}, "im2col": {"box_sizes": "channels_per_pixel"}}
    others["im2col_wide"] = others["im2col"] | wide
    mended = {others[kind].get(name, name) for name in rule.mended_by}
    return mended | (_TYPE if "data_type" in mended else set())


@examples(400, rare=True)
@given(requests())
def test_the_candidates_of_a_rule_change_the_arguments_that_it_names(drawn):
    _, kind, x, options = drawn
    report = check(kind, x, options)
    assume(report._request_of is not None)
    request = report._request_of(report._given).with_fields(keeps_tensor=True)
    for fault in faults_of(request):
        changed = set()
        for alternative in fault.alternatives(request):
            for candidate in alternative:
                if not (candidate.is_other_tensor or candidate.is_guess):
                    changed |= candidate.change.keys()
        assert changed <= named(kind, fault.rule), fault.rule.id


#: A fix may break these rules, and then fix them with another argument.
ALSO_BROKEN = {rule: {"interleave_layout"} for rule in ("WIDE_SWIZZLE", "PACKED_SWIZZLE")}


@examples(200, rare=True)
@given(requests(), st.data())
def test_arguments_that_were_fine_stay_as_they_were(drawn, data):
    """Break one argument of an accepted request; the fix changes only the refused argument."""
    _, kind, x, options = drawn
    assume(can_be_described(kind, x))
    accepted = check(kind, x, options).fixed()
    assume(accepted is not None)  # a word that has no meaning
    other = data.draw(requests(kind)).options
    name = data.draw(st.sampled_from(sorted(other)))
    broken = accepted | {name: other[name]}
    report = check(kind, x, broken)
    fixed = report.fixed()
    assume(fixed is not None)
    changed = set(report.changes())
    if "rules" in changed:
        return  # as a last resort, the search starts again with the driver's rules
    seen = set()
    while not report.ok:  # a fix may break another rule, whose argument then changes too
        for violation in report.violations:
            seen |= {violation.argument} | ALSO_BROKEN.get(violation.rule, set())
            seen |= named(kind, ROWS[violation.rule]) if violation.rule in ROWS else set()
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
        (view((512, 512)), tiled((16, 300)), {"split_inner": True}),
        (view((512, 512)), tiled((16, 301)), {"box_sizes": (16, 256)}),
        (view((64, 64)), tiled((0, 16)), {"box_sizes": (1, 16)}),
        (view((64, 64)), tiled((65, 16)), {"allow": ("BOX_IN_SHAPE",)}),
        (view((4, 64, 64)), tiled((16, 16)), {"box_sizes": (1, 16, 16)}),
        (view((64, 64)), tiled((1, 16, 16)), {"box_sizes": (16, 16)}),
        (view((64, 64)), tiled((16, 16), elem_strides=(9, 1)), {"elem_strides": (8, 1)}),
        (view((64, 64)), tiled((16, 16), elem_strides=(2,)), {"elem_strides": (1, 2)}),
        (view((64, 64)), tiled((16, 16), swizzle="bytes32"), {"swizzle": TmaSwizzle.bytes64}),
        (view((64, 64)), tiled((16, 64), swizzle="bytes64"), {"split_inner": True}),
        (
            view((64, 65), strides=(68, 1)),
            tiled((16, 64), swizzle="bytes64"),
            {"box_sizes": (16, 16)},
        ),
        (view((64, 64)), tiled((16, 16), swizzle="byte128"), {"swizzle": "bytes128"}),
        (view((64, 64), (0, 32)), tiled((16, 16), oobfill="nan"), {"oobfill": TmaOobFill.none}),
        (view((64, 64), (0, 8)), tiled((16, 16)), {"data_type": tma.TensorMapDataType.UINT8}),
        (view((64, 64)), tiled((16, 16), data_type="FLOAT16"), {"data_type": None}),
        (view((64, 64)), tiled((16, 16), target="SM90"), {"target": "sm_90"}),
        (view((64, 64)), tiled((16, 16), target=Target((8, 0))), {"target": "sm_90"}),
        (view((64, 64)), tiled((16, 16), rules="Driver"), {"rules": "driver"}),
        (view((64, 64)), tiled("64,64"), {"box_sizes": (64, 64)}),
        (view((128, 64), (2, 16)), tiled((16, 64.0)), {"box_sizes": (16, 64)}),
        (view((128, 64), (2, 16)), tiled((16.0, 64)), {"box_sizes": (16, 64)}),
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
            {"data_type": None, "box_sizes": (1, 64)},  # bytes
        ),
        (
            view((8, 256, 64, 64), (1, 32)),
            tiled((8, 153, 32, 4), rules="driver"),
            {"box_sizes": (8, 32, 32, 4)},
        ),
        (
            view((8, 256, 64, 64), (1, 32)),
            tiled((8, 256, 32, 8), rules="driver", elem_strides=(1, 4, 1, 1)),
            {"box_sizes": (8, 64, 32, 8)},
        ),
        (view((8, 1024, 1024)), tiled((4, 64, 256)), {"box_sizes": (4, 32, 256)}),
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
        (
            view((4, 3), strides=(4, 1)),
            tiled((1, 3)),
            {"allow": ("BOX_IN_SHAPE",), "box_sizes": (1, 4)},
        ),
    ],
)
def test_the_smallest_change_of_a_tiled_request(x, broken, change):
    assert check("tiled", x, broken).fixed() == broken | change


@pytest.mark.parametrize(
    ("kind", "broken", "change"),
    [
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
        ("im2col_wide", wide(0, 0, 64, 8), {"target": "sm_100"}),
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


@pytest.mark.parametrize(
    ("lower", "upper"), [((0,), (0, 0)), ((0, 0), (-1,)), ((0, 0, 0), (0, 0, 0))]
)
def test_corners_of_another_number_are_replaced_by_no_other_convolution(lower, upper):
    x = view((2, 14, 14, 512), (2, 16))
    report = check("im2col", x, im2col(lower, upper, 8, 8))
    assert {rule.partition("_")[2] for rule in rules_of(report)} == {"CORNER_COUNT"}
    assert report.fixed() is None


def test_a_swizzle_that_two_rules_disagree_on_takes_another_layout():
    x = view((2, 14, 14, 64), (2, 32))
    options = {"interleave_layout": "bytes32", "swizzle": "bytes32", "target": "sm_100"}
    report = check("im2col_wide", x, wide(0, 0, 32, 8, **options))
    assert rules_of(report) == ["WIDE_SWIZZLE"]
    assert report.changes() == {
        "swizzle": TmaSwizzle.bytes128, "interleave_layout": TmaInterleaveLayout.bytes16
    }  # fmt: skip
    assert report.violations[0].fix == (
        "use swizzle='bytes128', and use interleave_layout='bytes16'"
    )


def test_overlapping_pixels_are_allowed_in_im2col_maps_too():
    x = view((2, 14, 14, 64), (2, 16), strides=(64, 896, 64, 1))
    report = check("im2col", x, im2col((0, 0), (0, 0), 64, 8, allow=()))
    assert rules_of(report) == ["STRIDE_UNIQUE"]
    assert report.changes() == {"allow": ("STRIDE_UNIQUE",)}


def test_where_a_split_leads_nowhere_the_tile_becomes_smaller():
    x = view((31, 7, 5), (0, 64), strides=(44, 6, 1))
    given = tiled((100, 256, 257), swizzle="bytes128", data_type="FLOAT64")
    assert check("tiled", x, given).changes() == {
        "allow": ("BOX_IN_SHAPE",),
        "box_sizes": (100, 16, 16),
    }


def test_channels_are_made_whole_before_the_swizzle_is_widened():
    x = view((2, 14, 14, 64), (1, 8))
    assert check("im2col", x, im2col((0, 0), (0, 0), 37, 8, swizzle="bytes32")).changes() == {
        "channels_per_pixel": 32
    }


@examples(200)
@given(requests())
def test_fixed_changes_nothing_that_could_stay(drawn):
    _, kind, x, options = drawn
    report = check(kind, x, options)
    changed = set(report.changes() or ())
    units = changed & _TYPE if "data_type" in changed else set()  # both change together
    units |= changed & _ORDER if "strides" in changed - set(options) else set()
    for names in [{name} for name in changed - units] + [units] * bool(units):
        was = {name: (ALSO_GIVEN | options)[name] for name in names}
        assert not check(kind, x, report.fixed() | was).ok


@pytest.mark.parametrize(
    "x",
    [
        view((4, 1733)),
        view((64, 64), address=ADDRESS + 4),
        view((0, 64)),
        view((1, 2, 3, 4, 5, 4)),
        view((64, 64), (5, 128)),
    ],
    ids=["ragged", "misaligned", "empty", "rank 6", "complex128"],
)
def test_a_tensor_that_must_change_itself_has_no_fix_by_arguments(x):
    report = check("tiled", x, tiled((16,) * len(x.shape)))
    assert not report.ok
    assert report.fixed() is None


def test_what_was_refused_before_the_arguments_has_no_fix():
    assert tma.check_tma_descriptor("abc", (16, 3), swizzle="byte32").fixed() is None


def test_accepted_arguments_are_those_of_fixed():
    x = np.zeros((64, 64), np.float32)
    report = tma.check_tma_descriptor(x, (16, 3))
    assert report.accepted_arguments() == report.fixed()
    assert tma.make_tma_descriptor(x, **report.accepted_arguments()).box_sizes == (16, 4)


def test_accepted_arguments_raise_the_refusal_where_the_tensor_must_change():
    report = tma.check_tma_descriptor(np.zeros((64, 63), np.float32), (16, 32))
    with pytest.raises(tma.TmaPreconditionError) as caught:
        report.accepted_arguments()
    assert caught.value.violations == report.violations
    assert report.fixed() is None


def test_accepted_arguments_need_a_report_of_a_check():
    with pytest.raises(tma.TmaUnsupportedError, match="not made by a check"):
        tma.Report(()).accepted_arguments()


def test_a_fault_that_another_order_of_dimensions_only_moves_is_reported():
    x = np.lib.stride_tricks.as_strided(np.zeros(1 << 14), (128, 128), (8, 1024))
    report = tma.check_tma_descriptor(x, (16, 2), elem_strides=(0, 1), rules="driver")
    assert rules_of(report) == ["STRIDE_INNERMOST", "ELEM_STRIDES_RANGE"]


@pytest.mark.parametrize(
    ("ragged", "fix"),
    [
        (0, "pass x.reshape((50, 21, 64)) with box_sizes=(16, 21, 64) and ragged=0"),
        (1, "such as x[0] with box_sizes=(3, 7, 64) and ragged=0"),
        (2, "pass x.reshape((150, 7, 64)) with box_sizes=(48, 7, 64) and ragged=1"),
        (-2, "pass x.reshape((150, 7, 64)) with box_sizes=(48, 7, 64) and ragged=1"),
    ],
)
def test_merging_and_indexing_keep_the_ragged_dimension(ragged, fix):
    report = _ragged_check(np.zeros((50, 3, 7, 64), np.float16), ragged)
    (violation,) = report.violations
    assert violation.rule == "RAGGED_RANK"
    assert violation.fix.partition("; or ")[0].endswith(fix)


def test_a_slice_is_not_of_the_ragged_dimension():
    x = np.zeros((50, 4, 8, 128), np.float16)[:, :3, :7, :64]  # cannot be merged
    (violation,) = _ragged_check(x, 0).violations
    assert violation.fix == (
        "make one map per slice, such as x[:, 0] with box_sizes=(16, 7, 64) and ragged=0"
    )


def _ragged_check(x, ragged):
    return tma.check_tma_descriptor(x, (16, 3, 7, 64), swizzle="bytes128", ragged=ragged)


@pytest.mark.parametrize(
    ("x", "options", "change"),
    [
        (view((8, 128), (1, 8)), {"data_type": "16U4_ALIGN8B"}, {"data_type": None, "inner": 32}),
        (view((8, 96), (1, 8)), {"data_type": "16U6_ALIGN16B"}, {"data_type": None, "inner": 48}),
        (view((8, 64), (1, 4, 16)), {}, {"data_type": TensorMapDataType.UINT64, "inner": 4}),
    ],
    ids=["4-bit values in bytes", "6-bit values in bytes", "16 values of 4 bits"],
)
def test_a_box_of_packed_values_is_of_as_many_bytes_as_another_type(x, options, change):
    report = check("tiled", x, tiled((8, 64), **options))
    expected = {**change, "box_sizes": (8, change["inner"])}
    del expected["inner"]
    assert report.changes() == expected
    assert f"box_sizes={expected['box_sizes']}" in report.violations[0].fix


def test_a_row_without_a_fix_of_its_own_says_so_where_no_way_is_accepted(monkeypatch):
    monkeypatch.setattr(reports, "answers", lambda request, fault, known: [])
    (violation,) = tma.check_tma_descriptor(np.zeros((64, 64), np.float16), (300, 8)).violations
    assert violation.rule == "BOX_RANGE"
    assert violation.fix == "no other box_sizes is accepted while the rest stays the same"


@pytest.mark.parametrize("shape", [(5, 0), (5, 0, 7), (0, 7)])
def test_an_empty_tensor_has_no_stride_to_mend(shape):
    report = tma.check_tma_descriptor(np.zeros(shape, np.float32), (1,) * (len(shape) - 1) + (4,))
    assert rules_of(report) == ["DIM_RANGE"]
    assert report.violations[0].fix == "an empty tensor has nothing to copy: skip it"


def test_the_drivers_call_for_another_target_is_judged_by_no_rule_of_libcudacxx():
    box = (64, 128)  # larger than the tensor, which the driver accepts
    with pytest.raises(tma.TmaTargetError) as caught:
        tma.driver_encode_tiled("FLOAT16", 2, 4096, (64, 64), (128,), box, (1, 1), swizzle=4)
    assert [v.rule for v in caught.value.violations] == ["ATOM_SWIZZLE"]
    assert caught.value.violations[0].fix == (
        "use swizzle='bytes128'; or make the map for sm_100 or later: target='sm_100'"
    )


@pytest.mark.parametrize(("steps", "words"), [({}, False), ({"elem_strides": (1,) * 6}, True)])
def test_steps_that_were_given_are_left_out_with_the_dimensions(steps, words):
    x = np.zeros((2, 2, 2, 2, 4, 64), np.float16)
    (violation,) = tma.check_tma_descriptor(x, (1, 1, 1, 1, 4, 64), **steps).violations
    assert (violation.fix.count("without elem_strides") == 2) is words


def test_steps_alone_are_left_out_without_an_and():
    x = np.zeros((64, 64), np.float16)
    corners = {"pixel_box_lower_corner": (0,), "pixel_box_upper_corner": (0,)}
    sizes = {"channels_per_pixel": 64, "pixels_per_column": 8, "elem_strides": (1, 1)}
    violation = tma.check_im2col_descriptor(x, **corners, **sizes).violations[0]
    assert violation.rule == "RANK"
    assert violation.fix.startswith("add dimensions of size 1, x[None] without elem_strides: ")
