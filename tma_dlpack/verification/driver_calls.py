"""Calls of `driver_encode_*`: their keyword arguments, and how they are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tma_dlpack.make.driver_words import (
    driver_encode_im2col,
    driver_encode_im2col_wide,
    driver_encode_tiled,
)
from tma_dlpack.tables.arguments import EncodeArguments, MapKind
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

ENCODERS: dict[MapKind, Callable[..., TensorMap]] = {
    "tiled": driver_encode_tiled,
    "im2col": driver_encode_im2col,
    "im2col_wide": driver_encode_im2col_wide,
}


def keywords_of(args: EncodeArguments) -> dict[str, Any]:
    """Give the keyword arguments of the call for a tiled or im2col map, without the address."""
    keywords: dict[str, Any] = {
        "tensor_data_type": args.data_type,
        "tensor_rank": args.rank,
        "global_dim": args.global_dim,
        "global_strides": args.global_strides,
        "element_strides": args.element_strides,
        "interleave": args.interleave,
        "swizzle": args.swizzle,
        "l2_promotion": args.l2_promotion,
        "oob_fill": args.oob_fill,
    }
    if args.kind == "tiled":
        return keywords | {"box_dim": args.box_dim}
    return keywords | {
        "pixel_box_lower_corner": args.pixel_box_lower_corner,
        "pixel_box_upper_corner": args.pixel_box_upper_corner,
        "channels_per_pixel": args.channels_per_pixel,
        "pixels_per_column": args.pixels_per_column,
    }


def written(kind: MapKind, keywords: Mapping[str, Any], target: Target, *more: str) -> str:
    """Write a call as Python; enum members by their numbers, `more` as it is."""
    plain = {name: int(v) if isinstance(v, int) else v for name, v in keywords.items()}
    inside = [*(f"{name}={value!r}" for name, value in plain.items()), *more]
    call = f"tma_dlpack.{ENCODERS[kind].__name__}"
    return f"{call}({', '.join(inside)}, target={target.name!r})"
