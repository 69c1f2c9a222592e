"""Causes that no golden dump has: each row applies to a case, and not to a neighbour."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.debug.postmortem import hangs, memory
from tma_dlpack.debug.postmortem.causes import Use, causes_of
from tma_dlpack.debug.postmortem.dump import Dump
from tma_dlpack.debug.postmortem.memory import Word
from tma_dlpack.debug.postmortem.results import FoundMap
from tma_dlpack.debug.postmortem.sass import Instruction
from tma_dlpack.debug.postmortem.survey import Code, State, Wait

LOAD_2D = Instruction(0x00000004080075B4, 0x0001D80008008000, 9)
LOAD_MULTICAST = Instruction(0x00000008060073B4, 0x0001D80008008804, 9)
STORE_IM2COL_4D = Instruction(0x000000080E0073B5, 0x0001E40008058000, 9)
BULK_STORE = Instruction(0x00000006050073BA, 0x0001E40008000404, 9)
ARRIVE_EXPECT = Instruction(0x00000000FFFF79A7, 0x001FE20008000004, 9)
ARRIVE_COUNT = Instruction(0x00000000FFFF79A7, 0x001FE20008500004, 9)
PLAIN = tma.make_tma_descriptor(np.zeros((64, 64), np.uint16), (64, 64))
SMALL = tma.make_tma_descriptor(np.zeros((64, 64), np.uint16), (2, 16))  # 64 bytes
IMAGE = np.zeros((2, 8, 8, 64), np.float16)


def im2col(corner: int) -> tma.TensorMap:
    corners = (-corner, -corner), (corner, corner)
    return tma.make_im2col_descriptor(
        IMAGE, *corners, channels_per_pixel=64, pixels_per_column=16, rules="driver"
    )


@pytest.fixture(scope="module")
def warp(dumps):
    dump = Dump.open(dumps / "fault_rank.core")
    return next(dump.warps(dump.blocks[0]))


#: Rule -> instruction, error, facts to which the rule applies, facts of a neighbour.
NEIGHBOURS = {
    "MAP_BYTES": (LOAD_2D, 4, {"why_no_map": "rank is 9", "map_address": 64}, {"map": PLAIN}),
    "MAP_ALIGNED": (LOAD_2D, 6, {"map_address": 32}, {"map_address": 64}),
    "MAP_OF_ZEROS": (LOAD_2D, 4, {"map_bytes": bytes(128)}, {"map_bytes": bytes(127) + b"\1"}),
    "COORDINATE_16B": (
        LOAD_2D, 4,
        {"map": PLAIN, "coordinates": (7, 0)}, {"map": PLAIN, "coordinates": (8, 0)},
    ),
    "IM2COL_STORE_CORNERS": (STORE_IM2COL_4D, 4, {"map": im2col(1)}, {"map": im2col(0)}),
    "SMEM_ALIGNED": (LOAD_2D, 6, {"shared_address": 0x440}, {"shared_address": 0x480}),
    "SMEM_RANGE": (
        LOAD_2D, 5,
        {"map": PLAIN, "shared_address": 0x2080, "shared_bytes": 0x4000},
        {"map": PLAIN, "shared_address": 0x2000, "shared_bytes": 0x4000},
    ),
    "BARRIER_ALIGNED": (LOAD_2D, 6, {"barrier": 0x404}, {"barrier": 0x408}),
    "BARRIER_RANGE": (
        LOAD_2D, 5,
        {"barrier": 0x4000, "shared_bytes": 0x4000}, {"barrier": 0x3FF8, "shared_bytes": 0x4000},
    ),
    "MULTICAST_BLOCK": (
        LOAD_MULTICAST, 4,
        {"blocks_mask": 0b101, "cluster_blocks": 2}, {"blocks_mask": 0b11, "cluster_blocks": 2},
    ),
    "BARRIER_INIT": (
        ARRIVE_EXPECT, 4,
        {"word": Word.decode(0), "barrier": 8}, {"word": Word(1, 1, 0, 0), "barrier": 8},
    ),
    "BARRIER_INIT_LATE": (
        ARRIVE_EXPECT, 4,
        {"word": Word(2, 2, 0, 0), "barrier": 8, "operand": 64},
        {"word": Word(2, 1, 0, 0), "barrier": 8, "operand": 64},
    ),
    "BARRIER_ARRIVALS": (
        ARRIVE_COUNT, 4,
        {"word": Word(4, 2, 0, 0), "barrier": 8, "operand": 3},
        {"word": Word(4, 2, 0, 0), "barrier": 8, "operand": 2},
    ),
    "BARRIER_BYTES": (
        ARRIVE_EXPECT, 4,
        {"word": Word(1, 1, 1, 0), "barrier": 8, "operand": (1 << 20) - 1},
        {"word": Word(1, 1, 1, 0), "barrier": 8, "operand": (1 << 20) - 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", NEIGHBOURS)
def test_a_cause_holds_and_does_not_hold_one_step_beside(rule, warp):
    op, exception, holds, beside = NEIGHBOURS[rule]

    def found(known: dict) -> list[str]:
        return [cause.rule for cause in causes_of(_use(warp, op, exception, known))]

    assert found(holds)[:1] == [rule]
    assert rule not in found(beside)


def _use(warp, op, exception, known) -> Use:
    known = dict(known)
    sizes = known.pop("shared_bytes", 0), known.pop("cluster_blocks", 1)
    return Use(warp, op, exception, *sizes, **known)


def test_a_cause_that_ends_in_another_error_comes_last_and_says_so(warp):
    known = {"map": PLAIN, "coordinates": (7, 0), "shared_address": 0x440}
    causes = causes_of(_use(warp, LOAD_2D, 6, known))
    assert [(cause.rule, cause.is_sure) for cause in causes] == [
        ("SMEM_ALIGNED", True),
        ("COORDINATE_16B", False),
    ]


def test_what_a_bulk_store_reads_in_shared_memory_is_its_source(warp):
    (cause,) = causes_of(_use(warp, BULK_STORE, 6, {"shared_address": 0x408}))
    assert cause.message == "the source 0x408 is 8 bytes past a multiple of 16"
    assert BULK_STORE.name == "UBLKCP.G.S"


def test_of_what_is_not_known_nothing_is_concluded(warp):
    assert causes_of(_use(warp, LOAD_2D, 4, {})) == ()


def test_an_error_of_a_newer_driver_may_be_any_causes(warp):
    (cause,) = causes_of(_use(warp, LOAD_2D, 99, {"barrier": 0x404}))
    assert (cause.rule, cause.is_sure) == ("BARRIER_ALIGNED", True)


#: Facts of a kernel whose expected bytes are not constants, and of a kernel with multicast.
CODE = Code(frozenset({None}), multicasts=False)
MULTICAST = Code(frozenset({128}), multicasts=True)


def state_of(word: Word, code: Code = CODE, here=(), **more) -> State:
    state = State("k", 0x400, word, code, **more)
    state.waits[Wait((), 0, 0)] += 1
    state.here = {(other.address, other.word): other for other in here}
    return state


def other(word: Word, **more) -> State:
    return State("k", 8, word, CODE, **more)


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (state_of(Word.decode(0)), "BARRIER_INIT"),
        (state_of(Word.decode(1 << 42)), "BARRIER_INIT"),
        (state_of(Word(1, 1, 0, 0), passed=1), "HANG_MISSED"),
        (state_of(Word(1, 0, 64, 0), passed=1), "HANG_BYTES"),  # it is what it is, whoever waits
        (state_of(Word(1, 1, -64, 0)), "HANG_NOT_ANNOUNCED"),
        (state_of(Word(1, 0, 64, 0)), "HANG_BYTES"),
        (state_of(Word(1, 0, 64, 0), Code(frozenset({64}), False)), "HANG_NO_COPY"),
        (state_of(Word(1, 0, 64, 0), Code(frozenset({128}), False)), "HANG_BYTES"),
        (state_of(Word(1, 0, 64, 0), Code(frozenset({64, 128}), False)), "HANG_BYTES"),
        (state_of(Word(2, 1, 64, 0)), "HANG_ARRIVALS"),
        (state_of(Word(2, 2, 64, 0)), "HANG_ARRIVALS"),
        (state_of(Word(2, 1, 0, 0), here=[other(Word(1, 1, 0, 0))]), "HANG_ARRIVALS"),
        (state_of(Word(2, 1, 0, 0), here=[other(Word(1, 1, 0, 0), passed=1)]), "HANG_FOLLOWS"),
        (state_of(Word(2, 2, 0, 0)), "HANG_NOBODY_ARRIVED"),
        (state_of(Word(2, 2, 0, 0), ended=3), "HANG_ENDED"),
        (state_of(Word(2, 2, 0, 1)), "HANG_PARITY"),
        (state_of(Word(2, 2, 0, 0), here=[other(Word(1, 1, 0, 0))]), "HANG_CYCLE"),
        (state_of(Word(2, 2, 0, 0), here=[other(Word(1, 0, 64, 0))]), "HANG_FOLLOWS"),
    ],
)
def test_what_a_barrier_lacks_is_named(state, rule):
    row = next(row for row in hangs.ROWS if row.holds(state))
    assert (row.rule, bool(row.message(state)), bool(row.fix)) == (rule, True, True)


#: A full barrier, and that of another block of the cluster: a copy of 64 bytes goes into both.
ARMED, NOT_ARMED = Word(1, 0, 64, 1), Word(1, 1, -64, 1)


@pytest.mark.parametrize(
    ("word", "peer", "code", "rule"),
    [
        (NOT_ARMED, ARMED, MULTICAST, "HANG_CYCLE"),  # the bytes are that block's
        (NOT_ARMED, ARMED, MULTICAST._replace(multicasts=False), "HANG_NOT_ANNOUNCED"),
        (NOT_ARMED, ARMED, MULTICAST._replace(announces=frozenset()), "HANG_NOT_ANNOUNCED"),
        (NOT_ARMED, NOT_ARMED, MULTICAST, "HANG_NOT_ANNOUNCED"),
        (NOT_ARMED, replace(ARMED, phase=0), MULTICAST, "HANG_NOT_ANNOUNCED"),
        (ARMED, NOT_ARMED, MULTICAST, "HANG_FOLLOWS"),  # the missing bytes are that block's
        (ARMED, NOT_ARMED, MULTICAST._replace(multicasts=False), "HANG_BYTES"),
        (ARMED, ARMED, MULTICAST, "HANG_BYTES"),
        (replace(ARMED, bytes=32), NOT_ARMED, MULTICAST, "HANG_BYTES"),  # no whole copy
    ],
)
def test_bytes_of_another_block_of_the_cluster_are_no_mistake_of_this_one(word, peer, code, rule):
    maps = (FoundMap(SMALL, "k", 0),)
    state = state_of(word, code, [other(Word(4, 4, 0, 0))], peers={peer}, maps=maps)
    assert next(row for row in hangs.ROWS if row.holds(state)).rule == rule


# -- maps among parameters ------------------------------------------------------------------------


def random_parameters(rng: random.Random) -> bytes:
    """128 bytes such as kernels have among their parameters, which are not a map."""
    pointer = struct.pack("<Q", 0x7F0000000000 + rng.randrange(1 << 38) // 256 * 256)
    rest = rng.choice(
        (
            b"".join(struct.pack("<Q", rng.randrange(1 << 47)) for _ in range(15)),
            b"".join(struct.pack("<i", rng.choice((0, 1, 64, 4096))) for _ in range(30)),
            b"".join(struct.pack("<f", rng.gauss(0, 1)) for _ in range(30)),
            struct.pack("<i", rng.randrange(4096)) + bytes(116),
            rng.randbytes(120),
        )
    )
    return pointer + rest


def test_parameters_that_are_no_map_are_not_taken_for_one():
    rng = random.Random(5)
    blocks = [random_parameters(rng) for _ in range(3000)]
    assert sum(len(memory._maps("k", block, 0x240, "sm_90")) for block in blocks) == 0


def test_maps_are_found_among_other_parameters_by_their_alignment():
    rng = random.Random(6)
    image = im2col(0)
    parameters = random_parameters(rng)[:112] + bytes(PLAIN) + random_parameters(rng) + bytes(image)
    found = memory._maps("k", parameters, 0x210, "sm_90")
    assert [(one.offset, one.kind) for one in found] == [(112, "tiled"), (368, "im2col")]
    assert [bytes(one.map) for one in found] == [bytes(PLAIN), bytes(image)]


def test_a_map_that_no_copy_can_use_is_none_and_says_why():
    data = bytearray(bytes(PLAIN))
    data[9] |= 0x08  # interleaved, of rank 2
    found, why = memory.read_map(bytes(data), "sm_90")
    assert found is None
    assert "interleaved" in why
