"""From a block to the driver's arguments, in the driver's order, units and lengths.

A list that does not fit the rank, the others, or its own printer is not read; nor is an entry that
is masked. What is not read is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from typing import Any, Final

from tma_dlpack.cli.explain.read import Block, Field, form_of
from tma_dlpack.cli.explain.words import (
    ARRAYS,
    COLUMN,
    CORNERS,
    CUTE_STRIDES,
    DRIVERS_OWN,
    GENERAL,
    OPTIONS,
    Entries,
    Form,
    PrintedArguments,
    member_of,
)
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.limits import MAX_RANK

_BY_DIMENSION: Final = ("global_dim", "box_dim", "element_strides")


def printed_arguments(block: Block) -> tuple[PrintedArguments, list[str]]:
    """Return the driver's arguments that a block shows, and remarks on what was not read."""
    form = form_of(block)
    fields = {name: _chosen(name, block, form) for name in block.arguments()}
    numbers = {
        name: found.value.numbers[0]
        for name, found in fields.items()
        if found and len(found.value.numbers) == 1 and not found.value.fault
    }
    kind = _kind(block)
    members = {name: _member(name, fields.get(name)) for name in (*OPTIONS[1:], "data_type")}
    if members["oob_fill"] is None:  # Triton's padding: 1 is NaN
        members["oob_fill"] = _member("oob_fill", fields.get("padding"))
    if numbers.get("swizzle_base") == 32:  # DeepGEMM prints the atom of a swizzle beside it
        members["swizzle"] = TmaSwizzle.bytes128_atom_32B
    lists = _Lists(block, form, fields, numbers, members["data_type"])
    if block.is_cut:
        lists.notes.append("the printout is cut off; paste the rest")
    faulty = {f.word for f in block.fields if f.value.fault not in ("", "address", "cut")}
    if faulty:
        why = "a number of it is masked, broken or in another unit"
        lists.notes.append(f"not read, for {why}: {', '.join(sorted(faulty))}")
    values = {name: entries or None for name, entries in lists.values.items()}
    read = PrintedArguments(
        kind=kind,
        rank=lists.rank,
        global_address=numbers.get("global_address"),
        global_dim=values["global_dim"],
        global_strides=() if lists.rank == 1 else values["global_strides"],
        element_strides=values["element_strides"],
        element_bytes=lists.element_bytes,
        printed_by=form.name,
        lines=(block.first_line, block.last_line),
        implied={n: v for n, v in form.implied.items() if n not in fields},
        inferred=("rank",) if "rank" not in numbers or lists.infers_rank else (),
        **members,
        **({"box_dim": values["box_dim"]} if kind == "tiled" else _column(kind, lists, numbers)),
    )
    return read, lists.notes


def _chosen(name: str, block: Block, form: Form) -> Field | None:
    """Return the field of an argument; None where two differ, or it is a line of something else."""
    own = [f for f in block.fields if f.argument == name and f.place is None]
    strong = [f for f in own if f.strong]
    if not strong and not block.is_call:
        others = [f for f in block.fields if f.argument != name and (f.strong or form.words)]
        own = [f for f in own if _is_alike(f, others, form)]
    own = strong or own
    return own[0] if own and all(f.value[:3] == own[0].value[:3] for f in own) else None


def _is_alike(found: Field, others: list[Field], form: Form) -> bool:
    """Return whether a weak word looks as the other words of its printout do."""
    if form.words:
        brackets = {f.value.bracket for f in others if f.value.is_list}
        fits = not (found.value.is_list and brackets) or found.value.bracket in brackets
        return found.word in form.words and fits
    marks = [f for f in others if f.argument in ARRAYS] or others
    looks = {(f.sign, f.word.islower()) for f in marks}
    return (found.sign, found.word.islower()) in looks or found.value.word.startswith("CU_")


