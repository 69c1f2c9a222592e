"""Numbers in the course's prose, and the right answers, compared with the package's results."""

from __future__ import annotations

import ast
import html
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
import test_notebooks

import course
import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.debug import Trace
from tma_dlpack.geometry import swizzle_offset
from tma_dlpack.kernel.matrix import registers_of

CHAPTERS = [name for name in test_notebooks.SAYS if name not in ("06_hopper_gemm", "puzzles")]
NOTEBOOKS = test_notebooks.NOTEBOOKS


def numbers(text):
    """Return the integers of a message of the package."""
    return [int(n) for n in re.findall(r"-?\d+", text)]


def halves(*shape):
    return np.arange(np.prod(shape), dtype=np.float16).reshape(shape)


def floats(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def made(*arguments, **options):
    return tma.make_tma_descriptor(*arguments, **options)


def is_accepted(tensor, box, **options):
    return tma.check_tma_descriptor(tensor, box, **options).ok


def found_by(rule, tensor, box, **options):
    """Return the numbers that a rule found in a refused call."""
    report = tma.check_tma_descriptor(tensor, box, **options)
    (violation,) = (one for one in report.violations if one.rule == rule)
    return numbers(violation.found)


def row_bytes(tensor, box):
    tm = made(tensor, box)
    return tm.strides[0] * tensor.itemsize


# 00
X = halves(20, 64)
TM = made(X, (8, 64), swizzle="bytes128")
NARROW = made(X, (8, 16))
NARROW_TILE = tma.load_tile(NARROW, (16, 0))
RAGGED = np.zeros((4, 33), np.float16)
STAGE = 3 * made(halves(256, 64), (128, 64), swizzle="bytes128").tx_bytes
# 01
SQUARE = halves(64, 64)
PLAIN, SWIZZLED = made(SQUARE, (16, 64)), made(SQUARE, (16, 64), swizzle="bytes128")
COLUMN = tma.bank_conflicts(PLAIN, "column")
MINE = tma.bank_conflicts(PLAIN, lambda thread: (thread % 16, 8 * (thread // 16)))
ROWS_OF_64 = tma.bank_conflicts(made(SQUARE, (16, 32), swizzle="bytes64"))
MOVED = swizzle_offset(tma.TmaSwizzle.bytes128, 5 * 128 + 3 * 16)
# 02
WIDE = made(halves(30, 104), (8, 64), swizzle="bytes128")
CORNER = tma.load_tile(WIDE, (24, 64))
REFUSED = np.zeros((4, 1733), np.float16), (4, 300)
Y = floats(64, 64)
VALUES = np.zeros((512, 30), np.float32), (512, 24)
# 03
EDGE = made(floats(20, 40), (8, 16))
EDGE_TILE = tma.load_tile(EDGE, (16, 32))
NAN = tma.load_tile(made(floats(20, 40), (8, 16), oobfill="nan"), (16, 32)).array.view(np.uint16)
# 05, 07
CORNERS = tma.im2col_corners((3, 3), padding=1)
TOKENS = np.repeat(np.arange(1, 129, dtype=np.float32), 64).reshape(128, 64)
TOKEN_MAP = made(TOKENS, **tma.ragged(TOKENS, box_sizes=(16, 64)))
SLICE = tma.load_tile(TOKEN_MAP, tma.ragged_coords(TOKEN_MAP, 5, 17, (11, 0))).array[0, 0, :, 0]
# 08
TILE_OF_A = made(halves(256, 128), (128, 64), swizzle="bytes128", target="sm_100")
TCGEN05 = tma.matrix_descriptor(TILE_OF_A, instruction="tcgen05")
STORED = made(halves(256, 128), (64, 64), swizzle="bytes128", target="sm_100")
BY_ROWS = tma.matrix_descriptor(STORED, instruction="tcgen05", major="mn")


def packed(data_type):
    """Return the map of 8 rows of 128 values of 4 or 6 bits."""
    room = np.zeros(64 * 192 + 32, np.uint8)
    start = -room.ctypes.data % 32
    tensor = room[start : start + 64 * 192].reshape(64, 192)
    return made(tensor, (8, 128), swizzle="bytes128", data_type=data_type, target="sm_100")


def of_16_values(data_type):
    """Return the bytes of 16 values in shared memory, and the bytes of the gap after the values."""
    tm = packed(data_type)
    counted, room = tm.tx_bytes * 16 // 1024, tm.smem_bytes * 16 // 1024
    return counted, room - counted


def overwritten():
    """Return the columns beyond 38 columns that a store at column 32 overwrites."""
    storage = np.full((4, 40), -1, np.float32)
    tma.store_tile(made(storage[:, :38], (4, 8)), (0, 32), np.ones((4, 8), np.float32))
    return [n for n in range(38, 40) if (storage[:, n] == 1).all()]


#: (chapter, sentence with a place for each number, the package's results).
CLAIMS = [
    ("00", "start at rows {}, {} and {}", tma.tile_coords(TM)[:, 0]),
    (
        "00",
        "after {} of {} the wait",
        [(~NARROW_TILE.filled).sum() * 2, NARROW_TILE.tx_bytes],
    ),
    ("00", "Our tile of {} bytes needs {} such", [TM.tx_bytes, TM.tx_bytes // 16]),
    ("00", "chapter 06 has {} KiB. It needs {} `cp.async`", [STAGE // 1024, STAGE // 16]),
    ("00", "the swizzle repeats every {} bytes", [TM.smem_alignment]),
    (
        "00",
        "rows of 33 float16 are {} bytes apart, and a row of the box is {} bytes",
        [
            found_by("STRIDE_ALIGNED", RAGGED, (4, 20))[-1],
            found_by("BOX_INNER_16B", RAGGED, (4, 20))[-1],
        ],
    ),
    ("00", "{} bytes a row, of which", [row_bytes(np.zeros((4, 40), np.float16)[:, :33], (4, 24))]),
    ("00", "Rows would be {} bytes apart.", [found_by("STRIDE_ALIGNED", RAGGED, (4, 24))[-1]]),
    *(
        (
            "00",
            "Rows would be {} bytes apart",
            [found_by("STRIDE_ALIGNED", np.zeros((4, n), np.float16), (4, 24))[-1]],
        )
        for n in (34, 36)
    ),
    ("00", "These {} bytes would fit", [row_bytes(np.zeros((4, 48), np.float16)[:, :33], (4, 24))]),
    (
        "00",
        "so byte 384 + 1 * 16 = {}",
        [swizzle_offset(tma.TmaSwizzle.bytes128, 3 * 128 + 2 * 16)],
    ),
    ("01", "{} different words in each, {} wavefronts", [COLUMN.degree, COLUMN.degree]),
    ("01", "is in bank 0: {} different words", [MINE.degree]),
    ("01", "Rows of 64 bytes have {}-way", [ROWS_OF_64.of(tma.TmaSwizzle.none).worst]),
    ("01", "byte {:#x} before the swizzle (row 5, chunk 3)", [5 * 128 + 3 * 16]),
    ("01", "{:#x}: bits 9..7 are {:03b} (line 5)", [5 * 128 + 3 * 16, 5]),
    ("01", "chunk {} of the same line, {:#x}", [MOVED % 128 // 16, MOVED]),
    ("02", "each row of the box has {} bytes", [found_by("BOX_INNER_16B", Y, (16, 3))[-1]]),
    ("02", "6 x 40 = {} of {}", [(~CORNER.filled).sum(), CORNER.filled.size]),
    ("02", "The other {} are filled", [CORNER.filled.sum()]),
    ("02", "rows are {} bytes apart.", [WIDE.strides[0] * 2]),
    ("02", "rows of 1733 float16 are {} bytes", [found_by("STRIDE_ALIGNED", *REFUSED)[-1]]),
    (
        "02",
        "a box has at most {} elements along",
        [next(n for n in range(200, 300) if not is_accepted(np.zeros((300, 16)), (n + 1, 2)))],
    ),
    ("02", "x[::2] has rows {} bytes apart", [row_bytes(Y[::2], (16, 4))]),
    (
        "02",
        "elements are {} bytes apart: no 16",
        [4 * found_by("STRIDE_INNERMOST", Y.T, (16, 4))[1]],
    ),
    ("02", "{} bytes apart. Only outer", [4 * found_by("STRIDE_INNERMOST", Y[:, ::2], (16, 4))[1]]),
    ("02", "were rows of {} bytes, a box", [found_by("STRIDE_ALIGNED", *VALUES)[-1]]),
    ("02", "a box of {} rows, box", [found_by("BOX_RANGE", *VALUES)[-1]]),
    (
        "02",
        "rows of {} bytes with a swizzle span of 64",
        [found_by("BOX_SWIZZLE_SPAN", Y, (16, 24), swizzle="bytes64")[-1]],
    ),
    (
        "03",
        "elements are in bounds, {} bytes are read",
        [(~EDGE_TILE.filled).sum() * 4],
    ),
    (
        "03",
        "38 floats are {} bytes",
        [numbers(made(np.zeros((4, 40), np.float32)[:, :38], (4, 8)).advice[0].found)[0]],
    ),
    (
        "03",
        "is {} bytes, 40 floats. So {} and {} are",
        [(overwritten()[-1] + 1) * 4, *overwritten()],
    ),
    ("03", "the 16-bit word `0x{:X}`", [NAN[-1, -1]]),
    ("03", "and its rows are {} bytes", [made(floats(37, 72), (10, 24)).tx_bytes // 10]),
    ("05", "1 - (3 - 1) x 2 = {}", [tma.im2col_corners((3, 3), padding=1, dilation=2)[1][0]]),
    (
        "05",
        "the first tap goes from {} to {}",
        [CORNERS[0][0], 8 + CORNERS[1][0]],
    ),
    ("07", "Row 11 of the slice is row {}", [SLICE[0] - 1]),
    ("07", "{} rows are copied, {} are filled", [(SLICE > 0).sum(), (SLICE == 0).sum()]),
    ("08", "Bits 32 to 45 of both: {} bytes", [TCGEN05.stride_byte_offset]),
    ("08", "Bits 46 to 48 must be 0b{:03b}", [TCGEN05.value >> 46 & 7]),
    ("08", "each step is 16 columns, {} bytes", [TCGEN05.k_starts[1]]),
    ("08", "{} bytes instead of {}", [BY_ROWS.k_starts[1], TCGEN05.k_starts[1]]),
    ("08", "x 64 x 2 bytes are {} KiB a block", [2 * TILE_OF_A.tx_bytes // 1024]),
    ("08", "`16U4_ALIGN8B` | 4 bits a value | {} bytes, packed", of_16_values("16U4_ALIGN8B")[:1]),
    (
        "08",
        "`16U4_ALIGN16B` | 4 bits a value | {} bytes, and a gap of {}",
        of_16_values("16U4_ALIGN16B"),
    ),
    (
        "08",
        "`16U6_ALIGN16B` | 6 bits a value | {} bytes, and a gap of {}",
        of_16_values("16U6_ALIGN16B"),
    ),
    ("08", "with gaps: the tile has {} bytes", [packed("16U4_ALIGN16B").smem_bytes]),
    ("08", "what is copied, {} bytes a row", [packed("16U4_ALIGN16B").tx_bytes // 8]),
]

#: Claims that the package cannot check: (chapter, sentence) -> source.
ELSEWHERE = {
    ("00", "loaded tiles of 16 KiB"): "the measurement's own tile, tests/bench l2",
    ("07", "more than 48 KiB of dynamic shared memory"): "CUDA's default limit",
    ("07", "uses 1 KiB of shared memory for its counts"): "tma_dlpack.h, of the checked build",
}
#: Bytes of an element, a barrier, a bank, a chunk, a span, a map.
PLAIN_SIZES = {0, 2, 4, 8, 16, 32, 64, 128}


def prose(name):
    """Return the text of a chapter: Markdown without code, and the sentences of its questions."""
    parts = []
    for cell in test_notebooks.read(name).cells:
        if cell.cell_type == "markdown":
            parts.append(re.sub("```.*?```", "", cell.source, flags=re.DOTALL))
        elif re.search(r"^course\.ask\(", cell.source, re.MULTILINE):
            nodes = ast.walk(ast.parse(cell.source))
            values = [node.value for node in nodes if isinstance(node, ast.Constant)]
            parts += [value for value in values if isinstance(value, str) and " " in value]
    return re.sub(r"\s+", " ", "\n".join(parts))


def sentence(template, values):
    return template.format(*(int(value) for value in values))


def chapter(number):
    (name,) = (name for name in CHAPTERS if name.startswith(number))
    return name


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim[0]}: {claim[1]}")
def test_a_number_in_the_prose_is_the_one_of_the_package(claim):
    number, template, values = claim
    assert sentence(template, values) in prose(chapter(number))


@pytest.mark.parametrize("name", [name for name in CHAPTERS if name < "09"])
def test_every_size_in_the_prose_is_asked_of_the_package_or_has_its_source(name):
    text = prose(name)
    for number, template, values in CLAIMS:
        if name.startswith(number):
            text = text.replace(sentence(template, values), "")
    for number, words in ELSEWHERE:
        if name.startswith(number):
            assert words in text
            text = text.replace(words, "")
    sizes = re.findall(r"(?<![\w.])(\d[\d,]*) (?:bytes|KiB)\b", text)
    left = [size for size in sizes if int(size.replace(",", "")) not in PLAIN_SIZES]
    assert left + re.findall(r"\d+-way|0x[0-9a-fA-F]{3,}(?!\w)", text) == []


# --- Questions ------------------------------------------------------------------------------------


def legal(coords):
    try:
        tma.load_tile(EDGE, coords)
    except tma.TmaPreconditionError:
        return False
    return True


def differing_fields():
    x = halves(30, 104)
    maps = [made(array, (8, 64), swizzle="bytes128") for array in (x, x.copy())]
    return [value.field for value in draw.diff(*maps).values if value.differs]


def refused_parts():
    names = {"STRIDE_ALIGNED": "the row stride", "BOX_RANGE": "the box: 300"}
    report = tma.check_tma_descriptor(*REFUSED, swizzle="bytes128")
    return [names[violation.rule] for violation in report.violations]


def accepted_views():
    views = ("x.T", "x[:, ::2]", "x[::2]", "x[:, 4:]", "x[:, 2:]", "x[:, :3]")
    return [view for view in views if is_accepted(eval(view, {"x": Y}), (16, 4))]


def bank_of_column_16():
    chunks = tma.load_tile(PLAIN, (0, 0)).smem.view(np.float16).reshape(-1, 8)
    return [f"bank{n}" for n in {int(n) % 8 for n in np.flatnonzero(chunks[:, 0] % 64 == 16)}]


def pixel_of_row_10():
    images = np.arange(1, 2 * 7 * 9 * 8 + 1, dtype=np.float32).reshape(2, 7, 9, 8)
    tm = tma.make_im2col_descriptor(images, *CORNERS, 8, 32, swizzle="bytes32")
    tile = tma.load_tile(tm, (0, -1, -1, 0)).array
    return [f"row{n}" for n in range(32) if np.array_equal(tile[n], images[0, 0, 0])]


def edges_of_the_last_tap():
    (low, _), (high, _) = CORNERS
    rows, columns = range(low + 2, 7 + high + 2), range(low + 2, 9 + high + 2)
    outside = [n for n in rows if n not in range(7)], [n for n in columns if n not in range(9)]
    return ["row {} and column {}".format(*(n for part in outside for n in part))]


def thread_of_sum(row, column):
    sums = np.zeros((4, 16, 256), np.float32)
    sums[row // 16, row % 16, column] = 1
    ((_, lane),) = np.argwhere(registers_of(sums, "f32"))
    return [f"thread {lane}"]


def bits_that_differ():
    hopper = made(halves(256, 128), (128, 64), swizzle="bytes128", target="sm_90")
    both = TCGEN05.value ^ tma.matrix_descriptor(hopper).value
    return [f"bit {n}" for n in range(64) if both >> n & 1]


def bytes_of_four_rows():
    tokens = halves(64, 128)
    tm = made(tokens, (1, 64), swizzle="bytes128", target="sm_100")
    return tma.backend("simulator").gather4(tm, 64, (40, 3, 20, 64)).tx_bytes


def whole_tiles():
    trace = Trace.from_json((NOTEBOOKS / "09_trace.json").read_text(encoding="utf-8"))
    tiles = {"A": 128 * 64, "B": 64 * 256, "C": 128 * 256}
    maps = [m.tensor_map() for m in trace.maps if m.kernels]
    return [name for name, m in zip(tiles, maps, strict=True) if m.tx_bytes == 2 * tiles[name]]


def short_of_bytes():
    hung = tma.postmortem(NOTEBOOKS / "10_ring.core.xz")
    return [f"{barrier.address:#x}: full" for barrier in hung.barriers if barrier.bytes]


def faulty_coordinate():
    (fault,) = tma.postmortem(NOTEBOOKS / "10_copy.core.xz").faults
    (innermost,) = numbers(fault.message.split(",")[0])
    return [f"coordinate {innermost}"]


def message_of_a_host_map():
    with pytest.raises(tma.TmaUnsupportedError):
        made(floats(48, 96), (16, 32)).as_torch()
    return ["a Python exception"]


#: (chapter, part of the question) -> the right answers, from the package.
ANSWERS = {
    ("00", "How many copies cover x?"): lambda: [f"{len(tma.tile_coords(TM))} copies"],
    ("00", "A box of 8 x 16 float16"): lambda: [NARROW.tx_bytes],
    ("00", "Where is x[3, 16]?"): lambda: [swizzle_offset(tma.TmaSwizzle.bytes128, 3 * 128 + 32)],
    ("00", "What breaks the rule?"): lambda: [
        m.name for m in course.sixteen_bytes(RAGGED, box_sizes=(4, 20)).measures if not m.ok
    ],
    ("00", "How many columns of storage"): lambda: [
        next(n for n in range(33, 64) if is_accepted(np.zeros((4, n), np.float16)[:, :33], (4, 24)))
    ],
    ("01", "in which banks are they?"): bank_of_column_16,
    ("01", "How many wavefronts is a phase?"): lambda: [COLUMN.degree],
    ("01", "Which conflict without a swizzle?"): lambda: [f"{MINE.degree}-way"],
    ("01", "which field of the descriptor changes?"): lambda: [
        field.field for field in draw.compare(PLAIN, SWIZZLED).changed
    ],
    ("01", "Where does it go?"): lambda: [f"{MOVED:#x}"],
    ("02", "How many elements are out of bounds?"): lambda: [CORNER.filled.sum()],
    ("02", "In which field do their maps differ?"): differing_fields,
    ("02", "What will be refused?"): refused_parts,
    ("02", "Which are accepted?"): accepted_views,
    ("03", "how many bytes are counted?"): lambda: [EDGE_TILE.tx_bytes],
    ("03", "find a chunk that will be zeros"): lambda: [
        f"c{r}.{c}" for r in range(8) for c in range(0, 16, 4) if EDGE_TILE.filled[r, c]
    ],
    ("03", "find one that is legal"): lambda: [
        f"({r}, {c})" for r, c in ((0, 1), (1, 0), (-3, 6), (-1, -4), (5, 38)) if legal((r, c))
    ],
    ("03", "how many rows does the tile have?"): lambda: [
        len(tma.load_tile(made(floats(20, 40), (8, 16), elem_strides=(2, 1)), (4, 0)).array)
    ],
    ("03", "Which float outside is overwritten?"): overwritten,
    ("04", "announce at the edge?"): lambda: [made(floats(48, 96), (16, 32)).tx_bytes],
    ("04", "A CPU tensor is passed"): message_of_a_host_map,
    ("05", "what is the upper corner?"): lambda: [
        tma.im2col_corners((3, 3), padding=1, dilation=2)[1][0]
    ],
    ("05", "which becomes row 10"): pixel_of_row_10,
    ("05", "Which pixels are filled"): edges_of_the_last_tap,
    ("07", "What does the tile at row 11"): lambda: [
        f"rows {int(SLICE[0]) - 1}..{int(SLICE.max()) - 1}, zeros"
    ],
    ("08", "Which thread of the warpgroup"): lambda: thread_of_sum(17, 10),
    ("08", "which bits of wgmma's descriptor"): bits_that_differ,
    ("08", "What does the even barrier expect?"): lambda: [4 * TILE_OF_A.tx_bytes],
    ("08", "Four rows of a box (1, 64)"): lambda: [bytes_of_four_rows()],
    ("08", "How many are counted?"): lambda: [packed("16U4_ALIGN16B").tx_bytes],
    ("09", "Which operand's tile is one box?"): whole_tiles,
    ("10", "What is wrong with this copy?"): faulty_coordinate,
    ("10", "Which barrier has the mistake"): short_of_bytes,
}
#: Questions about order and hardware, whose answers no map has.
CONCEPTS = {
    ("ring", "One stage."),
    ("ring", "Two stages."),
    ("ring", "Where is tile 7"),
    ("ring", "keeps a load from writing"),
    ("00", "How does it wait for the sixth tile?"),
    ("04", "A kernel hangs in every run"),
    ("07", "C's map stores all. What happens?"),
    ("07", "Which of the five kernels goes on"),
    ("08", "How many such tiles of sums fit"),
    ("08", "Which line waits until the tile is multiplied?"),
}


def questions(name):
    """Return {question: right answers} of a chapter."""
    found = {}
    for cell in test_notebooks.read(name).cells:
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/html", "")
            for facts in re.findall('class="tma-ask" data-ask="([^"]*)"', text):
                title = html.unescape(re.search("Predict, and click: (.*?)</div>", text)[1])
                found[title] = json.loads(html.unescape(facts))["right"]
    return found


@pytest.mark.parametrize("key", ANSWERS, ids=": ".join)
def test_the_right_answer_is_the_one_of_the_package(key):
    number, part = key
    (right,) = (r for title, r in questions(chapter(number)).items() if part in title)
    assert right == [str(answer) for answer in ANSWERS[key]()]


def test_every_question_is_asked_of_the_package_or_is_about_order_or_hardware():
    for name in CHAPTERS:
        for title in questions(name):
            keys = [k for k in {*ANSWERS, *CONCEPTS} if name.startswith(k[0]) and k[1] in title]
            assert len(keys) == 1, title


def test_the_accumulators_layout_is_the_one_of_the_simulator():
    (cell,) = (c for c in test_notebooks.read("08_blackwell").cells if "def holder" in c.source)
    names = {"course": course}
    exec(cell.source, names)
    sums = np.arange(64 * 256, dtype=np.float32).reshape(4, 16, 256)
    registers = registers_of(sums, "f32").view(np.float32)
    for row, column in np.ndindex(64, 256):
        thread, register = names["holder"](row, column)
        assert registers[register, thread] == 256 * row + column
