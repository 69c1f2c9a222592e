"""A post-mortem as HTML: the findings, the barriers at the moment of death, the tile."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tma_dlpack.debug.foreign import printable
from tma_dlpack.debug.postmortem.results import (
    DeadBarrier,
    Fault,
    FoundMap,
    PostMortem,
    barrier_lines,
    barrier_words,
    fault_lines,
    kernel_lines,
)
from tma_dlpack.draw.boxes import LEGEND, PLOT_WIDTH, TensorBox, tensor
from tma_dlpack.draw.cards import bold, plain
from tma_dlpack.draw.figure import Figure, fragment
from tma_dlpack.draw.grid import Cell, Grid, Legend, Scene, label, lay_out, rectangle, words
from tma_dlpack.draw.timeline import chain
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import TmaError

_MOST_DRAWN = 16  # barriers of a kernel
_LEFT, _BAR, _ROW = 30.0, 320, 30  # px: where a barrier's bar begins, its length, a row
_LEAST_FAULT = 4  # px
_COPY_BITS = 128  # the innermost coordinate is a multiple of it
_LEGEND = [
    (Cell(0, 0, "even"), "phase of parity 0"),
    (Cell(0, 0, "odd"), "parity 1"),
    (Cell(0, 0, "taken"), "arrived"),
    (Cell(0, 0, "padding"), "pending"),
    (Cell(0, 0, "even", hatched=True), "bytes pending"),
    (Cell(0, 0, "conflict", hatched=True), "the barrier that hangs first"),
]
_FOLLOWS = "HANG_FOLLOWS"  # the rule of a barrier that waits for another one


@dataclass(frozen=True, slots=True, repr=False)
class FrozenBarriers(Figure):
    """The barriers of one kernel's blocks, as they stood when it died.

    Attributes
    ----------
    barriers : tuple of DeadBarrier
        By address; of several states of one, those that most blocks have.
    """

    title: str
    barriers: tuple[DeadBarrier, ...]

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel: a row for each barrier."""
        cells: list[Cell] = []
        for row, barrier in enumerate(self.barriers):
            cells += _barrier_row(row * _ROW, barrier)
        about = "; ".join(barrier_words(barrier) for barrier in self.barriers)
        return (lay_out(about, [Grid(tuple(cells))], legend=_LEGEND),)

    def text(self) -> str:
        """Return a line for each barrier."""
        return "\n".join([self.title, *map(barrier_words, self.barriers)])


def _barrier_row(top: float, barrier: DeadBarrier) -> Iterator[Cell]:
    """Draw a barrier: its parity, its arrivals as parts of a bar, and what is pending in words."""
    is_guilty = bool(barrier.rule) and barrier.rule != _FOLLOWS
    yield label(0, top, f"{barrier.address:#x}", "alarm" if is_guilty else "strong", 20)
    yield Cell(4, top, ("even", "odd")[barrier.phase], str(barrier.phase), columns=20, rows=20)
    came = barrier.count - barrier.arrivals
    split = _BAR * came / max(1, barrier.count)  # never initialised: 0
    if came:
        text = f"{came} of {barrier.count}"
        yield Cell(_LEFT, top, "taken", text, columns=split, rows=20)
    if barrier.arrivals:
        text = f"{barrier.arrivals}{' pending' * (split < _BAR / 2)}"
        style = "conflict" if is_guilty and not barrier.bytes else "padding"
        yield Cell(_LEFT + split, top, style, text, columns=_BAR - split, rows=20)
    if barrier.bytes:
        text = f"{barrier.bytes:,} bytes"
        style = "conflict" if is_guilty else "even"
        yield Cell(40 + _BAR, top, style, text, columns=120, rows=20, hatched=True)
    waiting = "nobody waits"
    if barrier.waiting:
        waits = "waits" if barrier.waiting == 1 else "wait"
        parity = "" if barrier.parity is None else f" for {barrier.parity}"
        waiting = f"{counted(barrier.waiting, 'warp')} {waits}{parity}"
    yield words(170 + _BAR, top, waiting, "alarm" if is_guilty else "muted", 20)


