"""Operands of instructions that read a tile: wgmma and tcgen05 descriptors, `ldmatrix` addresses.

A tensor map may be valid although its copy writes a layout that the reading instruction does not
support. From a map, this package computes the descriptor or the addresses that the instruction
needs. If the instruction cannot read the tile, the error proposes a box that works.

`verbs.py` has the public functions. `descriptor.py` has `MatrixDescriptor`, the result of
`matrix_descriptor`. `operand.py` has the facts about each instruction, and views a tile as a
matrix. `reads.py` counts the bank conflicts of a warp, for pictures and suggestions.

To add an instruction, add a row to `operand.INSTRUCTIONS`. To add a reason to refuse a tile, add a
row to `refusals.ROWS`, a passing and a failing example to
tests/consumer/test_matrix_descriptor.py, and the text for the explorer's page to
explorer/operand.js. Then run ``python .packaging/generate.py``. It prints JavaScript for the page:
the condition `holds` of each row, and the functions `leading_bytes` and `stride_bytes` of
`operand.py`.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "tcgen05 Shared Memory
Layout and Swizzling", "ldmatrix". The names of the fields are from CUTLASS,
mma_traits_sm90_gmma.hpp and mma_sm100_desc.hpp. The facts about wgmma are measured (H200, driver
580.159.04, 2026-11-21); the facts about tcgen05 are documented, not measured.
"""

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.verbs import ldmatrix_addresses, matrix_descriptor
