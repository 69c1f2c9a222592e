"""Which settings of a control would be accepted: found by asking the rules, never written twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

from tma_dlpack.draw.chunks import bounding_box, first_coords
from tma_dlpack.explorer.choice import Choice, look, refusal_of, shape_of
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.limits import MAX_BOX, MAX_ELEM_STRIDE, MAX_PIXELS
from tma_dlpack.tensor_map.map import TensorMap

AROUND = 64  # positions before and after the tensor that sliders of coordinates reach
MAX_OFFSET = 31
SHORT, MAX_STEP = 32, 128  # a range whose values are all judged; the largest step that is tried
CORNERS = {1: (-32768, 32767), 2: (-128, 127), 3: (-16, 15)}  # by the number of spatial dimensions

_MENUS: dict[str, tuple[str, ...]] = {
    "swizzle": tuple(TmaSwizzle._member_names_),
    "interleave_layout": tuple(TmaInterleaveLayout._member_names_),
    "oobfill": tuple(TmaOobFill._member_names_),
    "l2_fetch_size": tuple(TmaL2FetchSize._member_names_),
    "data_type": ("", *(t.name for t in TensorMapDataType)),
}

Judge = Callable[[int], str]  # why a value is refused; empty where it is not


def menus(choice: Choice) -> dict[str, tuple[str, ...]]:
    """Return the options of each menu; the empty one is "as the tensor has it"."""
    return {**_MENUS, "rules": choice.rule_sets}


def planes(choice: Choice) -> dict[str, tuple[int, ...]]:
    """Return what `Choice.plane` may be, by its name in the menu."""
    pairs = combinations(range(len(choice.box_sizes)), 2)
    return {"": (), **{f"{down}, {across}": (down, across) for down, across in pairs}}


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
        Multiples that are refused besides.
    """

    least: int
    most: int
    step: int = 1
    reason: str = ""
    refused: tuple[Run, ...] = ()

    def nearest(self, value: int) -> int:
        """Return the legal value nearest to one."""
        value = round(value / self.step) * self.step
        least = -(-self.least // self.step) * self.step
        return min(max(value, least), self.most // self.step * self.step)


def is_of_tile(name: str) -> bool:
    """Whether a number chooses the tile, and not the map."""
    return name.startswith(("coords", "im2col_offsets"))


def ranges(subject: object, choice: Choice) -> dict[str, Range]:
    """Return how far each number of a choice reaches, without asking what is legal."""
    found: dict[str, Range] = {}
    is_tensor = not isinstance(subject, TensorMap)
    if is_tensor:
        spatial = len(choice.pixel_box_lower_corner)
        found |= {f"box_sizes[{d}]": Range(1, MAX_BOX) for d in range(len(choice.box_sizes))}
        for corner in ("pixel_box_lower_corner", "pixel_box_upper_corner"):
            found |= {f"{corner}[{d}]": Range(*CORNERS[spatial]) for d in range(spatial)}
        if choice.is_im2col:
            found["channels_per_pixel"] = Range(1, MAX_BOX)
            found["pixels_per_column"] = Range(1, MAX_PIXELS)
    for d, extent in enumerate(shape_of(subject)[: len(choice.coords)]):
        found[f"coords[{d}]"] = Range(-AROUND, extent + AROUND)
    for d in range(len(choice.im2col_offsets)):
        found[f"im2col_offsets[{d}]"] = Range(0, _largest_offset(choice, d))
    if is_tensor:
        strides = range(len(choice.elem_strides))
        found |= {f"elem_strides[{d}]": Range(1, MAX_ELEM_STRIDE) for d in strides}
    return found


def _largest_offset(choice: Choice, d: int) -> int:
    """Return the offset of the last filter tap where the corners are those of a convolution."""
    taps = 0  # (kernel - 1) x dilation
    if choice.is_im2col:
        taps = -choice.pixel_box_lower_corner[d] - choice.pixel_box_upper_corner[d]
    return min(taps if taps > 0 else 8, MAX_OFFSET)


def legal_ranges(subject: object, choice: Choice, tensor_map: TensorMap | None) -> dict[str, Range]:
    """Return what of each range is legal, every other number staying as it is.

    `tensor_map` is that of the choice, where it is accepted: coordinates are legal of a map.
    """
    found = ranges(subject, choice)
    for name, reach in found.items():
        if not is_of_tile(name):
            found[name] = _number(subject, choice, name, reach)
        elif tensor_map is not None:
            found[name] = _coordinate(tensor_map, choice, name, reach)
    return found


def _why(subject: object, choice: Choice) -> str:
    report = look(subject, choice).report
    return "" if report.ok else f"{report.violations[0].rule}: {report.violations[0].limit}"


def _number(subject: object, choice: Choice, name: str, reach: Range) -> Range:
    """Judge as few values as will do: multiples of a step, all of a few, ends of the rest.

    The inner extent is legal in steps, the others from one value to another.
    """

    def reason(value: int) -> str:
        return _why(subject, choice.put(name, value))

    least, most, step = reach.least, reach.most, 1
    if name in (f"box_sizes[{len(choice.box_sizes) - 1}]", "channels_per_pixel"):
        step = next((v for v in range(1, MAX_STEP + 1) if not reason(v)), 1)
    reach = replace(reach, step=step, reason=reason(1) if step > 1 else "")
    if step > 1 or most - least < SHORT:
        multiples = range(-(-least // step) * step, most + 1, step)
        return replace(reach, refused=_runs(multiples, reason))
    starts = (v for v in (choice.number(name), 1, 0, least, most) if least <= v <= most)
    start = next((v for v in starts if not reason(v)), None)
    if start is None:
        return replace(reach, refused=(Run(least, most, reason(least)),))
    first, last = _end(start, least, reason), _end(start, most, reason)
    below = [Run(least, first - 1, reason(first - 1))] if first > least else []
    above = [Run(last + 1, most, reason(last + 1))] if last < most else []
    return replace(reach, refused=(*below, *above))


def _end(legal: int, limit: int, reason: Judge) -> int:
    """Return the legal value that is nearest to a limit, going there from a legal one."""
    if not reason(limit):
        return limit
    refused = limit
    while abs(refused - legal) > 1:
        middle = (legal + refused) // 2
        legal, refused = (legal, middle) if reason(middle) else (middle, refused)
    return legal


def _runs(values: range, reason: Judge) -> tuple[Run, ...]:
    runs: list[Run] = []
    for value in values:
        why = reason(value)
        if why and runs and (runs[-1].last, runs[-1].reason) == (value - values.step, why):
            runs[-1] = replace(runs[-1], last=value)
        elif why:
            runs.append(Run(value, value, why))
    return tuple(runs)


def _coordinate(tensor_map: TensorMap, choice: Choice, name: str, reach: Range) -> Range:
    """Find the step of a coordinate, and the bounding box that an im2col column starts in."""
    args, box = tensor_map.arguments, bounding_box(tensor_map.arguments)
    if name.startswith("coords"):
        index = int(name[len("coords[") : -1])
        if args.kind == "tiled":  # packed types count values, not bytes
            reach = replace(reach, most=tensor_map.shape[index] + AROUND)
        least, most = box.get(args.rank - 1 - index, (reach.least, reach.most))
        reach = replace(reach, least=least, most=most)
    zero = replace(choice, coords=first_coords(args))

    def reason(value: int) -> str:
        return refusal_of(tensor_map, zero.put(name, value)).partition("\n")[0]

    here = range(reach.least, reach.most + 1)
    step = next((n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n in here and not reason(n)), 1)
    return replace(reach, step=step, reason=reason(1) if step > 1 else "")


def legal_options(subject: object, choice: Choice) -> dict[str, dict[str, str]]:
    """Return, for each menu, each option that would be refused, and why."""
    if isinstance(subject, TensorMap):
        return {}
    found: dict[str, dict[str, str]] = {}
    for name, options in menus(choice).items():
        reasons = {option: _why(subject, choice.put(name, option or None)) for option in options}
        found[name] = {option: why for option, why in reasons.items() if why}
    return found
