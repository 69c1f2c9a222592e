"""The simulator's tests, run again with the hardware instead of the simulator."""

from __future__ import annotations

import pytest
import test_simulator
import test_simulator_laws
from on_device import OnDevice
from test_simulator import *  # noqa: F403 - collected here again
from test_simulator_laws import *  # noqa: F403

from tma_dlpack.copies import verbs as copies

#: Tests that need the simulator itself, or recorded results.
LEFT_OUT = {
    name
    for module in (test_simulator, test_simulator_laws)
    for name in vars(module)
    if name.startswith("test_") and ("recorded" in name or "simulator" in name)
}
#: This test's tile needs the last bytes of shared memory, but a kernel's mbarrier uses 8 bytes.
LEFT_OUT.add("test_tile_that_ends_past_shared_memory_is_refused")
for _name in LEFT_OUT:
    del globals()[_name]


@pytest.fixture(autouse=True, scope="module")
def _hardware_in_place_of_the_simulator(_needs_a_gpu):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "SIMULATOR", OnDevice())
        yield
