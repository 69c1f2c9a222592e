"""The search for boxes and swizzles that fill a tile and that the tile's reader can use.

`make_tma_descriptor` decides whether a box is accepted. The functions `matrix_descriptor`,
`ldmatrix_addresses` and `bank_conflicts` decide whether the reader, such as wgmma, can read a tile
that is copied with the box. This module has no rules of its own. It does not make error texts for
the boxes that it drops.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tma_dlpack import geometry
from tma_dlpack.consumer import MatrixDescriptor, ldmatrix_addresses, matrix_descriptor
from tma_dlpack.consumer.operand import INSTRUCTIONS, Operand, tile_matrix
from tma_dlpack.consumer.reads import PHASE, WARP, conflicts, element_of, reads_of
from tma_dlpack.consumer.refusals import ROWS
from tma_dlpack.consumer.refusals import find_violations as unreadable_by
from tma_dlpack.dlpack import TensorView
from tma_dlpack.geometry import BANK_BYTES, BANKS, CHUNK_BYTES
from tma_dlpack.make import build
from tma_dlpack.make.descriptors import make_tma_descriptor
from tma_dlpack.suggestions.speeds import Card, is_measured
from tma_dlpack.tables.coerce import counted, integers_of, nearest_integers, shown, text_of
from tma_dlpack.tables.enums import TmaL2FetchSize, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, Violation, argument_error, bad_value
from tma_dlpack.tables.targets import (
    DEFAULT_TARGET,
    INNER_BYTES,
    MAX_BOX,
    SWIZZLE_SPAN_BYTES,
    Target,
)
from tma_dlpack.tensor_map.map import TensorMap

#: A choice counts as fast if its speed is at least this share of the fastest choice's speed.
#: `AS_FAST` allows for the noise of a measurement. `AS_FAST_ELSEWHERE` is for a GPU without a
#: measured table, and also allows for the difference between GPUs.
AS_FAST, AS_FAST_ELSEWHERE = 0.99, 0.97
#: Choice A is dropped if choice B has fewer bank conflicts, and if B's speed is at least this share
#: of A's speed.
WORTH_FEWER_CONFLICTS = 0.85
# The L2 fetch sizes, in the order of the shares that `Card.shares` returns.
_L2 = (TmaL2FetchSize.none, TmaL2FetchSize.bytes128, TmaL2FetchSize.bytes256)
_SWIZZLES = (
    TmaSwizzle.bytes128,
    TmaSwizzle.bytes128_atom_32B,
    TmaSwizzle.bytes64,
    TmaSwizzle.bytes32,
    TmaSwizzle.none,
)

#: Index in the tile of the element that a thread reads; None for an idle thread.
Place = tuple[int, ...] | None
#: Optional parameter of `make_tma_descriptor` -> its default.
DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(make_tma_descriptor).parameters.items()
    if parameter.default is not parameter.empty
}


@dataclass(frozen=True, slots=True)
class SuggestRequest:
    """The checked arguments of `suggest`, and facts about the tensor.

    Attributes
    ----------
    view : TensorView
    tile : tuple of int
    reader : str or None
    major : {"K", "MN"}
    access : str or tuple of Place
        The name of a pattern, or the element that each thread of a warp reads.
    card : Card
        The measured speeds that rank the choices.
    options : dict
        The options that the caller passed. Possible options are data_type, rules, allow and target.
        If the tensor breaks a rule of libcu++ that the driver does not have, `allow` also has the
        rule.
    extents : tuple of int
        Extents of the tensor, in the units of boxes.
    bits : int
        Bits of an element.
    begin : int
        Alignment of the tensor's lines in bytes: 16, or 32, which is the unit of memory transfers.
    stages : int
        Number of tiles in shared memory at the same time.
    room : int
        Bytes of shared memory that the tiles of all stages together may use.
    target : Target
    """

    view: TensorView
    tile: tuple[int, ...]
    reader: str | None
    major: str
    access: str | tuple[Place, ...]
    card: Card
    options: dict[str, Any]
    extents: tuple[int, ...] = ()
    bits: int = 8
    begin: int = 32
    stages: int = 1
    room: int = 0
    target: Target = DEFAULT_TARGET

    def map_of(self, **arguments: Any) -> TensorMap:
        """Make a map for the tensor. If the map is refused, the error has every violation."""
        # `make_tma_descriptor` is faster, because it uses the C extension, but it needs a tensor.
        # `make_view` also works for a view without a tensor.
        if self.view.owner is not None:
            owner: Any = self.view.owner
            return make_tma_descriptor(owner, **self.options | arguments)
        return build.make_view("tiled", self.view, DEFAULTS | self.options | arguments)

    def without_tensor(self) -> SuggestRequest:
        """Return a copy of the request that does not keep the tensor alive."""
        return replace(self, view=self.view.at(self.view.address))

    def fits(self, tile_bytes: int) -> bool:
        """Return whether one tile of `tile_bytes` bytes per stage fits into shared memory."""
        return self.stages * tile_bytes <= self.room

    @property
    def as_fast(self) -> float:
        """The minimum speed of a fast choice, as a share of the fastest choice's speed."""
        return AS_FAST if is_measured(self.view.device) else AS_FAST_ELSEWHERE

    @property
    def tile_bytes(self) -> int:
        """Bytes of the tile, without the gaps that it may have in shared memory."""
        return -(-math.prod(self.tile) * self.bits // 8)


@dataclass(frozen=True, slots=True)
class BoxChoice:
    """A box that `make_tma_descriptor` accepts and that the reader can read, with its costs.

    Attributes
    ----------
    arguments : dict
        Arguments of `make_tma_descriptor`.
    box : tuple of int
        Box of the map, row-major. With `split_inner`, the box has one dimension more than the
        tensor.
    swizzle : TmaSwizzle
    line_bytes : int
        Bytes of a line of the box. With `split_inner`, a line is one span.
    tx_bytes, smem_bytes, smem_alignment : int
        The map's attributes of the same names, which are about one copy.
    copies : int
        Number of copies that fill the tile.
    speed : float
        Measured speed of the copies, as a share of a memcpy's speed.
    conflicts : int or None
        Degree of the reader's bank conflicts; 1 means no conflicts. None if there is no reader.
    descriptor : MatrixDescriptor or None
        Descriptor of the first copy, for wgmma and tcgen05.
    """

    arguments: dict[str, Any]
    box: tuple[int, ...]
    swizzle: TmaSwizzle
    line_bytes: int
    tx_bytes: int
    smem_bytes: int
    smem_alignment: int
    copies: int
    speed: float
    conflicts: int | None
    descriptor: MatrixDescriptor | None

    @property
    def all_bytes(self) -> int:
        """Bytes of shared memory of all copies, each aligned to `smem_alignment`."""
        return self.copies * -(-self.smem_bytes // self.smem_alignment) * self.smem_alignment

    @property
    def cost(self) -> tuple[float, ...]:
        """Sort key of choices with equal speed; a lower key is better.

        The key has the number of copies, the bytes of shared memory, the bank conflicts, the number
        of dimensions, and the swizzle.
        """
        # A box without a swizzle is preferred, because it is the simplest. Otherwise the swizzle
        # with the largest enum value is preferred.
        swizzle = (self.swizzle != TmaSwizzle.none, -self.swizzle)
        return self.copies, self.all_bytes, self.conflicts or 0, len(self.box), *swizzle


class Refused(NamedTuple):
    """The reason why a box is refused or cannot be read. The reason may also exclude other boxes.

    If `alike` is "kind", the reason excludes every box with the same swizzle and the same value of
    `split_inner`. If `alike` is "width", the reason excludes every such box of the same width. If
    `alike` is "box", the reason excludes only this box. The function `violations` makes the error
    texts.
    """

    violations: Callable[[], tuple[Violation, ...] | list[Violation]]
    alike: str


def choices(wanted: SuggestRequest) -> tuple[list[BoxChoice], list[Refused]]:
    """Return the first readable box of each kind, and the refusals of other boxes.

    A box is readable if the reader can read a tile that is copied with the box. Boxes are of the
    same kind if they have the same swizzle and the same value of `split_inner`. A refusal is
    returned for each box that was tried before the first readable box of its kind.
    """
    found: list[BoxChoice] = []
    refused: list[Refused] = []
    instruction = INSTRUCTIONS.get(wanted.reader or "")
    for swizzle, split in itertools.product(_SWIZZLES, (False, True)):
        if instruction is not None and swizzle not in instruction.layout_types:
            continue
        # The reader cannot read boxes of these widths, whatever the number of lines is.
        unread: set[int] = set()
        for box in _cuts(wanted, swizzle, split):
            if box[-1] in unread:
                continue
            result = _choice(wanted, box, swizzle, split)
            if isinstance(result, BoxChoice):
                found.append(result)
                break
            refused.append(result)
            if result.alike == "kind":
                break
            if result.alike == "width":
                unread.add(box[-1])
    return found, refused


def best_first(wanted: SuggestRequest, found: list[BoxChoice]) -> list[BoxChoice]:
    """Sort choices by speed. Choices that count as fast are sorted by `BoxChoice.cost`."""
    fast = wanted.as_fast * max(choice.speed for choice in found)
    return sorted(found, key=lambda choice: (-min(choice.speed, fast), *choice.cost))


def without_needless_conflicts(found: list[BoxChoice]) -> list[BoxChoice]:
    """Drop each choice for which another choice has fewer bank conflicts and is nearly as fast."""
    return [
        one
        for one in found
        if not any(
            (other.conflicts or 0) < (one.conflicts or 0)
            and other.speed >= WORTH_FEWER_CONFLICTS * one.speed
            for other in found
        )
    ]


def _choice(
    wanted: SuggestRequest, tile: tuple[int, ...], swizzle: TmaSwizzle, split: bool
) -> BoxChoice | Refused:
    row_bytes = tile[-1] * wanted.bits // 8
    span = (SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES) if split else row_bytes
    # `l2` is the index in `_L2` of the fastest L2 fetch size for this box.
    shares = wanted.card.shares(wanted.begin, row_bytes // span, span, tile[-2])
    l2 = shares.index(max(shares))
    arguments: dict[str, Any] = {
        "box_sizes": tile,
        "swizzle": swizzle.name,
        "l2_fetch_size": _L2[l2].name,
    }
    arguments |= {"split_inner": True} if split else {}
    try:
        tensor_map, arguments = _made(wanted, arguments)
    except TmaPreconditionError as error:
        violations = error.violations
        # If another argument than `box_sizes` is at fault, every box of this kind is refused.
        of_box = all(v.argument == "box_sizes" for v in violations)
        return Refused(lambda: violations, "box" if of_box else "kind")
    reading = READERS[wanted.reader](wanted, tensor_map)
    if isinstance(reading, Refused):
        return reading
    conflicts, descriptor = reading
    box, tx_bytes = tensor_map.box_sizes, tensor_map.tx_bytes
    return BoxChoice(
        arguments=wanted.options | arguments,
        box=box,
        swizzle=swizzle,
        line_bytes=span,
        tx_bytes=tx_bytes,
        smem_bytes=tensor_map.smem_bytes,
        smem_alignment=tensor_map.smem_alignment,
        copies=math.prod(wanted.tile) // math.prod(box),
        speed=min(shares[l2], tx_bytes / wanted.card.issue_bytes),
        conflicts=conflicts,
        descriptor=descriptor,
    )


def _made(wanted: SuggestRequest, arguments: dict[str, Any]) -> tuple[TensorMap, dict[str, Any]]:
    """Return the map and its arguments. If the box exceeds the tensor, `allow` permits the box."""
    beyond = any(n > m for n, m in zip(arguments["box_sizes"], wanted.extents, strict=True))
    if beyond and wanted.options.get("rules") != "driver":
        allowed = *wanted.options.get("allow", ()), "BOX_IN_SHAPE"
        arguments = arguments | {"allow": tuple(dict.fromkeys(allowed))}
    return wanted.map_of(**arguments), arguments


def begin_of(view: TensorView) -> int:
    """Return the alignment of a tensor's lines in global memory, in bytes: 32 or 16."""
    steps = [stride * view.dtype.itemsize_bits // 8 for stride in view.strides[:-1]]
    # A host tensor is copied to the GPU before a kernel uses it. The copy has another address, so
    # the host address is ignored.
    address = 0 if view.device.is_host else view.address
    return 16 if math.gcd(32, address, *steps) % 32 else 32


# -- boxes that fill a tile -----------------------------------------------------------------------


def _cuts(wanted: SuggestRequest, swizzle: TmaSwizzle, split: bool) -> Iterator[tuple[int, ...]]:
    """Yield the boxes whose copies fill the tile exactly, the box with the fewest copies first."""
    bits = wanted.bits
    span = (SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES) * 8 // bits
    widest = MAX_BOX if swizzle is TmaSwizzle.none else min(span, MAX_BOX)
    # With `split_inner`, a row of the box has two or more spans. Without `split_inner` and with a
    # swizzle, a row has at most one span.
    *outer, inner = wanted.tile
    if split:
        widths = [n for n in _divisors(inner, span * MAX_BOX) if n % span == 0 and n > span]
    else:
        widths = [n for n in _divisors(inner, widest) if n * bits % (INNER_BYTES * 8) == 0]
    if not widths:
        return
    boxes = itertools.product(*(_divisors(n, MAX_BOX) for n in outer), widths)
    one_matrix = wanted.reader in ("wgmma", "tcgen05", "ldmatrix")
    for box in sorted(boxes, key=lambda box: (-math.prod(box), -box[-1])):
        if one_matrix and sum(n > 1 for n in box[:-1]) > 1:
            continue  # the box has several matrices, but a reader needs one copy per matrix
        yield box


def _divisors(number: int, most: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({n for n in (*small, *(number // n for n in small)) if n <= most})


# -- the reader of the tile -----------------------------------------------------------------------

#: The degree of the reader's bank conflicts or None, and the matrix descriptor or None.
Reading = tuple[int | None, MatrixDescriptor | None]

#: `_OF_KIND` has the rules of `matrix_descriptor` that do not depend on the box. `_OF_WIDTH` has
#: the rules that depend only on the box's width.
_OF_KIND = frozenset(
    f"MATRIX_{name}" for name in ("TARGET", "TYPE", "MAJOR", "INTERLEAVE", "FILL", "SWIZZLE")
)
_OF_WIDTH = frozenset({"MATRIX_WIDTH"})


def _by_tensor_core(wanted: SuggestRequest, tensor_map: TensorMap) -> Reading | Refused:
    assert wanted.reader is not None
    major: Any = wanted.major
    operand = Operand.of(tensor_map, INSTRUCTIONS[wanted.reader], major, 0)
    # Only the conditions of the rules are checked here. `Refused.violations` makes the error texts
    # later, if they are needed.
    failed = {row.id for row in ROWS if not row.holds(operand)}  # type: ignore[operator]
    if failed:
        alike = "kind" if failed & _OF_KIND else "width" if failed & _OF_WIDTH else "box"
        return Refused(lambda: unreadable_by(operand, ROWS, operand.instruction.source), alike)
    instruction: Any = wanted.reader
    descriptor = matrix_descriptor(tensor_map, instruction=instruction, major=major)
    return column_degree(tensor_map), descriptor


def column_degree(tensor_map: TensorMap) -> int:
    """Return the largest degree of bank conflicts when a warp reads 16 bytes of each of 8 rows.

    ``bank_conflicts(tm)`` returns the same degree. Only the first 8 rows are examined, because
    every other group of 8 rows starts a multiple of 8 pitches later. This distance moves or
    exchanges the banks of all 8 rows in the same way, so every group has the same degree.
    """
    plan = geometry.plan(tensor_map.arguments)
    swizzle, rows = plan.arguments.swizzle, range(min(PHASE, plan.lines))
    degree = 1
    for column in range(0, plan.smem_line_bytes, CHUNK_BYTES):
        places = [geometry.swizzle_offset(swizzle, row * plan.pitch_bytes + column) for row in rows]
        banks = [place // BANK_BYTES % BANKS for place in places]
        degree = max(degree, *map(banks.count, banks))
    return degree


def _by_ldmatrix(wanted: SuggestRequest, tensor_map: TensorMap) -> Reading | Refused:
    try:
        return _of_ldmatrix(tensor_map, transpose=wanted.major == "MN"), None
    except TmaPreconditionError as error:
        violations = error.violations
        return Refused(lambda: violations, "box")


def _of_ldmatrix(tensor_map: TensorMap, transpose: bool) -> int:
    """Return the degree of bank conflicts of the largest ldmatrix that fits the box.

    The largest ldmatrix is x4, x2 or x1.

    Raises `TmaPreconditionError` if ldmatrix cannot read the first or the last matrix of the box.
    """
    ldmatrix_addresses(tensor_map, 0, 0, num=1, transpose=transpose)
    tile = tile_matrix(tensor_map)
    assert tile is not None  # if `tile` were None, the call of ldmatrix_addresses would have raised
    columns = INNER_BYTES // tile.element_bytes
    last = (tile.rows - 1) // 8 * 8, tile.width - columns
    ldmatrix_addresses(tensor_map, *last, num=1, transpose=transpose)
    for num in (4, 2, 1):
        try:
            addresses = ldmatrix_addresses(tensor_map, 0, 0, num=num, transpose=transpose)
            break
        except TmaPreconditionError:
            continue  # the box has fewer than `num` matrices
    return max(_degrees(tensor_map, addresses[: 8 * num]))


def _by_threads(wanted: SuggestRequest, tensor_map: TensorMap) -> Reading:
    if isinstance(wanted.access, str):
        return max(_degrees(tensor_map, wanted.access)), None
    return _degree_at(wanted.access, wanted.tile, tensor_map), None


def _degree_at(places: tuple[Place, ...], tile: tuple[int, ...], tensor_map: TensorMap) -> int:
    """Return an upper limit of the degree of bank conflicts when a warp reads the tile.

    Several copies may fill the tile. The conflicts are counted for each copy separately, and the
    threads that read other copies count as idle. Then the degrees of all copies are added, phase by
    phase. The result is the largest sum.
    """
    box = tensor_map.box_sizes
    is_split = len(box) > len(tile)
    whole = (*box[1:-1], box[0] * box[-1]) if is_split else box
    # Index of a copy in the tile -> one entry per thread: the index in the box of the element that
    # the thread reads.
    copies: dict[tuple[int, ...], list[Place]] = {}
    for thread, place in enumerate(places):
        if place is None:
            continue
        quotients = tuple(i // n for i, n in zip(place, whole, strict=True))
        inside = tuple(i % n for i, n in zip(place, whole, strict=True))
        # With `split_inner`, the dimensions of the box are, in this order: the spans, the outer
        # dimensions, and the elements within a span.
        if is_split:
            inside = (inside[-1] // box[-1], *inside[:-1], inside[-1] % box[-1])
        copies.setdefault(quotients, [None] * len(places))[thread] = inside
    degrees = [_degrees(tensor_map, of_one.__getitem__) for of_one in copies.values()]
    return max(map(sum, zip(*degrees, strict=True)), default=1)


def _degrees(tensor_map: TensorMap, access: object) -> tuple[int, ...]:
    """Return the degree of bank conflicts of each phase of an access.

    A phase is a set of threads whose reads the hardware serves together; see `bank_conflicts`.
    """
    plan = geometry.plan(tensor_map.arguments)
    return conflicts(plan, reads_of(plan, access, WARP, None, 0), 0).degrees


READERS: dict[str | None, Callable[[SuggestRequest, TensorMap], Reading | Refused]] = {
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
        example = _example(nearest_integers(tile) or (), view.shape)
        raise argument_error("tile", found, must, f"pass its extents row-major, such as {example}")
    return extents


def _example(given: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an example tile for an error message.

    The last entries of the example are the positive entries of `given`, and the entries before them
    are 1. If `given` has no positive entry, the last two entries are the last two extents of
    `shape`, but at most 64.
    """
    usual = (*(1 for _ in shape[:-2]), *(min(n, 64) for n in shape[-2:]))
    kept = [n for n in given if n >= 1][-len(shape) :] if shape else []
    return (*((1,) * (len(shape) - len(kept)) if kept else usual), *kept)


def check_reader(reader: object) -> str | None:
    if reader is not None and text_of(reader) not in READERS:
        names = ", ".join(map(repr, READERS))
        fix = "choose who reads the tile in shared memory; None if it is only stored"
        raise bad_value("reader", reader, f"be one of {names}", fix)
    return text_of(reader)


def read_access(access: object, tile: tuple[int, ...]) -> str | tuple[Place, ...]:
    """Return the pattern "row" or "column", or the elements that the threads of a warp read."""
    pattern = text_of(access)
    if callable(access):
        return tuple(element_of(access, thread, tile) for thread in range(WARP))
    if pattern not in ("row", "column"):
        found, must = f"access is {shown(access)}", "be 'row', 'column' or a function of a thread"
        raise argument_error("access", found, must, "pass access='column'")
    return str(pattern)
