"""Classes of the result of `postmortem`, with its kernels, faults, barriers and maps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from tma_dlpack.debug.core import coerce, counted, errors, public, report, tma
from tma_dlpack.debug.names import demangled
from tma_dlpack.debug.postmortem.sass import STORES

Triple = tuple[int, int, int]
# lowest bit of a block's rank in a shared::cluster address; the bits below it are the offset in
# this block's shared memory
BLOCK_SHIFT = 24
# maximum number of characters of a kernel's name with its arguments
_MOST_FULL_NAME = 300
# maximum number of faults, of barriers, and of a kernel's positions in the text; the JSON has all
_MOST_SHOWN = 12
# attributes of a map that the JSON has
_MAP_FIELDS = ("kind", "rank", "data_type", "global_dim", "box_dim", "tx_bytes")


class Cause(NamedTuple):
    """A reason for a fault or a hang."""

    rule: str
    message: str
    fix: str
    # True if this cause was measured to produce the error that the hardware reported
    is_sure: bool
    # True if the cause is only possible, because the file lacks an operand that would prove it
    is_likely: bool = False


class WarpPlace(NamedTuple):
    """A position in the code, and the number of warps that are there."""

    what: str
    lines: tuple[str, ...]  # ``file:line``, the innermost line first
    warps: int


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class DeadKernel:
    """A kernel that was running on the GPU.

    Attributes
    ----------
    name : str
        C++ name without arguments; `mangled` is the mangled name. In a dump of several GPUs, each
        name of a kernel ends with the GPU, such as "on GPU 1".
    grid, block, cluster : tuple of int
        Sizes of the launch, x first; `cluster` is (0, 0, 0) for a launch without clusters.
    blocks, warps : int
        Numbers of blocks and of warps that were on the GPU.
    standing : tuple of WarpPlace
        Positions in the code as ``(what, lines, warps)``, the position of the most warps first.
    """

    name: str
    mangled: str
    grid: Triple
    block: Triple
    cluster: Triple
    blocks: int
    warps: int
    standing: tuple[WarpPlace, ...]


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class FoundMap:
    """A tensor map among the parameters of a kernel; it also has the attributes of `map`.

    Attributes
    ----------
    map : TensorMap
    kernel : str
    offset : int
        Number of bytes from the first parameter to the map.
    """

    map: tma.TensorMap
    kernel: str
    offset: int

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "map"), name)

    def __str__(self) -> str:
        return f"parameter +{self.offset:#x} of {self.kernel}: {map_words(self.map)}"


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class Fault:
    """One or more warps that failed at the same instruction for the same reason.

    Attributes
    ----------
    kernel : str
    lines : tuple of str
        Source lines ``file:line``: the innermost line, then its call sites; empty without
        ``-lineinfo``.
    block, thread : tuple of int or None
        blockIdx and threadIdx of a thread of the first warp, x first; None if the warp had ended.
    alike : int
        Number of warps with this fault.
    exception : str
        The error that the hardware reported.
    instruction : str
        Name of the machine instruction, such as "UTMALDG.3D".
    destination, barrier : int or None
        Addresses of the tile and of the mbarrier in shared memory. For a store, `destination` is
        the address of the tile that is copied to global memory. Bits 24 and up of an address are
        the rank of the block in its cluster.
    coordinates : tuple of int or None
        Coordinates of the copy, the innermost first.
    map : FoundMap or TensorMap or None
        The map of the copy.
    causes : tuple of Cause
        Every mistake that the operands show, as ``(rule, message, fix, is_sure, is_likely)``.
        Mistakes that produce the reported error (`is_sure`) come first. If the operands show no
        mistake, `causes` has the likely causes.
    notes : tuple of str
        Data about the fault that the file lacks.
    listing : tuple of str
        Lines of machine code around the instruction; empty if nvdisasm is not installed.
    """

    kernel: str
    lines: tuple[str, ...] = ()
    block: Triple | None = None
    thread: Triple | None = None
    alike: int = 1
    exception: str = ""
    instruction: str = ""
    destination: int | None = None
    barrier: int | None = None
    coordinates: tuple[int, ...] | None = None
    map: FoundMap | tma.TensorMap | None = None
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[object, ...]:
        """Key of the fault; warps whose faults have the same key are one `Fault`."""
        return self.kernel, self.lines, self.instruction, self.exception, self.rule

    @property
    def rule(self) -> str:
        """Identifier of the first cause, such as "MAP_KIND"; "UNKNOWN" without a cause."""
        return self.causes[0].rule if self.causes else "UNKNOWN"

    @property
    def message(self) -> str:
        """Message of the first cause."""
        return self.causes[0].message if self.causes else "no cause that is known holds"

    @property
    def fix(self) -> str:
        """Fix of the first cause; "" without a cause."""
        return self.causes[0].fix if self.causes else ""


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class DeadBarrier:
    """A state of an mbarrier, with the number of blocks in which the mbarrier has this state.

    Attributes
    ----------
    kernel : str
    address : int
        Offset in the block's shared memory.
    count : int
        Number of arrivals in each phase.
    arrivals, bytes : int
        Numbers of pending arrivals and pending bytes. `bytes` is negative if bytes arrived before
        an expect_tx announced them.
    phase : int
        Parity of the current phase.
    blocks, waiting : int
        Number of blocks with this state, and number of their warps that wait at the barrier.
    lines : tuple of str
        Source lines ``file:line`` of the wait: the innermost line, then its call sites.
    parity : int or None
        Parity for which the warps wait; None if no warp waits, or if the parity is unknown.
    rule, message, fix : str
        Identifier of the reason for the hang, description of this reason, and its fix; "" if the
        state shows no hang.
    """

    kernel: str
    address: int
    count: int
    arrivals: int
    bytes: int
    phase: int
    blocks: int
    waiting: int
    lines: tuple[str, ...] = ()
    parity: int | None = None
    rule: str = ""
    message: str = ""
    fix: str = ""


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class PostMortem(public.Drawn):
    """The kernels, faults, barriers and maps in a GPU core dump, as `postmortem` returns them.

    Equal findings are listed once. ``print(pm)`` shows them as text, and notebooks show them with
    pictures.

    Attributes
    ----------
    kernels : tuple of DeadKernel
    faults : tuple of Fault
    barriers : tuple of DeadBarrier
        Barriers; barriers with waiting warps come first.
    maps : tuple of FoundMap
        The tensor maps among the kernels' parameters.
    notes : tuple of str
        Remarks, such as the parts of the dump that are missing or could not be read.
    """

    path: str
    target: str
    kernels: tuple[DeadKernel, ...]
    faults: tuple[Fault, ...]
    barriers: tuple[DeadBarrier, ...]
    maps: tuple[FoundMap, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether neither a fault nor a hang was found."""
        return not self.faults and not any(barrier.rule for barrier in self.barriers)

    @property
    def findings(self) -> tuple[report.Finding, ...]:
        """The causes of all faults, and the reasons for all hangs, as findings."""
        found = [*map(findings_of, self.faults), *map(findings_of, self.barriers)]
        return tuple(itertools.chain(*found))

    def to_json(self) -> str:
        """Return the findings as JSON: faults, barriers, maps, kernels, notes."""
        faults = [
            _plain(fault) | {name: getattr(fault, name) for name in ("rule", "message", "fix")}
            for fault in self.faults
        ]
        names = ("barriers", "maps", "kernels", "notes", "target")
        rest = {name: _plain(getattr(self, name)) for name in names}
        return json.dumps({"faults": faults, **rest}, indent=1)

    # -- text ------------------------------------------------------------------------------------

    def head(self) -> str:
        """Return a summary of the findings in one line."""
        hung = [barrier for barrier in self.barriers if barrier.rule]
        if self.faults:
            kinds = counted(len(self.faults), "kind") + " of fault"
            found = f"{kinds}, {counted(sum(f.alike for f in self.faults), 'warp')}"
        elif hung:
            warps = sum(barrier.waiting for barrier in hung)
            found = f"a hang: {counted(warps, 'warp')} at {counted(len(hung), 'kind')} of barrier"
        elif self.kernels:
            found = "no fault, and no warp that waits at an mbarrier"
        else:
            found = "no kernel was on the GPU"
        return f"{PurePath(self.path).name} ({self.target}): {found}"

    def __repr__(self) -> str:
        return coerce.printable(f"<PostMortem: {self.head()}>")

    def __str__(self) -> str:
        sections = [
            *(
                [*fault_lines(fault), *(f"    {line}" for line in fault.listing)]
                for fault in self.faults[:_MOST_SHOWN]
            ),
            [*_more(len(self.faults), "kinds of fault")],
            *map(barrier_lines, [b for b in self.barriers if b.rule][:_MOST_SHOWN]),
            self._quiet_barriers(),
            *rest_lines(self),
        ]
        parts = [report.Section(lines=lines) for lines in sections]
        return report.as_text(self.head(), parts, is_head_first=True)

    def _quiet_barriers(self) -> list[str]:
        quiet = [barrier for barrier in self.barriers if not barrier.rule]
        lines = [barrier_words(barrier) for barrier in quiet[:_MOST_SHOWN]]
        return [*lines, *_more(len(quiet), "other barriers")]


