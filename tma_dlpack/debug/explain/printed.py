"""Converter of the fields of a printout to the driver's arguments.

A field is one ``name = value`` of a printout, and a block has the fields of one printout (read.py).
A form describes how one project prints the arguments (words.py). Lists are converted to the
driver's order, unit and length.

A list is not read if its length fits neither the rank nor the other lists. It is also not read if
the printing project is known and never prints such a list. An entry is not read if the log hides
its digits, as in ``40**``. A value that is not read is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from typing import Any, Final

from tma_dlpack.debug.core import CORNERS, MapKind, counted, dtypes, targets, tma
from tma_dlpack.debug.explain.judge import COLUMN, OPTIONS, PrintedArguments, arguments_of
from tma_dlpack.debug.explain.read import Block, Field, form_of
from tma_dlpack.debug.explain.words import ARRAYS, DRIVERS_OWN, GENERAL, Entries, Form, member_of

# Argument -> its field; None if the block has fields with different values for this argument.
Fields = Mapping[str, Field | None]

_BY_DIMENSION: Final = ("global_dim", "box_dim", "element_strides")


def printed_arguments(block: Block) -> tuple[PrintedArguments, list[str]]:
    """Return the driver's arguments that a block shows, and notes about unread values."""
    form = form_of(block)
    fields = {name: _chosen(name, block, form) for name in block.arguments()}
    numbers = {
        name: found.value.numbers[0]
        for name, found in fields.items()
        if found and len(found.value.numbers) == 1 and not found.value.fault
    }
    kind = _kind(block)
    # Argument -> the printed member of its enum. `OPTIONS[0]`, element_strides, is skipped because
    # it is a list.
    members = {name: _member(name, fields.get(name)) for name in (*OPTIONS[1:], "data_type")}
    if (
        members["oob_fill"] is None
    ):  # Triton calls this argument "padding"; 1 means NaN, as in the driver
        members["oob_fill"] = _member("oob_fill", fields.get("padding"))
    if numbers.get("swizzle_base") == 32:  # DeepGEMM prints the swizzle's atom size in bytes
        members["swizzle"] = tma.TmaSwizzle.bytes128_atom_32B
    lists = _Lists(block, form, fields, numbers, members["data_type"])
    if block.is_cut:
        lists.notes.append("the printout is cut off; paste the rest")
    faulty = {f.word for f in block.fields if f.value.fault not in ("", "address", "cut")}
    if faulty:
        why = "a number of it is masked, broken or in another unit"
        lists.notes.append(f"not read, for {why}: {', '.join(sorted(faulty))}")
    values: dict[str, Any] = {name: entries or None for name, entries in lists.values.items()}
    values |= {name: numbers.get(name) for name in ("global_address", *COLUMN[2:])}
    # In the mode im2col::w, each corner of the pixel box is one number, which `PrintedArguments`
    # has as a tuple of one entry.
    for corner in CORNERS:
        if (width := numbers.get(f"{corner}_width")) is not None:
            values[corner] = (width,)
    if lists.rank == 1:
        values["global_strides"] = ()
    read = PrintedArguments(
        kind=kind,
        rank=lists.rank,
        element_bytes=lists.element_bytes,
        printed_by=form.name,
        lines=(block.first_line, block.last_line),
        implied={n: v for n, v in form.implied.items() if n not in fields},
        inferred=("rank",) if lists.infers_rank else (),
        **members,
        **{name: values[name] for name in arguments_of(kind) if name in values},
    )
    return read, lists.notes


def _chosen(name: str, block: Block, form: Form) -> Field | None:
    """Return the field that shows an argument, or None if no field shows it with certainty.

    A strong word names the argument in nearly all logs, and a weak word has other meanings too. A
    field with a weak word is used only if it is printed in the same style as other arguments. If
    the form of the block is unknown, such a field is used only if the argument has no field with a
    strong word. If the fields that remain have different values, the result is None.
    """
    own = [f for f in block.fields if f.argument == name and f.place is None]
    strong = [f for f in own if f.strong]
    if form.words or not strong:
        others = [f for f in block.fields if f.argument != name and (f.strong or form.words)]
        own = [f for f in own if f.strong or _is_alike(f, others, form)]
    else:
        own = strong
    return own[0] if own and all(f.value[:3] == own[0].value[:3] for f in own) else None


