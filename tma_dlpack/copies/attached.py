"""The tensor of a map as it is now.

A map keeps its tensor alive, and yet the tensor can take other memory, or lose it: ``layer.half()``
and ``x.resize_()`` of torch, ``x.resize()`` of NumPy, ``x.delete()`` of JAX. So each copy asks it
again.
"""

from __future__ import annotations

from tma_dlpack.copies.refusals import refuse
from tma_dlpack.dlpack import TensorView, as_tensor_view, storage_holds
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.types.errors import TmaPreconditionError

__all__ = ["attached_view", "check_storage"]

#: What of a view a map depends on.
_DESCRIBED = ("address", "shape", "strides", "dtype", "device")


def attached_view(tensor_map: TensorMap) -> TensorView | None:
    """Give the view of a map's tensor, which must lie where and as it did when the map was made.

    None for a bare address. A capsule that the map keeps holds the memory by itself, and its
    producer may export another temporary each time, so it is not asked again.
    """
    view = tensor_map.view
    if view is None:
        return None
    view = view.own or view  # a map may describe the tensor's memory otherwise
    if view.capsule is not None:
        return view
    try:
        now = as_tensor_view(view.owner)
    except TmaPreconditionError as error:
        refuse("COPY_MOVED", "memory", f"the map's {error.violations[0].found}", error)
    for what in _DESCRIBED:
        is_, was = getattr(now, what), getattr(view, what)
        if is_ != was:
            shown = hex if what == "address" else str
            found = f"the {what} of the map's tensor is {shown(is_)}, and the map has {shown(was)}"
            refuse("COPY_MOVED", "memory", found)
    return now


def check_storage(view: TensorView, size_bytes: int, what: str) -> None:
    """Refuse a tensor whose storage has become too small for it, of which it knows nothing."""
    if not storage_holds(view.owner, view.address, size_bytes):
        found = f"the storage of {what} no longer holds its {size_bytes} bytes"
        refuse("COPY_MOVED", "memory", found)
