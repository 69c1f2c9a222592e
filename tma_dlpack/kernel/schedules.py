"""Run a kernel under several schedules, each with the same initial memory."""

from __future__ import annotations

import numpy as np

from tma_dlpack.kernel.arguments import Bound
from tma_dlpack.kernel.compile import Compiled
from tma_dlpack.kernel.machine import simulate
from tma_dlpack.kernel.memory import Region
from tma_dlpack.kernel.result import KernelRun

Three = tuple[int, int, int]


def run_schedules(
    compiled: Compiled,
    bound: Bound,
    grid: Three,
    block: Three,
    cluster: Three,
    smem_bytes: int,
    seed: int,
    schedules: int,
    max_steps: int | None,
) -> KernelRun:
    """Run the schedules one after the other, and stop at the first run with an error.

    Return the run with the error. If no run has an error, return the first run, and add the
    warnings of all other runs to it. Afterwards memory has the bytes that the returned run wrote.
    If a later run writes different bytes than the first run, the result depends on the schedule,
    and the returned run has a warning.
    """
    before = _snapshot(bound.regions)
    first: KernelRun | None = None
    written: list[np.ndarray] = []
    for number in range(schedules):
        if number:
            _restore(bound.regions, before)
        machine = simulate(
            compiled.ptx, compiled.kernel, grid, block, bound.parameters, bound.regions,
            cluster=cluster, smem_bytes=smem_bytes, seed=seed, schedule=number,
            max_steps=max_steps, maps=bound.maps,
        )  # fmt: skip
        # If the run has an error, return immediately, so that memory keeps the bytes of this run.
        run = KernelRun.of_machine(machine, compiled, number)
        if not run.ok:
            return run
        if first is None:
            first, written = run, _snapshot(bound.regions)
            continue
        first = first.merged(run)
        different = [
            region.name
            for region, old in zip(bound.regions, written, strict=True)
            if not np.array_equal(region.raw, old)
        ]
        if different:
            first = first.with_order_dependent(different, number)
    assert first is not None
    # Later runs have overwritten the bytes that the first run wrote. Restore the bytes of the first
    # run.
    _restore(bound.regions, written)
    return first


def _snapshot(regions: list[Region]) -> list[np.ndarray]:
    return [region.raw.copy() for region in regions]


def _restore(regions: list[Region], saved: list[np.ndarray]) -> None:
    for region, old in zip(regions, saved, strict=True):
        if region.raw.flags.writeable:
            region.raw[:] = old
