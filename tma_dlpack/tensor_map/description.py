"""What a map describes beside its bytes and address; worked out when an attribute is first read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from tma_dlpack import driver
from tma_dlpack.checks.parse import DRIVER_ARGUMENTS, OPTIONS, read_call, read_driver_call
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import Layout, TensorView, judge
from tma_dlpack.tables.arguments import KINDS, EncodeArguments
from tma_dlpack.tables.targets import DEFAULT_TARGET, Target
from tma_dlpack.tensor_map.storage import Asked


@dataclass(frozen=True, slots=True)
class Description:
    """A tensor map without its address and bytes.

    Attributes
    ----------
    arguments : EncodeArguments
    target : Target
    encoder : {"driver", "model", None}
        What made the bytes; None if there are none, or they came from elsewhere.
    view : TensorView or None
        The tensor, with address 0 and no owner; None for bare addresses.
    request : Request or None
        The request that was accepted; None for decoded bytes.
    """

    arguments: EncodeArguments
    target: Target
    encoder: str | None = None
    view: TensorView | None = None
    request: Request | None = field(default=None, repr=False, compare=False)

    def of(self, view: TensorView | None) -> Description:
        """Give the same description of another tensor, or of a bare address."""
        return dataclasses.replace(self, view=view)


def describe(asked: Asked, producer: str) -> Description:
    """Describe a map that the short cut made.

    The call is parsed as for the rules, but not checked again.

    Parameters
    ----------
    asked : Asked
    producer : str
        Type of the tensor, for messages.
    """
    number, address, layout, options, by_driver = asked
    kind = KINDS[number]
    encoder = "driver" if by_driver else "model"
    if layout is None:
        words = dict(zip(DRIVER_ARGUMENTS[kind], options, strict=True))
        bare = read_driver_call(kind, words, DEFAULT_TARGET)
        return Description(bare.encode_arguments(), DEFAULT_TARGET, encoder, None, bare)
    view = TensorView(0, *judge(Layout(*layout)), producer)
    device = view.device
    target = DEFAULT_TARGET if device.is_host else driver.device_target(device.device_id)
    given = dict(zip(OPTIONS[kind], options, strict=False))  # it takes no `allow`, `shape`...
    request = read_call(kind, view, address, given, target, False)
    return Description(request.encode_arguments(), target, encoder, view, request)
