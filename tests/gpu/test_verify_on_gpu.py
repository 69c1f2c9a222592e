"""`verify` compares the model with the driver, and the simulator with the hardware."""

from __future__ import annotations

import functools

import tma_dlpack as tma
from tma_dlpack.tables import bits
from tma_dlpack.verification import checks as verify_checks
from tma_dlpack.verification import replay, verify
from tma_dlpack.verification.learning import Findings


def test_two_hundred_random_cases_of_each_check_agree():
    report = verify(200, seed=11)
    assert report.ok, str(report)
    assert [row.cases for row in report.rows] == [200] * len(verify_checks.CHECKS)
    assert all(row.accepted >= 60 for row in report.rows), str(report)


def test_a_model_with_a_wrong_bit_is_found_and_its_call_repeats_it(monkeypatch):
    right = verify_checks.ENCODERS["tiled"]

    @functools.wraps(right)
    def wrong(*, encoder, **arguments):
        tensor_map = right(encoder=encoder, **arguments)
        if encoder == "driver":
            return tensor_map
        return tma.TensorMap.from_bytes(
            bytes(a ^ (i == 4) for i, a in enumerate(bytes(tensor_map)))
        )

    monkeypatch.setitem(verify_checks.ENCODERS, "tiled", wrong)
    report = verify(20, seed=1)
    assert not report.ok
    row = report.rows[0]
    assert row.disagreements == row.accepted > 0
    call = next(line for line in row.first.splitlines() if line.startswith("tma_dlpack."))
    tensor_map = eval(call, {"tma_dlpack": tma})
    assert bytes(tensor_map) == bits.encode(tensor_map.arguments, tensor_map.global_address)


def test_a_case_is_replayed_by_name_and_number():
    assert replay("tile loads", 3, 0).endswith("both sides agree")


def test_what_was_learned_agrees_with_the_column_of_this_gpu(tmp_path):
    path = tmp_path / "found.json.gz"
    report = verify(30, seed=5, out=path)
    found = Findings.read(path)
    assert len(found.cases) == 30 * len(report.rows)
    again = found.against()
    assert [row.accepted for row in again.rows] == [row.accepted for row in report.rows]
    assert again.ok is report.ok is True
    if found.target.has_model:
        found.target = tma.TARGETS["sm_100"]  # refuses packed types, for example
        assert not found.against().ok
        assert "no model for sm_100" in str(found.against())
