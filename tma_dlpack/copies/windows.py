"""Which bytes of global memory a copy touches, line by line, and that they may be touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tma_dlpack import geometry
from tma_dlpack.copies.host_memory import Extent
from tma_dlpack.copies.request import CopyRequest, Lines
from tma_dlpack.geometry import IntArray, TilePlan

__all__ = ["Window", "read_windows", "written_windows"]


class Window(NamedTuple):
    """Lines of which the same bytes are touched."""

    first: int  # bytes [first, last) of each line
    last: int
    source: IntArray  # (n,) where byte 0 of each line lies, from the map's address
    line: IntArray  # (n,) the number of each line, all tiles in a row


def read_windows(plan: TilePlan, lines: Lines, extent: Extent) -> Iterator[Window]:
    """Give what loads read: the bytes in bounds, exactly."""
    for window in _windows(plan, lines):
        first, last = int(window.source.min()), int(window.source.max())
        extent.require(first + window.first, last + window.last)
        yield window


def written_windows(request: CopyRequest, extent: Extent) -> Iterator[Window]:
    """Give what a store writes: whole 16-byte chunks, past the row's end where that is ragged."""
    lines = request.lines()
    end = geometry.store_window(request.plan, lines.start, lines.last)
    for window in _windows(request.plan, lines._replace(last=end)):
        first, last = int(window.source.min()), int(window.source.max())
        overrun = window.last - int(lines.last[0])
        extent.require(first + window.first, last + window.last, overrun)
        yield window


def _windows(plan: TilePlan, lines: Lines) -> Iterator[Window]:
    source = lines.origins + lines.start[:, None]
    keys = lines.first * (plan.line_bytes + 1) + lines.last
    for key in sorted(set(keys.tolist())):
        first, last = divmod(key, plan.line_bytes + 1)
        inside = lines.inside if len(keys) == 1 else lines.inside & (keys == key)[:, None]
        line = inside.reshape(-1).nonzero()[0]
        if first < last and len(line):
            yield Window(first, last, source.reshape(-1)[line], line)
