"""Tables of the measured speeds of boxes, one table per GPU, by which `suggest` ranks boxes.

``python tests/bench tiles`` prints a table. The bench copies whole tensors of 256 MiB with each
box, and uses the pipeline that is fastest for the box. A speed is the median over several tensors:
with rows of 4 to 16 KiB for the H200 (two runs), and with rows of 2, 6 and 16 KiB for the H100. To
add a GPU, save the printed table as a file in cards/, and add the file's name to `CARDS`.

tests/gpu/test_suggest_on_gpu.py tests the tables on other tensors. In a run that passes, none of 30
choices is more than 3 % slower than the best choice. The H200's table passed five runs of five. The
H100's table passed five runs of five on one card. On another card, one choice of 30 was 3 to 7 %
slower than the best choice in each run (2026-11-23).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tma_dlpack import driver
from tma_dlpack.dlpack import Device

#: Nested dicts, whose keys from the outside in are: alignment of lines, bytes of a line, number of
#: spans, number of lines. An entry has three shares of a memcpy's speed: with an L2 fetch size of
#: none, of 128 bytes and of 256 bytes.
Shares = dict[int, dict[int, dict[int, dict[int, tuple[float, ...]]]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Card:
    """The speeds of copies on one GPU, as shares of its memcpy's speed.

    Attributes
    ----------
    name : str
        The GPU's name in the driver.
    measured : str
        The GPU, the driver and the date of the measurement.
    issue_bytes : int
        Bytes of the smallest copy that is not limited by the rate at which a thread issues copies.
        A smaller copy takes the same time.
    table : str
        The measured shares. Each row begins with three numbers. The first is the alignment of the
        tensor's lines: 32 bytes, which is the unit of memory transfers, or only 16. The second is
        the number of spans side by side in one copy: 1 for a plain box, more with `split_inner`.
        The third is the bytes of a line of the box. Each column is for a number of lines of the
        box. Each cell has three shares of a memcpy's speed, in thousandths: without L2 promotion,
        with 128 bytes and with 256 bytes.
    """

    name: str
    measured: str
    issue_bytes: int
    table: str

    def shares(self, begin: int, spans: int, line_bytes: int, lines: int) -> tuple[float, ...]:
        """Return the shares measured for this box, or else for the next smaller measured box.

        >>> none, bytes128, bytes256 = CARDS[0].shares(32, 1, 128, 64)
        >>> none > 0.85
        True
        """
        of_width = _at_most(_parsed(self.table)[begin], line_bytes)
        return _at_most(_at_most(of_width, spans), lines)


def _at_most(of: Mapping[int, T], most: int) -> T:
    """Return the value of the largest key that is not above `most`.

    If every key is above `most`, return the value of the smallest key.
    """
    below = [key for key in of if key <= most]
    return of[max(below) if below else min(of)]


@functools.cache
def _parsed(table: str) -> Shares:
    heads, *rows = (line.split() for line in table.strip().splitlines())
    shares: Shares = {}
    # A row is such as "32  1  128 866/862/881 ...". A cell of dashes means "not measured".
    for begin, spans, width, *cells in rows:
        of_width = shares.setdefault(int(begin), {}).setdefault(int(width), {})
        of_lines = of_width.setdefault(int(spans), {})
        for lines, cell in zip(heads[3:], cells, strict=True):
            if not cell.startswith("-"):
                of_lines[int(lines)] = tuple(int(share) / 1000 for share in cell.split("/"))
    return shares


def card_of(device: Device) -> tuple[Card, str | None]:
    """Return the card whose table ranks a tensor's boxes, and the GPU's name if it has no table.

    For host memory and for a GPU without a table, the card is the first entry of `CARDS`. The name
    is None for host memory and for a GPU with a table.
    """
    name = _gpu_of(device)
    own = next((card for card in CARDS if card.name == name), None)
    return (own, None) if own else (CARDS[0], name)


def is_measured(device: Device) -> bool:
    """Return whether `CARDS` has a table of the tensor's GPU.

    False for a GPU that is not in this machine, because its name is unknown.
    """
    name = _gpu_of(device)
    return any(card.name == name for card in CARDS)


def _gpu_of(device: Device) -> str | None:
    """Return a GPU's name; None for host memory, and for a GPU that is not in this machine."""
    devices = driver.status().devices
    is_here = not device.is_host and device.device_id < len(devices)
    return devices[device.device_id].name if is_here else None


def _read(name: str) -> Card:
    """Read a card's file, which has lines ``name: value``, then an empty line, then the table."""
    text = (Path(__file__).parent / "cards" / f"{name}.txt").read_text(encoding="utf-8")
    head, table = text.split("\n\n")
    about = dict(line.split(": ") for line in head.splitlines())
    return Card(about["name"], about["measured"], int(about["issue_bytes"]), table)


CARDS = _read("h200"), _read("h100")
