"""Pictures of a timeline with a lane of bars per actor, and of a hang as a chain of waits.

An actor is a warp, a copy, a barrier or a proxy. The rows of a timeline are plain tuples, so that
`run_kernel`, `lint` and `postmortem` can all use the same picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure, require
from tma_dlpack.draw.grid import (
    LETTER_WIDTH,
    NARROW,
    Cell,
    Grid,
    Scene,
    label,
    lay_out,
    text_width,
    words,
)
from tma_dlpack.public import opaque
from tma_dlpack.tables.errors import bad_value

WIDE, NARROW_WIDTH = 560, NARROW - 24  # px: length of the axis, wide and on a phone
LANE, GAP, NAME = 26, 8, 16  # px: heights of a lane, of the space below it, of its name on a phone
# If a bar never ends, the axis continues after the last event. The additional part is TAIL times as
# long as the part before the last event, and at least 1.
TAIL = 0.12
MOST_NAME = 24  # maximum number of drawn letters of an actor's name
MOST_ROWS = 400  # maximum number of drawn bars
LEAST_LETTERS = 8  # a label is omitted if it would be cut to fewer letters
PROXIES = "threads", "async proxy"  # the actors that access shared memory
SKETCH = 48  # length of the axis in the text, in characters

#: Kind of a bar -> its style, its letter in text, and its meaning.
KINDS = {
    "run": ("cell", "=", "runs"),
    "wait": ("padding", ".", "waits"),
    "copy": ("taken", "#", "copies"),
    "use": ("tint6", "u", "uses the tile"),
    "fault": ("conflict", "!", "wrong"),
}


class TimelineRow(NamedTuple):
    """A bar: one activity of one actor.

    Attributes
    ----------
    actor : str
        A warp, a copy, a barrier or a proxy. The bars of one actor are in one lane.
    start : float
        Start of the bar, in any unit of time, such as steps, ticks or nanoseconds.
    end : float or None
        End of the bar; None if it never ends.
    kind : {"run", "wait", "copy", "use", "fault"}
    label : str
        The text in the bar, which is drawn only if it fits.
    about : str
        The tooltip, and the description in the text. If `about` is empty, `label` is used.
    fault : bool
        Whether the bar is drawn as wrong, whatever its kind is.
    key : str
        Bars with the same key are highlighted together, such as a wait and the copy that ends the
        wait.
    """

    actor: str
    start: float
    end: float | None
    kind: str = "run"
    label: str = ""
    about: str = ""
    fault: bool = False
    key: str = ""

    @property
    def said(self) -> str:
        """The description of the bar."""
        return self.about or self.label or KINDS[self.kind][2]

    @property
    def is_wrong(self) -> bool:
        """Whether the bar is drawn as wrong."""
        return self.fault or self.kind == "fault"


class TimelineArrow(NamedTuple):
    """An effect of one actor on another: an arrival, or the end of a phase.

    Attributes
    ----------
    start, end : str
        The actor where the arrow starts, and the actor where the arrow ends.
    at : float
    about : str
    """

    start: str
    end: str
    at: float
    about: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Timeline(Figure):
    """Bars on a time axis, with one lane per actor.

    Attributes
    ----------
    rows : tuple of TimelineRow
    arrows : tuple of TimelineArrow
    notes : tuple of str
    """

    title: str
    rows: tuple[TimelineRow, ...]
    arrows: tuple[TimelineArrow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors, in the order of their first rows."""
        return tuple(dict.fromkeys(row.actor for row in self.rows))

    @property
    def span(self) -> tuple[float, float]:
        """Start and end of the axis; the end is after the last event if a bar never ends."""
        ends = [row.start if row.end is None else row.end for row in self.rows]
        first, last = min(row.start for row in self.rows), max(ends)
        is_open = any(row.end is None for row in self.rows)
        return first, last + max(1, (last - first) * TAIL) * (is_open or last == first)

    @property
    def sentence(self) -> str:
        """The caption: the bars that are wrong."""
        wrong = [f"{row.actor}: {row.said}" for row in self.rows if row.is_wrong]
        return f"Wrong: {'; '.join(dict.fromkeys(wrong))}." if wrong else ""

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel, with the names left of the lanes."""
        return (self._scene(WIDE, is_narrow=False),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone, with the names above the lanes."""
        return (self._scene(NARROW_WIDTH, is_narrow=True),)

    def text(self) -> str:
        """Return a sketch of the lanes, and a line for each bar that has a text or is wrong."""
        first, last = self.span
        wide = min(MOST_NAME, max(map(len, self.actors)))
        lines = [self.title]
        for actor in self.actors:
            marks = [" "] * SKETCH
            own = [row for row in self.rows if row.actor == actor]
            for row in sorted(own, key=lambda row: row.is_wrong):  # wrong bars last
                begin = int((row.start - first) / (last - first) * (SKETCH - 1))
                until = last if row.end is None else row.end
                stop = max(begin + 1, round((until - first) / (last - first) * SKETCH))
                mark = KINDS["fault" if row.is_wrong else row.kind][1]
                marks[begin:stop] = mark * (min(stop, SKETCH) - begin)
            lines.append(f"{actor[:wide]:<{wide}} |{''.join(marks)}|")
        # The legend has only the kinds that occur, in the order of the rows.
        used = dict.fromkeys("fault" if row.is_wrong else row.kind for row in self.rows)
        lines.append("; ".join(f"{KINDS[kind][1]} {KINDS[kind][2]}" for kind in used))
        for row in self.rows:
            if row.about or row.label or row.is_wrong:
                end = "∞" if row.end is None else f"{row.end:g}"
                mark = "✗" if row.is_wrong else " "
                lines.append(f"{mark} {row.start:g}..{end} {row.actor}: {row.said}")
        lines += [f"  {a.at:g} {a.start} -> {a.end}: {a.about}" for a in self.arrows if a.about]
        return "\n".join(line[:TEXT_COLUMNS] for line in (*lines, *self.notes))

    def _scene(self, width: float, *, is_narrow: bool) -> Scene:
        """Draw the lanes, then the arrows, then the bars; wrong bars are last, over other bars."""
        first, last = self.span
        above, pitch = NAME * is_narrow, LANE + GAP + NAME * is_narrow
        tops = {actor: n * pitch + above for n, actor in enumerate(self.actors)}

        def x(at: float) -> float:
            return round((at - first) / (last - first) * width, 2)

        cells: list[Cell] = []
        for actor, top in tops.items():
            name = actor if len(actor) <= MOST_NAME else f"{actor[: MOST_NAME - 1]}…"
            if is_narrow:
                cells.append(words(0, top - NAME, name, "label", NAME))
            else:
                cells.append(label(0, top, name, "label", LANE))
            cells.append(Cell(0, top + LANE / 2, "grid", columns=width, rows=0))
        cells += self._arrows(tops, x)
        # Sort wrong bars first, so that MOST_ROWS does not omit them, but draw them last, over the
        # other bars.
        drawn = sorted(self.rows, key=lambda row: not row.is_wrong)[:MOST_ROWS]
        for row in reversed(drawn):
            left, right = x(row.start), width if row.end is None else x(row.end)
            style = KINDS["fault" if row.is_wrong else row.kind][0]
            room = max(2.0, right - left)
            named = _shortened(row.label, room - 3)
            bar = Cell(left, tops[row.actor], style, named, columns=room, rows=LANE)
            title = f"{row.actor}: {row.said}"
            cells.append(replace(bar, title=title, hatched=row.is_wrong, key=row.key))
        notes = list(self.notes)
        if len(self.rows) > MOST_ROWS:
            notes.append(f"{len(self.rows) - MOST_ROWS} further bars are not drawn")
        used = {KINDS["fault" if row.is_wrong else row.kind] for row in self.rows}
        legend = [
            (Cell(0, 0, style, hatched=style == "conflict"), meaning)
            for style, letter, meaning in KINDS.values()
            if (style, letter, meaning) in used
        ]
        about = f"{self.title}. {self.sentence}".strip()
        return lay_out(about, [Grid(tuple(cells))], notes=notes, legend=legend, is_narrow=is_narrow)

    def _arrows(self, tops: Mapping[str, float], x: Callable[[float], float]) -> list[Cell]:
        cells = []
        for arrow in self.arrows:
            begin, goal = tops[arrow.start], tops[arrow.end]
            y0, y1 = (begin + LANE, goal - 1) if begin < goal else (begin, goal + LANE + 1)
            cells.append(Cell(x(arrow.at), y0, "arrow", "", arrow.about, columns=0, rows=y1 - y0))
        return cells


