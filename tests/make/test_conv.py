"""make_conv_descriptor: corners by hand, columns compared with torch, refusals in its terms."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack.make import conv

torch = pytest.importorskip("torch")

SHAPES = {1: (2, 14, 64), 2: (2, 12, 14, 64), 3: (2, 10, 12, 14, 64)}
COLUMN = {"channels_per_pixel": 32, "pixels_per_column": 64}
IMAGES = np.zeros(SHAPES[2], np.float16)


# -- by hand ---------------------------------------------------------------------------------------

#: (spatial dimensions, arguments, lower corner, upper corner, elem_strides)
BY_HAND = {
    "1-D": (1, {"kernel_size": 3}, (0,), (-2,), (1, 1, 1)),
    "1-D, all": (
        1,
        {"kernel_size": (5,), "padding": ((1, 3),), "stride": (2,), "dilation": (3,)},
        (-1,),
        (3 - 12,),
        (1, 2, 1),
    ),
    "2-D, one number": (2, {"kernel_size": 3, "padding": 1}, (-1, -1), (-1, -1), (1, 1, 1, 1)),
    "2-D, each": (
        2,
        {"kernel_size": (3, 5), "padding": (1, 2), "stride": (1, 2), "dilation": (2, 1)},
        (-1, -2),
        (1 - 4, 2 - 4),
        (1, 1, 2, 1),
    ),
    "2-D, asymmetric": (
        2,
        {"kernel_size": 2, "padding": ((1, 2), (0, 1)), "stride": 3},
        (-1, 0),
        (1, 0),
        (1, 3, 3, 1),
    ),
    "2-D, one side of one": (
        2,
        {"kernel_size": 4, "padding": [0, (2, 1)]},
        (0, -2),
        (-3, -2),
        (1, 1, 1, 1),
    ),
    "3-D": (
        3,
        {"kernel_size": (1, 3, 2), "padding": ((0, 0), (1, 1), (0, 1)), "stride": (1, 2, 4)},
        (0, -1, 0),
        (0, -1, 0),
        (1, 1, 2, 4, 1),
    ),
    "3-D, one number": (
        3,
        {"kernel_size": 3, "padding": 2, "stride": 2, "dilation": 2},
        (-2, -2, -2),
        (-2, -2, -2),
        (1, 2, 2, 2, 1),
    ),
}
PRODUCERS = {
    "torch": lambda shape: torch.zeros(shape, dtype=torch.float16),
    "numpy": lambda shape: np.zeros(shape, np.float16),
}


@pytest.fixture(params=["C", "Python"])
def road(request, monkeypatch):
    if request.param == "Python":
        for name in ("make_im2col_descriptor", "check_im2col_descriptor"):
            verb = getattr(conv, name)
            monkeypatch.setattr(conv, name, getattr(verb, "__wrapped__", verb))
    return request.param


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("case", BY_HAND)
def test_the_map_is_the_one_of_corners_worked_out_by_hand(case, producer, road):
    spatial, words, lower, upper, steps = BY_HAND[case]
    x = PRODUCERS[producer](SHAPES[spatial])
    expected = tma.make_im2col_descriptor(x, lower, upper, 32, 64, steps, swizzle="bytes64")
    made = tma.make_conv_descriptor(x, **words, **COLUMN, swizzle="bytes64")
    assert bytes(made) == bytes(expected)
    assert (made, made.tensor, made.elem_strides) == (expected, x, steps)
    corners = {name: words[name] for name in ("padding", "dilation") if name in words}
    if spatial == 1 or len(words) > 2 or ("padding" in words and type(words["padding"]) is not int):
        kernel = words["kernel_size"]
        kernel = (kernel,) * spatial if type(kernel) is int else kernel
        assert tma.im2col_corners(kernel, **corners) == (lower, upper)


OPTIONS = {
    "interleave_layout": "bytes16",
    "swizzle": "bytes64",
    "l2_fetch_size": "bytes256",
    "oobfill": "nan",
    "data_type": "BFLOAT16",
    "rules": "driver",
    "shape": (2, 6, 28, 64),
    "strides": (12 * 14 * 64, 28 * 64, 64, 1),
    "offset": 64,
    "target": "sm_100",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_an_im2col_map_is_passed_on(name, road):
    options = {name: OPTIONS[name]}
    x = IMAGES
    corners = (-1, -1), (-1, -1)
    if name == "strides":
        options["shape"] = OPTIONS["shape"]
    if name == "interleave_layout":  # (N, C / 8, H, W, 8): the channels are two dimensions
        x, corners = np.zeros((2, 4, 12, 14, 8), np.float16), ((-1,) * 3, (-1,) * 3)
    made = tma.check_conv_descriptor(x, 3, padding=1, **COLUMN, **options)
    expected = tma.check_im2col_descriptor(x, *corners, 32, 64, **options)
    assert (made.ok, made.advice) == (expected.ok, expected.advice)
    if made:
        tm = tma.make_conv_descriptor(x, 3, padding=1, **COLUMN, **options)
        assert tm == tma.make_im2col_descriptor(x, *corners, 32, 64, **options)
        plain = tma.make_conv_descriptor(x, 3, padding=1, **COLUMN)
        assert tm != plain or name in ("rules", "target")


def test_options_are_those_of_an_im2col_map():
    import inspect

    ours = dict(inspect.signature(tma.make_conv_descriptor).parameters)
    theirs = dict(inspect.signature(tma.make_im2col_descriptor).parameters)
    worked_out = {"pixel_box_lower_corner", "pixel_box_upper_corner", "elem_strides"}
    assert theirs.keys() - ours.keys() == worked_out
    assert ours.keys() - theirs.keys() == {"kernel_size", "padding", "stride", "dilation"}
    shared = [name for name in theirs if name in ours]
    assert [name for name in ours if name in theirs] == shared
    assert all(ours[name].default == theirs[name].default for name in shared)


def test_numbers_of_numpy_lists_and_iterators_are_read():
    expected = tma.make_conv_descriptor(IMAGES, (3, 2), padding=((1, 1), (0, 2)), **COLUMN)
    for kernel, padding in (
        (np.array([3, 2]), np.array([[1, 1], [0, 2]])),
        ([np.int8(3), 2], [[1, np.uint64(1)], (0, 2)]),
        (iter((3, 2)), [1, (0, 2)]),
    ):
        assert tma.make_conv_descriptor(IMAGES, kernel, padding=padding, **COLUMN) == expected


# -- against torch ---------------------------------------------------------------------------------


@st.composite
def convolutions(draw):
    """Draw a convolution with at least one result, over a small image of small integers."""
    spatial = draw(st.sampled_from((1, 2, 2, 3)))
    small = st.integers(1, 3)
    dimensions = [
        {"kernel_size": draw(small), "stride": draw(small), "dilation": draw(small),
         "padding": (draw(st.integers(0, 3)), draw(st.integers(0, 3)))}
        for _ in range(spatial)
    ]  # fmt: skip
    words = {name: tuple(d[name] for d in dimensions) for name in dimensions[0]}
    spans = [d["dilation"] * (d["kernel_size"] - 1) + 1 - sum(d["padding"]) for d in dimensions]
    extents = [draw(st.integers(max(1, span), max(1, span) + 5)) for span in spans]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return rng.integers(-8, 9, (2, *extents, 16)).astype(np.float32), words


def columns(tensor_map, words, backend=None):
    """Return the values that the map copies for each filter tap: (taps, out pixels, channels)."""
    starts = tma.tile_coords(tensor_map)
    taps = itertools.product(*map(range, words["kernel_size"]))
    return np.stack([
        tma.load_tiles(
            tensor_map, starts, backend=backend,
            im2col_offsets=tuple(t * d for t, d in zip(tap, words["dilation"], strict=True)),
        ).array.reshape(-1, tensor_map.channels_per_pixel)
        for tap in taps
    ])  # fmt: skip


def padded(x, padding):
    """Return images with torch's dimensions, N, C, [D,] [H,] W, padded by zeros."""
    sides = [n for before_after in reversed(padding) for n in before_after]
    return torch.nn.functional.pad(torch.as_tensor(x).movedim(-1, 1), sides)


