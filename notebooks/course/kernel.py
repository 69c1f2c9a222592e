"""Play a small kernel as a block of threads, an engine and a barrier, and say what its user sees.

It reads the part of CUDA C++ that the exercise needs: declarations, `if`, `for`, `while`,
expressions, and the helpers of ``tma_dlpack.h``. Every thread is a generator that yields where it
waits. The engine is as slow as it may be: a load writes when all threads wait, piece by piece, and
a store reads the tile as late as its kernel allows. What is right here is right on a GPU; what is
wrong here is wrong on a GPU at least now and then.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from tma_dlpack.draw.barrier_model import Barrier, BarrierError

THREADS = 128
BOX = 16, 32  # of both maps, float32
ROW_BYTES = BOX[1] * 4
SHAPE = 40, 80  # rows and columns: the last tiles are partly out of bounds
GRID = 3, 3
BLOCKING = ("__syncthreads", "wait", "store_wait_read", "wait_read", "wait_all")
TYPES = r"(?:unsigned|int|float|auto|bool|size_t|uint32_t|int32_t|long|char)"
WORD = r"[A-Za-z_]\w*"


class Seen(Exception):  # noqa: N818  (what the user sees; not always an error)
    """What ends a kernel before its result can be looked at."""


# -- reading --------------------------------------------------------------------------------------


def read(source: str) -> tuple[dict[str, bool], Callable[..., Iterator[Any]]]:
    """Return whether each map is a grid constant, and the program of one thread."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL).replace("tma_dlpack::", "")
    head = re.search(r"__global__\s+(?:__\w+__\s*\(\d+\)\s*)?void\s+\w+\s*\(([^)]*)\)\s*\{", text)
    if head is None:
        raise Seen("it does not compile; begin with __global__ void triple_tiles(...)")
    maps: dict[str, bool] = {}
    for parameter in head[1].split(","):
        words = re.findall(r"[\w&*]+", parameter)
        if not {"CUtensorMap", "Map"} & set(words) or any(w in "&*" for w in words):
            raise Seen("it does not compile; keep the two maps as its parameters, by value")
        maps[words[-1]] = {"const", "__grid_constant__"} <= set(words)
    rest = Text(text[head.end() - 1 :])
    body = statement(rest)
    lines = ["def thread():", *textwrap.indent(body, "    ").splitlines(), "    yield 'end'"]
    try:
        code = compile("\n".join(lines), "<kernel>", "exec")
    except SyntaxError as error:
        raise Seen(f"it does not compile: {(error.text or '').strip()}") from None

    def program(**names: Any) -> Iterator[Any]:
        exec(code, names)
        thread: Iterator[Any] = names["thread"]()
        return thread

    return maps, program


class Text:
    """What is left to read."""

    def __init__(self, text: str) -> None:
        self.left = text.strip()

    def take(self, pattern: str) -> re.Match[str] | None:
        """Take what matches at the start, or nothing."""
        found = re.match(pattern, self.left, re.DOTALL)
        if found:
            self.left = self.left[found.end() :].strip()
        return found

    def within(self) -> str:
        """Take a parenthesis, and return what is in it."""
        depth = 0
        for at, character in enumerate(self.left):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if not depth:
                inside, self.left = self.left[1:at], self.left[at + 1 :].strip()
                return inside
        raise Seen("it does not compile: a parenthesis is not closed")


def statement(text: Text) -> str:
    """Translate one statement to Python."""
    if text.take(r"\{"):
        inside = []
        while not text.take(r"\}"):
            if not text.left:
                raise Seen("it does not compile: a brace is not closed")
            inside.append(statement(text))
        return "\n".join(inside) or "pass"
    if found := text.take(r"(if|while)\b\s*(?=\()"):
        written = f"{found[1]} {expression(text.within())}:\n{indented(text)}"
        return written + (f"\nelse:\n{indented(text)}" if text.take(r"else\b") else "")
    if text.take(r"for\b\s*(?=\()"):
        first, condition, step = text.within().split(";")
        body = f"while {expression(condition) or 'True'}:\n{indented(text)}"
        return "\n".join([simple(first), body, textwrap.indent(simple(step), "    ")])
    found = text.take(r"([^;{}]*);")
    if found is None:
        raise Seen(f"it does not compile: {text.left[:40]}")
    return simple(found[1])


