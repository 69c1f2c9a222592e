"""Which settings of a control would be accepted: found by asking the rules, never written twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tma_dlpack.draw.chunks import bounding_box, request_of
from tma_dlpack.explorer.choice import Choice, look, shape_of
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError
from tma_dlpack.tables.limits import MAX_BOX, MAX_ELEM_STRIDE, MAX_PIXELS
from tma_dlpack.tensor_map.map import TensorMap

AROUND = 64  # positions before and after the tensor that sliders of coordinates reach
MAX_OFFSET = 31
CORNERS = {1: (-32768, 32767), 2: (-128, 127), 3: (-16, 15)}  # by the number of spatial dimensions

_MENUS: dict[str, tuple[str, ...]] = {
    "swizzle": tuple(TmaSwizzle._member_names_),
    "interleave_layout": tuple(TmaInterleaveLayout._member_names_),
    "oobfill": tuple(TmaOobFill._member_names_),
    "l2_fetch_size": tuple(TmaL2FetchSize._member_names_),
    "data_type": ("", *(t.name for t in TensorMapDataType)),
}


def menus(choice: Choice) -> dict[str, tuple[str, ...]]:
    """Give the options of each menu; the empty one is "as the tensor has it"."""
    return {**_MENUS, "rules": choice.rule_sets}


@dataclass(frozen=True, slots=True)
class Run:
    """Values [first, last] that are refused, and why."""

    first: int
    last: int
    reason: str


@dataclass(frozen=True, slots=True)
class Range:
    """What a number can be set to.

    Attributes
    ----------
    least, most : int
    step : int
        Legal values are multiples of it.
    reason : str
        Why the others are refused.
    refused : tuple of Run
        What is refused besides.
    """

    least: int
    most: int
    step: int = 1
    reason: str = ""
    refused: tuple[Run, ...] = ()


def ranges(subject: object, choice: Choice) -> dict[str, Range]:
    """Give how far each number of a choice reaches, without asking what is legal."""
    found: dict[str, Range] = {}
    if not isinstance(subject, TensorMap):
        found |= _ranges_of_box(choice)
    for d, extent in enumerate(shape_of(subject)[: len(choice.coords)]):
        found[f"coords[{d}]"] = Range(-AROUND, extent + AROUND)
    for d in range(len(choice.im2col_offsets)):
        found[f"im2col_offsets[{d}]"] = Range(0, _largest_offset(choice, d))
    if not isinstance(subject, TensorMap):
        strides = len(choice.elem_strides)
        found |= {f"elem_strides[{d}]": Range(1, MAX_ELEM_STRIDE) for d in range(strides)}
    return found


def _ranges_of_box(choice: Choice) -> dict[str, Range]:
    """Give the ranges of a tiled map's box, or of an im2col map's bounding box and column."""
    if not choice.is_im2col:
        return {f"box_sizes[{d}]": Range(1, MAX_BOX) for d in range(len(choice.box_sizes))}
    spatial = len(choice.pixel_box_lower_corner)
    return {
        **{
            f"pixel_box_{which}_corner[{d}]": Range(*CORNERS[spatial])
            for which in ("lower", "upper")
            for d in range(spatial)
        },
        "channels_per_pixel": Range(1, MAX_BOX),
        "pixels_per_column": Range(1, MAX_PIXELS),
    }


def _largest_offset(choice: Choice, d: int) -> int:
    """Give the offset of the last filter tap where the corners are those of a convolution."""
    taps = 0  # (kernel - 1) x dilation
    if choice.is_im2col:
        taps = -choice.pixel_box_lower_corner[d] - choice.pixel_box_upper_corner[d]
    return min(taps if taps > 0 else 8, MAX_OFFSET)


def legal_ranges(subject: object, choice: Choice, tensor_map: TensorMap | None) -> dict[str, Range]:
    """Give what of each range is legal, every other number staying as it is.

    `tensor_map` is that of the choice, where it is accepted: coordinates are legal of a map.
    """
    found = ranges(subject, choice)
    for name, reach in found.items():
        if is_of_tile(name):
            if tensor_map is not None:
                found[name] = _coordinate(tensor_map, choice, name, reach)
        else:
            found[name] = replace(
                reach, refused=_refused(reach, _judge(subject, choice, name), choice, name)
            )
    return found


def is_of_tile(name: str) -> bool:
    """Whether a number chooses the tile, and not the map."""
    return field_of(name) in ("coords", "im2col_offsets")


def field_of(name: str) -> str:
    """Give the field of `Choice` that a number belongs to: ``box_sizes`` of ``box_sizes[0]``."""
    return name.partition("[")[0]


def index_of(name: str) -> int:
    """Give the index in a number's name: 0 of ``box_sizes[0]``."""
    return int(name.partition("[")[2].removesuffix("]"))


def number_of(choice: Choice, name: str) -> int:
    """Give one number of a choice, such as ``box_sizes[0]`` or ``pixels_per_column``."""
    value = getattr(choice, field_of(name))
    number: int = value[index_of(name)] if isinstance(value, tuple) else value
    return number


