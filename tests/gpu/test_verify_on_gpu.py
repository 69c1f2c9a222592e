"""verify: model against driver, simulator against hardware."""

from __future__ import annotations

import tma_dlpack as tma
from tma_dlpack.tables import bits
from tma_dlpack.verification import checks as verify_checks
from tma_dlpack.verification import replay, verify


def test_two_hundred_random_cases_of_each_check_agree():
    report = verify(200, seed=11)
    assert report.ok, str(report)
    assert [row.cases for row in report.rows] == [200] * len(verify_checks.CHECKS)
    assert all(row.accepted >= 60 for row in report.rows), str(report)


def test_a_model_with_a_wrong_bit_is_found_and_its_call_repeats_it(monkeypatch):
    right = bits.encode

    def wrong(arguments, address):
        return bytes(a ^ (i == 60) for i, a in enumerate(right(arguments, address)))

    monkeypatch.setattr(bits, "encode", wrong)
    report = verify(20, seed=1)
    assert not report.ok
    row = report.rows[0]
    assert row.disagreements == row.accepted > 0
    call = next(line for line in row.first.splitlines() if line.startswith("tma_dlpack."))
    tensor_map = eval(call, {"tma_dlpack": tma})
    assert bytes(tensor_map) == right(tensor_map.arguments, tensor_map.global_address)


def test_a_case_is_replayed_by_name_and_number():
    assert replay("tile loads", 3, 0).endswith("both sides agree")
