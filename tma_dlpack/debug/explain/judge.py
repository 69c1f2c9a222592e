"""The printed arguments of an encode, and their check against the driver's rules.

If a printout lacks arguments, several driver calls are possible. This module has no rules of its
own, so it passes each possible call to `check_driver_call`. Rules that need an unknown argument are
skipped.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any

from tma_dlpack.debug.core import (
    CORNERS,
    MapKind,
    advice,
    check_driver_call,
    dtypes,
    errors,
    public,
    targets,
    tma,
)
from tma_dlpack.debug.explain.words import ARRAYS, Entries

# -- the arguments of one encode -----------------------------------------------------------------

COMMON = ("data_type", "rank", "global_address", "global_dim", "global_strides")
COLUMN = (*CORNERS, "channels_per_pixel", "pixels_per_column")
OPTIONS = ("element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill")


def arguments_of(kind: MapKind) -> tuple[str, ...]:
    """Return the names of an encode's arguments for one kind of map, in the driver's order."""
    tile = ("box_dim",) if kind == "tiled" else COLUMN
    return (*COMMON, *tile, *OPTIONS)


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class PrintedArguments:
    """The arguments of one encode, as read from a printout by `explain`.

    The attributes are named as in `TensorMap`. Arrays begin with the innermost dimension,
    and `global_strides` has the strides of dimensions 1 to rank - 1 in bytes. If the printout uses
    another order or unit, its values are converted. An argument or a list's entry is None if it is
    not printed or cannot be read with certainty. A number that is not a member of its enum stays an
    int.

    Attributes
    ----------
    kind : {"tiled", "im2col", "im2col_wide"}
    data_type, rank, global_address, global_dim, global_strides, box_dim, element_strides, \
interleave, swizzle, l2_promotion, oob_fill
        As in `TensorMap`.
    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column
        For im2col maps; None for tiled maps.
    element_bytes : int or None
        Size of one element in bytes, if the printout shows this size.
    printed_by : str
        The project whose format the printout has; "" if the format is not known.
    lines : (int, int)
        The printout's first and last line in the text, counted from 1.
    implied : mapping
        Arguments that the project in `printed_by` always passes and never prints, according to its
        source code. These arguments are checked too.
    inferred : tuple of str
        Arguments that are not printed but follow from other arguments, such as the rank, which
        follows from the lengths of the lists.
    """

    kind: MapKind = "tiled"
    data_type: tma.TensorMapDataType | int | None = None
    rank: int | None = None
    global_address: int | None = None
    global_dim: Entries | None = None
    global_strides: Entries | None = None
    box_dim: Entries | None = None
    element_strides: Entries | None = None
    interleave: tma.TmaInterleaveLayout | int | None = None
    swizzle: tma.TmaSwizzle | int | None = None
    l2_promotion: tma.TmaL2FetchSize | int | None = None
    oob_fill: tma.TmaOobFill | int | None = None
    pixel_box_lower_corner: Entries | None = None
    pixel_box_upper_corner: Entries | None = None
    channels_per_pixel: int | None = None
    pixels_per_column: int | None = None
    element_bytes: int | None = None
    printed_by: str = field(default="", compare=False)
    lines: tuple[int, int] = field(default=(0, 0), compare=False)
    implied: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)
    inferred: tuple[str, ...] = field(default=(), compare=False)

    def shown(self) -> dict[str, Any]:
        """Return the arguments that the printout has, by name, in the driver's order."""
        values = {name: getattr(self, name) for name in arguments_of(self.kind)}
        return {name: value for name, value in values.items() if value is not None}

    def missing(self) -> tuple[str, ...]:
        """Return the names of the arguments and entries that the printout does not show."""
        missing: list[str] = []
        for name in arguments_of(self.kind):
            value = getattr(self, name)
            if value is None and name not in self.implied:
                missing.append(name)
            elif isinstance(value, tuple):
                missing += [f"{name}[{i}]" for i, entry in enumerate(value) if entry is None]
        return tuple(missing)

    def __str__(self) -> str:
        words = ", ".join(f"{name}={_text(name, value)}" for name, value in self.shown().items())
        return f"{self.kind}: {words}"


def of_map(tensor_map: tma.TensorMap, **how: Any) -> PrintedArguments:
    """Return the arguments of a map."""
    shown = {name: getattr(tensor_map, name) for name in arguments_of(tensor_map.kind)}
    return PrintedArguments(kind=tensor_map.kind, **shown, **how)


def _text(name: str, value: object) -> str:
    if name == "global_address":
        return f"{value:#x}"
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, tuple):
        entries = ", ".join("?" if v is None else str(v) for v in value)
        return f"({entries}{',' * (len(value) == 1)})"
    return str(value)


# -- the verdict ----------------------------------------------------------------------------------


def check_printed(read: PrintedArguments, target: tma.Target) -> tma.Report:
    """Check printed arguments against the driver's rules for a target.

    Rules that need an argument or an entry that is not printed are skipped. If the data
    type or the interleave layout is not printed, the call is checked with every possible value. In
    this case, a violation is reported only if it occurs with all of these values.
    """
    return _check_printed(
        read, (read.printed_by, *sorted(read.implied.items()), *read.inferred), target
    )


