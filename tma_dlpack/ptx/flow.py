"""Follow facts along the paths of one thread: a forward may-analysis over the basic blocks.

A fact is something that happened on the way, such as "this tile was written and no fence was
passed". It carries the conditions of its path, so that it does not pass a branch that contradicts
them: what `if (thread == 0)` did is not seen where `thread != 0`. Where paths meet, a fact keeps
the conditions that all of them share.
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
#: What happened (an access), in which state it is, and whether its registers are still the same.
Key = tuple[Any, str, bool]
Facts = dict[Key, Conditions]

MOST_STEPS = 3_000_000
_MOST_CONDITIONS = 12
_NOTHING: Conditions = frozenset()


class TooLargeError(Exception):
    """A function needs more steps than `MOST_STEPS`; it is named and passed over."""


class Flow:
    """The paths of a function: conditions of its edges, and which registers blocks write."""

    blocks: list[Block]
    always: list[Conditions]

    def __init__(self, values: Values) -> None:
        self.values = values
        self.blocks = values.function.blocks
        self._steps = 0
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
        # a condition of one branch alone, which a write may end, contradicts nothing
        self._useful = {t for t, count in seen.items() if count > 2 or not registers(t)}
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
        """Return whether a thread can come to a line."""
        block = max(bisect_right(self._lines, line) - 1, 0)
        return all(holds_at(condition, thread) for condition in self.always[block])

    def _both(self, branch: tuple[int, str, bool] | None) -> tuple[Sequence[Condition], ...]:
        if branch is None:
            return (), ()
        _, guard, negated = branch
        return self.values.branch(guard, negated), self.values.branch(guard, not negated)

    def useful(self, conditions: Iterable[Condition]) -> Conditions:
        """Return those conditions on values that another branch looks at too."""
        return frozenset(c for c in conditions if c[0] in self._useful)

    def conditions(self, code: Instruction, block: int) -> Conditions:
        """Return what holds wherever an instruction of a block is executed."""
        return self.always[block] | self.useful(self.values.conditions(code))

    def skipped(self, code: Instruction) -> Conditions | None:
        """Return what holds where a guarded instruction is skipped; None if it never is."""
        return self.useful(_opposite(self.values, code)[:1]) if code.guard else None

    def watch(self, more: Iterable[str]) -> list[list[tuple[int, str]]]:
        """Return for each block the writes, (place in it, register), that end a value."""
        watched = self._watched | set(more)
        found: list[list[tuple[int, str]]] = []
        for block in self.blocks:
            found.append([])
            for place, code in enumerate(block.code):
                found[-1] += [(place, name) for name in written(code) if name in watched]
        return found

    def _conditions_of_blocks(self) -> list[Conditions]:
        """Return for each block what holds on every path to it."""
        writes = [{name for _, name in block} for block in self.watch(())]

        def after(block: int, facts: Facts) -> Facts:
            return {key: without(conditions, writes[block]) for key, conditions in facts.items()}

        entered: Key = "entered", "", True
        states = self.run(after, {entered: _NOTHING})
        return [(state or {}).get(entered, _NOTHING) for state in states]

    def step(self, count: int) -> None:
        """Count the work; raise where there is too much."""
        self._steps += count
        if self._steps > MOST_STEPS:
            raise TooLargeError

    def run(self, transfer: Callable[[int, Facts], Facts], first: Facts) -> list[Facts | None]:
        """Return the facts at the start of each block; None where no path comes."""
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
        """Let facts pass an edge; return whether the block behind it knows anything new."""
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
    return values.branch(code.guard, not code.negated)


def both(some: Conditions, more: Conditions) -> Conditions:
    """Return the conditions together; more than a path can carry are left out."""
    if more <= some:
        return some
    return some | more if len(some) < _MOST_CONDITIONS else some


def excluded(some: Conditions, others: Conditions) -> bool:
    """Whether no path has both."""
    if not some or not others:  # of most paths
        return False
    return any(contradicts(a, b) for a in some for b in others)


def without(conditions: Conditions, written: Iterable[str]) -> Conditions:
    """Return what still holds after registers were written."""
    names = set(written)
    if not names or not conditions:
        return conditions
    return frozenset(c for c in conditions if names.isdisjoint(registers(c[0])))