def _shortened(label: str, room: float) -> str:
    """Return a label cut to `room` px, or "" if fewer than `LEAST_LETTERS` would remain."""
    if text_width(label) <= room:
        return label
    letters = int(room / LETTER_WIDTH) - 1
    return f"{label[:letters]}…" if letters >= LEAST_LETTERS else ""


@opaque
def lanes(
    rows: Iterable[TimelineRow | tuple[Any, ...]],
    *,
    title: str = "timeline",
    arrows: Iterable[TimelineArrow | tuple[Any, ...]] = (),
    notes: Sequence[str] = (),
) -> Timeline:
    """Show on a time axis when each actor runs, waits or copies; each actor has a lane.

    Parameters
    ----------
    rows : iterable of TimelineRow
        A row can also be a tuple (actor, start, end, kind, label, about, fault, key). The last five
        items are optional. `end` is None for a bar that never ends.
    title : str
    arrows : iterable of TimelineArrow
        An arrow can also be a tuple (from actor, to actor, at, about).
    notes : sequence of str
        Lines below the picture.

    Returns
    -------
    Timeline

    Raises
    ------
    TmaPreconditionError
        If there are no rows, a kind is unknown, a bar ends before it begins, or an actor of an
        arrow has no row.

    Examples
    --------
    >>> print(lanes([
    ...     ("threads", 0, 4, "run", "write the tile"),
    ...     ("async proxy", 4, 8, "copy", "reads old bytes", "no fence before the store", True),
    ... ], title="a missing fence"))
    a missing fence
    threads     |========================                        |
    async proxy |                       !!!!!!!!!!!!!!!!!!!!!!!!!|
    = runs; ! wrong
      0..4 threads: write the tile
    ✗ 4..8 async proxy: no fence before the store
    """
    require("title", title, (str,), "pass a word")
    made = tuple(TimelineRow(*row) for row in rows)
    if not made:
        raise bad_value("rows", (), "have a row", "pass (actor, start, end, kind)")
    for n, row in enumerate(made):
        if row.kind not in KINDS:
            must = f"be one of {', '.join(KINDS)}"
            raise bad_value(f"rows[{n}].kind", row.kind, must, "choose one of them")
        if row.end is not None and row.end < row.start:
            must = f"be {row.start:g} or more, its start"
            raise bad_value(f"rows[{n}].end", row.end, must, "pass None where it never ends")
    actors = {row.actor for row in made}
    linked = tuple(TimelineArrow(*arrow) for arrow in arrows)
    for n, arrow in enumerate(linked):
        for actor in arrow[:2]:
            if actor not in actors:
                must = "be the actor of a row"
                raise bad_value(f"arrows[{n}]", actor, must, "pass a row of this actor too")
    return Timeline(title, made, linked, tuple(notes))


