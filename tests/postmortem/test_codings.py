"""Instructions, operands and branches have nvdisasm's names, for every architecture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tma_dlpack.debug.postmortem.sass import Instruction

LISTED = [
    line.split(maxsplit=4)
    for line in (Path(__file__).parent / "golden" / "codings.txt").read_text().splitlines()
]
NOT_SAID = re.compile(
    r"\.(2CTA|OPTOUT|DEFER_BLOCKING|SYNC)\b|(?<=UBLKRED\.G\.S)\.ADD"
)  # parts of names that are omitted


def mnemonic(text: str) -> str:
    return NOT_SAID.sub("", next(word for word in text.split() if not word.startswith("@")))


def instruction(target: str, low: str, high: str) -> Instruction:
    return Instruction(int(low, 16), int(high, 16), int(re.sub(r"\D", "", target)) // 10)


@pytest.mark.parametrize("target", ["90a", "100a", "103a", "110a", "120a"])
def test_instructions_are_named_as_nvdisasm_names_them(target):
    rows = [row for row in LISTED if row[0] == target]
    named = [(instruction(row[0], row[2], row[3]).name, mnemonic(row[4])) for row in rows]
    assert [ours for ours, _ in named] == [theirs for _, theirs in named]
    assert len(rows) > 50


@pytest.mark.parametrize("target", ["90a", "100a", "103a", "110a", "120a"])
def test_operands_are_those_that_nvdisasm_prints(target):
    zero = 63 if target == "90a" else 255
    for row in LISTED:
        if row[0] != target:
            continue
        op, text = instruction(row[0], row[2], row[3]), row[4]
        registers = [int(n) if n.isdigit() else zero for n in re.findall(r"\bUR(\d+|Z)\b", text)]
        if op.coding is not None:
            assert (op.first, op.second) == tuple(registers[:2]), text
            third = re.search(r"\], UR(\d+)", text)
            assert third is None or op.third == int(third[1]), text
        if op.is_wait or op.is_arrival:
            address = re.search(r"\[(?:R(\d+|Z)\+)?UR(\d+|Z)(?:\+(0x[0-9a-f]+))?\]", text)
            assert address is not None, text
            register, uniform, more = address.groups()
            assert op.second == (int(register) if register else 255), text
            assert op.third == (zero if uniform == "Z" else int(uniform)), text
            assert op.immediate == int(more or "0", 16), text


def test_a_branch_goes_where_nvdisasm_says():
    # from fault_store_off_64: @P1 BRA at 0x50 to 0xf0; @!P1 BRA at 0xe0 to 0xa0
    forward = Instruction(0x0000000000241947, 0x000FEA0003800000, 9)
    back = Instruction(0xFFFFFFFC00EC9947, 0x002FEA000383FFFF, 9)
    far = Instruction(0x0000000C0038B947, 0x002FEC0003800000, 9)
    assert 0x50 + 16 + forward.branch == 0xF0
    assert 0xE0 + 16 + back.branch == 0xA0
    assert 0x2390 + 16 + far.branch == 0x3080
    assert (forward.ends, forward.guard) == (False, 1)


def test_what_is_no_instruction_of_tma_has_no_name():
    assert Instruction(0x0000000502007986, 0x002FE2000C101904, 9).name == ""


def test_a_wait_sets_a_scoreboard_for_its_answer():
    waits = [op for row in LISTED if (op := instruction(row[0], row[2], row[3])).is_wait]
    assert len(waits) > 30
    assert {op.set_scoreboards[0] < 6 for op in waits} == {True}
    # from grouped_gemm.cu: @!P0 BRA, nine instructions after the SYNCS whose answer it needs
    wait = Instruction(0x000000169B0075A7, 0x0020E64000800017F, 9)
    branch = Instruction(0x0000002400D08947, 0x002FEC0003800000, 9)
    assert (wait.set_scoreboards, branch.needed_scoreboards) == ((1, 7), (1,))
