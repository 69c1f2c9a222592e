"""`postmortem`, which finds the causes of a crash or a hang in the GPU core dump of a TMA program.

A dump is an ELF file, and the cubins in the dump are ELF files, too. `container` reads the sections
of both, and the line tables of the cubins. `dump` reads the tables in the dump's sections;
`dump.TABLES` has their layouts. `sass` decodes the TMA and mbarrier instructions. `flow` finds the
values that registers had when an instruction ran. `memory` decodes mbarriers and tensor maps.
`survey` finds the instruction at which each warp is. `faults` finds the instructions that failed,
and `causes.CAUSES` has the possible causes. `hangs` finds the barriers at which warps hang, and
`ptx.stuck.ROWS` has the possible reasons. If an operand of a failed instruction is unknown,
`likely` finds likely causes. `results` has the classes of the result, and `pictures` makes its
HTML. `program` runs a program with core dumps switched on.

To add a cause, add a row to `causes.CAUSES` or `ptx.stuck.ROWS`, and a dump with this cause to
tests/postmortem/golden. To add an architecture, compile tests/postmortem/codings.cu for this
architecture, compare the machine code with the codings in `sass`, and add the architecture to
`sass.KNOWN_TARGETS`.
"""

from __future__ import annotations

import os
from pathlib import Path

from tma_dlpack.debug import foreign
from tma_dlpack.debug.core import errors, public, refusals
from tma_dlpack.debug.postmortem.dump import Dump, Grid
from tma_dlpack.debug.postmortem.faults import faults_of
from tma_dlpack.debug.postmortem.hangs import barriers_of, kernels_of
from tma_dlpack.debug.postmortem.memory import maps_of
from tma_dlpack.debug.postmortem.results import DeadBarrier, DeadKernel, Fault, FoundMap, PostMortem
from tma_dlpack.debug.postmortem.sass import KNOWN_TARGETS
from tma_dlpack.debug.postmortem.survey import TRAP, Survey

__all__ = ["DeadBarrier", "DeadKernel", "Fault", "FoundMap", "PostMortem", "postmortem"]


@public.opaque
def postmortem(path: str | os.PathLike[str]) -> PostMortem:
    """Explain why a TMA program died or hangs, from its GPU core dump.

    Parameters
    ----------
    path : path-like
        A dump written by the driver (``CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1``,
        ``CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1``), by cuda-gdb, or by
        ``tma-dlpack postmortem --keep FILE -- PROGRAM``. The file may be compressed by xz or gzip.
        The path may name a pipe, and "-" is standard input.

    Returns
    -------
    PostMortem
        `.faults` has each instruction that failed, its operands, its map, and the causes with their
        fixes. `.barriers` has each mbarrier with its waiting warps and its missing arrivals or
        bytes. `.maps` and `.kernels` list the tensor maps and the running kernels. The result
        prints as text, shows as HTML in notebooks, and has `to_json`.

    Raises
    ------
    TmaPreconditionError
        If the file is not a complete GPU core dump. The message has the reason.
    TmaUnsupportedError
        If the dump is of a GPU without TMA.
    OSError
        If the file cannot be opened.

    Notes
    -----
    `postmortem` needs no GPU and no CUDA installation. A cause that the dump does not prove is
    marked as "likely". `.notes` lists the data that the file lacks. The layouts of the data in a
    dump, and the error that each cause produces, were measured on an H100 (driver 580.159.04,
    2026-11-22).

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
        raise errors.bad_value(
            "path", path, "be a path", 'pass the dump, such as "core.1234"'
        ) from None
    return _of_file(str(place))


@foreign.refusing("FILE_CORE_DUMP")
def _of_file(name: str) -> PostMortem:
    with foreign.plain_file(name, refusals.MAX_PIPED_DUMP_BYTES, "FILE_CORE_DUMP") as path:
        return read(Dump.open(path, "standard input" if name == foreign.STDIN else name))


def read(dump: Dump) -> PostMortem:
    """Return the faults, barriers, maps and kernels of a dump."""
    survey = Survey(dump)
    faults = tuple(faults_of(dump))
    # a `Grid` has arrays and cannot be hashed, so the key is its id
    running = {id(block.grid): block.grid for block in dump.blocks if block.grid is not None}
    # launches with equal parameters have the same maps, so these maps are listed once
    found = {grid.parameters: maps_of(dump, grid) for grid in running.values()}
    notes = [*dump.notes]
    trapped = any(what == TRAP for rows in survey.standing.values() for what, _ in rows)
    # if a fault or a trap ended the kernel during a wait, this wait is not a hang
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


public.PICTURES["PostMortem"] = "tma_dlpack.debug.postmortem.pictures", "html_of"