def indented(text: Text) -> str:
    """Translate the statement of an `if` or a loop."""
    return textwrap.indent(statement(text), "    ")


def simple(written: str) -> str:
    """Translate a declaration, an assignment or a call."""
    written = " ".join(written.split())
    if found := re.fullmatch(rf"__shared__ (.*?)({WORD})(?:\[(.*)\])?", written):
        kind, name, count = found.groups()
        return (
            f"{name} = {name!r}"
            if "Barrier" in kind
            else f"{name} = shared({kind!r}, {expression(count or '1')})"
        )
    if found := re.fullmatch(rf"(?:(?:const|constexpr) )*(?:{TYPES} )+(?:const )?(.*)", written):
        parts = re.split(r",(?![^(\[]*[)\]])", found[1])
        return "\n".join(simple(part) for part in parts if "=" in part) or "pass"
    if found := re.fullmatch(rf"(?:\+\+|--)?({WORD})(?:\+\+|--)?", written):
        return f"{found[1]} {'+' if '++' in written else '-'}= 1"
    if written == "return":
        return "yield 'end'\nreturn"
    called = expression(written)
    blocking = re.match(rf"({'|'.join(BLOCKING)})\(", called)
    return f"yield from {called}" if blocking else called or "pass"


def expression(written: str) -> str:
    """Translate an expression."""
    pairs = {
        rf"sizeof *\(({WORD})\)": r"sizeof('\1', locals())",
        rf"sizeof ({WORD})": r"sizeof('\1', locals())",
        rf"\((?:const )?{TYPES}\)": "",
        rf"static_cast<{TYPES}>": "",
        r"(?<![&\w])&(?=[A-Za-z_])": "",
        "&&": " and ",
        r"\|\|": " or ",
        "!(?!=)": " not ",
        r"\b(\d+\.\d*|\d+)[uUlLfF]+\b": r"\1",
        r"(?<!/)/(?!/)": "//",
        r"\btrue\b": "True",
        r"\bfalse\b": "False",
    }
    for pattern, words in pairs.items():
        written = re.sub(pattern, words, written)
    found = re.fullmatch(r"([^?]*)\?([^:]*):(.*)", written)
    written = f"({found[2]}) if ({found[1]}) else ({found[3]})" if found else written
    return written.strip()


# -- playing --------------------------------------------------------------------------------------


class Tile:
    """A shared array of floats: what threads see, and what the engine sees of it."""

    def __init__(self, count: int, is_aligned: bool) -> None:
        self.seen, self.of_engine = np.zeros(count), np.zeros(count)
        self.is_aligned, self.writers = is_aligned, dict[int, int]()
        self.reader = -1

    def __getitem__(self, at: int) -> float:
        return float(self.seen[at])

    def __setitem__(self, at: int, value: float) -> None:
        self.seen[at] = value
        self.writers[at] = self.reader


