"""Kernels that wait for copies, as programs for the model of the mbarrier: right and mistaken.

One tile (load, wait, change, store), a tile that two blocks share by multicast, and a ring of
stages with `full` and `empty` barriers, as in hopper_gemm.cu. A mistake is a row of `MISTAKES`.
"""

from __future__ import annotations

from typing import NamedTuple

from tma_dlpack.draw.barrier_model import (
    LATENCY,
    Bar,
    Barrier,
    Change,
    Do,
    Play,
    Program,
    Wait,
)

MEASURED, DOCUMENTED = "measured on an H200", "PTX ISA, not measured"
MODELLED = "as the model plays it, not measured"
TINTS = (0, 1, 2, 3, 5, 7, 4, 6)  # of stages
PIECE, QUICK_PIECE = 7, 4  # ticks
SYNC = "sync"  # __syncthreads() or cluster_sync(): played as a barrier, not drawn as one


class Mistake(NamedTuple):
    """What is done wrong, why that matters, how sure we are, and in which scenes it can be."""

    does: str
    why: str
    source: str = MEASURED
    one_tile: bool = True  # one block, one stage
    shared: bool = True  # two blocks, one stage
    ring: bool = True


MISTAKES = {
    "expects too little": Mistake(
        "expect_tx announces some of the bytes",
        "the announced bytes run out while others are still on their way: the phase ends early",
    ),
    "expects too much": Mistake(
        "expect_tx announces twice the bytes", "the rest never comes: the phase never ends"
    ),
    "wrong parity": Mistake(
        "wait(full, ...) names parity 1 in the first phase",
        "a wait for parity 1 passes while phase 0 lasts, and blocks once phase 0 has ended",
        "the early read is measured on an H200, the hang follows from the PTX ISA",
    ),
    "initialised for 2": Mistake(
        "init asks for 2 arrivals, and one thread arrives",
        "one arrival stays pending, though every byte is there: the phase never ends",
    ),
    "no fence": Mistake(
        "no fence_async between writing shared memory and the store",
        "the engine reads by another proxy: the store may take bytes from before the writes",
        DOCUMENTED,
        shared=False,
        ring=False,
    ),
    "empty parity": Mistake(
        "the producer's first wait names parity 0",
        "it waits for a stage to be released that was never filled: nobody ever starts",
        one_tile=False,
        shared=False,
    ),
    "never flipped": Mistake(
        "the consumer waits for parity 0 in every round",
        "in the second round it passes before the new tile is there, and blocks once it is there",
        one_tile=False,
        shared=False,
    ),
    "not released": Mistake(
        "the consumer does not arrive at empty",
        "the producer waits for the first stage to be free again",
        one_tile=False,
        shared=False,
    ),
}


ONE_TILE = (
    "phase 0 ends when no arrival (expect_tx is one) and no byte is pending;",
    "wait(full, 0) lasts until then; a warp that comes later passes at once",
)
SHARED = (
    "each block loads its part of the tile into both, and each barrier counts the bytes of both;",
    "bytes may come before they are announced: the pending arrival keeps the phase open",
)
RING = (
    "a phase of full[s] ends when a tile is in stage s, one of empty[s] when it has been read;",
    "the producer's first waits name parity 1, which a fresh barrier lets pass",
)


class Row(NamedTuple):
    """A row of the picture: what it shows, and of which lane, barrier or slot."""

    kind: str  # "heading", "lane", "phase", "arrivals", "bytes", "slot", "strip"
    of: str
    label: str


class Scene(NamedTuple):
    """A kernel that was played."""

    code: tuple[str, ...]
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    changes: tuple[Change, ...]