@examples(60)
@given(convolutions())
def test_columns_times_a_filter_are_torch_s_convolution(question):
    x, words = question
    tm = tma.make_conv_descriptor(x, **words, channels_per_pixel=16, pixels_per_column=8)
    spatial = x.ndim - 2
    weight = torch.randint(-8, 9, (5, 16, *words["kernel_size"])).double()
    steps = {name: words[name] for name in ("stride", "dilation")}
    convolve = getattr(torch.nn.functional, f"conv{spatial}d")
    direct = convolve(padded(x, words["padding"]).double(), weight, **steps)
    expected = direct.movedim(1, -1).reshape(-1, 5).numpy()
    taps = columns(tm, words)[:, : len(expected)]
    of_taps = weight.reshape(5, 16, -1).permute(2, 1, 0).numpy()
    assert (np.einsum("tpc,tck->pk", taps, of_taps) == expected).all()


@pytest.mark.parametrize("padding", [0, 2, ((1, 2), (0, 1))])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), ((1, 3), (2, 1))])
def test_columns_are_those_of_torch_s_unfold(padding, stride, dilation):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 9, 11, 8), np.float32)
    tm = tma.make_conv_descriptor(
        x, (3, 2), padding=padding, stride=stride, dilation=dilation,
        channels_per_pixel=8, pixels_per_column=16,
    )  # fmt: skip
    sides = ((padding, padding),) * 2 if type(padding) is int else padding
    unfolded = torch.nn.functional.unfold(padded(x, sides), (3, 2), dilation, 0, stride)
    expected = unfolded.reshape(3, 8, 6, -1).permute(2, 0, 3, 1).reshape(6, -1, 8).numpy()
    words = {"kernel_size": (3, 2), "dilation": np.broadcast_to(dilation, 2).tolist()}
    assert (columns(tm, words)[:, : expected.shape[1]] == expected).all()


