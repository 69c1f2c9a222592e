"""``python tests/bench call``: the time of a call, compared with other libraries' calls."""

from __future__ import annotations

import argparse
import inspect
import itertools
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.call_targets import OTHER_CALLS, OURS, PICTURE, WITH_OPTIONS, targets
from bench.imports import import_ms
from bench.peers import (
    BOX,
    REPEATED,
    Skipped,
    Subject,
    group_of,
    missing_peers,
    peer_rows,
    subjects,
    with_new_shapes,
)
from bench.timing import CLOCKS, Row, Timing, time_rows
from tma_dlpack import driver, matrix_descriptor, ragged, split_inner, suggest
from tma_dlpack.make import build, extension
from tma_dlpack.make.batch import make_tma_descriptors
from tma_dlpack.make.conv import im2col_corners, make_conv_descriptor
from tma_dlpack.make.descriptors import (
    check_tma_descriptor,
    make_im2col_descriptor,
    make_tma_descriptor,
)
from tma_dlpack.make.driver_words import driver_encode_tiled

MAKE = "make(x, box, swizzle='bytes128')"
SHAPES = 400  # in a round
BATCH = 256


@dataclass(frozen=True, slots=True)
class CallBench:
    """The results of a measurement.

    Attributes
    ----------
    timings : tuple of Timing
    skipped : tuple of Skipped
    import_ms : tuple of float
        Median, 10th and 90th percentile; empty if it was not measured.
    """

    timings: tuple[Timing, ...]
    skipped: tuple[Skipped, ...]
    import_ms: tuple[float, ...]

    def median_us(self, group: str, label: str) -> float | None:
        """Return one row's median; None if there is no such row."""
        found = (t for t in self.timings if (t.row.group, t.row.label) == (group, label))
        return next((t.median_us for t in found), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables. Returns 0, because the bench only measures; the reader judges the times."""
    parser = argparse.ArgumentParser(prog="python tests/bench call", description=__doc__)
    parser.add_argument("--rounds", type=int, default=31, help="interleaved rounds per median")
    parser.add_argument("--sample-ms", type=float, default=2.0, help="time of one row in a round")
    parser.add_argument("--imports", type=int, default=11, help="fresh processes; 0 for none")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="thread: CPU time, for a busy machine"
    )
    parser.add_argument(
        "--all-lanes", action="store_true", help="without the extension too, in another process"
    )
    options = parser.parse_args(argv)
    print(as_text(measure(options.rounds, options.sample_ms, options.imports, options.clock)))
    if options.all_lanes and extension.COMPILED:
        print("\n", flush=True)
        words = sys.argv[1:] if argv is None else argv
        paths = [str(Path(__file__).parents[n]) for n in (1, 2)]
        command = [sys.executable, "-c", _PYTHON_LANE.format(paths=paths), *words]
        subprocess.run(command, check=True)
    return 0


#: Run this bench in a process that cannot import the compiled module.
_PYTHON_LANE = """
import sys
sys.path[:0] = {paths}
sys.modules["tma_dlpack.native._core"] = None
from bench.call import main
main([word for word in sys.argv[1:] if word != "--all-lanes"])
"""


def measure(
    rounds: int = 31, sample_ms: float = 2.0, imports: int = 11, clock: str = "wall"
) -> CallBench:
    """Time our calls and those of every peer that is installed, in this process."""
    tensors, skipped = subjects()
    skipped += missing_peers()
    rows: list[Row] = []
    for subject in tensors:
        views = [subject.with_rows(64 + n) for n in range(SHAPES)]
        _compare_bytes([subject.tensor, *views])
        make = {"make": make_tma_descriptor, "x": subject.tensor, "box": BOX}
        found = list(peer_rows(subject))
        skipped += [one for one in found if isinstance(one, Skipped)]
        repeated = [
            Row(group_of(REPEATED, subject.name), OURS, MAKE, make),
            *(one for one in found if isinstance(one, Row)),
        ]
        rows += repeated
        rows += [with_new_shapes(row, subject, views) for row in repeated]
    rows += _other_calls(tensors)
    timings = time_rows(rows, rounds, sample_ms, clock)
    return CallBench(tuple(timings), tuple(skipped), import_ms(imports) if imports else ())


def _compare_bytes(tensors: Sequence[Any]) -> None:
    """Compare the maps that are timed with the maps that Python makes, byte by byte."""
    for x in tensors:
        made = bytes(make_tma_descriptor(x, BOX, swizzle="bytes128"))
        parameters = inspect.signature(make_tma_descriptor).parameters
        given = {p.name: p.default for p in parameters.values() if p.name != "tensor"}
        if made != bytes(build.make("tiled", x, given | {"box_sizes": BOX, "swizzle": "bytes128"})):
            raise RuntimeError(f"C and Python differ for shape {tuple(x.shape)}")


def _other_calls(tensors: Sequence[Subject]) -> Iterator[Row]:
    for subject in tensors:
        if subject.is_torch:
            yield from _torch_calls(subject)
    yield from _bare_calls()


def _torch_calls(subject: Subject) -> Iterator[Row]:
    x, name = subject.tensor, subject.name
    names: dict[str, Any] = {
        "make": make_tma_descriptor,
        "make_many": make_tma_descriptors,
        "check": check_tma_descriptor,
        "box": BOX,
        "rows": BOX[0],
        "columns": BOX[1],
        "x": x,
        "bad": x[:, :60][:, 1:],  # misaligned, and rows of 118 bytes
        "tm": make_tma_descriptor(x, BOX, swizzle="bytes128"),
        "other": x.clone(),
        "many": [x[:64].clone() for _ in range(BATCH)],
        "im2col": make_im2col_descriptor,
        "im2col_corners": im2col_corners,
        "matrix_descriptor": matrix_descriptor,
        "ragged": ragged,
        "split_inner": split_inner,
        "suggest": suggest,
        "conv": make_conv_descriptor,
        "images": x[:512].reshape(8, 16, 16, 256),
    }

    def row(label: str, statement: str, **more: Any) -> Row:
        return Row(OTHER_CALLS, f"{label}, {name}", statement, names, **more)

    yield row("a new tuple each time", "make(x, (rows, columns), swizzle='bytes128')")
    yield row("a new list each time", "make(x, [rows, columns], swizzle='bytes128')")
    yield row("with_address(tensor)", "tm.with_address(other)")
    for label, words in WITH_OPTIONS.items():
        yield row(f"make with {label}", f"make(x, box, swizzle='bytes128', {words})")
    yield row("make and tx_bytes", f"{MAKE}.tx_bytes")
    yield row("make and arguments", f"{MAKE}.arguments")
    yield row("make and key()", f"{MAKE}.key()")
    yield row("check, accepted", "check(x, box, swizzle='bytes128')")
    refused = "(x, (64, 128), swizzle='bytes128')"
    yield row("refused, raised", f"try: make{refused}\nexcept ValueError: pass")
    yield row("refused, as text", f"str(check{refused})")
    yield row("refused, fixed()", f"check{refused}.fixed()")
    yield row("refused by two rules", "check(bad, (64, 6), swizzle='bytes128')")
    yield row("refused by two rules, as text", "str(check(bad, (64, 6), swizzle='bytes128'))")
    yield row("refused by two rules, fixed()", "check(bad, (64, 6), swizzle='bytes128').fixed()")
    yield row("matrix_descriptor(map).value", "matrix_descriptor(tm).value")
    yield row("split_inner", "split_inner(x, box)")
    yield row("ragged", "ragged(x, box)")
    yield row("im2col_corners", "im2col_corners((3, 3), (1, 1))")
    yield row(
        f"make_tma_descriptors of {BATCH}, each",
        "make_many(many, box, swizzle='bytes128')",
        per=BATCH,
    )
    yield row("make and bytes(map)", f"bytes({MAKE})")
    if subject.is_cuda:
        yield row("make and ptr", f"{MAKE}.ptr")
    yield row("suggest", "suggest(x, (128, 64))")
    yield row(PICTURE, "tm._repr_html_()")
    column = "im2col(images, (-1, -1), (-1, -1), 64, 128, swizzle='bytes128')"
    yield row("make_im2col_descriptor", column)
    words = "channels_per_pixel=64, pixels_per_column=128, swizzle='bytes128'"
    yield row("make_conv_descriptor", f"conv(images, 3, padding=1, {words})")


def _bare_calls() -> Iterator[Row]:
    """Return the calls of a map that is made from a bare address, so that it is launchable."""
    tm = driver_encode_tiled(
        "FLOAT16", 2, 1 << 32, (1024, 4096), (2048,), BOX[::-1], (1, 1), encoder="model"
    )
    for label, statement in (
        ("with_address(int)", "tm.with_address(4096)"),
        ("with_address(int) and ptr", "tm.with_address(4096).ptr"),
        ("ptr, asked again", "tm.ptr"),
        ("bytes(tensor_map)", "bytes(tm)"),
    ):
        yield Row(OTHER_CALLS, label, statement, {"tm": tm})


# -- the tables ----------------------------------------------------------------------------------


def as_text(bench: CallBench) -> str:
    """Return the tables, what is missing, and the targets."""
    lane = "compiled" if extension.COMPILED else "Python"
    lines = [f"Python {platform.python_version()}, NumPy {np.__version__}, {_gpu()}, {lane}"]
    for group, timings in itertools.groupby(bench.timings, key=lambda t: t.row.group):
        ours = bench.median_us(group, OURS)
        versus = "" if ours is None else "  over ours"
        lines.append(f"\n{group:48s}  median us  10%..90%{versus:>17s}")
        for t in timings:
            spread = f"{t.low_us:.2f}..{t.high_us:.2f}"
            ratio = "" if ours is None else f"{t.median_us / ours:10.2f}"
            lines.append(f"  {t.row.label:46s}  {t.median_us:9.2f}  {spread:15s}{ratio}".rstrip())
    if bench.import_ms:
        median, low, high = bench.import_ms
        lines.append(f"\nimport tma_dlpack beyond NumPy: {median:.1f} ms ({low:.1f}..{high:.1f})")
    lines += [f"skipped: {skipped}" for skipped in bench.skipped]
    lines.append("\ntargets" + " " * 43 + "measured      limit")
    for name, measured, limit, unit in targets(bench.median_us, bench.import_ms, lane):
        said = "met" if measured <= limit else "MISSED"
        lines.append(f"  {name:46s}  {measured:8.3f}  {limit:8.3f} {unit:2s}  {said}")
    return "\n".join(lines)


def _gpu() -> str:
    devices = driver.status().devices
    return devices[0].name if devices else "no GPU"
