"""The picture of an mbarrier over time: arrivals, copied bytes, waits and errors."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from textwrap import wrap

from tma_dlpack.course.barrier_model import FOREVER, SYNC, Do, Wait
from tma_dlpack.course.barrier_scenes import Frame, Played, Row, Setup
from tma_dlpack.course.core import (
    TEXT_COLUMNS,
    Cell,
    Figure,
    Grid,
    Scene,
    TensorMap,
    Tile,
    bad_value,
    counted,
    integer_of,
    label,
    lay_out,
    played,
    svg_panel,
    text_of,
    text_width,
    words,
)

TX_BYTES = 8192  # bytes of a load if no map is passed: 64 x 64 elements of 16 bits
MAX_STAGES, MAX_BLOCKS = 8, 2
WIDTH, NARROW_WIDTH = 640, 164  # px: length of the axis, in the wide picture and on a phone
TAIL, LONG_TAIL = 4, 16  # drawn ticks after the last event: without a hang, and with a hang
# px: height of the byte counts, height of the stairs below the counts, free space above the row of
# a lane or slot.
NUMBERS, STAIRS, ABOVE = 16, 32, 6
#: `Row.kind` -> height of the row, and free space below the row, in px.
HEIGHTS = {
    "heading": (18, 4),
    "lane": (30, 8),
    "phase": (18, 0),
    "arrivals": (18, 0),
    "bytes": (NUMBERS + STAIRS, 14),
    "slot": (20, 0),
    "strip": (14, 0),
}
#: `Row.kind` -> the attribute of `Barrier` that the row shows.
FIELDS = {"phase": "phase", "strip": "phase", "arrivals": "pending", "bytes": "tx_bytes"}
PARITY = ("even", "odd")  # styles of phases of parity 0 and of parity 1
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

Span = tuple[int, int | None]  # ticks [begin, end); None means that the action never ends


@dataclass(frozen=True, slots=True, repr=False)
class BarrierPlay(Figure):
    """A kernel that waits for its copies at an mbarrier, executed on a model of the mbarrier.

    Attributes
    ----------
    mistake : str or None
        Name of the kernel's mistake; None if the kernel is right.
    outcome : str
        "right", "early read", "hang", "early read, then hang", "stale store", or "undefined" if a
        thread arrives more often than a phase expects.
    code : tuple of str
        The lines of the kernel, including the mistake.
    frames : tuple of Frame
        One frame for each tick that has events. A frame contains the states of all barriers after
        the events of its tick.
    """

    title: str
    setup: Setup
    outcome: str
    code: tuple[str, ...]
    frames: tuple[Frame, ...]
    _played: Played = field(compare=False)

    @property
    def mistake(self) -> str | None:
        """The name of the kernel's mistake, or None."""
        return self.setup.mistake

    @property
    def sentence(self) -> str:
        """The caption: the condition under which a wait ends."""
        return (
            "wait(barrier, parity) [waits](is-wait) while the [phase](is-phase) of the barrier has "
            "that parity: even phases have parity 0, odd ones parity 1."
        )

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel."""
        return (_Timeline(self._played).scene(self.title, self.setup.lesson),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone; a text that does not fit becomes a tooltip."""
        return (_Timeline(self._played, NARROW_WIDTH).scene(self.title, self.setup.lesson),)

    def text(self) -> str:
        """Return the code, and a table of the events and of the barriers' states."""
        lines = [row for line in self.setup.lesson for row in wrap(line, TEXT_COLUMNS)]
        lines += ["", *self._marked(), "", "tick  what happens; the barriers after it"]
        for frame in self.frames:
            said = f"{frame.at:4}  {'; '.join((*frame.events, *_stated(frame)))}"
            lines += wrap(said, TEXT_COLUMNS, subsequent_indent=" " * 6)
        return "\n".join([self.title, *lines])

    def panels(self) -> str:
        """Return the picture and its code; scripts add switches and a slider."""
        # All variants are computed here, because the script only switches between them.
        mistakes = (None, *self.setup.possible)
        choices = [_figure(self.setup._replace(mistake=mistake)) for mistake in mistakes]
        now = mistakes.index(self.mistake)
        data = {"now": now, "choices": [choice._as_data() for choice in choices]}
        return played(self, "barrier", data, f'<pre class="tma-code">{self._code_html()}</pre>')

    def _marked(self) -> list[str]:
        """Return the lines of code; a cross marks each line that differs from the right code."""
        right = _figure(self.setup._replace(mistake=None)).code
        return [f"{' ' if a == b else '✗'} {a}" for a, b in zip(self.code, right, strict=True)]

    def _code_html(self) -> str:
        spans = (
            f"<span{' class=tma-wrong' if line[0] == '✗' else ''}>{html.escape(line)}</span>"
            for line in self._marked()
        )
        return "\n".join(spans)

    def _as_data(self) -> dict[str, object]:
        """Return the data with which `play.js` shows this kernel."""
        timeline = _Timeline(self._played)
        frames = [
            (
                # The tick as a fraction of the axis, because this number fits both layouts.
                round(timeline.x(f.at) / WIDTH, 4),
                "; ".join(f.events),
                _stated(f, few=MAX_BLOCKS),
                f.lines,
            )
            for f in self.frames
        ]
        return {
            "name": self.mistake or "right",
            "title": self.title,
            "about": " ".join(self.setup.lesson),
            "svg": svg_panel(timeline.scene(self.title, ())),
            "narrow": svg_panel(_Timeline(self._played, NARROW_WIDTH).scene(self.title, ())),
            "code": self._code_html(),
            "frames": frames,
        }


