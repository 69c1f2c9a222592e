"""Functions that parse the arguments of a call into a `Request`, which holds enums and integers.

An unreadable argument becomes a `Violation` in `Request.unreadable`. The functions raise no error
for such an argument.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from fractions import Fraction
from typing import Any, TypeVar

from tma_dlpack import driver
from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.request import Request, described, omitted_strides
from tma_dlpack.checks.struct import RULE_SETS, Options, mask_of
from tma_dlpack.dlpack import Device, TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.abi import RareOptions
from tma_dlpack.tables.arguments import (
    CORNERS,
    ENUMS,
    NO_SWIZZLE,
    OPTION_NAMES,
    RARE_OPTIONS,
    MapKind,
    Option,
)
from tma_dlpack.tables.coerce import (
    INTEGER_BITS,
    address_of,
    counted,
    integer_of,
    integers_of,
    nearest_integer,
    nearest_integers,
    not_an_integer,
    shown,
    text_of,
    texts_of,
)
from tma_dlpack.tables.enums import DLDeviceType, TensorMapDataType, TensorMapIm2ColWideMode
from tma_dlpack.tables.errors import (
    TmaError,
    TmaPreconditionError,
    Violation,
    argument_error,
    argument_violation,
)
from tma_dlpack.tables.meanings import choices_of, near_name, parse
from tma_dlpack.tables.targets import (
    DEFAULT_TARGET,
    INNER_BYTES,
    MAX_ELEM_STRIDE,
    MAX_RANK,
    TARGETS,
    Target,
)


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
        The tensor's layout with address 0. The view does not refer to the tensor, so a request does
        not keep the tensor alive. None if the tensor itself was refused; `refused` has the reason.
    address : int
        The address of the tensor's first element.
    given : mapping
        The keyword arguments of the call, row-major.
    target : Target
    target_is_assumed : bool
        Whether the target is a default because no driver is available.
    refused : tuple of Violation
        Violations that were found earlier, in the tensor or in `target=`.
    """
    read = Reader(given, kind)
    # Read shape=, strides= and offset= first. They describe the tensor, and the example values in
    # messages must fit the described tensor.
    place = {} if view is None else {o.name: read.rare(o) for o in RARE_OPTIONS if o.name in _PLACE}
    view = read.view = _as_described(read, view, RareOptions(**place))
    if view is not None:
        # `offset=` may be negative, so the address may lie before the tensor.
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


#: The members of `RARE_OPTIONS` that replace the tensor's own layout.
_PLACE = ("shape", "strides", "offset")


def _as_described(read: Reader, view: TensorView | None, rare: RareOptions) -> TensorView | None:
    """Return the view that `shape=`, `strides=` and `offset=` describe.

    Return None if one of these arguments is unreadable. If `strides=` is omitted, the view has the
    tensor's own strides or row-major strides. If both are possible and differ, the call is refused
    as ambiguous.
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
    # Only elements of fewer than 8 bits can start inside a byte.
    if rare.offset * bits % 8:
        read.refuse(
            "offset",
            f"is {rare.offset}, {counted(Fraction(rare.offset * bits, 8), 'byte')}",
            "be a whole number of bytes",
            "use a multiple of 2 elements",
        )
    return None if read.unreadable else described(view, rare)


def _refuse_ambiguous(read: Reader, view: TensorView, shape: tuple[int, ...]) -> None:
    """Refuse a `shape=` without `strides=`, unless exactly one choice of strides is possible."""
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
    """Parse a `driver_encode_*` call. Its arguments have the driver's names and order.

    Like the driver, this function ignores the entries of an array after the first `rank` entries.
    """
    # A driver call has no tensor, so the Reader has no `view` and uses the examples of `_INTEGERS`.
    read = Reader(given)
    rank = read.integer("tensor_rank") or 0

    def array(name: str, fewer: int = 0) -> tuple[int, ...]:
        count = max(0, rank - fewer)
        least = count if rank <= MAX_RANK else 0  # the rule RANK refuses a larger rank
        return read.array(name, count, least)

    def row_major(name: str, fewer: int = 0) -> tuple[int, ...]:
        return array(name, fewer)[::-1]

    # UINT8 is a placeholder for an unreadable type. `or` also replaces the member of value 0, but
    # this member is UINT8 itself.
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


# -- the target and the tensor ---------------------------------------------------------------------


def request_of_tensor(
    kind: MapKind,
    view: TensorView | None,
    address: int,
    refused: tuple[Violation, ...],
    given: Mapping[str, Any],
) -> Request:
    """Read a `make_*` call. If `target=` is omitted, use the target of the tensor's device."""
    target, assumed, unreadable = _read_target(given["target"], view, address)
    return read_call(kind, view, address, given, target, assumed, refused + unreadable)


