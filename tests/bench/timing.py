"""Statements timed side by side: interleaved rounds, medians and spread."""

from __future__ import annotations

import gc
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAX_NUMBER = 1_000_000
CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}


@dataclass(frozen=True, slots=True)
class Row:
    """One statement to be timed.

    Attributes
    ----------
    group, label : str
        Rows of a group are in one table.
    statement : str
        Python, run many times in a loop.
    names : mapping
        Names that the statement uses.
    setup : str
        Python, run once before each round; its names are the statement's too. Without one the
        statement itself is run.
    number : int or None
        Runs per round, where the statement uses something up; None for as many as fit a sample.
    per : int
        The number of objects that one run makes. Times are per object.
    """

    group: str
    label: str
    statement: str
    names: Mapping[str, Any] = field(repr=False)
    setup: str = ""
    number: int | None = None
    per: int = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one row: median over the rounds, 10th and 90th percentile, microseconds."""

    row: Row
    median_us: float
    low_us: float
    high_us: float


def time_rows(
    rows: Sequence[Row], rounds: int, sample_ms: float, clock: str = "wall"
) -> list[Timing]:
    """Time all rows in each round, so that a disturbance affects neighbouring rows alike.

    The garbage collector stays on, because it is on in users' programs. `clock` is ``"wall"``, or
    ``"thread"`` for the CPU time of this thread, which other programs on the machine hardly change.
    """
    timers = [
        timeit.Timer(
            row.statement,
            f"enable_gc()\n{row.setup or row.statement}",  # a statement runs once before it counts
            timer=CLOCKS[clock],
            globals={**row.names, "enable_gc": gc.enable},
        )
        for row in rows
    ]
    numbers = [row.number or _number(t, sample_ms) for row, t in zip(rows, timers, strict=True)]
    seconds = np.empty((rounds, len(rows)))
    for samples in seconds:
        for i, (timer, number) in enumerate(zip(timers, numbers, strict=True)):
            samples[i] = timer.timeit(number) / number
    low, median, high = np.percentile(seconds, [10, 50, 90], axis=0) * 1e6
    return [
        Timing(row, *(float(us[i]) / row.per for us in (median, low, high)))
        for i, row in enumerate(rows)
    ]


def _number(timer: timeit.Timer, sample_ms: float) -> int:
    """Return the number of runs that take about as long as one sample."""
    number = 1
    while number < MAX_NUMBER:
        seconds = timer.timeit(number)
        if seconds * 1e3 >= sample_ms / 2:
            return max(1, round(number * sample_ms / (seconds * 1e3)))
        number *= 4
    return number
