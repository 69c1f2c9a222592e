"""Messages name common slips: the order of a box, the driver's words, NCHW, strides in bytes."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import im2col

import tma_dlpack as tma

TALL = np.zeros((4096, 64), np.float16)
SQUARE = np.zeros((64, 64), np.float16)
ALLOW = (
    "pass allow=('BOX_IN_SHAPE',): the driver itself accepts this and fills the part of the tile "
    "outside the tensor"
)

# -- the order of a box ---------------------------------------------------------------------------


def test_a_box_in_the_drivers_order_is_asked_back_before_any_allow():
    (violation,) = tma.check_tma_descriptor(TALL, (64, 128)).violations
    assert violation.found == "box_sizes[1] is 128"
    assert violation.fix == (
        f"box_sizes is row-major: did you mean (128, 64)? If not, {ALLOW}; or use 64 (copies 64 "
        "instead of 128 columns: the kernel must expect 8192 bytes)"
    )
    assert tma.check_tma_descriptor(TALL, (128, 64)).ok


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        ((64, 64), (64, 65)),  # no order fits
        ((32, 32), (64, 64)),
        ((8, 4096, 64), (64, 8, 16)),  # (16, 8, 64) does not fit either
    ],
)
def test_a_box_that_fits_in_no_order_is_not(shape, box):
    report = tma.check_tma_descriptor(np.zeros(shape, np.float16), box)
    assert "BOX_IN_SHAPE" in [v.rule for v in report.violations]
    assert "row-major: did you mean" not in str(report)


# -- the words of the driver ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "word", "meant"),
    [
        ("make_tma_descriptor", "box_dim", "box_sizes (row-major)"),
        ("make_tma_descriptor", "box", "box_sizes (row-major)"),
        ("check_tma_descriptor", "boxDim", "box_sizes (row-major)"),
        ("make_tma_descriptor", "interleave", "interleave_layout"),
        ("make_tma_descriptor", "l2_promotion", "l2_fetch_size"),
        ("make_tma_descriptor", "element_strides", "elem_strides (row-major)"),
        ("make_tma_descriptor", "oob_fill", "oobfill"),
        ("make_tma_descriptor", "global_dim", "shape (row-major)"),
        ("make_tma_descriptor", "global_strides", "strides (row-major, in elements)"),
        ("make_tma_descriptor", "dtype", "data_type"),
        ("make_tma_descriptor", "swizle", "swizzle"),
        ("make_tma_descriptors", "box_dim", "box_sizes (row-major)"),
        ("make_im2col_descriptor", "channels", "channels_per_pixel"),
        ("check_im2col_descriptor", "element_strides", "elem_strides (row-major)"),
        ("make_im2col_wide_descriptor", "oob_fill", "oobfill"),
        ("driver_encode_tiled", "box_sizes", "box_dim (innermost first)"),
        ("driver_encode_tiled", "strides", "global_strides (innermost first, in bytes)"),
        ("driver_encode_im2col", "l2_fetch_size", "l2_promotion"),
        ("driver_encode_im2col_wide", "data_type", "tensor_data_type"),
    ],
)
def test_a_word_of_the_other_interface_is_answered_with_ours(call, word, meant):
    with pytest.raises(TypeError) as raised:
        getattr(tma, call)(SQUARE, **{word: (8, 64)})
    assert str(raised.value) == (
        f"{call}() got an unexpected keyword argument {word!r}; did you mean {meant}?"
    )


def test_a_keyword_of_no_meaning_is_pythons_error():
    with pytest.raises(TypeError) as raised:
        tma.make_tma_descriptor(SQUARE, (8, 64), colour=1)
    assert str(raised.value) == (
        "make_tma_descriptor() got an unexpected keyword argument 'colour'"
    )
    with pytest.raises(TypeError) as raised:
        tma.make_tma_descriptor(SQUARE, (8, 64)).replace(colour=1)
    assert str(raised.value) == "TensorMap.replace() got an unexpected keyword argument 'colour'"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'box_sizes'"):
        tma.make_tma_descriptor(SQUARE)


# -- im2col ---------------------------------------------------------------------------------------


def column(channels):
    return im2col((0, 0), (0, 0), channels, 64)


@pytest.mark.parametrize(
    ("make", "permuted"),
    [
        (lambda: pytest.importorskip("torch").zeros, "{}.permute(0, 2, 3, 1).contiguous()"),
        (
            lambda: lambda shape: np.zeros(shape, np.float16),
            "numpy.ascontiguousarray({}.transpose(0, 2, 3, 1))",
        ),
    ],
    ids=["torch", "numpy"],
)
def test_channels_before_rows_are_noticed(make, permuted):
    hint = "this looks like N, C, H, W, and im2col reads N, H, W, C: pass " + permuted
    pictures = make()((2, 64, 14, 14))  # rows of 56 bytes
    refused = tma.check_im2col_descriptor(pictures, **column(64))
    assert {v.rule for v in refused.violations} == {"STRIDE_ALIGNED"}
    assert {v.fix for v in refused.violations} == {hint.format("pictures")}
    pictures = make()((2, 64, 16, 16))
    accepted = tma.check_im2col_descriptor(pictures, **column(64) | {"target": "sm_90"})
    advice = next(a for a in accepted.advice if a.rule == "CHANNELS_BEYOND")
    assert advice.found == (
        "channels_per_pixel is 64, and the last dimension of the tensor, the channels, has 16"
    )
    assert advice.limit == "the rest of each pixel is filled, and is read as more channels"
    assert advice.fix == hint.format("x")  # an accepted call does not look for names
    names = {"x": pictures, "numpy": np}
    ordered = eval(advice.fix.partition("pass ")[2], names)
    assert tuple(ordered.shape) == (2, 16, 16, 64)
    report = tma.check_im2col_descriptor(ordered, **column(64))
    assert "CHANNELS_BEYOND" not in [a.rule for a in report.advice]


def test_channels_beyond_those_of_n_h_w_c_are_an_advice_too():
    x = np.zeros((2, 14, 14, 32), np.float16)
    advice = {a.rule: a for a in tma.check_im2col_descriptor(x, **column(64)).advice}
    assert advice["CHANNELS_BEYOND"].fix == "use at most 32, unless the kernel expects the fill"
    fine = tma.check_im2col_descriptor(x, **column(32)).advice
    assert "CHANNELS_BEYOND" not in [a.rule for a in fine]


# -- strides and descriptions ---------------------------------------------------------------------


def test_strides_in_bytes_are_told_by_the_maps_text():
    tm = tma.make_tma_descriptor(SQUARE, (16, 64), shape=(64, 64), strides=(128, 1))
    assert " ".join(str(tm).split()).endswith(
        "advice: the map describes 8064 bytes after the tensor's last element; making such a map "
        "is legal, because it reads no memory; but a copy of bytes outside the tensor's memory "
        "reads or overwrites other data, or faults "
        "advice: strides look like bytes: they lead beyond the tensor, and in elements would be "
        "(64, 1), its own or those of rows without gaps; strides= is in elements of the tensor's "
        "dtype"
    )
    assert max(map(len, str(tm).splitlines())) <= 100


def test_a_description_that_leaves_the_tensor_is_told_by_the_maps_text():
    beyond = tma.make_tma_descriptor(SQUARE, (16, 64), shape=(65, 64))
    assert "advice: the map describes 128 bytes after the tensor's last element" in str(beyond)
    within = tma.make_tma_descriptor(SQUARE, (16, 64), shape=(64, 64))
    assert "advice" not in str(within)
    assert "advice" not in str(tma.make_tma_descriptor(SQUARE, (16, 64)))  # its banks are no slip


def test_an_innermost_stride_in_bytes_is_named():
    (violation,) = tma.check_tma_descriptor(
        SQUARE, (16, 64), shape=(64, 64), strides=(128, 2)
    ).violations
    assert violation.fix == (
        "strides are in elements, not in bytes: did you mean strides=(64, 1)? If not, pass strides "
        "whose last entry is 1, such as strides=(128, 1)"
    )


# -- the tensor's own name ------------------------------------------------------------------------


def test_a_fix_names_the_tensor_as_the_caller_does():
    weights = np.zeros((64, 64), np.float16).T
    wanted = (
        "dimension 0 is the contiguous one: pass weights.transpose(1, 0) with box_sizes=(64, 8); "
        "or copy it: weights = numpy.ascontiguousarray(weights)"
    )
    assert tma.check_tma_descriptor(weights, (8, 64)).violations[0].fix == wanted
    with pytest.raises(tma.TmaPreconditionError) as raised:
        tma.make_tma_descriptor(weights, (8, 64))
    assert raised.value.violations[0].fix == wanted


def test_a_tensor_without_a_name_is_x():
    fix = tma.check_tma_descriptor(np.zeros((64, 64), np.float16).T, (8, 64)).violations[0].fix
    assert "pass x.transpose(1, 0)" in fix


def test_a_tensor_without_a_name_is_not_called_as_another_one_is():
    x = np.zeros((64, 64), np.float16)
    fix = tma.check_tma_descriptor(np.zeros((64, 64), np.float16).T, (8, 64)).violations[0].fix
    assert "pass tensor.transpose(1, 0)" in fix
    assert x.shape == (64, 64)


def test_a_fix_assigns_no_name_that_the_caller_has():
    weights, y = np.ones((4, 1733), np.float16), "taken"
    code = tma.check_tma_descriptor(weights, (4, 64)).violations[0].fix.partition(": ")[2]
    assert (
        code == "padded = numpy.empty((4, 1736), weights.dtype)[..., :1733]; padded[...] = weights"
    )
    assert y == "taken"


def test_a_tensor_named_y_is_padded_into_another():
    y = np.ones((4, 1733), np.float16)
    code = tma.check_tma_descriptor(y, (4, 64)).violations[0].fix.partition(": ")[2]
    names = {"numpy": np, "y": y}
    exec(code, names)
    assert np.array_equal(names["padded"], y)


GLOBAL_WEIGHTS = np.zeros((64, 64), np.float16).T


def test_a_tensor_of_the_module_has_its_name_there():
    fix = tma.check_tma_descriptor(GLOBAL_WEIGHTS, (8, 64)).violations[0].fix
    assert "pass GLOBAL_WEIGHTS.transpose(1, 0)" in fix
