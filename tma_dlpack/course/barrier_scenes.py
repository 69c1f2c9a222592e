"""Kernels that wait for copies, with and without mistakes, as programs for `barrier_model.Play`.

There are three kernels. In the first kernel, a block loads a tile, waits for it, changes it and
stores it. In the second kernel, each of two blocks loads a part of a tile into both blocks
(multicast). The third kernel has a ring of stages with `full` and `empty` barriers, as in
hopper_gemm.cu. Each mistake is a row of `MISTAKES`.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from tma_dlpack.course.barrier_model import (
    FOREVER,
    LATENCY,
    SYNC,
    UNDEFINED,
    Bar,
    Barrier,
    Change,
    Do,
    Play,
    Program,
    Wait,
)
from tma_dlpack.course.core import rows

PIECE, QUICK_PIECE = 7, 4  # ticks per piece of a copy: in a kernel of one tile, and in a ring
PIECES = 4  # maximum number of pieces of a load
TINTS = (0, 1, 2, 3, 5, 7, 4, 6)  # tint of each stage of a ring
#: `Row.kind` -> label of the row, for the barrier of a kernel with one tile.
STATE_ROWS = {"phase": "full: phase", "arrivals": "pending arrivals", "bytes": "pending bytes"}

#: Name of a mistake -> what the kernel does wrong, and the effect.
MISTAKES = {
    name: (does, why)
    for name, does, why in rows("""
expects too little | expect_tx announces some of the bytes:
    | they run out while others are still on their way, and the phase ends early
expects too much | expect_tx announces twice the bytes:
    | the rest never comes, and the phase never ends
wrong parity | wait(full, ...) names parity 1 in the first phase:
    | it passes while phase 0 lasts, and waits forever once phase 0 has ended
initialised for 2 | init names 2 arrivals, and one thread arrives:
    | one arrival stays pending when all bytes are there, and the phase never ends
no fence | no fence_async between writing shared memory and the store:
    | the engine reads through another proxy, and may read bytes from before the writes
empty parity | the producer's first waits name parity 0:
    | it waits until stages are released that were never filled, and nobody starts
never flipped | the consumer names parity 0 in every round:
    | in the second it passes before the new tile is there, and blocks once it is there
not released | the consumer does not arrive at empty:
    | the producer waits forever until the first stage is free again
