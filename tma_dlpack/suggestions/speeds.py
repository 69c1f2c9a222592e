"""How fast copies are on a card, by box: the tables that `suggest` ranks by, one per card.

Printed by ``python tests/bench tiles``: boxes copy whole tensors of 256 MiB, each with its fastest
pipeline, and the median over tensors counts: rows of 4 to 16 KiB (the H200's, two runs), or of 2, 6
and 16 (the H100's). A new card is a file in cards/ with what is printed there, and its name in
`CARDS`.

Whether a table chooses well is asked by tests/gpu/test_suggest_on_gpu.py, of other tensors: the
H200's passed five times of five with none of 30 beyond 3 %; the H100's five of five on one card,
and on another missed one box of 30 each time, by 3 to 7 % (2026-11-23).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tma_dlpack import driver
from tma_dlpack.dlpack import Device

#: Where lines begin -> bytes of a line -> spans -> lines -> shares with each L2 fetch size.
Shares = dict[int, dict[int, dict[int, dict[int, tuple[float, ...]]]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Card:
    """One card's speeds, as shares of its memcpy.

    Attributes
    ----------
    name : str
        The name that the driver gives the GPU.
    measured : str
        On which card, by which driver, and when.
    issue_bytes : int
        A copy of fewer bytes is as slow as one of so many: a thread issues no more per second.
    table : str
        A line has where lines of the tensor begin (at multiples of 32 bytes, which memory moves at
        a time, or of 16 only), the spans that stand side by side in one copy (split_inner; 1 of a
        plain box), and the bytes of a line of the box. A column has the lines of the box; a cell
        the share of a memcpy's speed, thousandths, without L2 promotion, with 128 and with 256.
    """

    name: str
    measured: str
    issue_bytes: int
    table: str

    def shares(self, begin: int, spans: int, line_bytes: int, lines: int) -> tuple[float, ...]:
        """Return what was measured for such a box, or else the next one with less of each.

        >>> none, bytes128, bytes256 = CARDS[0].shares(32, 1, 128, 64)
        >>> none > 0.85
        True
        """
        of_width = _at_most(_parsed(self.table)[begin], line_bytes)
        return _at_most(_at_most(of_width, spans), lines)


def _at_most(of: Mapping[int, T], most: int) -> T:
    """Return the value of the largest key that is at most so much, or else of the smallest."""
    below = [key for key in of if key <= most]
    return of[max(below) if below else min(of)]


@functools.cache
def _parsed(table: str) -> Shares:
    heads, *rows = (line.split() for line in table.strip().splitlines())
    shares: Shares = {}
    for begin, spans, width, *cells in rows:
        of_width = shares.setdefault(int(begin), {}).setdefault(int(width), {})
        of_lines = of_width.setdefault(int(spans), {})
        for lines, cell in zip(heads[3:], cells, strict=True):
            if not cell.startswith("-"):
                of_lines[int(lines)] = tuple(int(share) / 1000 for share in cell.split("/"))
    return shares


def card_of(device: Device) -> tuple[Card, str | None]:
    """Return the card whose speeds count for a tensor, and the GPU's name if it is another one.

    For memory of the host, the first card of the table.
    """
    name = _gpu_of(device)
    own = next((card for card in CARDS if card.name == name), None)
    return (own, None) if own else (CARDS[0], name)


def is_measured(device: Device) -> bool:
    """Whether the table is of the tensor's own GPU, which is here."""
    name = _gpu_of(device)
    return any(card.name == name for card in CARDS)


def _gpu_of(device: Device) -> str | None:
    """Return a GPU's name; None for the host, and for a GPU that is not here."""
    devices = driver.status().devices
    is_here = not device.is_host and device.device_id < len(devices)
    return devices[device.device_id].name if is_here else None


def _read(name: str) -> Card:
    """Read a card: a line about each thing, an empty line, and the table."""
    text = (Path(__file__).parent / "cards" / f"{name}.txt").read_text(encoding="utf-8")
    head, table = text.split("\n\n")
    about = dict(line.split(": ") for line in head.splitlines())
    return Card(about["name"], about["measured"], int(about["issue_bytes"]), table)


CARDS = _read("h200"), _read("h100")
