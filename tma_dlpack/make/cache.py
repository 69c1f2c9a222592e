"""A bounded, thread-safe cache of layouts: a repeated layout is not checked again.

An entry is the template that a layout and the options of a call led to. It holds no tensor. A hit
asks for equal layouts, equal options *of equal types* (1, 1.0, True and an enum member of value 1
are equal and hash alike, but only some are accepted), and an address that the checks would accept.
Calls are kept only if each option is of a type whose values are what they are for good: an object
that counts as an integer may count as another one tomorrow, and a generator is empty after a use.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from tma_dlpack.dlpack import Signature
from tma_dlpack.tensor_map.template import Template
from tma_dlpack.types.enums import C_ENUMS
from tma_dlpack.types.target import Target

__all__ = ["CacheInfo", "LayoutCache", "is_alike", "without_lists"]


class CacheInfo(NamedTuple):
    """Counts of a cache, as `functools.lru_cache` gives them."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


Entry = tuple[Template, tuple[Any, ...]]  # with the options as they were given


class LayoutCache:
    """Templates by layout and options; the oldest goes first when it is full.

    Attributes
    ----------
    entries : dict
        By kind, signature and options. `make_tma_descriptor` looks there without a call of `find`,
        and then takes the next of `hits`.
    hits, misses : itertools.count
    """

    def __init__(self, maxsize: int = 4096) -> None:
        self.maxsize = maxsize
        self.entries: dict[Hashable, Entry] = {}
        self._lock = threading.RLock()  # a finalizer may make a map while this thread does
        self._reset_counts()

    def _reset_counts(self) -> None:
        self.hits = itertools.count()  # next() of a counter is atomic, += is not
        self.misses = itertools.count()

    def find(
        self, kind: str, signature: Signature, options: tuple[Any, ...], address: int
    ) -> Template | None:
        """Give the template for a layout and options, if it is known and suits the address.

        Lists have no hash: see `without_lists`.
        """
        entry = self._look_up(kind, signature, options)
        if entry is not None and not are_alike(entry[1], options):
            entry = self._look_up(kind, signature, options, _types(options))
        if entry is None or address & entry[0].refused_bits:
            next(self.misses)
            return None
        next(self.hits)
        return entry[0]

    def _look_up(self, *key: Any) -> Entry | None:
        try:
            return self.entries.get(key)
        except Exception:  # a __hash__ or __eq__ may raise anything
            return None

    def keep(
        self, kind: str, signature: Signature, options: tuple[Any, ...], template: Template
    ) -> None:
        """Remember a template, if all options are plain values.

        Options that equal those of another entry, and are of other types, get an entry beside it.
        """
        if not _are_plain(options):
            return
        key: Hashable = kind, signature, options
        entry = template, options
        with self._lock:
            try:
                known = self.entries.setdefault(key, entry)
            except TypeError:  # a subclass of torch.Tensor may tell its strides as it likes
                return
            if known is not entry:
                if not are_alike(known[1], options):
                    key = kind, signature, options, _types(options)
                self.entries[key] = entry
            while len(self.entries) > self.maxsize:
                self.entries.pop(next(iter(self.entries)), None)

    def info(self) -> CacheInfo:
        """Count hits, misses and entries since the last `clear`."""
        # "count(5)": the only way to look at a counter without taking from it
        hits, misses = (int(repr(c)[6:-1]) for c in (self.hits, self.misses))
        return CacheInfo(hits, misses, self.maxsize, len(self.entries))

    def clear(self) -> None:
        """Forget everything, the counts too."""
        with self._lock:
            self.entries.clear()
            self._reset_counts()


#: Types whose values never change, and are equal only to what they are.
_PLAIN = frozenset(
    {
        type(None),
        int,
        str,
        Target,
        *C_ENUMS,
        *(np.dtype(c).type for c in np.typecodes["AllInteger"]),
    }
)


def _are_plain(options: tuple[Any, ...]) -> bool:
    for option in options:
        if type(option) is tuple:
            if not _PLAIN.issuperset(map(type, option)):
                return False
        elif type(option) not in _PLAIN:
            return False
    return True


def without_lists(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give the options with each list as a tuple of what it holds now."""
    return tuple([tuple(o) if type(o) is list else o for o in options])


def are_alike(kept: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    """Say whether options that are equal are of equal types too."""
    return all(map(is_alike, kept, given))


def is_alike(kept: object, given: object) -> bool:
    """Say the same of one option."""
    if type(given) is tuple:
        for entry in given:
            if type(entry) is not int:
                return _types((kept,)) == _types((given,))
        return True  # plain integers mean what equal ones meant
    return type(kept) is type(given)


def _types(options: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        [tuple(map(type, option)) if type(option) is tuple else type(option) for option in options]
    )