# -- refusals --------------------------------------------------------------------------------------


def refused(x=IMAGES, kernel=3, **words):
    """Return the violations, which check and call have in common, and the report's changes."""
    report = tma.check_conv_descriptor(x, kernel, **COLUMN | words)
    with pytest.raises(tma.TmaPreconditionError) as error:
        tma.make_conv_descriptor(x, kernel, **COLUMN | words)
    assert error.value.violations == report.violations
    assert report.advice == ()
    return report.violations, report.changes()


@pytest.mark.parametrize(
    ("spatial", "words", "found", "limit", "fix"),
    [
        (2, {"kernel": (3, 3, 3)}, "kernel_size is (3, 3, 3)",
         "it must be an integer of at least 1, or 2 entries (H, W): the tensor has 2 spatial "
         "dimensions", "pass (H, W), or one integer for all of them"),
        (1, {"kernel": (3, 3)}, "kernel_size is (3, 3)",
         "it must be an integer of at least 1, or 1 entry (W,): the tensor has 1 spatial dimension",
         "pass (W,), or one integer"),
        (3, {"stride": (2, 2)}, "stride is (2, 2)",
         "it must be an integer of at least 1, or 3 entries (D, H, W): the tensor has 3 spatial "
         "dimensions", "pass (D, H, W), or one integer for all of them"),
        (1, {"padding": (1, 2)}, "padding is (1, 2)",
         "it must be an integer of at least 0, or 1 entry (W,), each an integer or a pair (before, "
         "after): the tensor has 1 spatial dimension",
         "pass (W,), or one integer; for padding on one side, pairs such as ((0, 1),)"),
        *((2, {name: value}, f"{'kernel_size' if name == 'kernel' else name} is {value!r}", "", "")
          for name, value in (
              ("kernel", 0), ("kernel", (3, 0)), ("kernel", 3.0), ("kernel", "3"), ("kernel", None),
              ("kernel", True), ("kernel", ()), ("kernel", ((3, 3), 3)), ("padding", -1),
              ("padding", (0, -1)), ("padding", ((1, 2, 3), 1)), ("padding", ((0, -1), 1)),
              ("padding", "same"), ("padding", ((1, None), 1)), ("stride", 0), ("stride", 1.5),
              ("dilation", 0), ("dilation", (1, 2, 3)), ("dilation", {1: 2}),
          )),
    ],
)  # fmt: skip
def test_words_that_are_no_convolution_of_the_tensor(spatial, words, found, limit, fix):
    (violation,), changes = refused(np.zeros(SHAPES[spatial], np.float16), **words)
    assert (violation.rule, violation.found, changes) == ("ARGUMENT", found, None)
    assert violation.argument == found.split()[0]
    assert limit in violation.limit
    assert fix in violation.fix