@lru_cache(maxsize=4096)
def _check_printed(
    read: PrintedArguments, how: tuple[object, ...], target: tma.Target
) -> tma.Report:
    """Check arguments; cache the results, because logs repeat the same arguments.

    The comparison of two `PrintedArguments` ignores some fields on which the check depends. These
    fields are in `how`, so that the cache's key includes them.
    """
    # One dict of violations for each driver call that is possible with these arguments.
    could_be: list[dict[tuple[str, str, str], tma.Violation]] = []
    unread = frozenset(read.missing()) - {"data_type", "interleave"}
    for call in _calls(read):
        request, violations = check_driver_call(read.kind, call, target, unread)
        # If the interleave layout is not printed, keep only the layouts that break no rule about
        # `interleave`.
        if read.interleave is not None or all(v.argument != "interleave" for v in violations):
            could_be.append({_same_as(v): v for v in violations})
    first = could_be[0] if could_be else {}
    in_all = (v for key, v in first.items() if all(key in found for found in could_be))
    # If the rank is not printed but inferred from the lists, the call may have passed another rank,
    # so rules about the rank do not apply.
    found = tuple(
        _explained(violation, read)
        for violation in in_all
        if not (violation.rule.startswith("RANK") and "rank" in read.inferred)
    )
    if read.missing() or found:
        return tma.Report(
            found, advice.advise(request, advice.ADDRESS_ADVICE) if read.global_address == 0 else ()
        )
    return tma.Report((), advice.advise(request))


def _same_as(violation: tma.Violation) -> tuple[str, str, str]:
    return violation.rule.removesuffix("_INTERLEAVED"), violation.argument, violation.found


def _calls(read: PrintedArguments) -> Iterator[dict[str, Any]]:
    """Yield the possible driver calls: one per pair of a data type and an interleave layout."""
    types: list[Any] = [read.data_type]
    if read.data_type is None:
        bits = read.element_bytes and read.element_bytes * 8
        types = [
            t for t in tma.TensorMapDataType if bits in (None, dtypes.DATA_TYPES[t].element_bits)
        ]
        types = [t for t in types if not dtypes.DATA_TYPES[t].is_packed] or types or [0]
    options = (read.element_strides, read.swizzle, read.l2_promotion, read.oob_fill)
    layout = read.implied.get("interleave") if read.interleave is None else read.interleave
    if layout is None and read.printed_by == "CUTLASS" and options == (None,) * len(options):
        layout = 0  # CUTLASS always passes 0; the pasted text lacks the lines that show this 0
    layouts = [*map(int, tma.TmaInterleaveLayout)] if layout is None else [layout]
    for data_type, layout in itertools.product(types, layouts):
        yield {**_call(read), "tensor_data_type": int(data_type), "interleave": layout}


#: Placeholder for an argument that is not printed. Rules that read this argument are skipped.
UNREAD = 0


def _call(read: PrintedArguments) -> dict[str, Any]:
    """Return the arguments of the driver's call; pad each list to the length for this rank."""
    # `global_strides` has no entry for dimension 0. A 0 is inserted in its place, so that the list
    # has one entry per dimension.
    strides = () if read.global_strides is None else (0, *read.global_strides)
    rank = read.rank
    if rank is None:
        rank = max(len(shown or ()) for shown in (strides, read.global_dim, read.box_dim))
    count = min(max(rank, 0), 16)
    spatial = 1 if read.kind == "im2col_wide" else max(0, count - 2)
    lengths = {"global_strides": max(0, count - 1), **dict.fromkeys(CORNERS, spatial)}
    call: dict[str, Any] = {"mode": read.implied.get("mode", 0), "tensor_rank": rank}
    for name in arguments_of(read.kind):
        value = getattr(read, name)
        if name in ARRAYS:
            count_of = lengths.get(name, count)
            # If the argument is a list, `implied` has one value for all its entries, such as an
            # element stride of 1.
            every = read.implied.get(name, UNREAD)
            entries = [every if entry is None else entry for entry in value or ()]
            call[name] = (*entries, *[every] * (count_of - len(entries)))
        else:
            call[name] = read.implied.get(name, UNREAD) if value is None else value
    for corner in CORNERS:
        call[f"{corner}_width"] = next(iter(call.get(corner, ())), UNREAD)
    return call


# -- words ----------------------------------------------------------------------------------------


_ENTRY = re.compile(r"(\w+)\[(\d)\]")


def _explained(violation: tma.Violation, read: PrintedArguments) -> tma.Violation:
    """Return the violation, with more details if a stride overflowed or is never used.

    A stride is never used if its dimension has extent 1.
    """
    entry = _ENTRY.search(violation.found)
    if entry is None or not violation.rule.startswith("STRIDE") or read.global_strides is None:
        return violation
    place = int(entry[2])
    found, fix = violation.found, violation.fix
    # The message may name a stride that is not printed, so pad the printed strides with None.
    overflow = _overflow((*read.global_strides, *(None,) * targets.MAX_RANK)[place])
    if overflow:
        found += f" ({overflow})"
        fix = f"compute the stride in 64 bits; {fix}"
    if (read.global_dim or ())[place + 1 : place + 2] == (1,):
        found += f", the stride of dimension {place + 1}, which has extent 1 and never uses it"
        fix = (
            "pass any multiple of 16 bytes below 2^40 for it, such as the bytes that the inner "
            "dimensions span"
        )
    return dataclasses.replace(violation, found=found, fix=fix)


def _overflow(stride: int | None) -> str:
    """Return a description of a stride's overflow, or "" if the stride did not overflow.

    A stride overflows if a program converts a negative number of elements to unsigned 64 bits. If
    the program multiplied this number by the size of an element in bytes, the stride is just below
    2^64. If the program multiplied the number by the size in bits, and then divided by 8, the
    stride is just below 2^61.

    >>> _overflow(2305843007066210304)
    '2^61 - 2147483648: a negative stride, as a 32-bit product that overflowed gives it'
    """
    for bits in (61, 64):
        less = (1 << bits) - (stride or 0)
        if 0 < less <= 1 << 42:
            came = "a negative stride, as a 32-bit product that overflowed gives it"
            return f"2^{bits} - {less}: {came}"
    return ""
