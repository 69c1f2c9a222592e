"""A forward may-analysis of basic blocks, which follows facts along the paths of one thread.

A fact is a statement about a path, such as "the thread has written this tile, and no fence has
followed". A fact stores the conditions of the branches on its path. So a fact does not pass a
branch that contradicts one of these conditions. For example, a fact inside of `if (thread == 0)`
does not reach code for `thread != 0`. If several paths with the same fact meet, the fact keeps only
the conditions that all these paths have in common.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tma_dlpack.ptx.parse import Block, Instruction
from tma_dlpack.ptx.values import (
    Condition,
    Values,
    contradicts,
    holds_at,
    registers,
    written,
)

Conditions = frozenset[Condition]
#: A fact without its conditions: (memory access, state, whether the registers of the access's
#: address are unchanged).
Key = tuple[Any, str, bool]
Facts = dict[Key, Conditions]

# Maximum number of steps of the analysis of one function. `Flow.step` counts the steps.
MOST_STEPS = 3_000_000
# Maximum number of conditions of a fact. Further conditions are not stored, so the fact may reach
# more blocks than necessary, but never fewer.
_MOST_CONDITIONS = 12
_NOTHING: Conditions = frozenset()


class TooLargeError(Exception):
    """Error for a function that needs more than `MOST_STEPS` steps; `lint` skips the function."""


class Flow:
    """The control-flow graph of a function, with the conditions of its edges and blocks."""

    blocks: list[Block]
    # For each block, the conditions that hold on every path to the block.
    always: list[Conditions]

    def __init__(self, values: Values) -> None:
        self.values = values
        self.blocks = values.function.blocks
        self._steps = 0
        # For the branch at the end of each block: (conditions if the branch is taken, conditions if
        # it is not taken).
        branches = [self._both(block.branch) for block in self.blocks]
        guards = [
            condition
            for block in self.blocks
            for code in block.code
            if code.guard and not code.opcode.startswith("bra")
            for condition in (*values.conditions(code), *_opposite(values, code))
        ]
        seen = Counter(c[0] for sides in branches for side in sides for c in side)
        seen.update({condition[0]: 2 for condition in guards})
        # A branch counts each tested value twice, once for each side. So if a value has the count
        # 2, only one branch tests it, and no other branch can contradict the condition. Ignore such
        # a condition if a write of a register can change the value. Otherwise keep it.
        self._useful = {t for t, count in seen.items() if count > 2 or not registers(t)}
        # For each block: next block -> conditions on the edge to it.
        self.edges: list[dict[int, Conditions]] = []
        for block, (taken, passed) in zip(self.blocks, branches, strict=True):
            sides = dict.fromkeys(block.next, _NOTHING)
            if block.branch:
                sides = {n: self.useful(taken if n == block.branch[0] else passed) for n in sides}
            self.edges.append(sides)
        self._watched = registers(term for terms in self._useful for term in terms)
        self.always = self._conditions_of_blocks()
        self._lines = [block.code[0].line for block in self.blocks]

    def comes(self, thread: int, line: int) -> bool:
        """Return whether a thread can reach a line of the PTX."""
        block = max(bisect_right(self._lines, line) - 1, 0)
        return all(holds_at(condition, thread) for condition in self.always[block])

    def _both(self, branch: tuple[int, str, bool] | None) -> tuple[Sequence[Condition], ...]:
        if branch is None:
            return (), ()
        _, guard, negated = branch
        return self.values.branch(guard, negated), self.values.branch(guard, not negated)

    def useful(self, conditions: Iterable[Condition]) -> Conditions:
        """Return the conditions that another branch can contradict."""
        return frozenset(c for c in conditions if c[0] in self._useful)

    def conditions(self, code: Instruction, block: int) -> Conditions:
        """Return the conditions that hold whenever an instruction of a block is executed."""
        return self.always[block] | self.useful(self.values.conditions(code))

    def skipped(self, code: Instruction) -> Conditions | None:
        """Return the conditions under which a guarded instruction is skipped.

        Return None if the instruction has no guard.
        """
        return self.useful(_opposite(self.values, code)[:1]) if code.guard else None

    def watch(self, more: Iterable[str]) -> list[list[tuple[int, str]]]:
        """Return, for each block, the writes to registers of conditions or to registers in `more`.

        A write is (index of the instruction in the block, register).
        """
        watched = self._watched | set(more)
        found: list[list[tuple[int, str]]] = []
        for block in self.blocks:
            found.append([])
            for place, code in enumerate(block.code):
                found[-1] += [(place, name) for name in written(code) if name in watched]
        return found

    def _conditions_of_blocks(self) -> list[Conditions]:
        """Return for each block the conditions that hold on every path to the block."""
        # Run the analysis with one fact, "entered". At each block, this fact has the conditions
        # that all paths to the block have in common.
        writes = [{name for _, name in block} for block in self.watch(())]

        def after(block: int, facts: Facts) -> Facts:
            return {key: without(conditions, writes[block]) for key, conditions in facts.items()}

        entered: Key = "entered", "", True
        states = self.run(after, {entered: _NOTHING})
        return [(state or {}).get(entered, _NOTHING) for state in states]

    def step(self, count: int) -> None:
        """Count more steps; raise `TooLargeError` if the sum of all steps exceeds `MOST_STEPS`."""
        self._steps += count
        if self._steps > MOST_STEPS:
            raise TooLargeError

    def run(self, transfer: Callable[[int, Facts], Facts], first: Facts) -> list[Facts | None]:
        """Return the facts at the start of each block, or None if no path reaches the block.

        `transfer(block, facts)` returns the facts after a block, where `facts` are the facts before
        the block. `first` are the facts at the start of the function.
        """
        # The heap processes blocks in program order, so that loops need few iterations.
        states: list[Facts | None] = [None] * len(self.blocks)
        work = [0] if self.blocks else []
        states[:1] = [first for _ in work]
        waiting = set(work)
        while work:
            block = heapq.heappop(work)
            waiting.discard(block)
            facts = transfer(block, dict(states[block] or {}))
            for n, more in self.edges[block].items():
                self.step(1 + len(facts))
                if self._join(states, n, facts, more) and n not in waiting:
                    waiting.add(n)
                    heapq.heappush(work, n)
        return states

    def _join(self, states: list[Facts | None], block: int, facts: Facts, more: Conditions) -> bool:
        """Add facts that agree with `more` to a block's state; return whether the state changed."""
        state = states[block]
        changed = state is None
        state = states[block] = {} if state is None else state
        for key, conditions in facts.items():
            if more:
                if excluded(conditions, more):
                    continue
                conditions = both(conditions, more)
            old = state.get(key)
            if old is None:
                state[key] = conditions
            elif old <= conditions:
                continue
            else:
                state[key] = old & conditions
            changed = True
        return changed


def _opposite(values: Values, code: Instruction) -> Sequence[Condition]:
    """Return the conditions under which a guarded instruction is skipped."""
    return values.branch(code.guard, not code.negated)


def both(some: Conditions, more: Conditions) -> Conditions:
    """Return the union of two sets of conditions.

    If `some` has at least _MOST_CONDITIONS conditions already, return `some`.
    """
    if more <= some:
        return some
    return some | more if len(some) < _MOST_CONDITIONS else some


def excluded(some: Conditions, others: Conditions) -> bool:
    """Return whether two sets of conditions contradict each other: no path satisfies both sets."""
    # Test the most frequent case first: most paths have no conditions.
    if not some or not others:
        return False
    return any(contradicts(a, b) for a in some for b in others)


def without(conditions: Conditions, written: Iterable[str]) -> Conditions:
    """Return the conditions that do not depend on the written registers."""
    names = set(written)
    if not names or not conditions:
        return conditions
    return frozenset(c for c in conditions if names.isdisjoint(registers(c[0])))
