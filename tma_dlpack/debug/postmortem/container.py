"""Reader of the ELF files of CUDA, which are core dumps and cubins, and of a cubin's line table.

The section headers and the contents of sections are views of the file's bytes, without copies. A
file may be damaged or hostile, so every offset, size, link and name is checked before it is used. A
dump of a whole GPU often has more than 65,280 sections. ELF then stores the number of sections in
section header 0.
"""

from __future__ import annotations

import bisect
import struct
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tma_dlpack.debug.core import refusals, tma
from tma_dlpack.debug.postmortem.sass import signed

# values of e_machine, e_type and sh_type (ELF specification; EM_CUDA is from the Linux elf.h)
EM_CUDA, ET_CORE, SHT_NOBITS = 190, 4, 8
# Elf64_Ehdr without e_ident: e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, ...
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_HEADER_BYTES, _EXTENDED = 64, 0xFFFF
# Elf64_Shdr, 64 bytes
_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8")),
        *(("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4")),
        *(("align", "<u8"), ("entry_bytes", "<u8")),
    ]
)
_MOST_NAME_BYTES = 1 << 14
# a dump of a whole GPU has 300,000 sections, because it has a section of registers per thread
_MOST_SECTIONS = 1 << 22
_MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}


def unreadable(found: str) -> tma.TmaPreconditionError:
    """Return the error for a file that is not a complete GPU core dump; `found` is the reason."""
    return refusals.REFUSALS["FILE_CORE_DUMP"].error("path", found)


class Elf:
    """A 64-bit little-endian ELF file of CUDA.

    Attributes
    ----------
    sections : structured array
        The section headers.
    is_core : bool
        True for a core dump, False for a cubin.
    """

    sections: npt.NDArray[np.void]

    def __init__(self, data: memoryview, name: str) -> None:
        self.data: memoryview = data
        self.name: str = name
        if not len(data):
            raise unreadable(f"{name} is empty")
        if bytes(data[:4]) != b"\x7fELF":
            raise unreadable(f"{name} is not an ELF file")
        if len(data) < _HEADER_BYTES:
            raise self._cut(_HEADER_BYTES)
        # EI_CLASS 2 is 64-bit, EI_DATA 1 is little-endian
        if bytes(data[4:6]) != b"\x02\x01":
            raise unreadable(f"{name} is not a 64-bit little-endian ELF file")
        kind, machine, _, _, _, table, _, _, _, _, entry_bytes, count, names = _HEADER.unpack_from(
            data
        )
        self.is_core: bool = kind == ET_CORE
        if machine != EM_CUDA:
            of = _MACHINES.get(machine, f"machine {machine}")
            raise unreadable(f"{name} is {'a core dump' if self.is_core else 'a file'} of {of}")
        if entry_bytes != _SECTION.itemsize or not table:
            raise unreadable(f"{name} has no sections")
        if table + _SECTION.itemsize > len(data):
            raise self._cut(table + _SECTION.itemsize)
        # extended numbering of ELF: if e_shnum is 0, sh_size of section 0 is the number of
        # sections; if e_shstrndx is 0xFFFF, sh_link of section 0 is the index of the section with
        # the names
        first = np.frombuffer(data, _SECTION, 1, table)[0]
        count = count or int(first["size"])
        if count > _MOST_SECTIONS:
            raise unreadable(f"{name} has {count:,} sections")
        if table + count * _SECTION.itemsize > len(data):
            raise self._cut(table + count * _SECTION.itemsize)
        self.sections = np.frombuffer(data, _SECTION, count, table)
        names = int(first["link"]) if names == _EXTENDED else names
        # the sum of two u64 may wrap; the end is then less than the offset
        ends = self.sections["offset"] + self.sections["size"]
        there = self.sections["type"] != SHT_NOBITS
        bad = there & ((ends > len(data)) | (ends < self.sections["offset"]))
        if bad.any():
            raise self._cut(int(ends[bad].max()))
        if names >= count:
            raise unreadable(f"{name} has no section names (index {names} of {count})")
        self._names = self.content(names)

    def _cut(self, needed: int) -> tma.TmaPreconditionError:
        found = f"{self.name} is cut off or damaged: it has {len(self.data):,} bytes and names more"
        return unreadable(f"{found} ({needed:,})" if needed < 1 << 48 else found)

    def content(self, index: int) -> memoryview:
        """Return the bytes of a section; a section of type SHT_NOBITS has no bytes in the file."""
        row = self.sections[index]
        if row["type"] == SHT_NOBITS:
            return self.data[:0]
        start = int(row["offset"])
        return self.data[start : start + int(row["size"])]

    def of_type(self, kind: int) -> npt.NDArray[np.intp]:
        """Return the indices of the sections of a type."""
        return np.flatnonzero(self.sections["type"] == kind)

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Section name -> index; use it only for cubins, because a dump has too many sections."""
        found: dict[str, int] = {}
        # In a hostile file, names may overlap, which would make this loop quadratic. So the sum of
        # the names' lengths may be at most twice the size of the file.
        left = 2 * len(self.data)
        for index, start in enumerate(self.sections["name"].tolist()):
            name = bytes(self._names[start : start + _MOST_NAME_BYTES]).partition(b"\0")[0]
            left -= len(name)
            if left < 0:
                raise unreadable(f"{self.name} has section names without end")
            found[name.decode("utf-8", "replace")] = index
        return found


# -- source lines ---------------------------------------------------------------------------------

# extended opcodes of line programs (DWARF 4, section 6.2.5); 0x90 is an extension by NVIDIA (see
# `LineTable`)
_SET_ADDRESS, _END_SEQUENCE, _DEFINE_FILE, _INLINED_CALL = 2, 1, 3, 0x90
# standard opcodes
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_MOST_ROWS = 1 << 20
_MOST_CALLS = 16


class Row(NamedTuple):
    """A row of a line table: the source line of the code that begins at the row's address."""

    file: str
    line: int
    # if this line was inlined at a call, number (from 1) of the row of this call; otherwise 0
    caller: int


