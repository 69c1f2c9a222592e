"""Whether this process may access a range of its memory, from /proc/self/maps (Linux)."""

from __future__ import annotations

_MAPS = "/proc/self/maps"


def first_forbidden(address: int, size_bytes: int, write: bool) -> int | None:
    """Give the first address of a range at which a read, or a write, would crash this process.

    None if there is none, or no /proc/self/maps. Not detected: another thread that unmaps the
    memory meanwhile, and a mapped file that was truncated.

    >>> import numpy as np
    >>> x = np.zeros(1 << 20, np.uint8)
    >>> first_forbidden(x.ctypes.data, x.nbytes, write=True) is None
    True
    """
    if not size_bytes:
        return None
    known_to = address
    try:
        with open(_MAPS, encoding="utf-8", errors="replace") as regions:  # in order of address
            for region in regions:
                places, permissions = region.split(maxsplit=2)[:2]
                begin, end = (int(place, 16) for place in places.split("-"))
                if end <= known_to:
                    continue
                if begin > known_to or permissions[1 if write else 0] == "-":
                    return known_to
                known_to = end
                if known_to >= address + size_bytes:
                    return None
    except OSError:
        return None
    return known_to
