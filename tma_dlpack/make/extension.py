"""The optional C extension: public functions that first try the call in C, then in Python.

For every call that C accepts, Python would make a map with the same bytes. For every other call,
the Python function is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tma_dlpack.public import untraced
from tma_dlpack.tables import enums
from tma_dlpack.tables.abi import ABI, ALLOWABLE_ROWS
from tma_dlpack.tables.arguments import NO_SWIZZLE
from tma_dlpack.tables.targets import DEFAULT_TARGET, DLPACK_VERSION, PRESETS
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.storage import COMPILED

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Maps:
    """The maps of a batch.

    The C function `accept_many` returns an object of another class with the same attributes.
    """

    maps: tuple[TensorMap, ...]

    @property
    def tensors(self) -> tuple[object, ...]:
        """The tensor of each map, in the order of the maps."""
        return tuple(tensor_map.tensor for tensor_map in self.maps)

    @property
    def launchable(self) -> bool:
        """Whether all maps may be passed to a kernel."""
        return all(tensor_map.launchable for tensor_map in self.maps)

    @property
    def has_bytes(self) -> bool:
        """Whether all maps have bytes."""
        return all(tensor_map._data is not None for tensor_map in self.maps)

    def __len__(self) -> int:
        return len(self.maps)


def _export(tensor: Any) -> object:
    return tensor.__dlpack__(max_version=DLPACK_VERSION)


def _export_on_cuda(tensor: Any) -> object:
    # stream=-1 means that the producer must not synchronize (array API standard, __dlpack__)
    return tensor.__dlpack__(max_version=DLPACK_VERSION, stream=-1)


def _export_on_cuda_of_jax(tensor: Any) -> object:
    # JAX would read -1 as the handle of a stream, so pass 1, the legacy default stream. JAX ignores
    # max_version.
    return tensor.__dlpack__(stream=1)


if TYPE_CHECKING or not COMPILED:

    def accept_many(
        tensors: tuple[object, ...], address: int, given: dict[str, Any]
    ) -> Maps | None:
        """Return None, which means that Python must make the maps of a batch one by one."""
        return None

    def quick(verb: str) -> Callable[[F], F]:
        """Return a decorator without effect, because the C extension is missing."""
        return lambda function: function
else:
    from tma_dlpack.native import _core

    # ABI is a checksum of the tables of rules and options. C was compiled with the row numbers and
    # structs of these tables, so C must have the same checksum.
    if getattr(_core, "TABLES_ABI", None) != ABI:
        raise ImportError(
            "tma_dlpack's C extension was built from other tables than tma_dlpack/checks has now: "
            "build it again with `pip install .`, or `python -c 'import setuptools; "
            "setuptools.setup()' build_ext --inplace` in a working tree"
        )

    class _Traceable:
        """Base class of the C functions.

        torch.compile cannot trace C. It calls `__call__`, which calls the function in Python.
        """

        __slots__ = ()

        @untraced
        def __call__(self, *args: Any, **keywords: Any) -> Any:
            return self.__wrapped__(*args, **keywords)

    # The order of these arguments is the order of the parameters of setup() in native/core.c.
    SETUP = (
        TensorMap,
        _Traceable,
        tuple(enums.NAMES),
        tuple(enums.NAMES.values()),
        (_export, _export_on_cuda, _export_on_cuda_of_jax),
        np.integer,
        np.ndarray,
        PRESETS,
        DEFAULT_TARGET,
        ALLOWABLE_ROWS,
        NO_SWIZZLE,
    )
    _core.setup(*SETUP)
    TensorMap._accept_address = _core.accept_address
    TensorMap._described = _core.described_map
    accept_many = _core.accept_many

    def quick(verb: str) -> Callable[[F], F]:
        """Return a decorator that tries a call in C before it calls the decorated function.

        `verb` is C's name for the decorated function, such as "tiled".

        The decorator returns a C object, because a call of a Python function with 16 parameters
        takes longer than C needs to make a map.
        """

        def with_verb(function: F) -> F:
            parameters = inspect.signature(function).parameters
            # name of a parameter -> its default, or `inspect.Parameter.empty` if it is required
            defaults = {p.name: p.default for p in parameters.values()}
            positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
            # C compares the defaults with this object to find the required parameters.
            required = inspect.Parameter.empty
            return _core.quick(function, verb, defaults, required, positional)

        return with_verb
