"""HTML of a `PostMortem`: the findings, and pictures of the barriers and of copies that failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tma_dlpack.debug.core import boxes, counted, grid, report, tma
from tma_dlpack.debug.postmortem.results import (
    DeadBarrier,
    Fault,
    FoundMap,
    PostMortem,
    barrier_facts,
    barrier_words,
    fault_facts,
    findings_of,
    rest_lines,
)

# maximum number of barriers of a kernel that are drawn
_MOST_DRAWN = 16
# in pixels: the left end of a barrier's bar, the length of the bar, the height of a row
_LEFT, _BAR, _ROW = 30.0, 320, 30
# minimum width of the mark at a misaligned coordinate, in pixels
_LEAST_FAULT = 4
# a box must begin at a multiple of this number of bits (16 bytes) in the innermost dimension
_COPY_BITS = 128
_LEGEND = [
    (grid.Cell(0, 0, "even"), "phase of parity 0"),
    (grid.Cell(0, 0, "odd"), "parity 1"),
    (grid.Cell(0, 0, "taken"), "arrived"),
    (grid.Cell(0, 0, "padding"), "pending"),
    (grid.Cell(0, 0, "even", hatched=True), "bytes pending"),
    (grid.Cell(0, 0, "conflict", hatched=True), "the barrier that hangs first"),
]
_FOLLOWS = "HANG_FOLLOWS"  # `rule` of a barrier that waits for another barrier


@dataclass(frozen=True, slots=True, repr=False)
class FrozenBarriers(tma.draw.Figure):
    """A picture of the barriers of one kernel's blocks, at the time of the dump.

    Attributes
    ----------
    barriers : tuple of DeadBarrier
        Barriers, sorted by address. If a barrier has different states in different blocks, only one
        state is drawn. A state that shows a hang (its `rule` is not "") is preferred. Among such
        states, the state that the most blocks have is drawn.
    """

    title: str
    barriers: tuple[DeadBarrier, ...]

    def scenes(self) -> tuple[grid.Scene, ...]:
        """Return one panel with a row for each barrier."""
        cells: list[grid.Cell] = []
        for row, barrier in enumerate(self.barriers):
            cells += _barrier_row(row * _ROW, barrier)
        about = "; ".join(barrier_words(barrier) for barrier in self.barriers)
        return (grid.lay_out(about, [grid.Grid(tuple(cells))], legend=_LEGEND),)

    def text(self) -> str:
        """Return a line for each barrier."""
        return "\n".join([self.title, *map(barrier_words, self.barriers)])


def _barrier_row(top: float, barrier: DeadBarrier) -> Iterator[grid.Cell]:
    """Draw a barrier: its parity, a bar of arrivals, its pending bytes, and waiting warps."""
    # a barrier whose warps wait because of another barrier is not marked
    is_guilty = bool(barrier.rule) and barrier.rule != _FOLLOWS
    yield grid.label(0, top, f"{barrier.address:#x}", "alarm" if is_guilty else "strong", 20)
    yield grid.Cell(4, top, ("even", "odd")[barrier.phase], str(barrier.phase), columns=20, rows=20)
    came = barrier.count - barrier.arrivals
    # a count of 0 means that the barrier was never initialised
    split = _BAR * came / max(1, barrier.count)
    if came:
        text = f"{came} of {barrier.count}"
        yield grid.Cell(_LEFT, top, "taken", text, columns=split, rows=20)
    if barrier.arrivals:
        text = f"{barrier.arrivals}{' pending' * (split < _BAR / 2)}"
        style = "conflict" if is_guilty and not barrier.bytes else "padding"
        yield grid.Cell(_LEFT + split, top, style, text, columns=_BAR - split, rows=20)
    if barrier.bytes:
        text = f"{barrier.bytes:,} bytes"
        style = "conflict" if is_guilty else "even"
        yield grid.Cell(40 + _BAR, top, style, text, columns=120, rows=20, hatched=True)
    waiting = "nobody waits"
    if barrier.waiting:
        waits = "waits" if barrier.waiting == 1 else "wait"
        parity = "" if barrier.parity is None else f" for {barrier.parity}"
        waiting = f"{counted(barrier.waiting, 'warp')} {waits}{parity}"
    yield grid.words(170 + _BAR, top, waiting, "alarm" if is_guilty else "muted", 20)


def frozen(barriers: Iterable[DeadBarrier]) -> tuple[FrozenBarriers, ...]:
    """Return a picture for each kernel that has barriers."""
    kernels: dict[str, dict[int, DeadBarrier]] = {}
    for barrier in barriers:
        of_kernel = kernels.setdefault(barrier.kernel, {})
        # If an address has several states, prefer a state that shows a hang. Among such states,
        # prefer the state that the most blocks have.
        known = of_kernel.get(barrier.address)
        if known is None or (bool(barrier.rule), barrier.blocks) > (bool(known.rule), known.blocks):
            of_kernel[barrier.address] = barrier
    return tuple(
        FrozenBarriers(
            f"barriers of a block of {kernel}", tuple(found[a] for a in sorted(found)[:_MOST_DRAWN])
        )
        for kernel, found in kernels.items()
    )


def waits(barriers: Iterable[DeadBarrier]) -> tuple[tma.draw.Figure, ...]:
    """Return a picture that shows which barrier waits for which; () if none waits for another."""
    # a message of HANG_FOLLOWS has the addresses of the other barriers, such as "0x40"
    known = {f"{barrier.address:#x}": barrier for barrier in barriers}
    links = []
    for name, barrier in known.items():
        if barrier.rule != _FOLLOWS:
            continue
        for other in re.findall(r"0x[0-9a-f]+", barrier.message):
            if other in known and other != name:
                guilty = known[other].rule
                about = guilty if guilty != _FOLLOWS else ""
                links.append((name, other, about, bool(about)))
    return (tma.draw.chain(links, title="which barrier waits for which"),) if links else ()


def html_of(found: PostMortem) -> str:
    """Return the findings as HTML."""
    drawn = report.Section(pictures=[*frozen(found.barriers), *waits(found.barriers)])
    hung = [
        report.Section(lines=barrier_facts(one), findings=[*findings_of(one)])
        for one in found.barriers
        if one.rule
    ]
    rest = [report.Section(lines=lines) for lines in rest_lines(found)]
    return report.as_html(found.head(), [*map(_fault, found.faults), drawn, *hung, *rest])


def _fault(fault: Fault) -> report.Section:
    title, *facts = fault_facts(fault)
    lines = [*facts, *(f"note: {note}" for note in fault.notes)]
    found = [*findings_of(fault)]
    return report.Section(
        title, lines=lines, findings=found, listing=fault.listing, pictures=[*_tile(fault)]
    )


@dataclass(frozen=True, slots=True, repr=False)
class WrongBox(boxes.TensorBox):
    """A picture of a tensor with the box of a copy that failed.

    Attributes
    ----------
    why : str
        What was wrong with the copy.
    """

    why: str = ""
    # number of elements from the last multiple of 16 bytes before the box to the box's first
    # element
    off: int = 0

    def _plot(self, most: float = boxes.PLOT_WIDTH) -> grid.Grid:
        """Draw the plot, and mark the `off` elements before the box if the box is misaligned."""
        plot = boxes.TensorBox._plot(self, most)
        if not self.off:
            return plot
        start, unit = self.columns.start, plot.unit[0]
        least = max(self.off, _LEAST_FAULT / unit)
        mark = grid.rectangle(
            "conflict", (start - least, start), self.rows.clip(self.rows.box), True
        )
        title = f"{self.columns.name}: {start} is {self.off} after a multiple of 16 bytes"
        return replace(plot, cells=(*plot.cells, replace(mark, title=title)))

    @property
    def sentence(self) -> str:
        """Sentence below the picture."""
        return f"Nothing was copied: {self.why}."

    def legend(self) -> grid.Legend:
        """Return the legend with "wanted" in place of "copied", because nothing was copied."""
        own = [(cell, {"copied": "wanted"}.get(name, name)) for cell, name in boxes.LEGEND]
        mark = grid.Cell(0, 0, "conflict", hatched=True)
        return [*own, *[(mark, "off a multiple of 16 bytes")] * bool(self.off)]


def _tile(fault: Fault) -> Iterator[tma.draw.Figure]:
    """Yield a picture of the tensor with the box of the copy that failed."""
    whole = fault.map.map if isinstance(fault.map, FoundMap) else fault.map
    if whole is None or fault.coordinates is None or whole.kind != "tiled":
        return
    first, *rest = fault.coordinates
    step = 1 if whole.interleave else _COPY_BITS // whole.arguments.type_row.element_bits
    # `boxes.tensor` refuses a misaligned coordinate, so the coordinate is rounded down to 16 bytes
    try:
        near = boxes.tensor(whole, (first // step * step, *rest)[::-1])
    # the coordinates do not fit the map: their number is not its rank, or the copy gathers four
    # rows
    except tma.TmaError:
        return
    title, columns = near.title, near.columns
    # move the box from the rounded coordinate to the misaligned coordinate, at which no copy can
    # begin
    if first % step:
        title = f"{title.partition(' at ')[0]} at {fault.coordinates[::-1]}"
        columns = replace(columns, start=first)
    off = first % step
    yield WrongBox(title, near.rows, columns, near.outer, (), why=fault.message, off=off)