@opaque
def missing_fence(first: str, second: str, *, title: str = "a missing fence") -> Timeline:
    """Show two accesses to shared memory through different proxies, without a fence between them.

    Parameters
    ----------
    first, second : str
        The two instructions in program order. An instruction that begins with ``cp.`` accesses
        memory through the async proxy.
    title : str

    Returns
    -------
    Timeline
        A timeline with two bars that overlap, because nothing orders the accesses.

    Examples
    --------
    >>> missing_fence("st.shared.u32", "cp.async.bulk.global").sentence
    'Wrong: async proxy: cp.async.bulk.global may not see st.shared.u32: no fence.proxy.async.'
    """
    for name, value in (("first", first), ("second", second)):
        require(name, value, (str,), "pass an instruction")
    lanes_of = [PROXIES[said.startswith("cp.")] for said in (first, second)]
    kind = "copy" if first.startswith("cp.") else "run"
    about = f"{second} may not see {first}: no fence.proxy.async"
    rows = (
        # The times are not measured. The bars overlap from tick 4 to tick 6.
        TimelineRow(lanes_of[0], 0, 6, kind, first, first),
        TimelineRow(lanes_of[1], 4, 10, "fault", second, about, True),
    )
    note = "they are in program order; without the fence the accesses may overlap"
    return Timeline(title, rows, notes=(note,))


