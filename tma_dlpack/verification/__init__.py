"""`verify` and `bandwidth`: comparisons of this package with a GPU, and the speed of copies.

`verify` compares the model with the driver, and the simulator with the hardware. `bandwidth.py`
measures the speed of copies, with the kernel of `pipeline.py`.

`run.py` has `verify`, and `commands.py` has its command. `checks.CHECKS` has one row per line of
the report. `run_case` runs one case, which depends only on the check's name, the seed and the case
number, so that `replay` can repeat it. `random_*.py` make the random cases;
tests/random_requests.py also uses them, for the tests of `make_*` and `check_*`. `arena.py` has the
memory that copies use, and the calls that encode their maps. `on_device.py` runs kernels that read
tiles by wgmma and ldmatrix, or change maps. `learning.py` has the result, and the file of results
that a user can send.

To add a check, add a row to `CHECKS` with a new `op`, and a row to `checks._COMPARED` with a
generator of random cases and a function that returns the first difference or None. Test the
generator in tests/verification, and run the check in tests/gpu.
"""

from typing import TYPE_CHECKING

from tma_dlpack.verification.core import public

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
__getattr__ = public.imported_later(__name__, _LATER)
