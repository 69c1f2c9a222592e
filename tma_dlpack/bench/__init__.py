"""Benchmarks: `python -m tma_dlpack bench ...`, and `bandwidth`.

`call.py` measures one call of make_tma_descriptor against peers (`peers.py`) in the same run, with
targets in `call_targets.py`; `simulator.py` the simulator against ndarray.copy; `gpu.py`, `gemm.py`
and `conv.py` kernels on the GPU; `tile_bandwidth.py` is the public `bandwidth`; `timing.py` times.

May import: everything except draw, explorer and cli. Imported by: cli and the package itself.

A new peer: a row in `peers.py` that says how it makes a map; one that is not installed is left out.
A new benchmark: a module with a function that returns lines of text, and its name in
`cli.main.BENCHES`.
"""
