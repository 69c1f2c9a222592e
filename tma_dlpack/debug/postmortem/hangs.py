"""Barriers that warps wait at: the arrivals or bytes that they lack, and the reason.

Each reason is a row of `ptx.stuck.ROWS`. The rows compare a barrier's bytes with the maps among
the kernel's parameters, and with the bytes that the code announces, if this number is constant.
"""

from __future__ import annotations

from collections.abc import Iterator

from tma_dlpack.debug.postmortem.results import DeadBarrier, DeadKernel, WarpPlace
from tma_dlpack.debug.postmortem.survey import State, Survey, Wait
from tma_dlpack.ptx.stuck import ROWS


def barriers_of(survey: Survey, died: bool) -> Iterator[DeadBarrier]:
    """Return every barrier once for each of its states; barriers with waiting warps come first.

    If a fault or a trap ended the kernel (`died`), a barrier's state is no evidence, so it gets no
    rule.
    """
    found = [_barrier(state, died) for state in survey.states.values()]
    yield from sorted(found, key=_order)


def _order(barrier: DeadBarrier) -> tuple[object, ...]:
    """Return a sort key: first causes, then barriers that wait for others, then quiet ones."""
    word = barrier.count, barrier.arrivals, barrier.bytes, barrier.phase
    rank = 2 if not barrier.waiting else int(barrier.rule == "HANG_FOLLOWS")
    return rank, barrier.address, *word


def _barrier(state: State, died: bool) -> DeadBarrier:
    # the report shows the wait that most warps are at
    first = max(state.waits, key=lambda wait: state.waits[wait], default=Wait((), None, 0))
    parities = {wait.parity for wait in state.waits}
    # the first row that holds counts; the last row of `ROWS` always holds
    row = next(row for row in ROWS if row.holds(state)) if state.waits and not died else None
    return DeadBarrier(
        kernel=state.kernel.name,
        address=state.address,
        count=state.word.count,
        arrivals=state.word.arrivals,
        bytes=state.word.bytes,
        phase=state.word.phase,
        blocks=state.blocks,
        waiting=state.waiting,
        lines=first.lines,
        parity=parities.pop() if len(parities) == 1 else None,
        rule=row.rule if row else "",
        message=row.message(state) if row else "",
        fix=row.fix if row else "",
    )


def kernels_of(survey: Survey) -> Iterator[DeadKernel]:
    """Return every kernel that was on the GPU."""
    for kernel, blocks in survey.blocks.items():
        grid = blocks[0].grid
        standing = survey.standing[kernel].most_common()
        whole, each, cluster = (
            grid.dims(name) if grid else (0, 0, 0) for name in ("grid", "block", "cluster")
        )
        yield DeadKernel(
            name=kernel.name,
            mangled=kernel.mangled,
            grid=whole,
            block=each,
            cluster=cluster,
            blocks=len(blocks),
            warps=survey.warps[kernel],
            standing=tuple(WarpPlace(what, lines, n) for (what, lines), n in standing),
        )
