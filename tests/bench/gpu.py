"""``python tests/bench gpu``: the speed of TMA copies of a matrix, for several boxes."""

from __future__ import annotations

import argparse
import ctypes
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.verification.bandwidth import bandwidth
from tma_dlpack.verification.pipeline import library, multiprocessors

EXIT_OK, EXIT_WRONG = 0, 1
ELEMENT_BYTES = 2
THREADS, BLOCKS_PER_SM = 256, 8  # that fill the matrix


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of `tma.bandwidth` for a 16-bit matrix. Return 1 if a copy is wrong."""
    options = _parser().parse_args(argv)
    rows = options.mib * 2**20 // (ELEMENT_BYTES * options.columns)
    with Matrix(rows, options.columns, options.device) as matrix:
        report = bandwidth(
            matrix,
            options.box,
            options.swizzle,
            options.l2,
            stages=options.stages,
            ctas_per_sm=options.ctas,
            repeats=options.repeats,
        )
    print(report)
    return EXIT_OK if report.ok else EXIT_WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/bench gpu", description=__doc__)
    parser.add_argument("--mib", type=int, default=2048, help="size of the matrix, MiB")
    parser.add_argument("--columns", type=int, default=16384, help="of 16 bits each")
    parser.add_argument(
        "--box", type=_integers, action="append", help="rows,columns; may be repeated"
    )
    parser.add_argument("--swizzle", help="for every box")
    parser.add_argument("--l2", action="append", help="l2_fetch_size; may be repeated")
    parser.add_argument("--stages", type=_integers, default=(3, 4, 6, 8))
    parser.add_argument("--ctas", type=_integers, default=(1, 2, 4), help="per multiprocessor")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", type=int, default=0)
    return parser


def _integers(word: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in word.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a list of integers; write one such as 64,64"
        ) from None


class Matrix:
    """A context manager with a matrix of 16-bit numbers in a GPU's memory. No row repeats."""

    def __init__(self, rows: int, columns: int, device_id: int) -> None:
        self.shape = rows, columns
        self._device_id = device_id

    def __enter__(self) -> Matrix:
        with ExitStack() as stack:
            device_id = stack.enter_context(driver.in_context(self._device_id))
            target = driver.device_target(device_id)
            size_bytes = 2 * math.prod(self.shape)
            self._address = stack.enter_context(launch.scratch(size_bytes))
            kernel = library(target).kernel("fill_random", device_id)
            arguments = ctypes.c_uint64(self._address), ctypes.c_uint64(size_bytes // 4)
            grid = multiprocessors(target) * BLOCKS_PER_SM
            launch.launch(kernel, grid, THREADS, 0, 0, arguments)
            launch.synchronize(0)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": "<u2",
            "shape": self.shape,
            "data": (self._address, False),
        }
