"""Rules about the order of cluster barriers, wgmma groups and dependent launches.

A state machine follows each path. An instruction is a mistake if the state before the instruction
is wrong on every path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tma_dlpack.debug.core import coerce
from tma_dlpack.debug.lint.protocol import Protocol
from tma_dlpack.debug.lint.rules import Mistake, is_of_one
from tma_dlpack.debug.lint.single import cluster_blocks
from tma_dlpack.ptx.flow import Facts, excluded
from tma_dlpack.ptx.parse import Instruction

_Step = tuple[re.Pattern[str], dict[str, str], str, str]


def _step(pattern: str, following: dict[str, str], wrong: str = "", name: str = "") -> _Step:
    """Return one step of a state machine: (pattern, {state: next state}, wrong state, mistake)."""
    return re.compile(pattern), following, wrong, name


_BULK_LOAD = r"cp\.async\.bulk\S*\.shared::\w+\.global"
_BULK_STORE = r"cp\.(reduce\.)?async\.bulk\S*\.global\.shared"
#: Accesses to another block's memory. A load without multicast is not matched, because it only
#: writes its own block's memory.
_REMOTE = (
    r"cp\.async\.bulk\S*\.multicast::cluster|cp\.async\.bulk\.shared::cluster\.shared::cta|"
    r"(mbarrier\.arrive|st|red|atom)\S*\.shared::cluster"
)
#: State machines. The initial state is "none".
_MACHINES: Final = (
    (
        _step(r"barrier\.cluster\.arrive", {"none": "arrived"}, "arrived", "twice"),
        _step(r"barrier\.cluster\.wait", {"arrived": "none"}, "none", "unarrived"),
    ),
    (
        _step(r"wgmma\.mma_async", {"none": "open"}),
        _step(r"wgmma\.commit_group", {"open": "committed"}),
        _step(r"wgmma\.wait_group\S*\s+0\b", {"committed": "none"}, "open", "uncommitted"),
        _step(r"wgmma\.wait_group", {}, "open", "uncommitted"),
    ),
    (
        _step(r"griddepcontrol\.wait", {"none": "waited"}),
        _step(_BULK_LOAD, {}, "none", "early"),
        _step(_BULK_STORE, {}, "none", "early"),
    ),
    # report only the first access to another block's memory, because one missing barrier affects
    # all accesses
    (
        _step(r"barrier\.cluster\.wait", {"none": "met"}),
        _step(_REMOTE, {"none": "met"}, "none", "remote"),
    ),
)

#: `_ACCESS` matches ordinary accesses. The block that owns the accessed memory cannot wait for such
#: an access. But this block can wait for an arrival at a barrier. `_LEAVE` matches these arrivals.
#: `_END` matches the end of a thread.
_ACCESS = re.compile(r"(ld|st|red|atom)\b(?!.*\.(async|param|local|const))")
_END = re.compile(r"(ret|exit)\b")
_LEAVE = re.compile(r"barrier\.cluster\.arrive|mbarrier\.arrive\S*\.shared::cluster|call\b|trap\b")

_WORDS: Final = {
    name: words
    for name, *words in coerce.rows("""
twice | CLUSTER_ORDER | error | a thread arrives at the barrier of the cluster again without
    waiting for it, so the behavior is undefined | barrier.cluster.wait after each
    barrier.cluster.arrive (cluster.sync() has both)
unarrived | CLUSTER_ORDER | error | a thread waits for the barrier of the cluster without
    arriving at it first, so the behavior is undefined, and the kernel mostly hangs |
    barrier.cluster.arrive before each barrier.cluster.wait (cluster.sync() has both)
remote | CLUSTER_ORDER | warning | another block's shared memory is reached before a barrier of the
    cluster: that block may not have started, or not initialised its mbarriers (__syncthreads() is
    of one block) | fence.mbarrier_init.release.cluster, barrier.cluster.arrive and
    barrier.cluster.wait by all threads of the cluster, then the access
parted | CLUSTER_ORDER | warning | another block's shared memory is reached, and the thread ends
    without an arrival that this block can wait for: it may have ended before the access |
    barrier.cluster.arrive and barrier.cluster.wait (cluster.sync()) by all threads after the last
    access
ahead | BLOCK_BARRIER | warning | a loop issues wgmma.mma_async in all threads of a block and a bulk
    load in one of them, without a barrier: the copy may overwrite what other warps' wgmma still
    read | __syncthreads() after wgmma.wait_group, or an mbarrier at which each warp arrives and
    the loading thread waits
early | PDL_ORDER | note | a bulk copy is issued before griddepcontrol.wait, in a kernel that has
    one: what the kernel before this one writes may not be there, and what it reads may change
    (what it does not touch may be copied early) | griddepcontrol.wait before the copy
uncommitted | MMA_WAIT | error | wgmma.wait_group waits for no wgmma.mma_async before it, because
    none is committed | wgmma.commit_group.sync.aligned after the last wgmma.mma_async
unwaited | MMA_WAIT | warning | a loop issues wgmma.mma_async, gives their stage to be loaded again,
    and never waits for them: the copy may overwrite what they read | wgmma.wait_group
    in the loop, before the stage is released: 1 if it is the stage of the group before the last
