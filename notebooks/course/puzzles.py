"""Twelve kernels to write, and the function that judges an answer.

A puzzle fixes only the name of a kernel, its parameters and its result, so any style passes.
`judge` compiles the source, runs the kernel with `tma_dlpack.run_kernel` in several schedules
(orders of the asynchronous operations), and compares every element of the outputs. The tasks are in
``notebooks/puzzles.ipynb``, and solutions are in ``notebooks/puzzle_solutions.cu``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tma_dlpack as tma

#: Number of schedules in which each launch runs. Copies finish as late as possible in the first
#: schedule, as early as possible in the second, and at random times in the third and fourth.
SCHEDULES = 4
#: A run is stopped after this number of simulated steps. The longest solution needs a few thousand
#: steps.
MAX_STEPS = 400_000
THREADS = 128
#: Rules whose warning means that the result of a kernel is correct only by luck.
WRONG_HERE = ("SCHEDULE_RESULT", "BLOCK_ENDED")
HELP = "assign the source of the kernel, a text, to `kernel`"


@dataclass(frozen=True)
class Launch:
    """One launch: arguments, inputs, outputs with their expected values, and grid."""

    args: tuple[Any, ...]
    inputs: tuple[np.ndarray, ...]
    # Pairs (output array, expected values).
    outputs: tuple[tuple[np.ndarray, np.ndarray], ...]
    grid: int | tuple[int, ...]
    cluster: int | None = None


@dataclass(frozen=True)
class Puzzle:
    """A kernel to write.

    Attributes
    ----------
    name : str
        Name of the kernel.
    parameters : str
        Parameters of the kernel, in CUDA C++.
    launches : callable (rng) -> list of Launch
    copies : mapping
        Kind of copy, as the timeline names it -> least number of such copies, summed over all
        launches.
    """

    name: str
    parameters: str
    launches: Callable[[np.random.Generator], list[Launch]]
    copies: Mapping[str, int] = field(default_factory=lambda: {"load": 1})


@dataclass(frozen=True)
class Verdict:
    """The verdict on an answer. A notebook shows its text with the timeline of the run."""

    solved: bool
    text: str
    run: tma.kernel.KernelRun | None = None

    def __bool__(self) -> bool:
        return self.solved

    def __str__(self) -> str:
        return f"{'solved' if self.solved else 'not yet'}: {self.text}"

    def _repr_html_(self) -> str:
        from html import escape

        picture = "" if self.run is None else self.run._repr_html_()
        return f"<p><b>{escape(str(self))}</b></p>{picture}"


# -- the launches ---------------------------------------------------------------------------------
# Each puzzle has a function that returns the launches of the puzzle. `judge` runs all launches.


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return small integers as float32, so that their sums are exact."""
    return rng.integers(-99, 100, shape).astype(np.float32)


def empty(*shape: int) -> np.ndarray:
    """Return an output array full of NaN, so that `judge` finds unwritten elements."""
    return np.full(shape, np.nan, np.float32)


def map_of(x: np.ndarray, box: tuple[int, int], **options: Any) -> Any:
    return tma.make_tma_descriptor(x, box, **options)


def one_copy(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 64, 32), empty(64, 32)
    return [Launch((map_of(x, (16, 32)), out), (x,), ((out, x + 1),), 4)]


def two_phases(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 64, 32), empty(16, 32)
    expected = x.reshape(4, 16, 32).sum(axis=0)
    return [Launch((map_of(x, (16, 32)), out), (x,), ((out, expected),), 1)]


def triple(rng: np.random.Generator) -> list[Launch]:
    # 40 x 80 is not a multiple of the box, 16 x 32, so the last tiles are partly outside of x.
    x, out = integers(rng, 40, 80), empty(40, 80)
    maps = map_of(x, (16, 32)), map_of(out, (16, 32))
    return [Launch(maps, (x,), ((out, 3 * x),), (3, 3))]


def reload(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 64, 32), empty(4, 512)
    expected = 2 * x.reshape(4, 512)[:, ::-1]
    return [Launch((map_of(x, (16, 32)), out), (x,), ((out, expected),), 1)]


def halo(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 48, 32), empty(48, 32)
    # Add a row of zeros above the first row and below the last row.
    padded = np.pad(x, ((1, 1), (0, 0)))
    expected = padded[:-2] + padded[1:-1] + padded[2:]
    return [Launch((map_of(x, (18, 32)), out), (x,), ((out, expected),), 3)]


def shift(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 16, 68), empty(16, 64)
    return [Launch((map_of(x, (16, 36)), out), (x,), ((out, x[:, 3:67]),), 2)]


