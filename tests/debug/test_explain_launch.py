"""`explain` for errors after a launch: the measured causes, and a map that excludes some causes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from printed_forms import GOOD, cutlass

import tma_dlpack as tma
from tma_dlpack.debug.explain.failures import FAILURES


def notes(text: str) -> list[str]:
    return list(tma.explain(text).notes)


def causes(text: str, symptom: str) -> list[str]:
    return [note for note in notes(text) if note.startswith(symptom) and ", cause " in note]


#: Printed text -> the symptom, and the most likely misuse.
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
    ("error 715", "715", "the rank of the instruction"),
    ("Error code: 719", "719", "never initialized"),
    ("the kernel launch returned error 719", "719", "never initialized"),
    ("my kernel hangs", "hang", "expects more bytes than arrive"),
    ("The program never returns.", "hang", "expects more bytes than arrive"),
    ("due to an illegal memory access", "700", "without __grid_constant__"),
    ("Illegal memory access", "700", "without __grid_constant__"),
    ("illegal instruction", "715", "the rank of the instruction"),
    ("error 700 in my kernel", "700", "without __grid_constant__"),
    ("launch failed with 719", "719", "never initialized"),
    ("it hangs", "hang", "expects more bytes than arrive"),
    ("Deadlock!", "hang", "expects more bytes than arrive"),
    ("CUDA_EXCEPTION_14, Warp Illegal Address.", "700", "without __grid_constant__"),
    ("CUDA_EXCEPTION_6, Warp Misaligned Address", "716", "not aligned to 128 bytes"),
    (
        "NVRM: Xid (PCI:0000:18:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): "
        "Illegal Instruction Parameter",
        "715",
        "the rank of the instruction",
    ),
    ("=========     Address 0x40000 is out of bounds", "700", "without __grid_constant__"),
    ("=========     Address 0x40008 is misaligned", "716", "not aligned to 128 bytes"),
]


@pytest.mark.parametrize(("text", "symptom", "first"), SEEN)
def test_the_causes_of_a_symptom_begin_with_the_most_likely(text, symptom, first):
    name = "a kernel that hangs" if symptom == "hang" else symptom
    listed = causes(text, name)
    assert len(listed) >= 2
    assert first in listed[0]
    assert all("; check: " in note for note in listed)
    assert notes(text)[0] == listed[0]  # the answer first
    head = listed[0].partition(", cause 1")[0]
    count = f"{len(listed)} possible causes, the most likely first"
    assert str(tma.explain(text)).startswith(f"{head}: {count}\n")
    assert f"{name}, " in listed[0] or listed[0].startswith(name)
    assert tma.explain(text).reports == ()


@pytest.mark.parametrize(
    "text",
    [
        "it hangs together; misaligned address in my C code",
        "step 715 of 719, 700 tokens",
        "error 404",
        "HTTP error 700",
        "Illegal instruction (core dumped)",
        "kernel: 700 ms",
        "never mind",
        "it does not hang",
        "nothing hangs",
        "the kernel doesn't hang anymore",
        "list index out of bounds",
        "it failed with 0.715",
        "all is well",
    ],
)
def test_other_words_are_no_symptom(text):
    assert not any(", cause " in note for note in notes(text))


def test_a_code_without_measured_causes_is_the_error_of_an_earlier_kernel():
    found = tma.explain("got 999")
    assert str(found).startswith("999 (unknown error): the error of an earlier kernel\n")
    assert found.symptoms == ("999 (unknown error)",)


def test_every_symptom_that_was_measured_has_its_causes():
    measured = [f for f in FAILURES.values() if f.source == "measured, H200"]
    assert {failure.id for failure in measured} == {"700", "715", "716", "719", "hang"}
    assert sum(len(failure.causes) for failure in measured) >= 17


def test_without_a_map_the_notes_ask_for_one():
    assert any("paste the map too" in note for note in notes("misaligned address"))
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
    assert (
        "one copy through this map transfers 16384 bytes" in causes(text, "a kernel that hangs")[0]
    )
    text = f"unspecified launch failure\n{bytes(tm).hex()}\n"
    assert "16384 bytes, so only 65 or more of them leave it" in causes(text, "719")[1]


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
    "the tile is at shared address 0x440, 64 bytes past a multiple of 128; align it to 128 bytes\n"
)


def test_a_line_of_a_checked_build_is_a_report_with_a_fix():
    (report,) = tma.explain(CHECK.format(thread=0)).reports
    (violation,) = report.violations
    assert (violation.rule, violation.argument) == ("DEVICE_CHECK", "load_2d")
    assert violation.found == (
        "load_2d in block (1, 0, 0), thread (0, 0, 0): the tile is at shared address 0x440, 64 "
        "bytes past a multiple of 128"
    )
    assert violation.limit == "align it to 128 bytes"
    assert [rule.id for rule in tma.rules(violation.rule)] == ["DEVICE_CHECK"]
    assert violation.fix.startswith("in kernel.cu:42: align it")


def test_the_same_check_of_many_threads_is_one_report():
    text = "".join(CHECK.format(thread=thread) for thread in range(40))
    (report,) = tma.explain(text).reports
    assert "and 39 other lines" in report.violations[0].found


def test_a_check_beside_a_printed_map_is_a_report_of_its_own():
    found = tma.explain(cutlass(GOOD) + CHECK.format(thread=0))
    assert [[v.rule for v in r.violations] for r in found.reports] == [[], ["DEVICE_CHECK"]]


def test_the_trap_of_a_failed_check_is_not_an_earlier_kernels_error():
    text = CHECK.format(thread=0) + "CUDA error: unspecified launch failure\n"
    assert not any("cause 1" in n or "earlier kernel" in n for n in notes(text))
    assert any("the failed check" in note for note in notes(text))


def checks_of_the_header() -> list[str]:
    """Return the text "FOUND; LIMIT" of every check of the header, with numbers inserted."""
    text = (Path(tma.get_include()) / "tma_dlpack_check.h").read_text()
    found = []
    for call in re.findall(r"TMA_DLPACK_REQUIRE\(([^#]*?)\);", text):
        joined = re.sub(r'"\s*\n\s*"', "", call)
        words = [
            w for w in re.findall(r'"((?:[^"\\]|\\.)*)"', joined) if w.count(" ") >= 2 or "%" in w
        ]
        words = [w.replace("%s", "a tiled map") for w in words]
        found.append("; ".join(re.sub(r"%(?:\.\dg|ll[ux]|l?l?[duxp])", "8", w) for w in words[:2]))
    return [line for line in found if "; " in line]


ACTIONS = (
    "align arrive_expect_tx ask begin call copy declare expect flip init make name pass publish "
    "step use"
)


@pytest.mark.parametrize("what", checks_of_the_header())
def test_every_check_of_the_header_has_a_fix(what):
    line = f"tma_dlpack check: a.cu:7, block (0, 0, 0), thread (0, 0, 0), wait: {what}\n"
    (violation,) = tma.explain(line).reports[0].violations
    assert violation.fix.startswith("in a.cu:7: ")
    assert violation.fix.removeprefix("in a.cu:7: ").split()[0].strip("():,") in ACTIONS


def test_the_header_has_the_checks_that_are_explained():
    assert len(checks_of_the_header()) >= 25


@pytest.mark.parametrize(
    ("what", "fix"),
    [
        ("the barrier at shared address 0x8 was never initialised; call init()", "call init()"),
        ("the tile is at 0x8, 8 bytes past a multiple of 128; align it", "alignas(1024)"),
        ("2 coordinates; the map has rank 3", "as many coordinates"),
        ("this is arrival 2 in phase 0; it was initialised for 1 arrivals", "as many arrivals"),
        ("the parity is 1, and the barrier is in phase 0; pass parity 0", "flip the parity"),
        ("something else; it must not be", "in a.cu:7: it must not be"),
    ],
)
def test_the_fix_follows_from_the_words(what, fix):
    line = f"tma_dlpack check: a.cu:7, block (0, 0, 0), thread (0, 0, 0), wait: {what}\n"
    assert fix in tma.explain(line).reports[0].violations[0].fix
