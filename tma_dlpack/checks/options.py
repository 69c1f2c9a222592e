"""`Options`: the options of a `make_*` call as numbers, in the order of the call.

For a call that C has read (a `JudgedCall`), C returns them; otherwise `parse.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from tma_dlpack.checks.layout import OtherTensor
from tma_dlpack.tables.abi import ALLOWABLE_ROWS, RareOptions
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.targets import Target

#: What `rules=` may be, by kind of map; the first is the default.
RULE_SETS: dict[MapKind, tuple[str, ...]] = {
    "tiled": ("libcu++", "driver"),
    "im2col": ("documented", "driver"),
    "im2col_wide": ("documented", "driver"),
}


def set_of_rules(kind: MapKind, rules: str, target: Target) -> str:
    """Return the set of rules that `rules=` of a `make_*` call means.

    The driver's rules for im2col maps are measured on sm_90 only; for other targets the
    documentation is used.
    """
    if kind == "tiled" or rules != "driver":
        return rules
    return "measured" if target.has_model else "documented"


#: The options of a call without rare options.
USUAL = RareOptions()
#: Arguments with which a call reads other memory of its tensor.
PLACES = frozenset({"strides", "offset"})

#: The fields of `Options` whose arguments have other names.
_OPTION_OF = {
    "interleave_layout": "interleave",
    "l2_fetch_size": "l2_promotion",
    "oobfill": "oob_fill",
    "data_type": "asked_type",
    "rules": "driver_rules",
    "allow": "allowed",
    "pixel_box_lower_corner": "lower",
    "pixel_box_upper_corner": "upper",
    "lower_corner_width": "lower",
    "upper_corner_width": "upper",
    "channels_per_pixel": "channels",
    "pixels_per_column": "pixels",
}


class Options(NamedTuple):
    """The options of a call: numbers, and arrays in the order of the call.

    `allowed` is a mask of rows; `asked_type` is -1, and `elem_strides` None, if not given.
    """

    driver_rules: bool = False
    asked_type: int = -1
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    oob_fill: int = 0
    mode: int = 0
    has_swizzle: bool = True
    allowed: int = 0
    elem_strides: tuple[int, ...] | None = None
    box_sizes: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    rare: RareOptions = USUAL

    @classmethod
    def of(cls, fields: tuple[Any, ...]) -> Options:
        """Make them of what C returns."""
        return cls._make((*fields[:-1], RareOptions(*fields[-1])))

    def changed(self, change: Mapping[str, Any]) -> Options:
        """Return the options with other arguments, row-major, which are valid values."""
        fields: dict[str, Any] = {"has_swizzle": self.has_swizzle or "swizzle" in change}
        rare = {name: value for name, value in change.items() if name in RareOptions._fields}
        for name in change.keys() - rare.keys() - {"target"}:
            value = change[name]
            if name == "data_type" and value is None:
                value = -1
            elif name == "rules":
                value = value == "driver"
            elif name == "allow":
                value = mask_of(value)
            elif name.endswith("_width"):
                value = (value,)
            fields[_OPTION_OF.get(name, name)] = value
        return self._replace(rare=self.rare._replace(**rare), **fields)


def mask_of(ids: Iterable[str]) -> int:
    """Return the mask of rows that `allow=` may name."""
    return sum(1 << ALLOWABLE_ROWS[rule] for rule in set(ids))


@cache
def allowed_ids(mask: int) -> frozenset[str]:
    """Return the ids of a mask of rows that `allow=` names."""
    return frozenset(rule for rule, row in ALLOWABLE_ROWS.items() if mask >> row & 1)


class JudgedCall(Protocol):
    """A call that was read and judged in C, with the fields of `STRUCT` (native/judged.h)."""

    kind: int
    rank: int
    mask: int  # of the rows that fail
    is_exact: bool  # whether no number was too large for C
    tx_bytes: int | None  # of an accepted call without interleaved layout

    @property
    def failed(self) -> list[tuple[int, int]]:
        """The result of `judge.judge`."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """Layout and address of the tensor, the target, and the fields of `Options`."""

    def changed(
        self, arguments: Mapping[str, Any], view: OtherTensor | None, /
    ) -> JudgedCall | None:
        """Judge the call with other arguments or another tensor; None if C cannot read them."""
