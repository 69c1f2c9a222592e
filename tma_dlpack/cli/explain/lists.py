"""Printed lists on their way to the driver's order, units and lengths."""

from __future__ import annotations

from tma_dlpack.cli.explain.printed import Entries
from tma_dlpack.tables.limits import MAX_RANK

MAX_LISTED = 16  # larger ranks are not plausible; their lists are kept as they are


class Lists:
    """The lists of one printout on their way to the driver's order, units and lengths."""

    def __init__(
        self,
        rank: int | None,
        dims: Entries | None,
        strides: Entries | None,
        box: Entries | None,
        steps: Entries | None,
    ) -> None:
        self.rank, self.dims, self.strides, self.box, self.steps = rank, dims, strides, box, steps

    def rank_without_padding(self, leading: bool) -> int:
        """Count dimensions less the trailing ones of extent 1, stride 0 and box 1 that pad."""
        dims, strides, box = self.dims or (), self.strides or (), self.box or ()
        rank = len(dims)
        while rank > 1 and dims[rank - 1] == 1:
            stride = strides[rank - 1 if leading else rank - 2 :][:1]
            if stride not in ((), (0,)) or box[rank - 1 : rank] not in ((), (1,)):
                break
            rank -= 1
        return rank

    def drop_extra(self, leading: bool, bits: int | None) -> None:
        """Drop a stride of dimension 0, which is the size of an element."""
        if self.strides is None or not self.strides:
            return
        count = len(self.strides)
        as_many = count >= (MAX_RANK if self.rank is None else self.rank)
        own = bits is not None and self.strides[0] == bits // 8
        own = own and self.rank is not None and count >= self.rank
        if (leading and as_many) or own:
            self.strides = self.strides[1:]

    def scale(self, bits: int | None, notes: list[str]) -> None:
        """Turn strides in elements into bytes."""
        if self.strides is None:
            return
        if bits is None:
            notes.append("strides are in elements, and the size of an element is not shown")
            self.strides = None
        else:
            self.strides = tuple(None if s is None else s * bits // 8 for s in self.strides)

    def turn(self, bits: int | None, unit: str, notes: list[str]) -> None:
        """Turn lists that show by themselves that they are row-major, or in elements.

        They do where the strides have one entry per dimension with a 1 (or the size of an element)
        at the inner end, or where they are those of a dense tensor in one order and unit alone.
        Else they are taken as the driver's: innermost first, in bytes.
        """
        if self.strides is None or self.dims is None or None in self.strides + self.dims:
            return
        rank, size = len(self.dims), bits // 8 if bits else None
        if len(self.strides) == rank and rank > 1:
            innermost = self._drop_inner(notes, size)
            if unit.startswith("elem") or (innermost == 1 and size != 1 and not unit):
                self.scale(bits, notes)
        elif unit.startswith("elem"):
            self.scale(bits, notes)
        elif size and len(self.strides) == rank - 1 and rank > 1:
            self._turn_dense(size, notes)

    def _drop_inner(self, notes: list[str], size: int | None) -> int | None:
        """Drop the stride of the inner dimension, at either end, and give it."""
        assert self.strides is not None
        first, last = self.strides[0], self.strides[-1]
        inner = (1, size)
        if last in inner and first not in inner:
            self._reverse(self.strides[:-1][::-1])
            notes.append("lists are row-major here: the last stride is that of one element")
            return last
        if first in inner:
            self.strides = self.strides[1:]
            return first
        return None

    def _turn_dense(self, size: int, notes: list[str]) -> None:
        assert self.dims is not None
        assert self.strides is not None
        for turned, factor, said in (
            (False, 1, ""),
            (False, size, "strides count elements here: they are those of a dense tensor"),
            (True, 1, "lists are row-major here: the strides are those of a dense tensor"),
            (True, size, "lists are row-major and strides count elements here: a dense tensor"),
        ):
            dims = self.dims[::-1] if turned else self.dims
            strides = tuple(
                s * factor for s in self.strides[:: -1 if turned else 1] if s is not None
            )
            if 0 not in dims and strides == _dense(dims, size):
                if turned:
                    self._reverse(strides)
                self.strides = strides
                notes.extend([said] if said else [])
                return

    def _reverse(self, strides: Entries) -> None:
        self.strides = strides
        self.dims = self.dims[::-1] if self.dims else self.dims
        self.box = self.box[::-1] if self.box else self.box
        self.steps = self.steps[::-1] if self.steps else self.steps

    def cut(self, notes: list[str]) -> None:
        """Drop entries past the rank, as C does; of a list that is too short, the rest is None."""
        self.dims = self._cut("global_dim", self.dims, 0, notes)
        self.strides = self._cut("global_strides", self.strides, 1, notes)
        if self.rank == 1 and self.strides is None:
            self.strides = ()  # there is none to show
        self.box = self._cut("box_dim", self.box, 0, notes)
        self.steps = self._cut("element_strides", self.steps, 0, notes)

    def _cut(
        self, name: str, values: Entries | None, fewer: int, notes: list[str]
    ) -> Entries | None:
        if values is None or self.rank is None or not 1 <= self.rank <= MAX_LISTED:
            return values
        count = self.rank - fewer
        if len(values) < count:
            shown = f"{len(values)} of {count} entries"
            notes.append(f"{name} shows {shown} for rank {self.rank}: the others are not known")
            if not values:
                return None
        return (*values, *(None,) * (count - len(values)))[:count]


def _dense(dims: Entries, size: int) -> Entries:
    strides, step = [], size
    for extent in dims[:-1]:
        step *= extent or 0
        strides.append(step)
    return tuple(strides)
