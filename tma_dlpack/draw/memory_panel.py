"""Shared memory drawn: one row per 128 bytes, one cell per 16."""

from __future__ import annotations

from dataclasses import replace

from tma_dlpack.draw.chunks import CHUNK_BYTES, CHUNKS, Chunk, Layout
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.draw.torn import torn

__all__ = ["layout_panel"]

CELL_WIDTH, CELL_HEIGHT = 50, 29
GUTTER, HEAD, THEN_HEIGHT, NOTE_HEIGHT, SLICE_HEIGHT = 54, 46, 20, 16, 15
_STYLE = {"filled": "filled", "padding": "padding"}


def layout_panel(layout: Layout, notes: tuple[str, ...]) -> Scene:
    """Draw one layout, its notes and a legend of what occurs."""
    items: list[Item] = [Text(10, 19, layout.name, "strong"), Text(10, 38, "bank", "muted")]
    items += [
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
    right = GUTTER + CELL_WIDTH * CHUNKS
    y = float(HEAD)
    slices: tuple[tuple[int, ...], ...] = ()
    for block in layout.blocks:
        for line in block.lines:
            if line.slices and line.slices != slices:
                slices = line.slices
                first, last = (
                    f"box[{', '.join(map(str, s))}, ...]" for s in (slices[0], slices[-1])
                )
                items += [
                    Line(((GUTTER, y + 0.5), (right, y + 0.5)), "axis"),
                    Text(GUTTER, y + 11, first if first == last else f"{first} to {last}", "muted"),
                ]
                y += SLICE_HEIGHT
            label = f"{line.address:#06x}"
            items.append(Text(GUTTER - 6, y + CELL_HEIGHT / 2 + 4, label, "muted", "end"))
            for k, chunk in enumerate(line.chunks):
                items += _cell(chunk, GUTTER + CELL_WIDTH * k, y)
            y += CELL_HEIGHT
        if block.torn:
            items.append(Line(torn(GUTTER, y + 3, right, y + 3), "edge"))
            y += 4
        if block.then:
            items.append(Text(GUTTER, y + 14, f"⋮ {block.then}"))
            y += THEN_HEIGHT
    y += 6
    for note in notes:
        items.append(Text(10, y + 10, note, "muted"))
        y += NOTE_HEIGHT
    drawn, y = _legend(layout, y + 2)
    items += drawn
    about = f"shared memory, {layout.name}: 16-byte chunks in lines of 128 bytes"
    return Scene(right + 10, y + 6, about, tuple(items))


def _cell(chunk: Chunk, x: float, y: float) -> list[Item]:
    tint = f"tint{chunk.first // max(1, chunk.last - chunk.first + 1) % CHUNKS}"
    width = CELL_WIDTH * chunk.data_bytes / CHUNK_BYTES
    cell = Box(
        x,
        y,
        width,
        CELL_HEIGHT,
        _STYLE.get(chunk.state, tint),
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
    entries = [
        (Box(0, 0, 22, 14, "tint0"), "in bounds", "data"),
        (Box(0, 0, 22, 14, "filled", hatched=True), "out of bounds, filled", "filled"),
        (Box(0, 0, 22, 14, "tint0", hatched=True), "partly out of bounds", "clipped"),
        (Box(0, 0, 22, 14, "padding"), "untouched by the copy", "padding"),
    ]
    shown = [(box, said) for box, said, state in entries if state in states]
    if any(chunk.data_bytes < CHUNK_BYTES for chunk in chunks):
        shown.append((Box(0, 0, 22, 14, "padding", ("gap",)), "gap of a packed type"))
    items: list[Item] = []
    for n, (box, said) in enumerate(shown):
        x, top = 10 + 215 * (n % 2), y + 20 * (n // 2)
        items += [replace(box, x=x, y=top), Text(x + 28, top + 11, said, "muted")]
    return items, y + 20 * -(-len(shown) // 2)
