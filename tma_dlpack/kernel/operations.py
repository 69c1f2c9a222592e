"""`Operation`, the effect of an instruction on a group of threads, and the registry of operations.

Other modules register *makers* with the decorator `operation`. A maker is a function that returns
the `Operation` of an instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tma_dlpack.ptx.parse import Instruction


class Operation(NamedTuple):
    """The effect of one instruction on a group of threads.

    ``run(g, mask, *sources)`` executes the instruction for the group `g`. `mask` is the guard of
    each lane, or None if all lanes execute. The result is None without a destination register, an
    array for one register, or a tuple of arrays for several registers. If the instruction waits,
    `run` may return a callable. After the wait, the group calls it with its threads to get the
    result.
    """

    run: Callable[..., Any]
    #: Number of leading operands that the instruction writes; a {vector} is one operand.
    destinations: int = 0
    #: Whether the group may have to wait. If True, the basic block ends after the instruction.
    pauses: bool = False
    #: Whether the lanes of the member mask must execute the instruction together.
    needs_warp: bool = False
    #: Whether a {vector} operand is passed as one array (registers, lanes).
    register_block: bool = False
    #: Whether the instruction also reads its destination operand.
    updates: bool = False


class Wait(NamedTuple):
    """A condition that a group waits for; `what` has the details for the finding of a hang."""

    ready: Callable[[], bool]
    what: dict[str, Any]


# A maker returns None for an unsupported form of the opcode.
Maker = Callable[[Instruction], Operation | None]
_MAKERS: dict[str, Maker] = {}


def operation(*prefixes: str) -> Callable[[Maker], Maker]:
    """Register the decorated maker for opcodes with one of these prefixes."""

    def register(make: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(prefixes, make))
        return make

    return register


def operation_of(code: Instruction) -> Operation | None:
    """Return the operation of an instruction, or None if no maker supports the instruction."""
    # Prefer the maker with the longest prefix. For example, for "cp.async.bulk.tensor.2d" prefer
    # "cp.async.bulk.tensor" to "cp.async.bulk".
    words = code.opcode.split(".")
    for count in range(len(words), 0, -1):
        make = _MAKERS.get(".".join(words[:count]))
        if make is not None:
            return make(code)
    return None
