"""make_im2col_descriptor and its wide sibling, end to end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack.dlpack import as_tensor_view

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

SHAPES = {3: (2, 14, 64), 4: (2, 12, 14, 64), 5: (2, 10, 12, 14, 64)}
PRODUCERS = {
    "torch": lambda shape: torch.zeros(shape, dtype=torch.float16),
    "numpy": lambda shape: np.zeros(shape, np.float16),
    "jax": lambda shape: jax.numpy.zeros(shape, "float16"),
}


def mirrored(x, lower, upper, channels, pixels, steps, **options):
    """Return the bytes of the map from `driver_encode_im2col`, which golden files test."""
    view = as_tensor_view(x)
    return bytes(
        tma.driver_encode_im2col(
            "FLOAT16",
            len(view.shape),
            view.address,
            view.shape[::-1],
            tuple(2 * stride for stride in view.strides[-2::-1]),
            lower[::-1],
            upper[::-1],
            channels,
            pixels,
            steps[::-1],
            encoder="model",
            **options,
        )
    )


@pytest.mark.parametrize("rules", ["documented", "driver"])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("rank", SHAPES)
def test_an_image_batch_becomes_the_map_that_the_driver_makes(rank, producer, rules):
    x = PRODUCERS[producer](SHAPES[rank])
    spatial = rank - 2
    lower, upper = (-1, -2, -3)[:spatial], (-3, -2, -1)[:spatial]
    steps = (1, *(2, 1, 3)[:spatial], 1)
    tm = tma.make_im2col_descriptor(
        x, lower, upper, 32, 96, steps, swizzle="bytes64", oobfill="nan", rules=rules
    )
    assert (tm.kind, tm.rank, tm.tensor) == ("im2col", rank, x)
    assert tm.pixel_box_lower_corner == lower[::-1]
    assert tm.pixel_box_upper_corner == upper[::-1]
    assert (tm.channels_per_pixel, tm.pixels_per_column, tm.elem_strides) == (32, 96, steps)
    assert bytes(tm) == mirrored(x, lower, upper, 32, 96, steps, swizzle=2, oob_fill=1)


def test_the_innermost_elem_stride_is_ignored_where_documented():
    x = PRODUCERS["numpy"](SHAPES[4])
    tm = tma.make_im2col_descriptor(x, (0, 0), (0, 0), 32, 64, (1, 2, 2, 99))
    assert tm.elem_strides == (1, 2, 2, 1)
    with pytest.raises(tma.TmaPreconditionError, match=r"elem_strides\[3\] is 99"):
        tma.make_im2col_descriptor(x, (0, 0), (0, 0), 32, 64, (1, 2, 2, 99), rules="driver")


@pytest.mark.parametrize("rules", ["documented", "driver"])
def test_a_tensor_in_channels_first_order_is_refused_under_both_sets_of_rules(rules):
    x = torch.zeros(2, 64, 12, 14, dtype=torch.float16).to(memory_format=torch.channels_last)
    with pytest.raises(tma.TmaPreconditionError, match=r"x\.permute\(0, 2, 3, 1\)"):
        tma.make_im2col_descriptor(x, (0, 0), (0, 0), 32, 64, rules=rules)
    tm = tma.make_im2col_descriptor(x.permute(0, 2, 3, 1), (0, 0), (0, 0), 32, 64, rules=rules)
    assert tm.shape == (2, 12, 14, 64)


@pytest.mark.parametrize("rules", ["documented", "driver"])
def test_a_type_that_maps_lack_is_refused_under_both_sets_of_rules(rules):
    x = torch.zeros(2, 12, 14, 64, dtype=torch.int8)
    with pytest.raises(tma.TmaPreconditionError, match="data_type='UINT8'"):
        tma.make_im2col_descriptor(x, (0, 0), (0, 0), 32, 64, rules=rules)
    with pytest.raises(tma.TmaPreconditionError, match="element size"):
        tma.make_im2col_descriptor(x, (0, 0), (0, 0), 32, 64, rules=rules, data_type="FLOAT32")


@pytest.mark.parametrize(
    ("corner", "named"),
    [
        (((-200, 0), (0, 0)), "pixel_box_lower_corner[0] (H) is -200"),
        (((0, -200), (0, 0)), "pixel_box_lower_corner[1] (W) is -200"),
        (((0, 0), (0, 200)), "pixel_box_upper_corner[1] (W) is 200"),
    ],
)
def test_a_corner_out_of_range_is_named_row_major(corner, named):
    x = PRODUCERS["numpy"](SHAPES[4])
    (violation,) = tma.check_im2col_descriptor(x, *corner, 32, 64).violations
    assert violation.found == named
    assert violation.limit == "it must be -128..127 for a tensor of rank 4"


def test_an_empty_bounding_box_says_which_sizes_make_it_empty():
    x = PRODUCERS["numpy"](SHAPES[4])
    (violation,) = tma.check_im2col_descriptor(x, (0, 0), (-12, 0), 32, 64).violations
    assert violation.rule == "BOUNDING_BOX"
    assert violation.found == (
        "the bounding box is 0 pixels along H (tensor.shape[1] = 12, upper corner -12, lower "
        "corner 0)"
    )


def test_arguments_of_a_column_are_named_as_the_call_names_them():
    x = PRODUCERS["numpy"](SHAPES[4])
    report = tma.check_im2col_descriptor(x, (0, 0), (0, 0), 40, 2000, swizzle="bytes64")
    assert [(v.rule, v.argument) for v in report.violations] == [
        ("PIXELS", "pixels_per_column"),
        ("BOX_SWIZZLE_SPAN", "channels_per_pixel"),
    ]
    assert report.violations[1].found == "channels_per_pixel spans 80 bytes"


# -- corners of a convolution ----------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(1, 7), st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=3
    )
)
def test_the_bounding_box_starts_every_window_of_the_convolution(dimensions):
    kernel, padding, dilation = zip(*dimensions, strict=True)
    lower, upper = tma.im2col_corners(kernel, padding, dilation)
    size = 40
    for k, p, d, low, up in zip(kernel, padding, dilation, lower, upper, strict=True):
        starts = range(-p, size + p - d * (k - 1))  # where a window lies within the padded image
        assert (low, size - 1 + up) == (starts[0], starts[-1])


def test_one_number_serves_all_dimensions():
    assert tma.im2col_corners((3, 3, 3), 1) == ((-1, -1, -1), (-1, -1, -1))
    assert tma.im2col_corners(3, (1, 2)) == ((-1, -2), (-1, 0))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (((0, 3),), "kernel_size"),
        (((3, 3), -1), "padding"),
        (((3, 3), 0, 0), "dilation"),
        (((3, 3), (1, 1, 1)), "kernel_size"),
        (((3, 3, 3, 3),), "kernel_size"),
        ((3.0,), "kernel_size"),
        ((True,), "kernel_size"),
        (("33",), "kernel_size"),
        ((None,), "kernel_size"),
    ],
)
def test_corners_of_no_convolution_are_refused(call, argument):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.im2col_corners(*call)
    assert caught.value.violations[0].argument == argument


# -- im2col-wide -----------------------------------------------------------------------------------


def test_a_wide_map_needs_sm_100_by_the_document():
    x = PRODUCERS["numpy"](SHAPES[4])
    with pytest.raises(tma.TmaTargetError, match=r"compute capability 10\.0"):
        tma.make_im2col_wide_descriptor(x, -1, -1, 64, 64)
    tm = tma.make_im2col_wide_descriptor(x, -1, -1, 64, 64, target="sm_100", mode="w128")
    assert (tm.kind, tm.mode.name, tm.swizzle.name) == ("im2col_wide", "w128", "bytes128")
    assert tm.pixel_box_lower_corner == (-1,)


def test_the_driver_encodes_a_wide_map_on_sm_90_and_advice_says_what_for():
    x = PRODUCERS["numpy"](SHAPES[4])
    tm = tma.make_im2col_wide_descriptor(x, -1, -1, 64, 64, rules="driver")
    view = as_tensor_view(x)
    by_mirror = tma.driver_encode_im2col_wide(
        "FLOAT16", 4, view.address, view.shape[::-1], (128, 1792, 21504), -1, -1, 64, 64, (1,) * 4,
        encoder="model",
    )  # fmt: skip
    assert bytes(tm) == bytes(by_mirror)
    assert "WIDE_ON_SM_90" in [a.rule for a in tm.advice]


def test_the_refusal_of_a_wide_map_on_sm_90_offers_what_can_use_it():
    x = PRODUCERS["numpy"](SHAPES[4])
    report = tma.check_im2col_wide_descriptor(x, -1, -1, 64, 64)
    assert [v.rule for v in report.violations] == ["WIDE_CAPABILITY"]
    assert report.violations[0].fix == (
        "use make_im2col_descriptor, because sm_90 has no instruction for such a map, or make it "
        "for a GPU that has: target='sm_100'"
    )
    assert report.changes() == {"target": "sm_100"}


def test_corners_take_numpy_integers_and_any_ordered_sequence():
    assert tma.im2col_corners(np.int64(3), np.int8(1)) == ((-1,), (-1,))
    assert tma.im2col_corners(np.array([3, 5]), [1, 2]) == ((-1, -2), (-1, -2))


@pytest.mark.parametrize(
    "wrong",
    [{"kernel_size": 0}, {"padding": -1}, {"dilation": 0}, {"padding": 1.0}, {"dilation": (1, 1)},
     {"kernel_size": (3, 3, 3, 3)}, {"kernel_size": ()}, {"kernel_size": "3"}, {"padding": True}],
)  # fmt: skip
def test_corners_refuse_what_is_no_convolution(wrong):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.im2col_corners(**({"kernel_size": (3,)} | wrong))
    assert refused.value.violations[0].argument in ("kernel_size", *wrong)