def _read_target(
    target: object, view: TensorView | None, address: int
) -> tuple[Target, bool, tuple[Violation, ...]]:
    if target is not None:
        named, unreadable = named_target(target)
        return named, False, unreadable
    if view is None:
        return DEFAULT_TARGET, False, ()
    try:
        return *target_of(view.device, address), ()
    except TmaError as error:
        no_device = argument_error(
            "target", str(error), "be known", "pass target='sm_90' or a tma.Target"
        )
        return DEFAULT_TARGET, False, no_device.violations


def named_target(target: object) -> tuple[Target, tuple[Violation, ...]]:
    """Return (target, ()) for a valid `target=`, else (default target, violations)."""
    try:
        return Target.of(target), ()  # type: ignore[arg-type]
    except TmaPreconditionError as error:
        return DEFAULT_TARGET, error.violations


def target_of(device: Device, address: int) -> tuple[Target, bool]:
    """Return the target of a tensor's device, and whether this target is only assumed.

    The target of a tensor in host memory is sm_90. Without a driver, sm_90 is also assumed for a
    CUDA tensor, and the report has advice about this assumption.
    """
    if device.is_host:
        return DEFAULT_TARGET, False
    # Without a driver, a CUDA tensor is only a description: its memory cannot be accessed.
    if not driver.is_available():
        return DEFAULT_TARGET, True
    return driver.device_target(ordinal_of(device, address)), False


def ordinal_of(device: Device, address: int) -> int:
    """Return the ordinal of a tensor's GPU."""
    # For managed memory, DLPack's device is always 0. Only the driver has the GPU's ordinal.
    if device.device_type == DLDeviceType.kDLCUDAManaged:
        owner = driver.pointer_device(address)
        if owner is not None:
            return owner
    return device.device_id


# -- one argument at a time ------------------------------------------------------------------------

AnyEnum = TypeVar("AnyEnum", bound=IntEnum)

_DEFAULTS = tuple(ENUMS[name](0) for name in OPTION_NAMES.values())
_RULE_IDS = frozenset(rule.id for rule in RULES)

# Words of a message: how many entries a sequence must have.
_PER_DIMENSION, _PER_SPATIAL = "one per dimension", "one per spatial dimension"
#: The arguments that take integers: name -> (an example value, words about its entries).
_INTEGERS: dict[str, tuple[str, str]] = {
    **{o.name: ("(1, 1)" if o.form == "integers" else "1", "") for o in RARE_OPTIONS},
    "box_sizes": ("(64, 64)", _PER_DIMENSION),
    "elem_strides": ("(1, 1)", _PER_DIMENSION),
    "shape": ("(4096, 64)", _PER_DIMENSION),
    "strides": ("(64, 1)", f"{_PER_DIMENSION}, in elements"),
    "offset": ("64", ""),
    "ragged": ("0", ""),
    "channels_per_pixel": ("64", ""),
    "pixels_per_column": ("128", ""),
    "pixel_box_lower_corner": ("(-1, -1)", _PER_SPATIAL),
    "pixel_box_upper_corner": ("(-1, -1)", _PER_SPATIAL),
    "lower_corner_width": ("-1", ""),
    "upper_corner_width": ("-1", ""),
    "pixel_box_lower_corner_width": ("-1", ""),
    "pixel_box_upper_corner_width": ("-1", ""),
    "tensor_rank": ("2", ""),
    "global_address": ("0x7f0000000000", ""),
    "global_dim": ("(4096, 4096)", _PER_DIMENSION),
    "global_strides": ("(8192,)", "one per dimension but the innermost, in bytes"),
    "box_dim": ("(64, 64)", _PER_DIMENSION),
    "element_strides": ("(1, 1)", _PER_DIMENSION),
}


#: Arguments whose example value `Reader._example` computes from the tensor.
_FITTED = {"box_sizes", "elem_strides", *CORNERS}


