"""Checks of the new address, or the new tensor, of `TensorMap.with_address`."""

from __future__ import annotations

from tma_dlpack.checks.parse import driver_layout
from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.dtypes import data_type_of, overrides_of
from tma_dlpack.tables.errors import TmaPreconditionError, Violation
from tma_dlpack.tables.limits import ADDRESS_END
from tma_dlpack.tensor_map.description import Description


def check_address(address: int, argument: str, alignment_bytes: int) -> None:
    """Refuse an address that no map can have."""
    if address % alignment_bytes == 0 and 0 < address < ADDRESS_END:
        return
    raise TmaPreconditionError(
        Violation(
            rule="ADDRESS_ALIGNED" if address % alignment_bytes else "ADDRESS_RANGE",
            argument=argument,
            found=f"the address is {address:#x}",
            limit=f"it must be a multiple of {alignment_bytes} bytes, above 0 and below 2^57",
            fix="pass a tensor that starts at such an address, for example x.clone() of torch",
            source="CUDA driver API, cuTensorMapReplaceAddress; measured, H200",
        )
    )


def differences(description: Description, view: TensorView) -> list[Violation]:
    """Give one violation per difference between a tensor and the one that a map describes."""
    old, arguments = description.view, description.arguments
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
        dims, strides_bytes = driver_layout(view, arguments.data_type)
        pairs = [
            ("shape", arguments.global_dim, dims),
            ("strides in bytes", arguments.global_strides, strides_bytes),
            ("dtype", arguments.data_type.name, _type_name(arguments, view)),
        ]
    return [
        Violation(
            rule="ADDRESS_LAYOUT",
            argument="tensor_or_int",
            found=f"the tensor has {what} {new}",
            limit=f"it must be {was}, as in the map",
            fix="make a new map of this tensor with make_tma_descriptor(x, ...)",
            source="CUDA driver API, cuTensorMapReplaceAddress",
        )
        for what, was, new in pairs
        if was != new
    ]


def _type_name(arguments: EncodeArguments, view: TensorView) -> str:
    """Name the map's data type if it fits the tensor's dtype, else the type that would."""
    usual = data_type_of(view.dtype)
    if arguments.data_type in (usual, *overrides_of(view.dtype)):
        return arguments.data_type.name
    return str(view.dtype) if usual is None else usual.name
