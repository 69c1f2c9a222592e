"""Any `__dlpack__` tensor becomes a checked, encoded CUDA tensor map."""
