"""A tensor map as text, for `print`."""

from __future__ import annotations

import textwrap

from tma_dlpack.draw.figure import TEXT_COLUMNS
from tma_dlpack.tensor_map import TensorMap

__all__ = ["facts", "tensor_map_text"]


def facts(tensor_map: TensorMap) -> tuple[tuple[str, str, str], ...]:
    """Give what a map says as (name, value row-major, value in the driver's words)."""
    tm = tensor_map
    rows = [
        ("kind", tm.kind, tm.data_type.name),
        ("address", f"{tm.global_address:#x}", "can be launched" if tm.launchable else "host only"),
        ("shape", _tuple(tm.shape), f"global_dim {_tuple(tm.global_dim)}"),
        ("strides", _strides(tm), f"global_strides {_tuple(tm.global_strides)} bytes"),
    ]
    if tm.kind == "tiled":
        rows.append(("box_sizes", _tuple(tm.box_sizes), f"box_dim {_tuple(tm.box_dim)}"))
    else:
        rows += [
            ("lower corner", _tuple(tm.pixel_box_lower_corner[::-1]), "row-major, W last"),
            ("upper corner", _tuple(tm.pixel_box_upper_corner[::-1]), "row-major, W last"),
            (
                "column",
                f"{tm.pixels_per_column} pixels of {tm.channels_per_pixel} channels",
                "pixels_per_column, channels_per_pixel",
            ),
        ]
    rows.append(
        ("elem_strides", _tuple(tm.elem_strides), f"element_strides {_tuple(tm.element_strides)}")
    )
    rows += [
        ("interleave", tm.interleave.name, ""),
        ("swizzle", tm.swizzle.name, ""),
        ("l2_fetch_size", tm.l2_promotion.name, "l2_promotion"),
        ("oobfill", tm.oob_fill.name, "oob_fill"),
        ("one tile", f"{tm.tx_bytes} bytes transferred", "tx_bytes"),
        (
            "shared memory",
            f"{tm.smem_bytes} bytes, align to {tm.smem_alignment}",
            "smem_bytes, smem_alignment",
        ),
        (
            "made for",
            str(tm.target),
            f"encoded by the {tm.encoder}" if tm.encoder else "not encoded here",
        ),
    ]
    return tuple(rows)


def _tuple(numbers: tuple[int, ...]) -> str:
    return str(tuple(map(int, numbers)))


def _strides(tm: TensorMap) -> str:
    """Give strides in elements, where they come out whole."""
    bits = tm.arguments.type_row.element_bits
    if any(s * 8 % bits for s in tm.global_strides):
        return "no whole elements"
    return f"{_tuple(tm.strides)} elements"


def tensor_map_text(tensor_map: TensorMap) -> str:
    """Give a tensor map as text of at most 100 columns: both orders side by side, then the advice.

    Examples
    --------
    >>> import numpy as np
    >>> import tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((30, 104), np.float16), (8, 64), swizzle="bytes128")
    >>> print(tensor_map_text(tm))  # doctest: +ELLIPSIS
    TensorMap: tiled FLOAT16 for sm_90
    ...
      shape          (30, 104)                     global_dim (104, 30)
      strides        (104, 1) elements             global_strides (208,) bytes
      box_sizes      (8, 64)                       box_dim (64, 8)
    ...
    """
    lines = [f"TensorMap: {tensor_map.kind} {tensor_map.data_type.name} for {tensor_map.target}"]
    for name, ours, drivers in facts(tensor_map)[1:]:
        lines += _wrapped(f"  {name:<14} {ours:<29} {drivers}".rstrip())
    for advice in tensor_map.advice:
        lines += _wrapped(f"  advice: {advice.found}; {advice.limit}")
        lines += _wrapped(f"    fix: {advice.fix}  ({advice.rule})")
    return "\n".join(lines)


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(
        line,
        TEXT_COLUMNS,
        subsequent_indent=" " * 8,
        drop_whitespace=True,
        replace_whitespace=False,
    )
