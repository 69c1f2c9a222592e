"""Reader of faults: instructions that failed, with the operands that they had when they ran."""

from __future__ import annotations

import dataclasses
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tma_dlpack.debug.core import driver, targets, tma
from tma_dlpack.debug.postmortem.causes import Use, causes_of
from tma_dlpack.debug.postmortem.dump import EXCEPTIONS, Dump, Warp, three
from tma_dlpack.debug.postmortem.flow import (
    Flow,
    Registers,
    cluster_of,
    cluster_sizes,
    flow_of,
    rank_in_cluster,
)
from tma_dlpack.debug.postmortem.likely import likely_causes
from tma_dlpack.debug.postmortem.memory import Word, maps_of, offset_of, read_map
from tma_dlpack.debug.postmortem.results import BLOCK_SHIFT, Fault
from tma_dlpack.debug.postmortem.sass import INSTRUCTION_BYTES, Instruction, signed
from tma_dlpack.debug.programs import answer

# numbers of instructions that a listing shows before and after the failed instruction
_BEFORE, _AFTER = 4, 2
# time limit of nvdisasm, in seconds
_SECONDS = 10
# a line of nvdisasm: "/*0010*/  MOV R1, c[0x0][0x28] ;"
_LINE = re.compile(r"/\*([0-9a-f]+)\*/\s+(\S.*?)\s*;")
# bytes of each window, which is a range of generic addresses; shared memory and local memory have a
# window each
_WINDOW_BYTES = 1 << 24


def faults_of(dump: Dump) -> list[Fault]:
    """Return the faults of a dump; warps that failed for the same reason are one fault."""
    # `Fault.kind` -> first fault of this kind, address of its instruction, all warps of this kind
    kinds: dict[tuple[object, ...], tuple[Fault, int, list[Warp]]] = {}
    seen: set[int] = set()
    # the blocks are sorted (x fastest), so that a fault has the index of its first block
    for block in sorted(dump.blocks, key=lambda block: block.index[::-1]):
        for warp in dump.warps(block):
            if warp.error_pc is not None:
                seen.add(warp.error_pc)
                fault = _fault(dump, warp, warp.error_pc)
                kinds.setdefault(fault.kind, (fault, warp.error_pc, []))[2].append(warp)
    faults = [
        dataclasses.replace(fault, alike=len(warps), listing=listing(dump, pc))
        for fault, pc, warps in kinds.values()
    ]
    # a warp may have ended before its exception was reported; then only the row of the SM has the
    # address of the instruction
    for sm in dump.sms:
        pc = int(sm["error_pc"])
        if sm["has_error_pc"] and pc not in seen:
            seen.add(pc)
            faults.append(_without_warp(dump, pc, int(sm["exception"])))
    return faults


def exception_words(code: int) -> str:
    """Return the name of an exception."""
    return EXCEPTIONS.get(code, f"exception {code} (cudadebugger.h has its name)")


def _without_warp(dump: Dump, pc: int, exception: int) -> Fault:
    function = dump.function_at(pc)
    words = function.at(pc) if function else None
    return Fault(
        kernel=dump.kernel(function, None).name,
        lines=dump.lines_at(pc),
        exception=exception_words(exception),
        instruction=Instruction(*words, dump.major).name if words else "",
        notes=("the warp had ended when it was reported: its operands are not in the file",),
    )


def _fault(dump: Dump, warp: Warp, pc: int) -> Fault:
    function = dump.function_at(pc)
    rows = warp.lanes
    code = next((int(e) for e in rows["exception"] if e), int(warp.block.sm["exception"]))
    what, index = exception_words(code), warp.block.index
    thread = _thread(warp)
    flow = flow_of(dump, function) if function is not None else None
    if function is None or flow is None or thread is None:
        notes = ("its machine code is not in the file",)
        return Fault("unknown code", block=index, exception=what, notes=notes)
    lane, now = thread
    use = _use(warp, flow, pc, now, lane, code)
    op = use.op
    return Fault(
        kernel=dump.kernel(function, warp.block.grid).name,
        lines=dump.lines_at(pc),
        block=index,
        thread=three(rows[lane], "thread"),
        exception=what,
        instruction=op.name or f"an instruction that is not TMA's (opcode {op.opcode:#x})",
        destination=use.shared_address,
        barrier=use.barrier,
        coordinates=use.coordinates,
        map=use.found or use.map,
        causes=causes_of(use) or likely_causes(use, flow),
        notes=tuple(_notes(use)),
    )


def _thread(warp: Warp) -> tuple[int, int] | None:
    """Return a thread that ran the failed instruction: its row in `lanes`, and its current pc."""
    # prefer an active thread, because the instruction was issued for the active threads
    groups = list(warp.groups())
    active = int(warp.row["active"])
    for pc, rows in groups:
        running = [int(r) for r in rows if active >> int(warp.lanes["lane"][r]) & 1]
        if running:
            return running[0], pc
    return (int(groups[0][1][0]), groups[0][0]) if groups else None


def _use(warp: Warp, flow: Flow, pc: int, now: int, lane: int, exception: int) -> Use:
    place = flow.place(pc)
    op = flow[place]
    registers = Registers(warp, flow, now, lane)
    blocks = math.prod(cluster_sizes(warp.block))
    # if the field `shared_bytes` of the warp is 0, use the number of bytes of shared memory that
    # the file contains for the block
    shared_bytes = int(warp.row["shared_bytes"]) or len(warp.block.shared)
    use = Use(warp, op, exception, shared_bytes, blocks)
    if op.coding is not None:
        _read_copy(use, registers, place)
    else:
        use.barrier = registers.barrier(place)
        use.operand = registers.register(op.first, place) if op.is_arrival else None
    if use.barrier is not None:
        use.word = _word_at(warp, use.barrier)
    return use


