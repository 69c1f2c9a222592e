"""The headers for authors of C++ extensions, and `get_include`.

tma_dlpack.h is for extensions: it turns torch tensors into maps, and has device code for copies. It
includes tma_dlpack_mma.h (the tensor core) and, in a checked build, tma_dlpack_check.h.

tma_dlpack_make.h checks and encodes maps in plain C; the C extension uses it too.
tma_dlpack_make.hpp does the same in C++. Their tables, tma_dlpack_tables.h and
tma_dlpack_options.hpp, are generated. tma_dlpack_driver.h calls libcuda. This package imports no
other module but `public`.
"""

from __future__ import annotations

# Not pathlib, because importing pathlib takes a fifth of the package's import time.
import os

from tma_dlpack.public import opaque


@opaque
def get_include() -> str:
    """Return the folder of ``tma_dlpack.h``, for a compiler's ``-I``.

    The header makes a ``CUtensorMap`` from a torch tensor, or from the values that Python passes
    (`TensorMap.ptr`, `TensorMap.as_torch()`). It also has device code that loads and stores tiles.
    The header needs C++17, but not libcuda at link time.

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