class Block:
    """One block of the kernel."""

    def __init__(self, maps: dict[str, bool], x: np.ndarray, out: np.ndarray) -> None:
        self.maps, self.x, self.out = maps, x, out
        self.barriers: dict[str, Barrier] = {}
        self.known: dict[str, set[int]] = {}  # barrier -> threads that may use it
        self.tiles: dict[str, Tile] = {}
        self.loads: list[Iterator[None]] = []
        self.stores: list[Callable[[], None]] = []
        self.committed = self.thread = 0
        self.late = False  # loads are in flight since an earlier __syncthreads

    def shared(self, kind: str, count: int) -> Tile:
        """Declare an array."""
        aligned = re.search(r"alignas ?\((\d+)\)", kind)
        made = Tile(count, bool(aligned and int(aligned[1]) % 128 == 0))
        self.tiles.setdefault("tile", made)
        return self.tiles["tile"]

    def sizeof(self, name: str, names: dict[str, Any]) -> int:
        """Return the bytes of a type or an array."""
        sizes = {"float": 4, "int": 4, "unsigned": 4, "uint32_t": 4, "char": 1}
        return sizes[name] if name in sizes else 4 * len(names[name].seen)

    def init(self, barrier: str, arrivals: int = 1) -> None:
        """Initialise a barrier; other threads may use it after __syncthreads."""
        if barrier in self.barriers:
            raise Seen("error 719 or a hang, now and then: the barrier is initialised twice")
        self.barriers[barrier] = Barrier.init(arrivals)
        self.known[barrier] = {self.thread}

    def use(self, barrier: str) -> Barrier:
        """Return a barrier that this thread may use."""
        if self.thread not in self.known.get(barrier, ()):
            raise Seen(
                "error 719 or a hang, now and then: a thread uses the barrier before its init"
            )
        return self.barriers[barrier]

    def arrive_expect_tx(self, barrier: str, size: int) -> None:
        """Announce bytes, and arrive."""
        self.barriers[barrier] = self.use(barrier).arrive(size)

    expect_tx = arrive_expect_tx  # its name until 0.3

    def arrive(self, barrier: str) -> None:
        """Arrive."""
        self.arrive_expect_tx(barrier, 0)

    def place(self, tile: Tile, name: str, column: int, row: int) -> None:
        """Refuse what ends a copy."""
        if not self.maps[name]:
            raise Seen("error 700, an illegal memory access was encountered")
        if not tile.is_aligned:
            raise Seen("error 716, a misaligned address")
        if column % 4:
            raise Seen("error 715, an illegal instruction was encountered")

    def load(self, tile: Tile, name: str, barrier: str, column: int, row: int) -> None:
        """Issue a load: its rows arrive later, one by one."""
        self.place(tile, name, column, row)
        self.use(barrier)

        def rows() -> Iterator[None]:
            for n in range(BOX[0]):
                found = np.zeros(BOX[1])
                if row + n < SHAPE[0]:
                    inside = self.x[row + n, column : column + BOX[1]]
                    found[: len(inside)] = inside
                at = slice(n * BOX[1], (n + 1) * BOX[1])
                tile.seen[at] = tile.of_engine[at] = found
                self.barriers[barrier] = self.barriers[barrier].complete_tx(ROW_BYTES)
                yield

        self.loads.append(rows())

    def store(self, name: str, tile: Tile, column: int, row: int) -> None:
        """Issue a store: it reads the tile later."""
        self.place(tile, name, column, row)

        def read() -> None:
            whole = tile.of_engine.reshape(BOX)
            to = self.out[row : row + BOX[0], column : column + BOX[1]]
            to[:] = whole[: to.shape[0], : to.shape[1]]

        self.stores.append(read)

    def commit(self) -> None:
        """Close the group of stores."""
        self.committed = len(self.stores)

    def fence_async(self) -> None:
        """Show the engine what this thread has written."""
        for tile in self.tiles.values():
            for at, thread in tile.writers.items():
                if thread == self.thread:
                    tile.of_engine[at] = tile.seen[at]

    def wait(self, barrier: str, parity: int) -> Iterator[Any]:
        """Wait for the end of a phase."""
        self.use(barrier)
        yield lambda: self.barriers[barrier].passes(parity & 1)

    def wait_read(self, groups: int = 0) -> Iterator[Any]:
        """Wait until the committed stores have read the tile."""
        for read in self.stores[: self.committed]:
            read()
        self.stores, self.committed = self.stores[self.committed :], 0
        yield lambda: True

    store_commit, store_wait_read, wait_all = commit, wait_read, wait_read

    def sync(self) -> Iterator[Any]:
        """Wait for all threads."""
        yield "sync"

    def run(self, program: Callable[..., Iterator[Any]], block: tuple[int, int]) -> None:
        """Run all threads to their end."""
        names = {name: getattr(self, name) for name in HELPERS}
        names |= {"__syncthreads": self.sync, **{name: name for name in self.maps}}
        names["blockIdx"] = SimpleNamespace(x=block[0], y=block[1], z=0)
        names["blockDim"] = SimpleNamespace(x=THREADS, y=1, z=1)
        threads = []
        for n in range(THREADS):  # each has names of its own
            threads.append(program(**names, threadIdx=SimpleNamespace(x=n, y=0, z=0)))
        waits: list[Any] = [lambda: True] * THREADS
        while True:
            if all(wait == "end" for wait in waits):
                break
            ready = [n for n, wait in enumerate(waits) if callable(wait) and wait()]
            if not ready and all(wait in ("sync", "end") for wait in waits):
                while self.late and self.progress():
                    pass  # what was issued before the last __syncthreads is there by this one
                self.late = bool(self.loads)
                ready = [n for n, wait in enumerate(waits) if wait == "sync"]
                for known in self.known.values():
                    known |= set(range(THREADS))
            if not ready and self.progress():
                continue
            if not ready:
                raise Seen(self.hang())
            for n in ready:
                self.thread = n
                for tile in self.tiles.values():
                    tile.reader = n
                waits[n] = next(threads[n], "end")
        if self.loads and any(True for load in self.loads for _ in load):
            raise Seen("no error; the block ends while its load is in flight: nothing is right")
        if self.stores:
            raise Seen("no error; the block may end while the store still reads the tile")

    def progress(self) -> bool:
        """Let the engine write one more row."""
        while self.loads:
            if next(self.loads[0], "done") is None:
                return True
            self.loads.pop(0)
        return False

    def hang(self) -> str:
        """Say what is seen of a block in which every thread waits."""
        for state in self.barriers.values():
            if state.tx_bytes > 0:
                return f"it hangs: {state.tx_bytes} bytes that were announced never come"
            if state.tx_bytes < 0:
                return f"it hangs: {-state.tx_bytes} bytes more than announced have arrived"
        return "it hangs, although all bytes have arrived"