def _plain(value: Any) -> Any:
    """Return a value of the result as dicts, lists, texts and numbers, which JSON can store."""
    if isinstance(value, FoundMap):
        return {**_plain(value.map), "kernel": value.kernel, "offset": value.offset}
    if isinstance(value, tma.TensorMap):
        shown = {name: getattr(value, name) for name in _MAP_FIELDS}
        return {**shown, "data_type": value.data_type.name}
    if isinstance(value, Cause | WarpPlace):
        return value._asdict()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _more(count: int, what: str) -> Iterator[str]:
    if count > _MOST_SHOWN:
        yield f"and {count - _MOST_SHOWN} more {what}: --json has all"


def map_words(found: tma.TensorMap) -> str:
    """Return a description of a map in one line."""
    dims, box = "x".join(map(str, found.shape)), found.box_sizes
    tile = f"box {box}" if box else f"{found.pixels_per_column} pixels x {found.channels_per_pixel}"
    return (
        f"{found.kind} {found.data_type.name} {dims} at {found.global_address:#x}, {tile}, "
        f"one copy is {found.tx_bytes:,} bytes"
    )


def place_words(lines: tuple[str, ...]) -> str:
    """Return source lines as text."""
    if not lines:
        return "no line is known: compile with -lineinfo"
    called = [f"called at {line}" for line in lines[1:]]
    return ", ".join([lines[0], *called])


