"""One access of a warp to a tile, phase by phase: which threads are served together."""

from __future__ import annotations

from dataclasses import dataclass

from tma_dlpack.copies.tile import Tile
from tma_dlpack.draw.bank_panel import (
    HEAD,
    LEVEL_HEIGHT,
    PANEL_WIDTH,
    Threads,
    bank_scale,
    phase_items,
)
from tma_dlpack.draw.bank_reads import WARP, Access
from tma_dlpack.draw.banks import bank_conflicts
from tma_dlpack.draw.captions import notes_below
from tma_dlpack.draw.chunks import BANKS
from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure
from tma_dlpack.draw.scene import STILL, Box, Group, Line, Scene, Text
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

SECONDS = 1.4  # how long each phase is shown


@dataclass(frozen=True, slots=True, repr=False)
class AccessSteps(Figure):
    """The phases of one access, with the map's own swizzle.

    Attributes
    ----------
    access : str
        The pattern in words.
    phases : tuple of tuple of tuple of int
        The words of shared memory that each thread reads, per phase; at most 16 phases.
    degrees : tuple of int
        Wavefronts of every phase, also of those that are not in `phases`.
    """

    title: str
    access: str
    phases: tuple[Threads, ...]
    degrees: tuple[int, ...]

    @property
    def wavefronts(self) -> int:
        """How many wavefronts the whole access takes."""
        return sum(self.degrees)

    def step(self, phase: int) -> Scene:
        """Give one phase as a panel of its own."""
        return self._scene((phase,))

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel that shows the phases in turn; still viewers show the first."""
        return (self._scene(tuple(range(len(self.phases)))),)

    def _scene(self, phases: tuple[int, ...]) -> Scene:
        levels = max(self.degrees)
        shown = [
            Group(self._phase_items(phase, levels), _shown_in_turn(n, len(phases)))
            for n, phase in enumerate(phases)
        ]
        more = len(self.degrees) - len(self.phases)
        notes = [self.access, *([f"{more} further phases are not drawn"] if more else [])]
        drawn, y = notes_below(notes, HEAD + LEVEL_HEIGHT * levels + 8, pitch=18)
        about = f"{self.title}, {len(phases)} phases one after the other"
        items = (*bank_scale(), *shown, *drawn)
        return Scene(PANEL_WIDTH, y + 4, about, items, css=_turns(len(phases)))

    def _phase_items(self, phase: int, levels: int) -> tuple[Box | Text | Line, ...]:
        degree, so_far = self.degrees[phase], sum(self.degrees[: phase + 1])
        waves = f"{counted(degree, 'wavefront')}, {so_far} of {self.wavefronts} so far"
        return (
            Text(10, 19, f"phase {phase + 1} of {len(self.degrees)}", "strong"),
            Text(10, 37, waves, "muted"),
            *phase_items(self.phases[phase], levels),
        )

    def text(self) -> str:
        """Give one line per phase."""
        rows = [
            f"phase {n + 1:>2}: {counted(degree, 'wavefront')}   "
            + " ".join(f"{t}:{w[0] % BANKS}" for t, w in enumerate(phase) if w)
            for n, (phase, degree) in enumerate(zip(self.phases, self.degrees, strict=False))
        ]
        more = len(self.degrees) - len(self.phases)
        rows += [f"{more} further phases"] if more else []
        fitted = [
            row if len(row) <= TEXT_COLUMNS else f"{row[: TEXT_COLUMNS - 3]}..." for row in rows
        ]
        return "\n".join([self.title, self.access, *fitted, "thread:first bank"])


def _shown_in_turn(n: int, count: int) -> str:
    if count == 1:
        return ""
    first = "1" if n == 0 else "0"
    return f"opacity:{first};animation:turn {SECONDS * count:g}s step-end {SECONDS * n:g}s infinite"


def _turns(count: int) -> str:
    """Give the keyframes of items shown in turn; the first stays where motion is not wanted."""
    if count == 1:
        return ""
    turn = f"0%{{opacity:1}}{100 / count:.4g}%{{opacity:0}}100%{{opacity:0}}"
    return f"@keyframes turn{{{turn}}}{STILL}"


@opaque
def access_steps(
    tensor_map: TensorMap | Tile,
    access: str | Access = "column",
    *,
    threads: int = WARP,
    bytes_per_thread: int | None = None,
    smem_offset: int = 0,
) -> AccessSteps:
    """Show the phases of one access one after the other, and count its wavefronts.

    Parameters
    ----------
    tensor_map, access, threads, bytes_per_thread, smem_offset
        As in `bank_conflicts`.

    Returns
    -------
    AccessSteps
        `degrees` has the wavefronts of each phase; the first 16 phases are drawn.

    Raises
    ------
    TmaPreconditionError
        As `bank_conflicts`.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((16, 64), np.float16), (16, 64))
    >>> fragment = lambda thread: (thread % 16, 8 * (thread // 16))
    >>> steps = access_steps(tm, fragment, bytes_per_thread=16)
    >>> steps.title
    'the access in 4 phases: 32 wavefronts with none'
    """
    found = bank_conflicts(
        tensor_map,
        access,
        threads=threads,
        bytes_per_thread=bytes_per_thread,
        smem_offset=smem_offset,
    )
    own = found.swizzles[0]
    name = f"a {access}" if isinstance(access, str) else "the access"
    phases, waves = counted(len(own.degrees), "phase"), counted(own.wavefronts, "wavefront")
    return AccessSteps(
        title=f"{name} in {phases}: {waves} with {own.swizzle.name}",
        access=found.access,
        phases=own.first_phases,
        degrees=own.degrees,
    )
