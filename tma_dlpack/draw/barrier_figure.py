"""An mbarrier on an axis of time: who arrives, which bytes come, who waits, and what goes wrong."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from textwrap import wrap
from typing import NamedTuple

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.barrier_model import Bar, Barrier, Change, Do, Wait
from tma_dlpack.draw.barrier_scenes import MISTAKES, SYNC, Row, Setup
from tma_dlpack.draw.barrier_scenes import Scene as Played
from tma_dlpack.draw.figure import MAKE_ONE, TEXT_COLUMNS, Figure, played, require
from tma_dlpack.draw.grid import GLYPH_WIDTH, LABEL_SIZE, Cell, Grid, Scene, label, lay_out, words
from tma_dlpack.draw.svg import svg_panel
from tma_dlpack.tables.coerce import counted, integer_of, shown, text_of
from tma_dlpack.tables.errors import refusal
from tma_dlpack.tables.public import opaque
from tma_dlpack.tensor_map.map import TensorMap

TX_BYTES = 8192  # of a tile of 64 x 64 elements of 16 bits
MAX_STAGES, MAX_BLOCKS = 8, 2
WIDTH, TAIL, FOREVER = 640, 4, 16  # px of the axis; ticks after the last event
#: kind of a row -> its height, and the free space below it, px.
HEIGHTS = {
    "heading": (18, 4),
    "lane": (30, 14),
    "phase": (18, 0),
    "arrivals": (18, 0),
    "bytes": (48, 14),
    "slot": (20, 0),
    "strip": (14, 0),
}
NUMBERS = 16  # px, of the numbers above the bytes
STAGE_GAP = 6
PARITY = ("even", "odd")
LEGEND = [
    (Cell(0, 0, "cell"), "works"),
    (Cell(0, 0, "padding"), "waits"),
    (Cell(0, 0, "taken"), "copies"),
    (Cell(0, 0, "tint6"), "uses the tile"),
    (Cell(0, 0, PARITY[0]), "phase of parity 0"),
    (Cell(0, 0, PARITY[1]), "of parity 1"),
    (Cell(0, 0, "filled", hatched=True), "not announced"),
    (Cell(0, 0, "conflict", hatched=True), "wrong"),
]
AXIS = "time goes from left to right: the order of events counts, their distances do not"


class Frame(NamedTuple):
    """One moment at which something happens."""

    at: int
    events: tuple[str, ...]
    states: tuple[tuple[str, Barrier], ...]  # of every barrier, after them
    lines: tuple[int, ...]  # of the code that run now


@lru_cache(maxsize=64)
def _scene_of(setup: Setup) -> Played:
    return setup.played()


@dataclass(frozen=True, slots=True, repr=False)
class BarrierPlay(Figure):
    """A kernel that waits for its copies at an mbarrier, played on a model of it.

    Attributes
    ----------
    mistake : str or None
        What the kernel does wrong.
    outcome : str
        "right", "early read", "hang", "early read, then hang" or "stale store".
    code : tuple of str
        The kernel, with the mistake.
    frames : tuple of Frame
        Every moment at which something happens, with the states of all barriers.
    """

    title: str
    setup: Setup

    @property
    def mistake(self) -> str | None:
        """What the kernel does wrong."""
        return self.setup.mistake

    @property
    def code(self) -> tuple[str, ...]:
        """The kernel, line by line."""
        return _scene_of(self.setup).code

    @property
    def outcome(self) -> str:
        """What comes of it."""
        return _outcome(_scene_of(self.setup))

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Every moment at which something happens."""
        played = _scene_of(self.setup)
        edges = {t for bar in played.bars for t in (bar.begin, bar.end) if t is not None}
        times = sorted(edges | {change.at for change in played.changes})
        states: dict[str, Barrier] = {}
        frames = []
        for t in times:
            events = [f"{c.lane}: {c.words}" for c in played.changes if c.at == t]
            flips = [c for c in played.changes if c.at == t and _flips(c, states)]
            events += [f"{c.barrier}: phase {c.state.phase - 1} has ended" for c in flips]
            states |= {c.barrier: c.state for c in played.changes if c.at == t}
            lanes = {row.of for row in played.rows if row.kind == "lane"}
            bars = [bar for bar in played.bars if bar.lane in lanes]
            acting = {change.lane for change in played.changes if change.at == t}
            began = [b for b in bars if b.begin == t and (b.wrong or b.lane not in acting)]
            events += [event for bar in began if (event := _begins(bar))]
            now = [bar for bar in bars if bar.begin <= t and (bar.end is None or t < bar.end)]
            lines = tuple(sorted({bar.act.line for bar in now if bar.act.line >= 0}))
            frames.append(Frame(t, tuple(events), tuple(states.items()), lines))
        return tuple(frame for frame in frames if frame.events)

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel."""
        return (_Timeline(_scene_of(self.setup)).scene(self.title, self.setup.lesson),)

    def text(self) -> str:
        """Return the code, and a table of what happens and of the barriers' states."""
        right = _scene_of(self.setup._replace(mistake=None)).code
        lines = [
            self.title,
            *(row for line in self.setup.lesson for row in wrap(line, TEXT_COLUMNS)),
            "",
        ]
        for line, should in zip(self.code, right, strict=True):
            lines.append(f"  {line}" if line == should else f"✗ {line}")
        lines += ["", "tick  what happens, and the barriers after it"]
        for frame in self.frames:
            said = "; ".join((*frame.events, *_changed(frame, self.frames)))
            lines += wrap(
                said, TEXT_COLUMNS, initial_indent=f"{frame.at:4}  ", subsequent_indent=" " * 6
            )
        return "\n".join(lines)

    def panels(self) -> str:
        """Return the picture and its code; where scripts run, with switches and a scrubber."""
        mistakes = (None, *MISTAKES)
        setups = [s for m in mistakes if (s := self.setup._replace(mistake=m)).is_possible]
        choices = [_figure(setup) for setup in setups]
        data = {"now": choices.index(self), "choices": [c._as_data() for c in choices]}
        return played(self, "barrier", data, f'<pre class="tma-code">{self._code_html()}</pre>')

    def _code_html(self) -> str:
        """Return the code, one element a line; lines that differ from the right code are marked."""
        right = _scene_of(self.setup._replace(mistake=None)).code
        parts = []
        for line, should in zip(self.code, right, strict=True):
            wrong = line != should
            mark, sign = (' class="tma-wrong"', "✗") if wrong else ("", " ")
            parts.append(f"<span{mark}>{sign} {html.escape(line)}</span>")
        return "\n".join(parts)

    def _as_data(self) -> dict[str, object]:
        """Return what the script shows when this is chosen."""
        timeline, frames = _Timeline(_scene_of(self.setup)), self.frames
        shown = [
            (timeline.x(f.at), "; ".join(f.events), _stated(f, frames), f.lines) for f in frames
        ]
        return {
            "name": self.mistake or "right",
            "title": self.title,
            "about": " ".join(self.setup.lesson),
            "svg": svg_panel(timeline.scene(self.title, [])),
            "code": self._code_html(),
            "frames": shown,
        }


