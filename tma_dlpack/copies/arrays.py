"""What NumPy makes of a caller's object."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["array_of"]


def array_of(value: object) -> npt.NDArray[Any] | None:
    """Give an object as an array; None where it cannot be one, whatever it raises.

    A range is none: it may count further than memory does.
    """
    try:
        return None if type(value) is range else np.asarray(value)
    except Exception:  # methods of a user's object may raise anything
        return None
