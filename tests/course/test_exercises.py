"""The exercises' judges accept every right answer, in any style, and refuse wrong answers."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
import test_notebooks

#: (chapter, description) -> right code that differs from the folded solution.
RIGHT = {
    ("00_what_is_tma", "one box as large as the matrix allows"): """
        def tripled(y):
            tm = tma.make_tma_descriptor(y, box_sizes=(37, 72))
            tile = tma.load_tile(tm, (0, 0))
            tma.store_tile(tm, (0, 0), tile.array * 3)
        """,
    ("00_what_is_tma", "a swizzle, and coordinates by hand"): """
        def tripled(y):
            tm = tma.make_tma_descriptor(y, box_sizes=(16, 32), swizzle="bytes128")
            for row in range(0, y.shape[0], 16):
                for column in range(0, y.shape[1], 32):
                    tile = tma.load_tile(tm, (row, column))
                    tma.store_tile(tm, (row, column), tile.array * np.float32(3))
        """,
    ("01_swizzle_and_banks", "by rows and chunks"): """
        def place(row, column, span):
            line, byte = divmod(row * span + 2 * column, 128)
            chunk, rest = divmod(byte, 16)
            moved = chunk ^ (line % {128: 8, 64: 4, 32: 2}[span])
            return line * 128 + moved * 16 + rest
        """,
    ("02_one_call", "three copies"): """
        storage = np.zeros((512, 40), np.float32)
        tensor = storage[:, 4:34]
        tensor[...] = np.arange(512 * 30).reshape(512, 30)
        arguments = {"box_sizes": (200, 24)}
        copies = 3
        """,
    ("02_one_call", "narrow boxes in the span of 64 bytes"): """
        tensor = np.zeros((512, 32), np.float32)[:, :30]
        tensor[...] = np.arange(512 * 30).reshape(512, 30)
        arguments = {"box_sizes": (256, 16), "swizzle": "bytes64"}
        copies = 4
        """,
    ("03_out_of_bounds_and_strides", "more than is needed"): """
        BOX = (16, 32)

        def corner(row, column):
            return row - 4, column - 8
        """,
    ("05_im2col_convolution", "from the length of the filter"): """
        def corners(kernel, padding, dilation):
            length = 1 + (kernel - 1) * dilation
            return -padding, padding - length + 1

        def offset(tap, dilation):
            return sum([dilation] * tap)
        """,
    ("06_hopper_gemm", "by two bits"): """
        def turn(i, stages):
            full = i // stages & 1
            return i % stages, full, 1 - full
        """,
    ("06_hopper_gemm", "the stages from the last to the first"): """
        def turn(i, stages):
            return stages - 1 - i % stages, i // stages % 2, (i // stages + 1) % 2
        """,
    ("07_grouped_gemm", "a list, and the extents by hand"): """
        def coords_of(offset, size, row, column):
            end = 1 << 30
            return [end, size + offset, end + row - size, column]
        """,
    ("08_blackwell", "any row beyond the cache is filled"): """
        def four_rows(pages, first, length):
            def one(row):
                return 16 * pages[row >> 4] | row & 15 if row < length else 10_000
            return tuple(map(one, range(first, first + 4)))
        """,
    ("09_trace", "a narrow map has fewer rows"): """
        most, unused, box = "B", 4, [32, 64]
        bytes_per_launch = 8 * 768 * 512 * 2
        """,
    ("ring", "counted up"): """
        def stages_needed(load, work):
            stages = 1
            while stages * work < load + work:
                stages += 1
            return stages
        """,
    ("10_postmortem", "numbers as they are printed"): """
        barrier, parity, missing = 50176, 0b0, 1 << 10
        expected = 2 * 8192 + missing
        cause = "too many bytes were expected"
        """,
}

#: (chapter, mistake) -> code, and the beginning of the judge's message.
WRONG = {
    ("00_what_is_tma", "the last tiles are left out"): (
        """
        def tripled(y):
            tm = tma.make_tma_descriptor(y, box_sizes=(8, 24))
            for coords in tma.tile_coords(tm)[:-3]:
                tma.store_tile(tm, coords, 3 * tma.load_tile(tm, coords).array)
        """,
        "y[32, 0] is",
    ),
    ("00_what_is_tma", "overlapping tiles"): (
        """
        def tripled(y):
            tm = tma.make_tma_descriptor(y, box_sizes=(8, 24))
            for row in range(0, 37, 4):
                for column in range(0, 72, 24):
                    tile = tma.load_tile(tm, (row, column))
                    tma.store_tile(tm, (row, column), 3 * tile.array)
        """,
        "y[4, 0] is",
    ),
    ("00_what_is_tma", "without a copy"): (
        """
        def tripled(y):
            y *= 3
        """,
        "every element is tripled, but not by loads and stores of tiles",
    ),
    ("02_one_call", "another type"): (
        """
        tensor = np.arange(512 * 30, dtype=np.float64).reshape(512, 30)
        arguments = {"box_sizes": (256, 24)}
        copies = 2
        """,
        "the tensor must stay one of float32",
    ),
    ("01_swizzle_and_banks", "by the row of the tile"): (
        """
        def place(row, column, span):
            return row * span + (2 * column ^ (row % (span // 16)) << 4)
        """,
        "span 64, (1, 0) is at",
    ),
    ("01_swizzle_and_banks", "in elements"): (
        "def place(row, column, span): return (row * span + 2 * column) // 2",
        "span 128, (0, 1) is at 2, not at 1",
    ),
    ("02_one_call", "other values"): (
        """
        tensor = np.zeros((512, 32), np.float32)[:, :30]
        arguments, copies = {"box_sizes": (256, 24)}, 2
        """,
        "the values must stay the same",
    ),
    ("02_one_call", "one copy too few"): (
        """
        tensor = np.zeros((512, 32), np.float32)[:, :30]
        tensor[...] = np.arange(512 * 30).reshape(512, 30)
        arguments, copies = {"box_sizes": (256, 24)}, 1
        """,
        "boxes of 256 x 24 cover 512 x 24 in 2 copies",
    ),
    ("03_out_of_bounds_and_strides", "a column off 16 bytes"): (
        """
        BOX = (10, 24)
        def corner(row, column): return row - 1, column - 1
        """,
        "block (0, 0): coords[1] is -1",
    ),
    ("03_out_of_bounds_and_strides", "too narrow"): (
        """
        BOX = (10, 20)
        def corner(row, column): return row - 1, column - 4
        """,
        "block (0, 0): columns -4 to 15; -1 to 16 are needed",
    ),
    ("03_out_of_bounds_and_strides", "too low"): (
        """
        BOX = (9, 24)
        def corner(row, column): return row - 1, column - 4
        """,
        "block (0, 0): rows -1 to 7; -1 to 8 are needed",
    ),
    ("05_im2col_convolution", "dilation forgotten in the corner"): (
        """
        def corners(kernel, padding, dilation): return -padding, padding - kernel + 1
        def offset(tap, dilation): return tap * dilation
        """,
        "kernel 3, padding 2, dilation 2: 12 output pixels, not 10",
    ),
    ("05_im2col_convolution", "dilation forgotten in the offset"): (
        """
        def corners(kernel, padding, dilation): return -padding, padding - (kernel - 1) * dilation
        def offset(tap, dilation): return tap
        """,
        "kernel 3, padding 2, dilation 2: tap 1 takes other pixels",
    ),
    ("06_hopper_gemm", "one stage"): (
        "def turn(i, stages): return 0, i % 2, i % 2 ^ 1",
        "2 stages: the first 2 tiles use stages [0]",
    ),
    ("06_hopper_gemm", "the parity of full for both"): (
        "def turn(i, stages): return i % stages, i // stages % 2, i // stages % 2",
        "1 stages: both hang",
    ),
    ("06_hopper_gemm", "full one round early"): (
        "def turn(i, stages): return i % stages, 1 - i // stages % 2, 1 - i // stages % 2",
        "1 stages: ",
    ),
    ("07_grouped_gemm", "no second extra"): (
        "def coords_of(offset, size, row, column):"
        " return 0, offset + size, 2**30 - size + row, column",
        "rows 0..4",
    ),
    ("07_grouped_gemm", "row of the tensor"): (
        "def coords_of(offset, size, row, column):"
        " return 2**30, offset + size, 2**30 - size + offset + row, column",
        "rows 5..21",
    ),
    ("08_blackwell", "the page of the first row for all"): (
        """
        def four_rows(pages, first, length):
            return [pages[first // 16] * 16 + (first + i) % 16 for i in range(4)]
        """,
        "pages [7, 2, 11], 48 rows, first 14: row 2 of the tile is row 112, not row 32",
    ),
    ("08_blackwell", "past the end, the page goes on"): (
        """
        def four_rows(pages, first, length):
            rows = range(first, first + 4)
            return [pages[min(r // 16, len(pages) - 1)] * 16 + r % 16 for r in rows]
        """,
        "pages [7, 2, 11], 48 rows, first 46: row 2 of the tile is row 176, not zeros",
    ),
    ("08_blackwell", "three"): (
        "def four_rows(pages, first, length): return 0, 1, 2",
        "pages [7, 2, 11], 48 rows, first 0: ",
    ),
    ("08_blackwell", "nothing"): (
        "def four_rows(pages, first, length): return None",
        "pages [7, 2, 11], 48 rows, first 0: ",
    ),
    ("09_trace", "the largest tensor"): (
        "most = 'A'",
        "a block moves 12 tiles of A; compare the bytes of the others",
    ),
    ("09_trace", "the largest tile"): (
        "most = 'C'",
        "a block moves 1 tiles of C; compare the bytes of the others",
    ),
    ("09_trace", "the bytes of the tensor"): (
        "most, bytes_per_launch = 'B', 768 * 512 * 2",
        "multiply the bytes of a tile of B by the steps and by the blocks",
    ),
    ("09_trace", "a map of the kernel"): (
        "most, bytes_per_launch, unused = 'B', 6291456, 2",
        "map 2 is passed to matmul",
    ),
    ("09_trace", "a refused map"): (
        "most, bytes_per_launch, unused = 'B', 6291456, 5",
        "the driver refused map 5",
    ),
    ("09_trace", "a map that is not there"): (
        "most, bytes_per_launch, unused = 'B', 6291456, 0",
        "the trace has maps 1 to 6",
    ),
    ("09_trace", "the box that was refused"): (
        "most, bytes_per_launch, unused, box = 'B', 6291456, 4, (64, 128)",
        "box_sizes[1] spans 256 bytes",
    ),
    ("09_trace", "a box of half the width"): (
        "most, bytes_per_launch, unused, box = 'B', 6291456, 4, (64, 32)",
        "bytes128 allows wider rows than 64 bytes",
    ),
    ("ring", "always three"): (
        "def stages_needed(load, work):\n    return 3",
        "fewer than 3 are enough (load 400 ns, work 400 ns)",
    ),
    ("ring", "rounded down"): (
        "def stages_needed(load, work):\n    return load // work + 1",
        "with 2 stages the work waits (load 600 ns, work 400 ns)",
    ),
    ("10_postmortem", "the next stage"): ("barrier = 0xC408", "no warp waits at 0xc408"),
    ("10_postmortem", "the other parity"): (
        "barrier, parity = 0xC400, 1",
        "the warps at 0xc400 do not wait for parity 1",
    ),
    ("10_postmortem", "a whole copy"): (
        "barrier, parity, missing = 0xC400, 0, 8192",
        "not 8192 bytes are pending at 0xc400",
    ),
    ("10_postmortem", "what can come"): (
        "barrier, parity, missing, expected = 0xC400, 0, 1024, 16384",
        "the two copies of a stage brought 16384 bytes, others are missing",
    ),
    ("10_postmortem", "a copy is missing"): (
        """
        barrier, parity, missing, expected = 0xC400, 0, 1024, 17408
        cause = "a copy was not issued"
        """,
        "a copy of these maps has 8192 bytes, and 1024 are missing",
    ),
    ("10_postmortem", "an arrival is missing"): (
        """
        barrier, parity, missing, expected = 0xC400, 0, 1024, 17408
        cause = "an arrival is missing"
        """,
        "0 of 1 arrivals are pending at 0xc400",
    ),
    ("10_postmortem", "parity"): (
        "barrier, parity, missing, expected = 0xC400, 0, 1024, 17408",
        "the barrier is in phase 0, for which its warps wait",
    ),
}


@pytest.fixture
def verdict(capsys, monkeypatch):
    """Return a function that returns the text that a chapter's judge prints for an answer."""
    monkeypatch.chdir(test_notebooks.NOTEBOOKS)

    def judged(name, *answers):
        stub, judge, _ = test_notebooks.exercise_of(name)
        names = test_notebooks.imported(name)
        for code in (stub.source, *map(textwrap.dedent, answers), judge.source):
            exec(code, names)
        return capsys.readouterr().out

    return judged


@pytest.mark.parametrize("case", RIGHT, ids=": ".join)
def test_an_answer_that_is_right_passes_however_it_is_written(case, verdict):
    assert verdict(case[0], RIGHT[case]).startswith("solved: ")


@pytest.mark.parametrize("case", WRONG, ids=": ".join)
def test_an_answer_that_is_wrong_is_refused_with_what_is_wrong(case, verdict):
    answer, words = WRONG[case]
    assert verdict(case[0], answer).startswith(f"not yet: {words}")


#: Values that a reader may assign or return instead of an answer.
ODD = ["None", "3.5", "'text'", "(1, 2)", "[]", "1 / 0", "open('/no/such/file')"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in RIGHT))
def test_no_answer_ends_in_a_traceback(name, odd, verdict):
    stub, judge, solution = test_notebooks.exercise_of(name)
    judged = re.search(r"print\(judged\((.*)\)\)", judge.source)[1].split(", ")
    for line in stub.source.splitlines():
        if found := re.match(r"def (\w+)\((.*)\):", line):
            function = f"def {found[1]}({found[2]}): return {odd}"
            assert verdict(name, solution, function).startswith("not yet: ")
        elif (found := re.match(r"(\w+) = ", line)) and found[1] in judged and "/" not in odd:
            assert verdict(name, solution, f"{found[1]} = {odd}").startswith("not yet: ")


def test_every_exercise_has_right_and_wrong_answers_tried():
    lessons = {name for name in test_notebooks.SAYS if name not in test_notebooks.PRACTICE}
    elsewhere = {"04_pytorch_extension"}  # test_puzzles.py
    assert {name for name, _ in RIGHT} == {name for name, _ in WRONG} == lessons - elsewhere
