"""Names of kernels are demangled with limits of time and size."""

from __future__ import annotations

import time

import pytest

from tma_dlpack.debug import names
from tma_dlpack.debug.names import demangled

SIMPLE = "_Z6kernelPfS_"
#: `void f<std::pair<A, A>, ...>`, with more substitutions than this process demangles.
PAIRS = "_Z1fISt4pairI1AS1_ES0_IS1_S1_ES2_S2_EvT_T0_"


def bomb(levels: int) -> str:
    """Return a mangled name. Each level adds ten characters, and doubles the demangled name."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    places = ["S_", *(f"S{digit}_" for digit in digits)]
    return "_Z1fSt4pairIiiE" + "".join(f"S_I{places[k]}{places[k]}E" for k in range(1, levels + 1))


def test_names_are_demangled_here_and_in_a_process_alike():
    assert demangled([SIMPLE]) == {SIMPLE: "kernel(float*, float*)"}
    assert demangled([PAIRS])[PAIRS] == names.demangle(PAIRS) != PAIRS


@pytest.mark.parametrize("name", ["", "kernel", "_Z", "_Z\n", "_Zé", "_Z6kernel" * 9, "_Z6k\x00"])
def test_what_is_no_mangled_name_stays(name):
    assert demangled([name]) == {name: name}


def test_a_name_that_explodes_stays_and_takes_neither_the_time_nor_the_others():
    before = time.monotonic()
    found = demangled([bomb(30), PAIRS, bomb(31), SIMPLE])
    assert time.monotonic() - before < 15  # hours otherwise
    assert found[bomb(30)] == bomb(30)
    assert found[PAIRS] != PAIRS
    assert found[SIMPLE] == "kernel(float*, float*)"


def test_after_three_names_that_explode_the_others_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(names, "MOST_STOPPED", 1)
    assert demangled([bomb(30), PAIRS])[PAIRS] == PAIRS


def test_a_long_name_is_cut():
    (shown,) = demangled([bomb(10)]).values()
    assert (len(shown), shown[:12], shown[-3:]) == (names.MOST_CHARS, "f(std::pair<", "...")
    (shown,) = demangled(["_Z" + "1a" * 30_000]).values()
    assert len(shown) == names.MOST_CHARS
