"""Reader of hangs: the barriers at which warps wait, what these barriers lack, and the reason.

The reason is the first row of `ptx.stuck.ROWS` whose test holds. Some tests compare a barrier's
pending bytes with the bytes of copies by the maps among the kernel's parameters. If the code
announces a constant number of bytes, some tests also compare the pending bytes with this number.
"""

from __future__ import annotations

from collections.abc import Iterator

from tma_dlpack.debug.postmortem.results import DeadBarrier, DeadKernel, WarpPlace
from tma_dlpack.debug.postmortem.survey import State, Survey, Wait
from tma_dlpack.ptx.stuck import ROWS


def barriers_of(survey: Survey, died: bool) -> Iterator[DeadBarrier]:
    """Yield every barrier once for each of its states; barriers with waiting warps come first.

    If a fault or a trap ended the kernel (`died`), the state of a barrier proves nothing. Then no
    row of `ROWS` is tested.
    """
    found = [_barrier(state, died) for state in survey.states.values()]
    yield from sorted(found, key=_order)


def _order(barrier: DeadBarrier) -> tuple[object, ...]:
    """Return the sort key of a barrier.

    Barriers that cause the hang come first. Then come barriers whose warps wait because of another
    barrier, and then barriers without waiting warps.
    """
    word = barrier.count, barrier.arrivals, barrier.bytes, barrier.phase
    rank = 2 if not barrier.waiting else int(barrier.rule == "HANG_FOLLOWS")
    return rank, barrier.address, *word


def _barrier(state: State, died: bool) -> DeadBarrier:
    # if there are several waits, the report shows the wait of the most warps
    first = max(state.waits, key=lambda wait: state.waits[wait], default=Wait((), None, 0))
    parities = {wait.parity for wait in state.waits}
    # the first row whose test holds is used; the test of the last row always holds
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
    """Yield every kernel that was on the GPU."""
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
