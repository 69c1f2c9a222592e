"""`postmortem` names each hang of dying.cu from its dump, and reads 1,000 barriers."""

from __future__ import annotations

import time

import pytest
from test_faults import line_of

import tma_dlpack as tma
from tma_dlpack.debug import DeadBarrier
from tma_dlpack.debug.postmortem.dump import Dump
from tma_dlpack.debug.postmortem.memory import Word, looks_like_one
from tma_dlpack.debug.postmortem.pictures import frozen
from tma_dlpack.ptx import stuck

#: Case -> for each barrier with waiting warps: address, warps, parity, rule, words of the message.
HANGS = {
    "bytes": [(0x400, 6, 0, "HANG_BYTES", "10,240 bytes are expected, 8,192 came, and 2,048 are")],
    "no_copy": [(0x400, 2, 0, "HANG_NO_COPY", "armed for 8,192 bytes (1 x 8,192), and none came")],
    "no_arrive": [(0x400, 2, 0, "HANG_NOT_ANNOUNCED", "8,192 bytes came (1 x 8,192) that nobody")],
    "out_of_one_map": [(0x400, 2, 0, "HANG_BYTES", "4,096 are missing (1 x 4,096: whole copies)")],
    "count": [(0x400, 2, 0, "HANG_ARRIVALS", "1 of 2 arrivals came: it was initialised for 1 too")],
    "test_wait": [(0x400, 2, 0, "HANG_ARRIVALS", "1 of 2 arrivals came")],
    "backoff": [(0x400, 2, 0, "HANG_ARRIVALS", "1 of 2 arrivals came")],
    "parity": [
        (0x400, 2, 1, "HANG_PARITY", "the wait names the other parity, or the next arrival")
    ],
    "cluster": [(0x400, 2, 0, "HANG_ARRIVALS", "2 of 3 arrivals came")],
    "multicast": [(0x400, 2, 0, "HANG_NOT_ANNOUNCED", "8,192 bytes came (1 x 8,192)")],
    "ring_bytes": [
        (
            0x400,
            3,
            0,
            "HANG_BYTES",
            "24,576 bytes are expected, 12,288 came, and 12,288 are missing",
        ),
        (0x410, 3, 0, "HANG_FOLLOWS", "the warps that would may be those that wait at 0x400"),
    ],
    "ring_one_copy": [
        (0x400, 1, 0, "HANG_BYTES", "and 4,096 are missing (1 x 4,096: whole copies)"),
        (0x410, 1, 0, "HANG_FOLLOWS", "wait at 0x400"),
    ],
    "ring_count": [
        (0x400, 1, 0, "HANG_ARRIVALS", "1 of 2 arrivals came"),
        (0x410, 1, 0, "HANG_FOLLOWS", "wait at 0x400"),
    ],
    "ring_no_arm": [
        (
            0x400,
            1,
            0,
            "HANG_NOT_ANNOUNCED",
            "12,288 bytes came (1 x 8,192 + 1 x 4,096) that nobody",
        ),
        (0x410, 1, 0, "HANG_FOLLOWS", "wait at 0x400"),
    ],
    "ring_cycle": [
        (
            0x400,
            1,
            0,
            "HANG_CYCLE",
            "wait at 0x410, where nobody has arrived either; no phase need",
        ),
        (
            0x410,
            1,
            0,
            "HANG_CYCLE",
            "wait at 0x400, where nobody has arrived either; no phase need",
        ),
    ],
    "ring_no_release": [
        (0x400, 1, 1, "HANG_CYCLE", "either; some barrier has been through a phase"),
        (0x410, 1, 0, "HANG_CYCLE", "either; some barrier has been through a phase"),
    ],
}


@pytest.mark.parametrize("case", HANGS)
def test_a_hang_is_named(dumps, case):
    found = tma.postmortem(dumps / f"hang_{case}.core")
    hung = [barrier for barrier in found.barriers if barrier.rule]
    rows = [(b.address, b.waiting, b.parity, b.rule) for b in hung]
    assert rows == [row[:4] for row in HANGS[case]]
    for barrier, row in zip(hung, HANGS[case], strict=True):
        assert row[4] in barrier.message
        assert barrier.fix
    assert not found.ok
    assert not found.faults


def test_every_hang_of_the_dumps_is_in_the_table(dumps):
    names = {path.stem.removeprefix("hang_") for path in dumps.glob("hang_*.core")}
    assert names - {*HANGS} == {"ring_parity"}  # died: below


def test_a_parity_that_is_not_flipped_ends_in_a_fault(dumps):
    (fault,) = tma.postmortem(dumps / "hang_ring_parity.core").faults
    assert (fault.rule, fault.instruction) == ("BARRIER_ARRIVALS", "SYNCS.ARRIVE.TRANS64")
    assert "a wait passed too early, by its parity or its stage" in fault.fix


@pytest.mark.parametrize(
    "case", ["bytes", "no_copy", "no_arrive", "out_of_one_map", "ring_bytes", "ring_count"]
)
def test_the_waits_line_and_its_callers_are_named(dumps, case):
    barrier = tma.postmortem(dumps / f"hang_{case}.core").barriers[0]
    assert barrier.lines[0] == "/tmp/dying/dying.cu:46"
    assert barrier.lines[-1] == line_of(f"hang_{case}")
    assert len(barrier.lines) == 2 + case.startswith("ring")


