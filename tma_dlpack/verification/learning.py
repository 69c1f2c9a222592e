"""For a GPU whose layout has not been measured: which fields of sm_90's layout agree there."""

from __future__ import annotations

from collections import Counter

from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.bits import FIELDS, fields_of


class FieldStatistics:
    """Counts, per field of sm_90's layout, in how many maps the driver wrote the same value."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.same: Counter[str] = Counter()
        self.maps = 0
        self.stray = 0

    def add(self, arguments: EncodeArguments, address: int, made_by_driver: bytes) -> None:
        """Compare one map; skip types and swizzles that sm_90 lacks."""
        try:
            modelled = bits.encode(arguments, address)
        except OverflowError:
            return
        self.maps += 1
        word = int.from_bytes(made_by_driver, "little")
        for field in fields_of(arguments.kind, arguments.rank):
            self.seen[field.label] += 1
            agree = bits.read(field, made_by_driver) == bits.read(field, modelled)
            self.same[field.label] += agree
            for bit, width in field.pieces:
                word &= ~(((1 << width) - 1) << bit)
        self.stray |= word

    def __str__(self) -> str:
        """Give the number of fields that agree in all maps, and the others with their counts."""
        labels = dict.fromkeys(f.label for f in FIELDS if self.seen[f.label])
        differing = [
            f"{label} ({self.same[label]} of {self.seen[label]})"
            for label in labels
            if self.same[label] < self.seen[label]
        ]
        stray = [str(bit) for bit in range(1024) if self.stray >> bit & 1]
        agreeing = len(labels) - len(differing)
        text = (
            f"of {len(labels)} fields of sm_90's layout, {agreeing} agree in all {self.maps} maps"
        )
        if differing:
            text += f"; these do not: {', '.join(differing)}"
        if stray:
            text += f"; bits outside all fields are set: {', '.join(stray)}"
        return text