# --- A hang as a chain ----------------------------------------------------------------------------


class ChainLink(NamedTuple):
    """One wait: an actor, and the object for which it waits.

    Attributes
    ----------
    who, what : str
        The waiting actor, and the object for which it waits.
    about : str
        What is missing: arrivals, bytes or a phase.
    fault : bool
        Whether `what` is the cause of the hang.
    """

    who: str
    what: str
    about: str = ""
    fault: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class WaitChain(Figure):
    """A chain of waits that explains a hang.

    Attributes
    ----------
    links : tuple of ChainLink
    """

    title: str
    links: tuple[ChainLink, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All actors and objects of the chain, in the order of the links."""
        return tuple(dict.fromkeys(name for link in self.links for name in (link.who, link.what)))

    @property
    def is_cycle(self) -> bool:
        """Whether the links form a cycle."""
        after = {link.who: link.what for link in self.links}
        # From each waiting actor, follow the links until they end or reach a name a second time.
        for name in after:
            seen = {name}
            while (name := after.get(name, "")) and name not in seen:
                seen.add(name)
            if name:
                return True
        return False

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel, with a box for each name and an arrow for each wait."""
        return (self._scene(WIDE, is_narrow=False),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone."""
        return (self._scene(NARROW_WIDTH, is_narrow=True),)

    def text(self) -> str:
        """Return a line for each link."""
        lines = [
            f"{'✗' if link.fault else ' '} {link.who} waits for {link.what}"
            + f": {link.about}" * bool(link.about)
            for link in self.links
        ]
        lines += ["they wait for each other"] * self.is_cycle
        return "\n".join(line[:TEXT_COLUMNS] for line in (self.title, *lines))

    def _scene(self, width: float, *, is_narrow: bool) -> Scene:
        wrong = {link.what for link in self.links if link.fault}
        about = {link.who: link for link in self.links}
        box = min(width, max(text_width(name) for name in self.names) + 16)
        most = int((width - 24) / LETTER_WIDTH)
        cells, height = [], LANE + 24
        tops = {name: n * height for n, name in enumerate(self.names)}
        for name, top in tops.items():
            style = "conflict" if name in wrong else "cell"
            cells.append(
                Cell(0, top, style, name, name, columns=box, rows=LANE, hatched=name in wrong)
            )
            if (link := about.get(name)) is None:
                continue
            said = f"waits for {link.about}" if link.about else "waits for"
            # An arrow only reaches the box below. If the wait is for another box, name this box.
            if tops[link.what] != top + height:
                said = f"waits for {link.what}" + f": {link.about}" * bool(link.about)
            else:
                cells.append(Cell(12, top + LANE, "arrow", columns=0, rows=24))
            cut = said if len(said) <= most else f"{said[: most - 1]}…"
            cells.append(words(24, top + LANE, cut, "alarm" if link.fault else "muted", 24))
        notes = ["they wait for each other"] * self.is_cycle
        said = "; ".join(f"{link.who} waits for {link.what}" for link in self.links)
        return lay_out(said, [Grid(tuple(cells))], notes=notes, is_narrow=is_narrow)


@opaque
def chain(
    links: Iterable[ChainLink | tuple[Any, ...]], *, title: str = "who waits for whom"
) -> WaitChain:
    """Show a hang as a chain of waits, name what each wait misses, and mark the cause.

    Parameters
    ----------
    links : iterable of ChainLink
        A link can also be a tuple (who, what, about, fault). The last two items are optional.
    title : str

    Returns
    -------
    WaitChain

    Raises
    ------
    TmaPreconditionError
        If there are no links.

    Examples
    --------
    >>> print(chain([("warp 0", "barrier 0x410", "phase 0"),
    ...              ("barrier 0x410", "barrier 0x400", "its copy", True)]))
    who waits for whom
      warp 0 waits for barrier 0x410: phase 0
    ✗ barrier 0x410 waits for barrier 0x400: its copy
    """
    require("title", title, (str,), "pass a word")
    made = tuple(ChainLink(*link) for link in links)
    if not made:
        raise bad_value("links", (), "have a link", "pass (who, what)")
    return WaitChain(title, made)
