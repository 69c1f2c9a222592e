"""Readers of a tile: matrix descriptors of wgmma and tcgen05, and the addresses of `ldmatrix`.

A valid tensor map may still write a layout that the consumer cannot read. This room computes the
consumer's side from the map, or refuses with a box that works.

`matrix.py` holds the public functions, `descriptor.py` the result. An instruction is a row of
`operand.INSTRUCTIONS`; a reason to refuse a tile is a row of `refusals.ROWS`, with its passing and
failing neighbour in tests/consumer/test_matrix_descriptor.py, and its words for the page in
explorer/operand.js. What a row `holds`, and the two byte offsets of `operand.py`, are expressions
that ``python .packaging/generate.py`` prints for the page. `operand.py` has the tile as a matrix,
which both functions read. `reads.py` counts what a warp waits for at the banks, for pictures and
suggestions.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "tcgen05 Shared Memory
Layout and Swizzling", "ldmatrix"; CUTLASS, mma_traits_sm90_gmma.hpp and mma_sm100_desc.hpp for the
names of the fields. What wgmma does is measured (H200, driver 580.159.04, 2026-11-21), what tcgen05
does is documented, not measured.
"""

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.ldmatrix import ldmatrix_addresses
from tma_dlpack.consumer.matrix import matrix_descriptor
