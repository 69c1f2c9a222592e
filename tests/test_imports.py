"""Public names are imported on first use, also when several threads use them at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tma_dlpack as tma

SCRIPT = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(100, exit=True)  # says where a deadlock is
sys.setswitchinterval(1e-6)
import tma_dlpack as tma

start = threading.Barrier(8)
wrong = []

def ask(turn):
    names = tma.__all__[turn * 7:] + tma.__all__[:turn * 7]
    if turn % 2:
        names.reverse()
    start.wait()
    for name in names:
        try:
            getattr(tma, name)
        except BaseException as error:
            wrong.append((name, repr(error)))

threads = [threading.Thread(target=ask, args=(turn,)) for turn in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(wrong)
"""


def test_eight_threads_ask_for_every_public_name_at_once():
    for _ in range(3):  # each time in a fresh process
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120
        )
        assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("make_tensor_map", "make_tma_descriptor"), ("encode", "make_tma_descriptor"),
     ("encode_tiled", "driver_encode_tiled"), ("run", "run_kernel")],
)  # fmt: skip
def test_a_name_of_another_library_names_the_function_here(name, meant):
    with pytest.raises(AttributeError, match=f"did you mean {meant}\\?$"):
        getattr(tma, name)