@pytest.mark.parametrize(
    ("words", "rule", "argument", "found", "limit"),
    [
        ({"kernel": (3, 15)}, "BOUNDING_BOX", "kernel_size",
         "the kernel spans 15 pixels along W, where a padded image has 14",
         "it must fit into the padded image along every spatial dimension"),
        ({"kernel": (8, 1), "dilation": 2, "padding": ((1, 1), 0)}, "BOUNDING_BOX", "kernel_size",
         "the kernel spans 15 pixels along H, where a padded image has 14", ""),
        ({"stride": (1, 9)}, "ELEM_STRIDES_RANGE", "stride", "stride is 9 along W",
         "it must be 1..8"),
        ({"padding": ((129, 0), 1)}, "LOWER_CORNER", "padding",
         "padding is 129 along H, which makes the lower corner -129",
         "it must be -128..127 for a tensor of rank 4"),
        ({"kernel": 1, "padding": (0, (0, 128))}, "UPPER_CORNER", "padding",
         "padding is 128 along W, which makes the upper corner 128", ""),
        ({"kernel": (1, 67), "padding": (0, (120, 3)), "dilation": 2}, "UPPER_CORNER",
         "kernel_size", "the upper corner is -129 along W: padding 3 - dilation 2 x (kernel_size "
         "67 - 1)", "it must be -128..127 for a tensor of rank 4"),
    ],
)  # fmt: skip
def test_a_convolution_that_no_map_has_is_refused_in_its_words(words, rule, argument, found, limit):
    (violation,), changes = refused(**words)
    assert (violation.rule, violation.argument, violation.found) == (rule, argument, found)
    assert limit in violation.limit
    assert changes is None  # another convolution is not a fix
    for word in ("pixel_box", "elem_strides", "im2col_corners"):
        assert word not in str(violation)


@pytest.mark.parametrize(
    "words",
    [{"kernel": (3, 14)}, {"stride": (1, 8)}, {"padding": ((128, 0), 1)},
     {"kernel": 1, "padding": (0, (0, 127))},
     {"kernel": (1, 66), "padding": (0, (120, 3)), "dilation": 2}],
)  # fmt: skip
def test_a_step_further_it_is_accepted(words):
    kernel = words.pop("kernel", 3)
    assert tma.check_conv_descriptor(IMAGES, kernel, **words, **COLUMN)


def test_the_fix_of_a_large_stride_gives_the_same_pixels():
    """Use stride=1 and every 9th output pixel, as the fix of stride=9 proposes."""
    (violation, _), _ = refused(stride=9)
    assert violation.fix == (
        "pass stride=1 and use one output pixel in 9 along W: no map takes larger steps"
    )
    x = torch.randn(1, 4, 1, 30, dtype=torch.float64)
    weight = torch.randn(2, 4, 1, 3, dtype=torch.float64)
    direct = torch.nn.functional.conv2d(x, weight, stride=9)
    all_pixels = torch.nn.functional.conv2d(x, weight)
    assert torch.equal(all_pixels[..., ::9], direct)


