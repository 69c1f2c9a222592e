"""Calls of the driver's encoders that were recorded on an H200, with its verdicts and bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "golden" / "encode.npz"
KINDS = ("tiled", "im2col", "im2col_wide")
ADDRESS = 0x7F00_0000_0000


@cache
def recorded():
    """Return every recorded call as a dict of plain integers, with the driver's bytes or None."""
    with np.load(GOLDEN) as golden:
        columns = {name: golden[name].T.tolist() for name in golden.files if name != "provenance"}
        maps = iter(golden["map"].T)
    columns.pop("map")
    rows = []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        row["bytes"] = None
        if row["rc"] == 0:
            row["bytes"] = row["addr"].to_bytes(8, "little") + next(maps).tobytes() + bytes(52)
        rows.append(row)
    assert next(maps, None) is None
    return rows


def kind_of(row):
    return KINDS[row["kind"]]


def keywords(row):
    """Return the keyword arguments of `driver_encode_*`, including entries beyond the rank."""
    given = {
        "tensor_data_type": row["dt"],
        "tensor_rank": row["rank"],
        "global_address": row["addr"],
        "global_dim": row["dims"],
        "global_strides": row["strides"],
        "element_strides": row["estr"],
        "interleave": row["inter"],
        "swizzle": row["swz"],
        "l2_promotion": row["l2"],
        "oob_fill": row["oob"],
    }
    if row["kind"] == 0:
        return given | {"box_dim": row["box"]}
    given |= {"channels_per_pixel": row["cpp"], "pixels_per_column": row["ppc"]}
    if row["kind"] == 1:
        return given | {
            "pixel_box_lower_corner": row["lo"],
            "pixel_box_upper_corner": row["hi"],
        }
    return given | {
        "pixel_box_lower_corner_width": row["lo"][0],
        "pixel_box_upper_corner_width": row["hi"][0],
        "mode": row["mode"],
    }
