"""`explain` after the launch: the measured causes, and a map that rules some out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from printed_forms import GOOD, cutlass

import tma_dlpack as tma


def notes(text: str) -> list[str]:
    return list(tma.explain(text).notes)


def causes(text: str, symptom: str) -> list[str]:
    return [note for note in notes(text) if note.startswith(symptom) and ", cause " in note]


#: What is printed -> the symptom, and the most likely misuse.
SEEN = [
    ("CUDA error: an illegal memory access was encountered", "700", "without __grid_constant__"),
    ("CUDA error: an illegal instruction was encountered", "715", "the rank of the instruction"),
    ("CUDA error: misaligned address", "716", "not aligned to 128 bytes"),
    ("misaligned address", "716", "not aligned to 128 bytes"),
    ("CUDA error: unspecified launch failure", "719", "never initialized"),
    ("cudaErrorIllegalInstruction", "715", "the rank of the instruction"),
    ("700", "700", "without __grid_constant__"),
    ("715", "715", "the rank of the instruction"),
    ("716", "716", "not aligned to 128 bytes"),
    ("719", "719", "never initialized"),
    ("the kernel launch returned error 719", "719", "never initialized"),
    ("my kernel hangs", "hang", "expects more bytes than arrive"),
    ("The program never returns.", "hang", "expects more bytes than arrive"),
]


@pytest.mark.parametrize(("text", "symptom", "first"), SEEN)
def test_the_causes_of_a_symptom_begin_with_the_most_likely(text, symptom, first):
    name = "a kernel that hangs" if symptom == "hang" else symptom
    listed = causes(text, name)
    assert len(listed) >= 2
    assert first in listed[0]
    assert all("; check: " in note for note in listed)
    assert f"{name}, " in listed[0] or listed[0].startswith(name)
    assert tma.explain(text).reports == ()


@pytest.mark.parametrize(
    "text",
    [
        "it hangs together; misaligned address in my C code",
        "step 715 of 719, 700 tokens",
        "all is well",
    ],
)
def test_other_words_are_no_symptom(text):
    assert not any(", cause " in note for note in notes(text))


def test_every_symptom_that_was_measured_has_its_causes():
    from tma_dlpack.cli.explain.results import CAUSES

    assert {symptom for symptom, *_ in CAUSES} == {"700", "715", "716", "719", "hang"}
    assert len(CAUSES) >= 17


def test_without_a_map_the_notes_ask_for_one():
    assert any("paste the map beside it" in note for note in notes("misaligned address"))
    assert not any("paste the map" in n for n in notes("misaligned address\n" + cutlass(GOOD)))


def test_arguments_beside_the_symptom_rule_causes_out_and_specify_others():
    text = "CUDA error: an illegal instruction was encountered\n" + cutlass(GOOD)
    listed = causes(text, "715")
    assert "this map has rank 2: .2d" in listed[0]
    assert "this map is tiled: no .im2col instruction may use it" in listed[1]
    assert "a multiple of 8 elements" in listed[2]
    out = [note for note in notes(text) if "ruled out" in note]
    assert len(out) == 1
    assert "this map is not zeros" in out[0]
    assert not any("all zeros" in note for note in listed)


def test_bytes_beside_the_symptom_do_so_too():
    tm = tma.driver_encode_tiled(
        9, 2, 0x7F3B8A000000, (4096, 128), (8192,), (64, 128), (1, 1), 0, 3, encoder="model"
    )
    text = f"my kernel hangs\n{bytes(tm).hex()}\n"
    assert "one copy through this map brings 16384 bytes" in causes(text, "a kernel that hangs")[0]
    text = f"unspecified launch failure\n{bytes(tm).hex()}\n"
    assert "16384 bytes: only 65 or more of them leave it" in causes(text, "719")[1]


def test_zero_bytes_are_the_map_that_was_never_encoded():
    found = notes("an illegal instruction was encountered\n" + "00" * 128)
    assert any("a map that was never encoded" in note for note in found)
    assert any("the map is all zeros" in note for note in causes("715\n" + "00" * 128, "715"))


def test_a_null_address_is_named_as_the_cause_of_700():
    text = "an illegal memory access was encountered\n" + cutlass(GOOD.but(global_address=0))
    assert any("its address is 0: that is the cause" in note for note in causes(text, "700"))


def test_two_different_maps_rule_nothing_out():
    other = GOOD.but(global_dim=(64, 64), box_dim=(64, 32))
    text = "an illegal instruction was encountered\n" + cutlass(GOOD) + cutlass(other)
    assert not any("ruled out" in note for note in notes(text))


# -- lines of a checked build ---------------------------------------------------------------------

CHECK = (
    "tma_dlpack check: kernel.cu:42, block (1, 0, 0), thread ({thread}, 0, 0), load_2d: "
    "destination 0x440 is 64 bytes off; it must be aligned to 128 bytes\n"
)


def test_a_line_of_a_checked_build_is_a_report_with_a_fix():
    (report,) = tma.explain(CHECK.format(thread=0)).reports
    (violation,) = report.violations
    assert (violation.rule, violation.argument) == ("DEVICE_CHECK", "load_2d")
    assert violation.found == (
        "load_2d in block (1, 0, 0), thread (0, 0, 0): destination 0x440 is 64 bytes off"
    )
    assert violation.limit == "it must be aligned to 128 bytes"
    assert violation.fix.startswith("in kernel.cu:42: align it")


def test_the_same_check_of_many_threads_is_one_report():
    text = "".join(CHECK.format(thread=thread) for thread in range(40))
    (report,) = tma.explain(text).reports
    assert "and 39 other lines" in report.violations[0].found


def test_a_check_beside_a_printed_map_is_a_report_of_its_own():
    found = tma.explain(cutlass(GOOD) + CHECK.format(thread=0))
    assert [[v.rule for v in r.violations] for r in found.reports] == [[], ["DEVICE_CHECK"]]


HEADER = (Path(tma.get_include()) / "tma_dlpack_check.h").read_text()


def messages_of_the_header():
    """Read what each check of the header prints, with 3 for every number."""
    strings = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    pattern = rf"{strings},\s*{strings}(?=[,)])"
    for found in re.finditer(pattern, HEADER.partition("// ---- the checks")[2]):
        words = "; ".join("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', s)) for s in found.groups())
        if " " in words.partition(";")[0]:
            yield re.sub(r"%(l*[udx]|p|s|\.3g)", "3", words)


MESSAGES = list(messages_of_the_header())


def test_the_header_has_these_messages():
    assert len(MESSAGES) > 30
    assert len(set(MESSAGES)) > 30


@pytest.mark.parametrize("words", sorted(set(MESSAGES)))
def test_every_message_of_the_header_is_read_and_has_a_fix_of_its_own(words):
    line = f"tma_dlpack check: a.cu:7, block (0, 0, 0), thread (0, 0, 0), verb: {words}\n"
    (violation,) = tma.explain(line).reports[0].violations
    assert f"{violation.found.partition(': ')[2]}; {violation.limit}" == words
    assert violation.fix.startswith("in a.cu:7: ")
    assert "change the call" not in violation.fix


@pytest.mark.parametrize(
    ("what", "fix"),
    [
        ("the barrier at shared address 0x400 was never initialised; call init()", "calls init()"),
        ("the map at 0x400 is in shared memory; publish() it", "publish() it to global memory"),
        ("phase 0 of the barrier expects 4096 bytes, and its loads have 8192; expect_tx()",
         "expect the bytes of all copies"),
        ("after 2 s phase 0 is not over: 1 of 1 arrivals, 8192 bytes expected, loads of 0 bytes "
         "issued; a phase ends", "issue the loads"),
        ("this is arrival 2 in phase 0; it was initialised for 1 arrivals", "as many arrivals as"),
        ("the parity is 1, and the barrier is in phase 0; to wait for the bytes", "flip it after"),
        ("3 coordinates; the map has rank 2", "the copy of the map's rank"),
        ("the innermost coordinate 3 is at byte 6; it must be a multiple of 16 bytes", "step the"),
        ("the tile is at shared address 0x810, 16 bytes past a; multiple of 128", "alignas(128)"),
        ("the barrier is at 0x404, 4 bytes past a multiple of 8; align it", "to 8 bytes"),
        ("something else; it must not be", "change the call"),
    ],
)  # fmt: skip
def test_the_fix_follows_from_the_words(what, fix):
    line = f"tma_dlpack check: a.cu:7, block (0, 0, 0), thread (0, 0, 0), wait: {what}\n"
    assert fix in tma.explain(line).reports[0].violations[0].fix
