"""ELF files, by NumPy over the file's bytes: the dump, and the cubins in it.

A file comes from anywhere: every offset, size, link and name is checked before it is used, and
nothing is copied that need not be. Section counts beyond 65,280 (usual in a dump of a whole GPU)
stand in section header 0, as ELF says.
"""

from __future__ import annotations

import struct
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.refusals import REFUSALS

EM_CUDA, ET_CORE, SHT_NOBITS = 190, 4, 8
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_HEADER_BYTES, _EXTENDED = 64, 0xFFFF
_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8")),
        *(("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4")),
        *(("align", "<u8"), ("entry_bytes", "<u8")),
    ]
)
_MOST_NAME_BYTES = 1 << 14
_MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}


def unreadable(found: str) -> TmaPreconditionError:
    """Return the refusal of a file."""
    return REFUSALS["FILE_CORE_DUMP"].error("path", found)


class Elf:
    """A 64-bit little-endian ELF file of CUDA.

    Attributes
    ----------
    sections : structured array
        The section headers.
    is_core : bool
        Whether it is a core dump, and not a cubin.
    """

    def __init__(self, data: memoryview, name: str) -> None:
        self.data, self.name = data, name
        if not len(data):
            raise unreadable(f"{name} is empty")
        if bytes(data[:4]) != b"\x7fELF":
            raise unreadable(f"{name} is not an ELF file")
        if len(data) < _HEADER_BYTES:
            raise self._cut(_HEADER_BYTES)
        if bytes(data[4:6]) != b"\x02\x01":
            raise unreadable(f"{name} is not a 64-bit little-endian ELF file")
        kind, machine, _, _, _, table, _, _, _, _, entry_bytes, count, names = _HEADER.unpack_from(
            data
        )
        self.is_core = kind == ET_CORE
        if machine != EM_CUDA:
            of = _MACHINES.get(machine, f"machine {machine}")
            raise unreadable(f"{name} is {'a core dump' if self.is_core else 'a file'} of {of}")
        if entry_bytes != _SECTION.itemsize or not table:
            raise unreadable(f"{name} has no sections")
        if table + _SECTION.itemsize > len(data):
            raise self._cut(table + _SECTION.itemsize)
        first = np.frombuffer(data, _SECTION, 1, table)[0]
        count = count or int(first["size"])
        if table + count * _SECTION.itemsize > len(data):
            raise self._cut(table + count * _SECTION.itemsize)
        self.sections = np.frombuffer(data, _SECTION, count, table)
        names = int(first["link"]) if names == _EXTENDED else names
        ends = self.sections["offset"] + self.sections["size"]  # may wrap: then it is below offset
        there = self.sections["type"] != SHT_NOBITS
        bad = there & ((ends > len(data)) | (ends < self.sections["offset"]))
        if bad.any():
            raise self._cut(int(ends[bad].max()))
        if names >= count:
            raise unreadable(f"{name} has no section names (index {names} of {count})")
        self._names = self.content(names)

    def _cut(self, needed: int) -> TmaPreconditionError:
        found = f"{self.name} is cut off or damaged: it has {len(self.data):,} bytes and names more"
        return unreadable(f"{found} ({needed:,})" if needed < 1 << 48 else found)

    def content(self, index: int) -> memoryview:
        """Return the bytes of a section."""
        row = self.sections[index]
        if row["type"] == SHT_NOBITS:
            return self.data[:0]
        start = int(row["offset"])
        return self.data[start : start + int(row["size"])]

    def section_name(self, index: int) -> str:
        """Return the name of a section, "" if it points nowhere."""
        return self.text_at(self._names, int(self.sections["name"][index]))

    @staticmethod
    def text_at(table: memoryview, start: int) -> str:
        """Return the string that begins at a place of a string table."""
        piece = bytes(table[start : start + _MOST_NAME_BYTES])
        return piece.partition(b"\0")[0].decode("utf-8", "replace")

    @property
    def strings(self) -> memoryview:
        """The table of section names; a dump keeps its other strings there too."""
        return self._names

    def of_type(self, kind: int) -> npt.NDArray[np.intp]:
        """Return the indices of the sections of a type."""
        return np.flatnonzero(self.sections["type"] == kind)

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Section name -> index, of a cubin (a dump has too many)."""
        found: dict[str, int] = {}
        left = 2 * len(self.data)  # names may overlap: together they are not longer than this
        for index in range(len(self.sections)):
            name = self.section_name(index)
            left -= len(name)
            if left < 0:
                raise unreadable(f"{self.name} has section names without end")
            found[name] = index
        return found
