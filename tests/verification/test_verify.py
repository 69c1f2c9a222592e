"""`verify` without a GPU: its generators, its report, and facts about an unknown layout."""

from __future__ import annotations

import base64
import io
import sys
import zlib
from collections import Counter
from random import Random

import numpy as np
import pytest
from laws import require_immutable
from strategies import check, drawn, rules_of

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.copies.simulator import SimulatorBackend
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tensor_map import ptx_replace
from tma_dlpack.verification import VerifyReport, VerifyRow, replay, verify
from tma_dlpack.verification.arena import ENCODERS, keywords_of
from tma_dlpack.verification.checks import CHECKS, _judge_bytes
from tma_dlpack.verification.learning import FieldStatistics
from tma_dlpack.verification.on_device import CONSTANTS, NUMBERS, instructions, random_change
from tma_dlpack.verification.random_copies import (
    ARENA_BYTES,
    random_call,
    random_copy,
    start_at_limits,
)
from tma_dlpack.verification.run import _progress

MAX_SMEM_BYTES = 232_448


# --- Generators ---------------------------------------------------------------------------------


def verdicts(kind: str, n: int = 1500) -> Counter[str]:
    """Count the model's results for random calls: accepted, or the first rule that refuses."""
    counts: Counter[str] = Counter()
    for number in range(n):
        call = random_call(kind, Random(number))
        try:
            ENCODERS[kind](**call, encoder="model")
            counts["accepted"] += 1
        except tma.TmaPreconditionError as error:
            counts[error.violations[0].rule] += 1
    return counts


@pytest.mark.parametrize("kind", ["tiled", "im2col", "im2col_wide"])
def test_random_calls_are_accepted_about_half_the_time_and_refused_by_many_rules(kind):
    counts = verdicts(kind)
    assert 0.4 < counts["accepted"] / counts.total() < 0.8
    assert len(counts) >= 14


def test_a_users_calls_of_them_are_accepted_in_part_and_reach_most_rules():
    counts: Counter[str] = Counter()
    for seed in range(1500):
        _, kind, x, options = drawn(seed)
        counts.update(rules_of(check(kind, x, options)) or ["accepted"])
    assert 0.15 < counts["accepted"] / 1500 < 0.4
    assert len(counts) >= 44
    assert min(counts[rule] for rule in ("STRIDE_UNIQUE", "BOX_IN_SHAPE", "PIXELS", "DTYPE")) > 10


def test_the_same_seed_makes_the_same_call():
    assert [drawn(seed) for seed in range(9)] == [drawn(seed) for seed in range(9)]
    assert random_call("im2col", Random("a")) == random_call("im2col", Random("a"))
    assert random_call("im2col", Random("a")) != random_call("im2col", Random("b"))


@pytest.fixture(scope="module")
def arena():
    room = np.random.default_rng(0).integers(0, 256, ARENA_BYTES + 256, np.uint8)
    return room[-room.ctypes.data % 256 :][:ARENA_BYTES]


COPIES = [c for c in CHECKS if c.op in ("load", "store", "reduce")]


@pytest.mark.parametrize("check", COPIES, ids=[c.name for c in COPIES])
def test_random_copies_are_never_refused_and_stay_in_the_arena(check, arena):
    simulator = SimulatorBackend()
    for number in range(200):
        copy = random_copy(check.op, check.kind, Random(number), MAX_SMEM_BYTES)
        tensor_map = ENCODERS[check.kind](
            **keywords_of(copy.arguments),
            global_address=arena.ctypes.data + copy.start,
            encoder="model",
        )
        where = {"memory": arena, "smem_offset": copy.smem_offset}
        if copy.op == "load":
            simulator.load_tile(
                tensor_map, copy.coords, im2col_offsets=copy.im2col_offsets, **where
            )
            continue
        data = np.zeros(tensor_map.smem_bytes, np.uint8)
        if copy.op == "store":
            simulator.store_tile(tensor_map, copy.coords, data, **where)
        else:
            simulator.reduce_tile(tensor_map, copy.coords, data, copy.op, **where)