class _Bytes:
    """A reader of a line program's bytes; IndexError or ValueError means that the bytes end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, size: int) -> int:
        piece = self.data[self.at : self.at + size]
        if len(piece) < size:
            raise IndexError
        self.at += size
        return int.from_bytes(piece, "little")

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece.decode("utf-8", "replace")

    def leb(self, signed: bool = False) -> int:
        # LEB128 stores 7 bits of the number in each byte, the lowest bits in the first byte. Bit 7
        # is set if another byte follows. In a signed number, bit 6 of the last byte is the sign.
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def file(self, folders: list[str]) -> str:
        """Read an entry of the table of source files, and return the path of the file."""
        # an entry has a name, the index of a folder, a time and a size; the last two are not needed
        name, folder, *_ = self.text(), self.leb(), self.leb(), self.leb()
        inside = folders[folder] if folder < len(folders) else ""
        return f"{inside}/{name}" if inside and not name.startswith("/") else name


class LineTable:
    """The source lines of a cubin: its `.debug_line`, which ``nvcc -lineinfo`` and Triton write.

    An address in inlined code has a line in the inlined function, and a line in each caller. To
    find the callers, NVIDIA adds an extended opcode 0x90, whose operand is a row number. This row
    is a call, and the code of the rows after the opcode was inlined at this call.
    """

    def __init__(self, image: Elf) -> None:
        self.units: list[_Unit] = []
        section = image.by_name.get(".debug_line")
        # the section is a sequence of units, which are line programs; the first 4 bytes of a unit
        # are the number of bytes that follow
        data = _Bytes(bytes(image.content(section)) if section is not None else b"")
        while data.at + 4 < len(data.data):
            size = data.number(4)
            self.units.append(_Unit(_Bytes(data.data[data.at : data.at + size])))
            data.at += size

    def at(self, address: int) -> tuple[str, ...]:
        """Return the lines ``file:line`` of an address: the innermost line, then its call sites.

        The tuple is empty if the cubin has no line table, or no row for the address.
        """
        return next(filter(None, (unit.at(address) for unit in self.units)), ())


class _Unit:
    """A line program and its rows; `at` finds the rows of an address."""

    def __init__(self, program: _Bytes) -> None:
        self.rows: list[Row] = []
        # address -> number (from 1) of the row at this address; if there are several rows, the last
        # row is used, because it has the innermost line
        self.numbers: dict[int, int] = {}
        # address after the last instruction of each sequence
        self.ends: list[int] = []
        # if the program is damaged, the rows before the damage are kept
        with suppress(IndexError, ValueError):
            self._run(program)
        # the address at the end of a sequence gets row number 0, which means no row, unless another
        # sequence begins at this address
        self.numbers = {**dict.fromkeys(self.ends, 0), **self.numbers}
        self.starts = sorted(self.numbers)

    def at(self, address: int) -> tuple[str, ...]:
        """Return the lines ``file:line`` of an address: the innermost line, then its call sites."""
        place = bisect.bisect(self.starts, address) - 1
        number = self.numbers[self.starts[place]] if place >= 0 else 0
        found: list[str] = []
        while 0 < number <= len(self.rows) and len(found) < _MOST_CALLS:
            row = self.rows[number - 1]
            found.append(f"{row.file}:{row.line}")
            # The row of a call comes before the rows of the inlined code. In a damaged file, this
            # check prevents an endless loop.
            number = row.caller if row.caller < number else 0
        return tuple(dict.fromkeys(found))

    def _run(self, unit: _Bytes) -> None:
        """Run a line program (DWARF 2 to 4, section 6.2) and store its rows."""
        version, header_bytes = unit.number(2), unit.number(4)
        program = unit.at + header_bytes
        if not 2 <= version <= 4:
            return
        step = unit.number(1)
        # skip default_is_stmt and, in DWARF 4, maximum_operations_per_instruction
        unit.at += 1 if version < 4 else 2
        # read line_base, line_range and opcode_base, then the number of operands of each standard
        # opcode
        base, span, opcodes = signed(unit.number(1), 8), unit.number(1), unit.number(1)
        sizes = [unit.number(1) for _ in range(opcodes - 1)]
        # the numbers of folders and files begin at 1; folder 0 is the folder of the compilation
        folders, files = [""], [""]
        while name := unit.text():
            folders.append(name)
        while unit.data[unit.at : unit.at + 1] != b"\0":
            files.append(unit.file(folders))
        unit.at = program
        address, file, line, caller = 0, 1, 1, 0

        def add() -> None:
            if len(self.rows) >= _MOST_ROWS:
                raise ValueError
            self.rows.append(Row(files[file] if file < len(files) else "?", line, caller))
            self.numbers[address] = len(self.rows)

        while unit.at < len(unit.data):
            code = unit.number(1)
            # a special opcode advances both address and line, and adds a row
            if code >= opcodes:
                steps, more = divmod(code - opcodes, span or 1)
                address, line = address + steps * step, line + base + more
                add()
            elif code == 0:
                size = unit.leb()
                end = unit.at + size
                kind = unit.number(1)
                if kind == _SET_ADDRESS:
                    address = unit.number(size - 1)
                elif kind == _INLINED_CALL:
                    caller = unit.leb()
                elif kind == _DEFINE_FILE:
                    files.append(unit.file(folders))
                elif kind == _END_SEQUENCE:
                    self.ends.append(address)
                    address, file, line, caller = 0, 1, 1, 0
                # skip the operands that were not read, and the operands of unknown opcodes
                unit.at = end
            elif code == _COPY:
                add()
            elif code == _ADVANCE_PC:
                address += unit.leb() * step
            elif code == _ADVANCE_LINE:
                line += unit.leb(signed=True)
            elif code == _SET_FILE:
                file = unit.leb()
            # advance the address as special opcode 255 does
            elif code == _CONST_ADD_PC:
                address += (255 - opcodes) // (span or 1) * step
            elif code == _FIXED_ADVANCE_PC:
                address += unit.number(2)
            # skip the operands of every other standard opcode
            else:
                for _ in range(sizes[code - 1]):
                    unit.leb()
