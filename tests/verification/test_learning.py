"""The file that `verify` writes is read back and compared with a target's column, without a GPU.

The data are an H200's recorded calls, relabelled as calls of an unavailable GPU.
"""

from __future__ import annotations

import gzip
import json

import pytest
from recorded_calls import keywords, kind_of, recorded

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.tables.bits import fields_of
from tma_dlpack.tables.targets import TARGETS, Target
from tma_dlpack.verification.arena import ENCODERS, written
from tma_dlpack.verification.checks import Outcome
from tma_dlpack.verification.learning import Findings
from tma_dlpack.verification.run import _require_writable

H200 = Target((9, 0), 232_448, 13_000, 132)
CHECKS = {"tiled": "encode tiled", "im2col": "encode im2col", "im2col_wide": "encode im2col wide"}


def findings(target: Target = H200, step: int = 40) -> Findings:
    """Every 40th recorded call, as if `verify` had made it on a GPU of this target."""
    found = Findings("a GPU", target, 0)
    for number, row in enumerate(recorded()[::step]):
        kind, data = kind_of(row), row["bytes"]
        evidence = {
            "kind": kind,
            "arguments": keywords(row),
            "driver": "accepted" if data else f"CUresult {row['rc']}",
            "bytes": data.hex() if data else None,
        }
        call = written(kind, keywords(row), target)
        found.add(CHECKS[kind], number, Outcome(call, data is not None, None, evidence))
    found.add("tile loads", 0, Outcome("a load", True, None, {"hardware": "copied"}))
    found.add(
        "tile loads", 1, Outcome("another", True, "Tile.smem differs", {"hardware": "copied"})
    )
    return found


def rows(report) -> dict:
    return {row.name: row for row in report.rows}


@pytest.mark.parametrize("name", ["found.json", "found.json.gz"])
def test_what_was_written_is_read_back(tmp_path, name):
    found = findings()
    found.write(tmp_path / name)
    again = Findings.read(tmp_path / name)
    assert again == found
    assert (again.target, again.version) == (H200, tma.__version__)
    compressed = (tmp_path / name).read_bytes().startswith(b"\x1f\x8b")
    assert compressed is name.endswith(".gz")


def test_recorded_calls_agree_with_the_column_that_was_measured_on_them():
    report = findings(step=10).against()
    assert not report.ok  # the copy that differed on the GPU
    by_name = rows(report)
    encodings = [by_name[name] for name in CHECKS.values()]
    assert [row.disagreements for row in encodings] == [0, 0, 0]
    assert all(row.accepted > 50 and row.cases - row.accepted > 50 for row in encodings)
    assert by_name["tile loads"].first == "another\nTile.smem differs"
    assert (by_name["tile loads"].cases, by_name["tile loads"].disagreements) == (2, 1)
    assert report.device == "a GPU, against the column of sm_90"


def test_a_wrong_byte_and_a_wrong_verdict_are_found_and_their_call_repeats_them():
    found = findings()
    accepted = next(c for c in found.cases if c["accepted"] and c["check"] == "encode tiled")
    refused = next(c for c in found.cases if not c["accepted"] and c["check"] == "encode im2col")
    accepted["bytes"] = f"{int(accepted['bytes'], 16) ^ 1:0256x}"
    refused |= {"accepted": True, "driver": "accepted", "bytes": bytes(128).hex()}
    by_name = rows(found.against())
    tiled, im2col = by_name["encode tiled"], by_name["encode im2col"]
    assert (tiled.disagreements, im2col.disagreements) == (1, 1)
    call, driver_line, model_line = tiled.first.splitlines()
    assert bytes(eval(call, {"tma_dlpack": tma})).hex() == model_line.removeprefix("model:  ")
    assert driver_line.removeprefix("driver: ") == accepted["bytes"]
    assert im2col.first.splitlines()[1:2] == ["driver: accepted"]
    assert im2col.first.splitlines()[2].startswith("rules of sm_90: ")


