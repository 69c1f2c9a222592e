"""`verify`, which compares this package with a GPU, and `bandwidth`, which measures copies.

`verify` compares the package's encoder with the driver, and the simulator with the hardware. The
function `verify` is in `run.py`, and its command is in `commands.py`. `checks.CHECKS` has a row for
each line of the report. `checks.run_case` runs one case. A case depends only on the name of the
check, the seed and the number of the case, so that `replay` can repeat the case. `random_*.py` make
the random cases; tests/random_requests.py uses these cases, too. `arena.py` has the memory that
copies use, and the calls that encode maps. `on_device.py` runs kernels that read tiles with wgmma
and ldmatrix, or that change maps. `learning.py` has the report. It also writes all cases to a file,
which a user can send to the maintainers.

`bandwidth.py` measures the speed of copies with the kernel that `pipeline.py` launches.

To add a check, add a row to `CHECKS` with a new `op`, and a row to `checks._COMPARED`. The row of
`checks._COMPARED` has a generator of random cases, and a function that returns the first difference
or None. Test the generator in tests/verification, and run the check in tests/gpu.
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
