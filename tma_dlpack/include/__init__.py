"""Headers for authors of C++ extensions, and `get_include`, which returns their folder.

tma_dlpack.h is for extensions. It converts a map that was made in Python to a CUtensorMap, and has
device code for copies. It includes tma_dlpack_mma.h (for the tensor core) and, in a checked build,
tma_dlpack_check.h.

tma_dlpack_make.h checks and encodes maps in C. This package's C extension includes it, too.
tma_dlpack_make.hpp is the C++ interface of tma_dlpack_make.h. tma_dlpack_driver.h calls libcuda.
tma_dlpack_tables.h and tma_dlpack_options.hpp are generated. The module `tma_dlpack.include`
imports only the module `public` of tma_dlpack.
"""

from __future__ import annotations

# os.path is used, because importing pathlib takes a fifth of the package's import time.
import os

from tma_dlpack.public import opaque


@opaque
def get_include() -> str:
    """Return the folder of ``tma_dlpack.h``, for a compiler's ``-I``.

    The header makes a ``CUtensorMap`` from `TensorMap.ptr` or `TensorMap.as_torch()`, which Python
    code passes to the extension. It also has device code that loads and stores tiles. The header
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