@pytest.mark.parametrize("kind", ["tiled", "im2col"])
def test_many_random_loads_are_partly_in_bounds(kind, arena):
    partly = 0
    for number in range(200):
        copy = random_copy("load", kind, Random(number), MAX_SMEM_BYTES)
        tensor_map = ENCODERS[kind](
            **keywords_of(copy.arguments),
            global_address=arena.ctypes.data + copy.start,
            encoder="model",
        )
        filled = tma.load_tile(
            tensor_map, copy.coords, im2col_offsets=copy.im2col_offsets, memory=arena
        ).filled
        partly += filled.any() and not filled.all()
    assert partly > 60


def test_starts_at_limits_reach_both_ends_of_32_bits():
    args = EncodeArguments(
        "tiled", tma.TensorMapDataType.UINT8, (1 << 31, 9), (1 << 31,), (1, 1), (16, 8)
    )
    starts = {start_at_limits(Random(n), args)[0] for n in range(400)}
    rows = {row for row, _ in starts}
    assert {-(1 << 31), (1 << 31) - 1, 0, 8, 9, -1, -8, 1} <= rows
    assert all(column % 16 == 0 for _, column in starts)


@pytest.mark.parametrize(
    ("data_type", "step"),
    [("16U4_ALIGN8B", 32), ("16U4_ALIGN16B", 32), ("16U6_ALIGN16B", 64)],
)
def test_starts_at_limits_are_on_16_bytes_of_packed_values_too(data_type, step):
    args = EncodeArguments(
        "tiled", tma.TensorMapDataType[data_type], (1 << 20, 9), (1 << 20,), (1, 1), (128, 8)
    )
    columns = {start_at_limits(Random(n), args)[0][1] for n in range(400)}
    assert len(columns) > 20
    assert all(column % step == 0 for column in columns)


# --- Report -------------------------------------------------------------------------------------

AGREED = VerifyRow("encode tiled", 1000, 612, 0)
DIFFERED = VerifyRow("tile loads", 20, 20, 3, "tma_dlpack.replay(...)\nTile.smem differs", "a note")


def test_the_report_is_ok_only_without_disagreements():
    assert VerifyReport("GPU", 0, (AGREED,)).ok
    assert not VerifyReport("GPU", 0, (AGREED, DIFFERED)).ok


def test_the_report_is_a_table_with_the_first_disagreement():
    lines = str(VerifyReport("a GPU", 7, (AGREED, DIFFERED))).splitlines()
    assert lines == [
        "a GPU; seed 7",
        "check         cases  accepted  disagreements",
        "encode tiled   1000       612              0",
        "tile loads       20        20              3",
        "tile loads: a note",
        "tile loads, first disagreement:",
        "tma_dlpack.replay(...)",
        "Tile.smem differs",
        "THERE ARE DISAGREEMENTS",
    ]


