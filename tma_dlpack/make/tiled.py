"""`make_tma_descriptor` and its check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tma_dlpack.make.shortcut import accept_tiled, explained, quick
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.enums import DataType, Interleave, L2FetchSize, OobFill, Swizzle
from tma_dlpack.types.opaque import opaque
from tma_dlpack.types.target import Target

if TYPE_CHECKING:
    from tma_dlpack.rules.report import Report

__all__ = ["check_tma_descriptor", "make_tma_descriptor"]


@quick("accept_tiled")
@opaque
def make_tma_descriptor(
    tensor: object,
    box_sizes: Sequence[int],
    elem_strides: Sequence[int] | None = None,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = "none",
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    *,
    data_type: DataType | None = None,
    rules: str = "libcu++",
    allow: Iterable[str] = (),
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    target: Target | str | None = None,
) -> TensorMap:
    """Make the tensor map of a tensor, as ``cuda::make_tma_descriptor`` does in C++.

    Parameters
    ----------
    tensor : object
        Anything with ``__dlpack__`` (PyTorch, JAX, CuPy, NumPy...) of rank 1 to 5, in CUDA, managed
        or host memory. No data is read, copied or synchronised. The map keeps it alive.
    box_sizes : sequence of int
        The tile in shared memory, row-major like the tensor's shape, elements (packed types:
        values), 1..256 each.
    elem_strides : sequence of int, optional
        Step between elements of the tile, row-major, 1..8 each; None for 1. The innermost entry is
        ignored unless an interleaved layout is asked.
    interleave_layout, swizzle, l2_fetch_size, oobfill : enum member, name or value
        As in libcu++.
    data_type : TensorMapDataType, name or value, optional
        Another map type of the same element size, such as ``"TFLOAT32"`` for float32 or ``"UINT8"``
        for int8. None for the one that libcu++ takes.
    rules : {"libcu++", "driver"}
        ``"libcu++"`` holds all of make_tma_descriptor's preconditions; ``"driver"`` only what the
        driver asks: boxes larger than the tensor, overlapping strides and more are accepted.
    allow : iterable of str
        Ids of rules that libcu++ has and the driver has not, such as ``"BOX_IN_SHAPE"`` or
        ``"STRIDE_UNIQUE"``: they are not asked in this call.
    shape, strides : sequence of int, optional
        Another description of the same memory, row-major, in elements of the tensor's dtype, as
        torch's ``as_strided``. Omitted strides are the tensor's own, or row-major, where only one
        of these makes sense.
    offset : int
        Elements from the tensor's first one to the first of the description; may be negative. What
        lies outside the tensor may be described, but no copy may touch it.
    target : Target or str, optional
        The GPU that it is for; None for the tensor's own. A host tensor is described for sm_90, and
        its map is not `launchable`.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        With every violation, its fix and its source; the first is the one that libcu++ would throw
        (`TmaPreconditionError` says where not).
    TmaTargetError
        The same, where the target lacks what is asked.

    Notes
    -----
    Encoded by the driver where there is one, else by the layout measured on an H200 (driver
    580.159.04, 2026-11-20), which NVIDIA does not publish. Source: libcu++ make_tma_descriptor.h;
    CUDA driver API, cuTensorMapEncodeTiled.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((128, 64), dtype=np.float16)
    >>> tm = make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    >>> tm.global_dim, tm.global_strides, tm.box_dim, tm.tx_bytes
    ((64, 128), (128,), (64, 16), 2048)
    """
    options = (
        box_sizes,
        elem_strides,
        interleave_layout,
        swizzle,
        l2_fetch_size,
        oobfill,
        data_type,
        rules,
        target,
    )
    if shape is None and strides is None and _is_default(allow, ()) and _is_default(offset, 0):
        accepted = accept_tiled(tensor, *options)
        if accepted is not None:
            return accepted
    return explained("tiled", tensor, (*options, allow, shape, strides, offset))


def _is_default(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


@opaque
def check_tma_descriptor(
    tensor: object,
    box_sizes: Sequence[int],
    elem_strides: Sequence[int] | None = None,
    interleave_layout: Interleave = "none",
    swizzle: Swizzle = "none",
    l2_fetch_size: L2FetchSize = "none",
    oobfill: OobFill = "none",
    *,
    data_type: DataType | None = None,
    rules: str = "libcu++",
    allow: Iterable[str] = (),
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    target: Target | str | None = None,
) -> Report:
    """Say what `make_tma_descriptor` would say to the same arguments, without raising.

    Parameters
    ----------
    tensor, box_sizes, elem_strides, interleave_layout, swizzle, l2_fetch_size, oobfill, \
data_type, rules, allow, shape, strides, offset, target
        As in `make_tma_descriptor`. Nothing raises, whatever they are.

    Returns
    -------
    Report
        `.ok`, `.violations`, `.advice`, `.fixed()`.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((4, 1733), dtype=np.float16)
    >>> print(check_tma_descriptor(x, box_sizes=(4, 64)).violations[0].fix)
    pad the last dimension from 1733 to 1736 elements: y = numpy.empty((4, 1736), x.dtype)[..., :1733]; y[...] = x
    """  # noqa: E501
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.check(
        "tiled",
        tensor,
        {
            "box_sizes": box_sizes,
            "elem_strides": elem_strides,
            "interleave_layout": interleave_layout,
            "swizzle": swizzle,
            "l2_fetch_size": l2_fetch_size,
            "oobfill": oobfill,
            "data_type": data_type,
            "rules": rules,
            "target": target,
            "allow": allow,
            "shape": shape,
            "strides": strides,
            "offset": offset,
        },
    )
