"""Pictures of one access to a tile: its bank conflicts for each swizzle, or its phases in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from tma_dlpack import geometry
from tma_dlpack.consumer.reads import (
    WARP,
    Access,
    SwizzleConflicts,
    Threads,
    conflicts,
    reads_of,
    with_other_swizzles,
)
from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.chunks import request_of
from tma_dlpack.draw.figure import STILL, TEXT_COLUMNS, Figure, played, svg_panel
from tma_dlpack.draw.grid import Cell, Grid, Scene, label, lay_out, text_width, words
from tma_dlpack.geometry import BANK_BYTES, BANKS, IntArray
from tma_dlpack.public import opaque, with_arguments_of
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tensor_map.map import TensorMap

UNIT, NARROW_UNIT = (16, 16), (7.5, 16)  # px: width of a bank, height of a wavefront
BAR, NARROW_BAR = (250, 22), (236, 16)  # px: length of the longest bar, height of a bar's row
NARROW_TEXT = 40  # maximum characters of a line above the banks, on a phone
SECONDS = 1.4  # time for which each phase or swizzle is shown
LEVELS = (
    "Each row of the picture is one wavefront: what the 32 banks read at the same time.",
    '"3+": 3 and others that read the same words, no conflict; a narrow cell has no "+".',
)


def _scale(levels: int, *, is_narrow: bool = False) -> list[Cell]:
    """Draw the background, a label per 4 banks, and a label per wavefront."""
    cells = [label(0, -1, "bank"), *(label(0, n, f"{n + 1}.") for n in range(levels))]
    for bank in range(0, BANKS, 4):
        four = f"{bank}" if is_narrow else f"{bank}..{bank + 3}"
        cells.append(Cell(bank, -1, "muted", four, columns=4))
        cells.append(Cell(bank, 0, "padding", columns=4, rows=max(1, levels)))
    return cells


def _above(lines: Sequence[tuple[str, str]], *, is_narrow: bool = False) -> list[Cell]:
    """Return the cells of `lines`, which are above the bank labels. A line is (text, style).

    The last line is directly above the labels.
    """
    parts = [
        (part, style)
        for text, style in lines
        for part in (wrap(text, NARROW_TEXT) if is_narrow else [text])
    ]
    return [words(0, n - len(parts) - 1.3, *part) for n, part in enumerate(parts)]


def _stacked(phase: Threads, first: int, *, is_narrow: bool = False) -> list[Cell]:
    """Draw a cell for each different set of 4-byte words that threads of a phase read.

    Cells of one bank are stacked.

    `first` is the number of the phase's first thread.
    """
    # Threads that read the same words share a cell, because one wavefront serves them all.
    readers: dict[tuple[int, ...], list[int]] = {}
    for thread, read in enumerate(phase, first):
        if read:  # empty for an idle thread
            readers.setdefault(read, []).append(thread)
    # level[bank]: number of wavefronts that already read this bank.
    level, cells = [0] * BANKS, []
    for read, threads in readers.items():
        banks = [w % BANKS for w in read]
        at = max(level[b] for b in banks)
        for b in banks:
            level[b] = at + 1
        more = "+" * (len(threads) > 1 and len(read) > 1)
        name = "thread " * (len(read) > 2 and not is_narrow) + f"{threads[0]}{more}"
        about = f"threads {threads}: shared {read[0] * BANK_BYTES:#06x}, bank {banks[0]}"
        style = _style(at + 1)
        key = f"thread{threads[0]}"
        cells.append(Cell(banks[0], at, style, name, about, len(read), key=key))
    return cells


def in_turn(turns: Sequence[Sequence[Cell]]) -> tuple[list[Cell], str]:
    """Return the cells of all groups, and the CSS keyframes that show one group after the other.

    Viewers without animation, and readers who turned motion off, see the first group.
    """
    count = len(turns)
    if count == 1:
        return list(turns[0]), ""
    keyframes = (
        f"@keyframes turn{{0%{{opacity:1}}{100 / count:.4g}%{{opacity:0}}100%{{opacity:0}}}}"
    )
    cells = []
    for n, group in enumerate(turns):
        # Every group has the same animation; group n starts n * SECONDS after group 0.
        times = f"{SECONDS * count:g}s step-end {SECONDS * n:g}s"
        css = f"opacity:{int(n == 0)};animation:turn {times} infinite"
        cells += [replace(cell, css=css) for cell in group]
    return cells, keyframes + STILL


def _style(degree: int) -> str:
    return "conflict" if degree > 1 else "taken"


def _in_words(s: SwizzleConflicts) -> str:
    return f"{'free' if s.worst < 2 else f'{s.worst}-way'} with {s.swizzle.name}"


def _degrees(s: SwizzleConflicts) -> str:
    """Return the number of phases per conflict degree, such as "64 phases of degree 8"."""
    phases = sorted(Counter(s.degrees).items())
    return ", ".join(f"{counted(count, 'phase')} of degree {degree}" for degree, count in phases)


@dataclass(frozen=True, slots=True, repr=False)
class BankConflicts(Figure):
    """The conflict degrees of one access, for each swizzle.

    Attributes
    ----------
    access : str
        A description of the access.
    bytes_per_thread : int
    swizzles : tuple of SwizzleConflicts
        The result with the map's own swizzle, then the results with the other swizzles that the
        rules accept for the map.
    threads : int
        Number of threads after which the thread numbers in the picture restart at 0.
    """

    title: str
    access: str
    bytes_per_thread: int
    swizzles: tuple[SwizzleConflicts, ...]
    threads: int = WARP

    @property
    def degree(self) -> int:
        """The largest conflict degree of all phases, with the map's own swizzle."""
        return self.swizzles[0].worst

    @property
    def best(self) -> SwizzleConflicts:
        """The swizzle with the fewest wavefronts; the map's own swizzle if none has fewer."""
        return min(self.swizzles, key=lambda s: s.wavefronts)

    def of(self, swizzle: TmaSwizzle) -> SwizzleConflicts:
        """Return the result for a swizzle; raise `KeyError` if the map cannot have this swizzle."""
        return {s.swizzle: s for s in self.swizzles}[swizzle]

    @property
    def sentence(self) -> str:
        """The caption: the access, and the number of wavefronts of its worst phase."""
        own, best = self.swizzles[0], self.best
        waits = f"{own.worst} wavefronts, [they wait for each other](is-conflict)"
        said = waits if own.worst > 1 else "[one wavefront](is-taken), no conflict"
        access = self.access[0].upper() + self.access[1:]
        better = f"; with {best.swizzle.name}: {best.worst}" * (best.worst < own.worst)
        return f"{access}. The worst phase with {own.swizzle.name}: {said}{better}."

    def scenes(self) -> tuple[Scene, ...]:
        """Return a panel per swizzle: the banks with this swizzle, and the bars of all swizzles."""
        return tuple(self._scene([s]) for s in self.swizzles)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panels for a phone: banks are narrower, and each bar is below its name."""
        return tuple(self._scene([s], is_narrow=True) for s in self.swizzles)

    def panels(self) -> str:
        """Return the HTML of one panel that shows the swizzles in turn.

        With scripts, a reader chooses the swizzle.
        """
        if len(self.swizzles) == 1:
            return Figure.panels(self)
        ordered = sorted(self.swizzles, key=lambda s: s.swizzle)
        choices = [
            {
                "name": s.swizzle.name,
                "title": self.title,
                "svg": svg_panel(self._scene([s])),
                "narrow": svg_panel(self._scene([s], is_narrow=True)),
            }
            for s in ordered
        ]
        data = {"now": ordered.index(self.swizzles[0]), "choices": choices}
        return played(self, "steps", data, still=self._scene(self.swizzles))

    def _scene(self, shown: Sequence[SwizzleConflicts], *, is_narrow: bool = False) -> Scene:
        """Draw one panel, in which an animation shows the swizzles of `shown` in turn."""
        bars, bars_css = in_turn([self._bars(s, is_narrow=is_narrow) for s in shown])
        # All panels have the same scale, so that the heights of their stacks can be compared.
        levels = max(s.worst for s in self.swizzles)
        banks, _ = in_turn([self._banks(s, is_narrow=is_narrow) for s in shown])
        # Move the bars to the right of the longest name. `shift` is measured in columns of the
        # grid; the longest bar is one column wide.
        names = [text_width(bar.text) for bar in bars if bar.anchor == "end"]
        unit = NARROW_BAR if is_narrow else BAR
        shift = max(names, default=0) / unit[0]
        grids = [
            Grid(tuple(bars), unit, (-shift, 0)),
            Grid(
                (*_scale(levels, is_narrow=is_narrow), *banks), NARROW_UNIT if is_narrow else UNIT
            ),
        ]
        about = f"{self.title}; shown: {', '.join(map(_in_words, shown))}"
        heading = "wavefronts in all"
        return lay_out(about, grids, heading, (), LEVELS, css=bars_css, is_narrow=is_narrow)

    def _bars(self, shown: SwizzleConflicts, *, is_narrow: bool = False) -> list[Cell]:
        """Draw the wavefronts of all swizzles as bars; only the bar of `shown` has a colour."""
        most, cells = max(1, *(s.wavefronts for s in self.swizzles)), []
        for n, s in enumerate(sorted(self.swizzles, key=lambda s: s.swizzle)):
            count = f"{s.wavefronts}" + (f", worst {s.worst}-way" if s.worst > 1 else ", free")
            style, length = _style(s.worst) if s is shown else "cell", s.wavefronts / most
            text = "strong" if s is shown else "muted"
            # On a phone, the swizzle's name is in a row of its own, above the bar.
            row = 2 * n + 1 if is_narrow else n
            cells.append(Cell(0, row, style, "", "wavefronts", length, 0.7))
            if is_narrow:
                cells.append(words(0, row - 1, f"{s.swizzle.name}: {count}", text, 0.9))
                continue
            name = f"{s.swizzle.name}{' (this map)' * (s is self.swizzles[0])}"
            cells.append(label(0, n, name, text, 0.7))
            cells.append(words(length + 0.03, n, count, text, 0.7))
        return cells

    def _banks(self, s: SwizzleConflicts, *, is_narrow: bool = False) -> list[Cell]:
        """Draw the worst phase's reads as stacks on the banks.

        The height of the highest stack is the conflict degree.
        """
        name = f"{s.swizzle.name}: " + (f"{s.worst}-way conflict" if s.worst > 1 else "no conflict")
        # len(s.words) is the number of threads of a phase.
        first = s.phase * len(s.words) % self.threads
        drawn = f"drawn: phase {s.phase + 1}; {_degrees(s)}"
        above = [(name, "strong" if s.worst < 2 else "alarm"), (drawn, "muted")]
        return [
            *_above(above, is_narrow=is_narrow),
            *_stacked(s.words, first, is_narrow=is_narrow),
        ]

    def text(self) -> str:
        """Return one line per swizzle."""
        rows = [f"  {s.swizzle.name:<26} worst {s.worst:>2}   {_degrees(s)}" for s in self.swizzles]
        return "\n".join([self.title, self.access, *rows])


@opaque
def bank_conflicts(
    tensor_map: TensorMap | Tile,
    access: str | Access | IntArray | Sequence[int] = "column",
    *,
    threads: int = WARP,
    bytes_per_thread: int | None = None,
    smem_offset: int = 0,
) -> BankConflicts:
    """Count the bank conflicts of a read of a tile, for the map's swizzle and for other swizzles.

    Parameters
    ----------
    tensor_map : TensorMap or Tile
        A Tile has its own offset in shared memory, so `smem_offset` is ignored.
    access : {"column", "row"}, function, or integers
        ``"column"``: in each phase, threads read the same 16-byte column of 8 rows, as `ldmatrix`
        and the tensor cores do. ``"row"``: in each phase, threads read 8 neighbouring 16-byte
        chunks along the rows. A function: for a thread number, it returns the place of an element
        in the logical tile (`Tile.array`), as one index per dimension, row-major. For an idle
        thread it returns None. Integers: the shared-memory addresses, one per thread. The number of
        addresses must be a multiple of 8, which is true for the first ``8 * num`` results of
        ``ldmatrix_addresses(..., num=num)``.
    threads : int
        Number of threads for which the function `access` is called, 1..65536.
    bytes_per_thread : int, optional
        Number of bytes that each thread reads if `access` is a function or addresses: 1, 2, 4, 8 or
        16. If `access` is a function, None means the size of an element. If `access` is addresses,
        None means 16, as in `ldmatrix`.
    smem_offset : int
        Start of the tile in shared memory, in bytes; a multiple of 128.

    Returns
    -------
    BankConflicts
        `degree` is the largest conflict degree with the map's own swizzle. `swizzles` has the
        degree of every phase for each swizzle.

    Raises
    ------
    TmaPreconditionError
        If `tensor_map` is neither a TensorMap nor a Tile; if `access` is none of the four kinds; if
        the function raises; if an index or an address is outside the tile; if no instruction reads
        `bytes_per_thread` bytes; or if an address is not a multiple of `bytes_per_thread`.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> x = np.zeros((64, 64), np.float16)
    >>> print(bank_conflicts(tma.make_tma_descriptor(x, (64, 64))))
    bank conflicts of a column: 8-way with none, free with bytes128
    8 rows at one 16-byte column per phase, as ldmatrix reads them
      none                       worst  8   64 phases of degree 8
      bytes128                   worst  1   64 phases of degree 1
    """
    request = request_of(tensor_map, None, None, smem_offset)
    plan, offset = request.plan, request.smem_offset
    reads = reads_of(plan, access, threads, bytes_per_thread, offset)
    # Count the same reads again for every other swizzle that the rules accept for this map.
    others = with_other_swizzles(plan.arguments, request.tensor_map)
    results = tuple(conflicts(of, reads, offset) for of in (plan, *map(geometry.plan, others)))
    best = min(results, key=lambda s: s.wavefronts)
    against = f", {_in_words(best)}" if best.wavefronts < results[0].wavefronts else ""
    title = f"bank conflicts of {reads.name}: {_in_words(results[0])}{against}"
    return BankConflicts(title, reads.words, reads.size, results, reads.threads)


# --- Phase by phase -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class AccessSteps(Figure):
    """The phases of one access, with the map's own swizzle.

    Attributes
    ----------
    access : str
        A description of the access.
    phases : tuple of tuple of tuple of int
        For each of the first 16 phases and each thread of a phase: the indices of the 4-byte words
        of shared memory that the thread reads.
    degrees : tuple of int
        Number of wavefronts of each phase, including the phases that are not in `phases`.
    threads : int
        Number of threads after which the thread numbers in the picture restart at 0.
    """

    title: str
    access: str
    phases: tuple[Threads, ...]
    degrees: tuple[int, ...]
    threads: int = WARP

    @property
    def wavefronts(self) -> int:
        """Number of wavefronts of the whole access."""
        return sum(self.degrees)

    @property
    def notes(self) -> tuple[str, ...]:
        """The access, and the number of phases that are not drawn."""
        more = len(self.degrees) - len(self.phases)
        return (self.access, *[f"{more} further phases are not drawn"] * bool(more))

    @property
    def sentence(self) -> str:
        """The caption: whether threads of a phase wait for each other."""
        phases, waves = counted(len(self.degrees), "phase"), counted(self.wavefronts, "wavefront")
        if max(self.degrees) < 2:
            return f"{phases}, {waves}: [every phase is served at once](is-taken)."
        return f"{phases}, {waves}: [the reads below the first row](is-conflict) wait for it."

    def first_thread(self, phase: int) -> int:
        """Return the number of a phase's first thread."""
        return phase * len(self.phases[0]) % self.threads

    def step(self, phase: int) -> Scene:
        """Draw one phase as a panel of its own."""
        return self._scene((phase,))

    def scenes(self) -> tuple[Scene, ...]:
        """Return a panel that shows the phases in turn; without animation, the first phase."""
        return (self._scene(tuple(range(len(self.phases)))),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone, with narrower banks."""
        return (self._scene(tuple(range(len(self.phases))), is_narrow=True),)

    def _scene(self, phases: tuple[int, ...], *, is_narrow: bool = False) -> Scene:
        cells, css = in_turn([self._phase(phase, is_narrow=is_narrow) for phase in phases])
        about = f"{self.title}, {len(phases)} phases one after the other"
        scale = _scale(max(self.degrees), is_narrow=is_narrow)
        grid = Grid((*scale, *cells), NARROW_UNIT if is_narrow else UNIT)
        return lay_out(about, [grid], notes=self.notes, css=css, is_narrow=is_narrow)

    def _phase(self, phase: int, *, is_narrow: bool = False) -> list[Cell]:
        degree, so_far = self.degrees[phase], sum(self.degrees[: phase + 1])
        waves = f"{counted(degree, 'wavefront')}, {so_far} of {self.wavefronts} so far"
        above = [(f"phase {phase + 1} of {len(self.degrees)}", "strong"), (waves, "muted")]
        return [
            *_above(above, is_narrow=is_narrow),
            *_stacked(self.phases[phase], self.first_thread(phase), is_narrow=is_narrow),
        ]

    def text(self) -> str:
        """Return one line per phase."""
        rows = []
        for n, phase in enumerate(self.phases):
            # A pair "thread:bank" for each thread that reads: the thread and its first bank.
            reads = enumerate(phase, self.first_thread(n))
            banks = " ".join(f"{t}:{w[0] % BANKS}" for t, w in reads if w)
            row = f"phase {n + 1:>2}: {counted(self.degrees[n], 'wavefront')}   {banks}"
            rows.append(row if len(row) <= TEXT_COLUMNS else f"{row[: TEXT_COLUMNS - 3]}...")
        return "\n".join([self.title, self.access, *rows, *self.notes[1:], "thread:first bank"])


@opaque
@with_arguments_of(bank_conflicts)
def access_steps(tensor_map: TensorMap | Tile, options: dict[str, Any]) -> AccessSteps:
    """Show the phases of an access one after the other, and count the wavefronts of the access.

    Parameters
    ----------
    tensor_map, access, threads, bytes_per_thread, smem_offset
        As in `bank_conflicts`.

    Returns
    -------
    AccessSteps
        `degrees` has the number of wavefronts of each phase. Only the first 16 phases are
        drawn.

    Raises
    ------
    TmaPreconditionError
        In the same cases as `bank_conflicts`.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((16, 64), np.float16), (16, 64))
    >>> fragment = lambda thread: (thread % 16, 8 * (thread // 16))
    >>> steps = access_steps(tm, fragment, bytes_per_thread=16)
    >>> steps.title
    'the access in 4 phases: 32 wavefronts with none'
    """
    found, access = bank_conflicts(tensor_map, **options), options["access"]
    own = found.swizzles[0]
    name = f"a {access}" if isinstance(access, str) else "the access"
    phases, waves = counted(len(own.degrees), "phase"), counted(own.wavefronts, "wavefront")
    title = f"{name} in {phases}: {waves} with {own.swizzle.name}"
    return AccessSteps(title, found.access, own.first_phases, own.degrees, found.threads)
