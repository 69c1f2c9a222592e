"""Copies of tiles: loads, stores and reductions, by the simulator (NumPy) or by the hardware.

`verbs.py` has the public functions, which choose a `Backend` (`backend.py`), check the call
(`request.py`) and pass the `CopyRequest` to `load` or `store` of `simulator.py` or `cuda.py`.
`memory.py` decides which bytes a copy may touch; `tile.py` is the result, arranges shared memory,
and reads the data of a store. `launch.py` and `nvrtc.py` are the GPU's.

A new reason to refuse a copy: a row in `refusals.REFUSALS`, and `refuse("COPY_...", argument,
found)` in `request.py` or where it is found; both backends then refuse it. A new reduction: a row
of `reductions.REDUCTIONS`, its arithmetic in `combine`, its instruction in `kernels/copies.cu`. A
new backend: a subclass of `Backend` with `load` and `store`, and its name in `verbs.backend`. The
tests in tests/copies run on the simulator, and the same cases on the GPU in tests/gpu.
"""
