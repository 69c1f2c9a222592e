"""Faults whose operands are unknown: likely causes, with their evidence."""

from __future__ import annotations

import struct

import pytest

import tma_dlpack as tma
from tma_dlpack.debug.postmortem import read
from tma_dlpack.debug.postmortem.dump import SHARED, Dump
from tma_dlpack.debug.postmortem.flow import Registers
from tma_dlpack.debug.postmortem.results import fault_lines

#: Case in which no register has the map's address any more -> the likely rules, and the evidence.
WITHOUT_MAP = {
    "nowhere": (["TENSOR_ADDRESS"] * 2, "if it used the map at parameter +0x70"),
    "host": (["TENSOR_ADDRESS"] * 2, "an address of the host"),
    "local": (["MAP_IN_LOCAL_MEMORY", "MAP_ADDRESS"], "8 stores to local memory"),
    "shared": (["MAP_ADDRESS"], "the map may be in shared memory"),
    "zeros": (["MAP_OF_ZEROS", "MAP_ADDRESS"], "128 zero bytes at +0x70"),
    "rank": (["MAP_RANK"] * 2, "UTMALDG.3D has 3 coordinates, and the map's rank is 2"),
    "coordinate": (["COORDINATE_16B"] * 2, "the innermost coordinate is 3"),
    "map_off_32": (["MAP_ALIGNED"], "the map itself may not be at a multiple of 64 bytes"),
}


@pytest.mark.parametrize("case", WITHOUT_MAP)
def test_a_copy_whose_map_register_is_lost_ranks_the_maps_of_its_kernel(dumps, case, monkeypatch):
    rules, evidence = WITHOUT_MAP[case]
    monkeypatch.setattr(Registers, "pair", lambda *_: None)
    (fault,) = tma.postmortem(dumps / f"fault_{case}.core").faults
    assert [cause.rule for cause in fault.causes] == rules
    assert all(cause.is_likely and not cause.is_sure and cause.fix for cause in fault.causes)
    assert evidence in " ".join(cause.message for cause in fault.causes)
    assert fault.rule == rules[0]
    assert f"  {rules[0]}: likely: " in "\n".join(fault_lines(fault))
    assert any("by which map it copied is not known" in note for note in fault.notes)


def with_barrier(dumps, content: int) -> Dump:
    """Return the dump of a barrier that was never initialised, with other bytes at its address."""
    whole = bytearray((dumps / "fault_never_initialised.core").read_bytes())
    dump = Dump(memoryview(bytes(whole)), "some.core")
    (block,) = dump.blocks
    section = dump._children[SHARED, block.section, block.number]
    struct.pack_into("<Q", whole, int(dump.elf.sections["offset"][section]) + 0x400, content)
    return Dump(memoryview(whole), "some.core")


def test_a_barrier_whose_bytes_are_other_data_was_overwritten_or_never_initialised(dumps):
    data = 0x3C003C00_3C003C02  # four float16; the count is not 0, and all arrivals are pending
    (fault,) = read(with_barrier(dumps, data)).faults
    assert [cause.rule for cause in fault.causes] == ["BARRIER_INIT", "BARRIER_ARRIVALS"]
    assert fault.message == (
        "the barrier 0x400 was never initialised, or its 8 bytes were overwritten: they hold "
        f"{data:#018x}, which cannot be an mbarrier"
    )
    assert fault.causes[0].is_likely


def test_a_barrier_of_zeros_is_known_to_be_uninitialised(dumps):
    (fault,) = read(with_barrier(dumps, 0)).faults
    (cause,) = fault.causes
    assert (cause.rule, cause.is_sure, cause.is_likely) == ("BARRIER_INIT", True, False)


def test_a_barrier_whose_address_is_lost_is_answered_from_shared_memory(dumps, monkeypatch):
    monkeypatch.setattr(Registers, "barrier", lambda *_: None)
    (fault,) = read(with_barrier(dumps, 0)).faults
    assert fault.rule == "BARRIER_INIT"
    assert fault.message.endswith("no 8 bytes of the block's shared memory look like an mbarrier")
    (fault,) = read(with_barrier(dumps, 0x3FC001FFFFE)).faults
    assert "1 place of shared memory look" in fault.message
    assert "(0x400)" in fault.message


def test_what_is_proved_is_never_called_likely(dumps):
    for path in sorted(dumps.glob("fault_*.core")):
        for fault in tma.postmortem(path).faults:
            assert not any(cause.is_likely for cause in fault.causes), path.name


@pytest.mark.parametrize("entry_bytes", range(1, 8))
def test_a_table_whose_rows_are_shorter_than_a_field_is_refused(dumps, entry_bytes, tmp_path):
    whole = bytearray((dumps / "fault_rank.core").read_bytes())
    dump = Dump(memoryview(bytes(whole)), "some.core")
    row = int.from_bytes(whole[40:48], "little") + 64 * dump._device_table
    struct.pack_into("<Q", whole, row + 56, entry_bytes)
    path = tmp_path / "some.core"
    path.write_bytes(whole)
    said = f"a row of its device table has {entry_bytes} bytes"
    with pytest.raises(tma.TmaPreconditionError, match=said):
        tma.postmortem(path)


def test_a_sparse_file_of_many_sections_is_refused_before_they_are_read(tmp_path):
    count = 1 << 26  # 4 GiB of section headers, none of them on the disk
    path = tmp_path / "sparse.core"
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 4, 190, 1, 0, 0, 64, 0, 64, 0, 0, 64, 0, 0)
    with path.open("wb") as file:
        file.write(header + bytes(32) + struct.pack("<Q", count))
        file.truncate(64 * (count + 1))
    with pytest.raises(tma.TmaPreconditionError, match="has 67,108,864 sections"):
        tma.postmortem(path)


def test_hidden_characters_of_names_are_escaped(dumps):
    found = tma.postmortem(dumps / "fault_rank.core")
    object.__setattr__(found.faults[0], "lines", ("a\x1b[2J\u202e.cu:3",))
    for shown in (str(found), found._repr_html_()):
        assert "a\\x1b[2J\\u202e.cu:3" in shown
        assert "\x1b" not in shown
