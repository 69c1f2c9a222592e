"""Source lines of machine code: the `.debug_line` that ``nvcc -lineinfo`` and Triton leave.

A row of NVIDIA's line tables may be inlined: opcode 0x90 of the line program names the row of the
call, so that the line of a helper and of its callers are both known for one address.
"""

from __future__ import annotations

import bisect
from contextlib import suppress
from typing import NamedTuple

from tma_dlpack.debug.postmortem.container import Elf

_SET_ADDRESS, _END_SEQUENCE, _DEFINE_FILE, _INLINED_CALL = 2, 1, 3, 0x90  # extended opcodes
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN = 1, 2, 3, 4, 5
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_MOST_ROWS = 1 << 20
_MOST_CALLS = 16


class Row(NamedTuple):
    """One row: code from `address` on is of this line."""

    address: int
    file: str
    line: int
    caller: int  # number of the row of the call, 0 for none


class _Bytes:
    """A line program's bytes, read one after the other; past the end IndexError is raised."""

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
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value


class LineTable:
    """The line programs of a cubin."""

    def __init__(self, image: Elf) -> None:
        self.units: list[_Unit] = []
        section = image.by_name.get(".debug_line")
        data = _Bytes(bytes(image.content(section)) if section is not None else b"")
        while data.at + 4 < len(data.data):
            size = data.number(4)
            unit = _Bytes(data.data[data.at : data.at + size])
            data.at += size
            rows: list[Row] = []
            ends: list[int] = []
            with suppress(IndexError, ValueError):  # damaged: what was read before stands
                _run(unit, rows, ends)
            self.units.append(_Unit(rows, ends))

    def at(self, address: int) -> tuple[str, ...]:
        """Return ``file:line`` of an address, the innermost first, then its callers.

        Empty without a line table, or where it has no row for the address.
        """
        for unit in self.units:
            found = unit.at(address)
            if found:
                return found
        return ()


class _Unit:
    """The rows of one line program, by address."""

    def __init__(self, rows: list[Row], ends: list[int]) -> None:
        self.rows = rows
        last = {row.address: n for n, row in enumerate(rows, 1)}  # of several, the innermost
        self.numbers = {**dict.fromkeys(ends, 0), **last}
        self.starts = sorted(self.numbers)

    def at(self, address: int) -> tuple[str, ...]:
        """Return ``file:line`` of an address and of its callers."""
        place = bisect.bisect(self.starts, address) - 1
        number = self.numbers[self.starts[place]] if place >= 0 else 0
        found: list[str] = []
        while 0 < number <= len(self.rows) and len(found) < _MOST_CALLS:
            row = self.rows[number - 1]
            found.append(f"{row.file}:{row.line}")
            number = row.caller if row.caller < number else 0
        return tuple(dict.fromkeys(found))


def _run(unit: _Bytes, rows: list[Row], ends: list[int]) -> None:
    """Run a line program (DWARF 2 to 4)."""
    version = unit.number(2)
    header_bytes = unit.number(4)
    program = unit.at + header_bytes
    if not 2 <= version <= 4:
        return
    step = unit.number(1)
    unit.at += 1 if version < 4 else 2  # maximum operations, default_is_stmt
    base, span, opcodes = unit.number(1), unit.number(1), unit.number(1)
    base -= 256 if base > 127 else 0
    sizes = [unit.number(1) for _ in range(opcodes - 1)]
    folders = [""]
    while name := unit.text():
        folders.append(name)
    files = [""]
    while name := unit.text():
        files.append(_file(folders, name, unit))
    unit.at = program
    address, file, line, caller = 0, 1, 1, 0

    def add() -> None:
        if len(rows) >= _MOST_ROWS:
            raise ValueError
        rows.append(Row(address, files[file] if file < len(files) else "?", line, caller))

    while unit.at < len(unit.data):
        code = unit.number(1)
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
                files.append(_file(folders, unit.text(), unit))
            elif kind == _END_SEQUENCE:
                add()
                rows.pop()
                ends.append(address)
                address, file, line, caller = 0, 1, 1, 0
            unit.at = end
        elif code == _COPY:
            add()
        elif code == _ADVANCE_PC:
            address += unit.leb() * step
        elif code == _ADVANCE_LINE:
            line += unit.leb(signed=True)
        elif code == _SET_FILE:
            file = unit.leb()
        elif code == _CONST_ADD_PC:
            address += (255 - opcodes) // (span or 1) * step
        elif code == _FIXED_ADVANCE_PC:
            address += unit.number(2)
        else:
            for _ in range(sizes[code - 1]):
                unit.leb()


def _file(folders: list[str], name: str, unit: _Bytes) -> str:
    folder = unit.leb()
    unit.leb(), unit.leb()  # time, bytes
    inside = folders[folder] if folder < len(folders) else ""
    return f"{inside}/{name}" if inside and not name.startswith("/") else name