class Reader:
    """A reader of a call's arguments, which collects a violation for each unreadable argument.

    Most methods return None for an unreadable argument. `proposals` maps an unreadable argument to
    a readable value with the same meaning. An ambiguous argument has no proposal. `Report.fixed`
    then returns None, because any value could change the meaning of the call.
    """

    def __init__(self, given: Mapping[str, Any], kind: MapKind = "tiled") -> None:
        self.given = given
        self.kind = kind
        self.view: TensorView | None = None  # the tensor that example values must fit
        self.unreadable: list[Violation] = []
        self.proposals: dict[str, Any] = {}

    def refuse(
        self, argument: str, found: str, must: str, fix: str, proposal: object = None
    ) -> None:
        """Add the violation of an unreadable argument, and the `proposal` unless it is None."""
        if proposal is not None:
            self.proposals[argument] = proposal
        self.unreadable.append(argument_violation(argument, f"{argument} {found}", must, fix))

    def member(
        self, argument: str, enum: type[AnyEnum], default: AnyEnum | None = None
    ) -> AnyEnum | None:
        """Read an argument that is a member of `enum`, a member's name or a member's value.

        Return `default` if the argument is none of them.
        """
        value = self.given[argument]
        member = parse(enum, value)
        if member is None:
            must = f"be a {enum.__name__}, its name or its value"
            near = near_name(enum, value)
            self.refuse(argument, f"is {shown(value)}", must, choices_of(enum, value), near)
            return default
        return member

    def enums(self, names: Iterable[str]) -> dict[str, Any]:
        """Read the four options whose values are enums, by their `names` in the call.

        An unreadable option becomes the member of value 0.
        """
        rows = zip(OPTION_NAMES.values(), names, _DEFAULTS, strict=True)
        return {field: self.member(name, type(usual), usual) for field, name, usual in rows}

    def integer(self, argument: str) -> int | None:
        value, is_address = self.given[argument], argument == "global_address"
        number = address_of(value) if is_address else integer_of(value)
        # `ragged` names a dimension, so ragged=True is a likely mistake with a message of its own.
        if number is None and argument == "ragged" and type(value) is bool:
            must = "be the dimension that is cut into slices, an int"
            fix = "name the dimension: ragged=0 for the rows" if value else "omit ragged"
            self.refuse(argument, f"is {value}", must, fix)
        elif number is None:
            self.refuse(
                argument,
                f"is {shown(value)}",
                f"be an int of at most {INTEGER_BITS} bits" if _is_long(value) else "be an int",
                f"pass an int, such as {_INTEGERS[argument][0]}",
                None if is_address else nearest_integer(value),
            )
        return number

    def integers(self, argument: str) -> tuple[int, ...] | None:
        """Read a sequence of integers without changing its order."""
        value = self.given[argument]
        numbers = integers_of(value)
        if numbers is None:
            wrong, meant = not_an_integer(value), nearest_integers(value)
            example, entries = self._example(argument), _INTEGERS[argument][1]
            hint = "" if meant is None else f"; did you mean {meant}?"
            self.refuse(
                argument,
                f"is {shown(value)}" + (f", where {wrong}" if wrong else ""),
                f"be a sequence of ints, {entries}",
                f"pass a tuple of ints, such as {example}{hint}",
                meant,
            )
        return numbers

    def _example(self, argument: str) -> str:
        """Return an example value that fits the tensor.

        If `elem_strides` is a single number in an im2col call, the number is likely the stride of a
        convolution. The example then repeats this number for each spatial dimension.
        """
        example, entries = _INTEGERS[argument]
        if self.view is None or not self.view.shape or argument not in _FITTED:
            return example
        rank, shape = len(self.view.shape), self.view.shape
        if entries == _PER_SPATIAL:
            return str((-1,) * max(0, rank - 2))
        if argument == "elem_strides":
            step = integer_of(self.given[argument])
            if step is None or not 1 <= step <= MAX_ELEM_STRIDE or self.kind == "tiled":
                return str((1,) * rank)
            return str((1, *(step,) * (rank - 2), 1))
        # A box of up to 64 x 64 elements whose row is a multiple of 16 bytes.
        unit = max(1, INNER_BYTES * 8 // self.view.dtype.itemsize_bits)
        rows = (min(shape[-2], 64),) if rank > 1 else ()
        inner = max(unit, min(shape[-1], 64) // unit * unit)
        return str((*(1,) * (rank - 2), *rows, inner))

    def row_major(self, argument: str, fewer: int = 0) -> tuple[int, ...]:
        """Read a sequence; return () if it is unreadable.

        `tile` passes `fewer`. It has no effect here, because rules check the number of entries.
        """
        return self.integers(argument) or ()

    def array(self, argument: str, count: int, least: int) -> tuple[int, ...]:
        """Read the first `count` entries of an array, as C does.

        Refuse an array of fewer than `least` entries.
        """
        numbers = self.integers(argument)
        if numbers is not None and len(numbers) < least:
            self.refuse(
                argument,
                f"has {counted(len(numbers), 'entry')}",
                f"have {counted(least, 'entry')}, for the rank that is given",
                "give one entry per dimension, innermost first",
            )
        return (numbers or ())[:count]

    def flag(self, argument: str) -> bool | None:
        """Read a bool, or a NumPy bool."""
        value = self.given[argument]
        if value is True or value is False:
            return value
        if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        found, fix = f"is {shown(value)}", f"pass {argument}=True, or omit it"
        meant = True if type(value) is int and value == 1 else None
        self.refuse(argument, found, "be True or False", fix, meant)
        return None

    def rare(self, option: Option) -> Any:
        """Read a rare option; return its default if the option is omitted or unreadable."""
        given = self.given.get(option.name, option.default)
        if given is option.default:
            return given
        by_form = {"flag": self.flag, "integer": self.integer, "integers": self.integers}
        read: Any = by_form[option.form](option.name)
        return option.default if read is None else read

    def word(self, argument: str, choices: tuple[str, ...]) -> str | None:
        """Read an argument that must be one of `choices`; return None for any other value."""
        value = self.given[argument]
        word = text_of(value)
        if word in choices:
            return word
        meant = choices[0] if value is None else _close(word or "", choices, 0.8)
        self.refuse(
            argument,
            f"is {shown(value)}",
            f"be one of {', '.join(map(repr, choices))}",
            f"pass {argument}={meant or choices[0]!r}",
            meant,
        )
        return None

    def rule_ids(self, argument: str) -> frozenset[str]:
        """Read `allow=`, which has the ids of rules to switch off: one id or a sequence of ids.

        If the argument is unreadable, return all ids that `allow=` accepts, so that no report
        names these rules.
        """
        value, choices = self.given.get(argument, ()), ALLOWABLE
        if type(value) is tuple and not value:
            return frozenset()
        one = text_of(value)
        ids = texts_of(value) if one is None else (one,)
        if ids is None:
            fix = f"pass {argument}=({choices[0]!r},)"
            self.refuse(argument, f"is {shown(value)}", "be a sequence of rule ids", fix, ())
            return frozenset(choices)
        valid = tuple(name for name in ids if name in choices)
        wrong = next((name for name in ids if name not in choices), None)
        if wrong is None:
            return frozenset(valid)
        # allow= cannot switch off a rule of the driver, because the driver checks the rule itself.
        is_what = "also a rule of the driver" if wrong in _RULE_IDS else "not a rule"
        close = None if wrong in _RULE_IDS else _close(wrong, choices, 0.5)
        self.refuse(
            argument,
            f"names {wrong}, which is {is_what}",
            f"name only {', '.join(choices)}",
            f"omit {wrong}" + (f"; did you mean {close!r}?" if close else ""),
            (*valid, close) if close else valid,
        )
        return frozenset(choices)

    def tile(self, kind: MapKind, entries: Callable[..., tuple[int, ...]]) -> dict[str, Any]:
        """Read the box of a tiled map, or the counts, corners and mode of an im2col map.

        ``entries(name, fewer)`` reads a row-major array, whose length is the rank minus `fewer`.
        """
        of_driver = "tensor_rank" in self.given
        if kind == "tiled":
            return {"box_sizes": entries("box_dim" if of_driver else "box_sizes")}
        fields: dict[str, Any] = {
            "channels": self.integer("channels_per_pixel") or 0,
            "pixels": self.integer("pixels_per_column") or 0,
        }
        for which in ("lower", "upper"):
            corner = f"pixel_box_{which}_corner"
            if kind == "im2col":
                fields[which] = entries(corner, fewer=2)
            else:
                width = f"{corner}_width" if of_driver else f"{which}_corner_width"
                fields[which] = (self.integer(width) or 0,)
        if kind == "im2col_wide":
            mode = TensorMapIm2ColWideMode.w
            fields["mode"] = self.member("mode", TensorMapIm2ColWideMode, mode)
        return fields


def _is_long(value: object) -> bool:
    return issubclass(type(value), int) and value.bit_length() > INTEGER_BITS  # type: ignore[attr-defined]


def _close(word: str, names: Iterable[str], cutoff: float) -> str | None:
    """Return the name most similar to a word, ignoring case; None if no name is similar."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
