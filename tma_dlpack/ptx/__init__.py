"""PTX: what lint and the simulator of kernels share.

`parse` reads the text, `values` follows what the registers of a function hold, `flow` the paths of
a thread. None of them runs anything. `opcodes` has a row for each instruction that computes a
value, with the functions of `integers` and `numbers`.
"""
