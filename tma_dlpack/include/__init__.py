"""Where the header for extension authors lies."""

from __future__ import annotations

from pathlib import Path

from tma_dlpack.types.opaque import opaque

__all__ = ["get_include"]


@opaque
def get_include() -> str:
    """Give the folder of ``tma_dlpack.h``, for a compiler's ``-I``.

    The header turns what Python hands over (`TensorMap.ptr`, `TensorMap.as_torch()`) into a
    ``CUtensorMap``, and has the device code that loads and stores tiles. It needs C++17, and no
    libcuda.

    Returns
    -------
    str

    Examples
    --------
    >>> (Path(get_include()) / "tma_dlpack.h").is_file()
    True
    """
    return str(Path(__file__).parent)
