"""`split_inner` and `ragged`: arguments that describe a tensor with additional dimensions.

A map made with `split_inner` can copy a tile that is wider than the swizzle span.

A map made with `ragged` serves slices of any length along one dimension, such as the rows of an
expert or of a sequence. An ordinary map has the bounds of the tensor, not of a slice. A ragged map
has two additional dimensions, and relies on the engine's addresses, which wrap at 2^64. In the
table, S is the stride of the ragged dimension, and the last column has the coordinates of row `row`
of a slice. The slice begins at row `offset` of the tensor and has `size` rows:

    dimension            extent      stride      coordinate
    second additional    0x7fff0000  2^34 - S    2^30
    first additional     0x7fff0000  S           offset + size
    ragged               2^30        S           2^30 - size + row

The strides are in elements, but in bytes for values smaller than a byte. In both cases, 2^30 times
the sum of the two additional strides is a multiple of 2^64 bytes.

The sum of coordinate x stride over these dimensions is (offset + row) x S plus a multiple of 2^64
bytes, so the copy accesses row `offset + row` of the tensor. If `row` is `size` or more, the
ragged coordinate is 2^30 or more, which is out of bounds. A load then writes the fill value, and a
store skips the row.

Source: measured, 600 loads and 200 stores (H200, driver 580.159.04, 2026-11-20). Triton
(ragged_tma.py), quack and Mojo use the same method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, SupportsIndex

from tma_dlpack.checks.request import ragged_wrap_bytes
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.make.descriptors import make_tma_descriptor
from tma_dlpack.public import opaque
from tma_dlpack.tables.arguments import NO_SWIZZLE, reverse
from tma_dlpack.tables.coerce import integer_of, integers_of, shown
from tma_dlpack.tables.dtypes import overrides_of
from tma_dlpack.tables.enums import Ints, Swizzle, Tensor, TensorMapDataType
from tma_dlpack.tables.errors import TmaPreconditionError, Violation, argument_error, bad_value
from tma_dlpack.tables.targets import RAGGED_EXTENT, RAGGED_EXTRA_EXTENT
from tma_dlpack.tensor_map.map import TensorMap


@opaque
def split_inner(tensor: Tensor, box_sizes: Ints, swizzle: Swizzle = "bytes128") -> dict[str, Any]:
    """Describe a tensor (.., M, K) as (K / span, .., M, span), so that one copy moves a wide tile.

    A row of a box is at most one swizzle span: 32, 64 or 128 bytes. If the inner dimension is
    split, one copy moves several spans of each row. The copy writes the spans to shared memory in
    the order in which tensor cores read them: [column of spans][rows][span]. Without the split,
    each column of spans needs a copy of its own, which writes the same bytes.

    Parameters
    ----------
    tensor : tensor
        A tensor of rank 1 to 4, as for `make_tma_descriptor`.
    box_sizes : sequence of int
        The tile (.., m, k), row-major, in elements of the tensor.
    swizzle : TmaSwizzle, str or int
        The inner dimension is split into spans of this swizzle. ``"none"`` splits the dimension
        into spans of 16 bytes, which are rows of the core matrices of an unswizzled operand.

    Returns
    -------
    dict
        Keyword arguments of `make_tma_descriptor` for the same tensor: `box_sizes`
        (k / span, .., m, span), `shape`, `strides` (elements) and `swizzle`. If libcu++'s rule of
        unique strides must be skipped, the dict also has `allow`; the driver has no such rule.
        The tile whose first element is (.., m, k) has the coordinates (k / span, .., m, 0).

    Raises
    ------
    TmaPreconditionError
        If K or k is not a multiple of the span, if an element is not a whole number of bytes, if
        the rank is not 1 to 4, or if `box_sizes` does not have one entry per dimension.

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
    tm = _described(tensor, box_sizes, swizzle, True, None)
    box, shape, strides = tm.box_sizes, tm.shape, tm.strides
    words: dict[str, Any] = {
        "box_sizes": box,
        "shape": shape,
        "strides": strides,
        "swizzle": tm.swizzle.name,
    }
    # The spans of a row overlap the next rows in this description. Of all rules, only libcu++'s
    # STRIDE_UNIQUE forbids this.
    if len(shape) > 2 and shape[0] > 1 and box[-1] < shape[1] * strides[1]:
        words["allow"] = ("STRIDE_UNIQUE",)
    return words