class Setup(NamedTuple):
    """What a scene is made of: the numbers that the kernel uses, right or wrong."""

    mistake: str | None
    stages: int
    blocks: int
    tx_bytes: int  # of one load

    @property
    def all_bytes(self) -> int:
        """What comes into a stage: the load of each block."""
        return self.blocks * self.tx_bytes

    @property
    def sizes(self) -> tuple[int, ...]:
        """The pieces in which a load is drawn: at most 4, of equal size."""
        most = 4 if self.stages == 1 else 2
        count = next(n for n in range(most, 0, -1) if self.tx_bytes % (16 * n) == 0 or n == 1)
        return (self.tx_bytes // count,) * count

    @property
    def expected(self) -> int:
        """What expect_tx announces."""
        if self.mistake == "expects too little":
            half = sum(self.sizes[: len(self.sizes) // 2])
            return self.tx_bytes if self.blocks > 1 else half
        return self.all_bytes * (1 + (self.mistake == "expects too much"))

    @property
    def arrivals(self) -> int:
        """What init names for `full`."""
        return 1 + (self.mistake == "initialised for 2")

    @property
    def lesson(self) -> list[str]:
        """What to see in the picture, in lines."""
        if self.mistake is not None:
            row = MISTAKES[self.mistake]
            source = row.source if self.stages == self.blocks == 1 else MODELLED
            return [f"{row.does}:", f"{row.why} ({source})"]
        return list(RING if self.stages > 1 else SHARED if self.blocks > 1 else ONE_TILE)

    @property
    def is_possible(self) -> bool:
        """Whether the mistake can be made in this scene."""
        if self.mistake is None:
            return True
        row = MISTAKES[self.mistake]
        return row.ring if self.stages > 1 else row.shared if self.blocks > 1 else row.one_tile

    def played(self) -> Scene:
        """Play the kernel."""
        scene = _ring if self.stages > 1 else _shared if self.blocks > 1 else _one_tile
        return scene(self, Play(self.all_bytes))


def _sync(play: Play, parity: int, line: int) -> Program:
    play.arrive(SYNC)
    yield Wait(SYNC, parity, line)


def _scene(play: Play, code: list[str], rows: list[Row]) -> Scene:
    play.run()
    changes = tuple(change for change in play.changes if change.barrier != SYNC)
    return Scene(tuple(code), tuple(rows), tuple(play.bars), changes)


def _barrier_rows(barrier: str) -> list[Row]:
    return [
        Row("phase", barrier, f"{barrier}: phase"),
        Row("arrivals", barrier, "pending arrivals"),
        Row("bytes", barrier, "pending bytes"),
    ]


# --- One tile -------------------------------------------------------------------------------------


def _one_tile(setup: Setup, play: Play) -> Scene:
    parity, fence = int(setup.mistake == "wrong parity"), setup.mistake != "no fence"
    code = [
        f"if (thread == 0) init(&full, {setup.arrivals});",
        "__syncthreads();",
        "if (thread == 0) {",
        f"  expect_tx(&full, {setup.expected});",
        "  load(tile, map, &full, x, y);",
        "}",
        "if (warp == 2) other_work();",
        f"wait(&full, {parity});",
        "add_1(tile);",
        "fence_async();" if fence else "// no fence_async()",
        "__syncthreads();",
        "if (thread == 0) {",
        "  store(map, tile, x, y);",
        "  commit(); wait_read();",
        "}",
    ]
    lanes = ["thread 0", "warp 1", "warp 2"]
    play.barriers[SYNC] = Barrier.init(len(lanes))

    def program(lane: str) -> Program:
        if lane == "thread 0":
            play.init("full", setup.arrivals)
            yield Do(9, f"init\n{setup.arrivals}", line=0)
        yield from _sync(play, 0, 1)
        if lane == "thread 0":
            play.arrive("full", setup.expected)
            yield Do(9, f"expect\n{setup.expected}", line=3)
            play.copy("copy engine", [("tile", "full")], Do(PIECE, "", "taken", 4, 0), setup.sizes)
            yield Do(7, "load\ntile", line=4)
        if lane == "warp 2":
            yield Do(60, "other work", line=6)
        yield Wait("full", parity, 7)
        yield Do(15, "adds 1", "tint6", 8, 0, "tile")
        if fence:  # from here on the engine sees what this lane wrote
            yield Do(8, "fence", line=9)
            share = setup.tx_bytes // len(lanes) if lane != lanes[0] else 0
            share = share or setup.tx_bytes - 2 * (setup.tx_bytes // len(lanes))
            play.memory.setdefault("result", {})[lanes.index(lane)] = 1, share
        yield from _sync(play, 1, 10)
        if lane == "thread 0":
            play.start("copy engine", reading(), play.now + LATENCY)
            yield Do(8, "store\ntile", line=12)
            yield Do(12, "wait_read", "padding", line=13)

    def reading() -> Program:
        yield Do(14, "reads tile", "taken", 12, 1, "result")

    for lane in lanes:
        play.start(lane, program(lane))
    rows = [Row("lane", name, name) for name in ("thread 0", "copy engine")]
    rows += [*_barrier_rows("full"), *(Row("lane", name, name) for name in lanes[1:])]
    return _scene(play, code, rows)


# --- One tile for two blocks ----------------------------------------------------------------------


def _shared(setup: Setup, play: Play) -> Scene:
    parity, blocks = int(setup.mistake == "wrong parity"), range(setup.blocks)
    code = [
        f"if (thread == 0) init(&full, {setup.arrivals});",
        "cluster_sync();",
        "if (thread == 0) {  // in each block",
        f"  expect_tx(&full, {setup.expected});",
        "  load_multicast(part, map, &full, all, x, y);",
        "}",
        f"wait(&full, {parity});",
        "use(tile);",
        "cluster_sync();  // then exit",
    ]
    play.barriers[SYNC] = Barrier.init(2 * setup.blocks)

    def thread_0(b: int) -> Program:
        play.init(f"full {b}", setup.arrivals)
        yield Do(9, f"init\n{setup.arrivals}", line=0)
        yield from _sync(play, 0, 1)
        if b:
            yield Do(36, "other work")
        play.arrive(f"full {b}", setup.expected)
        yield Do(9, f"expect\n{setup.expected}", line=3)
        to = [(f"tile {n}", f"full {n}") for n in blocks]
        act = Do(PIECE, "", ("taken", "tint3")[b % 2], 4, 0)
        play.copy(f"copy engine {b}", to, act, setup.sizes, b * len(setup.sizes))
        yield Do(7, "load\npart", line=4)
        yield from _sync(play, 1, 8)

    def warp(b: int) -> Program:
        yield from _sync(play, 0, 1)
        yield Wait(f"full {b}", parity, 6)
        yield Do(16, "uses tile", "tint6", 7, 0, f"tile {b}")
        yield from _sync(play, 1, 8)

    rows = []
    for b in blocks:
        play.start(f"thread 0 of {b}", thread_0(b))
        play.start(f"warp 1 of {b}", warp(b))
        rows += [Row("heading", f"{b}", f"block {b}"), Row("lane", f"thread 0 of {b}", "thread 0")]
        rows += [Row("lane", f"copy engine {b}", "copy engine"), *_barrier_rows(f"full {b}")]
        rows += [Row("lane", f"warp 1 of {b}", "warp 1")]
    return _scene(play, code, rows)


# --- A ring of stages -----------------------------------------------------------------------------


def _ring(setup: Setup, play: Play) -> Scene:
    stages, blocks, count = setup.stages, range(setup.blocks), 2 * setup.stages + 1
    full_first = int(setup.mistake == "wrong parity")
    empty_first = int(setup.mistake != "empty parity")
    flips, multicast = setup.mistake != "never flipped", setup.blocks > 1
    turn = f"k / {stages} % 2"
    release = "  // no arrive(&empty[s])"
    if setup.mistake != "not released":
        release = (
            "  arrive_remote(&empty[s], b);  // all b" if multicast else "  arrive(&empty[s]);"
        )
    code = [
        f"// each stage s = k % {stages}",
        f"init(&full[s], {setup.arrivals});",
        f"init(&empty[s], {setup.blocks});",
        f"for (k = 0; k < {count}; ++k) {{  // producer",
        f"  wait(&empty[s], {_parity(empty_first, turn)});",
        f"  expect_tx(&full[s], {setup.expected});",
        f"  load{'_multicast' * multicast}(tile[s], map, &full[s]);",
        "}",
        f"for (k = 0; k < {count}; ++k) {{  // consumer",
        f"  wait(&full[s], {_parity(full_first, turn) if flips else 0});",
        "  wgmma(tile[s]);",
        release,
        "}",
    ]
    play.barriers[SYNC] = Barrier.init(2 * setup.blocks)

    def producer(b: int) -> Program:
        for s in range(stages):
            play.init(f"full[{s}]{_of(setup, b)}", setup.arrivals)
            play.init(f"empty[{s}]{_of(setup, b)}", setup.blocks)
        yield Do(6, "init", line=1)
        yield from _sync(play, 0, -1)
        for k in range(count):
            s, turns = k % stages, k // stages % 2
            yield Wait(f"empty[{s}]{_of(setup, b)}", empty_first ^ turns, 4)
            play.arrive(f"full[{s}]{_of(setup, b)}", setup.expected)
            to = [(f"stage {s}{_of(setup, n)}", f"full[{s}]{_of(setup, n)}") for n in blocks]
            act = Do(QUICK_PIECE, f"tile {k}|{k}", f"tint{TINTS[s]}", 6, k)
            play.copy(f"copy engine{_of(setup, b)}", to, act, setup.sizes, b * len(setup.sizes))
            yield Do(4, f"load {k}|{k}", f"tint{TINTS[s]}", 6, k)

    def consumer(b: int) -> Program:
        yield from _sync(play, 0, -1)
        for k in range(count):
            s, turns = k % stages, k // stages % 2 * flips
            yield Wait(f"full[{s}]{_of(setup, b)}", full_first ^ turns, 9)
            slot = f"stage {s}{_of(setup, b)}"
            yield Do(12 + 2 * b, f"tile {k}|{k}", f"tint{TINTS[s]}", 10, k, slot)
            if setup.mistake != "not released":
                for n in blocks:
                    play.arrive(f"empty[{s}]{_of(setup, n)}")

    rows = []
    for b in blocks:
        of = _of(setup, b)
        play.start(f"producer{of}", producer(b))
        play.start(f"consumer{of}", consumer(b))
        rows += [Row("heading", f"{b}", f"block {b}")] * multicast
        rows += [Row("lane", f"{name}{of}", name) for name in ("producer", "copy engine")]
        for s in range(stages):
            rows.append(Row("slot", f"stage {s}{of}", f"stage {s}"))
            rows += [Row("strip", f"{name}[{s}]{of}", f"{name}[{s}]") for name in ("full", "empty")]
        rows.append(Row("lane", f"consumer{of}", "consumer"))
    return _scene(play, code, rows)


def _parity(first: int, turn: str) -> str:
    return f"{turn} ^ 1" if first else turn


def _of(setup: Setup, block: int) -> str:
    return f" of {block}" * (setup.blocks > 1)
