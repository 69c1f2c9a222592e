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

from tma_dlpack.enums import C_ENUMS
from tma_dlpack.limits import ADDRESS_END
from tma_dlpack.target import Target
from tma_dlpack.template import Template

__all__ = ["CacheInfo", "LayoutCache"]


class CacheInfo(NamedTuple):
    """Counts of a cache, as `functools.lru_cache` gives them."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class _Entry(NamedTuple):
    template: Template
    alignment_bytes: int
    options: tuple[Any, ...]


class LayoutCache:
    """Templates by layout and options; the oldest goes first when it is full."""

    def __init__(self, maxsize: int = 4096) -> None:
        self.maxsize = maxsize
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._hits = itertools.count()  # next() of a counter is atomic, += is not
        self._misses = itertools.count()

    def find(self, layout: Hashable, options: tuple[Any, ...], address: int) -> Template | None:
        """Give the template for a layout and options, if it is known and suits the address."""
        try:
            entry = self._entries.get((layout, options))
        except Exception:  # a __hash__ or __eq__ may raise anything
            entry = None
        if (
            entry is None
            or address % entry.alignment_bytes
            or not 0 < address < ADDRESS_END
            or not _same_types(entry.options, options)
        ):
            next(self._misses)
            return None
        next(self._hits)
        return entry.template

    def keep(
        self,
        layout: Hashable,
        options: tuple[Any, ...],
        template: Template,
        alignment_bytes: int,
    ) -> None:
        """Remember a template, if all options are plain values."""
        if not all(map(_is_plain, options)):
            return
        entry = _Entry(template, alignment_bytes, options)
        with self._lock:
            self._entries[layout, options] = entry
            while len(self._entries) > self.maxsize:
                del self._entries[next(iter(self._entries))]

    def info(self) -> CacheInfo:
        """Count hits, misses and entries since the last `clear`."""
        hits, misses = (int(repr(c)[6:-1]) for c in (self._hits, self._misses))
        return CacheInfo(hits, misses, self.maxsize, len(self._entries))

    def clear(self) -> None:
        """Forget everything, the counts too."""
        with self._lock:
            self._entries.clear()
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


def _is_plain(option: object) -> bool:
    if type(option) is tuple:
        return all(type(entry) in _PLAIN for entry in option)
    return type(option) in _PLAIN


def _same_types(kept: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    for a, b in zip(kept, given, strict=True):
        if a is b:
            continue
        if type(a) is not type(b):
            return False
        if isinstance(a, tuple) and [*map(type, a)] != [*map(type, b)]:
            return False
    return True
