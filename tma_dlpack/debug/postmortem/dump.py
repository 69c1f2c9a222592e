"""Reader of the tables of a GPU core dump, from devices and grids to registers and memory.

A table is a section of the dump with rows that have the same fields, such as the warps of a block.
`TABLES` has the layout of each sort of table. Newer drivers append fields to the rows. A field that
a file lacks is read as 0. The parent of a section is a row of another table, such as the block of
the warps. `sh_link` of the section is the index of the section with the parent's table, and
`sh_info` is the index of the parent's row in this table.

Sources: the layout is from cudacoredump.h of the CUDA toolkit 13 (extras/Debugger/include). The
meaning of the fields was measured on an H100, driver 580.159.04, 2026-11-22.
"""

from __future__ import annotations

import bisect
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack.debug.core import tma
from tma_dlpack.debug.names import short_name
from tma_dlpack.debug.postmortem.container import Elf, LineTable, unreadable

Rows = npt.NDArray[Any]
# SHT_LOUSER; NVIDIA's section types are this number plus 1, 2, ...
_USER = 0x80000000

#: Types of the sections that contain memory, registers or a cubin.
MANAGED, GLOBAL, LOCAL, SHARED, REGISTERS, IMAGE = (_USER + n for n in (1, 2, 3, 4, 5, 7))
# maximum bytes of a row, number of warps, and bytes of a launch's parameters; a file beyond these
# limits is damaged
_MOST_ENTRY_BYTES = 4096
_MOST_WARPS = 1 << 17
_MOST_PARAMETER_BYTES = 1 << 16
# bit of the field `flags` of the table "meta"; set if the dump was made without global memory
_SKIP_GLOBAL = 2
# types of the sections of kernel parameters and of uniform registers
PARAMETERS, UNIFORM = _USER + 18, _USER + 19


class Table(NamedTuple):
    """The layout of one sort of table.

    `section` is the type of the sections with such a table, `most_rows` is the maximum number of
    rows in a section, and `row` has the fields of a row.
    """

    section: int
    most_rows: int
    row: np.dtype[Any]


def _table(number: int, most_rows: int, *fields: str) -> Table:
    """Return a layout; a field has 8 bytes if its name ends with a colon, otherwise 4 bytes."""
    row = [(name.rstrip(":"), "<u8" if name.endswith(":") else "<u4") for name in fields]
    return Table(_USER + number, most_rows, np.dtype(row))


_XYZ = ("x", "y", "z")