def set_number(choice: Choice, name: str, value: int) -> Choice:
    """Give a choice with one number changed, such as ``box_sizes[0]``."""
    field = field_of(name)
    numbers = getattr(choice, field)
    if not isinstance(numbers, tuple):
        return set_value(choice, field, value)
    index = index_of(name)
    return set_value(choice, field, (*numbers[:index], value, *numbers[index + 1 :]))


def set_value(choice: Choice, name: str, value: Any) -> Choice:
    """Give a choice with one field changed."""
    return replace(choice, **{name: value})


def _judge(subject: object, choice: Choice, name: str) -> Callable[[int], str]:
    """Give the function that says why a value is refused; empty where it is not."""

    def reason(value: int) -> str:
        report = look(subject, set_number(choice, name, value)).report
        return "" if report.ok else _said(report.violations[0])

    return reason


def _said(violation: Any) -> str:
    return f"{violation.rule}: {violation.limit}"


def _refused(
    reach: Range, reason: Callable[[int], str], choice: Choice, name: str
) -> tuple[Run, ...]:
    """Ask as few values as will do: all of a short range, multiples of a step, ends of the rest.

    The inner extent is legal in steps, the others from one value to another.
    """
    least, most = reach.least, reach.most
    if most - least < 32:
        return _runs((v, reason(v)) for v in range(least, most + 1))
    inner = len(choice.box_sizes) - 1
    if name in (f"box_sizes[{inner}]", "channels_per_pixel"):
        step = next((v for v in range(1, 129) if not reason(v)), 0)
        if step > 1:
            between = reason(1)
            every = {v: reason(v) for v in range(step, most + 1, step)}
            return _runs((v, every.get(v, between)) for v in range(least, most + 1))
        if not step:
            return (Run(least, most, reason(least)),)
    start = number_of(choice, name)
    if reason(start):
        others = [v for v in (1, 0, least, most) if least <= v <= most and not reason(v)]
        if not others:
            return (Run(least, most, reason(least)),)
        start = others[0]
    first, last = _end(start, least, reason), _end(start, most, reason)
    low = (Run(least, first - 1, reason(first - 1)),) if first > least else ()
    return low + ((Run(last + 1, most, reason(last + 1)),) if last < most else ())


def _end(legal: int, limit: int, reason: Callable[[int], str]) -> int:
    """Give the legal value that is nearest to a limit, going there from a legal one."""
    if not reason(limit):
        return limit
    refused = limit
    while abs(refused - legal) > 1:
        middle = (legal + refused) // 2
        legal, refused = (legal, middle) if reason(middle) else (middle, refused)
    return legal


def _runs(judged: Any) -> tuple[Run, ...]:
    runs: list[Run] = []
    for value, reason in judged:
        if not reason:
            continue
        if runs and runs[-1].last == value - 1 and runs[-1].reason == reason:
            runs[-1] = replace(runs[-1], last=value)
        else:
            runs.append(Run(value, value, reason))
    return tuple(runs)


def _coordinate(tensor_map: TensorMap, choice: Choice, name: str, reach: Range) -> Range:
    """Find the step of a coordinate, and the bounding box that an im2col column starts in."""
    args = tensor_map.arguments
    if field_of(name) == "coords":
        index, box = index_of(name), bounding_box(args)
        if args.kind == "tiled":  # packed types count values, not bytes
            reach = replace(reach, most=tensor_map.shape[index] + AROUND)
        d = args.rank - 1 - index
        if d in box:
            reach = replace(reach, least=box[d][0], most=box[d][1])
    zero = _at_zero(args, choice)

    def reason(value: int) -> str:
        moved = set_number(zero, name, value)
        try:
            request_of(tensor_map, moved.coords, moved.im2col_offsets or None)
        except TmaPreconditionError as error:
            return _said(error.violations[0])
        except TmaError as error:
            return str(error)
        return ""

    here = range(reach.least, reach.most + 1)
    step = next((n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n in here and not reason(n)), 1)
    return replace(reach, step=step, reason=reason(1) if step > 1 else "")


def _at_zero(args: EncodeArguments, choice: Choice) -> Choice:
    """Give a choice at coordinates 0, or as near to 0 as a column may start."""
    coords = [0] * args.rank
    for d, (first, last) in bounding_box(args).items():
        coords[args.rank - 1 - d] = min(max(0, first), last)
    return replace(choice, coords=tuple(coords))


def legal_options(subject: object, choice: Choice) -> dict[str, dict[str, str]]:
    """Give, for each menu, each option that would be refused, and why."""
    if isinstance(subject, TensorMap):
        return {}
    found: dict[str, dict[str, str]] = {}
    for name, options in menus(choice).items():
        found[name] = {}
        for option in options:
            report = look(subject, set_value(choice, name, option or None)).report
            if not report.ok:
                found[name][option] = _said(report.violations[0])
    return found