def _described(
    tensor: Any,
    box_sizes: Ints,
    swizzle: Swizzle,
    split_inner: bool,
    ragged: SupportsIndex | None,
    carrier: TensorMapDataType | None = None,
) -> TensorMap:
    """Make a map whose layout the caller reads; no kernel uses the map.

    The map is for a target that has every swizzle, and only the driver's rules apply. `carrier` is
    the data type of the map; None means the default for the tensor's dtype. If the dtype has no
    default, the function calls itself with another `carrier`: a data type of the dtype's size.
    """
    try:
        return make_tma_descriptor(
            tensor,
            box_sizes,
            swizzle=swizzle,
            data_type=carrier,
            rules="driver",
            split_inner=split_inner,
            ragged=ragged,
            target="sm_100",
        )
    except TmaPreconditionError as error:
        # a call with a `carrier` is already the second attempt
        if carrier is not None or [violation.rule for violation in error.violations] != ["DTYPE"]:
            raise
        # The dtype has no default data type, so choose a type of the same size.
        choices = overrides_of(as_tensor_view(tensor).dtype)
        if not choices:
            raise
    return _described(tensor, box_sizes, swizzle, split_inner, ragged, choices[0])


@opaque
def split_inner_coords(tensor_map: TensorMap, coords: Ints) -> tuple[int, ...]:
    """Return the coordinates of a tile in a map with a split inner dimension.

    Parameters
    ----------
    tensor_map : TensorMap
        A map made with ``split_inner=True``, or with the arguments that `split_inner` returns.
    coords : sequence of int
        Coordinates of the tile's first element in the tensor (.., m, k): row-major, in elements,
        one entry per dimension of the tensor. k must be a multiple of the span.

    Returns
    -------
    tuple of int
        The coordinates (k / span, .., m, 0): row-major, one more entry than `coords`.

    Raises
    ------
    TmaPreconditionError
        If the map has no split inner dimension, if `coords` are wrong, or if the map is also
        ragged. `ragged_coords` returns the coordinates for a map that is split and ragged.

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
        rank = tensor_map.rank - 1
        fix = f"pass the tile's first element (.., m, k), such as {(0,) * rank}"
        return _span_coords(tensor_map, _read_coords(coords, rank, fix))
    fix = "use tma.ragged_coords(tensor_map, offset, size, coords), which splits too"
    raise argument_error("tensor_map", "tensor_map is ragged too", "be split only", fix)


def _require_split(tensor_map: object) -> None:
    if not isinstance(tensor_map, TensorMap):
        found = f"tensor_map is a {type(tensor_map).__name__}"
    elif _is_split(tensor_map):
        return
    else:
        found = f"tensor_map has shape {tensor_map.shape} and strides {tensor_map.strides}"
    fix = "make it with tma.make_tma_descriptor(x, box_sizes, swizzle=..., split_inner=True)"
    raise argument_error("tensor_map", found, "be a map with a split inner dimension", fix)


def _is_split(tensor_map: TensorMap) -> bool:
    """Return whether a map was made with `split_inner=True`, or has the layout of a split map."""
    if tensor_map.split_inner:
        return True
    if tensor_map.kind != "tiled" or tensor_map.rank < 2 or tensor_map.interleave:
        return False
    # The innermost dimension is one span, and the outermost dimension steps from span to span.
    return tensor_map.shape[-1] == tensor_map.box_sizes[-1] == tensor_map.strides[0]


def _read_coords(coords: object, rank: int, fix: str) -> tuple[int, ...]:
    numbers = integers_of(coords)
    if numbers is None or len(numbers) != rank:
        must = f"be {rank} integers, one per dimension of the tensor, row-major"
        raise argument_error("coords", f"coords are {shown(coords)}", must, fix)
    return numbers


def _span_coords(tensor_map: TensorMap, coords: Sequence[int]) -> tuple[int, ...]:
    """Return a tile's coordinates in a split map, except those that `ragged` adds."""
    *outer, k = coords
    span = tensor_map.shape[-1]
    if k % span:
        found = f"coords[{len(outer)}] is {k} in coords {tuple(coords)}"
        near = (*outer, k // span * span)
        raise argument_error(
            "coords", found, f"be a multiple of {span}, the span", f"use coords {near}"
        )
    # A tile starts at the first element of a span, so the innermost coordinate is 0.
    return (k // span, *outer, 0)


#: Number of dimensions that `ragged` adds.
EXTRA_DIMENSIONS = 2


@opaque
def ragged(tensor: Tensor, box_sizes: Ints, dim: SupportsIndex = 0) -> dict[str, Any]:
    """Return the keyword arguments of `make_tma_descriptor` for slices of any length along `dim`.

    The map ``make_tma_descriptor(x, **ragged(x, box_sizes))`` serves every slice. Rows past the end
    of a slice are out of bounds, although they are rows of the tensor.

    Parameters
    ----------
    tensor : tensor
        A tensor of rank 2 or 3 that contains the slices one after the other along `dim`.
    box_sizes : sequence of int
        Extents of the tile: row-major, in elements, one entry per dimension of the tensor.
    dim : int
        The dimension that is cut into slices. A negative number counts from the end. It must not be
        the innermost dimension.

    Returns
    -------
    dict
        `shape`, `strides` (elements) and `box_sizes`, all row-major, and `allow`, because the
        strides overlap on purpose. The map has two additional outer dimensions. `ragged_coords`
        returns the coordinates of a tile.

    Raises
    ------
    TmaPreconditionError
        If `tensor` is not a tensor of rank 2 or 3, if `box_sizes` does not have one entry per
        dimension, or if `dim` is the innermost dimension or out of range.

    Notes
    -----
    Loads, stores and reductions are measured (H200, driver 580.159.04). A copy accesses only rows
    of its slice, whatever the address of the tensor is.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tokens = np.zeros((1000, 64), dtype=np.float16)  # of 8 experts, say
    >>> arguments = ragged(tokens, box_sizes=(128, 64))
    >>> arguments["shape"] == (0x7FFF0000, 0x7FFF0000, 1 << 30, 64)
    True
    >>> arguments["strides"], arguments["box_sizes"]
    ((17179869120, 64, 64, 1), (1, 1, 128, 64))
    """
    if integer_of(dim) is None:
        raise bad_value("dim", dim, "be a dimension of the tensor", "pass dim=0")
    try:
        tm = _described(tensor, box_sizes, NO_SWIZZLE, False, dim)
    except TmaPreconditionError as error:  # change `ragged` to `dim`, the name of the argument here
        from tma_dlpack.make.build import reworded

        raise reworded(error, _of_dim) from error.__cause__
    return {
        "shape": tm.shape,
        "strides": tm.strides,
        "box_sizes": tm.box_sizes,
        "allow": ("STRIDE_UNIQUE",),
    }


@opaque
def ragged_coords(
    tensor_map: TensorMap, offset: SupportsIndex, size: SupportsIndex, coords: Ints
) -> tuple[int, ...]:
    """Return the coordinates of a tile of one slice, in a map made with `ragged`.

    A kernel must compute the same coordinates: it puts ``(2^30, offset + size)`` before the tile's
    coordinates within the slice, and replaces the coordinate ``row`` along the ragged dimension by
    ``2^30 - size + row``.

    Parameters
    ----------
    tensor_map : TensorMap
        A map made with ``ragged=dim``, or with the arguments that `ragged` returns.
    offset, size : int
        The slice has `size` rows along the ragged dimension and begins at row `offset`.
    coords : sequence of int
        Coordinates of the tile's first element within the slice: row-major, in elements, one entry
        per dimension of the tensor. The tile may reach past the end of the slice. The tile must not
        begin before the slice's first row, because earlier rows belong to the previous slice. If
        the map was also made with ``split_inner=True``, the last coordinate must be a multiple of
        the span.

    Returns
    -------
    tuple of int
        The coordinates, row-major. The tuple has two entries more than `coords`, or three more if
        the map is split too, because a split map has two coordinates for the last dimension.

    Raises
    ------
    TmaPreconditionError
        If the map was not made with `ragged`, if the slice is not within the tensor, or if the tile
        begins before the slice.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.arange(10 * 4, dtype=np.float32).reshape(10, 4)
    >>> made = ragged(x, (4, 4))
    >>> tm = tma.driver_encode_tiled("FLOAT32", 4, x.ctypes.data, made["shape"][::-1],
    ...     [4 * s for s in made["strides"][-2::-1]], made["box_sizes"][::-1], (1, 1, 1, 1))
    >>> at = ragged_coords(tm, offset=3, size=2, coords=(0, 0))  # rows 3 and 4
    >>> tma.load_tile(tm, at, memory=x.view(np.uint8).reshape(-1)).array[0, 0, :, 0].tolist()
    [12.0, 16.0, 0.0, 0.0]
    """
    ragged_dim = _ragged_dim_of(tensor_map)
    begin, count = _slice(tensor_map, ragged_dim, offset, size)
    rank = tensor_map.rank - EXTRA_DIMENSIONS - bool(tensor_map.split_inner)
    given = _read_coords(coords, rank, "count from the slice's start")
    row = given[ragged_dim]
    if row < 0:
        found = f"coords[{ragged_dim}] is {row} in coords {given}"
        must = "be 0 or more along the ragged dimension: rows before belong to another slice"
        raise argument_error("coords", found, must, "start at 0 or more")
    # Rows past the slice have coordinates of 2^30 or more; see the table of this module.
    inside = list(given)
    inside[ragged_dim] = RAGGED_EXTENT - count + row
    if tensor_map.split_inner:
        inside = list(_span_coords(tensor_map, inside))
    return (RAGGED_EXTENT, begin + count, *inside)


# --- Checks of arguments ------------------------------------------------------------------------


def _of_dim(violation: Violation) -> Violation:
    if violation.argument != "ragged":
        return violation
    found = violation.found.replace("ragged is", "dim is")
    fix = violation.fix.replace("ragged=", "dim=")
    return dataclasses.replace(violation, argument="dim", found=found, fix=fix)


def _ragged_dim_of(tensor_map: object) -> int:
    """Return the ragged dimension as an index into the tensor's shape.

    Refuse a map that is not ragged.
    """
    if not isinstance(tensor_map, TensorMap):
        found = f"tensor_map is a {type(tensor_map).__name__}"
    elif tensor_map.ragged is not None:
        return tensor_map.ragged
    elif tensor_map.kind == "tiled" and tensor_map.rank > EXTRA_DIMENSIONS:
        # The call that made the map is not known, so recognise a ragged map by its extents and
        # strides; see the table in the docstring of this module.
        shape, strides = tensor_map.shape, reverse(tensor_map.global_strides)
        wrap = ragged_wrap_bytes(tensor_map.arguments.type_row.element_bits)
        # the extents and strides of all three dimensions must be those of the table
        is_extended = shape[:2] == (RAGGED_EXTRA_EXTENT,) * 2 and not tensor_map.interleave
        for d in range(EXTRA_DIMENSIONS, tensor_map.rank - 1) if is_extended else ():
            wraps = strides[0] + strides[1] == wrap and strides[d] == strides[1]
            if wraps and shape[d] == RAGGED_EXTENT:
                return d - EXTRA_DIMENSIONS
        found = f"tensor_map has shape {shape} and global_strides {strides[::-1]}"
    else:
        found = f"tensor_map is {tensor_map.kind} of rank {tensor_map.rank}"
    fix = "make it with tma.make_tma_descriptor(x, box_sizes, ragged=0)"
    raise argument_error("tensor_map", found, "be a map that was made with tma.ragged", fix)


def _slice(tensor_map: TensorMap, dim: int, offset: object, size: object) -> tuple[int, int]:
    """Return a slice's offset and size as ints; refuse a slice that leaves the tensor."""
    begin, count = integer_of(offset), integer_of(size)
    view = tensor_map.view
    if view is not None and tensor_map.ragged is None:
        # If the user passed the arguments of `ragged`, the view has the map's dimensions, and
        # `own` has the tensor's.
        view = view.own
        if view is not None and len(view.shape) != tensor_map.rank - EXTRA_DIMENSIONS:
            view = None
    # Without a view the tensor's number of rows is unknown. Then the extent of the additional
    # dimension is the limit.
    extent = RAGGED_EXTRA_EXTENT - 1 if view is None else view.shape[dim]
    if begin is None or count is None or min(begin, count) < 0 or begin + count > extent:
        found = f"the slice has offset={shown(offset)} and size={shown(size)}"
    elif count > RAGGED_EXTENT:
        found, extent = f"the slice has size={count}", RAGGED_EXTENT
    else:
        return begin, count
    must = f"lie within the {extent} rows along dimension {dim}"
    raise argument_error("offset", found, must, "pass the slice's first row and its number of rows")
