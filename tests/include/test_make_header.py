"""The header without Python: its judgement and its bytes are the driver's own."""

from pathlib import Path

import numpy as np
import pytest
from make_header import BARE, Arguments, encoded, five, judged

GOLDEN = Path(__file__).parents[1] / "golden" / "encode.npz"


def golden_rows(kind):
    """Give the rows of a kind as dicts; `map` is bytes 8..75 of the map where rc is 0."""
    with np.load(GOLDEN) as golden:
        columns = {name: golden[name] for name in golden.files if name != "provenance"}
    maps = iter(columns.pop("map").T)
    for i in range(len(columns["kind"])):
        row = {name: column[..., i] for name, column in columns.items()}
        row["map"] = next(maps).tobytes() if row["rc"] == 0 else b""
        if row["kind"] == kind:
            yield row


def arguments_of(row):
    """Give the header's arguments of a golden row."""
    kind = int(row["kind"])
    return Arguments(
        kind, int(row["dt"]), int(row["rank"]), int(row["inter"]), int(row["swz"]),
        int(row["l2"]), int(row["oob"]), int(row["mode"]) if kind == 2 else 0, int(row["addr"]),
        five(map(int, row["dims"])), tuple(map(int, row["strides"]))[: 4],
        five(map(int, row["box"])) if kind == 0 else five(()), five(map(int, row["estr"])),
        five(map(int, row["lo"])), five(map(int, row["hi"])), int(row["cpp"]), int(row["ppc"]),
    )  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["tiled", "im2col", "im2col_wide"])
def test_golden_rows_have_the_drivers_verdict_and_bytes(kind):
    count = accepted = 0
    for row in golden_rows(kind):
        count += 1
        arguments = arguments_of(row)
        assert judged(arguments, BARE) == (row["rc"] == 0), row
        if row["rc"] == 0:
            accepted += 1
            address = int(row["addr"]).to_bytes(8, "little")
            assert encoded(arguments) == address + row["map"] + bytes(52), row
    assert 100 < accepted < count