def frozen(barriers: Iterable[DeadBarrier]) -> tuple[FrozenBarriers, ...]:
    """Return a picture for each kernel that has barriers."""
    kernels: dict[str, dict[int, DeadBarrier]] = {}
    for barrier in barriers:
        of_kernel = kernels.setdefault(barrier.kernel, {})
        known = of_kernel.get(barrier.address)
        if known is None or (bool(barrier.rule), barrier.blocks) > (bool(known.rule), known.blocks):
            of_kernel[barrier.address] = barrier
    return tuple(
        FrozenBarriers(
            f"barriers of a block of {kernel}", tuple(found[a] for a in sorted(found)[:_MOST_DRAWN])
        )
        for kernel, found in kernels.items()
    )


def waits(barriers: Iterable[DeadBarrier]) -> tuple[Figure, ...]:
    """Return the chain of the barriers that wait for others, or nothing where none does."""
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
    return (chain(links, title="which barrier waits for which"),) if links else ()


def html_of(found: PostMortem) -> str:
    """Return the findings as HTML."""
    parts: list[Figure | str] = [bold(found.head())]
    for fault in found.faults:
        parts.append(_block(fault_lines(fault)))
        parts += [f"<pre>{html.escape(chr(10).join(fault.listing))}</pre>"] * bool(fault.listing)
        parts += _tile(fault)
    parts += frozen(found.barriers)
    parts += waits(found.barriers)
    parts += [_block(barrier_lines(barrier)) for barrier in found.barriers if barrier.rule]
    parts += [_block([f"map at {one}" for one in found.maps], "")] * bool(found.maps)
    parts += [_block(kernel_lines(kernel), "") for kernel in found.kernels]
    parts += [_block([f"note: {note}" for note in found.notes], "")] * bool(found.notes)
    return fragment([printable(part) if isinstance(part, str) else part for part in parts])


def _block(lines: list[str], kind: str = "tma-violation") -> str:
    first, *rest = lines if kind else ["", *lines]
    body = "".join(plain(line.strip()) for line in rest)
    head = f"<b>{html.escape(first)}</b>" * bool(first)
    return f'<div class="tma-finding {kind}">{head}{body}</div>'


@dataclass(frozen=True, slots=True, repr=False)
class WrongBox(TensorBox):
    """The box of a copy that was never made, on its tensor.

    Attributes
    ----------
    why : str
        What was wrong with the copy.
    """

    why: str = ""
    off: int = 0  # elements from the last multiple of 16 bytes to where the box begins

    def _plot(self, most: float = PLOT_WIDTH) -> Grid:
        """Draw the plot, and the part between the box and the next legal start of a copy."""
        grid = TensorBox._plot(self, most)
        if not self.off:
            return grid
        start, unit = self.columns.start, grid.unit[0]
        least = max(self.off, _LEAST_FAULT / unit)
        mark = rectangle("conflict", (start - least, start), self.rows.clip(self.rows.box), True)
        title = f"{self.columns.name}: {start} is {self.off} after a multiple of 16 bytes"
        return replace(grid, cells=(*grid.cells, replace(mark, title=title)))

    @property
    def sentence(self) -> str:
        """One sentence about the picture."""
        return f"Nothing was copied: {self.why}."

    def legend(self) -> Legend:
        """Return the meanings of the styles, which claim no copy."""
        own = [(cell, {"copied": "wanted"}.get(name, name)) for cell, name in LEGEND]
        mark = Cell(0, 0, "conflict", hatched=True)
        return [*own, *[(mark, "off a multiple of 16 bytes")] * bool(self.off)]


def _tile(fault: Fault) -> Iterator[Figure]:
    """Draw the tensor with the box of the copy that was wrong."""
    whole = fault.map.map if isinstance(fault.map, FoundMap) else fault.map
    if whole is None or fault.coordinates is None or whole.kind != "tiled":
        return
    first, *rest = fault.coordinates
    step = 1 if whole.interleave else _COPY_BITS // whole.arguments.type_row.element_bits
    try:
        near = tensor(whole, (first // step * step, *rest)[::-1])
    except TmaError:  # of another rank, of four rows
        return
    title, columns = near.title, near.columns
    if first % step:  # no copy can begin there: only its box is drawn
        title = f"{title.partition(' at ')[0]} at {fault.coordinates[::-1]}"
        columns = replace(columns, start=first)
    off = first % step
    yield WrongBox(title, near.rows, columns, near.outer, (), why=fault.message, off=off)