def _outcome(played: Played) -> str:
    wrongs = [(bar.lane, bar.wrong) for bar in played.bars if bar.wrong]
    hangs = any(wrong == "waits for ever" for _, wrong in wrongs)
    reads = [lane for lane, wrong in wrongs if "bytes" in wrong]
    if any(lane.startswith("copy engine") for lane in reads):
        return "stale store"
    if reads:
        return "early read, then hang" if hangs else "early read"
    return "hang" if hangs else "right"


def _flips(change: Change, before: dict[str, Barrier]) -> bool:
    old = before.get(change.barrier)
    return old is not None and old.phase != change.state.phase


def _begins(bar: Bar) -> str:
    """Describe what a bar begins with, where no change of a barrier does."""
    if isinstance(bar.act, Wait):
        if bar.act.barrier == SYNC:
            return ""
        call = f"{bar.lane}: wait({bar.act.barrier}, {bar.act.parity})"
        return f"{call} passes at once" if bar.end == bar.begin else f"{call} {bar.wrong}".rstrip()
    name = " ".join(bar.act.text.partition("|")[0].split())
    return f"{bar.lane}: {name}" + f", ✗ {bar.wrong}" * bool(bar.wrong)


def _in_words(name: str, state: Barrier) -> str:
    arrivals, missing = counted(state.pending, "arrival"), counted(state.tx_bytes, "byte")
    return f"{name}: phase {state.phase}, {arrivals} and {missing} pending"


def _stated(frame: Frame, frames: tuple[Frame, ...]) -> list[str]:
    """Describe the states of all barriers where they are few, else of those that changed."""
    if len(frame.states) <= MAX_BLOCKS:
        return [_in_words(name, state) for name, state in frame.states]
    return _changed(frame, frames)


def _changed(frame: Frame, frames: tuple[Frame, ...]) -> list[str]:
    """Describe the states that are new in a frame."""
    at = frames.index(frame)
    before = dict(frames[at - 1].states) if at else {}
    return [_in_words(name, s) for name, s in frame.states if before.get(name) != s]


