"""``python -m pytest -p tests.python_lane``: run tests without the C extension."""

import sys

sys.modules["tma_dlpack.native._core"] = None  # importing it now raises ImportError
