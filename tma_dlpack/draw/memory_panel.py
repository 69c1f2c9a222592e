"""Shared memory drawn: one row per 128 bytes, one cell per 16."""

from __future__ import annotations

from tma_dlpack.draw.captions import legend_entry, notes_below
from tma_dlpack.draw.chunks import CHUNK_BYTES, CHUNKS, Chunk, Layout, MemoryLine, State
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.draw.torn import torn

CELL_WIDTH, CELL_HEIGHT = 50, 29
GUTTER, HEAD, THEN_HEIGHT, SLICE_HEIGHT = 54, 46, 20, 15
RIGHT = GUTTER + CELL_WIDTH * CHUNKS
#: state of a chunk -> style, hatched, lines and words of its sample.
LEGEND: dict[State, tuple[str, bool, tuple[str, ...], str]] = {
    "data": ("tint0", False, (), "in bounds"),
    "filled": ("filled", True, (), "out of bounds, filled"),
    "clipped": ("tint0", True, (), "partly out of bounds"),
    "padding": ("padding", False, (), "untouched by the copy"),
}


def layout_panel(layout: Layout, notes: tuple[str, ...]) -> Scene:
    """Draw one layout, its notes and a legend of what occurs."""
    items: list[Item] = [
        Text(10, 19, layout.name, "strong"),
        Text(10, 38, "bank", "muted"),
        *_bank_scale(),
    ]
    y = float(HEAD)
    slices: tuple[tuple[int, ...], ...] = ()
    for block in layout.blocks:
        for line in block.lines:
            if line.slices and line.slices != slices:
                slices = line.slices
                items += _slice_heading(slices, y)
                y += SLICE_HEIGHT
            items += _line(line, y)
            y += CELL_HEIGHT
        if block.torn:
            items.append(Line(torn(GUTTER, y + 3, RIGHT, y + 3), "edge"))
            y += 4
        if block.then:
            items.append(Text(GUTTER, y + 14, f"⋮ {block.then}"))
            y += THEN_HEIGHT
    drawn, y = notes_below(notes, y + 6)
    legend, y = _legend(layout, y + 2)
    about = f"shared memory, {layout.name}: 16-byte chunks in lines of 128 bytes"
    return Scene(RIGHT + 10, y + 6, about, (*items, *drawn, *legend))


def _bank_scale() -> list[Item]:
    """Name the banks above their columns; each name links to the chunks in these banks."""
    return [
        Box(
            GUTTER + CELL_WIDTH * k,
            28,
            CELL_WIDTH,
            14,
            "plain",
            (f"{4 * k}..{4 * k + 3}",),
            f"banks {4 * k}..{4 * k + 3}: bytes {16 * k}..{16 * k + 15} of every 128",
            key=f"bank{k}",
        )
        for k in range(CHUNKS)
    ]


def _slice_heading(slices: tuple[tuple[int, ...], ...], y: float) -> list[Item]:
    """Say where in the box the following rows are, of a box of three and more dimensions."""
    first, last = (f"box[{', '.join(map(str, s))}, ...]" for s in (slices[0], slices[-1]))
    return [
        Line(((GUTTER, y + 0.5), (RIGHT, y + 0.5)), "axis"),
        Text(GUTTER, y + 11, first if first == last else f"{first} to {last}", "muted"),
    ]


def _line(line: MemoryLine, y: float) -> list[Item]:
    """Draw 128 bytes: their address, and a cell per chunk."""
    address = f"{line.address:#06x}"
    items: list[Item] = [Text(GUTTER - 6, y + CELL_HEIGHT / 2 + 4, address, "muted", "end")]
    for k, chunk in enumerate(line.chunks):
        items += _cell(chunk, GUTTER + CELL_WIDTH * k, y)
    return items


def _cell(chunk: Chunk, x: float, y: float) -> list[Item]:
    width = CELL_WIDTH * chunk.data_bytes / CHUNK_BYTES
    cell = Box(
        x,
        y,
        width,
        CELL_HEIGHT,
        chunk.state if chunk.state in ("filled", "padding") else chunk.tint,
        chunk.label,
        chunk.about,
        hatched=chunk.state in ("filled", "clipped"),
        key=chunk.key,
        to=chunk.links,
    )
    if width == CELL_WIDTH:
        return [cell]
    gap = CHUNK_BYTES - chunk.data_bytes
    said = f"gap of {gap} bytes: written, no value"
    return [cell, Box(x + width, y, CELL_WIDTH - width, CELL_HEIGHT, "padding", ("gap",), said)]


def _legend(layout: Layout, y: float) -> tuple[list[Item], float]:
    """Explain the kinds of cell that are drawn, two in a row; give them and where they end."""
    chunks = [c for block in layout.blocks for line in block.lines for c in line.chunks]
    states = {chunk.state for chunk in chunks}
    shown = [entry for state, entry in LEGEND.items() if state in states]
    if any(chunk.data_bytes < CHUNK_BYTES for chunk in chunks):
        shown.append(("padding", False, ("gap",), "gap of a packed type"))
    items: list[Item] = []
    for n, (style, hatched, lines, said) in enumerate(shown):
        items += legend_entry(10 + 215 * (n % 2), y + 20 * (n // 2), style, said, lines, hatched)
    return items, y + 20 * -(-len(shown) // 2)