def unswizzle(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 64, 32), empty(64, 32)
    return [Launch((map_of(x, (32, 32), swizzle="bytes128"), out), (x,), ((out, x.copy()),), 2)]


def transpose(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 64, 96), empty(96, 64)
    maps = map_of(x, (32, 32)), map_of(out, (32, 32))
    return [Launch(maps, (x,), ((out, x.T.copy()),), (2, 3))]


def ring(rng: np.random.Generator) -> list[Launch]:
    launches = []
    # The ring has three stages. One launch has more tiles than stages, and two launches have fewer.
    for tiles in (10, 2, 1):
        x, out = integers(rng, 16 * tiles, 32), empty(16, 32)
        weights = np.arange(1, tiles + 1, dtype=np.float32)[:, None, None]
        expected = (x.reshape(tiles, 16, 32) * weights).sum(axis=0)
        launches.append(Launch((map_of(x, (16, 32)), out, tiles), (x,), ((out, expected),), 1))
    return launches


def multicast(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 32, 32), empty(4, 512)
    # Axes: cluster, rank of the block, element; both blocks of a cluster get the same tile.
    expected = x.reshape(2, 1, 512) * np.array([1, 2], np.float32)[None, :, None]
    return [
        Launch((map_of(x, (16, 32)), out), (x,), ((out, expected.reshape(4, 512)),), 4, cluster=2)
    ]


def tail(rng: np.random.Generator) -> list[Launch]:
    launches = []
    # The third tile has 8 rows inside x in the first launch, and 1 row in the second launch.
    for rows in (40, 33):
        x, out = integers(rng, rows, 32), empty(rows, 32)
        launches.append(Launch((map_of(x, (16, 32)), out, rows), (x,), ((out, x + 1),), 3))
    return launches


def dead(rng: np.random.Generator) -> list[Launch]:
    x, out = integers(rng, 16 * 7, 32), empty(16, 32)
    expected = x.reshape(7, 16, 32).sum(axis=0)
    return [Launch((map_of(x, (16, 32)), out, 7), (x,), ((out, expected),), 1)]


_TO_POINTER = "const __grid_constant__ Map x, float* out"
_TO_MAP = "const __grid_constant__ Map x, const __grid_constant__ Map out"

#: The puzzles by name. Copies are summed over all launches: `ring` needs 10 + 2 + 1 = 13 loads.
PUZZLES = {
    puzzle.name: puzzle
    for puzzle in (
        Puzzle("one_copy", _TO_POINTER, one_copy, {"load": 4}),
        Puzzle("two_phases", _TO_POINTER, two_phases, {"load": 4}),
        Puzzle("triple", _TO_MAP, triple, {"load": 9, "store": 9}),
        Puzzle("reload", _TO_POINTER, reload, {"load": 4}),
        Puzzle("halo", _TO_POINTER, halo, {"load": 3}),
        Puzzle("shift", _TO_POINTER, shift, {"load": 2}),
        Puzzle("unswizzle", _TO_POINTER, unswizzle, {"load": 2}),
        Puzzle("transpose", _TO_MAP, transpose, {"load": 6, "store": 6}),
        Puzzle("ring", f"{_TO_POINTER}, int tiles", ring, {"load": 13}),
        Puzzle("multicast", _TO_POINTER, multicast, {"multicast": 2}),
        Puzzle("tail", f"{_TO_POINTER}, int rows", tail, {"load": 6}),
        Puzzle("dead", f"{_TO_POINTER}, int tiles", dead, {"load": 7}),
    )
}

#: The line that includes the header, such as ``#include <tma_dlpack.h>``.
_HEADER = re.compile(r"#\s*include\s*[<\"]tma_dlpack\.h[>\"].*")
#: Code that defines CUtensorMap, the driver's type of a map, because NVRTC does not know this type.
_ALIAS = """\
#if defined(__CUDACC_RTC__) && !defined(__cuda_cuda_h__)
using CUtensorMap = tma_dlpack::Map;
#endif"""


def compiled_source(kernel: str) -> str:
    """Return the kernel's source with a definition of CUtensorMap and unchanged line numbers."""
    found = _HEADER.search(kernel)
    if found is None or "CUtensorMap" not in kernel:
        return kernel
    # Because of `#line`, errors of the compiler have the line numbers of the notebook's cell.
    line = kernel.count("\n", 0, found.end()) + 2
    return f"{kernel[: found.end()]}\n{_ALIAS}\n#line {line}{kernel[found.end() :]}"


# -- the judge -----------------------------------------------------------------------------------


