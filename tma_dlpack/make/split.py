"""`split_inner`: describe a tensor so that one copy fills a tile wider than the swizzle span."""

from __future__ import annotations

from typing import Any

from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.make.tiled import make_tma_descriptor
from tma_dlpack.tables.coerce import integers_of, shown, type_name
from tma_dlpack.tables.dtypes import overrides_of
from tma_dlpack.tables.enums import Ints, Swizzle, Tensor
from tma_dlpack.tables.errors import TmaPreconditionError, refusal
from tma_dlpack.tables.public import opaque
from tma_dlpack.tensor_map.map import TensorMap


@opaque
def split_inner(tensor: Tensor, box_sizes: Ints, swizzle: Swizzle = "bytes128") -> dict[str, Any]:
    """Describe a tensor (.., M, K) as (K / span, .., M, span), so that one copy fills a wide tile.

    A row of a box is at most one swizzle span wide: 32, 64 or 128 bytes. With the inner dimension
    split, one copy takes several spans of each row and writes them to shared memory as tensor cores
    read them: [column of spans][rows][span]. Each column of spans has the bytes that a copy of one
    span would have written.

    Parameters
    ----------
    tensor : tensor
        Of rank 1 to 4, as for `make_tma_descriptor`.
    box_sizes : sequence of int
        The tile (.., m, k), row-major, elements of the tensor.
    swizzle : TmaSwizzle, str or int
        Its span is the width to split by; ``"none"`` splits into columns of 16 bytes, the core
        matrices of an unswizzled operand.

    Returns
    -------
    dict
        Keyword arguments of `make_tma_descriptor` for the same tensor: `box_sizes`
        (k / span, .., m, span), `shape`, `strides` (elements), `swizzle`, and `allow` where
        libcu++'s rule of unique strides must be switched off (the driver has no such rule).
        The tile whose first element is (.., m, k) has the coordinates (k / span, .., m, 0).

    Raises
    ------
    TmaPreconditionError
        If K or k is not a multiple of the span, an element is not a whole number of bytes, the rank
        is not 1 to 4, or `box_sizes` does not have one entry per dimension.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((256, 512), np.float16)
    >>> arguments = tma.split_inner(x, (64, 128))  # 64 rows of 256 bytes: two spans of 128
    >>> arguments["shape"], arguments["strides"], arguments["box_sizes"]
    ((8, 256, 64), (64, 512, 1), (2, 64, 64))
    >>> tma.make_tma_descriptor(x, **arguments).tx_bytes == 64 * 128 * 2
    True
    """
    tm = described(tensor, box_sizes, swizzle=swizzle, split_inner=True)
    box, shape, strides = tm.box_sizes, tm.shape, tm.strides
    words: dict[str, Any] = {
        "box_sizes": box,
        "shape": shape,
        "strides": strides,
        "swizzle": tm.swizzle.name,
    }
    if len(shape) > 2 and shape[0] > 1 and box[-1] < shape[1] * strides[1]:
        words["allow"] = ("STRIDE_UNIQUE",)
    return words


def described(tensor: Any, box_sizes: Ints, **options: Any) -> TensorMap:
    """Make a map for its layout alone: for a target that has every swizzle, by the driver's rules.

    A type that maps do not have is carried as an unsigned integer of its size.
    """
    options |= {"rules": "driver", "target": "sm_100"}
    try:
        return make_tma_descriptor(tensor, box_sizes, **options)
    except TmaPreconditionError as error:
        if [violation.rule for violation in error.violations] != ["DTYPE"]:
            raise
        choices = overrides_of(as_tensor_view(tensor).dtype)
        if not choices:
            raise
        return make_tma_descriptor(tensor, box_sizes, data_type=choices[0], **options)


@opaque
def split_inner_coords(tensor_map: TensorMap, coords: Ints) -> tuple[int, ...]:
    """Return the coordinates, in a map with a split inner dimension, of a tile of the tensor.

    Parameters
    ----------
    tensor_map : TensorMap
        Made with ``split_inner=True``, or with the arguments of `split_inner`.
    coords : sequence of int
        The tile's first element (.., m, k): row-major, elements, one per dimension of the tensor; k
        is a multiple of the span.

    Returns
    -------
    tuple of int
        (k / span, .., m, 0): row-major, one more entry than `coords`.

    Raises
    ------
    TmaPreconditionError
        If the map is not such a map, or `coords` are not as above. A map that is ragged too has
        its coordinates from `ragged_coords`.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(64 * 256, dtype=np.float32).reshape(64, 256)
    >>> tm = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128", split_inner=True)
    >>> at = tma.split_inner_coords(tm, (16, 128))
    >>> at, bool(tma.load_tile(tm, at).array[0, 0, 0] == x[16, 128])
    ((4, 16, 0), True)
    """
    _require_split(tensor_map)
    if tensor_map.ragged is None:
        return span_coords(tensor_map, coords, tensor_map.rank - 1)
    fix = "use tma.ragged_coords(tensor_map, offset, size, coords), which splits too"
    raise refusal("tensor_map", "tensor_map is ragged too", "be split only", fix)


def _require_split(tensor_map: object) -> None:
    if not isinstance(tensor_map, TensorMap):
        found = f"tensor_map is a {type_name(type(tensor_map))}"
    elif _is_split(tensor_map):
        return
    else:
        found = f"tensor_map has shape {tensor_map.shape} and strides {tensor_map.strides}"
    fix = "make it with tma.make_tma_descriptor(x, box_sizes, swizzle=..., split_inner=True)"
    raise refusal("tensor_map", found, "be a map with a split inner dimension", fix)


def _is_split(tensor_map: TensorMap) -> bool:
    """Whether a map is split, as far as it is known: the outermost stride is one span."""
    if tensor_map.split_inner:
        return True
    if tensor_map.kind != "tiled" or tensor_map.rank < 2 or tensor_map.interleave:
        return False
    return tensor_map.shape[-1] == tensor_map.box_sizes[-1] == tensor_map.strides[0]


def span_coords(tensor_map: TensorMap, coords: object, rank: int) -> tuple[int, ...]:
    """Return the coordinates of a split map without those of `ragged`, for `rank` of the tensor."""
    span, numbers = tensor_map.shape[-1], integers_of(coords)
    if numbers is None or len(numbers) != rank:
        must = f"be {rank} integers, one per dimension of the tensor, row-major"
        fix = f"pass the tile's first element (.., m, k), such as {(0,) * rank}"
        raise refusal("coords", f"coords are {shown(coords)}", must, fix)
    if numbers[-1] % span:
        found = f"coords[{rank - 1}] is {numbers[-1]} in coords {numbers}"
        near = (*numbers[:-1], numbers[-1] // span * span)
        raise refusal("coords", found, f"be a multiple of {span}, the span", f"use coords {near}")
    return (numbers[-1] // span, *numbers[:-1], 0)
