"""The text of a fix is made only for a proposed fix, not for each candidate that is checked."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import numpy as np
import pytest
from random_requests import request_at_random

import tma_dlpack as tma
from tma_dlpack.checks import fixes
from tma_dlpack.checks.candidates import Candidate

CHECKS = {
    "tiled": tma.check_tma_descriptor,
    "im2col": tma.check_im2col_descriptor,
    "im2col_wide": tma.check_im2col_wide_descriptor,
}

#: Calls that break one rule, and whose first candidates are rejected.
CALLS = {
    "a row of 200 bytes": (np.zeros((256, 128), np.float16), {"box_sizes": (64, 100)}),
    "a wide box": (np.zeros((64, 1024), np.float16), {"box_sizes": (64, 512)}),
    "a box of 300 rows": (np.zeros((128, 64), np.float16), {"box_sizes": (300, 64)}),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_text_is_made_of_a_rejected_candidate(call, monkeypatch):
    (x, options), text = CALLS[call], Candidate.text
    judged: list[tuple[Candidate, bool]] = []
    made: list[Candidate] = []
    outcome_of = fixes.outcome_of

    def noted(request, candidate):
        facts, left = outcome_of(request, candidate)
        judged.append((candidate, not left))
        return facts, left

    def read(candidate):
        made.append(candidate)
        return text.fget(candidate)

    monkeypatch.setattr(fixes, "outcome_of", noted)
    monkeypatch.setattr(Candidate, "text", property(read))
    report = tma.check_tma_descriptor(x, swizzle="bytes128", **options)
    assert report.fixed()
    assert not made  # arguments need no text
    assert "fix: " in str(report)
    rejected = [candidate for candidate, is_accepted in judged if not is_accepted]
    texts = {candidate.wording for candidate in made}
    assert rejected
    assert made
    assert not [candidate for candidate in rejected if candidate.wording in texts]


def test_a_text_is_a_function_or_a_constant_of_the_source():
    pytest.importorskip("torch")  # NumPy 1.26 alone lacks some of the types
    constants = {
        node.value
        for path in Path(fixes.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
    rng, count = random.Random(5), 0
    for _ in range(300):
        asked = request_at_random(rng)
        if asked is None:
            continue
        report = CHECKS[asked.kind](asked.tensor, **asked.given)
        request = report._request_of(report._given)
        for fault in fixes.faults_of(request):
            for candidate in (c for tries in fault.alternatives(request) for c in tries):
                assert callable(candidate.wording) or candidate.wording in constants
                count += 1
    assert count > 300
