"""PyTorch operators that make maps in graphs; ``import tma_dlpack.torch_ops`` registers them.

While PyTorch traces a graph (``torch.compile(fullgraph=True)``, ``torch.export``), tensors have no
addresses. The operators `make_tma_descriptor` and `make_im2col_descriptor` make the map when the
graph runs. They are also available as ``torch.ops.tma_dlpack.<name>``. Each operator returns the
128 bytes of the map as a CPU tensor, uint8[128], which a PyTorch extension can take
(``#include <tma_dlpack.h>``).

A graph does not know that the map contains the tensor's address. So **pass the tensor too** to the
operator that uses the map. Otherwise the graph may reuse the tensor's memory before that operator
runs, and the graph does not notice that the operator changes the tensor. An operator that stores to
the tensor must name the tensor in its ``mutates_args``.

Pass options as names (``swizzle="bytes128"``), because a graph does not accept the enums of this
package. The map of a host tensor contains a host address: pass its bytes to `TensorMap.from_bytes`,
never to a kernel.

Examples
--------
>>> import numpy as np, torch
>>> import tma_dlpack as tma
>>> from tma_dlpack import torch_ops
>>> x = torch.zeros(64, 64)
>>> data = torch_ops.make_tma_descriptor(x, [16, 32], swizzle="bytes128")
>>> data.dtype, data.shape
(torch.uint8, torch.Size([128]))
>>> bytes(data.numpy()) == bytes(tma.make_tma_descriptor(x, (16, 32), swizzle="bytes128"))
True
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tma_dlpack.make.descriptors import make_im2col_descriptor as _make_im2col
from tma_dlpack.make.descriptors import make_tma_descriptor as _make_tiled
from tma_dlpack.tables.arguments import NO_SWIZZLE
from tma_dlpack.tables.targets import MAP_BYTES
from tma_dlpack.tensor_map.map import TensorMap

__all__ = ["make_im2col_descriptor", "make_tma_descriptor"]

#: Annotation -> type in a PyTorch schema. Other annotations become "str".
_TYPES = {
    **{"Tensor": "Tensor", "Ints": "int[]", "SupportsIndex": "int", "bool": "bool"},
    "Iterable[str]": "str[]",
}


def _schema(make: Callable[..., TensorMap]) -> str:
    """Return the PyTorch schema of an operator that has the parameters of a function."""
    words: list[str] = []
    for p in inspect.signature(make).parameters.values():
        default = None if p.default is NO_SWIZZLE or p.default == () else p.default
        kind = _TYPES.get(p.annotation.removesuffix(" | None"), "str")
        shown = f'"{default}"' if type(default) is str else default
        if p.kind is p.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        value = "" if p.default is p.empty else f"={shown}"
        words.append(f"{kind}{'?' if default is None else ''} {p.name}{value}")
    return f"({', '.join(words)}) -> Tensor"


#: This tag forbids Inductor to change the strides of the tensor. torch before 2.7 has only the
#: older of the two tags.
_KEEP_STRIDES = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)


def _bytes_of(tensor_map: TensorMap) -> torch.Tensor:
    if tensor_map.launchable:
        return tensor_map.as_torch()  # the result keeps the map and its tensor alive
    return torch.frombuffer(bytearray(bytes(tensor_map)), dtype=torch.uint8)


def _run_tiled(
    tensor: torch.Tensor,
    box_sizes: Any,
    elem_strides: Any = None,
    interleave_layout: str = "none",
    swizzle: str | None = None,  # None means omitted; split_inner= requires a swizzle
    *arguments: Any,
    allow: Sequence[str] | None = None,  # a schema cannot have a default for a list of str
    **options: Any,
) -> torch.Tensor:
    given = (box_sizes, elem_strides, interleave_layout, swizzle or NO_SWIZZLE, *arguments)
    return _bytes_of(_make_tiled(tensor, *given, allow=allow or (), **options))


def _run_im2col(
    tensor: torch.Tensor, *arguments: Any, allow: Sequence[str] | None = None, **options: Any
) -> torch.Tensor:
    return _bytes_of(_make_im2col(tensor, *arguments, allow=allow or (), **options))


def _fake(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    return torch.empty(MAP_BYTES, dtype=torch.uint8, device="cpu")


def _operator(make: Callable[..., TensorMap], run: Any) -> Any:
    made = torch.library.custom_op(
        f"tma_dlpack::{make.__name__}",
        run,
        mutates_args=(),
        schema=_schema(make),
        tags=(_KEEP_STRIDES,),
    )
    made.register_fake(_fake)
    return made


make_tma_descriptor: Any = _operator(_make_tiled, _run_tiled)
make_im2col_descriptor: Any = _operator(_make_im2col, _run_im2col)
