"""The ways to copy a tile: boxes and swizzles that a reader can read, and their measured speed.

A tile is cut into equal boxes, the fewest possible for each swizzle. Whether a box is accepted
decides `make_tma_descriptor`, and whether it can be read decide `matrix_descriptor`,
`ldmatrix_addresses` and `bank_conflicts`: nothing is judged here.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.consumer import MatrixDescriptor, ldmatrix_addresses, matrix_descriptor
from tma_dlpack.consumer.operand import tile_matrix
from tma_dlpack.dlpack import TensorView
from tma_dlpack.draw import bank_conflicts
from tma_dlpack.draw.reads import WARP, element_of
from tma_dlpack.make import build
from tma_dlpack.make.tiled import make_tma_descriptor
from tma_dlpack.tables.coerce import counted, integers_of, shown, text_of
from tma_dlpack.tables.enums import TmaL2FetchSize, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, Violation, refusal, unfit
from tma_dlpack.tables.limits import INNER_BYTES, MAX_BOX, SWIZZLE_SPAN_BYTES
from tma_dlpack.tensor_map.map import TensorMap

MEASURED_ON = "H200, driver 580.159.04, 2026-11-22"
#: Share of a memcpy's speed, by bytes of a line of the box: without L2 promotion, with 128 and with
#: 256 bytes. All lines begin at multiples of 32 bytes, which memory moves at a time, or of 16 only;
#: side by side in one copy (split_inner) or not. Medians over 115 random tensors of 256 MiB, every
#: tile loaded and stored, each with its best pipeline: tests/gpu/test_suggest_on_gpu.py.
Shares = dict[int, tuple[float, float, float]]
MEASURED: dict[tuple[int, bool], Shares] = {
    (32, False): {
        16: (0.44, 0.44, 0.43),
        32: (0.75, 0.78, 0.75),
        48: (0.69, 0.70, 0.69),
        64: (0.87, 0.91, 0.915),
        96: (0.84, 0.88, 0.88),
        128: (0.90, 0.90, 0.92),
        192: (0.90, 0.90, 0.90),
        256: (0.95, 0.96, 0.95),
    },
    (32, True): {
        16: (0.42, 0.42, 0.42),
        32: (0.75, 0.78, 0.75),
        64: (0.915, 0.93, 0.935),
        128: (0.91, 0.91, 0.92),
    },
    (16, False): {
        16: (0.40, 0.40, 0.40),
        32: (0.56, 0.60, 0.58),
        48: (0.50, 0.54, 0.54),
        64: (0.65, 0.70, 0.71),
        96: (0.73, 0.76, 0.79),
        128: (0.77, 0.80, 0.83),
        256: (0.76, 0.78, 0.80),
        512: (0.86, 0.86, 0.86),
    },
    (16, True): {
        16: (0.40, 0.41, 0.40),
        32: (0.57, 0.59, 0.57),
        64: (0.73, 0.76, 0.76),
        128: (0.77, 0.79, 0.80),
    },
}
#: The same in boxes of few lines, where it differs.
FEW_LINES = 16
MEASURED_FEW: dict[tuple[int, bool], Shares] = {(32, True): {128: (0.89, 0.89, 0.89)}}
#: What is nearly as fast as the fastest counts as fast: it is within the noise of a measurement.
AS_FAST = 0.97
#: A copy takes as long as this many bytes more; and it takes a thread as long as `ISSUE_BYTES` to
#: issue it.
COPY_BYTES = 32
ISSUE_BYTES = 560
_L2 = (TmaL2FetchSize.none, TmaL2FetchSize.bytes128, TmaL2FetchSize.bytes256)
_SWIZZLES = (
    TmaSwizzle.bytes128,
    TmaSwizzle.bytes128_atom_32B,
    TmaSwizzle.bytes64,
    TmaSwizzle.bytes32,
    TmaSwizzle.none,
)
#: A choice is left out if another has fewer bank conflicts and at least so much of its speed.
WORTH_FEWER_CONFLICTS = 0.85

#: Index of the element of the tile that a thread reads; None for an idle thread.
Place = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arguments of `suggest`, read; `access` is a pattern, or the place of each thread."""

    view: TensorView
    tile: tuple[int, ...]
    reader: str | None
    major: str
    access: str | tuple[Place, ...]
    bits: int  # of an element
    options: dict[str, Any] = field(default_factory=dict)  # data_type and target, where given

    def map_of(self, **arguments: Any) -> TensorMap:
        """Make a map as `make_tma_descriptor` does; it raises with every violation."""
        return build.make_view("tiled", self.view, DEFAULTS | self.options | arguments)


DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(make_tma_descriptor).parameters.items()
    if parameter.default is not parameter.empty
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A box that is accepted and can be read, the copies that fill the tile, and their speed."""

    arguments: dict[str, Any]
    tensor_map: TensorMap
    copies: int
    speed: float
    conflicts: int | None
    descriptor: MatrixDescriptor | None

    @property
    def copy_bytes(self) -> int:
        """Bytes from one copy to the next in shared memory: each starts where the pattern does."""
        alignment = self.tensor_map.smem_alignment
        return -(-self.tensor_map.smem_bytes // alignment) * alignment

    @property
    def cost(self) -> tuple[float, ...]:
        """What counts among choices of one speed: copies, shared memory, conflicts, simplicity."""
        tm = self.tensor_map
        memory = self.copies * self.copy_bytes
        # plain rows are the simplest, then the widest swizzle is what others use
        swizzle = (tm.swizzle != TmaSwizzle.none, -tm.swizzle)
        return self.copies, memory, self.conflicts or 0, tm.rank, *swizzle


def speed(begin: tuple[int, bool], lines: int, line_bytes: int, l2: TmaL2FetchSize) -> float:
    """Return the share of a memcpy's speed that was measured for the widest such line or less.

    >>> speed((32, False), 64, 64, TmaL2FetchSize.bytes128)
    0.91
    """
    shares = MEASURED[begin] | (MEASURED_FEW.get(begin, {}) if lines <= FEW_LINES else {})
    return shares[max(n for n in shares if n <= line_bytes)][_L2.index(l2)]


def choices(wanted: Wanted) -> tuple[list[Choice], tuple[Violation, ...]]:
    """Return the first cut of each kind that is accepted and can be read.

    If there is none, also why the first cut is not.
    """
    found: list[Choice] = []
    refused: tuple[Violation, ...] = ()
    for swizzle, split in itertools.product(_SWIZZLES, (False, True)):
        for arguments in _cuts(wanted, swizzle, split):
            try:
                found.append(_choice(wanted, arguments))
                break
            except TmaPreconditionError as error:
                if error.violations[0].rule.startswith("SPLIT_"):
                    break  # no other box fits either: the tensor cannot be split so
                refused = refused or error.violations
    return found, refused


def best_first(found: list[Choice]) -> list[Choice]:
    """Sort by speed, and those as fast as the fastest by what else they cost."""
    fast = AS_FAST * max(choice.speed for choice in found)
    return sorted(found, key=lambda choice: (-min(choice.speed, fast), *choice.cost))


def without_needless_conflicts(found: list[Choice]) -> list[Choice]:
    """Leave out choices if another one has fewer bank conflicts and is nearly as fast."""
    return [
        one
        for one in found
        if not any(
            (other.conflicts or 0) < (one.conflicts or 0)
            and other.speed >= WORTH_FEWER_CONFLICTS * one.speed
            for other in found
        )
    ]


def _choice(wanted: Wanted, arguments: dict[str, Any]) -> Choice:
    tensor_map, arguments = _made(wanted, arguments)
    conflicts, descriptor = READERS[wanted.reader](wanted, tensor_map)
    begin = _begin(wanted, "split_inner" in arguments)
    line_bytes = tensor_map.arguments.inner_box_bytes
    tx_bytes = tensor_map.tx_bytes
    share = speed(begin, tensor_map.box_sizes[-2], line_bytes, tensor_map.l2_promotion)
    return Choice(
        arguments=wanted.options | arguments,
        tensor_map=tensor_map,
        copies=math.prod(wanted.tile) // math.prod(tensor_map.box_sizes),
        speed=min(share / (1 + COPY_BYTES / tx_bytes), tx_bytes / ISSUE_BYTES),
        conflicts=conflicts,
        descriptor=descriptor,
    )


def _made(wanted: Wanted, arguments: dict[str, Any]) -> tuple[TensorMap, dict[str, Any]]:
    """Make the map; a tile may be larger than the tensor, as the driver allows."""
    try:
        return wanted.map_of(**arguments), arguments
    except TmaPreconditionError as error:
        if {violation.rule for violation in error.violations} != {"BOX_IN_SHAPE"}:
            raise
    arguments = arguments | {"allow": (*arguments.get("allow", ()), "BOX_IN_SHAPE")}
    return wanted.map_of(**arguments), arguments


# -- cutting a tile into boxes --------------------------------------------------------------------


def _cuts(wanted: Wanted, swizzle: TmaSwizzle, split: bool) -> Iterator[dict[str, Any]]:
    """Yield arguments that cut the tile into equal boxes, fewest copies first."""
    bits = wanted.bits
    span = (SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES) * 8 // bits
    widest = MAX_BOX if swizzle is TmaSwizzle.none else min(span, MAX_BOX)
    *outer, inner = wanted.tile
    if split:
        widths = [n for n in _divisors(inner, span * MAX_BOX) if n % span == 0 and n > span]
    else:
        widths = [n for n in _divisors(inner, widest) if n * bits % (INNER_BYTES * 8) == 0]
    boxes = itertools.product(*(_divisors(n, MAX_BOX) for n in outer), widths)
    begin = _begin(wanted, split)
    one_matrix = wanted.reader in ("wgmma", "tcgen05", "ldmatrix")
    for box in sorted(boxes, key=lambda box: (-math.prod(box), -box[-1])):
        if one_matrix and sum(n > 1 for n in box[:-1]) > 1:
            continue  # each matrix of a tile of several is a copy
        line_bytes = (span if split else box[-1]) * bits // 8
        l2 = max(_L2, key=lambda l2: (speed(begin, box[-2], line_bytes, l2), -l2))
        arguments = {"box_sizes": box, "swizzle": swizzle.name, "l2_fetch_size": l2.name}
        yield arguments | ({"split_inner": True} if split else {})


def _begin(wanted: Wanted, split: bool) -> tuple[int, bool]:
    """Return the key of `MEASURED`: where lines of the tensor begin, and whether it is split."""
    view = wanted.view
    steps = [stride * view.dtype.itemsize_bits // 8 for stride in view.strides[:-1]]
    address = 0 if view.device.is_host else view.address  # a copy on the GPU begins elsewhere
    return (16 if math.gcd(32, address, *steps) % 32 else 32), split


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


# -- who reads the tile ---------------------------------------------------------------------------

#: Bank conflicts of the reader, and its matrix descriptor; raises if it cannot read the box.
Reading = tuple[int | None, MatrixDescriptor | None]


def _by_tensor_core(wanted: Wanted, tensor_map: TensorMap) -> Reading:
    assert wanted.reader is not None
    options: dict[str, Any] = {"instruction": wanted.reader, "major": wanted.major}
    descriptor = matrix_descriptor(tensor_map, **options)
    return bank_conflicts(tensor_map, "column").degree, descriptor


def _by_ldmatrix(wanted: Wanted, tensor_map: TensorMap) -> Reading:
    """Read the first and the last matrix of the box, then count the conflicts of the largest x."""
    transpose = wanted.major == "MN"
    ldmatrix_addresses(tensor_map, 0, 0, num=1, transpose=transpose)
    tile = tile_matrix(tensor_map)
    assert tile is not None  # or the call above had refused it
    columns = INNER_BYTES // tile.element_bytes
    last = (tile.rows - 1) // 8 * 8, tile.width - columns
    ldmatrix_addresses(tensor_map, *last, num=1, transpose=transpose)
    for num in (4, 2, 1):
        try:
            addresses = ldmatrix_addresses(tensor_map, 0, 0, num=num, transpose=transpose)
            break
        except TmaPreconditionError:
            continue  # the box has fewer matrices
    return bank_conflicts(tensor_map, addresses[: 8 * num]).degree, None


def _by_threads(wanted: Wanted, tensor_map: TensorMap) -> Reading:
    if isinstance(wanted.access, str):
        return bank_conflicts(tensor_map, wanted.access).degree, None
    return _degree_at(wanted.access, wanted.tile, tensor_map), None


def _degree_at(places: tuple[Place, ...], tile: tuple[int, ...], tensor_map: TensorMap) -> int:
    """Count the conflicts of reading elements of the whole tile, which several copies may fill.

    The threads that read one copy are counted together, the others being idle; the sum over the
    copies is what the banks have to serve at most.
    """
    box = tensor_map.box_sizes
    is_split = len(box) > len(tile)
    whole = (*box[1:-1], box[0] * box[-1]) if is_split else box
    copies: dict[tuple[int, ...], list[Place]] = {}
    for thread, place in enumerate(places):
        if place is None:
            continue
        quotients = tuple(i // n for i, n in zip(place, whole, strict=True))
        inside = tuple(i % n for i, n in zip(place, whole, strict=True))
        if is_split:
            inside = (inside[-1] // box[-1], *inside[:-1], inside[-1] % box[-1])
        copies.setdefault(quotients, [None] * len(places))[thread] = inside
    counts = (bank_conflicts(tensor_map, of_one.__getitem__) for of_one in copies.values())
    degrees = [count.swizzles[0].degrees for count in counts]
    return max(map(sum, zip(*degrees, strict=True)), default=1)


READERS: dict[str | None, Callable[[Wanted, TensorMap], Reading]] = {
    "wgmma": _by_tensor_core,
    "tcgen05": _by_tensor_core,
    "ldmatrix": _by_ldmatrix,
    "threads": _by_threads,
    None: lambda wanted, tensor_map: (None, None),
}


# -- the arguments of suggest ----------------------------------------------------------------------


def read_tile(tile: object, view: TensorView) -> tuple[int, ...]:
    extents = integers_of(tile)
    if extents is None or len(extents) != len(view.shape) or min(extents, default=1) < 1:
        found = f"tile is {shown(tile)}"
        must = f"be {counted(len(view.shape), 'positive integer')}, one per dimension of the tensor"
        raise refusal("tile", found, must, "pass its extents row-major, such as (128, 64)")
    return extents


def check_reader(reader: object, major: object) -> None:
    if reader is not None and text_of(reader) not in READERS:
        names = ", ".join(map(repr, READERS))
        fix = "choose who reads the tile in shared memory; None if it is only stored"
        raise unfit("reader", reader, f"be one of {names}", fix)
    if text_of(major) not in ("K", "MN"):
        must, fix = "be 'K' or 'MN'", "pass major='K' for a tile of (M or N, K)"
        raise unfit("major", major, must, fix)


def read_access(access: object, tile: tuple[int, ...]) -> str | tuple[Place, ...]:
    """Call a function for every thread of a warp."""
    pattern = text_of(access)
    if callable(access):
        return tuple(element_of(access, thread, tile) for thread in range(WARP))
    if pattern not in ("row", "column"):
        found, must = f"access is {shown(access)}", "be 'row', 'column' or a function of a thread"
        raise refusal("access", found, must, "pass access='column'")
    return str(pattern)
