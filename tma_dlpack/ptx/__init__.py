"""Reader and analyses of PTX, which lint and the simulator of kernels share.

`parse` reads the text, `values` follows the contents of registers, and `flow` follows the paths of
a thread. None of these modules runs code. `opcodes` has a row for each instruction that computes a
value. `integers` and `numbers` have the functions that these rows use.
"""