def _word_at(warp: Warp, address: int) -> Word | None:
    """Return the barrier at a shared::cluster address; None if the file lacks its block."""
    # the upper bits of the address are the rank of the barrier's block in the warp's cluster
    own, cluster, rank = warp.block, cluster_of(warp.block), address >> BLOCK_SHIFT
    for block in (own, *warp.dump.blocks):
        is_near = block.grid is own.grid and cluster_of(block) == cluster
        if is_near and rank_in_cluster(block) == rank:
            return Word.at(block.shared, offset_of(address))
    return None


def _read_copy(use: Use, registers: Registers, place: int) -> None:
    """Read the operands of a copy into `use`."""
    op = use.op
    assert op.coding is not None
    # The operands of a coding are in consecutive uniform registers. An address of a map or of
    # global memory takes two registers, and coordinates are always last.
    for names, number in ((op.coding.first, op.first), (op.coding.second, op.second)):
        for name in names:
            if name == "coordinates":
                found = [registers.uniform(number + k, place) for k in range(op.coordinates)]
                if None not in found:
                    use.coordinates = tuple(signed(n, 32) for n in found if n is not None)
            elif name in ("map_address", "global_address"):
                setattr(use, name, registers.pair(number, place))
                number += 2
            else:
                setattr(use, name, registers.uniform(number, place))
                number += 1
    if op.is_multicast:
        # bits 16 to 31 of the register are the mask of the destination blocks
        packed = registers.uniform(op.third, place)
        use.blocks_mask = None if packed is None else packed >> 16
    if op.has_map and use.map_address is not None:
        _read_map(use, use.map_address)


def _read_map(use: Use, address: int) -> None:
    """Read the 128 bytes of a map from the memory that has its address, and store them in `use`."""
    warp, dump = use.warp, use.warp.dump
    grid = warp.block.grid
    windows = dump.windows
    # shared memory and local memory each have a window of generic addresses; all other addresses
    # are global memory
    for space in ("shared", "local"):
        if windows is not None and 0 <= address - int(windows[space]) < _WINDOW_BYTES:
            use.map_space = space
            start = offset_of(address - int(windows[space]))
            if space == "shared" and start + targets.MAP_BYTES <= len(warp.block.shared):
                use.map_bytes = bytes(warp.block.shared[start : start + targets.MAP_BYTES])
    if grid is not None and grid.parameter_address:
        start = address - grid.parameter_address
        if 0 <= start <= len(grid.parameters) - targets.MAP_BYTES:
            use.map_space = "parameter"
            use.map_bytes = grid.parameters[start : start + targets.MAP_BYTES]
    if not use.map_space:
        use.map_space = "global"
        use.map_bytes = dump.global_memory(address, targets.MAP_BYTES)
    # 128 zero bytes are not decoded, because they have a cause of their own (MAP_OF_ZEROS)
    if use.map_bytes is None or not any(use.map_bytes):
        return
    use.map, use.why_no_map = read_map(use.map_bytes, dump.target)
    if use.map_space == "parameter" and grid is not None:
        start = address - grid.parameter_address
        use.found = next((m for m in maps_of(dump, grid) if m.offset == start), None)


def _notes(use: Use) -> Iterator[str]:
    """Yield notes about the operands that the file lacks."""
    op = use.op
    if op.coding is None:
        return
    lost = "the registers were written since, and the code does not tell what they held"
    if op.has_map and use.map_address is None:
        yield f"by which map it copied is not known: {lost}"
    elif op.has_map and use.map_bytes is None and use.map_space == "global":
        how = "tma-dlpack postmortem --global -- PROGRAM keeps it"
        yield f"the map at {use.map_address:#x} is in global memory, which this file lacks: {how}"
    elif op.has_map and use.map_bytes is None and use.map_space == "local":
        yield "the bytes of local memory are not in the file"
    if use.coordinates is None and "coordinates" in op.coding.first:
        yield f"the coordinates are not known: {lost}"


# -- machine code around the instruction, where nvdisasm is installed ------------------------------


def listing(dump: Dump, pc: int) -> tuple[str, ...]:
    """Return the code near an address, with ">" at this address; () without nvdisasm."""
    program, function = driver.tool("nvdisasm"), dump.function_at(pc)
    if program is None or function is None:
        return ()
    here = pc - function.start
    place = here // INSTRUCTION_BYTES
    first = max(0, place - _BEFORE)
    # nvdisasm reads raw instructions with --binary, so no cubin has to be written
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_core_") as folder:
        path = Path(folder) / "code"
        path.write_bytes(function.code[first : place + 1 + _AFTER].tobytes())
        target, base = f"{dump.target.upper().replace('_', '')}a", hex(first * INSTRUCTION_BYTES)
        words = [program, "--binary", target, "--base-address", base, str(path)]
        try:
            done = answer(words, _SECONDS)
        except (OSError, tma.TmaUnsupportedError):
            return ()
    found = [(int(at, 16), text) for at, text in _LINE.findall(done.stdout)]
    return tuple(f"{'>' if at == here else ' '} {at:#06x}  {text}" for at, text in found)
