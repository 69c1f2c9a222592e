"""``python -m pytest -p tests.python_lane``: run tests without the short cut that was compiled."""

import sys

sys.modules["tma_dlpack.tensor_map._storage"] = None  # importing it now raises ImportError
