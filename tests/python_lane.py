"""``python -m pytest -p tests.python_lane``: run tests without the compiled short cut, where it is built."""

import sys

sys.modules["tma_dlpack.tensor_map._storage"] = None  # importing it now raises ImportError
