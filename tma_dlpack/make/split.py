"""`split_inner`: describe a tensor so that one copy fills a tile wider than the swizzle span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tma_dlpack.dlpack import TensorView, as_tensor_view
from tma_dlpack.tables.coerce import integers_of, shown, type_name
from tma_dlpack.tables.enums import Swizzle, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, Violation, refusal
from tma_dlpack.tables.limits import INNER_BYTES, MAX_RANK, SWIZZLE_SPAN_BYTES
from tma_dlpack.tables.meanings import parse
from tma_dlpack.tables.opaque import opaque
from tma_dlpack.tensor_map.map import TensorMap

SOURCE = "tma_dlpack, split_inner: the inner dimension in spans of the swizzle"


@opaque
def split_inner(
    tensor: object, box_sizes: Sequence[int], swizzle: Swizzle = "bytes128"
) -> dict[str, Any]:
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
    view, chosen = as_tensor_view(tensor), _swizzle_of(swizzle)
    box = _box_of(box_sizes, view)
    span = _span_elements(view, chosen)
    for argument, name, extent in (
        ("tensor", "the last dimension", view.shape[-1]),
        ("box_sizes", "the last entry of box_sizes", box[-1]),
    ):
        if extent % span or not extent:
            raise _indivisible(argument, name, extent, span, view, box, chosen)
    shape = (view.shape[-1] // span, *view.shape[:-1], span)
    strides = (span, *view.strides)
    words: dict[str, Any] = {
        "box_sizes": (box[-1] // span, *box[:-1], span),
        "shape": shape,
        "strides": strides,
        "swizzle": chosen.name,
    }
    if len(shape) > 2 and shape[0] > 1 and span < shape[1] * strides[1]:
        words["allow"] = ("STRIDE_UNIQUE",)
    return words


@opaque
def split_inner_coords(tensor_map: TensorMap, coords: Sequence[int]) -> tuple[int, ...]:
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


def _swizzle_of(swizzle: object) -> TmaSwizzle:
    try:
        return parse(TmaSwizzle, swizzle)
    except (TypeError, ValueError) as error:
        found = f"swizzle is {shown(swizzle)}"
        must, fix = "be a TmaSwizzle, its name or its value", "pass swizzle='bytes128'"
        raise refusal("swizzle", found, must, fix) from error


def _box_of(box_sizes: object, view: TensorView) -> tuple[int, ...]:
    rank = len(view.shape)
    if not 1 <= rank < MAX_RANK:
        raise _refused(
            "SPLIT_RANK",
            "tensor",
            f"the tensor has {rank} dimensions",
            f"have 1 to {MAX_RANK - 1}: the split adds one, and a map has {MAX_RANK} at most",
            "merge dimensions of a contiguous tensor, x.flatten(0, 1), or take a slice, x[0]",
        )
    box = integers_of(box_sizes)
    if box is None or len(box) != rank or min(box) < 1:
        found = f"box_sizes is {shown(box_sizes)}"
        must = f"be {rank} positive integers, one per dimension of the tensor"
        fix = "pass the tile's extents, row-major, before the split"
        raise refusal("box_sizes", found, must, fix)
    return box


def _span_elements(view: TensorView, swizzle: TmaSwizzle) -> int:
    """Give the elements of one span; without swizzle, of one row of a core matrix."""
    bits = view.dtype.itemsize_bits
    if bits % 8 or view.dtype.bits < 8:
        raise _refused(
            "SPLIT_DTYPE",
            "tensor",
            f"the tensor's type is {view.dtype}",
            "have elements of whole bytes",
            "view the storage as bytes, x.view(uint8), and split that",
        )
    span_bytes = SWIZZLE_SPAN_BYTES[swizzle] or INNER_BYTES
    return max(1, span_bytes * 8 // bits)


def _indivisible(
    argument: str,
    name: str,
    extent: int,
    span: int,
    view: TensorView,
    box: tuple[int, ...],
    swizzle: TmaSwizzle,
) -> TmaPreconditionError:
    """Propose a rounded box, a padded tensor or a narrower swizzle."""
    up = max(span, -(-extent // span) * span)
    if argument == "box_sizes":
        down = max(span, extent // span * span)
        whole = f"{down} or {up}" if down != up else f"{up}"
        fix = f"use a multiple of {span}: {whole}"
    else:
        fix = (
            f"pad the last dimension from {extent} to {up} elements, or copy one span at a time: "
            f"box_sizes={(*box[:-1], min(box[-1], span))}, swizzle={swizzle.name!r}"
        )
    narrower = [
        other.name
        for other in (TmaSwizzle.bytes64, TmaSwizzle.bytes32)
        if other < swizzle <= TmaSwizzle.bytes128
        and all(n and n % _span_elements(view, other) == 0 for n in (view.shape[-1], box[-1]))
    ]
    if narrower:
        fix += f"; or pass swizzle={narrower[0]!r}, whose spans divide it"
    span_bytes = span * view.dtype.itemsize_bits // 8
    return _refused(
        "SPLIT_SPAN",
        argument,
        f"{name} is {extent} elements",
        f"be a multiple of {span}, the {span_bytes} bytes of a span of swizzle {swizzle.name}",
        fix,
    )


def _refused(rule: str, argument: str, found: str, must: str, fix: str) -> TmaPreconditionError:
    return TmaPreconditionError(Violation(rule, argument, found, f"it must {must}", fix, SOURCE))
