"""Readers of a tile: matrix descriptors of wgmma and tcgen05, and the addresses of `ldmatrix`.

A valid tensor map may still write a layout that the consumer cannot read. From the map this package
computes the descriptor or the addresses. If the consumer cannot read the tile, an error proposes a
box that works.

`verbs.py` has the public functions, `descriptor.py` the result of `matrix_descriptor`, and
`operand.py` the tile as a matrix. `reads.py` counts bank conflicts of a warp, for pictures and
suggestions.

An instruction is a row of `operand.INSTRUCTIONS`. A reason to refuse a tile is a row of
`refusals.ROWS`; it has a passing and a failing example in tests/consumer/test_matrix_descriptor.py,
and its text for the page in explorer/operand.js. The condition `holds` of a row and the two byte
offsets of `operand.py` are expressions that ``python .packaging/generate.py`` prints for the page.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "tcgen05 Shared Memory
Layout and Swizzling", "ldmatrix"; CUTLASS, mma_traits_sm90_gmma.hpp and mma_sm100_desc.hpp for the
names of the fields. The facts about wgmma are measured (H200, driver 580.159.04, 2026-11-21); the
facts about tcgen05 are documented, not measured.
"""

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.verbs import ldmatrix_addresses, matrix_descriptor
