"""`postmortem`: the GPU core dump of any TMA program, explained.

A dump is an ELF file. `container` reads its sections, and of the cubins in it which source line an
instruction is; `dump` reads its tables, by `TABLES`. `sass` takes the few instructions of TMA and
mbarriers apart, by rows; `flow` computes what registers held when they ran. `faults` and `hangs`
conclude by rows (`causes.CAUSES`, `report.stuck.ROWS`) from the barriers and maps of `memory`, and
from where warps stand (`survey`); `likely` ranks candidates where an operand is lost. `results` is
what they return, `pictures` its HTML. `program` runs a program with dumps switched on.

A new cause: a row of `causes.CAUSES` or `report.stuck.ROWS`, and a dump of it in
tests/postmortem/golden. An architecture: `sass.KNOWN_TARGETS`, after tests/postmortem/codings.cu
was compiled for it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tma_dlpack.debug import foreign
from tma_dlpack.debug.postmortem.dump import Dump, Grid
from tma_dlpack.debug.postmortem.faults import faults_of
from tma_dlpack.debug.postmortem.hangs import barriers_of, kernels_of
from tma_dlpack.debug.postmortem.memory import maps_of
from tma_dlpack.debug.postmortem.results import DeadBarrier, DeadKernel, Fault, FoundMap, PostMortem
from tma_dlpack.debug.postmortem.sass import KNOWN_TARGETS
from tma_dlpack.debug.postmortem.survey import TRAP, Survey
from tma_dlpack.public import PICTURES, opaque
from tma_dlpack.tables.errors import bad_value
from tma_dlpack.tables.refusals import MAX_PIPED_DUMP_BYTES

__all__ = ["DeadBarrier", "DeadKernel", "Fault", "FoundMap", "PostMortem", "postmortem"]


@opaque
def postmortem(path: str | os.PathLike[str]) -> PostMortem:
    """Explain why a TMA program died or hangs, from its GPU core dump.

    Parameters
    ----------
    path : path-like
        A dump that the driver wrote (``CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1``,
        ``CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1``), cuda-gdb, or
        ``tma-dlpack postmortem --keep FILE -- PROGRAM``; also compressed by xz or gzip, a pipe, or
        "-" for standard input.

    Returns
    -------
    PostMortem
        `.faults`: the instruction that was wrong, its operands, its map, and the causes with their
        fixes. `.barriers`: which warps wait at which mbarrier, and what it lacks. `.maps` and
        `.kernels`. Text, HTML and `to_json`.

    Raises
    ------
    TmaPreconditionError
        If the file is not a whole GPU core dump; the message names its kind.
    TmaUnsupportedError
        For a GPU without TMA.
    OSError
        If the file cannot be opened.

    Notes
    -----
    Needs no GPU and no CUDA installation. What the file does not hold is said in the notes, and
    nothing is guessed. Measured on an H100 (driver 580.159.04, 2026-11-22).

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> try:
    ...     tma.postmortem("/dev/null")
    ... except tma.TmaError as error:
    ...     print(str(error).partition(";")[0])
    /dev/null is empty
    """
    try:
        place = Path(path)
    except TypeError:
        raise bad_value("path", path, "be a path", 'pass the dump, such as "core.1234"') from None
    return _of_file(str(place))


@foreign.refusing("FILE_CORE_DUMP")
def _of_file(name: str) -> PostMortem:
    with foreign.plain_file(name, MAX_PIPED_DUMP_BYTES, "FILE_CORE_DUMP") as path:
        return read(Dump.open(path, "standard input" if name == foreign.STDIN else name))


def read(dump: Dump) -> PostMortem:
    """Conclude from a dump."""
    survey = Survey(dump)
    faults = tuple(faults_of(dump))
    running = {id(block.grid): block.grid for block in dump.blocks if block.grid is not None}
    found = {grid.parameters: maps_of(dump, grid) for grid in running.values()}
    notes = [*dump.notes]
    trapped = any(what == TRAP for rows in survey.standing.values() for what, _ in rows)
    barriers = tuple(barriers_of(survey, died=bool(faults) or trapped))
    if faults and any(barrier.waiting for barrier in barriers):
        notes.append(
            "a fault ended the kernel: barriers that look complete, or are waited at, say nothing"
        )
    if any(barrier.rule for barrier in barriers):
        notes.append(
            "a dump is one moment: if the program was slow and not stuck, these waits would have "
            "ended; a second dump some seconds later tells"
        )
    if trapped:
        notes.append("warps stand at a trap: it ended the kernel, and others wait in vain")
    if dump.target not in KNOWN_TARGETS:
        notes.append(f"the machine code of {dump.target} is read as that of sm_120: not verified")
    return PostMortem(
        path=dump.elf.name,
        target=dump.target,
        kernels=tuple(kernels_of(survey)),
        faults=faults,
        barriers=barriers,
        maps=tuple(one for maps in found.values() for one in maps),
        notes=tuple(dict.fromkeys(notes)),
    )


PICTURES["PostMortem"] = "tma_dlpack.debug.postmortem.pictures", "html_of"