def test_a_map_that_the_driver_refused_and_the_rules_accept_is_found():
    found = findings()
    case = next(c for c in found.cases if c["accepted"])
    case |= {"accepted": False, "driver": "CUresult 1", "bytes": None}
    row = rows(found.against())[case["check"]]
    assert row.first.splitlines()[1:] == ["driver: CUresult 1", "rules of sm_90: accepted"]


def test_relabelled_they_are_compared_with_the_other_columns_rules_and_layout():
    found = findings(TARGETS["sm_100"])
    by_name = rows(found.against())
    tiled = by_name["encode tiled"]
    # On an H200, the driver accepts calls that the documentation of sm_100 refuses, and the
    # reverse. A call that both accept has the bits of the derived layout.
    assert 0 < tiled.disagreements < tiled.cases / 2
    count = len(fields_of("tiled", 5))
    assert tiled.note.startswith(
        f"no model for sm_100: of {count} fields of sm_90's layout, {count} agree in all "
    )
    assert rows(found.against("sm_90"))["encode tiled"].disagreements == 0
    plain = next(c for c in found.cases if c["accepted"] and not c["arguments"]["interleave"])
    address = plain["arguments"]["global_address"]
    data = (address ^ 1 << 40).to_bytes(8, "little") + bytes.fromhex(plain["bytes"])[8:]
    found.cases = [plain | {"bytes": data.hex()}]
    (row,) = found.against().rows
    assert row.first.splitlines()[1] == f"driver: {data.hex()}"
    assert row.first.splitlines()[2].startswith("derived layout: EncodeArguments(")
    assert row.first.endswith(f"address {address ^ 1 << 40:#x}")


def test_the_command_reads_a_file_and_names_the_target(tmp_path, capsys):
    path = tmp_path / "found.json.gz"
    found = findings()
    found.cases = found.cases[:-1]  # without the copy that differs
    found.write(path)
    assert main(["verify", "--read", str(path)]) == 0
    assert "a GPU, against the column of sm_90; seed 0" in capsys.readouterr().out
    assert main(["verify", "--read", str(path), "--target", "sm_120"]) == 1
    assert "against the column of sm_120" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\x1f\x8bnot gzip",
        b"[1]",
        json.dumps({"format": "another"}).encode(),
        json.dumps({"format": "tma_dlpack verify, 1", "target": {}, "cases": []}).encode(),
        b"[" * 100_000,
        b'{"format": ' + b"9" * 5000 + b"}",
        gzip.compress(b"{}")[:-9],
    ],
    ids=[
        "empty",
        "no fields",
        "broken gzip",
        "a list",
        "another format",
        "no GPU",
        "nested",
        "a long number",
        "cut off",
    ],
)
def test_another_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(tma.TmaPreconditionError, match="other cannot be read: ") as caught:
        Findings.read(path)
    assert "verify --out FILE" in caught.value.violations[0].fix
    with pytest.raises(tma.TmaPreconditionError, match="no such cannot be read: FileNotFound"):
        Findings.read(tmp_path / "no such")


def test_what_expands_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 21)))
    monkeypatch.setattr("tma_dlpack.tables.refusals.MAX_VERIFY_BYTES", 1 << 20)
    with pytest.raises(tma.TmaPreconditionError, match="it holds more than 1 MiB"):
        Findings.read(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", "tile"), ("arguments", []), ("bytes", "zz"), ("bytes", 3), ("accepted", "x")],
)
def test_a_case_that_verify_did_not_write_is_refused(name, value):
    found = findings()
    next(case for case in found.cases if case.get("bytes"))[name] = value
    with pytest.raises(tma.TmaError, match=r"a case cannot be read: |it must be "):
        found.against()


def test_a_name_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(tma.TmaPreconditionError, match=r"out is .*Is a directory"):
        _require_writable(tmp_path)
    _require_writable(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b""


def test_each_encoder_of_the_file_is_one_that_verify_calls():
    assert set(CHECKS) == set(ENCODERS)