def test_blocks_that_hang_alike_are_said_once(dumps):
    found = tma.postmortem(dumps / "hang_ring_bytes.core")
    assert [(b.address, b.blocks) for b in found.barriers] == [
        (0x400, 3), (0x410, 3), (0x408, 3), (0x418, 3),
    ]  # fmt: skip
    assert [b.waiting for b in found.barriers] == [3, 3, 0, 0]
    assert [b.rule == "" for b in found.barriers] == [False, False, True, True]


@pytest.mark.parametrize(
    ("case", "who"),
    [("count", "2 warps wait for 0"), ("ring_no_release", "1 warp waits for 1")],
)
def test_the_picture_says_who_waits_for_which_parity(dumps, case, who):
    (picture,) = frozen(tma.postmortem(dumps / f"hang_{case}.core").barriers)
    assert f">{who}<" in picture.svg()
    came = (">1 of 2<", ">1<") if case == "count" else (">32 pending<",)
    assert all(text in picture.svg() for text in came)


def test_a_barrier_that_was_never_initialised_has_a_picture():
    never = DeadBarrier("k", 0x400, 0, 0, 0, 0, blocks=1, waiting=2, rule="BARRIER_INIT")
    (picture,) = frozen([never])
    assert ">2 warps wait<" in picture.svg()


def test_other_warps_are_where_they_are(dumps):
    (kernel,) = tma.postmortem(dumps / "hang_cluster.core").kernels
    assert kernel.cluster == (2, 1, 1)
    assert [(row.what, row.warps) for row in kernel.standing] == [
        ("at the wait of an mbarrier", 2),
        ("at a barrier of the cluster (cluster_sync, barrier.cluster.wait)", 2),
    ]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("syncthreads", "at a barrier of the block (__syncthreads, bar.sync)"),
        ("cluster", "at a barrier of the cluster (cluster_sync, barrier.cluster.wait)"),
        ("no_tma", "elsewhere: no control flow ties it to the wait of an mbarrier"),
    ],
)
def test_what_is_no_hang_at_an_mbarrier_is_called_none(dumps, case, said):
    found = tma.postmortem(dumps / f"neither_{case}.core")
    assert found.ok
    assert "no fault, and no warp that waits at an mbarrier" in repr(found)
    assert said in [row.what for row in found.kernels[0].standing]


def test_every_meaning_of_a_hang_is_in_the_table():
    seen = {row[3] for rows in HANGS.values() for row in rows}
    assert {row.rule for row in stuck.ROWS} - seen == {
        "BARRIER_INIT", "HANG_NOBODY_ARRIVED", "HANG_MISSED", "HANG_ENDED",
    }  # fmt: skip


# -- the word -------------------------------------------------------------------------------------


def expected_states(count: int):
    """The states of barriers in the kernel `states` of dying.cu: count, arrivals, bytes, phase."""
    state = 12345

    def below(n: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (state >> 33) % n

    for _ in range(count):
        limit = 1 << (1 + below(20))
        arrivals = 1 + below(limit) % ((1 << 20) - 1)
        arrived, phases = below(arrivals), below(6)
        tx = below((1 << 21) - 1) - ((1 << 20) - 1)
        yield Word(arrivals, arrivals - arrived, tx, phases % 2)


def test_1000_random_states_of_a_stopped_kernel_are_decoded(dumps):
    (block,) = Dump.open(dumps / "states.core").blocks
    states = [*expected_states(1000)]
    read = [Word.at(block.shared, 0x400 + 8 * n) for n in range(1000)]
    assert read == states
    assert len({*states}) > 990


def test_barriers_that_nobody_waits_at_are_found_by_the_code_that_names_them(dumps):
    found = tma.postmortem(dumps / "neither_syncthreads.core")
    assert found.barriers == ()  # the kernel has no barrier there
    found = tma.postmortem(dumps / "hang_ring_cycle.core")
    assert [barrier.address for barrier in found.barriers] == [0x400, 0x410, 0x408, 0x418]


@pytest.mark.parametrize(
    ("word", "looks"),
    [
        (0x3FC001FFFFE, True),  # count 1, armed with 8,192 bytes
        (0x3FC001FFFFF, False),  # bit 0
        (0x3FC001FFFFE | 1 << 42, False),
        (0, False),
        (1 << 42, False),  # never initialised, after an arrival that failed
        (0x1FFFFE, False),  # nothing pending: the phase would have ended
    ],
)
def test_what_looks_like_a_barrier(word, looks):
    assert looks_like_one(word, 4096) is looks


def test_copies_that_make_up_bytes_are_found_with_the_fewest(dumps):
    maps = tma.postmortem(dumps / "hang_bytes.core").maps
    assert [found.map.tx_bytes for found in maps] == [8192, 4096]
    assert stuck.copies(12288, maps) == "1 x 8,192 + 1 x 4,096"
    assert stuck.copies(8192, maps) == "1 x 8,192"
    assert stuck.copies(2048, maps) == ""
    assert stuck.copies(0, maps) == ""
    assert stuck.copies(8192, ()) == ""


def test_a_whole_card_is_read_in_time_and_said_once(whole_card):
    start = time.perf_counter()
    found = tma.postmortem(whole_card)
    seconds = time.perf_counter() - start
    (barrier,) = found.barriers
    assert (barrier.blocks, barrier.waiting, barrier.rule) == (132, 132 * 12, "HANG_BYTES")
    assert found.kernels[0].warps == 132 * 12
    assert seconds < 5  # 0.4 to 0.5 measured, for 27 MB and 158,820 sections
