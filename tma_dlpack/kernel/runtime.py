"""The functions of CUDA's device runtime that the simulator supports: printf and assert."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tma_dlpack.kernel.memory import LOCAL_WINDOW

# A conversion of printf. For example "%-8.3lf" has width "8", precision "3", length "l", kind "f".
_CONVERSION = re.compile(
    r"%[-+ #0]*(\d+|\*)?(?:\.(\d+|\*))?(hh|h|ll|l|z|j|t)?([diouxXeEfFgGaAcsp%])"
)
# Maximum number of bytes of a C string that the simulator reads.
_MOST_CHARS = 4096


def text_at(g: Any, parameter: Any, thread: int) -> str:
    """Return the C string that a thread's parameter points to."""
    return _string(g, int(parameter[thread, :8].view(np.uint64)[0]))


def _string(g: Any, address: int) -> str:
    region = g.machine.memory.region_of(address)
    if region is None:
        return ""
    at = address - region.first
    data = bytes(region.raw[at : at + _MOST_CHARS])
    return data.split(b"\0")[0].decode("utf-8", "replace")


def formatted(g: Any, formats: Any, values: Any) -> list[str]:
    """Return the text that each thread of a group prints.

    The printed arguments are in local memory. Each argument has 4 or 8 bytes and is aligned to its
    size.
    """
    found = []
    for thread in g.lanes.tolist():
        pattern = text_at(g, formats, thread)
        address = int(values[thread, :8].view(np.uint64)[0])
        local = g.block.local[thread] if address >= LOCAL_WINDOW else np.zeros(0, np.uint8)
        found.append(_formatted(g, pattern, local, address - LOCAL_WINDOW))
    return found


def _formatted(g: Any, pattern: str, local: Any, at: int) -> str:
    def one(match: re.Match[str]) -> str:
        nonlocal at
        width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        # Python's % operator has no length modifiers such as "ll", so remove them.
        flags = match[0].rstrip("diouxXeEfFgGaAcsp").rstrip("hlzjt")
        extra = []
        for star in (width, precision):
            if star == "*":
                extra.append(take(4, "i"))
        if kind in "eEfFgGaA":
            return str((flags + (kind if kind not in "aA" else "g")) % (*extra, take(8, "d")))
        if kind == "s":
            return str((flags + "s") % (*extra, _string(g, take(8, "u"))))
        # The argument is an integer or a pointer of 4 or 8 bytes. C++ passes a float as a double,
        # and doubles are handled above.
        size = 8 if kind == "p" or length in ("l", "ll", "z", "j", "t") else 4
        number = take(size, "i" if kind in "di" else "u")
        if kind == "p":
            return f"0x{number:x}"
        if kind == "c":
            return chr(number & 255)
        return str((flags + ("d" if kind == "u" else kind)) % (*extra, number))

    def take(size: int, kind: str) -> Any:
        nonlocal at
        at += -at % size
        raw = bytes(local[at : at + size]).ljust(size, b"\0")
        at += size
        if kind == "d":
            return float(np.frombuffer(raw, np.float64)[0])
        return int.from_bytes(raw, "little", signed=kind == "i")

    return _CONVERSION.sub(one, pattern)


def _vprintf(g: Any, given: list[str], results: list[str]) -> None:
    """Execute printf for each thread of a group."""
    text = formatted(g, *(g.block.parameters[name] for name in given))
    g.machine.printed += text
    for name in results:
        g.block.set_parameter(g, name, 0, 4, (np.uint32(1),))


def _assertfail(g: Any, given: list[str], results: list[str]) -> None:
    parameters = [g.block.parameters[name] for name in given]
    # The parameters are __assertfail(message, file, line, function, size of a character).
    message, file = (text_at(g, p, int(g.lanes[0])) for p in parameters[:2])
    line = int(parameters[2][g.lanes[0], :4].view(np.uint32)[0])
    g.machine.fault(
        g, "ASSERT", f"{file}:{line}: the assertion `{message}` fails",
        "look at the values in it", lanes=g.lanes,
    )  # fmt: skip


#: Name in PTX -> Python function of (group, names of the parameters, names of the results).
FUNCTIONS: dict[str, Callable[[Any, list[str], list[str]], None]] = {
    "vprintf": _vprintf, "__assertfail": _assertfail,
}  # fmt: skip
