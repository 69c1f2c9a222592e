"""`suggest`: which box, swizzle and L2 fetch size to take for a tile, and what each costs."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, overload

from tma_dlpack.checks.report import Report
from tma_dlpack.consumer import MatrixDescriptor
from tma_dlpack.dlpack import TensorView, as_tensor_view
from tma_dlpack.draw.reads import WARP
from tma_dlpack.make import build
from tma_dlpack.suggestions.tile_choices import (
    DEFAULTS,
    MEASURED_ON,
    Choice,
    Wanted,
    best_first,
    check_reader,
    choices,
    read_access,
    read_tile,
    without_needless_conflicts,
)
from tma_dlpack.tables.coerce import aligned, counted, integer_of, shown, text_of
from tma_dlpack.tables.dtypes import DATA_TYPES, data_type_of
from tma_dlpack.tables.enums import DataType, Ints, Tensor, TensorMapDataType
from tma_dlpack.tables.errors import (
    Finding,
    TmaPreconditionError,
    at_least,
    refusal,
    sealed,
    wrapped,
)
from tma_dlpack.tables.limits import INNER_BYTES
from tma_dlpack.tables.meanings import parse
from tma_dlpack.tables.public import opaque, public
from tma_dlpack.tables.targets import Target

FEW_BYTES = WARP * 16  # what a warp loads in one instruction: less is no work for TMA
SLOW = 0.7  # of a memcpy's speed
PLAIN_LOADS = "copy it with plain loads of 16 bytes or with cp.async, which take any stride"
HEADS = (
    *("", "box", "swizzle", "L2 fetch", "copies", "tx bytes", "smem bytes", "aligned"),
    *("conflicts", "of memcpy"),
)


@public
@sealed
@dataclass(frozen=True, slots=True)
class Suggestion:
    """One way to copy a tile: arguments that are accepted, and what they cost.

    Attributes
    ----------
    arguments : dict
        Keyword arguments of `make_tma_descriptor` for the same tensor.
    copies : int
        Copies that fill the tile, which they cover exactly.
    tx_bytes : int
        Bytes that one copy adds to its mbarrier; times `copies` for the whole tile.
    smem_bytes : int
        Shared memory of all stages, each copy at a multiple of `smem_alignment`.
    smem_alignment : int
        Alignment of the first copy, bytes.
    bank_conflicts : int or None
        The worst degree of the reader's accesses, 1 being free of conflicts; None if nobody reads.
    bandwidth : float or None
        Measured share of a memcpy's speed, of a tensor larger than the L2 cache; None where
        nothing was measured (other GPUs than sm_90).
    descriptor : MatrixDescriptor or None
        Of the first copy, at shared address 0, where wgmma or tcgen05 read it.
    reasons : tuple of str
        Why, and what to know.
    """

    arguments: dict[str, Any]
    copies: int
    tx_bytes: int
    smem_bytes: int
    smem_alignment: int
    bank_conflicts: int | None
    bandwidth: float | None
    descriptor: MatrixDescriptor | None
    reasons: tuple[str, ...]

    def _cells(self) -> tuple[object, ...]:
        words = self.arguments
        box = "x".join(map(str, words["box_sizes"])) + ", split" * ("split_inner" in words)
        degree = self.bank_conflicts
        conflicts = "-" if degree is None else "free" if degree == 1 else f"{degree}-way"
        speed = "-" if self.bandwidth is None else f"{self.bandwidth:.2f}"
        counts = self.copies, self.tx_bytes, self.smem_bytes, self.smem_alignment
        return (box, words["swizzle"], words["l2_fetch_size"], *counts, conflicts, speed)


@public
@sealed
@dataclass(frozen=True, slots=True)
class Suggestions(Sequence[Suggestion]):
    """The result of `suggest`: ways to copy a tile, best first; empty where TMA is no help.

    Attributes
    ----------
    title : str
        The tile, the tensor and the reader.
    reasons : tuple of str
        If it is empty, why, and what to do instead; else what was left out.
    items : tuple of Suggestion
    """

    title: str
    items: tuple[Suggestion, ...]
    reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Suggestion: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Suggestion, ...]: ...
    def __getitem__(self, index: int | slice) -> Suggestion | tuple[Suggestion, ...]:
        return self.items[index]

    def _table(self) -> list[tuple[object, ...]]:
        return [(n, *one._cells()) for n, one in enumerate(self.items, 1)]

    def __str__(self) -> str:
        if not self.items:
            return "\n".join([f"{self.title}: no suggestion", *map(_bullet, self.reasons)])
        lines = aligned([HEADS, *self._table()])
        first = ["the first:", *map(_bullet, self.items[0].reasons)]
        return "\n".join([self.title, *lines, *first, *map(_bullet, self.reasons)])

    def _repr_html_(self) -> str:
        # imported when first needed
        from tma_dlpack.draw.cards import table_html
        from tma_dlpack.draw.figure import fragment

        head = self.title if self.items else f"{self.title}: no suggestion"
        parts = [f"<div><b>{html.escape(head)}</b></div>"]
        if self.items:
            parts.append(table_html(HEADS, self._table()))
            parts += [f"<div>{html.escape(reason)}</div>" for reason in self.items[0].reasons]
        parts += [f"<p>{html.escape(reason)}</p>" for reason in self.reasons]
        return fragment(parts)


def _bullet(reason: str) -> str:
    return wrapped(f"- {reason}", "  ")


@opaque
def suggest(
    tensor: Tensor,
    tile: Ints,
    *,
    reader: Literal["wgmma", "tcgen05", "ldmatrix", "threads"] | None = "wgmma",
    major: Literal["K", "MN"] = "K",
    access: Literal["row", "column"] | Callable[[int], Sequence[int] | None] = "row",
    data_type: DataType | None = None,
    stages: SupportsIndex = 1,
    smem_bytes: SupportsIndex | None = None,
    target: Target | str | None = None,
) -> Suggestions:
    """Suggest boxes, swizzles and L2 fetch sizes for a tile, best first.

    Every suggestion is accepted by `make_tma_descriptor`, its copies cover the tile exactly, and
    the reader can read what they write. The order is by the speed of the copies, measured with
    `bandwidth`; among equals, the fewest copies, the least shared memory, the fewest conflicts.

    Parameters
    ----------
    tensor : object
        As for `make_tma_descriptor`.
    tile : sequence of int
        The tile that the kernel wants at a time: row-major, one extent per dimension of the tensor,
        in the units of `box_sizes`. It may be larger than a box.
    reader : {"wgmma", "tcgen05", "ldmatrix", "threads", None}
        Who reads the tile in shared memory. None if it is only stored.
    major : {"K", "MN"}
        The dimension of the product that is contiguous in the tile, for the first three readers.
    access : {"row", "column"} or function
        What threads read, as for `bank_conflicts`: a function takes the number of a thread of a
        warp and returns the index of an element of the tile, row-major, or None.
    data_type : TensorMapDataType, name or value, optional
        As for `make_tma_descriptor`.
    stages : int
        Tiles in shared memory at a time.
    smem_bytes : int, optional
        Shared memory that they may take; None means all that a block of the GPU can have.
    target : Target or str, optional
        As for `make_tma_descriptor`.

    Returns
    -------
    Suggestions
        A sequence of `Suggestion`; ``print`` shows the table. Empty where TMA cannot serve, or
        should not: `reasons` says why, and what to do instead.

    Raises
    ------
    TmaPreconditionError
        If `tensor` is no tensor, or an argument cannot be read.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((4096, 1024), np.float16)
    >>> best = tma.suggest(x, (128, 64))[0]
    >>> best.arguments["box_sizes"], best.arguments["swizzle"], best.copies, best.bank_conflicts
    ((128, 64), 'bytes128', 1, 1)
    >>> tma.make_tma_descriptor(x, **best.arguments).tx_bytes == best.tx_bytes
    True
    >>> print(tma.suggest(x, (64, 4), reader=None))  # doctest: +ELLIPSIS
    tile (64, 4) of float16 (4096, 1024), only stored: no suggestion
      - a row of the tile is 8 bytes, and a copy takes multiples of 16 bytes: take a tile of...
    """
    options = {"data_type": data_type, "target": target}
    given = {name: value for name, value in options.items() if value is not None}
    words = {"reader": reader, "major": major, "access": access, "stages": stages}
    return suggest_view(as_tensor_view(tensor), tile, given, smem_bytes=smem_bytes, **words)


def suggest_view(
    view: TensorView,
    tile: object,
    options: dict[str, Any],
    *,
    reader: object,
    major: object,
    access: object,
    stages: object,
    smem_bytes: object,
) -> Suggestions:
    """Do the same for a `TensorView`, with or without a tensor behind it."""
    extents = read_tile(tile, view)
    check_reader(reader, major)
    count = at_least("stages", stages, usual=4)
    limit = integer_of(smem_bytes)
    if smem_bytes is not None and (limit is None or limit < 1):
        found = f"smem_bytes is {shown(smem_bytes)}"
        raise refusal("smem_bytes", found, "be a number of bytes, or None", "pass smem_bytes=None")
    title = f"tile {extents} of {view.dtype} {view.shape}, " + _read_by(reader, major, access)

    findings = _findings(view, extents, options)
    if findings:
        places = any(f.rule.startswith(("STRIDE", "ADDRESS")) for f in findings)
        otherwise = (f"or {PLAIN_LOADS}",) if places else ()
        return Suggestions(title, (), (*map(_sentence, findings), *otherwise))
    asked = options.get("data_type")
    data_type = data_type_of(view.dtype) if asked is None else parse(TensorMapDataType, asked)
    assert data_type is not None  # or it had been among the findings
    bits = DATA_TYPES[data_type].element_bits
    needless = _needless(extents, bits, view)
    if needless:
        return Suggestions(title, (), (needless,))
    read = read_access(access, extents)
    wanted = Wanted(view, extents, text_of(reader), str(major), read, bits, options)
    return _suggestions(title, wanted, count, limit)


def _suggestions(title: str, wanted: Wanted, stages: int, limit: int | None) -> Suggestions:
    found, refused = choices(wanted)
    if not found:
        who = f"{wanted.reader} cannot read it" if wanted.reader else "no box is accepted"
        return Suggestions(title, (), (f"{who}, in whatever boxes", *map(_sentence, refused)))
    room = found[0].tensor_map.target.max_smem_bytes
    room = room if limit is None else min(room, limit)
    fitting = [choice for choice in found if stages * choice.copies * choice.copy_bytes <= room]
    if not fitting:
        least = min(choice.copies * choice.copy_bytes for choice in found)
        return Suggestions(title, (), (_too_large(least, stages, room),))
    best = best_first(without_needless_conflicts(fitting))
    left_out = tuple(
        f"left out: box {choice.tensor_map.box_sizes} with swizzle "
        f"{choice.tensor_map.swizzle.name}, which {wanted.reader} read {choice.conflicts}-way"
        for choice in fitting
        if choice not in best
    )
    return Suggestions(title, tuple(_suggestion(c, wanted, stages) for c in best), left_out)


def _suggestion(choice: Choice, wanted: Wanted, stages: int) -> Suggestion:
    tm = choice.tensor_map
    return Suggestion(
        arguments=choice.arguments,
        copies=choice.copies,
        tx_bytes=tm.tx_bytes,
        smem_bytes=stages * choice.copies * choice.copy_bytes,
        smem_alignment=tm.smem_alignment,
        bank_conflicts=choice.conflicts,
        bandwidth=choice.speed if tm.target.has_model else None,
        descriptor=choice.descriptor,
        reasons=tuple(_reasons(choice, wanted)),
    )


# -- reasons --------------------------------------------------------------------------------------


def _reasons(choice: Choice, wanted: Wanted) -> list[str]:
    tm = choice.tensor_map
    line_bytes = tm.arguments.inner_box_bytes
    each = "one copy fills the tile" if choice.copies == 1 else f"{choice.copies} copies fill it"
    reasons = [f"{each}: box {choice.arguments['box_sizes']} with swizzle {tm.swizzle.name}"]
    if tm.rank > len(wanted.tile):
        reasons.append(
            f"split_inner: spans of {line_bytes} bytes side by side, in a box {tm.box_sizes}; the "
            f"coordinates of a tile at (.., m, k) are (k / {tm.box_sizes[-1]}, .., m, 0)"
        )
    if choice.descriptor is not None:
        d = choice.descriptor
        reasons.append(
            f"{d.instruction} reads a copy in {counted(d.k_steps, 'step')} of K: "
            f"{d.value:#018x} at shared address 0"
        )
    here = "measured," if tm.target.has_model else f"not measured on {tm.target}; on an"
    share = f"{choice.speed:.2f} of a memcpy's speed ({here} {MEASURED_ON})"
    reasons.append(f"lines of {line_bytes} bytes: {share}")
    if choice.speed < SLOW:
        reasons.append("slow: narrow lines keep the engine busy; take a wider tile if you can")
    if tm.smem_bytes > tm.tx_bytes:
        reasons.append(f"each line takes {tm.smem_bytes * line_bytes // tm.tx_bytes} bytes")
    if "BOX_IN_SHAPE" in choice.arguments.get("allow", ()):
        reasons.append("the box is larger than the tensor: what is outside is filled with zeros")
    return reasons


def _needless(tile: tuple[int, ...], bits: int, view: TensorView) -> str | None:
    """Return why TMA should not copy such a tile, or None."""
    row_bits = tile[-1] * bits
    lines = math.prod(tile[:-1])
    if row_bits % (INNER_BYTES * 8):
        step = INNER_BYTES * 8 // bits
        wider = (*tile[:-1], -(-tile[-1] // step) * step)
        return (
            f"a row of the tile is {row_bits / 8:g} bytes, and a copy takes multiples of "
            f"{INNER_BYTES} bytes: take a tile of {wider}, or {PLAIN_LOADS}"
        )
    if lines == 1:
        return (
            f"the tile is one contiguous row of {row_bits // 8} bytes: cp.async.bulk copies it "
            "without a tensor map, from any address that is a multiple of 16 bytes; to gather many "
            "rows, take a tile of several, or load them with plain loads"
        )
    if lines * row_bits < FEW_BYTES * 8:
        return (
            f"the tile has {lines * row_bits // 8} bytes: a warp loads {FEW_BYTES} in one "
            "instruction, with less latency than a copy; take a larger tile, or plain loads"
        )
    return None


def _too_large(tile_bytes: int, stages: int, room: int) -> str:
    fix = f"pass stages={room // tile_bytes}" if room >= tile_bytes else "take a smaller tile"
    return (
        f"{counted(stages, 'stage')} of {tile_bytes} bytes of shared memory do not fit into "
        f"{room}: {fix}"
    )


def _sentence(finding: Finding) -> str:
    return f"{finding.found}; {finding.limit}. {finding.fix}"


# -- arguments ------------------------------------------------------------------------------------


def _read_by(reader: object, major: object, access: object) -> str:
    if reader is None:
        return "only stored"
    if reader != "threads":
        return f"read by {reader}, {major}-major"
    return "read by threads" + (f", by {access}" if text_of(access) else ", by a function")


def _findings(view: TensorView, tile: tuple[int, ...], options: dict[str, Any]) -> list[Finding]:
    """Return what is wrong with the tensor, whatever the box; raise if an option is unreadable."""
    given = DEFAULTS | options | {"box_sizes": tile, "swizzle": "none", "l2_fetch_size": "none"}
    report: Report = build.check_view("tiled", view, given)
    unreadable = [v for v in report.violations if v.rule == "ARGUMENT"]
    if unreadable:
        raise TmaPreconditionError(unreadable)
    return [v for v in report.violations if v.argument != "box_sizes"]
