"""Copies of tiles: loads, stores and reductions, by the simulator (NumPy) or by the hardware.

`verbs.py` has the public functions. They choose a `Backend` (`backend.py`), check the call
(`request.py`) and pass the `CopyRequest` to `load` or `store` of `simulator.py` or `cuda.py`.
`memory.py` decides which bytes a copy may access. `tile.py` has the result of a load; it also
arranges shared memory and reads the data of a store. `launch.py` compiles and launches the kernels
of the CUDA backend.

To add a reason to refuse a copy, add a row to `COPY_REFUSALS` in tables/refusals.py, and call
``refuse("COPY_...", argument, found)`` in `request.py` or in the module that finds the mistake;
both backends then refuse the copy. To add a reduction, add a row to `backend.REDUCTIONS`, its
arithmetic to `combine` and its instruction to `kernels/copies.cu`. To add a backend, write a
subclass of `Backend` with `load` and `store`, and add its name to `verbs.backend`. The tests in
tests/copies run on the simulator, and tests/gpu runs the same cases on the GPU.
"""