""")
}
#: The mistakes that every kernel can make.
ANYWHERE = ("expects too little", "expects too much", "wrong parity", "initialised for 2")
# Sources of the outcomes, in the words of the caption.
MEASURED = "measured on an H200"
PARTLY = "the early read: measured on an H200"
NOT_MEASURED = "PTX ISA; not measured"

# The captions of kernels without a mistake, two lines each.
ONE_TILE = (
    "phase 0 ends when no arrival (expect_tx is one) and no byte is pending;",
    "wait(full, 0) lasts until then; a warp that comes later passes at once",
)
TWO_BLOCKS = (
    "each block loads its part of the tile into both, and each barrier counts the bytes of both;",
    "bytes may come before they are announced: the pending arrival keeps the phase open",
)
RING = (
    "a phase of full[s] ends when a tile is in stage s, one of empty[s] when it has been read;",
    "the producer's first waits name parity 1, which a fresh barrier lets pass",
)


class Row(NamedTuple):
    """A row of the picture. `of` names the program, barrier or stage that the row shows."""

    kind: str  # "heading", "lane", "phase", "arrivals", "bytes", "slot", "strip"
    of: str
    label: str


class Frame(NamedTuple):
    """A tick with at least one event."""

    at: int
    events: tuple[str, ...]
    states: tuple[tuple[str, Barrier], ...]  # the state of every barrier after the events
    changed: frozenset[str]  # names of the barriers that changed at this tick
    lines: tuple[int, ...]  # lines of the code that run at this tick


class Played(NamedTuple):
    """The recorded run of a kernel."""

    code: tuple[str, ...]
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    changes: tuple[Change, ...]
    events: tuple[tuple[int, str, str], ...]  # tick, lane, words

    @property
    def outcome(self) -> str:
        """The outcome of the run; `draw.BarrierPlay` lists all outcomes."""
        # A bar is a read of missing bytes if its `wrong` contains "bytes". A copy engine reads
        # shared memory only for a store.
        misread = [bar.lane for bar in self.bars if "bytes" in bar.wrong]
        if any(lane.startswith("copy engine") for lane in misread):
            return "stale store"
        ends = {FOREVER: "hang", UNDEFINED: "undefined"}
        then = [ends[bar.wrong] for bar in self.bars if bar.wrong in ends][:1]
        return ", then ".join(["early read"] * bool(misread) + then) or "right"

    def frames(self) -> tuple[Frame, ...]:
        """Return a frame for every tick with an event."""
        frames: list[Frame] = []
        states: dict[str, Barrier] = {}
        for at, events in groupby(self.events, key=lambda event: event[0]):
            changes = {c.barrier: c.state for c in self.changes if c.at == at}
            states |= changes
            said = tuple(f"{lane}: {words}" if lane else words for _, lane, words in events)
            now = (b for b in self.bars if b.begin <= at and (b.end is None or at < b.end))
            lines = tuple(sorted({bar.act.line for bar in now if bar.act.line >= 0}))
            frames.append(Frame(at, said, tuple(states.items()), frozenset(changes), lines))
        return tuple(frames)


class Setup(NamedTuple):
    """The parameters of a kernel, and the numbers that follow from these parameters."""

    mistake: str | None
    stages: int
    blocks: int
    tx_bytes: int  # bytes of one load

    @property
    def possible(self) -> tuple[str, ...]:
        """The mistakes that this kernel can make."""
        if self.stages > 1:
            return (*ANYWHERE, "empty parity", "never flipped", "not released")
        return (*ANYWHERE, "no fence") if self.blocks == 1 else ANYWHERE

    @property
    def lesson(self) -> tuple[str, str]:
        """The caption, in two lines."""
        if self.mistake is None:
            return RING if self.stages > 1 else TWO_BLOCKS if self.blocks > 1 else ONE_TILE
        does, why = MISTAKES[self.mistake]
        source = PARTLY if self.mistake == "wrong parity" else MEASURED
        if self.mistake == "no fence" or self.stages > 1 or self.blocks > 1:
            source = NOT_MEASURED
        return does, f"{why} ({source})"

    @property
    def all_bytes(self) -> int:
        """Bytes of all loads that fill a stage; each block issues one of these loads."""
        return self.blocks * self.tx_bytes

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in bytes of the pieces in which a load is drawn; all sizes are equal."""
        most = PIECES if self.stages == 1 else 2
        # Find the largest number of pieces, from `most` down, for which each piece is a multiple of
        # 16 bytes. If no number fits, the load is one piece.
        count = next(n for n in range(most, 0, -1) if self.tx_bytes % (16 * n) == 0 or n == 1)
        return (self.tx_bytes // count,) * count

    @property
    def expected(self) -> int:
        """The bytes that expect_tx announces.

        With the mistake "expects too little", two blocks announce only one of the two loads, and a
        single block announces half of its load.
        """
        if self.mistake == "expects too little":
            half = sum(self.sizes[: len(self.sizes) // 2])
            return self.tx_bytes if self.blocks > 1 else half
        return self.all_bytes * (2 if self.mistake == "expects too much" else 1)

    @property
    def arrivals(self) -> int:
        """The arrival count that init sets for `full`."""
        return 2 if self.mistake == "initialised for 2" else 1

    @property
    def parity(self) -> int:
        """The parity of the first wait for `full`."""
        return int(self.mistake == "wrong parity")

    def of(self, block: int) -> str:
        """Return the suffix of names in a block, such as " of 0"; "" if there is only one block."""
        return f" of {block}" if self.blocks > 1 else ""

    def played(self) -> Played:
        """Run the kernel, and return the recorded run."""
        play = Play(self.all_bytes)
        code, rows = (_ring if self.stages > 1 else _tile)(self, play)
        play.run()
        # Omit the changes of the barrier SYNC; the picture shows only the waits for this barrier.
        changes = tuple(change for change in play.changes if change.barrier != SYNC)
        events = tuple(event for event in play.events if SYNC not in event[2])
        return Played(tuple(code), tuple(rows), tuple(play.bars), changes, events)


def _sync(play: Play, parity: int, line: int) -> Program:
    play.arrive(SYNC)
    yield Wait(SYNC, parity, line)


def _tile(setup: Setup, play: Play) -> tuple[list[str], list[Row]]:
    """Start the programs of a kernel of one tile; return its code and the rows of the picture.

    One block loads and stores the tile, or each of two blocks loads a part of the tile.
    """
    fenced, alone, blocks = setup.mistake != "no fence", setup.blocks == 1, range(setup.blocks)
    warps = ("thread 0", "warp 1", "warp 2")[: 3 if alone else 2]
    sync = "__syncthreads();" if alone else "cluster_sync();"
    code = [
        f"if (thread == 0) init(&full, {setup.arrivals});",
        sync,
        "if (thread == 0) {",
        f"  arrive_expect_tx(&full, {setup.expected});",
        "  load(tile, map, &full, x, y);" if alone else "  load_multicast(part, map, &full, all);",
        "}",
        f"wait(&full, {setup.parity});",
        "add_1(tile);",
        *["fence_async();" if fenced else "// no fence_async()"] * alone,
        sync,
        *[
            "if (thread == 0) {",
            "  store(map, tile, x, y);",
            "  store_commit(); store_wait_read();",
            "}",
        ]
        * alone,
    ]
    play.barriers[SYNC] = Barrier.init(len(warps) * setup.blocks)

    def program(warp: str, b: int) -> Program:
        full, is_first = f"full{setup.of(b)}", warp == "thread 0"
        if is_first:
            play.init(full, setup.arrivals)
            yield Do(9, f"init\n{setup.arrivals}", line=0)
        yield from _sync(play, 0, 1)
        # Delay block 1, so that bytes of block 0 arrive before block 1 announces them. Delay
        # warp 2, so that it is the last warp that waits.
        if (b and is_first) or warp == "warp 2":
            yield Do(60 if alone else 36, "other work")
        if is_first:
            play.arrive(full, setup.expected)
            yield Do(9, f"expect\n{setup.expected}", line=3)
            to = [(f"tile{setup.of(n)}", f"full{setup.of(n)}") for n in blocks]
            act = Do(PIECE, "", ("taken", "tint3")[b], 4, 0)
            play.copy(f"copy engine{setup.of(b)}", to, act, setup.sizes)
            yield Do(7, "load\ntile" if alone else "load\npart", line=4)
        yield Wait(full, setup.parity, 6)
        yield Do(15, "adds 1", "tint6", 7, 0, f"tile{setup.of(b)}")
        # After this fence, the engine sees the changes of this warp, which are 1/3 of the tile.
        if fenced and alone:
            yield Do(8, "fence", line=8)
            share = setup.tx_bytes // 3 + is_first * (setup.tx_bytes % 3)
            play.write("written", warp, 1, share)
        yield from _sync(play, 1, 9 if alone else 8)
        if is_first and alone:
            play.start("copy engine", reading(), play.now + LATENCY)
            yield Do(8, "store\ntile", line=11)
            yield Do(12, "store_wait_read", "padding", line=12)

    def reading() -> Program:
        yield Do(14, "reads tile", "taken", 11, 1, "written", "may be old")

    rows = []
    for b in blocks:
        for warp in warps:
            play.start(f"{warp}{setup.of(b)}", program(warp, b))
        rows += [Row("heading", f"{b}", f"block {b}")] * (not alone)
        rows += [Row("lane", f"{name}{setup.of(b)}", name) for name in ("thread 0", "copy engine")]
        rows += [Row(kind, f"full{setup.of(b)}", name) for kind, name in STATE_ROWS.items()]
        rows += [Row("lane", f"{warp}{setup.of(b)}", warp) for warp in warps[1:]]
    return code, rows


def _ring(setup: Setup, play: Play) -> tuple[list[str], list[Row]]:
    """Start the programs of a kernel with a ring; return its code and the rows of the picture.

    A producer fills the stages, and a consumer reads and releases the stages.
    """
    stages, blocks, count = setup.stages, range(setup.blocks), 2 * setup.stages + 1
    empty_parity, flips = int(setup.mistake != "empty parity"), setup.mistake != "never flipped"
    alone, releases = setup.blocks == 1, setup.mistake != "not released"
    turn, other_turn = f"k / {stages} % 2", f"k / {stages} % 2 ^ 1"
    arrive = "arrive(&empty[s]);" if alone else "arrive_remote(&empty[s], b);  // all b"
    code = [
        f"// each stage s = k % {stages}",
        f"init(&full[s], {setup.arrivals});",
        f"init(&empty[s], {setup.blocks});",
        f"for (k = 0; k < {count}; ++k) {{  // producer",
        f"  wait(&empty[s], {other_turn if empty_parity else turn});",
        f"  arrive_expect_tx(&full[s], {setup.expected});",
        f"  load{'' if alone else '_multicast'}(tile[s], map, &full[s]);",
        "}",
        f"for (k = 0; k < {count}; ++k) {{  // consumer",
        f"  wait(&full[s], {0 if not flips else other_turn if setup.parity else turn});",
        "  wgmma(tile[s]);",
        f"  {arrive}" if releases else "  // no arrive(&empty[s])",
        "}",
    ]
    # A phase of the barrier SYNC ends after one arrival of each producer and consumer.
    play.barriers[SYNC] = Barrier.init(2 * setup.blocks)

    def producer(b: int) -> Program:
        for s in range(stages):
            play.init(f"full[{s}]{setup.of(b)}", setup.arrivals)
            play.init(f"empty[{s}]{setup.of(b)}", setup.blocks)
        yield Do(6, "init", line=1)
        yield from _sync(play, 0, -1)
        for k in range(count):
            turns, s = divmod(k, stages)
            # The first wait for a stage has parity 1, so it passes at the fresh barrier.
            yield Wait(f"empty[{s}]{setup.of(b)}", empty_parity ^ turns % 2, 4)
            play.arrive(f"full[{s}]{setup.of(b)}", setup.expected)
            to = [(f"stage {s}{setup.of(n)}", f"full[{s}]{setup.of(n)}") for n in blocks]
            act = Do(QUICK_PIECE, f"tile {k}|{k}", f"tint{TINTS[s]}", 6, k)
            play.copy(f"copy engine{setup.of(b)}", to, act, setup.sizes)
            yield act._replace(text=f"load {k}|{k}")

    def consumer(b: int) -> Program:
        yield from _sync(play, 0, -1)
        for k in range(count):
            turns, s = divmod(k, stages)
            yield Wait(f"full[{s}]{setup.of(b)}", setup.parity ^ turns % 2 * flips, 9)
            slot, style = f"stage {s}{setup.of(b)}", f"tint{TINTS[s]}"
            yield Do(12 + 2 * b, f"tile {k}|{k}", style, 10, k, slot)
            # A multicast load writes the stage of every block, so every producer waits for this
            # release.
            for n in blocks:
                if releases:
                    play.arrive(f"empty[{s}]{setup.of(n)}")

    rows = []
    for b in blocks:
        of = setup.of(b)
        play.start(f"producer{of}", producer(b))
        play.start(f"consumer{of}", consumer(b))
        rows += [Row("heading", f"{b}", f"block {b}")] * (not alone)
        rows += [Row("lane", f"{name}{of}", name) for name in ("producer", "copy engine")]
        for s in range(stages):
            rows.append(Row("slot", f"stage {s}{of}", f"stage {s}"))
            rows += [Row("strip", f"{name}[{s}]{of}", f"{name}[{s}]") for name in ("full", "empty")]
        rows.append(Row("lane", f"consumer{of}", "consumer"))
    return code, rows
