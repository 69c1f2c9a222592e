"""PTX: reader and analyses shared by lint and the simulator of kernels.

`parse` reads the text, `values` follows the contents of registers, `flow` follows the paths of a
thread. None of these runs code. `opcodes` has a row for each instruction that computes a value;
`integers` and `numbers` have the functions of these rows.
"""
