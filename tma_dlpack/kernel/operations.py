"""How units plug into the engine: an operation is what one instruction does to a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tma_dlpack.kernel.core import Instruction


class Operation(NamedTuple):
    """The operation of an instruction.

    ``run(g, mask, *sources)`` returns None, an array, or a tuple of arrays, one for each
    destination register. `mask` is the guard, None where all lanes execute. A callable that it
    returns gives the values once the group has waited.
    """

    run: Callable[..., Any]
    destinations: int = 0  # leading operands that are written; a {vector} counts one
    pauses: bool = False  # the basic block ends behind it: the group may have to wait
    needs_warp: bool = False  # the lanes of the member mask are gathered first
    register_block: bool = False  # a {vector} operand is one array (registers, lanes)
    updates: bool = False  # the first operand is read, too


class Wait(NamedTuple):
    """Why a group cannot go on: `what` is for the explanation of a hang."""

    ready: Callable[[], bool]
    what: dict[str, Any]


Maker = Callable[[Instruction], Operation | None]
_MAKERS: dict[str, Maker] = {}


def operation(*prefixes: str) -> Callable[[Maker], Maker]:
    """Register a function that makes operations of the opcodes with one of these prefixes."""

    def register(make: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(prefixes, make))
        return make

    return register


def operation_of(code: Instruction) -> Operation | None:
    """Return the operation of an instruction, by the longest prefix; None where none is known."""
    words = code.opcode.split(".")
    for count in range(len(words), 0, -1):
        make = _MAKERS.get(".".join(words[:count]))
        if make is not None:
            return make(code)
    return None