@pytest.mark.parametrize("frozen", [AGREED, VerifyReport("GPU", 0, (AGREED,))])
def test_a_report_and_its_rows_cannot_be_changed(frozen):
    require_immutable(frozen)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_a_bar_that_is_wiped_away(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(_progress("tile loads", 4)) == [0, 1, 2, 3]
    shown = sys.stderr.getvalue()
    assert "\rtile loads           [###############...............] 2/4" in shown
    assert shown.endswith("\r\x1b[K")


def test_a_file_sees_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(_progress("tile loads", 3)) == [0, 1, 2]
    assert sys.stderr.getvalue() == ""


@pytest.mark.skipif(driver.is_available(), reason="there is a GPU here")
def test_without_a_gpu_verify_says_so():
    with pytest.raises(tma.TmaUnsupportedError):
        verify(1)


def test_no_cases_are_refused():
    with pytest.raises(ValueError, match="n is 0"):
        verify(0)


def test_an_unknown_check_cannot_be_replayed():
    with pytest.raises(ValueError, match="name is 'loads'; it must be one of: encode tiled, "):
        replay("loads", 0)


# --- A layout that nobody has measured ----------------------------------------------------------


def learnt_from(change) -> str:
    learnt = FieldStatistics()
    for number in range(300):
        try:
            tensor_map = tma.driver_encode_tiled(
                **random_call("tiled", Random(number)), encoder="model"
            )
        except tma.TmaPreconditionError:
            continue
        arguments, address = tensor_map.arguments, tensor_map.global_address
        learnt.add(arguments, address, change(bits.encode(arguments, address)))
    return str(learnt)


def test_the_known_layout_agrees_in_all_fields():
    text = learnt_from(lambda data: data)
    assert text.startswith("of 32 fields of sm_90's layout, 32 agree in all")
    assert text.endswith("maps")


def test_a_moved_field_and_an_unknown_bit_are_told():
    def change(data):
        word = int.from_bytes(data, "little") ^ 1 << 77 | 1 << 87
        return word.to_bytes(128, "little")

    text = learnt_from(change)
    assert "31 agree in all" in text
    assert "these do not: swizzle (0 of " in text
    assert text.endswith("bits outside all fields are set: 87")


def test_types_that_sm_90_lacks_are_left_out():
    learnt = FieldStatistics()
    packed = tma.TensorMapDataType["16U4_ALIGN8B"]
    args = EncodeArguments("tiled", packed, (128, 4), (64,), (1, 1), (128, 1))
    learnt.add(args, 0, bytes(128))
    assert learnt.maps == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: verify(0),
        lambda: verify("a"),
        lambda: verify(1.5),
        lambda: verify(1, -1),
        lambda: verify(1, device_id="a"),
        lambda: verify(1, device_id=-1),
        lambda: replay("loads", 0),
        lambda: replay(None, 0),
        lambda: replay("tile loads", "first"),
    ],
)
def test_numbers_and_names_that_verify_cannot_use_are_refused_as_ours(ask):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        ask()
    (violation,) = caught.value.violations
    assert violation.rule == "ARGUMENT"
    assert violation.fix


def test_how_copies_differ_is_kept_for_the_file():
    mine, real = np.arange(300, dtype=np.uint8), np.arange(300, dtype=np.uint8)
    assert _judge_bytes("call", {"Tile.smem": (mine, real)}).evidence == {"hardware": "copied"}
    real[7] ^= 0x21
    outcome = _judge_bytes("call", {"Tile.smem": (mine, real)})
    assert outcome.difference == (
        "Tile.smem differs in 1 bytes, first at 7: the simulator has 0x07, the hardware 0x26"
    )
    different = zlib.decompress(base64.b64decode(outcome.evidence["xor"]))
    assert np.array_equal(mine ^ np.frombuffer(different, np.uint8), real)
    assert outcome.evidence["what"] == "Tile.smem"


# --- Maps that a kernel changes -----------------------------------------------------------------


def test_random_changes_overwrite_every_field_that_tensormap_replace_has():
    changes = [random_change(Random(number), MAX_SMEM_BYTES) for number in range(300)]
    changed = {field.ptx for change in changes for field in change.fields}
    assert changed == set(NUMBERS)
    assert {change.in_place for change in changes} == {True, False}


@pytest.mark.parametrize("number", range(40))
def test_the_instructions_of_a_change_restore_the_map(number):
    change = random_change(Random(number), MAX_SMEM_BYTES)
    expected = bits.encode(change.copy.arguments, 1 << 40)
    before = expected
    for field, value in zip(change.fields, change.overwritten_by, strict=True):
        before = field.write(before, value)
    assert restored(before, instructions(change, expected)) == expected


def restored(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Apply the changes of changes.cu with the model of ``tensormap.replace``."""
    name_of = {number: name for name, number in NUMBERS.items()}
    for number, value in changes:
        name = name_of[16 if number >= 128 else number // 8]
        place = None if name in (*CONSTANTS, "global_address", "rank") else number % 8
        data = ptx_replace.apply(data, (ptx_replace.Replacement(name, place, value),))
    return data
