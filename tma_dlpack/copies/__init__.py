"""Copies of tiles: loads, stores and reductions. The simulator (NumPy) or a GPU executes them.

`verbs.py` has the public functions. They choose a `Backend` (`backend.py`), check the call
(`request.py`) and pass the checked `CopyRequest` to the backend. The class of the simulator is in
`simulator.py`, and the class of the GPU is in `cuda.py`. `memory.py` decides which bytes a copy may
access. `tile.py` has `Tile`, the result of a load, and functions that arrange shared memory and
read the data of a store. `launch.py` compiles and launches the kernels of the CUDA backend.

To add a reason to refuse a copy, add a row to `COPY_REFUSALS` in tables/refusals.py, and call
``refuse("COPY_...", argument, found)`` where the mistake is found. If this call is in `request.py`,
both backends refuse the copy. To add a reduction, add its name to `OPERATIONS` and to rows of
`REDUCTIONS` in `backend.py`, its arithmetic to `combine`, and its instruction to
`kernels/copies.cu`. To add a backend, write a subclass of `Backend` with the methods `load` and
`store`, and add its name to `verbs.backend`. The tests in tests/copies use the simulator; tests/gpu
runs the same cases on a GPU.
"""
