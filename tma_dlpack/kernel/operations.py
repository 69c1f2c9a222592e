"""`Operation`: the effect of one instruction on a group; modules register makers of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tma_dlpack.ptx.parse import Instruction


class Operation(NamedTuple):
    """The operation of an instruction.

    ``run(g, mask, *sources)`` returns None, an array, or a tuple of arrays, one for each
    destination register. `mask` is the guard, None if all lanes execute. `run` may also return a
    callable; the group calls it after its wait to get the values.
    """

    run: Callable[..., Any]
    #: Number of leading operands that are written; a {vector} counts as one operand.
    destinations: int = 0
    #: Whether the group may have to wait; the basic block ends after the instruction.
    pauses: bool = False
    #: Whether the lanes of the member mask must execute the instruction together.
    needs_warp: bool = False
    #: Whether a {vector} operand is passed as one array (registers, lanes).
    register_block: bool = False
    #: Whether the first operand is read as well as written.
    updates: bool = False


class Wait(NamedTuple):
    """A condition that a group waits for; `what` describes the wait in the finding of a hang."""

    ready: Callable[[], bool]
    what: dict[str, Any]


# A maker returns None for a form of the opcode that it does not know.
Maker = Callable[[Instruction], Operation | None]
_MAKERS: dict[str, Maker] = {}


def operation(*prefixes: str) -> Callable[[Maker], Maker]:
    """Register a function that makes the operations of opcodes with one of these prefixes."""

    def register(make: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(prefixes, make))
        return make

    return register


def operation_of(code: Instruction) -> Operation | None:
    """Return the operation of an instruction, or None if no maker knows the instruction."""
    # The longest prefix decides: "cp.async.bulk.tensor" before "cp.async.bulk".
    words = code.opcode.split(".")
    for count in range(len(words), 0, -1):
        make = _MAKERS.get(".".join(words[:count]))
        if make is not None:
            return make(code)
    return None
