"""The public verbs that make and check tensor maps."""

from __future__ import annotations

from collections.abc import Sequence

from tma_dlpack.dlpack import READERS, read_first_of_type
from tma_dlpack.make import build
from tma_dlpack.make.build import CACHE
from tma_dlpack.make.cache import CacheInfo, is_alike
from tma_dlpack.make.encode import Encoder
from tma_dlpack.rules.check import Report
from tma_dlpack.tensor_map.map import TensorMap, new
from tma_dlpack.types.enums import DataType, Interleave, L2FetchSize, OobFill, Swizzle
from tma_dlpack.types.errors import TmaPreconditionError
from tma_dlpack.types.target import Target

__all__ = [
    "cache_clear",
    "cache_info",
    "check_tma_descriptor",
    "driver_encode_tiled",
    "driver_replace_address",
    "make_tma_descriptor",
]


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
    target : Target or str, optional
        The GPU that it is for; None for the tensor's own. A host tensor is described for sm_90, and
        its map is not `launchable`.

    Returns
    -------
    TensorMap

    Raises
    ------
    TmaPreconditionError
        With every violation, its fix and its source; the first is the one libcu++ would throw.
    TmaTargetError
        The same, where the target lacks what is asked.

    Notes
    -----
    Encoded by the driver where there is one, else by the layout measured on an H200 (driver
    580.159.04, 2026-11-20), which NVIDIA does not publish. A repeated layout is not checked again
    (see `cache_info`). Source: libcu++ make_tma_descriptor.h; CUDA driver API,
    cuTensorMapEncodeTiled.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((128, 64), dtype=np.float16)
    >>> tm = make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    >>> tm.global_dim, tm.global_strides, tm.box_dim, tm.tx_bytes
    ((64, 128), (128,), (64, 16), 2048)
    """
    if type(box_sizes) is list:
        box_sizes = tuple(box_sizes)  # what it holds now; and the cache asks for a hash
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
    # build.make("tiled", ...) with a known layout is a reading, a look-up and a map. They are
    # written out here, because each call of a function would be a twentieth of it; and options are
    # compared one by one, because in a loop they are mostly the very objects of the call before.
    try:
        reading = READERS.get(type(tensor), read_first_of_type)(tensor)
    except TmaPreconditionError as error:
        raise build.with_arguments("tiled", options, error) from error.__cause__
    address, signature, capsule = reading
    try:
        known = CACHE.entries.get(("tiled", signature, options))
    except Exception:  # lists have no hash, and a __hash__ may raise anything
        known = None
    if known is not None:
        template, (a, b, c, d, e, f, g, h, i) = known
        if (
            (a is box_sizes or is_alike(a, box_sizes))
            and (b is elem_strides or is_alike(b, elem_strides))
            and (c is interleave_layout or is_alike(c, interleave_layout))
            and (d is swizzle or is_alike(d, swizzle))
            and (e is l2_fetch_size or is_alike(e, l2_fetch_size))
            and (f is oobfill or is_alike(f, oobfill))
            and (g is data_type or is_alike(g, data_type))
            and (h is rules or is_alike(h, rules))
            and (i is target or is_alike(i, target))
            and not address & template.refused_bits
        ):
            next(CACHE.hits)
            made = new(TensorMap)
            made._template = template
            made._address = address
            made._tensor = tensor
            made._capsule = capsule
            made._slot = None
            return made
    return build.make_of("tiled", tensor, reading, options)


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
    target: Target | str | None = None,
) -> Report:
    """Say what `make_tma_descriptor` would say to the same arguments, without raising.

    Parameters
    ----------
    tensor, box_sizes, elem_strides, interleave_layout, swizzle, l2_fetch_size, oobfill, \
data_type, rules, target
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
        },
    )


def driver_encode_tiled(
    tensor_data_type: DataType,
    tensor_rank: int,
    global_address: int,
    global_dim: Sequence[int],
    global_strides: Sequence[int],
    box_dim: Sequence[int],
    element_strides: Sequence[int],
    interleave: Interleave = 0,
    swizzle: Swizzle = 0,
    l2_promotion: L2FetchSize = 0,
    oob_fill: OobFill = 0,
    *,
    target: Target | str = "sm_90",
    encoder: Encoder = "auto",
) -> TensorMap:
    """Do what ``cuTensorMapEncodeTiled`` does, with or without a driver.

    Parameters
    ----------
    tensor_data_type, tensor_rank, global_address, global_dim, global_strides, box_dim, \
element_strides, interleave, swizzle, l2_promotion, oob_fill
        The driver's arguments: arrays innermost first, strides in bytes for dimensions 1 to
        rank - 1. As in C, entries past the rank are not read.
    target : Target or str
        The GPU that it is for.
    encoder : {"auto", "driver", "model"}
        ``"driver"`` asks cuTensorMapEncodeTiled itself, ``"model"`` the measured layout, which
        exists for sm_90; ``"auto"`` takes the driver where there is one with such a GPU.

    Returns
    -------
    TensorMap
        Of a bare address: the caller's word that it is good.

    Raises
    ------
    TmaPreconditionError
        On sm_90 exactly where the driver refuses [measured, H200, driver 580.159.04, 2026-11-20];
        elsewhere where the document does.
    TmaDriverError
        Where the driver itself was asked and refused; shows each argument.
    TmaUnsupportedError
        Where no encoder of that kind serves the target.

    Examples
    --------
    >>> tm = driver_encode_tiled("FLOAT32", 2, 0x7F0000000000, (64, 64), (256,), (16, 16), (1, 1),
    ...                          encoder="model")
    >>> bytes(tm)[:16].hex()
    '00000000007f00009003000010000000'
    """
    return build.mirror(
        "tiled",
        {
            "tensor_data_type": tensor_data_type,
            "tensor_rank": tensor_rank,
            "global_address": global_address,
            "global_dim": global_dim,
            "global_strides": global_strides,
            "box_dim": box_dim,
            "element_strides": element_strides,
            "interleave": interleave,
            "swizzle": swizzle,
            "l2_promotion": l2_promotion,
            "oob_fill": oob_fill,
        },
        target,
        encoder,
    )


def driver_replace_address(tensor_map: TensorMap, global_address: int) -> TensorMap:
    """Do what ``cuTensorMapReplaceAddress`` does: the same map at another address.

    Only the first 8 bytes change [measured, H200, driver 580.159.04, 2026-11-20]. The driver itself
    is asked where there is one with such a GPU.

    Parameters
    ----------
    tensor_map : TensorMap
        Any map with bytes, a zeroed one too.
    global_address : int
        A multiple of 16, above 0 and below 2^57. The driver asks no more, also of a map that needs
        32 [measured]; `TensorMap.with_address` does.

    Returns
    -------
    TensorMap
        Of a bare address: the caller's word that it is good. `TensorMap.with_address` takes a
        tensor and keeps it alive.

    Raises
    ------
    TmaPreconditionError
        If the address is misaligned, too large or no integer.
    TmaDriverError
        If the driver refuses.

    Examples
    --------
    >>> tm = driver_replace_address(TensorMap.from_bytes(bytes(128)), 0x7F0000000000)
    >>> bytes(tm)[:8].hex()
    '00000000007f0000'
    """
    return build.replace_address(tensor_map, global_address)


def cache_info() -> CacheInfo:
    """Count hits, misses and entries of the cache of layouts.

    >>> cache_info().maxsize
    4096
    """
    return build.CACHE.info()


def cache_clear() -> None:
    """Forget all layouts."""
    build.CACHE.clear()