def _short_place(lines: tuple[str, ...]) -> list[str]:
    """Return the innermost line, and the first call site that is in another file."""
    called = [line for line in lines if _file_of(line) != _file_of(lines[0])]
    return [*lines[:1], *(f"called at {line}" for line in called[:1])]


def _file_of(line: str) -> str:
    return line.rpartition(":")[0]


def _shared_words(address: int) -> str:
    """Return an address in shared memory as text, with the block's rank unless the rank is 0."""
    block = address >> BLOCK_SHIFT
    offset = address & (1 << BLOCK_SHIFT) - 1
    return f"{offset:#x} of the cluster's block {block}" if block else f"{offset:#x}"


def fault_facts(fault: Fault) -> list[str]:
    """Return the lines of text about a fault, without its causes."""
    whose = f"block {fault.block}, thread {fault.thread}" if fault.block else "a warp that is gone"
    alike = f" ({counted(fault.alike, 'warp')} alike)" if fault.alike > 1 else ""
    lines = [f"fault in {fault.kernel}: {fault.exception}", f"  at {place_words(fault.lines)}"]
    lines.append(f"  {fault.instruction}, {whose}{alike}")
    operands = []
    if fault.destination is not None:
        end = "source" if fault.instruction.startswith(STORES) else "destination"
        operands.append(f"{end} {_shared_words(fault.destination)}")
    if fault.barrier is not None:
        operands.append(f"barrier {_shared_words(fault.barrier)}")
    if fault.coordinates is not None:
        operands.append(f"coordinates {fault.coordinates}, innermost first")
    lines += [f"  {', '.join(operands)}"] if operands else []
    if fault.map is not None:
        words = map_words(fault.map) if isinstance(fault.map, tma.TensorMap) else str(fault.map)
        lines.append(f"  map: {words}")
    return lines


