"""Dumps of a map, as debuggers, xxd and C sources print them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack.debug import foreign
from tma_dlpack.debug.foreign import parse_dump

NUMBERED = bytes(range(128))


def words(data, code):
    return struct.unpack(f"<{128 // struct.calcsize(code)}{code}", data)


def gdb(data, code, a_line, label="0x7ffe{:04x}:"):
    """Return the output of gdb's command x: a label, then words separated by tabs."""
    digits, size = struct.calcsize(code) * 2, struct.calcsize(code)
    printed = [f"0x{word:0{digits}x}" for word in words(data, code)]
    return "\n".join(
        label.format(n * size, n * size) + "\t" + "\t".join(printed[n : n + a_line])
        for n in range(0, len(printed), a_line)
    )


def xxd(data, group):
    lines = []
    for n in range(0, len(data), 16):
        line = data[n : n + 16]
        shown = " ".join(line[k : k + group].hex() for k in range(0, 16, group))
        said = "".join(chr(b) if 32 <= b < 127 else "." for b in line)
        lines.append(f"{n:08x}: {shown}  {said}")
    return "\n".join(lines)


FORMS = {
    "x/32xw": lambda d: gdb(d, "I", 4),
    "x/16xg": lambda d: gdb(d, "Q", 2),
    "x/64xh": lambda d: gdb(d, "H", 8),
    "x/128xb": lambda d: gdb(d, "B", 8),
    "x/32xw of a symbol": lambda d: gdb(d, "I", 4, "0x7ffe{:04x} <maps+{}>:"),
    "x/32xw of a C++ symbol": lambda d: gdb(d, "I", 4, "0x7ffe{:04x} <ns::f(a<int>)::map>:"),
    "words on one line": lambda d: gdb(d, "I", 4).replace("\n", " "),
    "words without labels": lambda d: " ".join(f"{w:#x}" for w in words(d, "I")),
    "a C list": lambda d: "{" + ", ".join(f"{w:#x}" for w in words(d, "Q")) + "}",
    "a C list of lines": lambda d: (
        "CUtensorMap map = {.opaque = {\n"
        + ",\n".join(f"  0x{w:016X}ULL" for w in words(d, "Q"))
        + ",\n}};\n"
    ),
    "gdb p/x": lambda d: "$1 = {opaque = {" + ", ".join(f"{w:#x}" for w in words(d, "Q")) + "}}",
    "xxd": lambda d: xxd(d, 2),
    "xxd -g1": lambda d: xxd(d, 1),
    "xxd -p": lambda d: "\n".join(d[n : n + 30].hex() for n in range(0, 128, 30)),
    "colons": lambda d: d.hex(":"),
    "digits": bytes.hex,
    "0x and digits": lambda d: "0x" + d.hex(),
    "bytes between spaces": lambda d: d.hex(" "),
}


@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
@given(data=st.binary(min_size=128, max_size=128) | st.just(NUMBERED) | st.just(bytes(128)))
def test_every_form_gives_the_bytes_back(write, data):
    assert parse_dump(write(data)) == data


def test_gdb_repeats_are_written_out():
    printed = "{opaque = {0x63107f120000, 0x10, 0x0 <repeats 14 times>}}"
    assert parse_dump(printed) == struct.pack("<QQ", 0x63107F120000, 0x10) + bytes(112)


def test_words_of_4_bytes_are_little_endian():
    assert parse_dump("0x7f120000 0x00006310" + " 0x0" * 30)[:8].hex() == "0000127f10630000"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "no/such/file",
        "0x7f120000 0x00006310",
        "0x0 " * 31,
        "abc",
        "0x123456789 " * 32,
        "::",
    ],
)
def test_what_shows_no_bytes_gives_none(text):
    assert parse_dump(text) is None


@given(text=st.text(alphabet="0x1aF:<>{},; \t\nuL|z", max_size=300) | st.text(max_size=50))
def test_any_text_gives_bytes_or_none(text):
    assert isinstance(parse_dump(text), bytes | None)


def test_the_forms_are_named():
    for form in ("x/32xw", "x/16xg", "opaque[16]", "xxd", "colons"):
        assert form in foreign.FORMS


def test_a_number_of_more_digits_than_a_word_has_is_no_dump():
    assert parse_dump("0x0 " * 15 + "9" * 5000) is None


def test_explain_gives_the_advice_on_bytes():
    small = (9, 2, 0x7F3B8A000000, (4096, 8), (8192,), (64, 8), (1, 1), 0, 3)
    data = bytearray(bytes(tma.driver_encode_tiled(*small, encoder="model")))
    assert [a.rule for a in tma.explain(data.hex()).reports[0].advice] == []
    data[10] |= 0x20  # bit 85
    (report,) = tma.explain(data.hex()).reports
    assert (report.ok, [a.rule for a in report.advice]) == (True, ["ALLOCATION_CLASS"])
