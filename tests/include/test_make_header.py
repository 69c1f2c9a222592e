"""The header without Python: its verdicts and its bytes equal the driver's."""

from pathlib import Path

import numpy as np
import pytest
from make_header import Described, encoded, judged

from tma_dlpack.checks.call import read_driver_call
from tma_dlpack.checks.fixes import rows_of
from tma_dlpack.checks.struct import STRUCT, describe
from tma_dlpack.tables.arguments import KINDS
from tma_dlpack.tables.targets import DEFAULT_TARGET

GOLDEN = Path(__file__).parents[1] / "golden" / "encode.npz"


def golden_rows(kind):
    """Return the rows of a kind as dicts. If `rc` is 0, `map` has bytes 8..75 of the map."""
    with np.load(GOLDEN) as golden:
        columns = {name: golden[name] for name in golden.files if name != "provenance"}
    maps = iter(columns.pop("map").T)
    for i in range(len(columns["kind"])):
        row = {name: column[..., i] for name, column in columns.items()}
        row["map"] = next(maps).tobytes() if row["rc"] == 0 else b""
        if row["kind"] == kind:
            yield row


def request_of(row):
    """Return the request of a golden row, as driver_encode_* reads it."""
    kind = KINDS[int(row["kind"])]
    rank = int(row["rank"])

    def array(name, count=5):
        return tuple(map(int, row[name]))[:count]

    given = {
        "tensor_data_type": int(row["dt"]),
        "tensor_rank": rank,
        "global_address": int(row["addr"]),
        "global_dim": array("dims"),
        "global_strides": array("strides"),
        "box_dim": array("box"),
        "element_strides": array("estr"),
        "interleave": int(row["inter"]),
        "swizzle": int(row["swz"]),
        "l2_promotion": int(row["l2"]),
        "oob_fill": int(row["oob"]),
        "pixel_box_lower_corner": array("lo", 3),
        "pixel_box_upper_corner": array("hi", 3),
        "pixel_box_lower_corner_width": int(row["lo"][0]),
        "pixel_box_upper_corner_width": int(row["hi"][0]),
        "channels_per_pixel": int(row["cpp"]),
        "pixels_per_column": int(row["ppc"]),
        "mode": int(row["mode"]),
    }
    return read_driver_call(kind, given, DEFAULT_TARGET)


def in_c(request):
    """Return the struct of a request in C's form, with an address of 64 bits."""
    mine, c = describe(request), Described()
    for name, count, *_ in STRUCT:
        value = getattr(mine, name)
        setattr(c, name, type(getattr(c, name))(*map(int, value)) if count else int(value))
    return c


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["tiled", "im2col", "im2col_wide"])
def test_golden_rows_have_the_drivers_verdict_and_bytes(kind):
    count = accepted = 0
    for row in golden_rows(kind):
        count += 1
        request = request_of(row)
        c = in_c(request)
        rows = rows_of(request.kind, "measured", True)
        refused = request.unreadable or judged(c, rows)
        assert bool(refused) == (row["rc"] != 0), row
        if row["rc"] == 0:
            accepted += 1
            address = int(row["addr"]).to_bytes(8, "little")
            assert encoded(c) == address + row["map"] + bytes(52), row
    assert 100 < accepted < count
