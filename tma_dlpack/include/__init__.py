"""The headers for authors of C++ extensions, and `get_include`.

tma_dlpack.h is for extensions (torch tensors to maps, device code for copies), with
tma_dlpack_mma.h (the tensor core) and tma_dlpack_check.h (what its checked build adds);
tma_dlpack_make.h checks and encodes in plain C, shared with the C extension, from the printed
tma_dlpack_tables.h; tma_dlpack_make.hpp is the same in C++, with the printed
tma_dlpack_options.hpp; tma_dlpack_driver.h calls libcuda. Nothing here imports Python
modules of the package.
"""

from __future__ import annotations

import os  # pathlib takes a fifth of the package's import

from tma_dlpack.public import opaque


@opaque
def get_include() -> str:
    """Give the folder of ``tma_dlpack.h``, for a compiler's ``-I``.

    The header makes a ``CUtensorMap`` from a torch tensor, or from what Python passes
    (`TensorMap.ptr`, `TensorMap.as_torch()`), and has device code that loads and stores tiles. It
    needs C++17, but not libcuda at link time.

    Returns
    -------
    str

    Examples
    --------
    >>> from pathlib import Path
    >>> (Path(get_include()) / "tma_dlpack.h").is_file()
    True
    """
    return os.path.dirname(os.path.abspath(__file__))