# --- The picture ----------------------------------------------------------------------------------


class _Timeline:
    """The rows of a scene, in pixels from where the axis of time begins."""

    def __init__(self, played: Played) -> None:
        self.played = played
        times = [t for bar in played.bars for t in (bar.begin, bar.end) if t is not None]
        hangs = any(bar.end is None for bar in played.bars)
        self.end = max(times) + (FOREVER if hangs else TAIL)
        self.detailed = any(row.kind == "bytes" for row in played.rows)
        self.tops: list[float] = []
        self.places: dict[
            str, tuple[float, float, float]
        ] = {}  # top, bottom of its first row, bottom
        y = 0.0
        for row, below in zip(played.rows, (*played.rows[1:], None), strict=True):
            height, gap = HEIGHTS[row.kind]
            top, first_bottom, _ = self.places.get(row.of, (y, y + height, 0))
            self.places[row.of] = top, first_bottom, y + height
            self.tops.append(y)
            y += height + gap
            if row.kind == "strip" and (below is None or below.kind != "strip"):
                y += STAGE_GAP
        self.height = y

    def x(self, at: int | None) -> float:
        """Return the pixels of a tick; of None, the end of the axis."""
        return round(WIDTH * (self.end if at is None else at) / self.end, 1)

    def scene(self, title: str, why: list[str]) -> Scene:
        """Draw all rows, arrows first."""
        cells = [*self._arrows()]
        for row, top in zip(self.played.rows, self.tops, strict=True):
            if row.kind == "heading":
                cells.append(words(-100, top, row.label, "strong", HEIGHTS["heading"][0]))
                continue
            cells.append(label(0, top, row.label, "label", self._label_height(row)))
            cells += getattr(self, f"_{row.kind}")(row.of, top)
        size = ("x", 0, 0, WIDTH), ("y", 0, 0, round(self.height))
        grid = Grid(tuple(cells), windows=size)
        used = {cell.style for cell in cells}
        legend = [entry for entry in LEGEND if entry[0].style in used]
        return lay_out(title, [grid], above=why, notes=[AXIS], legend=legend)

    def _label_height(self, row: Row) -> float:
        return NUMBERS if row.kind == "bytes" else HEIGHTS[row.kind][0]

    def _arrows(self) -> list[Cell]:
        """Draw who changes a barrier, and whom the end of its phase wakes."""
        cells = [self._arrow(c.at, c.lane, c.barrier) for c in self.played.changes if self.detailed]
        for bar in self.played.bars:
            waited = bar.end is not None and bar.end > bar.begin
            if isinstance(bar.act, Wait) and bar.act.barrier != SYNC and waited:
                cells.append(self._arrow(bar.end, bar.act.barrier, bar.lane))
        return list(dict.fromkeys(cells))

    def _arrow(self, at: int | None, start: str, end: str) -> Cell:
        (top, first_bottom, _), (goal, _, goal_bottom) = self.places[start], self.places[end]
        begin, tip = (first_bottom, goal - 1) if top < goal else (top, goal_bottom + 1)
        return Cell(self.x(at), begin, "arrow", columns=0, rows=tip - begin)

    def _lane(self, lane: str, top: float) -> list[Cell]:
        height = HEIGHTS["lane"][0]
        cells = [Cell(0, top + height / 2, "grid", columns=WIDTH, rows=0)]
        return [*cells, *(self._bar(b, top, height) for b in self.played.bars if b.lane == lane)]

    def _bar(self, bar: Bar, top: float, height: float) -> Cell:
        left, right = self.x(bar.begin), self.x(bar.end)
        act = bar.act
        if isinstance(act, Wait):
            name = act.barrier.partition(" ")[0]
            if name == SYNC:
                texts, style = ["sync"], "padding"
            else:
                texts, style = (
                    [f"wait({name}, {act.parity})", "wait"],
                    "padding",
                )
        else:
            texts, style = act.text.split("|"), act.style
        title = f"{bar.lane}: {texts[0]}".replace("\n", " ") + f", {bar.wrong}" * bool(bar.wrong)
        if bar.wrong:
            style = "conflict"
            texts = [f"{texts[0]}\n{bar.wrong}", bar.wrong.replace(" not", "\nnot"), *texts]
        text = fitting(right - left, texts)
        wrong = bool(bar.wrong)
        return Cell(left, top, style, text, title, right - left, height, bar.end is None and wrong)

    def _segments(self, barrier: str) -> list[tuple[float, float, Barrier, bool]]:
        """Return the states of a barrier, from when to when, and whether it ends stuck in one."""
        changes = [c for c in self.played.changes if c.barrier == barrier]
        last = {c.at: c.state for c in changes}  # the last state of each tick
        edges = [*last, None]
        stuck = any(
            bar.end is None and isinstance(bar.act, Wait) and bar.act.barrier == barrier
            for bar in self.played.bars
        )
        return [
            (self.x(begin), self.x(end), last[begin], stuck and end is None)  # type: ignore[index]
            for begin, end in pairwise(edges)
        ]

    def _merged(self, barrier: str, field: str) -> list[tuple[float, float, Barrier, bool]]:
        """Return the segments in which one number of the state is the same."""
        merged: list[tuple[float, float, Barrier, bool]] = []
        for left, right, state, stuck in self._segments(barrier):
            same = merged and getattr(merged[-1][2], field) == getattr(state, field)
            if same and (field == "phase" or merged[-1][2].phase == state.phase):
                merged[-1] = (merged[-1][0], right, state, stuck)
            else:
                merged.append((left, right, state, stuck))
        return merged

    def _phase(self, barrier: str, top: float) -> list[Cell]:
        cells = []
        for left, right, state, _ in self._merged(barrier, "phase"):
            now, other = state.phase % 2, 1 - state.phase % 2
            name = f"phase {state.phase}"
            long = f"{name}: wait({now}) waits, wait({other}) passes"
            text = fitting(right - left, [long, f"{name}: parity {now}", name, f"{state.phase}"])
            height = HEIGHTS["phase"][0]
            cells.append(Cell(left, top, PARITY[now], text, long, right - left, height))
        return cells

    def _strip(self, barrier: str, top: float) -> list[Cell]:
        cells = []
        for left, right, state, stuck in self._merged(barrier, "phase"):
            long = _in_words(barrier, state)
            style = "conflict" if stuck else PARITY[state.phase % 2]
            text = fitting(right - left, [f"phase {state.phase}", f"{state.phase}"])
            cells.append(Cell(left, top, style, text, long, right - left, HEIGHTS["strip"][0]))
        return cells

    def _arrivals(self, barrier: str, top: float) -> list[Cell]:
        cells = []
        for left, right, state, stuck in self._merged(barrier, "pending"):
            style = "conflict" if stuck and state.pending else "cell"
            title = counted(state.pending, "pending arrival")
            height = HEIGHTS["arrivals"][0]
            cells.append(Cell(left, top, style, f"{state.pending}", title, right - left, height))
        return cells

    def _bytes(self, barrier: str, top: float) -> list[Cell]:
        """Draw the pending bytes as numbers over a staircase; unannounced bytes are hatched."""
        states = self._merged(barrier, "tx_bytes")
        numbers = [state.tx_bytes for _, _, state, _ in states]
        scale = (HEIGHTS["bytes"][0] - NUMBERS) / max(1, max(0, *numbers) - min(0, *numbers))
        zero = round(top + NUMBERS + scale * max(0, *numbers), 1)
        cells = []
        for left, right, state, stuck in states:
            n, wrong = state.tx_bytes, stuck and state.tx_bytes
            text, title = f"{n}".replace("-", "\u2212"), f"{counted(n, 'byte')} pending"
            text = fitting(right - left, [text])
            style = "conflict" if wrong else "cell"
            cells.append(Cell(left, top, style, text, title, right - left, NUMBERS))
            if n:
                height = round(scale * abs(n), 1)
                style = "conflict" if wrong else "taken" if n > 0 else "filled"
                base = zero - height if n > 0 else zero
                cells.append(Cell(left, base, style, "", title, right - left, height, n < 0))
        cells.append(Cell(0, zero, "axis", columns=WIDTH, rows=0))
        return cells

    def _slot(self, slot: str, top: float) -> list[Cell]:
        """Draw what a stage of the ring contains: it fills, is full, and is read."""
        layers: list[Layer] = [(0, WIDTH, "padding", [])]
        fills = [bar for bar in self.played.bars if bar.lane == slot]
        reads = [bar for bar in self.played.bars if getattr(bar.act, "slot", "") == slot]
        for fill in fills:
            if isinstance(fill.act, Do):
                tile, ready = f"tile {fill.act.tile}", self.x(fill.end)
                layers.append((self.x(fill.begin), ready, "taken", [f"{tile} comes", "comes"]))
                until = min((r.begin for r in reads if r.begin >= (fill.end or 0)), default=None)
                layers.append(
                    (ready, self.x(until), fill.act.style, [f"{tile} is full", tile, "full"])
                )
        for read in reads:
            style = "conflict" if read.wrong else "tint6"
            layers.append((self.x(read.begin), self.x(read.end), style, ["is read", "read"]))
        height = HEIGHTS["slot"][0]
        return [
            Cell(left, top, style, fitting(right - left, texts), "", right - left, height)
            for left, right, (_, _, style, texts) in _painted(layers)
        ]


