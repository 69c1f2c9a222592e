"""Parser and analyses of PTX, which `lint` and the simulator of kernels use.

`parse` parses the text, `values` follows the contents of registers, and `flow` follows the paths of
a thread. These modules analyse PTX without executing it. `opcodes` has a row for each instruction
that computes a value. `integers` and `numbers` have the functions that these rows call.
"""
