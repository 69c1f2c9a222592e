"""Remove the parts of a dump that `postmortem` does not read, for a small example file."""

from __future__ import annotations

import struct

from tma_dlpack.debug.postmortem.dump import IMAGE, Dump

KEPT_TABLES = range(0x80000009, 0x80000017)
MEMORY = (0x80000003, 0x80000004, 0x80000005, 0x80000012, 0x80000013)


def slim(content: bytes) -> bytes:
    """Return the dump with the same sections; the driver's own cubins and others are empty."""
    dump = Dump(memoryview(content), "dump")
    elf = dump.elf
    names = struct.unpack_from("<H", content, 62)[0]
    kept = {names, *_images(dump)} | {
        n
        for n, kind in enumerate(elf.sections["type"].tolist())
        if kind in KEPT_TABLES or kind in MEMORY
    }
    body = bytearray(content[:64])
    headers = elf.sections.copy()
    for n in range(len(headers)):
        data = bytes(elf.content(n)) if n in kept else b""
        headers["offset"][n], headers["size"][n] = len(body), len(data)
        body += data
    headers["offset"][0] = headers["size"][0] = 0
    struct.pack_into("<Q", body, 40, len(body))
    return bytes(body) + headers.tobytes()


def _images(dump: Dump) -> set[int]:
    """Return the sections of the cubins of the kernels that were running."""
    entries = {int(grid.row["entry"]) for grid in dump.grids.values()}
    found = {bytes(f.image.data) for pc in entries if (f := dump.function_at(pc)) is not None}
    return {int(n) for n in dump.elf.of_type(IMAGE) if bytes(dump.elf.content(int(n))) in found}