def _kind(block: Block) -> MapKind:
    shown = block.arguments()
    if "pixel_box_lower_corner_width" in shown or "im2colwide" in block.heading.lower():
        return "im2col_wide"
    return "im2col" if set(COLUMN) & shown or "m2col" in block.heading else "tiled"


def _member(name: str, shown: Field | None) -> Any:
    if shown is None or shown.value.fault:
        return None
    values = [*([shown.value.word] if shown.value.word else []), *shown.value.numbers]
    members = {member_of(name, value) for value in values if value is not None}
    return members.pop() if len(members) == 1 else None  # a name and a number may differ


def _column(kind: MapKind, lists: _Lists, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an im2col map has in place of a box."""
    column = {name: numbers.get(name) for name in COLUMN[2:]}
    for name in CORNERS:
        width = numbers.get(f"{name}_width")
        corner = lists.values[name][: max(0, (lists.rank or MAX_RANK) - 2)]
        column[name] = (corner or None) if width is None else (width,)
    return column


class _Lists:
    """The lists of a block on their way to the driver's order, units and lengths; () if not read.

    `rank` is that of the printout or of the lists, None where neither shows it.
    """

    def __init__(
        self,
        block: Block,
        form: Form,
        fields: Mapping[str, Field | None],
        numbers: Mapping[str, Any],
        data_type: Any,
    ) -> None:
        self.block, self.form, self.fields = block, form, fields
        self.entries = {f.argument for f in block.fields if f.place is not None}
        self.notes: list[str] = []
        size = numbers.get("element_bytes")
        self.element_bytes: int | None = size if size in (1, 2, 4, 8) else None
        self.bits = self.element_bytes and self.element_bytes * 8
        if isinstance(data_type, TensorMapDataType):
            self.bits = DATA_TYPES[data_type].element_bits
        self.rank: int | None = numbers.get("rank")
        self.values: dict[str, Entries] = {name: self._shown(name) for name in sorted(ARRAYS)}
        self._read_entries()
        self._find_rank()
        if self.rank is None or not 0 < self.rank <= 2 * MAX_RANK:
            self.values["global_strides"] = ()
            return
        self._fit_strides(self.rank)
        for name in _BY_DIMENSION:
            self._fit(name, self.rank)

    def _shown(self, name: str) -> Entries:
        """Return a list as printed at one place, if it can be trusted."""
        shown = self.fields.get(name)
        if shown is None:
            return ()
        if shown.value.fault == "address":
            address = f"an address ({shown.value.numbers[0]:#x})"
            self.notes.append(
                f"{shown.word} shows {address} in place of the list: print its entries"
            )
        tight = any(f.value.style.endswith(",") for f in self.block.fields if not f.value.fault)
        if "grouped" in shown.value.style and not tight:
            return self._refuse(name, "may have a separator of thousands")
        return () if shown.value.fault else shown.value.numbers

    def _refuse(self, name: str, why: str) -> Entries:
        shown = self.fields.get(name)
        self.notes.append(f"{shown.word if shown else name} {why}: not read")
        return ()

    def _read_entries(self) -> None:
        """Read entries printed by themselves, as ``name[0] = 64``, counted from 0 or from 1."""
        found: dict[str, dict[int, Field]] = {name: {} for name in sorted(self.entries)}
        for f in self.block.fields:
            if f.place is not None:
                found[f.argument][_index(f.place)] = f
        first = min((i for places in found.values() for i in places if i >= 0), default=0)
        last = max((max(p) for name, p in found.items() if name in _BY_DIMENSION), default=0)
        for name, places in found.items():
            if first not in (0, self.rank == last) or min(places) < 0 or max(places) > 2 * MAX_RANK:
                self.values[name] = self._refuse(name, "has entries whose numbers start nowhere")
                continue
            shown = [places.get(i) for i in range(first, max(places) + 1)]
            self.values[name] = tuple(
                f.value.numbers[0]
                if f and not f.value.fault and len(f.value.numbers) == 1
                else None
                for f in shown
            )

    # -- how many dimensions ---------------------------------------------------------------------

    def _could_have(self, name: str, rank: int) -> bool:
        """Return whether a list could be that of a rank: as long, or five with padding."""
        values = self.values[name]
        padding = self.form.garbage or all(v in (0, 1, None) for v in values[rank:])
        return len(values) == rank or (len(values) == MAX_RANK >= rank and padding)

    def _find_rank(self) -> None:
        """Compare the printed rank with the lists; infer one that is not printed."""
        whole = [n for n in _BY_DIMENSION if n not in self.entries and self.values[n]]
        lengths = [len(self.values[n]) for n in whole]
        rank = self.rank
        strange = len(set(lengths)) == 1 and not (self.block.is_call or self.form.garbage)
        if rank is not None and strange and not any(self._could_have(n, rank) for n in whole):
            rank = None  # of a logger, as in "rank: 9"
        self.rank = None if (rank or 0) > MAX_RANK and rank not in lengths else rank
        self.infers_rank = self.rank is None
        if self.rank is not None:
            return
        lengths = [n for n in lengths if n <= MAX_RANK]
        if set(lengths) == {MAX_RANK} and self.form.garbage:  # which entries are, is not known
            self.values = {n: v[: n != "global_strides"] for n, v in self.values.items()}
        elif set(lengths) == {MAX_RANK}:
            self.rank = self._without_padding()
        elif lengths:
            self.rank = max(lengths, key=lengths.count)
            if len(set(lengths)) > 1 and lengths.count(self.rank) == 1:  # nothing shows which
                self.rank, self.values = None, dict.fromkeys(self.values, ())
        else:
            self.rank = max(len(self.values[name]) for name in _BY_DIMENSION) or None

    def _without_padding(self) -> int:
        """Return the rank less trailing dimensions of extent, box and stride that only pad."""
        dims, box = self.values["global_dim"], self.values["box_dim"]
        strides = self.values["global_strides"]
        first = max(0, len(strides) - MAX_RANK + 1)  # 1 where the size of an element stands first
        rank = MAX_RANK
        while rank > 1:
            entries = {*dims[rank - 1 : rank], *box[rank - 1 : rank]}
            stride = strides[first + rank - 2 :][:1]
            if entries not in ({0}, {1}) or stride not in ((), (0,)):
                break
            rank -= 1
        return rank

    def _fit(self, name: str, rank: int) -> None:
        """Drop entries past the rank; a list that does not fit it is not read."""
        values, shown = self.values[name], self.fields.get(name)
        if not values:
            return
        whole = name not in self.entries and not self.form.garbage
        short = len(values) < rank
        closed = short and whole and shown is not None and shown.value.bracket
        if closed or not (short or self.block.is_call or self._could_have(name, rank)):
            self.values[name] = self._refuse(name, f"has not {rank} entries")
            return
        if short:
            shows = f"{name} shows {len(values)} of {rank} entries for rank {rank}"
            self.notes.append(f"{shows}: the others are not known")
        self.values[name] = (*values, *(None,) * (rank - len(values)))[:rank]

    # -- strides ---------------------------------------------------------------------------------

    def _fit_strides(self, rank: int) -> None:
        """Drop the size of an element and padding, turn elements into bytes."""
        raw = not self.values["global_strides"]
        name = "raw_strides" if raw else "global_strides"
        values = self.values[name]
        self.values["global_strides"] = values
        if not values:
            return
        shown = self.fields.get(name) or next(f for f in self.block.fields if f.argument == name)
        self.unit = shown.unit
        general = self.form is GENERAL and not {*self.block.words} & DRIVERS_OWN
        if general and not self.unit and len(values) <= rank:
            self._turn()
        values = self.values["global_strides"]
        fits = self.block.is_call or (general and len(values) == rank - 1)
        leading = self.form.leading or raw or shown.key == CUTE_STRIDES
        if not fits and not self._drop_extra(leading, rank):
            why = f"has {counted(len(values), 'entry')} for rank {rank}"
            self.values["global_strides"] = self._refuse(name, why)
        if self.unit == "elements" or (self.form.elements and not self.unit):
            self._scale()
        values = self.values["global_strides"]
        if values:
            missing = (None,) * (rank - 1 - len(values))
            self.values["global_strides"] = (*values, *missing)[: rank - 1]

    def _drop_extra(self, leading: bool, rank: int) -> bool:
        """Drop entries that are not the driver's; return whether the rest is."""
        values = self.values["global_strides"]
        count, size = len(values), self.bits and self.bits // 8
        shows_size = not self.form.words and values[:1] and values[0] in (1, 2, 4, 8, size)
        if count in (rank, MAX_RANK) and (leading or shows_size):
            if values[0] not in ((0, size, self.unit == "elements") if size else (0, 1, 2, 4, 8)):
                return False
            if not size and values[0] and self.unit != "elements":
                self.element_bytes, self.bits = values[0], 8 * values[0]
            values = values[1:]
        elif count == rank and self.form.name == "Triton":  # a stride past the last dimension
            before, last = (size, *values)[-2:]
            extent = (*self.values["global_dim"], *(None,) * rank)[rank - 1]
            if before is None or extent is None or before * extent != last:
                return False
            values = values[:-1]
        self.values["global_strides"] = values
        if len(values) < rank - 1 and "global_strides" not in self.entries:
            shown = self.fields.get("global_strides")
            return (not leading and not (shown and shown.value.bracket)) or len(values) == 1
        rest = values[rank - 1 :]
        padding = self.form.garbage or all(v in (0, None) for v in rest)
        padded = self.form.padded or count > rank
        return not rest or (padding and padded and len(values) in (MAX_RANK - 1, MAX_RANK))

    def _scale(self) -> None:
        """Turn strides in elements into bytes."""
        values = self.values["global_strides"]
        if values and not self.bits:
            self.notes.append("strides are in elements, and the size of an element is not shown")
        bits = self.bits or 0
        bytes_ = tuple(None if s is None else s * bits // 8 for s in values)
        self.values["global_strides"] = bytes_ if bits else ()

    def _turn(self) -> None:
        """Turn lists that show by themselves that they are row-major, or in elements.

        They do where the strides have one entry per dimension with a 1 (or the size of an element)
        at the inner end, or where they are those of a dense tensor in one order and unit alone.
        Else they are taken as the driver's: innermost first, in bytes.
        """
        strides, dims = self.values["global_strides"], self.values["global_dim"]
        if None in (*strides, *dims) or not dims:
            return
        size = self.bits and self.bits // 8
        if len(strides) == len(dims) > 1:
            inner = (1, size)
            if strides[-1] in inner and strides[0] not in inner:
                self._reverse()
                self.notes.append("lists are row-major here: the last stride is that of an element")
                strides = strides[::-1]
            self.values["global_strides"] = strides[1:] if strides[0] in inner else ()
            if strides[0] == 1 and size != 1:
                self._scale()
        for reverse in (False, True) if size and len(strides) == len(dims) - 1 else ():
            for factor in (1, size):
                step = -1 if reverse else 1
                bytes_ = tuple((s or 0) * (factor or 0) for s in strides[::step])
                if 0 in dims or bytes_ != _dense(dims[::step], size or 0):
                    continue
                if reverse:
                    self._reverse()
                self.values["global_strides"] = bytes_
                if reverse or factor != 1:
                    order, unit = "row-major " * reverse, "in elements " * (factor != 1)
                    self.notes.append(f"lists are {order}{unit}here: a dense tensor")
                return

    def _reverse(self) -> None:
        for name in (*_BY_DIMENSION, "global_strides"):
            self.values[name] = self.values[name][::-1]


def _index(words: str) -> int:
    try:
        return int(words, 0)
    except ValueError:
        return -1


def _dense(dims: Entries, size: int) -> Entries:
    steps = accumulate((extent or 0 for extent in dims), mul, initial=size)
    return tuple(steps)[1:-1]
