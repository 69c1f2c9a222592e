"""The short cut that this process takes: the compiled one if it was built, else the Python one.

Both have one contract: an ordinary call becomes a map; any other gives None and goes to the rules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from tma_dlpack.dlpack.producer import MAX_VERSION
from tma_dlpack.tables import enums
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.opaque import untraced
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.storage import COMPILED

F = TypeVar("F", bound=Callable[..., Any])

#: Parameters that the short cut does not take, all by keyword: no ordinary call gives them.
_EXTRAORDINARY = frozenset({"allow", "shape", "strides", "offset", "split_inner", "ragged"})

_ENUMS = (
    enums.TmaInterleaveLayout,
    enums.TmaSwizzle,
    enums.TmaL2FetchSize,
    enums.TmaOobFill,
    enums.TensorMapDataType,
    enums.TensorMapIm2ColWideMode,
)


class AcceptedMaps(Protocol):
    """The maps of a batch, which `accept_many` makes when `maps` is first read."""

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """The maps, in order; the same objects each time."""

    @property
    def tensors(self) -> tuple[object, ...]:
        """The tensors, in order."""

    @property
    def launchable(self) -> bool:
        """Whether all maps may be passed to a kernel."""

    def __len__(self) -> int: ...


def explained(kind: MapKind, tensor: object, given: dict[str, Any]) -> TensorMap:
    """Make the map in Python, or raise with every violation."""
    from tma_dlpack.make import build  # the rules are imported when first needed

    return build.make(kind, tensor, given)


def _export(tensor: Any) -> object:
    return tensor.__dlpack__(max_version=MAX_VERSION)


def _export_on_cuda(tensor: Any) -> object:
    return tensor.__dlpack__(max_version=MAX_VERSION, stream=-1)


def _export_on_cuda_of_jax(tensor: Any) -> object:
    return tensor.__dlpack__(stream=1)  # JAX reads -1 as a stream handle, and ignores max_version


if TYPE_CHECKING or not COMPILED:

    def accept_many(
        tensors: tuple[object, ...], address: int, *options: Any
    ) -> AcceptedMaps | None:
        """Give None: in Python the maps of a batch are made one by one."""
        return None

    def quick(short_cut: str) -> Callable[[F], F]:
        """Leave a function as it is: it calls the Python short cut itself."""
        return lambda verb: verb
else:
    from tma_dlpack.make import _accept

    class _Traceable:
        """Base class of the compiled functions: how torch.compile sees them."""

        __slots__ = ()

        @untraced
        def __call__(self, *args: Any, **keywords: Any) -> Any:
            return self.__wrapped__(*args, **keywords)

    _accept.setup(
        TensorMap,
        _Traceable,
        _ENUMS,
        tuple(enums.NAMES[enum] for enum in _ENUMS),
        (_export, _export_on_cuda, _export_on_cuda_of_jax),
        np.integer,
        np.ndarray,
    )
    TensorMap._accept_address = _accept.accept_address
    accept_many = _accept.accept_many

    def quick(short_cut: str) -> Callable[[F], F]:
        """Wrap a function in a compiled short cut, a callable with the same signature.

        Compiled, because calling a Python function of 13 parameters alone takes half as long as the
        whole short cut.
        """

        def with_short_cut(verb: F) -> F:
            signature = inspect.signature(verb)
            taken = [p for p in signature.parameters.values() if p.name not in _EXTRAORDINARY]
            defaults = {p.name: p.default for p in taken}
            positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in taken)
            required = inspect.Parameter.empty
            return _accept.quick(verb, short_cut, defaults, required, positional)

        return with_short_cut
