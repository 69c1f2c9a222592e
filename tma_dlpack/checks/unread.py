"""Which rules read an argument that a printout does not show."""

from __future__ import annotations

import re
from typing import Final

from tma_dlpack.checks import RULES
from tma_dlpack.checks.rule import STRUCT
from tma_dlpack.checks.words import OF_DRIVER
from tma_dlpack.tables.errors import Rule

#: The driver's arguments that columns of the struct are from, where `STRUCT` names none or others;
#: x[0] is one entry.
_COLUMNS: Final = {
    "rank": "rank",
    "address": "global_address",
    "row_bits": "global_dim[0]",
    "global_dim": "global_dim",
    "stride_bits": "global_strides",
    "inside_bits": "global_dim global_strides",
    "inner_box": "box_dim[0] channels_per_pixel",
    "inner_box_bits": "box_dim[0] channels_per_pixel data_type",
    "box_bits": "box_dim channels_per_pixel pixels_per_column data_type",
    "floor_box_bits": "box_dim element_strides data_type",
    "span_values": "",  # of split_inner, which no call of the driver has
}
_NAMES: Final = {**OF_DRIVER, "data_type": "data_type"}
_READS: Final = {
    rule.id: {
        _NAMES.get(name, name)
        for column, _, names, _ in STRUCT
        if re.search(rf"\b{column}\b", str(rule.holds))
        for name in _COLUMNS.get(column, names).split()
    }
    for rule in RULES
}


def reads(rule: Rule, unread: frozenset[str], *entry: int) -> bool:
    """Return whether a rule reads what is unread; one with `each`, for one entry or for all.

    >>> rules = {rule.id: rule for rule in RULES}
    >>> reads(rules["BOX_INNER_16B"], frozenset({"box_dim[1]"}))
    False
    >>> reads(rules["BOX_RANGE"], frozenset({"box_dim[1]"}), 1)
    True
    """
    for name in _READS[rule.id]:
        if name in unread or name.partition("[")[0] in unread:
            return True
        entries = [f"{name}[{e - (name == 'global_strides')}]" for e in entry]
        if not rule.each:
            entries = [other for other in unread if other.startswith(f"{name}[")]
        if not unread.isdisjoint(entries):
            return True
    return False
