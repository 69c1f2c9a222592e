"""`driver_encode_*` has the driver's verdict and bytes for every recorded call of an H200."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_calls import ADDRESS, GOLDEN, KINDS, keywords, kind_of, recorded

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)

ENCODERS = {
    "tiled": tma.driver_encode_tiled,
    "im2col": tma.driver_encode_im2col,
    "im2col_wide": tma.driver_encode_im2col_wide,
}


def encode(row, encoder="model"):
    """Call `driver_encode_*` as the driver is called in C, with the entries past the rank."""
    return ENCODERS[kind_of(row)](**keywords(row), encoder=encoder)


def arguments_of(row):
    """The arguments of an accepted row, entries past the rank cut off."""
    kind, rank = KINDS[row["kind"]], row["rank"]
    corners = {"tiled": 0, "im2col": rank - 2, "im2col_wide": 1}[kind]
    column = kind != "tiled"
    return EncodeArguments(
        kind=kind,
        data_type=TensorMapDataType(row["dt"]),
        global_dim=tuple(row["dims"][:rank]),
        global_strides=tuple(row["strides"][: rank - 1]),
        element_strides=tuple(row["estr"][:rank]),
        box_dim=() if column else tuple(row["box"][:rank]),
        interleave=TmaInterleaveLayout(row["inter"]),
        swizzle=TmaSwizzle(row["swz"]),
        l2_promotion=TmaL2FetchSize(row["l2"]),
        oob_fill=TmaOobFill(row["oob"]),
        pixel_box_lower_corner=tuple(row["lo"][:corners]),
        pixel_box_upper_corner=tuple(row["hi"][:corners]),
        channels_per_pixel=row["cpp"] if column else 0,
        pixels_per_column=row["ppc"] if column else 0,
    )


def test_the_golden_file_says_where_it_comes_from_and_holds_every_kind():
    with np.load(GOLDEN) as golden:
        assert "H200" in str(golden["provenance"])
        assert "580.159.04" in str(golden["provenance"])
    rows = recorded()
    count = {
        (k, rc): sum((r["kind"], r["rc"]) == (k, rc) for r in rows)
        for k in range(3)
        for rc in (0, 1)
    }
    assert sum(count.values()) == len(rows) == 20_000
    assert min(count.values()) > 1000


@pytest.mark.parametrize("kind", range(3), ids=KINDS)
def test_verdict_and_bytes_equal_the_drivers_on_every_recorded_call(kind):
    for row in recorded():
        if row["kind"] != kind:
            continue
        try:
            made = bytes(encode(row))
        except tma.TmaPreconditionError:
            made = None
        assert made == row["bytes"], row


def test_decoding_is_the_inverse_of_encoding_on_every_accepted_call():
    for row in recorded():
        if row["rc"]:
            continue
        arguments = arguments_of(row)
        if row["kind"] == 2:  # the bits equal an im2col map's with one corner
            assert bits.encode(arguments, row["addr"]) == row["bytes"]
            continue
        assert bits.decode(row["bytes"]) == (arguments, row["addr"]), row


def test_from_bytes_keeps_every_recorded_map():
    for row in recorded():
        if row["rc"] == 0:
            tm = tma.TensorMap.from_bytes(row["bytes"])
            assert bytes(tm) == row["bytes"]
            assert tm.global_address == row["addr"]


def test_the_refused_calls_reach_every_measured_rule():
    """Golden data without a refusal by a rule would not test the rule."""
    met = set()
    for row in recorded():
        if row["rc"]:
            with pytest.raises(tma.TmaPreconditionError) as caught:
                encode(row)
            met |= {v.rule for v in caught.value.violations}
    assert met >= {
        "ATOM_SWIZZLE", "PACKED_TYPE", "RANK_INTERLEAVED", "ADDRESS_ALIGNED", "OOB_NAN",
        "DIM_RANGE", "STRIDE_ALIGNED", "STRIDE_RANGE", "BOX_RANGE", "BOX_INNER_16B",
        "BOX_SWIZZLE_SPAN",
        "BOX_INNER_16B_INTERLEAVED", "BOX_BYTES", "ELEM_STRIDES_RANGE", "LOWER_CORNER",
        "UPPER_CORNER", "BOUNDING_BOX", "CHANNELS", "PIXELS", "CHANNELS_16B", "COLUMN_BYTES",
    }  # fmt: skip


# -- what the mirrors say --------------------------------------------------------------------------


def tiled(**changes):
    given = {
        "tensor_data_type": "FLOAT32",
        "tensor_rank": 2,
        "global_address": ADDRESS,
        "global_dim": (64, 64),
        "global_strides": (256,),
        "box_dim": (16, 16),
        "element_strides": (1, 1),
        "encoder": "model",
    } | changes
    return tma.driver_encode_tiled(**given)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"box_dim": (16, 257)}, "box_dim[1] is 257"),
        ({"box_dim": (3, 16)}, "box_dim[0] spans 12 bytes"),
        ({"element_strides": (9, 1)}, "element_strides[0] is 9"),
        ({"global_dim": (64, 0)}, "global_dim[1] is 0"),
        ({"global_strides": (264,)}, "global_strides[0] is 264 bytes"),
        ({"tensor_rank": 6}, "tensor_rank is 6"),
        ({"tensor_rank": 0}, "tensor_rank is 0"),
        ({"box_dim": (16,)}, "box_dim has 1 entry"),
        ({"global_address": -16}, "the address is -0x10"),
        ({"global_address": 1 << 64}, "the address is 0x10000000000000000"),
        # This array has the method __index__, as each integer tensor of torch with one element has.
        ({"global_address": np.array(ADDRESS)}, f"global_address is array({ADDRESS})"),
        ({"interleave": 3}, "interleave is 3"),
    ],
)
def test_a_mirror_refuses_in_the_drivers_words(changes, found):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tiled(**changes)
    assert caught.value.violations[0].found == found


def test_entries_past_the_rank_are_not_read():
    longer = tiled(
        global_dim=(64, 64, 0),
        global_strides=(256, 3),
        box_dim=(16, 16, 999),
        element_strides=(1, 1, 0),
    )
    assert bytes(longer) == bytes(tiled())


def test_a_mirror_takes_numpy_integers_names_and_c_names():
    named = tiled(
        tensor_data_type="CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
        global_dim=np.array([64, 64]),
        tensor_rank=np.int32(2),
        swizzle="CU_TENSOR_MAP_SWIZZLE_64B",
    )
    assert bytes(named) == bytes(tiled(swizzle=2))


def test_what_libcudacxx_alone_asks_is_not_asked_of_a_mirror():
    assert tiled(box_dim=(16, 256)).box_dim == (16, 256)  # more than the tensor
    assert tiled(global_strides=(16,)).global_strides == (16,)  # rows overlap
    assert tiled(interleave=2, swizzle=0, tensor_rank=3, global_dim=(8, 4, 4), box_dim=(8, 1, 1),
                 global_strides=(32, 128), element_strides=(1, 1, 1)).swizzle == 0  # fmt: skip


def test_the_model_speaks_for_sm_90_alone():
    with pytest.raises(
        tma.TmaUnsupportedError, match=r"sm_100 have not been measured.*encoder='driver'"
    ):
        tiled(target="sm_100")


@pytest.mark.skipif(driver.is_available(), reason="here the driver answers")
def test_without_a_driver_the_driver_is_not_imitated():
    with pytest.raises(tma.TmaUnsupportedError):
        tiled(encoder="driver")
    assert tiled(encoder="auto").encoder == "model"


def test_an_im2col_wide_map_on_sm_90_comes_with_advice():
    tm = tma.driver_encode_im2col_wide(
        "FLOAT16", 4, ADDRESS, (64, 14, 14, 2), (128, 1792, 25088), -1, -1, 64, 64, (1, 1, 1, 1),
        encoder="model",
    )  # fmt: skip
    assert [a.rule for a in tm.advice] == ["WIDE_ON_SM_90"]
    assert "10.0" in tm.advice[0].limit


def test_arguments_that_do_not_fit_their_bits_are_never_encoded_silently():
    good = arguments_of(next(r for r in recorded() if r["rc"] == 0 and r["kind"] == 0))
    for change in (
        {"box_dim": (257, *good.box_dim[1:])},
        {"element_strides": (9, *good.element_strides[1:])},
        {"global_dim": (0, *good.global_dim[1:])},
        {"swizzle": TmaSwizzle.bytes128_atom_32B},
        {"data_type": TensorMapDataType["16U4_ALIGN8B"]},
    ):
        with pytest.raises(OverflowError):
            bits.encode(good._replace(**change), ADDRESS)
