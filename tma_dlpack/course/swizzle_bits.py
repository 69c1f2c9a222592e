"""The picture of a swizzle: the address bits that it XORs, and the places of 64 chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from textwrap import wrap

from tma_dlpack.course.core import (
    CHUNK_BYTES,
    CHUNKS,
    ROWS_READ,
    SMEM_ALIGNMENT,
    SWIZZLES,
    TEXT_COLUMNS,
    Cell,
    Figure,
    Grid,
    Scene,
    TensorMap,
    Tile,
    TmaSwizzle,
    bad_value,
    integer_of,
    label,
    lay_out,
    opaque,
    played,
    svg_panel,
    swizzle_offset,
    text_of,
    words,
)

BITS, LINES = 10, 8  # numbers of drawn address bits, and of drawn lines of 128 bytes
COUNT = CHUNKS * LINES
PATTERN = COUNT * CHUNK_BYTES  # every swizzle repeats after this many bytes
BIT, NARROW_BIT, CHUNK, NARROW_CHUNK = (46, 28), (18, 28), (40, 23), (26, 23)  # px
FOLD, LEVEL = 20, 11  # px: from the bits to the line of the first XOR, and from line to line
# (column, line) where the picture of the chunks after the swizzle begins.
AFTER, NARROW_AFTER = (10, 0), (0, LINES + 2.5)
#: Groups of address bits: (highest bit, number of bits, label in the wide picture, label in the
#: narrow picture).
GROUPS = (
    (9, 3, "line of 128 bytes", "line"),
    (6, 3, "chunk: 4 banks", "chunk"),
    (3, 4, "byte in the chunk", "byte"),
)
LEGEND = [
    (Cell(0, 0, "shifted"), "the chunk above"),
    (Cell(0, 0, "box"), "its column: 8 rows of the tile"),
]


@dataclass(frozen=True, slots=True, repr=False)
class SwizzleBits(Figure):
    """A 16-byte chunk and its swizzled address, among the 64 chunks of 1024 bytes.

    Attributes
    ----------
    swizzle : TmaSwizzle
    chunk : int
        Index of the chunk, 0..63, counted from the start of the tile.
    smem_offset : int
        Start of the tile in shared memory, in bytes.
    """

    title: str
    swizzle: TmaSwizzle
    chunk: int
    smem_offset: int

    @property
    def folds(self) -> tuple[tuple[int, int], ...]:
        """The pairs (source, target) of address bits; the pair with the highest bits is first.

        The swizzle XORs the source bit onto the target bit.
        """
        # A term (r, m, left) means: address ^= (address >> r & m) << left.
        terms = SWIZZLES[self.swizzle].terms
        pairs = [(r + k, left + k) for r, m, left in terms for k in range(m.bit_length())]
        return tuple(sorted(pairs, reverse=True))

    @property
    def formula(self) -> str:
        """The swizzled address as a C expression of the address `a`."""
        terms = (f" ^ ((a >> {r} & {m}) << {n})" for r, m, n in SWIZZLES[self.swizzle].terms)
        return f"a{''.join(terms)}"

    def address(self, chunk: int) -> int:
        """Return the address of a chunk before the swizzle."""
        return self.smem_offset + CHUNK_BYTES * chunk

    def swizzled(self, chunk: int) -> int:
        """Return the address of the chunk's first byte after the swizzle."""
        return swizzle_offset(self.swizzle, self.address(chunk))

    def place(self, chunk: int) -> int:
        """Return the index of the chunk that would be at `swizzled(chunk)` without a swizzle."""
        return (self.swizzled(chunk) - self.smem_offset) // CHUNK_BYTES

    def column(self, chunk: int) -> tuple[int, ...]:
        """Return the 8 chunks that `ldmatrix` reads at once; `chunk` is one of these chunks.

        The 8 chunks are in 8 rows of the tile, one below the other. A row of the tile is as long as
        the swizzle's span, or 128 bytes without a swizzle.
        """
        # `step`: number of chunks per row of the tile.
        step = SWIZZLES[self.swizzle].span_bytes // CHUNK_BYTES if self.folds else CHUNKS
        first = chunk - chunk % (ROWS_READ * step) + chunk % step
        return tuple(range(first, first + ROWS_READ * step, step))

    def ways(self, chunk: int, swizzled: bool = True) -> int:
        """Return the bank conflict degree of a read of `column(chunk)`; 1 means no conflict."""
        places = map(self.place, self.column(chunk)) if swizzled else self.column(chunk)
        return max(Counter(place % CHUNKS for place in places).values())

    @property
    def misplaced_chunks(self) -> int:
        """Number of chunks that a kernel looks for at a wrong place if it swizzles tile offsets.

        The hardware swizzles the shared-memory address, not the offset from the tile's start.
        """
        starts = (self.swizzled(n) - self.smem_offset for n in range(COUNT))
        return sum(a != swizzle_offset(self.swizzle, CHUNK_BYTES * n) for n, a in enumerate(starts))

    def facts(self) -> tuple[str, str]:
        """Return a sentence on bank conflicts, and a sentence on the effect of the tile's start."""
        ways = (self.ways(self.chunk, swizzled) for swizzled in (False, True))
        before, after = (f"{n}-way bank conflict" if n > 1 else "no bank conflict" for n in ways)
        conflicts = (
            f"8 rows of one column, as ldmatrix reads them at once: {before} before the swizzle, "
            f"{after} after it"
        )
        start = f"the tile starts at {self.smem_offset:#06x}"
        if not self.misplaced_chunks:
            return conflicts, f"✓ {start}, and so does the pattern: a kernel may count from there"
        return conflicts, (
            f"✗ {start}: a kernel that counts from there looks for {self.misplaced_chunks} of "
            f"{COUNT} chunks in the wrong place"
        )

    @property
    def sentence(self) -> str:
        """The caption, which is the same for every swizzle: the chunks that are read at once."""
        return (
            "[One chunk](is-shifted) and [the others of its column](is-box) are read at once: the "
            "fewer of them the swizzle leaves one below the other, the faster."
        )

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel: the bits, and below them the chunks before and after the swizzle."""
        return (self._scene(with_facts=True),)

    def narrow_scenes(self) -> tuple[Scene, ...]:
        """Return the panel for a phone, with the chunks after the swizzle at the bottom."""
        return (self._scene(with_facts=True, is_narrow=True),)

    def _scene(self, *, with_facts: bool, is_narrow: bool = False) -> Scene:
        bits = Grid(tuple(self._bits(is_narrow=is_narrow)))
        after = NARROW_AFTER if is_narrow else AFTER
        chunks = [
            *self._chunks(0, 0, "before", False, is_narrow=is_narrow),
            *self._chunks(after[0], after[1], "after", True, is_narrow=is_narrow),
        ]
        about = f"{self.title}: the bits of an address, and {COUNT} chunks before and after"
        heading = f"{self.formula}, where a is the address of a byte in shared memory"
        notes = self.facts() if with_facts else ()
        grids = [bits, Grid(tuple(chunks), NARROW_CHUNK if is_narrow else CHUNK)]
        return lay_out(about, grids, heading, (), notes, LEGEND, is_narrow=is_narrow)

    def _bits(self, *, is_narrow: bool = False) -> list[Cell]:
        (w, h), folds = NARROW_BIT if is_narrow else BIT, self.folds
        # The two bits of a pair in `folds` have the same tint, which depends on the source bit.
        onto = {to for _, to in folds}
        tints = {bit: f"tint{2 * (BITS - 1 - fold[0])}" for fold in folds for bit in fold}
        # `bottom`: y of the swizzled bits. Above them are one line per pair, and the arrow heads.
        bottom = 16 + h + FOLD + LEVEL * len(folds) + 14
        ends = (
            ("in", 16, self.address(self.chunk)),
            ("out", bottom, self.swizzled(self.chunk)),
        )
        cells = [label(0, 16, "address", "label", h), label(0, bottom, "swizzled", "label", h)]
        for high, count, *names in GROUPS:
            x = w * (BITS - 1 - high)
            group = names[is_narrow]
            cells.append(Cell(x, bottom + h + 3, "muted", group, columns=w * count, rows=14))
        # For each pair, draw a line down from the source bit, then a horizontal line at the pair's
        # own height, then an arrow down to the target bit.
        for n, (source, to) in enumerate(folds):
            left, right = (w * (BITS - 0.5 - bit) for bit in (source, to))
            y = 16 + h + FOLD + LEVEL * n
            cells.append(Cell(left, 16 + h, "axis", columns=0, rows=y - 16 - h))
            cells.append(Cell(left, y, "axis", columns=right - left, rows=0))
            cells.append(Cell(right, y, "arrow", columns=0, rows=bottom - y))
        for bit in range(BITS):
            x, title = w * (BITS - 1 - bit), f"bit {bit} of the address"
            cells.append(Cell(x, 0, "muted", f"{bit}", columns=w, rows=14))
            for name, y, address in ends:
                # play.js finds these cells by keys such as in9 and out9, and changes their texts.
                style = tints.get(bit, "cell") if name == "in" or bit in onto else "cell"
                value, key = f"{address >> bit & 1}", f"{name}{bit}"
                cells.append(Cell(x, y, style, value, title, w, h, key=key))
            if bit in onto and not is_narrow:
                cells.append(words(x + w / 2 + 5, bottom - 15, "XOR", "strong", 12))
        if is_narrow and folds:
            # The narrow picture has a single "XOR", at the right of all arrows.
            cells.append(words(w * (BITS - min(onto)) + 5, bottom - 15, "XOR", "strong", 12))
        x = w * BITS + (2 if is_narrow else 14)
        for name, y, address in ends:
            text, key = f"{address:#06x}", f"{name}hex"
            cells.append(Cell(x, y, "plain", text, "", 40, h, key=key))
            if not is_narrow:
                text, key = f"banks {_banks(address)}", f"{name}banks"
                cells.append(Cell(w * BITS + 80, y, "plain", text, "", 100, h, key=key))
        return cells

    def _chunks(
        self, x: float, y: float, name: str, swizzled: bool, *, is_narrow: bool = False
    ) -> list[Cell]:
        places = [divmod(self.place(n) if swizzled else n, CHUNKS) for n in range(COUNT)]
        cells = [words(x, y - 1.9, name, "strong", 0.7)]
        cells.append(Cell(x, y, "plain", columns=CHUNKS, rows=LINES, key=name))
        for k in range(CHUNKS):
            four = f"{4 * k}" if is_narrow else f"{4 * k}..{4 * k + 3}"
            cells.append(Cell(x + k, y - 0.9, "muted", four, rows=0.8))
        cells.append(label(x, y - 0.9, "bank", rows=0.8))
        wide = 1.6 if is_narrow else 1.4
        for line in range(LINES):
            start, key = f"{self.address(CHUNKS * line):#06x}", f"line{line}"
            cells.append(Cell(x - wide - 0.1, y + line, "plain", start, "", wide, key=key))
        for n, (row, column) in enumerate(places):
            cells.append(Cell(x + column, y + row, f"tint{n % CHUNKS}", f"{n}", key=f"c{n}"))
        # The chosen chunk is drawn last, so that its frame is on top.
        others = [n for n in self.column(self.chunk) if n != self.chunk]
        for n in (*others, self.chunk):
            row, column = places[n]
            style = "shifted" if n == self.chunk else "box"
            cells.append(Cell(x + column, y + row, style, key=f"framed-{name}"))
        return cells

    def panels(self) -> str:
        """Return the picture as HTML; with scripts, it has switches and clickable chunks."""
        # Compute the picture for every start of the tile within PATTERN bytes, after which the
        # swizzle repeats.
        offsets = range(self.smem_offset % SMEM_ALIGNMENT, PATTERN, SMEM_ALIGNMENT)
        choices = []
        for swizzle in SWIZZLES:
            figures = [_figure(swizzle, self.chunk, offset) for offset in offsets]
            figure = figures[self.smem_offset % PATTERN // SMEM_ALIGNMENT]
            choices.append(
                {
                    "name": swizzle.name,
                    "title": figure.title,
                    "svg": svg_panel(figure._scene(with_facts=False)),
                    "narrow": svg_panel(figure._scene(with_facts=False, is_narrow=True)),
                    "column": [figure.column(n) for n in range(COUNT)],
                    "swizzled": [[f.swizzled(n) for n in range(COUNT)] for f in figures],
                    "facts": [f.facts() for f in figures],
                }
            )
        data = {"now": list(SWIZZLES).index(self.swizzle), "choices": choices}
        data |= {"chunk": self.chunk, "offset": self.smem_offset % PATTERN}
        data |= {"banks": [_banks(CHUNK_BYTES * n) for n in range(CHUNKS)]}
        return played(self, "bits", data)

    def text(self) -> str:
        """Return the formula, the bits, the facts, and the chunks before and after the swizzle."""
        bits = [f"{f(self.chunk) % (1 << BITS):0{BITS}b}" for f in (self.address, self.swizzled)]
        folds = ", ".join(f"{source} onto {to}" for source, to in self.folds) or "none"
        lines = [self.title, f"{self.formula}; bits folded: {folds}"]
        lines += [f"address  {bits[0]}  (bits 9 to 0)", f"swizzled {bits[1]}", *self.facts()]
        at = {self.place(n): n for n in range(COUNT)}
        for line in range(0, COUNT, CHUNKS):
            before = "".join(f"{n:3}" for n in range(line, line + CHUNKS))
            after = "".join(f"{at[n]:3}" for n in range(line, line + CHUNKS))
            lines.append(f"{self.address(line):#06x} {before}   ->{after}")
        return "\n".join(row for line in lines for row in wrap(line, TEXT_COLUMNS))


def _banks(address: int) -> str:
    first = address // CHUNK_BYTES % CHUNKS * 4
    return f"{first}..{first + 3}"


# --- The function ---------------------------------------------------------------------------------


@opaque
def swizzle_bits(
    tensor_map: TensorMap | Tile | TmaSwizzle | str = "bytes128",
    chunk: int = 9,
    *,
    smem_offset: int = 0,
) -> SwizzleBits:
    """Show how a swizzle XORs bits of a chunk's shared-memory address onto other bits.

    Below the bits, the picture shows the 64 chunks of 1024 bytes before and after the swizzle. In a
    notebook, a click selects a chunk, switches select the swizzle, and a slider moves the start of
    the tile.

    Parameters
    ----------
    tensor_map : TensorMap, Tile, TmaSwizzle or str
        A swizzle, the name of a swizzle, or a map or tile whose swizzle is shown.
    chunk : int
        Index of the 16-byte chunk before the swizzle, 0..63, counted from the start of the tile.
    smem_offset : int
        Start of the tile in shared memory, in bytes; a multiple of 128. The hardware swizzles the
        shared-memory address, not the offset into the tile.

    Returns
    -------
    SwizzleBits

    Raises
    ------
    TmaPreconditionError
        If the swizzle is unknown, `chunk` is not in 0..63, or `smem_offset` is negative or no
        multiple of 128.

    Examples
    --------
    >>> figure = swizzle_bits("bytes128", chunk=9)
    >>> figure.folds, figure.place(9)
    (((9, 6), (8, 5), (7, 4)), 8)
    >>> figure.ways(9, swizzled=False), figure.ways(9)
    (8, 1)
    >>> swizzle_bits("bytes128", smem_offset=128).misplaced_chunks
    64

    Notes
    -----
    Source: the bits are measured (H200, driver 580.159.04). PTX ISA documents the swizzle atoms.
    """
    if isinstance(tensor_map, (TensorMap, Tile)):
        tile_map = tensor_map.tensor_map if isinstance(tensor_map, Tile) else tensor_map
        tensor_map = tile_map.swizzle
    # An int is not a swizzle, even if it equals a member. type() calls no method of the value.
    names = {member.name: member for member in SWIZZLES}
    swizzle = tensor_map if type(tensor_map) is TmaSwizzle else names.get(text_of(tensor_map) or "")
    if swizzle is None:
        must = f"be a map or one of {', '.join(names)}"
        raise bad_value("tensor_map", tensor_map, must, "pass 'bytes128'")
    if integer_of(chunk) is None or not 0 <= chunk < COUNT:
        raise bad_value("chunk", chunk, f"be an integer in 0..{COUNT - 1}", "pass chunk=9")
    if integer_of(smem_offset) is None or smem_offset < 0 or smem_offset % SMEM_ALIGNMENT:
        must = "be a multiple of 128, not negative"
        raise bad_value("smem_offset", smem_offset, must, "pass smem_offset=0")
    return _figure(swizzle, int(chunk), int(smem_offset))


def _figure(swizzle: TmaSwizzle, chunk: int, smem_offset: int) -> SwizzleBits:
    return SwizzleBits(f"the swizzle {swizzle.name} as bits", swizzle, chunk, smem_offset)
