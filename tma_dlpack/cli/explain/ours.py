"""The line that `tma_dlpack_make.hpp` throws: it has the tensor, so the whole call is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tma_dlpack.checks.report import Report
from tma_dlpack.cli.explain.printed import PrintedArguments
from tma_dlpack.dlpack import Layout, TensorView
from tma_dlpack.dlpack import judge as judge_layout
from tma_dlpack.make.build import check_view
from tma_dlpack.tables.dtypes import data_type_of
from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.targets import Target

_NUMBERS = r"\{(-?\d+(?:, -?\d+)*)?\}"
_LINE = re.compile(
    r"tma_dlpack: refused: cuTensorMapEncode\w+\([^\n]*?\); rules=(?P<rules>[\w+]+); "
    rf"tensor: dtype={_NUMBERS}, device={_NUMBERS}(?:, shape={_NUMBERS})?(?:, strides={_NUMBERS})?"
    r"(?:; (?P<why>[^\n]*?))?; python -m tma_dlpack explain says why"
)


class RefusedCall(NamedTuple):
    """A call of ``tma_dlpack::make_tma_descriptor`` that threw."""

    rules: str
    layout: Layout
    why: str | None

    def report(self, read: PrintedArguments, target: Target) -> Report:
        """Check the call as `check_tma_descriptor` would; `read` holds its driver's arguments."""
        try:
            view = TensorView(read.global_address or 0, *judge_layout(self.layout), "DLTensor")
        except TmaPreconditionError as error:
            return Report(error.violations)
        return check_view(read.kind, view, self._given(read, view, target))

    def _given(self, read: PrintedArguments, view: TensorView, target: Target) -> dict[str, Any]:
        own_type = data_type_of(view.dtype)
        given: dict[str, Any] = {
            "elem_strides": _row_major(read.element_strides),
            "interleave_layout": read.interleave,
            "swizzle": read.swizzle,
            "l2_fetch_size": read.l2_promotion,
            "oobfill": read.oob_fill,
            "data_type": None if read.data_type == own_type else read.data_type,
            "rules": self.rules,
            "target": target,
        }
        if read.kind == "tiled":
            box = {"box_sizes": _row_major(read.box_dim)}
            return {**box, **given, "allow": (), "shape": None, "strides": None, "offset": 0}
        return {
            "pixel_box_lower_corner": _row_major(read.pixel_box_lower_corner),
            "pixel_box_upper_corner": _row_major(read.pixel_box_upper_corner),
            "channels_per_pixel": read.channels_per_pixel,
            "pixels_per_column": read.pixels_per_column,
            **given,
        }


def refused_calls(text: str) -> Iterator[tuple[int, RefusedCall]]:
    """Give each such line's number, from 1, and its call."""
    for found in _LINE.finditer(text):
        rules, dtype, device, shape, strides, why = found.groups()
        numbers = (*_numbers(device), *_numbers(dtype))
        if len(numbers) != 5:
            continue
        sizes = _numbers(shape)
        layout = Layout(*numbers, 0, sizes, None if strides is None else _numbers(strides))
        if layout.strides is None or len(layout.strides) == len(sizes):
            line = text.count("\n", 0, found.start()) + 1
            yield line, RefusedCall(rules, layout, why)


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(", "))) if text else ()


def _row_major(entries: tuple[int | None, ...] | None) -> tuple[int | None, ...] | None:
    return None if entries is None else entries[::-1]
