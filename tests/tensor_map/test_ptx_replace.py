"""`TensorMap.replace`: PTX tensormap.replace on the bytes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle

ZEROED = tma.TensorMap.from_bytes(bytes(128))


WHOLE_BYTES = [t for t in TensorMapDataType if t.value <= 12]


def tiled_arguments(rank):
    """Draw tiled arguments that fit the fields, even if the rules refuse them."""

    def entries(low, high):
        return st.tuples(*[st.integers(low, high)] * rank)

    strides = st.tuples(*[st.integers(0, (1 << 36) - 1).map(lambda n: 16 * n)] * (rank - 1))
    return st.builds(
        partial(EncodeArguments, "tiled"),  # whose other fields are left out
        data_type=st.sampled_from(WHOLE_BYTES),
        global_dim=entries(1, (1 << 32) - 1),
        global_strides=strides,
        element_strides=entries(1, 8),
        box_dim=entries(1, 256),
        interleave=st.sampled_from(TmaInterleaveLayout),
        swizzle=st.sampled_from([s for s in TmaSwizzle if s.value <= 3]),
        oob_fill=st.sampled_from(TmaOobFill),
    ).filter(lambda a: a.floor_box_bytes < 1 << 32)


anything = st.integers(1, 5).flatmap(tiled_arguments)
addresses = st.integers(0, (1 << 53) - 1).map(lambda n: 16 * n)


def all_fields(a, address):
    return {
        "global_address": address,
        "rank": a.rank,
        "box_dim": dict(enumerate(a.box_dim)),
        "global_dim": dict(enumerate(a.global_dim)),
        "global_stride": dict(enumerate(a.global_strides)),
        "element_stride": dict(enumerate(a.element_strides)),
        "elemtype": a.data_type,
        "interleave_layout": a.interleave,
        "swizzle_mode": a.swizzle,
        "fill_mode": a.oob_fill,
    }


@given(anything, addresses)
def test_a_zeroed_map_changed_field_by_field_equals_the_encoders_first_64_bytes(a, address):
    changed = ZEROED
    for name, value in all_fields(a, address).items():
        changed = changed.replace(**{name: value})
    assert bytes(changed) == bits.encode(a, address)[:64] + bytes(64)
    assert changed.arguments == a


@given(anything, anything, addresses)
def test_bytes_64_to_127_stay_as_they_were(a, b, address):
    tf32 = "TFLOAT32", "TFLOAT32_FTZ"
    assume(a.data_type.name not in tf32 or b.data_type.name in tf32)  # else refused, see below
    tm = tma.TensorMap.from_bytes(bits.encode(a, address))
    changed = tm.replace(**all_fields(b, address ^ 16))
    assert bytes(changed)[64:] == bytes(tm)[64:]
    kept_l2 = b._replace(l2_promotion=a.l2_promotion)
    assert changed.arguments == kept_l2


def test_elemtype_tells_a_data_type_from_a_ptx_number_by_its_type():
    assert ZEROED.replace(elemtype=TensorMapDataType.BFLOAT16).data_type.name == "BFLOAT16"
    assert ZEROED.replace(elemtype="BFLOAT16").data_type.name == "BFLOAT16"
    assert ZEROED.replace(elemtype=10).data_type.name == "BFLOAT16"
    assert ZEROED.replace(elemtype=int(TensorMapDataType.BFLOAT16)).data_type.name == "FLOAT64"
    assert [ZEROED.replace(elemtype=n).data_type.name for n in range(13)] == [
        "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32",
        "FLOAT32_FTZ", "FLOAT64", "BFLOAT16", "TFLOAT32", "TFLOAT32_FTZ",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"global_address": (1 << 57) - 16}, {"global_address": 1 << 57}),
        ({"global_address": 16}, {"global_address": 8}),
        ({"rank": 5}, {"rank": 6}),
        ({"rank": 1}, {"rank": 0}),
        ({"box_dim": {4: 256}}, {"box_dim": {4: 257}}),
        ({"box_dim": {4: 1}}, {"box_dim": {5: 1}}),
        ({"global_dim": {0: (1 << 32) - 1}}, {"global_dim": {0: 1 << 32}}),
        ({"global_stride": {3: (1 << 40) - 16}}, {"global_stride": {3: 1 << 40}}),
        ({"global_stride": {3: 16}}, {"global_stride": {4: 16}}),
        ({"global_stride": {0: 32}}, {"global_stride": {0: 24}}),
        ({"element_stride": {0: 8}}, {"element_stride": {0: 9}}),
        ({"elemtype": 12}, {"elemtype": 13}),
        ({"elemtype": "UINT8"}, {"elemtype": "16U4_ALIGN8B"}),
        ({"interleave_layout": 2}, {"interleave_layout": 3}),
        ({"swizzle_mode": 3}, {"swizzle_mode": 4}),
        ({"fill_mode": "nan"}, {"fill_mode": "nano"}),
        ({"rank": np.int64(2)}, {"rank": True}),
        ({"box_dim": {0: 64}}, {"box_dim": (64, 64)}),
        ({"box_dim": {0: 64}}, {"box_dim": {0: 64.0}}),
        ({"box_dim": {np.int64(0): np.int32(64)}}, {"box_dim": {True: 64}}),
        ({"elemtype": np.int64(3)}, {"elemtype": tma.TmaSwizzle.bytes128}),
        ({"rank": 3}, {"rank": 10**5000}),
        ({"swizzle_mode": "none"}, {"swizzle_mode": object()}),
        ({"fill_mode": 1}, {"fill_mode": 10**5000}),
        ({"elemtype": "UINT8"}, {"elemtype": object()}),
        ({"elemtype": "FLOAT16"}, {"elemtype": "FLOAT16" + " " * 10**6}),
        ({"box_dim": {0: 64}}, {"box_dim": object()}),
        ({"box_dim": {0: 64}}, {"box_dim": {0: object()}}),
    ],
)
def test_values_out_of_range_are_refused(good, bad):
    assert isinstance(ZEROED.replace(**good), tma.TensorMap)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        ZEROED.replace(**bad)
    assert [(v.rule, v.argument) for v in refused.value.violations] == [("REPLACE_VALUE", *bad)]
    assert len(str(refused.value)) < 1000
    with pytest.raises(tma.TmaPreconditionError):
        ZEROED.replace_cuda(**bad)


def test_all_values_out_of_range_are_told_at_once():
    with pytest.raises(tma.TmaPreconditionError) as refused:
        ZEROED.replace(rank=9, fill_mode=2, box_dim={0: 0})
    assert [v.argument for v in refused.value.violations] == ["rank", "box_dim", "fill_mode"]


def test_an_im2col_map_cannot_be_replaced():
    images = np.zeros((2, 8, 8, 16), np.float32)
    tm = tma.make_im2col_descriptor(images, (0, 0), (0, 0), 16, 8)
    with pytest.raises(tma.TmaUnsupportedError, match="tiled maps only"):
        tm.replace(rank=4)
    with pytest.raises(tma.TmaUnsupportedError, match="tiled maps only"):
        tm.replace_cuda(rank=4)


def test_a_map_keeps_its_tensor_unless_the_address_is_replaced():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    tm = tma.make_tma_descriptor(x, (2, 8))
    smaller = tm.replace(box_dim={1: 1})
    assert smaller.tensor is x
    assert np.array_equal(tma.load_tile(smaller, (3, 0)).array, x[3:4])
    assert not smaller.launchable
    moved = tm.replace(global_address=4096)
    assert (moved.tensor, moved.launchable) == (None, True)


def test_no_change_is_the_same_map():
    tm = tma.TensorMap.from_bytes(bytes(ZEROED.replace(rank=3)))
    assert tm.replace() == tm


def test_a_tf32_map_stays_one_because_the_instruction_does_not_clear_its_bit():
    """ptxas 13.0 does so for sm_90a. With the bit, a copy by a map of another type faults."""
    tf32 = ZEROED.replace(elemtype="TFLOAT32")
    assert tf32.replace(elemtype="TFLOAT32_FTZ").data_type.name == "TFLOAT32_FTZ"
    assert ZEROED.replace(elemtype="BFLOAT16").replace(elemtype=7).data_type.name == "FLOAT32"
    with pytest.raises(tma.TmaPreconditionError, match="elemtype is FLOAT32 for a map of TFLOAT32"):
        tf32.replace(elemtype="FLOAT32")
    with pytest.raises(tma.TmaPreconditionError, match="start from a map of another type"):
        tf32.replace_cuda(elemtype=10)
