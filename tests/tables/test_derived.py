"""Tiled maps of sm_100 and later, read by the layout that is derived from the compiler."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from draw_cases import pictured
from hypothesis import given
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.tables.bits import DERIVED_FIELDS, FIELDS
from tma_dlpack.tables.targets import TARGETS

DERIVED = [name for name, t in TARGETS.items() if t.has_derived_layout]
ADDRESS = 0x7F00_0000_0000
CHANGES = {
    "global_address": ADDRESS,
    "rank": 2,
    "global_dim": {0: 64, 1: 128},
    "global_stride": {0: 128},
    "box_dim": {0: 64, 1: 16},
    "elemtype": "FLOAT16",
    "swizzle_mode": "bytes128",
}


def map_of(target="sm_100", **changes):
    return tma.TensorMap.from_bytes(bytes(128), target).replace(**CHANGES | changes)


def rules(call) -> list[str]:
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call()
    return [violation.rule for violation in caught.value.violations]


def with_bits(tm, *positions):
    word = int.from_bytes(bytes(tm), "little")
    for position in positions:
        word |= 1 << position
    return word.to_bytes(128, "little")


@pytest.mark.parametrize("target", DERIVED)
def test_a_tiled_map_reads_as_on_sm_90(target):
    here, there = map_of(target), map_of("sm_90")
    assert bytes(here) == bytes(there)
    assert here.arguments == there.arguments
    assert here.target is TARGETS[target]
    assert (here.encoder, here.launchable) == (None, True)


def test_all_presets_but_sm_90_are_derived():
    assert {*TARGETS} - {"sm_90"} == {*DERIVED}


@given(
    st.sampled_from(DERIVED),
    st.sampled_from(tma.TmaSwizzle),
    st.sampled_from(tma.TensorMapDataType),
    st.integers(1, 5),
)
def test_what_is_replaced_is_read_again(target, swizzle, data_type, rank):
    tm = map_of(target, swizzle_mode=swizzle, elemtype=data_type, rank=rank)
    again = tma.TensorMap.from_bytes(bytes(tm), target)
    assert again == tm
    assert (again.swizzle, again.data_type, again.rank) == (swizzle, data_type, rank)


@pytest.mark.parametrize(
    ("swizzle", "mode_and_atomicity"),
    [
        ("bytes32", (1, 0)),
        ("bytes128", (3, 0)),
        ("bytes128_atom_32B", (3, 1)),
        ("bytes128_atom_32B_flip_8B", (3, 2)),
        ("bytes128_atom_64B", (3, 3)),
    ],
)
def test_a_swizzle_is_a_mode_and_an_atomicity(swizzle, mode_and_atomicity):
    word = int.from_bytes(bytes(map_of(swizzle_mode=swizzle)), "little")
    assert (word >> 77 & 3, word >> 83 & 3) == mode_and_atomicity


@pytest.mark.parametrize(
    ("data_type", "ptx", "held"),
    [("16U4_ALIGN8B", 13, 11), ("16U4_ALIGN16B", 14, 12), ("16U6_ALIGN16B", 15, 13)],
)
def test_packed_types_have_numbers_of_their_own(data_type, ptx, held):
    tm = map_of(elemtype=data_type)
    assert tm == map_of(elemtype=ptx)
    assert int.from_bytes(bytes(tm), "little") >> 71 & 15 == held
    with pytest.raises(tma.TmaPreconditionError, match="whole bytes on sm_90a"):
        map_of("sm_90", elemtype=data_type)
    assert rules(lambda: map_of("sm_90", elemtype=ptx)) == ["REPLACE_VALUE"]


@pytest.mark.parametrize("bit", [66, 87, 95, 240, 431, 500])
def test_a_bit_that_no_field_has_is_refused(bit):
    tm = map_of()
    with pytest.raises(tma.TmaPreconditionError, match=f"bit {bit} is set; they must be 0 in a"):
        tma.TensorMap.from_bytes(with_bits(tm, bit), "sm_100")


def test_an_atomicity_without_its_swizzle_is_refused():
    data = with_bits(map_of(swizzle_mode="bytes32"), 83)
    assert rules(lambda: tma.TensorMap.from_bytes(data, "sm_100")) == ["MAP_BYTES"]
    assert rules(lambda: tma.TensorMap.from_bytes(with_bits(map_of(), 83))) == ["MAP_BYTES"]


def test_what_nobody_knows_is_unsupported():
    data = with_bits(map_of("sm_103"), 86)
    with pytest.raises(tma.TmaUnsupportedError, match="swizzle of 96 bytes"):
        tma.TensorMap.from_bytes(data, "sm_103")


def test_another_target_has_no_layout():
    unknown = tma.Target((10, 1))
    with pytest.raises(tma.TmaUnsupportedError, match=r"the 128 bytes of a map for sm_101 are not"):
        tma.TensorMap.from_bytes(bytes(128), unknown)


def test_text_and_picture_say_that_the_layout_is_derived():
    note = "derived from ptxas 13.0 and maps of CuTe DSL 4.8.1, not measured"
    assert f"layout {note}" in str(map_of())
    assert note not in str(map_of("sm_90"))
    figure = draw.fields_of(map_of(swizzle_mode="bytes128_atom_64B"))
    assert figure.notes[-2] == f"layout {note}"
    assert {v.field: v.values for v in figure.values}["swizzle_atomicity"] == ("3",)
    assert "measured on an H200" in draw.fields_of(map_of("sm_90")).notes[-1]
    assert note.replace("'", "&#x27;") in pictured(figure._repr_html_())


@pytest.mark.parametrize("swizzle", ["none", "bytes64", "bytes128_atom_32B"])
def test_a_map_that_was_read_can_be_simulated(swizzle):
    memory = np.random.default_rng(0).integers(0, 256, 1 << 15, dtype=np.uint8)
    address = memory.ctypes.data
    box = {0: 32, 1: 8}
    tm = map_of("sm_120", global_address=address, box_dim=box, swizzle_mode=swizzle)
    tile = tma.load_tile(tm, (4, 16), memory=memory)
    values = memory.view(np.float16).reshape(-1, 64)
    expected = values[4:12, 16:48]
    assert np.array_equal(tile.array.view(np.uint16), expected.view(np.uint16))


def test_the_fields_of_the_derived_layout_are_those_of_sm_90_and_one_more():
    extra = [f for f in DERIVED_FIELDS if f not in FIELDS]
    assert [(f.name, f.pieces) for f in extra] == [("swizzle_atomicity", ((83, 2),))]
    assert [f for f in FIELDS if f not in DERIVED_FIELDS] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
def test_nvcc_takes_the_code_of_every_change(arch, tmp_path):
    changes = CHANGES | {"swizzle_mode": "bytes128_atom_64B", "elemtype": "16U6_ALIGN16B"}
    code = tma.TensorMap.from_bytes(bytes(128), arch).replace_cuda(**changes)
    source = tmp_path / "map.cu"
    source.write_text(code)
    number = arch.partition("_")[2]
    flags = [f"-gencode=arch=compute_{number}a,code={arch}a", "-std=c++17", "-c"]
    done = subprocess.run(
        ["nvcc", *flags, str(source), "-o", str(tmp_path / "map.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"compute_{number}a,code={arch}a" in code
