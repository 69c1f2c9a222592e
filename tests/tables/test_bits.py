"""The 128 bytes: the table of fields, and the values that it decodes from any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.bits import FIELDS, fields_of
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import TmaPreconditionError

FORMS = [("tiled", rank) for rank in range(1, 6)]
FORMS += [(kind, rank) for kind in ("im2col", "im2col_wide") for rank in range(3, 6)]


def bits_of(field):
    return [bit for start, width in field.pieces for bit in range(start, start + width)]


@pytest.mark.parametrize(("kind", "rank"), FORMS)
def test_no_two_fields_of_a_map_share_a_bit(kind, rank):
    bits = [bit for field in fields_of(kind, rank) for bit in bits_of(field)]
    assert len(bits) == len(set(bits))
    assert max(bits) < 1024


@pytest.mark.parametrize(
    ("name", "index", "bits"),
    [
        ("global_address", None, range(64)),
        ("im2col", None, [64]),
        ("rank", None, range(68, 71)),
        ("element_type", None, range(71, 75)),
        ("interleave", None, [75, 76]),
        ("swizzle", None, [77, 78]),
        ("oob_fill", None, [79]),
        ("tf32", None, [80]),
        ("l2_promotion", None, [81, 82]),
        ("bit_65", None, [65]),
        ("bit_85", None, [85]),
        ("global_strides", 3, [*range(192, 224), *range(236, 240)]),
        ("global_dim", 4, range(384, 416)),
        ("element_strides", 4, range(428, 431)),
        ("box_dim", 4, range(472, 480)),
        ("channels_per_pixel", None, range(440, 448)),
        ("pixels_per_column", None, range(480, 490)),
    ],
)
def test_a_field_stands_where_it_was_measured(name, index, bits):
    (field,) = [f for f in FIELDS if (f.name, f.index) == (name, index)]
    assert bits_of(field) == list(bits)


@st.composite
def argument_sets(draw):
    """Draw arguments that fit their fields, even if the driver would refuse them."""
    kind = draw(st.sampled_from(("tiled", "im2col")))
    rank = draw(st.integers(1 if kind == "tiled" else 3, 5))
    corner_bits = {3: 16, 4: 8, 5: 5}.get(rank, 16)
    half = 1 << (corner_bits - 1)

    def some(low, high, count):
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    corners = 0 if kind == "tiled" else rank - 2
    whole = [t for t in TensorMapDataType if t <= TensorMapDataType.TFLOAT32_FTZ]
    return EncodeArguments(
        kind=kind,
        data_type=draw(st.sampled_from(whole)),
        global_dim=some(1, 1 << 32, rank),
        global_strides=tuple(16 * n for n in some(0, (1 << 36) - 1, rank - 1)),
        element_strides=some(1, 8, rank),
        box_dim=some(1, 256, rank) if kind == "tiled" else (),
        interleave=draw(st.sampled_from(TmaInterleaveLayout)),
        swizzle=draw(st.sampled_from([s for s in TmaSwizzle if s <= TmaSwizzle.bytes128])),
        l2_promotion=draw(st.sampled_from(TmaL2FetchSize)),
        oob_fill=draw(st.sampled_from(TmaOobFill)),
        pixel_box_lower_corner=some(-half, half - 1, corners),
        pixel_box_upper_corner=some(-half, half - 1, corners),
        channels_per_pixel=0 if kind == "tiled" else draw(st.integers(1, 256)),
        pixels_per_column=0 if kind == "tiled" else draw(st.integers(1, 1024)),
    )


ADDRESSES = st.integers(0, (1 << 57) - 1)


@examples(200)
@given(argument_sets(), ADDRESSES)
def test_decoding_is_the_inverse_of_encoding(arguments, address):
    try:
        data = bits.encode(arguments, address)
    except OverflowError:
        assert arguments.floor_box_bytes >= 1 << 32  # a box that no driver accepts
        return
    assert len(data) == 128
    assert bits.decode(data) == (arguments, address)


@examples(200)
@given(argument_sets(), ADDRESSES, st.data())
def test_writing_a_field_changes_its_bits_alone_and_reads_back(arguments, address, data):
    field = data.draw(st.sampled_from(fields_of(arguments.kind, arguments.rank)))
    raw = data.draw(st.integers(field.raw[0], field.raw[-1]))
    value = (raw + field.bias) * field.unit
    before = bytes(128)
    after = field.write(before, value)
    assert field.read(after) == value
    mask = sum(1 << bit for bit in bits_of(field))
    assert int.from_bytes(after, "little") & ~mask == 0
    for over in (field.raw[0] - 1, field.raw[-1] + 1):
        with pytest.raises(OverflowError, match=r"does not fit"):
            field.write(before, (over + field.bias) * field.unit)


def accepted_or_our_error(data):
    try:
        tm = tma.TensorMap.from_bytes(data)
    except TmaPreconditionError as error:
        assert error.violations[0].argument == "data"  # noqa: PT017
        return None
    assert bytes(tm) == bytes(data)
    return tm


@examples(300)
@given(st.binary(min_size=128, max_size=128))
def test_any_128_bytes_are_decoded_or_refused(data):
    accepted_or_our_error(data)


@examples(300)
@given(argument_sets(), ADDRESSES, st.lists(st.integers(0, 1023), max_size=3))
def test_a_map_with_a_few_flipped_bits_is_decoded_or_refused(arguments, address, flips):
    if arguments.floor_box_bytes >= 1 << 32:
        return
    word = int.from_bytes(bits.encode(arguments, address), "little")
    for bit in flips:
        word ^= 1 << bit
    tm = accepted_or_our_error(word.to_bytes(128, "little"))
    if tm is None:
        return
    if tm.arguments.floor_box_bytes >= 1 << 32:
        return
    again = bits.encode(tm.arguments, tm.global_address)
    for field in fields_of(tm.kind, tm.rank):
        if field.pieces[0][0] < 512 and not field.known:  # the engine ignores the later bytes
            assert field.read(again) == field.read(bytes(tm)), field.label


@given(st.binary(max_size=300).filter(lambda b: len(b) != 128))
def test_bytes_of_another_length_are_refused(data):
    with pytest.raises(TmaPreconditionError, match="128"):
        tma.TensorMap.from_bytes(data)


@pytest.mark.parametrize(
    ("bits", "found"),
    [
        ([66], "bit 66 is set"),
        ([83, 90], "bits 83, 90 are set"),
        ([57], "the address is 0x200000000000000"),
        ([69, 70], "bits 68..70 (the rank) are 7"),
        ([64], "bits 68..70 (the rank) are 1"),  # im2col
        ([75, 76], "bits 75..76 say interleave 3"),
        ([71, 72, 73, 74], "bits 71..74 and 80 say element type 15, tf32 False"),
        ([80], "bits 71..74 and 80 say element type 0, tf32 True"),
    ],
)
def test_bits_that_no_measured_map_has_are_refused(bits, found):
    word = sum(1 << bit for bit in bits)
    with pytest.raises(TmaPreconditionError) as caught:
        tma.TensorMap.from_bytes(word.to_bytes(128, "little"))
    assert caught.value.violations[0].found == found


def test_a_rank_that_no_map_of_its_kind_has_is_refused_with_the_ranks_that_it_has():
    for places, must in (([69, 70], "1..5 in a tiled map"), ([64], "3..5 in an im2col map")):
        word = sum(1 << bit for bit in places)
        with pytest.raises(TmaPreconditionError, match=f"they must be {must}"):
            tma.TensorMap.from_bytes(word.to_bytes(128, "little"))
