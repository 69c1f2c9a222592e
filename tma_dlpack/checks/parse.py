"""Parse the arguments of a call into a `Request`: enums and integers, innermost first.

An unreadable argument becomes a Violation in `Request.unreadable`. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tma_dlpack.checks.layout import described, omitted_strides
from tma_dlpack.checks.options import RULE_SETS, Options, mask_of
from tma_dlpack.checks.reader import Reader
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.abi import RareOptions
from tma_dlpack.tables.arguments import NO_SWIZZLE, OPTION_NAMES, RARE_OPTIONS, MapKind
from tma_dlpack.tables.coerce import counted, shown
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.errors import Violation, argument_violation
from tma_dlpack.tables.limits import MAX_RANK
from tma_dlpack.tables.targets import TARGETS, Target


def read_call(
    kind: MapKind,
    view: TensorView | None,
    address: int,
    given: Mapping[str, Any],
    target: Target,
    target_is_assumed: bool,
    refused: tuple[Violation, ...] = (),
) -> Request:
    """Read a `make_*` call on a tensor.

    Parameters
    ----------
    kind : MapKind
    view : TensorView or None
        The tensor's layout, at address 0 and without owner, so that the request can be kept; None
        where the tensor itself was refused, and `refused` says why.
    address : int
        Of the tensor's first element.
    given : mapping
        The keyword arguments of the call, row-major.
    target : Target
    target_is_assumed : bool
        Whether the target is a default because no driver is available.
    refused : tuple of Violation
        What was refused before the arguments were read.
    """
    read = Reader(given, kind)
    place = {} if view is None else {o.name: read.rare(o) for o in RARE_OPTIONS if o.name in _PLACE}
    view = read.view = _as_described(read, view, RareOptions(**place))
    if view is not None:
        address += view.offset_bytes
    choices = RULE_SETS[kind]
    rules = read.word("rules", choices) or choices[0]
    allowed = read.rule_ids("allow")
    asked_type = None
    if given["data_type"] is not None:
        asked_type = read.member("data_type", TensorMapDataType)
    enums = read.enums(OPTION_NAMES)
    tile = read.tile(kind, read.row_major)
    elem_strides = None if given["elem_strides"] is None else read.row_major("elem_strides")
    if refused and refused[-1].argument == "target":  # "SM90", 90, (9, 0)
        digits = "".join(re.findall(r"\d", shown(given["target"])))
        if f"sm_{digits}" in TARGETS:
            read.proposals["target"] = f"sm_{digits}"
    rare = {o.name: read.rare(o) for o in RARE_OPTIONS if o.name not in _PLACE}
    options = Options(
        driver_rules=rules == "driver",
        asked_type=-1 if asked_type is None else asked_type,
        has_swizzle=given["swizzle"] is not NO_SWIZZLE,
        allowed=mask_of(allowed),
        elem_strides=elem_strides,
        rare=RareOptions(**place, **rare),
        **enums,
        **tile,
    )
    return Request(
        kind=kind,
        options=options,
        view=view,
        address=address,
        target=target,
        target_is_assumed=target_is_assumed,
        unreadable=(*refused, *read.unreadable),
        proposals=read.proposals,
    )


#: The rare options that describe the tensor's memory in another way.
_PLACE = ("shape", "strides", "offset")


def _as_described(read: Reader, view: TensorView | None, rare: RareOptions) -> TensorView | None:
    """Return the view that `shape=`, `strides=` and `offset=` describe; None if unreadable.

    Omitted strides mean the tensor's own strides or row-major strides. If both are possible and
    differ, the call is refused as ambiguous.
    """
    if view is None or read.unreadable:
        return None
    bits = view.dtype.itemsize_bits
    if rare.strides is not None:
        rank, shape = len(rare.strides), view.shape if rare.shape is None else rare.shape
        if rank != len(shape):
            read.refuse(
                "strides",
                f"has {counted(rank, 'entry')}",
                f"have {len(shape)}, one per dimension of the shape",
                f"give one stride per dimension, in elements, for the shape {shape}",
            )
    elif rare.shape is not None:
        _refuse_ambiguous(read, view, rare.shape)
    if rare.offset * bits % 8:
        read.refuse(
            "offset",
            f"is {rare.offset}, {counted(Fraction(rare.offset * bits, 8), 'byte')}",
            "be a whole number of bytes",
            "use a multiple of 2 elements",
        )
    return None if read.unreadable else described(view, rare)


def _refuse_ambiguous(read: Reader, view: TensorView, shape: tuple[int, ...]) -> None:
    """Refuse omitted strides if more than one meaning, or none, is possible."""
    choices = omitted_strides(view, shape)
    if len(choices) == 1:
        return
    row_major = canonical_strides(shape, row_major_strides(shape), view.dtype.itemsize_bits)
    fix = f"pass strides={row_major} for rows without gaps"
    if choices:
        fix = f"pass strides={view.strides}, which are the tensor's own, or {row_major}, row-major"
    must = f"be given for the shape {shape}"
    violation = argument_violation("strides", "strides are ambiguous", must, fix)
    read.unreadable.append(violation)


def read_driver_call(kind: MapKind, given: Mapping[str, Any], target: Target) -> Request:
    """Parse a `driver_encode_*` call: the driver's names, innermost first.

    As in C, array entries past the rank are ignored.
    """
    read = Reader(given)
    rank = read.integer("tensor_rank") or 0

    def array(name: str, fewer: int = 0) -> tuple[int, ...]:
        count = max(0, rank - fewer)
        least = count if rank <= MAX_RANK else 0  # a rank that is too large has its own rule
        return read.array(name, count, least)

    def row_major(name: str, fewer: int = 0) -> tuple[int, ...]:
        return array(name, fewer)[::-1]

    data_type = read.member("tensor_data_type", TensorMapDataType) or TensorMapDataType.UINT8
    enums = read.enums(OPTION_NAMES.values())
    global_dim = array("global_dim")
    global_strides = array("global_strides", fewer=1)
    elem_strides = row_major("element_strides")
    address = read.integer("global_address") or 0
    tile = read.tile(kind, row_major)
    return Request(
        kind=kind,
        options=Options(elem_strides=elem_strides, **enums, **tile),
        layout=(data_type, global_dim, global_strides),
        rank=rank,
        view=None,
        address=address,
        target=target,
        is_driver_call=True,
        unreadable=tuple(read.unreadable),
    )
