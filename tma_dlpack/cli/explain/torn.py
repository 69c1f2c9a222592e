"""Blocks whose numbers must not be taken: cut off, or mixed with another process's.

A printer writes the same words in the same order each time. Blocks that do not are torn; beside
torn ones only whole blocks are trusted, and of those none that touches a torn one.
"""

from __future__ import annotations

from tma_dlpack.cli.explain.blocks import Block
from tma_dlpack.cli.explain.formats import FORMATS, format_of

NEAR_LINES = 3  # between blocks that touch


def encodes_of(blocks: list[Block]) -> list[Block]:
    """Mark the torn blocks of one stream; drop those that are not of an encode."""
    _mark_cut(blocks)
    _mark_disordered(blocks)
    _mark_rests(blocks)
    _mark_fragments(blocks)
    _distrust(blocks)
    return [b for b in blocks if b.shows_arguments or b.fault]


def _mark_cut(blocks: list[Block]) -> None:
    """Tell a printout that ends with the text from one that is torn within it."""
    for block in blocks:
        if block.fault == "cut" and block is not blocks[-1]:
            block.fault = "junk"
        elif block.fault == "junk" and block is blocks[-1] and block.ends_cut:
            block.fault = "cut"


def _mark_disordered(blocks: list[Block]) -> None:
    """Mark blocks with a known printer's words in another order than it prints them."""
    for block in blocks:
        order = format_of(block).order
        places = [order.index(word) for word in block.words if word in order]
        if places != sorted(places):
            block.fault = block.fault or "mixed"


def _mark_rests(blocks: list[Block]) -> None:
    """Mark two parts of one printout that something else has torn apart."""
    partial: Block | None = None
    for before, block in zip([Block(), *blocks], blocks, strict=False):
        if not block.shows_arguments or block.is_whole:
            continue
        if partial is not None and (block.continues or block.completes(partial)):
            block.fault = partial.fault = "mixed"
            if block.continues:
                before.fault = "mixed"
        partial = block


def _mark_fragments(blocks: list[Block]) -> None:
    """Mark blocks that lack words which whole ones of their printer have.

    The first block of a text may lack its beginning and the last its end.
    """
    whole = _whole_words(blocks)
    for n, block in enumerate(blocks):
        is_part = block.has_strong or block.heading.startswith("TMA Desc Addr")
        if block.fault or not is_part or not _touches(blocks, n):
            continue
        words = tuple(block.words)
        for full in whole:
            if not set(words) < set(full) or _lacks_strides_alone(block, full):
                continue
            begins = n == len(blocks) - 1 and full[: len(words)] == words
            ends = n == 0 and full[-len(words) :] == words
            if not begins and not ends:
                block.fault = "mixed"


def _whole_words(blocks: list[Block]) -> list[tuple[str, ...]]:
    """Give the words that a whole printout of each known printer has in this text."""
    longest: dict[tuple[str, bool], tuple[str, ...]] = {}
    for block in blocks:
        row = format_of(block)
        if block.is_whole and row.name:
            form = (row.name, "channels_per_pixel" in block.fields)
            longest[form] = max(longest.get(form, ()), tuple(block.words), key=len)
    for row in FORMATS:
        parts = [
            b.words.keys() for b in blocks if b.has_strong and set(row.order) >= b.words.keys()
        ]
        printed = set().union(*parts)
        if printed and (row.name, False) in longest:
            longest[row.name, False] = tuple(word for word in row.order if word in printed)
    return list(longest.values())


def _lacks_strides_alone(block: Block, full: tuple[str, ...]) -> bool:
    """Say whether it is of rank 1, which has no strides to print."""
    return all("tride" in word for word in set(full) - block.words.keys())


def _touches(blocks: list[Block], n: int) -> bool:
    """Say whether another block is next to a block, with few lines between."""
    before = n > 0 and blocks[n].first_line - blocks[n - 1].last_line <= NEAR_LINES
    after = n + 1 < len(blocks) and blocks[n + 1].first_line - blocks[n].last_line <= NEAR_LINES
    return before or after


def _distrust(blocks: list[Block]) -> None:
    """Beside torn blocks, trust only whole ones that none of them touches."""
    torn = [block.fault in ("mixed", "junk") for block in blocks]
    if not any(torn):
        return
    whole = {tuple(words) for words in _whole_words(blocks)}
    for n, block in enumerate(blocks):
        known = not format_of(block).name or tuple(block.words) in whole
        trusted = not block.fault and block.is_whole and block.is_close and known
        for other in (n - 1, n + 1):
            if 0 <= other < len(blocks) and torn[other]:
                first, last = sorted((n, other))
                gap = blocks[last].first_line - blocks[first].last_line
                trusted = trusted and gap > NEAR_LINES
        if not trusted:
            block.fault = "mixed"
