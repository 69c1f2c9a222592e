"""A process forks while its threads make maps. Every child makes maps too, and no child hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from laws import many

from tma_dlpack.make import extension

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SCRIPT = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")  # Python 3.12 and later warn of a fork with threads
import numpy as np
import tma_dlpack as tma

def work(rows):
    x = np.zeros((rows, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (16, 64), swizzle="bytes128")
    described = tma.make_tma_descriptor(x, (16, 64), target="sm_90", rules="driver")
    batch = tma.make_tma_descriptors([x, x], (16, 64))
    refused = tma.check_tma_descriptor(x, (16, 65))
    tile = tma.load_tile(tm, (0, 0)).array
    return tm.shape, described.tx_bytes, len(batch), refused.ok, int(tile.sum())

expected = work(128)[1:]
done = threading.Event()

def busy():
    rows = 16
    while not done.is_set():
        rows = rows % 4096 + 16
        work(rows)

threads = [threading.Thread(target=busy, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
for number in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        os._exit(0 if work(16 + number)[1:] == expected else 1)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"child {number} ended with status {status}")
done.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize(
    "forks",
    [pytest.param(50, id="some"), pytest.param(many(500), id="many", marks=pytest.mark.slow)],
)
def test_every_child_of_a_busy_process_makes_maps(forks):
    blocked = "" if extension.COMPILED else "import tests.python_lane\n"
    subprocess.run([sys.executable, "-c", blocked + SCRIPT, str(forks)], check=True, timeout=600)