def fault_lines(fault: Fault) -> list[str]:
    """Return the lines of text about a fault and its causes."""
    notes = [f"  note: {note}" for note in fault.notes]
    return [*fault_facts(fault), *_cause_lines(fault), *notes]


def _cause_lines(one: Fault | DeadBarrier) -> Iterator[str]:
    for found in findings_of(one):
        yield f"  {found.rule}: {found.message}"
        if found.fix:
            yield f"    fix: {found.fix}"


def findings_of(one: Fault | DeadBarrier) -> Iterator[report.Finding]:
    """Yield a finding for each cause of a fault, or one finding for the hang at a barrier."""
    causes = one.causes if isinstance(one, Fault) else ()
    for cause in causes or (Cause(one.rule, one.message, one.fix, True),) * bool(one.rule):
        sure = "" if cause.is_sure else "also wrong, though it ends otherwise: "
        sure = "likely: " if cause.is_likely else sure
        yield report.Finding(
            cause.rule, report.WARNING if cause.is_likely else report.ERROR, sure + cause.message,
            cause.fix, one.kernel, one.lines[0] if one.lines else None,
            sites=one.alike if isinstance(one, Fault) else one.waiting,
        )  # fmt: skip


def barrier_words(barrier: DeadBarrier) -> str:
    """Return a description of a barrier's state in one line."""
    return (
        f"barrier {barrier.address:#x} of {barrier.kernel}, in {counted(barrier.blocks, 'block')}: "
        f"count {barrier.count}, pending {counted(barrier.arrivals, 'arrival')} and "
        f"{barrier.bytes:,} bytes, phase {barrier.phase}"
    )


def barrier_facts(barrier: DeadBarrier) -> list[str]:
    """Return the lines of text about a barrier at which warps wait, without the cause."""
    parity = "a parity that the registers no longer hold"
    if barrier.parity is not None:
        parity = f"parity {barrier.parity}"
    where = f"{counted(barrier.waiting, 'warp')} at {place_words(barrier.lines)}, for {parity}"
    return [barrier_words(barrier), f"  {where}"]


def barrier_lines(barrier: DeadBarrier) -> list[str]:
    """Return the lines of text about a barrier at which warps wait, and the cause."""
    return [*barrier_facts(barrier), *_cause_lines(barrier)]


def rest_lines(found: PostMortem) -> list[list[str]]:
    """Return the lines of text about the maps, the kernels, and the notes."""
    return [
        [f"map at {one}" for one in found.maps],
        [line for kernel in found.kernels for line in kernel_lines(kernel)],
        [f"note: {note}" for note in found.notes],
    ]


def kernel_lines(kernel: DeadKernel) -> list[str]:
    """Return the lines of text about a kernel."""
    cluster = f", cluster {kernel.cluster}" if any(kernel.cluster) else ""
    there = f"{counted(kernel.blocks, 'block')} and {counted(kernel.warps, 'warp')} on the GPU"
    lines = [f"kernel {kernel.name}: grid {kernel.grid}, block {kernel.block}{cluster}; {there}"]
    if "<...>" in kernel.name:
        full = demangled([kernel.mangled])[kernel.mangled]
        cut = full if len(full) <= _MOST_FULL_NAME else f"{full[:_MOST_FULL_NAME]}..."
        lines.append(f"  {cut}")
    for row in kernel.standing[:_MOST_SHOWN]:
        where = ", ".join([row.what, *_short_place(row.lines)])
        lines.append(f"  {counted(row.warps, 'warp')}: {where}")
    return lines
