"""Tables of the measured speeds of boxes, one table per GPU. `suggest` ranks boxes by speed.

``python tests/bench tiles`` prints a table. The bench copies whole tensors of 256 MiB with each
box, and uses the pipeline that is fastest for the box. The speed of a box is the median of its
speeds on several tensors. On the H200, the tensors had rows of 4 to 16 KiB (two runs). On the H100,
the tensors had rows of 2, 6 and 16 KiB. To add a GPU, save the printed table as a file in cards/,
and add the file's name to `CARDS`.

tests/gpu/test_suggest_on_gpu.py tests the tables on 30 other tensors, and compares the first
suggestion for each tensor with the fastest suggestion. The H200's table was tested on an H200, and
the H100's table on two H100s. There were five runs on each GPU. On the H200 and on one H100, every
first suggestion was at most 3 % slower than the fastest suggestion. On the other H100, one of the
30 first suggestions was 3 to 7 % slower in each run (2026-11-23).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tma_dlpack import driver
from tma_dlpack.dlpack import Device

#: Four levels of nested dicts. From the outermost to the innermost dict, the keys are: alignment of
#: lines, bytes of a line, number of spans, number of lines. A value of the innermost dict has three
#: shares of a memcpy's speed: for the L2 fetch sizes none, 128 bytes and 256 bytes, in this order.
Shares = dict[int, dict[int, dict[int, dict[int, tuple[float, ...]]]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Card:
    """The speeds of copies on one GPU, as shares of a memcpy's speed on this GPU.

    Attributes
    ----------
    name : str
        The GPU's name, as the driver returns it.
    measured : str
        The GPU, the driver and the date of the measurement.
    issue_bytes : int
        A copy of fewer bytes takes the same time as a copy of `issue_bytes` bytes, because a thread
        issues copies at a limited rate.
    table : str
        The measured shares. Each row begins with three numbers. The first number is the alignment
        of the tensor's lines in bytes: 16, or 32, which is the unit of memory transfers. The second
        number is the number of spans that one copy puts side by side: 1 for a plain box, and more
        with `split_inner`. The third number is the number of bytes of a line of the box. Then the
        row has one cell for each number of lines of a box. The first line of the table lists these
        numbers of lines. Each cell has three shares of a memcpy's speed, in thousandths: for the L2
        fetch sizes none, 128 bytes and 256 bytes, in this order.
    """

    name: str
    measured: str
    issue_bytes: int
    table: str

    def shares(self, begin: int, spans: int, line_bytes: int, lines: int) -> tuple[float, ...]:
        """Return a box's shares of a memcpy's speed, one for each L2 fetch size.

        If the box was not measured, return the shares of the next smaller box.

        >>> none, bytes128, bytes256 = CARDS[0].shares(32, 1, 128, 64)
        >>> none > 0.85
        True
        """
        of_width = _at_most(_parsed(self.table)[begin], line_bytes)
        return _at_most(_at_most(of_width, spans), lines)


def _at_most(of: Mapping[int, T], most: int) -> T:
    """Return the value of the largest key that is at most `most`.

    If all keys are larger than `most`, return the value of the smallest key.
    """
    below = [key for key in of if key <= most]
    return of[max(below) if below else min(of)]


@functools.cache
def _parsed(table: str) -> Shares:
    heads, *rows = (line.split() for line in table.strip().splitlines())
    shares: Shares = {}
    # An example of a row is "32 1 128 866/862/881 ...". A cell of dashes means "not measured".
    for begin, spans, width, *cells in rows:
        of_width = shares.setdefault(int(begin), {}).setdefault(int(width), {})
        of_lines = of_width.setdefault(int(spans), {})
        for lines, cell in zip(heads[3:], cells, strict=True):
            if not cell.startswith("-"):
                of_lines[int(lines)] = tuple(int(share) / 1000 for share in cell.split("/"))
    return shares


def card_of(device: Device) -> tuple[Card, str | None]:
    """Return (card whose table ranks a tensor's boxes, name of the tensor's GPU or None).

    If the tensor is in host memory, or if its GPU has no table, the card is the first entry of
    `CARDS`. The name is returned only for a GPU that has no table.
    """
    name = _gpu_of(device)
    own = next((card for card in CARDS if card.name == name), None)
    return (own, None) if own else (CARDS[0], name)


def is_measured(device: Device) -> bool:
    """Return whether `CARDS` has a table for a GPU.

    If the GPU is not in this machine, its name is unknown, so the result is False.
    """
    name = _gpu_of(device)
    return any(card.name == name for card in CARDS)


def _gpu_of(device: Device) -> str | None:
    """Return a GPU's name; None for host memory, and for a GPU that is not in this machine."""
    devices = driver.status().devices
    is_here = not device.is_host and device.device_id < len(devices)
    return devices[device.device_id].name if is_here else None


def _read(name: str) -> Card:
    """Read a file of cards/. It has lines ``name: value``, then an empty line, then the table."""
    text = (Path(__file__).parent / "cards" / f"{name}.txt").read_text(encoding="utf-8")
    head, table = text.split("\n\n")
    about = dict(line.split(": ") for line in head.splitlines())
    return Card(about["name"], about["measured"], int(about["issue_bytes"]), table)


CARDS = _read("h200"), _read("h100")
