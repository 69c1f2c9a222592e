"""Kernels of this repository with one instruction deleted or changed: `lint` finds the mutants.

`python tests/lint/mutate.py --judge FILE` prints the table of all kernels, with the verdicts of
`run_kernel`, which take minutes.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import mutate

import tma_dlpack as tma

#: Kernel -> change -> (mutants without a finding, number of these that run_kernel finds wrong).
NOT_FOUND = {
    "double_tiles": {
        "count one more": (1, 1),
        "delete the fence of the init": (1, 0),
        "delete the wait for stores": (3, 1),
    },
    "hopper_gemm": {
        "delete the arrival": (1, 0),
        "delete the cluster's barrier": (1, 0),
        "delete the fence of the init": (1, 0),
        "delete the wait for stores": (1, 0),
        "delete wgmma.fence": (1, 0),
    },
    "streamed_plain": {"delete the fence of the init": (1, 0)},
}


def maps_of(case):
    return [arg for arg in case().keywords["args"] if isinstance(arg, tma.TensorMap)]


def not_found(name):
    """Return the mutants of a kernel without a finding."""
    [(_, case, text, entry)] = mutate.cases([name])
    maps = maps_of(case)
    mutants = list(mutate.mutants(text, entry))
    return [m for m in mutants if not mutate.found_by_lint(m.text, entry, maps)], case, entry


@pytest.mark.parametrize("name", NOT_FOUND)
def test_which_mutants_of_our_kernels_are_found(name):
    mutants, *_ = not_found(name)
    expected = {change: count for change, (count, _) in NOT_FOUND[name].items()}
    assert Counter(mutant.change for mutant in mutants) == expected


@pytest.mark.parametrize("name", [*mutate.CASES, *mutate.BLACKWELL])
def test_our_kernels_have_no_finding(name):
    [(_, case, text, entry)] = mutate.cases([name])
    assert mutate.found_by_lint(text, entry, maps_of(case)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_FOUND)
def test_most_mutants_without_a_finding_are_right(name):
    mutants, case, entry = not_found(name)
    wrong = Counter(m.change for m in mutants if mutate.judged(case(), m.text, entry))
    assert wrong == +Counter({change: count for change, (_, count) in NOT_FOUND[name].items()})