Layer = tuple[float, float, str, list[str]]  # from, to, style, texts


def _painted(layers: list[Layer]) -> list[tuple[float, float, Layer]]:
    """Return the visible parts of layers, each painted over those before it."""
    parts: list[tuple[float, float, Layer]] = []
    for left, right in pairwise(sorted({x for layer in layers for x in layer[:2]})):
        upper = [layer for layer in layers if layer[0] <= left and right <= layer[1]][-1]
        goes_on = parts and parts[-1][2] is upper
        parts[-1:] = (
            [(parts[-1][0], right, upper)] if goes_on else [*parts[-1:], (left, right, upper)]
        )
    return parts


def fitting(width: float, texts: list[str]) -> str:
    """Return the first text that a cell of this width shows at full size; none fits: no text.

    >>> fitting(40, ["wait(full, 0)", "wait 0"])
    'wait 0'
    """
    for text in texts:
        if max(map(len, text.split("\n"))) * LABEL_SIZE * GLYPH_WIDTH <= width - 3:
            return text
    return ""


# --- The function ---------------------------------------------------------------------------------


@opaque
def barrier(
    tensor_map: TensorMap | Tile | None = None,
    *,
    mistake: str | None = None,
    stages: int = 1,
    blocks: int = 1,
) -> BarrierPlay:
    """Show how a kernel waits for a copy: threads, copy engine and mbarrier on one axis of time.

    The picture is played on a model of the mbarrier (phase, pending arrivals, pending bytes). In a
    notebook, switches show each mistake and a slider goes from event to event.

    Parameters
    ----------
    tensor_map : TensorMap or Tile, optional
        Whose `tx_bytes` are loaded; None for 8192 bytes, 64 x 64 elements of 16 bits.
    mistake : str, optional
        What the kernel does wrong: "expects too little", "expects too much", "wrong parity",
        "initialised for 2", or, with one block and one stage, "no fence", or, with several stages,
        "empty parity", "never flipped", "not released".
    stages : int
        1 for one tile: load, wait, change, store. 2 to 8 for a ring with `full` and `empty`
        barriers, a producer and a consumer.
    blocks : int
        2 for a cluster in which each block loads its part of a tile into both (multicast).

    Returns
    -------
    BarrierPlay

    Raises
    ------
    TmaPreconditionError
        For another mistake, one that this kernel cannot make, or numbers out of range.

    Examples
    --------
    >>> barrier().outcome
    'right'
    >>> barrier(mistake="expects too little").outcome
    'early read'
    >>> print(barrier(mistake="initialised for 2").frames[-1].states[0])
    ('full', Barrier(arrivals=2, pending=1, tx_bytes=0, phase=0))

    Notes
    -----
    Source: PTX ISA, mbarrier; the outcomes are measured (H200, driver 580.159.04) but for those
    that the picture names as documented.
    """
    if tensor_map is not None:
        require("tensor_map", tensor_map, (TensorMap, Tile), MAKE_ONE)
    for name, value, most in (("stages", stages, MAX_STAGES), ("blocks", blocks, MAX_BLOCKS)):
        if integer_of(value) is None or not 1 <= value <= most:
            found = f"{name} is {shown(value)}"
            raise refusal(name, found, f"be an integer in 1..{most}", f"pass {name}=1")
    tx_bytes = TX_BYTES if tensor_map is None else tensor_map.tx_bytes
    setup = Setup(None, int(stages), int(blocks), tx_bytes)
    if mistake is not None:
        possible = [name for name in MISTAKES if setup._replace(mistake=name).is_possible]
        if text_of(mistake) not in possible:
            must = f"be a mistake of this kernel: {', '.join(possible)}"
            raise refusal("mistake", f"mistake is {shown(mistake)}", must, "choose one of them")
    return _figure(setup._replace(mistake=mistake and str(mistake)))


def _figure(setup: Setup) -> BarrierPlay:
    parts = "a ring of {} stages" if setup.stages > 1 else "one tile"
    kernel = parts.format(setup.stages) + " for two blocks" * (setup.blocks > 1)
    size = f"{kernel}, {setup.all_bytes} bytes" + " each" * (setup.stages > 1)
    verdict = _outcome(_scene_of(setup))
    mark = "✓ right" if setup.mistake is None else f"✗ {setup.mistake}: {verdict}"
    return BarrierPlay(f"mbarrier, {size}: {mark}", setup)