def test_other_arguments_are_repaired_in_the_words_of_the_convolution():
    violations, changes = refused(channels_per_pixel=20, swizzle="bytes23")
    assert [v.argument for v in violations] == ["swizzle", "channels_per_pixel"]
    assert changes is None  # the swizzle's name is unknown, so no fix is certain
    _, changes = refused(channels_per_pixel=20)
    assert changes == {"channels_per_pixel": 24}
    report = tma.check_conv_descriptor(IMAGES, 3, padding=1, **COLUMN | {"pixels_per_column": 2000})
    fixed = report.fixed()
    assert (fixed["kernel_size"], fixed["padding"]) == (3, 1)
    assert tma.make_conv_descriptor(IMAGES, **fixed).pixels_per_column == 1024


def test_unreadable_words_and_the_rest_are_reported_at_once():
    violations, changes = refused(stride=0, dilation="2", channels_per_pixel=20)
    assert [v.argument for v in violations] == ["stride", "dilation", "channels_per_pixel"]
    assert changes is None


@pytest.mark.parametrize(
    ("x", "words", "rule"),
    [
        (5, {}, "TENSOR_TYPE"),
        (np.zeros((2, 3), np.float16), {}, "RANK"),
        (np.zeros((2,) * 6, np.float16), {}, "RANK"),
        (IMAGES, {"shape": "x"}, "ARGUMENT"),
        (IMAGES, {"shape": (2, 64)}, "RANK"),
        (torch.zeros(2, 64, 12, 14, dtype=torch.float16), {}, "STRIDE_ALIGNED"),
        (np.zeros(SHAPES[2], np.int8), {}, "DTYPE"),
    ],
    ids=["no tensor", "rank 2", "rank 6", "shape", "shape of rank 2", "channels first", "type"],
)
def test_a_tensor_that_no_map_has_is_refused_as_for_im2col(x, words, rule):
    violations, _ = refused(x, **words)
    assert violations[0].rule == rule
    expected = tma.check_im2col_descriptor(x, (0, 0), (-2, -2), 32, 64, **words).violations
    assert violations[0] == expected[0]


def test_a_wrong_keyword_is_named_with_the_one_it_means():
    with pytest.raises(TypeError, match="unexpected keyword argument 'fill'; did you mean oobfill"):
        tma.make_conv_descriptor(IMAGES, 3, **COLUMN, fill="nan")
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument"):
        tma.check_conv_descriptor(IMAGES, 3, channels_per_pixel=32)


@pytest.mark.parametrize("channels", [31, 64, 128], ids=["31", "accepted", "beyond the swizzle"])
def test_a_report_survives_pickle_with_its_repairs(channels):
    words = COLUMN | {"channels_per_pixel": channels, "swizzle": "bytes128"}
    report = tma.check_conv_descriptor(IMAGES, (3, 3), padding=1, **words)
    again = pickle.loads(pickle.dumps(report))
    assert (again, again.fixed(), again.advice) == (report, report.fixed(), report.advice)


def test_the_fix_of_an_unreadable_shape_is_judged_with_the_corners_of_that_shape():
    images = np.zeros((2, 14, 14, 64), np.float16)
    options = {"shape": [2.0, 14.0, 14.0, 64.0], "padding": 1, "channels_per_pixel": 64}
    report = tma.check_conv_descriptor(images, 3, pixels_per_column=32, **options)
    fixed = report.fixed()
    assert fixed is not None
    assert fixed["shape"] == (2, 14, 14, 64)
    tm = tma.make_conv_descriptor(images, **fixed)
    assert tm.pixel_box_lower_corner == (-1, -1)
