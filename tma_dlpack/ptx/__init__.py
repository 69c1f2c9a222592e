"""Code shared by the tools that read kernels: `lint`, `postmortem` and the simulator of kernels.

`parse` reads PTX, `values` follows the contents of registers, and `flow` follows the paths of a
thread. None of these modules runs code. `opcodes` has a row for each instruction that computes a
value. `integers` and `numbers` have the functions that these rows use. `stuck` explains why a wait
at an mbarrier never ends; the wait is in a core dump or in a simulated kernel.
"""