def _is_alike(found: Field, others: list[Field], form: Form) -> bool:
    """Return whether a field with a weak word is printed in the same style as other arguments.

    If the form of the block is known, the word and the brackets are compared. Otherwise, the case
    of the word is compared, and the sign between the word and the value.
    """
    if form.words:
        # The word must belong to the form, and the list after the word must have the same kind of
        # brackets as the other lists.
        brackets = {f.value.bracket for f in others if f.argument in ARRAYS and f.value.numbers}
        fits = not (found.argument in ARRAYS and brackets) or found.value.bracket in brackets
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
    # A value may be printed as a name and a number, such as "BFLOAT16 (9)". If the name and the
    # number mean different members, the value is not read.
    values = [*([shown.value.word] if shown.value.word else []), *shown.value.numbers]
    members = {member_of(name, value) for value in values if value is not None}
    return members.pop() if len(members) == 1 else None


class _Lists:
    """The lists of a block, converted to the driver's order, units and lengths.

    `values` maps each argument to its list, or to () if the list is not read. `rank` comes from the
    printout or from the lists, and is None if neither shows the rank. `size` is the number of bytes
    of an element.
    """

    def __init__(
        self, block: Block, form: Form, fields: Fields, numbers: dict[str, Any], data_type: Any
    ) -> None:
        self.block, self.form, self.fields = block, form, fields
        # Arguments whose entries are printed one by one, as in box_dim[0] = 64.
        self.entries = {f.argument for f in block.fields if f.place is not None}
        self.notes: list[str] = []
        size = numbers.get("element_bytes")
        self.element_bytes: int | None = size if size in (1, 2, 4, 8) else None
        self.size = self.element_bytes
        if isinstance(data_type, tma.TensorMapDataType):
            self.size = dtypes.DATA_TYPES[data_type].element_bits // 8 or None
        self.values: dict[str, Entries] = {name: self._shown(name) for name in sorted(ARRAYS)}
        self.rank: int | None = numbers.get("rank")
        self._read_entries()
        self.infers_rank = not self._trusts(self.rank)
        if self.infers_rank:
            if self.rank is not None:
                self._refused("rank", f"is {self.rank}, which does not fit the lists")
            self.rank = self._inferred_rank()
        for name in CORNERS:
            self.values[name] = self.values[name][: max(0, (self.rank or targets.MAX_RANK) - 2)]
        if self.rank is None or not 0 < self.rank <= 2 * targets.MAX_RANK:
            self.values["global_strides"] = ()
            return
        self.values["global_strides"] = self._strides(self.rank)
        for name in _BY_DIMENSION:
            self.values[name] = self._fitted(name, self.rank, self.rank)

    def _shown(self, name: str) -> Entries:
        """Return a list that is printed as a whole, or () if it cannot be read with certainty."""
        shown = self.fields.get(name)
        if shown is None:
            return ()
        if shown.value.fault == "address":
            address = f"an address ({shown.value.numbers[0]:#x})"
            self.notes.append(
                f"{shown.word} shows {address} in place of the list: print its entries"
            )
        # "4,096" may be one number or two. If another list of the block has no blanks after its
        # commas, "4,096" is two numbers.
        tight = any(f.value.comma == "tight" for f in self.block.fields if not f.value.fault)
        if shown.value.comma == "?" and not tight:
            return self._refused(name, "may have a separator of thousands")
        return () if shown.value.fault else shown.value.numbers

    def _refused(self, name: str, why: str) -> Entries:
        shown = self.fields.get(name)
        self.notes.append(f"{shown.word if shown else name} {why}: not read")
        return ()

    def _read_entries(self) -> None:
        """Read entries that are printed one by one, such as ``name[0] = 64``.

        Indices begin at 0 or 1. They begin at 1 only if the printed rank is the last index.
        """
        found: dict[str, dict[int, int | None]] = {name: {} for name in sorted(self.entries)}
        for f in self.block.fields:
            if f.place is not None:
                is_read = not f.value.fault and len(f.value.numbers) == 1
                found[f.argument][_index(f.place)] = f.value.numbers[0] if is_read else None
        first = min((i for places in found.values() for i in places if i >= 0), default=0)
        last = max((max(found[name]) for name in _BY_DIMENSION if name in found), default=0)
        for name, places in found.items():
            if (
                first not in (0, self.rank == last)
                or min(places) < 0
                or max(places) > 2 * targets.MAX_RANK
            ):
                self.values[name] = self._refused(
                    name, "has entries whose indices start at neither 0 nor 1"
                )
            else:
                self.values[name] = tuple(places.get(i) for i in range(first, max(places) + 1))

    # -- the rank --------------------------------------------------------------------------------

    def _whole(self) -> list[str]:
        return [n for n in _BY_DIMENSION if n not in self.entries and self.values[n]]

    def _fits(self, name: str, count: int, rank: int) -> bool:
        """Return whether a list has `count` entries, or `count` entries and then padding."""
        values = self.values[name]
        if len(values) <= count:
            return len(values) == count
        lengths, padding = {targets.MAX_RANK}, {0, 1, None}
        if count < rank:  # strides, which have no entry for dimension 0 and are never padded with 1
            lengths, padding = {targets.MAX_RANK - 1, targets.MAX_RANK}, {0, None}
        is_padded = "garbage" in self.form.flags or all(v in padding for v in values[count:])
        return len(values) in lengths and is_padded

    def _trusts(self, rank: int | None) -> bool:
        """Return whether a printed rank is certainly the map's rank.

        A rank can also be the number of a process, as in "rank: 9". But if its word is strong, and
        no list has brackets or as many entries, the printout shows only the lists' first entries.
        """
        whole, shown = self._whole(), self.fields.get("rank")
        if rank is None or not whole:
            return rank is not None
        fits = any(self._fits(name, rank, rank) for name in whole)
        fits |= rank > 1 and len(self.values["global_strides"]) == rank - 1
        firsts = bool(shown and shown.strong) and all(
            len(self.values[name]) < rank and not (found and found.value.bracket)
            for name, found in self.fields.items()
            if name in whole
        )
        return rank <= targets.MAX_RANK and (fits or firsts or "garbage" in self.form.flags)

    def _inferred_rank(self) -> int | None:
        """Return the rank that the lists show; if they show no rank, drop all lists."""
        whole, strides = self._whole(), self.values["global_strides"]
        if not whole:
            return max(len(self.values[name]) for name in _BY_DIMENSION) or None
        if "garbage" in self.form.flags and all(
            len(self.values[n]) == targets.MAX_RANK for n in whole
        ):
            # In this form, the entries after the map's last dimension are garbage. The rank is
            # unknown, so only the first entry of each list is certain.
            firsts = {name: self.values[name][:1] for name in whole}
            self.values = dict.fromkeys(self.values, ()) | firsts
            return None
        # Rank -> the number of lists that fit this rank.
        fits = {r: sum(self._fits(n, r, r) for n in whole) for r in range(1, targets.MAX_RANK + 1)}
        for rank in (r for r in fits if len(strides) in (targets.MAX_RANK - 1, targets.MAX_RANK)):
            if any(strides[rank + len(strides) - targets.MAX_RANK :]):
                fits[rank] = 0  # the list has strides of more dimensions than this rank
        # If several ranks fit equally well, the lowest rank is chosen. But if the only list is the
        # element strides, the highest rank is chosen, because an element stride is usually 1, which
        # looks like padding.
        fewest = -1 if whole != ["element_strides"] else 1
        best = max(fits, key=lambda r: (fits[r], fewest * r))
        if fits[best] >= min(2, len(whole)):
            return best
        self.values = dict.fromkeys(self.values, ())
        return None

    def _fitted(self, name: str, count: int, rank: int) -> Entries:
        """Return the first `count` entries of a list, or () if its length does not fit."""
        values, shown = self.values[name], self.fields.get(name)
        whole = name not in self.entries and "garbage" not in self.form.flags
        # A list in brackets is complete. If it has too few entries for the rank, it is not read.
        short = 0 < len(values) < count
        closed = short and whole and shown is not None and shown.value.bracket
        if values and (closed or not (short or self._fits(name, count, rank))):
            return self._refused(name, f"has {counted(len(values), 'entry')} for rank {rank}")
        if short:
            shows = f"{name} shows {len(values)} of {count} entries for rank {rank}"
            self.notes.append(f"{shows}: the others are not known")
        return (*values, *(None,) * (count - len(values)))[:count] if values else ()

    # -- strides ---------------------------------------------------------------------------------

    def _strides(self, rank: int) -> Entries:
        """Return the strides in bytes, without a leading element size and without padding.

        The argument "raw_strides" is a list of strides whose first entry is the size of an element.
        """
        raw = not self.values["global_strides"]
        name = "raw_strides" if raw else "global_strides"
        values = self.values[name]
        if not values:
            return ()
        shown = self.fields.get(name) or next(f for f in self.block.fields if f.argument == name)
        in_elements = shown.unit == "elements" or ("elements" in self.form.flags and not shown.unit)
        # For a known project, the form determines the order and the unit. For an unknown project
        # that prints no unit, `_turned` infers the order and the unit.
        is_general = self.form is GENERAL and not {*self.block.words} & DRIVERS_OWN
        turned = self._turned(values) if is_general and not shown.unit else None
        if turned is not None:
            values, in_elements = turned
        else:
            leading = "leading" in self.form.flags or raw
            kept = self._without_extra(values, rank, leading, in_elements)
            if kept is None:
                return self._refused(name, f"has {counted(len(values), 'entry')} for rank {rank}")
            values = kept
        self.values["global_strides"] = values
        values = self._fitted("global_strides", rank - 1, rank)
        if in_elements and not self.size:
            self.notes.append("strides are in elements, and the size of an element is not shown")
            return ()
        factor = self.size or 1 if in_elements else 1
        return tuple(None if v is None else v * factor for v in values)

    def _without_extra(
        self, values: Entries, rank: int, leading: bool, in_elements: bool
    ) -> Entries | None:
        """Return strides without a leading element size, and without a trailing size of the tensor.

        If the list has any other extra entry, the result is None.
        """
        size = self.size
        shows_size = not self.form.words and values[0] in (1, 2, 4, 8, size)
        if len(values) in (rank, targets.MAX_RANK) and (leading or shows_size):
            # If strides are in elements, the innermost stride is 1. Then `in_elements` is True, and
            # True equals 1 in Python.
            if values[0] not in ((0, size, in_elements) if size else (0, 1, 2, 4, 8)):
                return None
            # The innermost stride in bytes is the size of an element. Store this size if it is
            # unknown.
            if not size and values[0] and not in_elements:
                self.element_bytes = self.size = values[0]
            return values[1:]
        # Triton prints `rank` numbers without the innermost stride. The last number is the size of
        # the whole tensor in bytes.
        if len(values) == rank and self.form.name == "Triton":
            before, last = (size, *values)[-2:]
            extent = (*self.values["global_dim"], *(None,) * rank)[rank - 1]
            whole = before is not None and extent is not None and before * extent == last
            return values[:-1] if whole else None
        # A list of any other length is not read if its first entry is the size of an element.
        is_first = leading and values[0] in (1, 2, 4, 8)
        return None if is_first else values

    def _turned(self, strides: Entries) -> tuple[Entries, bool] | None:
        """Reverse row-major lists; return the strides and whether they are in elements.

        The order and the unit are certain in two cases. In the first case, there is one stride per
        dimension, and the innermost stride is 1 or the size of an element. In the second case, the
        tensor is dense, so its strides fit its extents in only one order and unit. The order is
        unknown if there is one stride per dimension, and neither the first nor the last stride is 1
        or the size of an element. Then the result is ``((), False)``. In all other cases, the
        result is None. The caller then reads the strides like the driver's: innermost first and in
        bytes.
        """
        dims, size = self.values["global_dim"], self.size
        if None in (*strides, *dims) or not dims or 0 in dims:
            return None
        # 1: the lists are innermost first, as in the driver; -1: they are row-major, as in PyTorch.
        for step in (1, -1):
            own, extents = strides[::step], dims[::step]
            if len(own) == len(extents) > 1 and own[0] in (1, size):
                why, found = "the last stride is the size of an element", own[1:]
                in_elements = own[0] == 1 and size != 1
            elif len(own) == len(extents) - 1 and size:
                why, found, dense = "a dense tensor", own, _dense(extents)
                in_elements = own != tuple(size * (stride or 0) for stride in dense)
                if in_elements and own != dense:
                    continue
            else:
                continue
            if step < 0:
                for name in _BY_DIMENSION:
                    self.values[name] = self.values[name][::-1]
            if step < 0 or (in_elements and found is own):
                order, unit = "row-major " * (step < 0), "in elements " * in_elements
                self.notes.append(f"lists are {order}{unit}here: {why}")
            return found, in_elements
        return ((), False) if len(strides) == len(dims) > 1 else None


def _index(words: str) -> int:
    try:
        return int(words, 0)
    except ValueError:
        return -1


def _dense(dims: Entries) -> Entries:
    """Return the strides of a dense tensor in elements, except the innermost stride."""
    return tuple(accumulate((extent or 0 for extent in dims[:-1]), mul))
