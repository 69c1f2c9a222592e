"""Check printed arguments against the rules; skip rules on arguments that are not printed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tma_dlpack.checks.check import find_violations
from tma_dlpack.checks.parse import read_driver_call
from tma_dlpack.checks.report import Report
from tma_dlpack.cli.explain.printed import Entries, PrintedArguments
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.errors import Advice, Violation
from tma_dlpack.tables.limits import STRIDE_BYTES_END
from tma_dlpack.tables.targets import Target

_ALIGNED = 1 << 32  # an address that no rule minds
_STRIDE = re.compile(r"global_strides\[(\d)\]")
#: Arguments of `driver_encode_*` where they have another name than in `TensorMap`.
_CALL_NAMES = {"data_type": "tensor_data_type", "rank": "tensor_rank"}
#: Values that no rule minds, for arguments that are not shown.
_HARMLESS = {
    "interleave": 0,
    "swizzle": 0,
    "l2_promotion": 0,
    "oob_fill": 0,
    "global_address": _ALIGNED,
    "channels_per_pixel": 16,
    "pixels_per_column": 1,
    "mode": 0,
}


@lru_cache(maxsize=4096)
def judge(read: PrintedArguments, implied: tuple[tuple[str, int], ...], target: Target) -> Report:
    """Hold printed arguments against the driver's rules for a target.

    Where the type is not shown, a rule counts if it is broken with every type of the printed
    element size, in the same words. Findings about arguments that are not shown are left out: they
    would be about values that nobody printed.
    """
    common: dict[Violation, None] | None = None
    for data_type in _types(read):
        found = dict.fromkeys(_violations(read, dict(implied), data_type, target))
        common = found if common is None else {v: None for v in common if v in found}
    violations = tuple(_named(v, read) for v in common or ())
    return Report(violations, _advice(read))


def _types(read: PrintedArguments) -> list[Any]:
    if read.data_type is not None:
        return [read.data_type]
    size = read.element_bytes
    fitting = [
        t for t in TensorMapDataType if size is None or DATA_TYPES[t].element_bits == size * 8
    ]
    return [t for t in fitting if not DATA_TYPES[t].is_packed] or fitting


def _violations(
    read: PrintedArguments, implied: Mapping[str, int], data_type: Any, target: Target
) -> list[Violation]:
    """Give what is broken among the arguments that are shown or implied, with one type."""
    given = _given(read, implied, data_type)
    known = {_CALL_NAMES.get(name, name) for name in {*read.shown(), *implied}} | {"target"}
    if read.kind == "im2col_wide":
        known |= {"pixel_box_lower_corner_width", "pixel_box_upper_corner_width"}
    violations: list[Violation] = []
    for _ in range(len(given)):
        found = find_violations(read_driver_call(read.kind, given, target))
        unreadable = [v for v in found if v.rule == "ARGUMENT"]
        violations += [v for v in found if v.argument in known]
        if not unreadable:
            break
        harmless = _given(PrintedArguments(kind=read.kind, rank=given["tensor_rank"]), {}, 0)
        for violation in unreadable:  # not a member of the enum: check the others without it
            given[violation.argument] = harmless[violation.argument]
    return violations


def _given(read: PrintedArguments, implied: Mapping[str, int], data_type: Any) -> dict[str, Any]:
    """Give the arguments of the call, with harmless values for those that are not shown."""
    rank = read.rank
    if rank is None:
        strides = 0 if read.global_strides is None else len(read.global_strides) + 1
        rank = max(strides, len(read.global_dim or ()), len(read.box_dim or ()))
        rank = rank or (1 if read.kind == "tiled" else 3)
    count = min(max(rank, 0), 16)

    def option(name: str) -> int:
        shown = getattr(read, name, None)
        return int(shown if shown is not None else implied.get(name, _HARMLESS[name]))

    given: dict[str, Any] = {
        "tensor_data_type": int(data_type),
        "tensor_rank": rank,
        "global_address": option("global_address"),
        "global_dim": _filled(read.global_dim, 1, count),
        "global_strides": _filled(read.global_strides, 0, count - 1),
        "element_strides": _filled(read.element_strides, 1, count),
        **{name: option(name) for name in ("interleave", "swizzle", "l2_promotion", "oob_fill")},
    }
    if read.kind == "tiled":
        given["box_dim"] = _filled(read.box_dim, 1, count)
        if read.box_dim is None and count:
            given["box_dim"] = (16, *given["box_dim"][1:])
        return given
    given["channels_per_pixel"] = option("channels_per_pixel")
    given["pixels_per_column"] = option("pixels_per_column")
    for which in ("lower", "upper"):
        corner = getattr(read, f"pixel_box_{which}_corner")
        if read.kind == "im2col":
            given[f"pixel_box_{which}_corner"] = _filled(corner, 0, count - 2)
        else:
            given[f"pixel_box_{which}_corner_width"] = _filled(corner, 0, 1)[0]
    if read.kind == "im2col_wide":
        given["mode"] = 0
    return given


def _filled(entries: Entries | None, harmless: int, count: int) -> tuple[int, ...]:
    shown = () if entries is None else entries
    values = tuple(harmless if entry is None else entry for entry in shown)
    return values + (harmless,) * max(0, count - len(values))


# -- words ----------------------------------------------------------------------------------------


def _named(violation: Violation, read: PrintedArguments) -> Violation:
    """Say of a stride that it belongs to a dimension of extent 1, or that a product overflowed."""
    entry = _STRIDE.search(violation.found)
    if entry is None or not violation.rule.startswith("STRIDE") or read.global_strides is None:
        return violation
    place = int(entry[1])
    found, fix = violation.found, violation.fix
    stride = read.global_strides[place] if place < len(read.global_strides) else None
    overflow = _overflow(stride)
    if overflow:
        found += f" ({overflow})"
        fix = f"compute the stride in 64 bits; {fix}"
    dims = read.global_dim or ()
    if place + 1 < len(dims) and dims[place + 1] == 1:
        found += f", the stride of dimension {place + 1}, which has extent 1 and never uses it"
        fix = (
            "pass any multiple of 16 bytes below 2^40 for it, such as the bytes that the inner "
            "dimensions span"
        )
    return dataclasses.replace(violation, found=found, fix=fix)


def _overflow(stride: int | None) -> str:
    """Say how a stride came to be, where it is a negative number in disguise.

    A negative count of elements times their bits, divided by 8 in unsigned 64 bits, is just below
    2^61; times their bytes, just below 2^64.

    >>> _overflow(2305843007066210304)
    '2^61 - 2147483648: a negative stride, as a 32-bit product that overflowed gives it'
    """
    if stride is None or stride < STRIDE_BYTES_END:
        return ""
    for bits in (61, 64):
        under = (1 << bits) - stride
        if 0 < under <= 1 << 42:
            came = "a negative stride, as a 32-bit product that overflowed gives it"
            return f"2^{bits} - {under}: {came}"
    return ""


def _advice(read: PrintedArguments) -> tuple[Advice, ...]:
    if read.global_address != 0:
        return ()
    return (
        Advice(
            rule="ADDRESS_NULL",
            argument="global_address",
            found="global_address is 0",
            limit="drivers of 2023 refuse it, and a copy through such a map faults; today's driver "
            "encodes it",
            fix="make no map of an empty tensor, or of an operand that the kernel does not have "
            "(a void C)",
            source="measured, H200, driver 580.159.04; NVIDIA/cutlass#947",
        ),
    )
