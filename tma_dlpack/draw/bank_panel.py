"""Bank conflicts as data, and drawn: reads stacked on their banks, swizzles ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tma_dlpack.draw.chunks import BANK_BYTES, BANKS
from tma_dlpack.draw.scene import Box, Item, Scene, Text
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaSwizzle

Threads = tuple[tuple[int, ...], ...]  # the words that each thread of a phase reads


@dataclass(frozen=True, slots=True)
class SwizzleConflicts:
    """The bank conflicts of the access with one swizzle.

    Attributes
    ----------
    swizzle : TmaSwizzle
    degrees : tuple of int
        Wavefronts of each phase; 1 is free of conflicts.
    phase : int
        The first phase of the worst degree, which is drawn.
    words : tuple of tuple of int
        The 4-byte words of shared memory that each of its threads reads; empty of an idle thread.
    first_phases : tuple of tuple of tuple of int
        The same of the first phases, at most 16.
    """

    swizzle: TmaSwizzle
    degrees: tuple[int, ...]
    phase: int
    words: Threads
    first_phases: tuple[Threads, ...] = ()

    @property
    def worst(self) -> int:
        """The highest degree."""
        return max(self.degrees)

    @property
    def wavefronts(self) -> int:
        """How many wavefronts the whole access takes."""
        return sum(self.degrees)


def degrees_said(degrees: tuple[int, ...]) -> str:
    """Count phases per degree, in words."""
    return ", ".join(
        f"{counted(degrees.count(k), 'phase')} of degree {k}" for k in sorted(set(degrees))
    )


BANK_WIDTH, LEVEL_HEIGHT = 16, 16
GUTTER, HEAD = 44, 64
PANEL_WIDTH = GUTTER + BANK_WIDTH * BANKS + 10


def bank_scale() -> list[Item]:
    """Name the banks above their columns, four at a time."""
    return [
        Text(10, 56, "bank", "muted"),
        *(
            Text(GUTTER + BANK_WIDTH * (b + 2), 56, f"{b}..{b + 3}", "muted", "middle")
            for b in range(0, BANKS, 4)
        ),
    ]


def bank_panel(s: SwizzleConflicts) -> Scene:
    """Stack the reads of the worst phase on their banks: as high as its degree.

    A box is one read; ``3+`` is that of thread 3 and of others, of the same words.
    """
    name = f"{s.swizzle.name}: " + (
        "free of conflicts" if s.worst < 2 else f"{s.worst}-way conflict"
    )
    items: list[Item] = [
        Text(10, 19, name, "strong"),
        Text(10, 37, f"drawn: phase {s.phase}; {degrees_said(s.degrees)}", "muted"),
        *bank_scale(),
        *phase_items(s.words, s.worst),
    ]
    y = HEAD + max(1, s.worst) * LEVEL_HEIGHT + 18
    items.append(
        Text(10, y, "rows are served one after the other; 3+: thread 3 and others", "muted")
    )
    return Scene(PANEL_WIDTH, y + 10, name, tuple(items))


def phase_items(words: Threads, levels: int) -> list[Box | Text]:
    """Draw one phase on a grid of banks with the given number of levels."""
    height = max(1, levels) * LEVEL_HEIGHT
    items: list[Box | Text] = [
        Box(GUTTER + BANK_WIDTH * b, HEAD, BANK_WIDTH * 4, height, "padding")
        for b in range(0, BANKS, 4)
    ]
    items += [
        Text(GUTTER - 6, HEAD + LEVEL_HEIGHT * level + 12, f"{level + 1}.", "muted", "end")
        for level in range(levels)
    ]
    return [*items, *_stacked(words)]


def _stacked(phase: Threads) -> list[Box]:
    """Draw one box per run of words that threads share, above those before it in its banks."""
    readers: dict[tuple[int, ...], list[int]] = {}
    for thread, words in enumerate(phase):
        if words:
            readers.setdefault(words, []).append(thread)
    level = [0] * BANKS
    items: list[Box] = []
    for words, threads in readers.items():
        banks = [w % BANKS for w in words]
        at = max(level[b] for b in banks)
        for b in banks:
            level[b] = at + 1
        label = f"{threads[0]}{'+' * (len(threads) > 1)}"
        if len(words) > 2:
            label = f"thread {label}"
        title = f"threads {threads}: shared {words[0] * BANK_BYTES:#06x}, bank {banks[0]}"
        items.append(
            Box(
                GUTTER + BANK_WIDTH * banks[0],
                HEAD + LEVEL_HEIGHT * at,
                BANK_WIDTH * len(words),
                LEVEL_HEIGHT,
                "conflict" if at else "hit",
                (label,),
                title,
            )
        )
    return items


def ranked_panel(swizzles: Sequence[SwizzleConflicts]) -> Scene:
    """Rank swizzles by their wavefronts, fewest first."""
    ranked = sorted(swizzles, key=lambda s: s.wavefronts)
    most = max(1, ranked[-1].wavefronts)
    left, width, row = 210, 250, 22
    items: list[Item] = [Text(10, 19, "swizzles ranked by wavefronts in all", "strong")]
    for n, s in enumerate(ranked):
        y = 30 + row * n
        own = " (this map)" if s is swizzles[0] else ""
        items += [
            Text(10, y + 13, f"{n + 1}. {s.swizzle.name}{own}", "strong" if own else "label"),
            Box(left, y, width * s.wavefronts / most, 16, "conflict" if s.worst > 1 else "hit"),
            Text(
                left + width * s.wavefronts / most + 8,
                y + 13,
                f"{s.wavefronts}" + (f", worst {s.worst}-way" if s.worst > 1 else ", free"),
            ),
        ]
    return Scene(left + width + 110, 38 + row * len(ranked), "swizzles ranked", tuple(items))