""")
}


def _mistake(name: str, cause: Instruction, use: Instruction | None = None) -> Mistake:
    rule, severity, message, fix = _WORDS[name]
    return Mistake(rule, severity, cause, use, message, fix)


def orders(protocol: Protocol) -> Iterator[Mistake]:
    """Yield the mistakes in the order of a kernel's instructions.

    Kernels with calls are skipped, because the callee may have the missing instruction.
    """
    if not protocol.values.function.is_entry or protocol.calls:
        return
    *always, dependent, remote = _MACHINES
    for machine in always:
        yield from _out_of_order(protocol, machine)
    opcodes = {code.opcode for code in protocol.values.function.code}
    if "griddepcontrol.wait" in opcodes:
        yield from _out_of_order(protocol, dependent)
    has_barriers = any(site.kind == "init" for site in protocol.sites)
    has_blocks = cluster_blocks(protocol.values.function) > 1
    if has_barriers and (has_blocks or any("barrier.cluster" in o for o in opcodes)):
        yield from _out_of_order(protocol, remote)
    yield from _parted(protocol)
    yield from _unwaited(protocol)


def _out_of_order(protocol: Protocol, machine: tuple[_Step, ...]) -> Iterator[Mistake]:
    flow = protocol.flow
    found: dict[int, list[tuple[Instruction, dict[str, str], str, str]]] = {}
    for number, block in enumerate(flow.blocks):
        for code in block.code:
            text = f"{code.opcode} {code.operands}"
            step = next((s for s in machine if s[0].match(text)), None)
            if step:
                found.setdefault(number, []).append((code, *step[1:]))
    if not found:
        return

    def transfer(
        block: int, facts: Facts, report: Callable[[str, Instruction], None] | None = None
    ) -> Facts:
        for code, following, wrong, name in found.get(block, ()):
            here = flow.conditions(code, block)
            met = {key[1] for key, conditions in facts.items() if not excluded(conditions, here)}
            if report and name and met == {wrong}:
                report(name, code)
            after: Facts = {}
            for (what, state, exact), conditions in facts.items():
                states = {following.get(state, state), *((state,) if code.guard else ())}
                for key in ((what, new, exact) for new in states):
                    after[key] = after[key] & conditions if key in after else conditions
            facts = after
        return facts

    mistakes: list[Mistake] = []
    first: Facts = {("machine", "none", True): frozenset()}
    for number, facts in enumerate(flow.run(transfer, first)):
        if facts:
            transfer(number, dict(facts), lambda name, code: mistakes.append(_mistake(name, code)))
    yield from mistakes


def _parted(protocol: Protocol) -> Iterator[Mistake]:
    """Yield the first access to another block after which a path ends without an arrival."""
    flow, values = protocol.flow, protocol.values
    if not any(code.opcode.startswith("mapa") for code in values.function.code):
        return

    def is_remote(code: Instruction) -> bool:
        is_own = ".shared" in code.opcode and "::cluster" not in code.opcode
        if is_own or not _ACCESS.match(code.opcode):
            return False
        terms, _ = values.address(code.address())
        return any(symbol.op == "mapa" for symbol, _ in terms)

    steps = [
        [c for c in block.code if _LEAVE.match(c.opcode) or _END.match(c.opcode) or is_remote(c)]
        for block in flow.blocks
    ]
    mistakes: dict[int, Mistake] = {}

    def transfer(block: int, facts: Facts, report: bool = False) -> Facts:
        for code in steps[block]:
            if _LEAVE.match(code.opcode):
                facts = facts if code.guard else {}
            elif not _END.match(code.opcode):
                facts = facts | {(code, "open", True): flow.conditions(code, block)}
            elif report:
                here = flow.conditions(code, block)
                for (access, _, _), conditions in facts.items():
                    if not excluded(conditions, here):
                        mistakes.setdefault(access.line, _mistake("parted", access, code))
        return facts

    for number, facts in enumerate(flow.run(transfer, {})):
        if facts is not None:
            transfer(number, dict(facts), report=True)
    yield from list(mistakes.values())[:1]


def _unwaited(protocol: Protocol) -> Iterator[Mistake]:
    """Yield a mistake for a loop that overwrites operands of wgmma without a wait or a barrier."""
    flow = protocol.flow
    mmas = _blocks_with(protocol, r"wgmma\.mma_async")
    waits = _blocks_with(protocol, r"wgmma\.wait_group")
    barriers = _blocks_with(protocol, r"bar\b|barrier\b|mbarrier\.arrive(?!\.expect_tx)")
    reused = [site for site in protocol.sites
              if site.kind == "copy" or (site.kind == "arrive" and site.arrives)]  # fmt: skip
    for number in sorted(mmas):
        mma = next(c for c in flow.blocks[number].code if c.opcode.startswith("wgmma.mma_async"))
        for site in reused:
            loop = protocol.loop_of(number, site.block)
            if loop and loop.isdisjoint(waits):
                yield _mistake("unwaited", mma, site.code)
                return
            is_alone = site.kind == "copy" and is_of_one(
                flow.always[number], flow.conditions(site.code, site.block)
            )
            if loop and is_alone and loop.isdisjoint(barriers):
                yield _mistake("ahead", mma, site.code)
                return


def _blocks_with(protocol: Protocol, pattern: str) -> set[int]:
    """Return the basic blocks that have an instruction whose opcode matches a pattern."""
    blocks = enumerate(protocol.flow.blocks)
    return {n for n, block in blocks if any(re.match(pattern, c.opcode) for c in block.code)}