HELPERS = ("shared", "sizeof", "init", "expect_tx", "arrive_expect_tx", "arrive", "load", "store")
HELPERS += ("store_commit", "store_wait_read", "fence_async", "wait", "wait_all")
HELPERS += ("commit", "wait_read")  # their names before 0.4


def judged(source: str, factor: int = 3) -> str:
    """Return what the user of a kernel sees that multiplies a matrix tile by tile."""
    x = np.arange(1.0, SHAPE[0] * SHAPE[1] + 1).reshape(SHAPE)
    out = np.zeros(SHAPE)
    try:
        maps, program = read(source)
        for block in np.ndindex(GRID):
            Block(maps, x, out).run(program, block)
    except Seen as seen:
        return f"not yet: {seen}"
    except BarrierError as error:
        return f"not yet: error 719, unspecified launch failure ({error})"
    except (NameError, TypeError, KeyError, AttributeError, IndexError, ValueError) as error:
        return f"not yet: it does not compile, or leaves its arrays: {error}"
    right = out == factor * x
    if right.all():
        return "solved: every element is tripled"
    return f"not yet: {wrong(right, out, x)}"


def wrong(right: np.ndarray, out: np.ndarray, x: np.ndarray) -> str:
    """Say which elements of a result are wrong."""
    rows, columns = BOX
    places = [(rows * a, columns * b) for a, b in np.ndindex(GRID)]
    whole = {(a, b) for a, b in places if right[a : a + rows, b : b + columns].all()}
    if whole and whole == {(a, b) for a, b in places if a == b}:
        return "no error; only tiles whose row is their column are right"
    if (out == x).all():
        return "no error; now and then a tile has values that are not tripled"
    lines = right[:rows, :columns].all(axis=1)
    if lines.any() and not lines[-1]:
        return "no error; in some tiles the last rows are not tripled"
    return f"no error; {(~right).sum()} of {right.size} elements are wrong"