def _stated(frame: Frame, few: int = 0) -> list[str]:
    """Describe the changed barriers, or all barriers if the frame has at most `few` barriers."""
    return [
        f"{name}: phase {state.phase}, {counted(state.pending, 'arrival')} and "
        f"{counted(state.tx_bytes, 'byte')} pending"
        for name, state in frame.states
        if name in frame.changed or len(frame.states) <= few
    ]


# --- The picture ----------------------------------------------------------------------------------


class _Timeline:
    """The rows of the picture; x is px from the start of the axis, and y is px from the top."""

    def __init__(self, played: Played, width: int = WIDTH) -> None:
        self.played, self.width = played, width
        hangs = any(bar.end is None for bar in played.bars)
        last = max(max(bar.begin, bar.end or 0) for bar in played.bars)
        self.end = last + (max(LONG_TAIL, last // 5) if hangs else TAIL)
        self.rows: list[tuple[Row, float]] = []
        # Lane or barrier -> three y coordinates for arrows: its top, the bottom of its first row,
        # and the bottom of its last row.
        self.places: dict[str, tuple[float, float, float]] = {}
        self.height = 0.0
        for row in played.rows:
            height, gap = HEIGHTS[row.kind]
            self.height += ABOVE * (row.kind in ("lane", "slot"))
            top, middle, _ = self.places.get(row.of, (self.height, self.height + height, 0))
            self.places[row.of] = top, middle, self.height + height
            self.rows.append((row, self.height))
            self.height += height + gap

    def x(self, at: int | None) -> float:
        """Return the x coordinate of a tick in pixels; None means the end of the axis."""
        return round(self.width * (self.end if at is None else at) / self.end, 1)

    def scene(self, title: str, lesson: Sequence[str]) -> Scene:
        """Draw all rows; the arrows are drawn first, so that they are behind the rows."""
        cells = self._arrows()
        for row, top in self.rows:
            if row.kind == "heading":
                cells.append(words(-100, top, row.label, "strong", _height(row)))
                continue
            cells.append(label(0, top, row.label, "label", _height(row)))
            draw = {"lane": self._lane, "slot": self._slot}.get(row.kind, self._numbers)
            cells += draw(row, top)
        grid = Grid(
            tuple(cells), windows=(("x", 0, 0, self.width), ("y", 0, 0, round(self.height)))
        )
        used = {cell.style for cell in cells}
        legend = [entry for entry in LEGEND if entry[0].style in used]
        is_narrow = self.width < WIDTH
        return lay_out(
            title, [grid], above=lesson, notes=[AXIS], legend=legend, is_narrow=is_narrow
        )

    def _arrows(self) -> list[Cell]:
        """Draw the arrows between lanes (the rows of programs) and barriers.

        An arrow goes from a lane to a barrier that the lane changes, or from a barrier to a lane
        whose wait ends.
        """
        detailed = any(row.kind == "bytes" for row, _ in self.rows)
        ends = [(c.at, c.lane, c.barrier) for c in self.played.changes if detailed]
        for bar in self.played.bars:
            act, end = bar.act, bar.end or 0
            if isinstance(act, Wait) and act.barrier != SYNC and end > bar.begin:
                # A wait that passes at once has the length 0; it has no arrow.
                ends.append((end, act.barrier, bar.lane))
        cells = []
        # An arrow joins the facing edges of two groups of rows.
        for at, start, goal in dict.fromkeys(ends):
            (top, middle, _), (to, _, bottom) = self.places[start], self.places[goal]
            y0, y1 = (middle, to - 1) if top < to else (top, bottom + 1)
            cells.append(Cell(self.x(at), y0, "arrow", columns=0, rows=y1 - y0))
        return cells

    def _lane(self, row: Row, top: float) -> list[Cell]:
        height = HEIGHTS["lane"][0]
        cells = [Cell(0, top + height / 2, "grid", columns=self.width, rows=0)]
        for bar in self.played.bars:
            if bar.lane == row.of:
                act, wrong = bar.act, bar.wrong
                style, texts = act.style, act.text.split("|")
                if wrong:
                    # Texts from the longest to the shortest; `_cell` takes the first that fits.
                    style, broken = "conflict", wrong.replace("bytes ", "bytes\n")
                    texts = [f"{texts[0]}\n{wrong}", broken, *texts]
                cell = self._cell(row, top, (bar.begin, bar.end), style, texts)
                to = ("is-wait",) * (isinstance(act, Wait) and act.barrier != SYNC)
                cells.append(replace(cell, hatched=bar.end is None and bool(wrong), to=to))
        return cells

    def _cell(self, row: Row, top: float, span: Span, style: str, texts: list[str]) -> Cell:
        """Draw a bar from one tick to another, with the longest text that fits."""
        left, width = self.x(span[0]), self.x(span[1]) - self.x(span[0])
        fits = (t for t in texts if max(map(text_width, t.split("\n"))) <= width - 3)
        text = next(fits, "")
        title = "" if text == texts[0] else f"{row.of}: {texts[0]}".replace("\n", " ")
        return Cell(left, top, style, text, title, width, _height(row))

    def _numbers(self, row: Row, top: float) -> list[Cell]:
        """Draw one number of a barrier's state over time, with a cell per run of equal values."""
        name = FIELDS[row.kind]
        # If several changes have the same tick, keep only the last, because a tick has one place.
        states = {c.at: c.state for c in self.played.changes if c.barrier == row.of}
        waits = (bar.act for bar in self.played.bars if bar.wrong == FOREVER)
        stuck = any(isinstance(wait, Wait) and wait.barrier == row.of for wait in waits)
        # Byte counts are drawn as stairs around a zero line, negative counts below the line.
        numbers = [state.tx_bytes for state in states.values()]
        scale = STAIRS / max(1, max(0, *numbers) - min(0, *numbers))
        zero = round(top + NUMBERS + scale * max(0, *numbers), 1)
        cells = []

        def number(at: int) -> tuple[int, int]:
            return states[at].phase, getattr(states[at], name)

        starts = [next(run) for _, run in groupby(states, key=number)]
        for at, until in zip(starts, [*starts[1:], None], strict=True):
            phase, n = number(at)
            texts, style = [f"{n}".replace("-", "\u2212")], "cell"
            if name == "phase":
                parity = phase % 2
                rule = f"phase {n}: wait({parity}) waits, wait({1 - parity}) passes"
                texts = [rule, f"phase {n}: parity {parity}", f"phase {n}", f"{n}"]
                style = PARITY[parity]
                texts = texts[2:] if row.kind == "strip" else texts
            # A number is marked as wrong if a wait never ends because of this number.
            is_pending = row.kind == "strip" if name == "phase" else n != 0
            wrong = stuck and until is None and is_pending
            style = "conflict" if wrong else style
            cell = self._cell(row, top, (at, until), style, texts)
            cells.append(replace(cell, to=("is-phase",) * (name == "phase")))
            if row.kind == "bytes" and n:
                style = "conflict" if wrong else "taken" if n > 0 else "filled"
                y, height = zero - max(0, scale * n), abs(scale * n)
                stair = replace(cells[-1], row=y, rows=height, style=style, text="", hatched=n < 0)
                cells.append(stair)
        axis = [Cell(0, zero, "axis", columns=self.width, rows=0)] * (row.kind == "bytes")
        return [*cells, *axis]

    def _slot(self, row: Row, top: float) -> list[Cell]:
        """Draw a stage of the ring over time: a tile comes, the stage is full, the tile is read."""
        layers: list[Layer] = [(0, self.end, "padding", [""])]
        reads = [bar for bar in self.played.bars if getattr(bar.act, "slot", "") == row.of]
        for bar in self.played.bars:
            if bar.lane == row.of and isinstance(bar.act, Do):
                tile, full = f"tile {bar.act.tile}", bar.end or 0
                until = min((read.begin for read in reads if read.begin >= full), default=self.end)
                layers.append((bar.begin, full, "taken", [f"{tile} comes", "comes"]))
                layers.append((full, until, bar.act.style, [f"{tile} is full", tile, "full"]))
        for read in reads:
            style = "conflict" if read.wrong else "tint6"
            layers.append((read.begin, read.end or 0, style, ["is read", "read"]))
        return [
            self._cell(row, top, (begin, end), style, texts)
            for begin, end, (_, _, style, texts) in _painted(layers)
        ]


def _height(row: Row) -> float:
    return NUMBERS if row.kind == "bytes" else HEIGHTS[row.kind][0]


Layer = tuple[int, int, str, list[str]]  # first tick, last tick, style, texts


def _painted(layers: list[Layer]) -> list[tuple[int, int, Layer]]:
    """Return the visible parts of layers; each layer hides the layers before it."""
    parts: list[tuple[int, int, Layer]] = []
    # Between two neighbouring edges, one layer is visible. Join neighbouring parts of one layer.
    for begin, end in pairwise(sorted({at for layer in layers for at in layer[:2]})):
        upper = [layer for layer in layers if layer[0] <= begin and end <= layer[1]][-1]
        if parts and parts[-1][2] is upper:
            begin = parts.pop()[0]
        parts.append((begin, end, upper))
    return parts


# --- The function ---------------------------------------------------------------------------------


def play_barrier(
    tensor_map: TensorMap | Tile | None, mistake: str | None, stages: int, blocks: int
) -> BarrierPlay:
    """Run the kernel that `draw.barrier` shows; the parameters are those of `draw.barrier`."""
    for name, value, most in (("stages", stages, MAX_STAGES), ("blocks", blocks, MAX_BLOCKS)):
        if integer_of(value) is None or not 1 <= value <= most:
            raise bad_value(name, value, f"be an integer in 1..{most}", f"pass {name}=1")
    tx_bytes = TX_BYTES if tensor_map is None else tensor_map.tx_bytes
    setup = Setup(None, int(stages), int(blocks), tx_bytes)
    if mistake is not None and text_of(mistake) not in setup.possible:
        must = f"be a mistake of this kernel: {', '.join(setup.possible)}"
        raise bad_value("mistake", mistake, must, "choose one of them")
    return _figure(setup._replace(mistake=mistake and str(mistake)))


@lru_cache(maxsize=64)
def _figure(setup: Setup) -> BarrierPlay:
    kernel = f"a ring of {setup.stages} stages" if setup.stages > 1 else "one tile"
    size = f"{kernel}, " + "2 blocks, " * (setup.blocks > 1) + f"{setup.all_bytes} bytes"
    play = setup.played()
    mark = f"✗ {setup.mistake}: {play.outcome}" if setup.mistake else "✓ right"
    title = f"mbarrier, {size}: {mark}"
    return BarrierPlay(title, setup, play.outcome, play.code, play.frames(), play)