def _three(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{axis}" for axis in _XYZ)


#: Name of a table -> its layout. The arguments of `_table` are the type of the sections (minus
#: `_USER`), the maximum number of rows of a section, and the fields in order. Fields whose names
#: begin with "_" are not read.
TABLES: Final = {
    "device": _table(
        9, 64,
        "name:", "type:", "sm:", "id", "bus", "pci", "sms", "warps_per_sm", "lanes_per_warp",
        "registers", "predicates", "major", "minor", "instruction_bytes", "status",
    ),
    "context": _table(10, 1024, "id:", "shared:", "local:", "global:", "device", "tid"),
    "sm": _table(11, 1024, "id", "_", "exception", "has_error_pc", "error_pc:"),
    "grid": _table(
        12, 65536,
        "id:", "context:", "function:", "entry:", "module:", "parent:", "parameters:", "kind",
        "origin", "status", "registers", *_three("grid"), *_three("block"), "blocking", "tid",
        *_three("cluster"),
    ),
    "block": _table(
        13, 256,
        "grid:", *_three("index"), "_0", *_three("cluster_index"), "_1", *_three("cluster"),
    ),
    "warp": _table(
        14, 256,
        "error_pc:", "id", "valid", "active", "broken", "has_error_pc", "_0", "registers", "_1",
        "shared_bytes",
    ),
    "lane": _table(15, 32, "pc:", "offset:", "lane", *_three("thread"), "exception", "depth"),
    "bank": _table(21, 64, "address:", "bytes", "number"),
    "meta": _table(
        22, 16, "generator:", "driver", "driver_minor", "cuda", "cuda_minor", "flags", "timestamp"
    ),
}  # fmt: skip

# number of an exception (CUDBGException_t of cudadebugger.h) -> its name in reports
EXCEPTIONS: Final = {
    1: "illegal address",
    2: "stack overflow",
    3: "hardware stack overflow",
    4: "illegal instruction",
    5: "address out of range",
    6: "misaligned address",
    7: "invalid address space",
    8: "invalid program counter",
    9: "hardware stack overflow",
    10: "illegal address",
    11: "misaligned address",
    12: "assertion",
    13: "error in a system call",
    14: "illegal address",
    15: "atomic operation on memory that cannot migrate",
    16: "invalid atomic operation",
    17: "address out of range in another block of the cluster",
    18: "block of the cluster not present",
    19: "stack canary",
    20: "tensor memory access",
    21: "tensor memory leak",
    22: "call that needs a newer driver",
}


class Function(NamedTuple):
    """A function of a loaded cubin, with its machine code."""

    start: int  # address of the first instruction
    name: str  # mangled
    code: Rows  # u64 of shape (n, 2): low and high half of each 128-bit instruction
    image: Elf
    section: int  # index of the code's section in `image`

    def at(self, pc: int) -> tuple[int, int] | None:
        """Return the low and the high 64 bits of the instruction at an address."""
        # in a damaged file, the address may be inside an instruction or outside the code
        index, rest = divmod(pc - self.start, 16)
        if rest or not 0 <= index < len(self.code):
            return None
        low, high = self.code[index]
        return int(low), int(high)


class Kernel(NamedTuple):
    """A kernel, and the GPU that runs it."""

    mangled: str
    gpu: int | None  # number of the GPU; None if the file has only one GPU

    @property
    def name(self) -> str:
        """The C++ name without arguments, with the GPU's number if the dump has several GPUs."""
        short = short_name(self.mangled)
        return short if self.gpu is None else f"{short} on GPU {self.gpu}"


@dataclass(frozen=True, slots=True)
class Grid:
    """A launched kernel."""

    row: Rows
    device: int
    parameters: bytes
    parameter_address: int  # generic address of the first parameter; 0 if unknown

    def dims(self, name: str) -> tuple[int, int, int]:
        """Return a size of the launch, x first; `name` is "grid", "block" or "cluster"."""
        return three(self.row, name)


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block that was resident on an SM."""

    row: Rows
    sm: Rows
    grid: Grid | None
    shared: memoryview
    section: int  # index of the section with the SM's table of blocks
    number: int  # the block's row in this table

    @property
    def index(self) -> tuple[int, int, int]:
        """The block's blockIdx, x first."""
        return three(self.row, "index")


@dataclass(frozen=True, slots=True)
class Warp:
    """A warp of a block, with its threads and registers."""

    dump: Dump
    block: Block
    row: Rows
    lanes: Rows
    section: int  # index of the section that has `lanes`; 0 if the file has no such section
    uniform: Rows  # values of the uniform registers, u32

    @property
    def error_pc(self) -> int | None:
        """Address of the instruction that failed; None if no instruction failed."""
        return int(self.row["error_pc"]) if self.row["has_error_pc"] else None

    def groups(self) -> Iterator[tuple[int, Rows]]:
        """Yield each address at which the warp has threads, with their row numbers in `lanes`."""
        # bit n of `valid` is set if the thread of lane n has not exited
        pcs = self.lanes["pc"]
        live = (int(self.row["valid"]) >> self.lanes["lane"].astype(np.uint64) & 1).astype(bool)
        for pc in np.unique(pcs[live]):
            yield int(pc), np.flatnonzero(live & (pcs == pc))

    def registers(self, lane: int) -> Rows:
        """Return the registers of the thread at row `lane` of `lanes`."""
        return self.dump.words(REGISTERS, self.section, lane)


def three(row: Rows, name: str) -> tuple[int, int, int]:
    """Return the fields `name`_x, `name`_y and `name`_z of a row, x first."""
    x, y, z = (int(row[f"{name}_{axis}"]) for axis in _XYZ)
    return x, y, z


class Dump:
    """A GPU core dump; its parts are read on first use.

    Attributes
    ----------
    target : str
        The architecture of the GPU, such as "sm_90".
    notes : list of str
        The parts that could not be read, and the reasons.
    """

    devices: Rows

    def __init__(self, data: memoryview, name: str) -> None:
        self.elf: Elf = Elf(data, name)
        self.notes: list[str] = []
        if not self.elf.is_core:
            raise unreadable(f"{name} is a cubin")
        sections = self.elf.sections
        # (type of a section, section of its parent, row of its parent) -> index of the section. The
        # sections are added in reverse order, so if several sections have the same key, the first
        # section is kept.
        own = np.flatnonzero(sections["type"] >= _USER)[::-1]
        keys = (sections[name][own].tolist() for name in ("type", "link", "info"))
        self._children = dict(zip(zip(*keys, strict=True), own.tolist(), strict=True))
        self._flows: dict[int, Any] = {}
        self._lines: dict[int, LineTable] = {}
        self._warps_read = 0
        tables = self.elf.of_type(TABLES["device"].section)
        if not len(tables):
            raise unreadable(f"{name} has no table of devices")
        self._device_table = int(tables[0])
        self.devices = self.rows("device", self._device_table)
        if not len(self.devices):
            raise unreadable(f"{name} has an empty table of devices")
        # the first GPU that has SMs in the file determines the target
        used = {d for d, _ in enumerate(self.devices) if self._child("sm", self._device_table, d)}
        first = self.devices[min(used, default=0)]
        self.major: int = int(first["major"])
        self.target: str = f"sm_{self.major}{int(first['minor'])}"
        if self.major < 9:
            raise tma.TmaUnsupportedError(
                f"{name} is a core dump of {self.target}: GPUs below compute capability 9.0 have "
                "no TMA; cuda-gdb reads it (target cudacore FILE)"
            )

    @classmethod
    def open(cls, path: Path, name: str = "") -> Dump:
        """Map a file into memory and return its dump; messages use `name` as the file's name."""
        name = name or str(path)
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise unreadable(f"{name} is empty")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(memoryview(mapped), name)

    # -- tables ----------------------------------------------------------------------------------

    def rows(self, table: str, section: int) -> Rows:
        """Return the rows of a section with the layout `TABLES[table]`; missing fields are 0."""
        kind, data = TABLES[table].row, self.elf.content(section)
        # sh_entsize of the table "meta" is 0, so the size of its row is taken from `TABLES`
        entry_bytes = int(self.elf.sections["entry_bytes"][section]) or kind.itemsize
        ends = (offset + one.itemsize for one, offset, *_ in (kind.fields or {}).values())
        # the file may have more or fewer fields than `TABLES`, so read the fields that both have
        whole = [end for end in ends if end <= entry_bytes]
        if not whole or entry_bytes > _MOST_ENTRY_BYTES:
            raise unreadable(f"{self.elf.name}: a row of its {table} table has {entry_bytes} bytes")
        count = len(data) // entry_bytes
        if count > TABLES[table].most_rows:
            raise unreadable(f"{self.elf.name} has a {table} table of {count:,} rows")
        width = max(whole)
        rows = np.zeros((count, kind.itemsize), np.uint8)
        raw = np.frombuffer(data, np.uint8, count * entry_bytes)
        rows[:, :width] = raw.reshape(count, entry_bytes)[:, :width]
        return rows.view(kind)[:, 0]

    def _child(self, table: str, parent: int, row: int) -> int | None:
        return self._children.get((TABLES[table].section, parent, row))

    def _below(self, table: str, parent: int, row: int) -> Iterator[tuple[int, int, Rows]]:
        """Yield (section, row number, fields) for each row of a table with the given parent."""
        section = self._child(table, parent, row)
        if section is not None:
            for number, found in enumerate(self.rows(table, section)):
                yield section, number, found

    def part(self, kind: int, parent: int, row: int) -> memoryview:
        """Return the bytes of the section with this type and parent; empty if the file lacks it."""
        section = self._children.get((kind, parent, row))
        return self.elf.content(section) if section is not None else self.elf.data[:0]

    def words(self, kind: int, parent: int, row: int) -> Rows:
        """Return the 32-bit words of the section that `part` returns."""
        data = self.part(kind, parent, row)
        return np.frombuffer(data, "<u4", len(data) // 4)

    @cached_property
    def grids(self) -> dict[tuple[int, int], Grid]:
        """(row of the device, id of the grid) -> the grid."""
        found = {}
        for device, _ in enumerate(self.devices):
            for section, number, row in self._below("grid", self._device_table, device):
                # the field `parameters` is the offset of the launch's parameters in constant bank 0
                banks = [bank for _, _, bank in self._below("bank", section, number)]
                bank = next((int(b["address"]) for b in banks if b["number"] == 0), 0)
                first = int(row["parameters"])
                parameters = bytes(self.part(PARAMETERS, section, number)[:_MOST_PARAMETER_BYTES])
                grid = Grid(row, device, parameters, bank + first if bank else 0)
                found[device, int(row["id"])] = grid
        return found

    def kernel(self, function: Function | None, grid: Grid | None) -> Kernel:
        """Return a `Kernel` with the name of a function and the GPU of a grid."""
        name = function.name if function is not None else "unknown code"
        if grid is None or len(self.devices) == 1:
            return Kernel(name, None)
        return Kernel(name, int(self.devices[grid.device]["id"]))

    def function_of(self, grid: Grid | None) -> Function | None:
        """Return the kernel function that a grid runs."""
        return self.function_at(int(grid.row["entry"])) if grid is not None else None

    def kernel_of(self, grid: Grid | None) -> Kernel:
        """Return a grid's kernel."""
        return self.kernel(self.function_of(grid), grid)

    @cached_property
    def windows(self) -> Rows | None:
        """Row of the first context, which has the start addresses of shared and local memory."""
        found = (
            row
            for device, _ in enumerate(self.devices)
            for _, _, row in self._below("context", self._device_table, device)
        )
        return next(found, None)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Every thread block that was resident on an SM."""
        return tuple(
            Block(
                row, sm, self.grids.get((device, int(row["grid"]))),
                self.part(SHARED, section, c), section, c,
            )
            for device, _ in enumerate(self.devices)
            for sm_table, s, sm in self._below("sm", self._device_table, device)
            for section, c, row in self._below("block", sm_table, s)
        )  # fmt: skip

    def warps(self, block: Block) -> Iterator[Warp]:
        """Yield the warps of a block, in the order of the file."""
        for section, w, row in self._below("warp", block.section, block.number):
            self._warps_read += 1
            if self._warps_read > _MOST_WARPS:
                raise unreadable(f"{self.elf.name} has more warps than any GPU")
            lanes = self._child("lane", section, w)
            rows = self.rows("lane", lanes) if lanes else np.zeros(0, TABLES["lane"].row)
            uniform = self.words(UNIFORM, section, w)
            yield Warp(self, block, row, rows, lanes or 0, uniform)

    @cached_property
    def sms(self) -> tuple[Rows, ...]:
        """Rows of all SMs; a row has the SM's exception even if the warps of the SM have ended."""
        devices = range(len(self.devices))
        return tuple(sm for d in devices for _, _, sm in self._below("sm", self._device_table, d))

    # -- memory ----------------------------------------------------------------------------------

    @cached_property
    def has_global_memory(self) -> bool:
        """Whether the dump was made with global memory."""
        # a dump that was made without global memory may still have some sections of this type, so
        # the flag is tested, too
        skipped = any(
            int(row["flags"]) & _SKIP_GLOBAL
            for section in self.elf.of_type(TABLES["meta"].section)
            for row in self.rows("meta", int(section))
        )
        return not skipped and bool(self.elf.sections["size"][self.elf.of_type(GLOBAL)].any())

    def global_memory(self, address: int, size: int) -> bytes | None:
        """Return bytes of global memory, or None if the file lacks these bytes."""
        kinds = self.elf.sections["type"]
        for n in np.flatnonzero((kinds == GLOBAL) | (kinds == MANAGED)):
            start = address - int(self.elf.sections["address"][n])
            if 0 <= start <= int(self.elf.sections["size"][n]) - size:
                return bytes(self.elf.content(int(n))[start : start + size])
        return None

    # -- code ------------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> list[Function]:
        """The functions of all loaded cubins, sorted by address."""
        found = []
        for n in self.elf.of_type(IMAGE):
            data = self.elf.content(int(n))
            # a cubin's section is empty if the dump was made without the code of this cubin
            if not len(data):
                continue
            try:
                image = Elf(data, "a loaded cubin")
                names = image.by_name
            except tma.TmaPreconditionError as error:
                self.notes.append(error.violations[0].found)
                continue
            for name, section in names.items():
                if name.startswith(".text.") and section:
                    data = image.content(section)
                    code = np.frombuffer(data, "<u8", len(data) // 16 * 2).reshape(-1, 2)
                    start = int(image.sections["address"][section])
                    found.append(Function(start, name[6:], code, image, section))
        return sorted(found, key=lambda function: function.start)

    def function_at(self, pc: int) -> Function | None:
        """Return the function that contains an address."""
        place = bisect.bisect(self.functions, pc, key=lambda function: function.start) - 1
        if place < 0:
            return None
        function = self.functions[place]
        return function if function.at(pc) is not None else None

    def lines_at(self, pc: int) -> tuple[str, ...]:
        """Return the lines ``file:line`` of an address: the innermost line, then its call sites."""
        function = self.function_at(pc)
        if function is None:
            return ()
        # the id of the image stays unique, because `functions` keeps the image alive
        key = id(function.image)
        if key not in self._lines:
            self._lines[key] = LineTable(function.image)
        return self._lines[key].at(pc)
