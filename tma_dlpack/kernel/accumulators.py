"""Check that no instruction uses the accumulator registers of a wgmma before `wgmma.wait_group`.

Two uses are allowed before `wgmma.wait_group`: another wgmma of the same shape on the same
registers, and a plain copy to other registers. A `Step` is an action of an instruction: it writes,
copies or uses accumulator registers, or it commits or awaits a group of wgmma. `steps_of` returns
the steps of each basic block of the PTX. When a warpgroup runs the basic block, `Flying.follow`
checks these steps.

Source: PTX ISA 9.0, 9.7.15.7 (wgmma.fence, wgmma.wait_group).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from tma_dlpack.ptx.parse import Instruction

# A register name, for example "%r12" or "%f3" or, in an inlined function, "%r1#2".
_REGISTER = re.compile(r"%[A-Za-z_][\w$#]*")
_WARPGROUP = 128


class Step(NamedTuple):
    """An action of an instruction; `what` is "product", "commit", "wait", "copy" or "use"."""

    what: str
    code: Instruction
    #: Registers that the step uses. For a copy, they are (destination, source).
    registers: tuple[str, ...] = ()
    #: Operand N of wgmma.wait_group: the N newest groups may remain pending.
    number: int = 0


def steps_of(blocks: Iterable[list[Instruction]]) -> list[tuple[Step, ...]]:
    """Return the steps of each basic block of a function; a function without wgmma has no steps."""
    code = [list(block) for block in blocks]
    watched: set[str] = set()
    copies: dict[str, set[str]] = {}
    for block in code:
        for one in block:
            if one.opcode.startswith("wgmma.mma_async"):
                watched.update(_REGISTER.findall(one.split()[0]))
            elif one.opcode.startswith("mov."):
                names = _REGISTER.findall(one.operands)
                if len(names) == 2:
                    copies.setdefault(names[1], set()).add(names[0])
    # A copy of an accumulator register has the same value as the accumulator. So also watch the
    # copies, and copies of copies.
    waiting = list(watched)
    while waiting:
        new = copies.get(waiting.pop(), set()) - watched
        watched |= new
        waiting += new
    if not watched:
        return [() for _ in code]
    return [tuple(step for one in block for step in _steps(one, watched)) for block in code]


def _steps(code: Instruction, watched: set[str]) -> Iterable[Step]:
    """Yield the steps of an instruction."""
    # Ignore a guarded instruction, because its guard may be false. But assume that a guarded
    # wait_group waits, so that correct code is not reported.
    if code.guard and not code.opcode.startswith("wgmma.wait_group"):
        return
    if code.opcode.startswith("wgmma.mma_async"):
        accumulators, *others = code.split()
        # The product also reads other operands, for example the predicate scale-d, or the registers
        # that contain the matrix A.
        used = tuple(n for o in others for n in _REGISTER.findall(o) if n in watched)
        if used:
            yield Step("use", code, used)
        yield Step("product", code, tuple(_REGISTER.findall(accumulators)))
    elif code.opcode.startswith("wgmma.commit_group"):
        yield Step("commit", code)
    elif code.opcode.startswith("wgmma.wait_group"):
        yield Step("wait", code, number=int(code.operands.strip() or "0", 0))
    else:
        names = [name for name in _REGISTER.findall(code.operands) if name in watched]
        if code.opcode.startswith("mov.") and "{" not in code.operands:
            to, source = (*_REGISTER.findall(code.operands), "", "")[:2]
            if to in watched:
                yield Step("copy", code, (to, source))
        elif names:
            yield Step("use", code, tuple(names))


class Flying:
    """The registers that pending products of a warpgroup may still write."""

    groups: int

    def __init__(self) -> None:
        # Number of the open group of wgmma, counted from 1. `wgmma.commit_group` closes the group.
        self.groups = 1
        # Pending register -> (number of the product's group, all accumulator registers of the
        # product, instruction of the product)
        self.registers: dict[str, tuple[int, tuple[str, ...], Instruction]] = {}

    def follow(self, g: Any, steps: tuple[Step, ...]) -> None:
        """Apply the steps of a basic block in order, and report uses of pending accumulators."""
        for step in steps:
            if step.what == "wait":
                # After wait_group N, all groups but the N newest committed groups are complete.
                last = self.groups - 1 - step.number
                kept = {r: state for r, state in self.registers.items() if state[0] > last}
                self.registers = kept
            elif step.what == "commit":
                # The simulator may run one commit_group separately for several parts of a
                # warpgroup. The first part closes the group. Later parts find an open group without
                # products, which must not be closed.
                if g.n >= _WARPGROUP or any(s[0] == self.groups for s in self.registers.values()):
                    self.groups += 1
            elif step.what == "product":
                self._product(g, step)
            elif self.registers and step.what == "copy":
                to, source = step.registers
                # If the source is pending, the destination becomes pending, too. Otherwise the
                # destination gets a complete value, so it is not pending any more.
                if source in self.registers:
                    self.registers[to] = self.registers[source]
                else:
                    self.registers.pop(to, None)
            elif self.registers:
                early = [name for name in step.registers if name in self.registers]
                if early:
                    _report(g, step.code, self.registers[early[0]][2])

    def _product(self, g: Any, step: Step) -> None:
        # Two products with equal opcodes have equal shapes, so no wait is needed between them
        # (PTX ISA 9.7.15.7).
        for name in step.registers:
            found = self.registers.get(name)
            if found is not None and found[2].opcode != step.code.opcode:
                _report(g, step.code, found[2])
                break
        state = self.groups, step.registers, step.code
        self.registers.update(dict.fromkeys(step.registers, state))


def _report(g: Any, code: Instruction, product: Instruction) -> None:
    g.code = code
    g.machine.findings.add(
        "WGMMA_WAIT", "error", "an accumulator is used while a wgmma may still write it",
        "wgmma.commit_group, then wgmma.wait_group before the use", g=g, lanes=g.lanes,
        also=product,
    )  # fmt: skip


def follow(g: Any, steps: tuple[Step, ...]) -> None:
    """Apply the steps of a basic block for each warpgroup of a group of threads."""
    first, last = int(g.lanes[0]) // _WARPGROUP, int(g.lanes[-1]) // _WARPGROUP
    for number in range(first, last + 1):
        g.block.sync.accumulators[number].follow(g, steps)
