"""The swizzles that a map could have instead of its own."""

from __future__ import annotations

from dataclasses import replace

from tma_dlpack.checks.check import find_violations
from tma_dlpack.checks.request import Request
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import TmaSwizzle
from tma_dlpack.tensor_map.map import TensorMap


def with_other_swizzles(own: EncodeArguments, tensor_map: TensorMap) -> list[EncodeArguments]:
    """Give arguments with each other swizzle that the rules accept on the GPU of a map.

    `own` are the map's, or those of what is copied through it, such as the four rows of gather4.

    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 32), np.float16), (64, 32))
    >>> [a.swizzle.name for a in with_other_swizzles(tm.arguments, tm)]
    ['bytes64', 'bytes128']
    """
    others = [replace(own, swizzle=s) for s in TmaSwizzle if s is not own.swizzle]
    return [a for a in others if _is_accepted(a, tensor_map)]


def _is_accepted(arguments: EncodeArguments, tensor_map: TensorMap) -> bool:
    """Whether the driver's rules accept these arguments at the same address."""
    target = tensor_map.target
    request = Request(
        arguments,
        tensor_map.global_address,
        arguments.rank,
        rules="measured" if target.has_model else "documented",
        target=target,
        is_driver_call=True,
    )
    return not find_violations(request)