def judge(name: str, kernel: object, backend: str | None = "simulator") -> Verdict:
    """Compile and run a kernel, and return a verdict that names the first mistake.

    Parameters
    ----------
    name : str
        Name of a puzzle: a key of `PUZZLES`.
    kernel : str
        CUDA C++. The compiler finds the header ``tma_dlpack.h``.
    backend : {"simulator", "cuda"}
        Where the kernel runs. The simulator finds races and hangs. On a GPU, `judge` only compares
        the outputs with the expected values.
    """
    puzzle = PUZZLES.get(name) if isinstance(name, str) else None
    if puzzle is None:
        return Verdict(False, f"there is no puzzle {name!r}: {', '.join(PUZZLES)}")
    if not isinstance(kernel, str) or not kernel.strip():
        return Verdict(False, f"there is no kernel to run: {HELP}")
    counts: dict[str, int] = {}
    run = None
    # The seed is fixed, so the same kernel gets the same verdict in each run.
    for launch in puzzle.launches(np.random.default_rng(1)):
        before = [array.copy() for array in launch.inputs]
        try:
            run = tma.run_kernel(
                compiled_source(kernel),
                puzzle.name,
                grid=launch.grid,
                block=THREADS,
                args=launch.args,
                cluster=launch.cluster,
                schedules=SCHEDULES,
                max_steps=MAX_STEPS,
                backend=backend,
            )
        except (tma.TmaError, ValueError) as error:
            return Verdict(False, refused(error, puzzle))
        wrong = fault_of(run) or changed(before, launch) or differs(launch)
        if wrong:
            return Verdict(False, wrong, run)
        for kind, count in issued(run).items():
            counts[kind] = counts.get(kind, 0) + count
    # Correct values are not enough, because TMA must make the copies. Only the simulator lists the
    # copies of a run.
    if backend == "simulator":
        for kind, least in puzzle.copies.items():
            if counts.get(kind, 0) < least:
                found = counts.get(kind, 0)
                text = f"the values are right, but {found} of {least} {kind} copies were by TMA"
                return Verdict(False, text, run)
    return Verdict(True, "every byte is right in every schedule", run)


def issued(run: Any) -> dict[str, int]:
    """Return how many copies of each kind a run issued. A copy to several blocks is a multicast."""
    # A multicast to n blocks is n rows of the timeline, with equal label, start and text.
    blocks: dict[tuple[Any, ...], int] = {}
    for row in run.timeline:
        if row.kind == "copy":
            place = row.label, row.start, row.about
            blocks[place] = blocks.get(place, 0) + 1
    counts: dict[str, int] = {}
    for (label, *_), count in blocks.items():
        kind = "multicast" if count > 1 else label
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def refused(error: Exception, puzzle: Puzzle) -> str:
    """Return why a kernel did not run: it does not compile, or its parameters are wrong."""
    lines = str(error).replace("\n  rule: ARGUMENT", "").splitlines()
    # Lines with an error of the compiler, such as ``double.cu(7): error: expected a ";"``.
    of_compiler = [line for line in lines if re.search(r"\berror\b.*:", line)]
    text = "it does not compile: " + of_compiler[0] if of_compiler else "\n".join(lines)
    return f"{text}\n  the kernel is __global__ void {puzzle.name}({puzzle.parameters})"


def fault_of(run: Any) -> str:
    """Return the first error of a run with its line, or an empty string."""
    for finding in run.findings:
        # In a puzzle, a finding is also an error if a thread's store and a bulk copy access the
        # same bytes in an unknown order.
        is_open = "their order is open" in finding.message
        if finding.severity == "error" or finding.rule in WRONG_HERE or is_open:
            line = f"{finding.line.rpartition('/')[2]}: " if finding.line else ""
            return f"{finding.rule}, {line}{finding.message}\n  fix: {finding.fix}"
    return ""


def changed(before: list[np.ndarray], launch: Launch) -> str:
    """Return a sentence if the kernel wrote to its input, else an empty string."""
    pairs = zip(before, launch.inputs, strict=True)
    is_same = all(np.array_equal(old, new) for old, new in pairs)
    return "" if is_same else "the kernel wrote to x, which it should only read"


def differs(launch: Launch) -> str:
    """Return a sentence about the first wrong element of an output, or an empty string."""
    for found, expected in launch.outputs:
        wrong = np.argwhere(found != expected)
        if len(wrong):
            place = tuple(int(n) for n in wrong[0])
            at = "".join(f"[{n}]" for n in place)
            value = "was never written" if np.isnan(found[place]) else f"is {found[place]:g}"
            return (
                f"{len(wrong)} of {found.size} elements are wrong: out{at} {value}, and should be "
                f"{expected[place]:g}"
            )
    return ""
