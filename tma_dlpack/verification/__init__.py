"""`verify` and `bandwidth`: what a GPU does, against what this package computes.

`verify` compares the model with the driver, and the simulator with the hardware; `bandwidth.py`
measures how fast copies are, with the kernel of `pipeline.py`.

`run.py` has `verify`, `commands.py` its command. `checks.CHECKS` has one row per line of the
report; `run_case` runs one case, which depends only on the check's name, the seed and the case
number, so that `replay` can repeat it. `random_*.py` make the cases, from which
tests/random_requests.py also makes those of `make_*` and `check_*`; `arena.py` has the calls that
encode their maps and the memory that they copy, `on_device.py` has kernels read tiles by wgmma and
ldmatrix and change maps, `learning.py` has the result and the file that a user can send.

A new check: a row in `CHECKS` with an `op` of its own, and a row of `checks._COMPARED` with a
generator of random cases, and a function that returns the first difference or None. Test the
generator in tests/verification and run the check in tests/gpu.
"""

from typing import TYPE_CHECKING

from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack.verification.bandwidth import BandwidthReport, BandwidthRow
    from tma_dlpack.verification.learning import VerifyReport, VerifyRow
    from tma_dlpack.verification.run import replay, verify

__all__ = ["BandwidthReport", "BandwidthRow", "VerifyReport", "VerifyRow", "replay", "verify"]
_LATER = {
    "tma_dlpack.verification.bandwidth": ("BandwidthReport", "BandwidthRow"),
    "tma_dlpack.verification.learning": ("VerifyReport", "VerifyRow"),
    "tma_dlpack.verification.run": ("replay", "verify"),
}
__getattr__ = imported_later(__name__, _LATER)
