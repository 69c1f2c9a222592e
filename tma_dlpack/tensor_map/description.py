"""`Description`, which is a map without its bytes and address, and the checks of a new address."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.arguments import EncodeArguments, arguments_of
from tma_dlpack.tables.dtypes import data_type_of, overrides_of
from tma_dlpack.tables.errors import TmaPreconditionError, Violation
from tma_dlpack.tables.refusals import REFUSALS
from tma_dlpack.tables.targets import ADDRESS_END, Target

if TYPE_CHECKING:
    from tma_dlpack.checks.request import Request


@dataclass(frozen=True, slots=True)
class Description:
    """A tensor map without its address and bytes.

    Attributes
    ----------
    arguments : EncodeArguments
    target : Target
    encoder : {"driver", "model", None}
        The encoder of the bytes. None if `from_bytes` or `replace` made the map, or if the map has
        no bytes.
    view : TensorView or None
        The layout of the tensor, with address 0 and no owner. None for a map of a bare address,
        which is an address without a tensor.
    request : Request or None
        The request of the call that made the map; None for decoded bytes.
    added : (bool, int or None) or None
        Whether the map was made with `split_inner=True`, and the index of the tensor's ragged
        dimension, row-major from 0. None if the call is not known.
    """

    arguments: EncodeArguments
    target: Target
    encoder: str | None = None
    view: TensorView | None = None
    request: Request | None = field(default=None, repr=False, compare=False)
    added: tuple[bool, int | None] | None = field(default=None, compare=False)

    def of(self, view: TensorView | None) -> Description:
        """Return a copy for another tensor. If `view` is None, the copy is for a bare address."""
        return dataclasses.replace(self, view=view)


def replaced(known: Description, arguments: EncodeArguments, moved: bool) -> Description:
    """Describe the map that `TensorMap.replace` returns; `known` describes the original map.

    `arguments` are the new arguments, and `moved` means that the address changed. The result has no
    request. If the coordinates of `split_inner` or of `ragged` depend on a field that has changed,
    `added` of the result is None. In a map with both options, the coordinates of each option depend
    on the dimensions that the other option added.
    """
    view, added = None if moved else known.view, known.added
    if _coordinate_base(known, known.arguments) != _coordinate_base(known, arguments):
        added = None
    return Description(arguments, known.target, view=view, added=added)


def _coordinate_base(known: Description, new: EncodeArguments) -> tuple[object, ...]:
    """Return the fields that the coordinates of `split_inner` and `ragged` depend on.

    Arrays in `new` are innermost first. The dimensions of a map are, outermost first: the two
    dimensions that `ragged` adds, the dimension that `split_inner` adds, and the tensor's
    dimensions.
    """
    old, (split, ragged) = known.arguments, known.added or (False, None)
    base: list[object] = []
    extra = 0 if ragged is None else 2  # number of dimensions that `ragged` adds
    # index of the outermost dimension that `ragged` did not add; in a split map, this dimension
    # counts the spans
    outermost = old.rank - extra - 1
    if split or extra:
        base += [new.rank, new.interleave]
    if new.rank != old.rank:
        return (*base,)
    # the width of a span, and the step from span to span
    if split:
        base += [new.type_row.element_bits, new.global_dim[0], new.box_dim[0]]
        base.append(new.global_strides[outermost - 1])
    # the extent and stride of the ragged dimension, and the two added dimensions
    if ragged is not None:
        row = outermost - bool(split) - ragged
        base += [new.global_dim[row], new.global_strides[row - 1]]
        base += [new.global_dim[-extra:], new.global_strides[-extra:]]
    return (*base,)


def of_request(request: Request, arguments: EncodeArguments, encoder: str | None) -> Description:
    """Describe the map of an accepted request; `arguments` is `request.encode_arguments()`."""
    view, ragged = request.view, request.rare.ragged
    return Description(
        arguments,
        request.target,
        encoder,
        # the view has address 0 and no owner, because a description must not keep the tensor alive
        view if view is None or view.own is None else view.at(0),
        request,
        (request.rare.split_inner, None if ragged is None else ragged % request.rank),
    )


def describe(tensor_map: Any) -> Description:
    """Describe a `TensorMap` that C made; do not parse or check its call again."""
    from tma_dlpack.checks.request import driver_call, request_of_map

    assert tensor_map._call is not None
    arguments = arguments_of(tensor_map._numbers)
    if tensor_map._call:
        request = request_of_map(tensor_map)
    else:  # a driver_encode_* function made the map
        request = driver_call(arguments, tensor_map._address, tensor_map.target)
    return of_request(request, arguments, tensor_map._encoder)


# -- another address -------------------------------------------------------------------------------


def check_address(address: int, argument: str, alignment_bytes: int) -> None:
    """Refuse an address that is misaligned, not above 0, or not below 2^57."""
    if address % alignment_bytes == 0 and 0 < address < ADDRESS_END:
        return
    rule = "ADDRESS_ALIGNED" if address % alignment_bytes else "ADDRESS_RANGE"
    found = f"the address is {address:#x}"
    limit = f"it must be a multiple of {alignment_bytes} bytes, above 0 and below 2^57"
    fix = "pass a tensor that starts at such an address, for example x.clone() of torch"
    source = "CUDA driver API, cuTensorMapReplaceAddress; measured, H200"
    raise TmaPreconditionError(Violation(rule, argument, found, limit, fix, source))


def differences(description: Description, view: TensorView) -> list[Violation]:
    """Return a violation for each property in which a tensor differs from a map's tensor."""
    from tma_dlpack.checks.request import driver_layout

    old, arguments = description.view, description.arguments
    # `old.own` is the view of the tensor itself, without shape=, strides= and offset=
    if old is not None and old.own is not None:
        old = old.own
    if old is not None:
        pairs = [
            ("shape", old.shape, view.shape),
            ("strides", old.strides, view.strides),
            ("dtype", str(old.dtype), str(view.dtype)),
            ("device", str(old.device), str(view.device)),
        ]
    else:
        # a map of a bare address has no tensor, so compare the driver's arguments, innermost first
        dims, strides_bytes = driver_layout(view, arguments.data_type)
        # No access uses the stride of a dimension with one element, so take the map's stride.
        known = zip(dims[1:], arguments.global_strides, strides_bytes, strict=False)
        if dims == arguments.global_dim:
            strides_bytes = tuple(was if dim == 1 else now for dim, was, now in known)
        pairs = [
            ("shape", arguments.global_dim, dims),
            ("strides in bytes", arguments.global_strides, strides_bytes),
            ("dtype", arguments.data_type.name, _type_name(arguments, view)),
        ]
    return [
        REFUSALS["ADDRESS_LAYOUT"].violation(
            "tensor_or_int",
            f"the tensor has {what} {new}",
            limit=f"it must be {was}, as in the map",
        )
        for what, was, new in pairs
        if was != new
    ]


def _type_name(arguments: EncodeArguments, view: TensorView) -> str:
    """Return the name of the map's data type if it fits the tensor's dtype.

    Otherwise return the name of the dtype's default data type. If the dtype has no default data
    type, return the name of the dtype.
    """
    usual = data_type_of(view.dtype)
    if arguments.data_type in (usual, *overrides_of(view.dtype)):
        return arguments.data_type.name
    return str(view.dtype) if usual is None else usual.name
