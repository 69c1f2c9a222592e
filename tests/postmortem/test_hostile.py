"""Every file has a result or one clear refusal: truncated, damaged, random or foreign files."""

from __future__ import annotations

import random
import struct
import sys
from contextlib import suppress

import pytest

import tma_dlpack as tma
from tma_dlpack.debug.postmortem import read
from tma_dlpack.debug.postmortem.dump import Dump


def refused(path) -> str:
    with pytest.raises(tma.TmaError) as error:
        tma.postmortem(path)
    return str(error.value).partition("\n")[0]


def written(tmp_path, content: bytes):
    path = tmp_path / "some.core"
    path.write_bytes(content)
    return path


ELF = b"\x7fELF\x02\x01\x01" + bytes(9)


def header(kind: int, machine: int, sections: int = 0, count: int = 0) -> bytes:
    numbers = (kind, machine, 1, 0, 0, sections, 0, 64, 0, 0, 64, count, 0)
    return ELF + struct.pack("<HHIQQQIHHHHHH", *numbers)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello, I am a log of a program", "is not an ELF file"),
        (b"\x7fELF", "is cut off or damaged"),
        (b"\x7fELF\x01\x01" + bytes(100), "is not a 64-bit little-endian ELF file"),
        (header(4, 62) + bytes(100), "is a core dump of x86-64"),
        (header(2, 183) + bytes(100), "is a file of AArch64"),
        (header(4, 190) + bytes(100), "has no sections"),
        (header(4, 190, 1 << 60, 4), "is cut off or damaged"),
        (header(4, 190, 64, 60000) + bytes(640), "is cut off or damaged: it has 704 bytes"),
        (header(4, 190, 64, 1) + bytes(64), "has no table of devices"),
    ],
)
def test_what_is_no_dump_is_refused_in_a_sentence(tmp_path, content, said):
    assert said in refused(written(tmp_path, content))


def test_a_cubin_is_refused_as_one(tmp_path, dumps):
    dump = Dump.open(dumps / "fault_rank.core")
    cubin = bytes(dump.functions[-1].image.data)
    assert refused(written(tmp_path, cubin)).endswith(
        "is a cubin; it must be a whole GPU core dump"
    )


def test_a_gpu_without_tma_is_refused_by_name(tmp_path, dumps):
    whole = bytearray((dumps / "fault_rank.core").read_bytes())
    dump = Dump(memoryview(bytes(whole)), "x")
    place = int(dump.elf.sections["offset"][dump._device_table])
    struct.pack_into("<II", whole, place + 56, 8, 6)
    said = refused(written(tmp_path, bytes(whole)))
    assert "is a core dump of sm_86: GPUs below compute capability 9.0 have no TMA" in said


def test_no_path_and_no_file():
    with pytest.raises(tma.TmaPreconditionError, match="path is 3"):
        tma.postmortem(3)
    with pytest.raises(FileNotFoundError):
        tma.postmortem("no such file")


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.9, 0.99, 0.9999])
def test_a_dump_that_is_cut_off_is_refused_as_that(tmp_path, dumps, share):
    whole = (dumps / "hang_bytes.core").read_bytes()
    said = refused(written(tmp_path, whole[: int(len(whole) * share)]))
    assert "is cut off or damaged" in said


def survives(content: bytes) -> None:
    """Read damaged bytes; the result has text, HTML and JSON, or a TmaError is raised."""
    with suppress(tma.TmaError):
        found = read(Dump(memoryview(content), "damaged"))
        assert all((str(found), found._repr_html_(), found.to_json()))


@pytest.mark.parametrize(
    "name", ["fault_rank", "hang_ring_bytes", "fault_shared", "hang_multicast"]
)
def test_damaged_bytes_never_raise_anything_else(dumps, name):
    """Bytes of the headers, tables and code are overwritten, in 60 files each."""
    rng = random.Random(name)
    whole = (dumps / f"{name}.core").read_bytes()
    headers = Dump(memoryview(whole), name).elf.sections
    table = struct.unpack_from("<Q", whole, 40)[0]
    tables = [n for n in range(len(headers)) if 0x80000009 <= headers["type"][n] <= 0x80000016]
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 3, 30))):
            place = rng.choice(
                (
                    rng.randrange(64),
                    table + rng.randrange(64 * len(headers)),
                    int(headers["offset"][rng.choice(tables)]) + rng.randrange(64),
                    rng.randrange(len(whole)),
                )
            )
            damaged[min(place, len(whole) - 1)] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
        survives(bytes(damaged))


def test_random_bytes_after_a_header_never_raise_anything_else():
    rng = random.Random(1)
    for _ in range(300):
        body = rng.randbytes(rng.randrange(64, 4000))
        survives(header(4, 190, rng.choice((64, 128, 640)), rng.randrange(40)) + body)


def test_tables_without_end_are_refused(dumps):
    whole = bytearray((dumps / "hang_bytes.core").read_bytes())
    elf = Dump(memoryview(bytes(whole)), "x").elf
    table = struct.unpack_from("<Q", whole, 40)[0]
    lanes = next(n for n in range(len(elf.sections)) if elf.sections["type"][n] == 0x8000000F)
    struct.pack_into("<QQ", whole, table + 64 * lanes + 24, 0, len(whole))  # the whole file
    with pytest.raises(tma.TmaError, match="has a lane table of"):
        read(Dump(memoryview(bytes(whole)), "x"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_within_the_size_of_the_file(whole_card):
    import tracemalloc

    tracemalloc.start()
    tma.postmortem(whole_card)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * whole_card.stat().st_size
