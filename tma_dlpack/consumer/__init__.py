"""What reads a tile: matrix descriptors of wgmma and tcgen05, and the addresses of `ldmatrix`.

A tensor map that is valid need not write the layout that its consumer reads. Here the consumer's
side is worked out from the map, or refused with a box that works.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", "tcgen05 Shared Memory
Layout and Swizzling", "ldmatrix"; CUTLASS, mma_traits_sm90_gmma.hpp and mma_sm100_desc.hpp for the
names of the fields. What wgmma does is measured (H200, driver 580.159.04, 2026-11-21), what tcgen05
does is documented, not measured.
"""

from tma_dlpack.consumer.descriptor import MatrixDescriptor
from tma_dlpack.consumer.ldmatrix import ldmatrix_addresses
from tma_dlpack.consumer.matrix import matrix_descriptor

__all__ = ["MatrixDescriptor", "ldmatrix_addresses", "matrix_descriptor"]
