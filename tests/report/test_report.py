"""The record of a finding that all tools share, and its four output formats."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import pytest

from tma_dlpack.report import (
    Finding,
    Section,
    as_html,
    as_json,
    as_sarif,
    as_text,
    merged,
    total,
    worst_first,
)
from tma_dlpack.tables.errors import Advice, Violation

FENCE = Finding(
    "PROXY_FENCE",
    "error",
    "the tile is stored before a fence",
    "call fence_async()",
    kernel="scale<float>",
    line="dir with space/scale.cu:31",
    ptx_line=88,
    block=(1, 0, 0),
    thread=(32, 0, 0),
    evidence=("line 80: st.shared", "line 88: cp.async.bulk.tensor"),
    source="PTX ISA 9.7.9",
)
WAIT = Finding("BULK_WAIT", "warning", "the tile may be reused early", "wait", ptx_line=90)


def test_the_text_names_place_evidence_fix_and_source():
    assert str(FENCE).splitlines() == [
        "dir with space/scale.cu:31: error: the tile is stored before a fence [PROXY_FENCE]",
        "  in scale<float>, line 88 of the PTX, block (1, 0, 0), thread (32, 0, 0)",
        "  line 80: st.shared",
        "  line 88: cp.async.bulk.tensor",
        "  fix: call fence_async()",
        "  source: PTX ISA 9.7.9",
    ]


def test_a_finding_without_a_place_has_no_line_of_it():
    bare = Finding("UNKNOWN_OPCODE", "error", "the opcode is unknown", "")
    assert str(bare) == "error: the opcode is unknown [UNKNOWN_OPCODE]"
    assert (WAIT.where, replace(WAIT, ptx_line=None, kernel="k").where) == ("line 90", "k")


def test_a_finding_is_immutable_and_hashable():
    with pytest.raises(FrozenInstanceError):
        FENCE.rule = "OTHER"
    assert len({FENCE, replace(FENCE), WAIT}) == 2


def test_errors_come_first_and_alike_ones_are_one():
    assert worst_first([WAIT, FENCE]) == [FENCE, WAIT]
    early = replace(FENCE, severity="warning", thread=(0, 0, 0))
    (found,) = merged([early, FENCE])
    assert found == replace(FENCE, sites=2)
    assert merged([FENCE, replace(FENCE, ptx_line=89)]) == [FENCE, replace(FENCE, ptx_line=89)]
    assert (total([FENCE, WAIT, WAIT]), total([])) == (
        "1 error, 2 warnings",
        "no mistake was found",
    )


def test_the_report_as_text_ends_with_its_head():
    text = as_text("1 error", [FENCE], ["one kernel was not read"])
    assert text == f"{FENCE}\n\nnote: one kernel was not read\n\n1 error"


def test_html_escapes_what_it_shows():
    page = as_html("<head>", [FENCE, Section(pictures=["<svg></svg>"])], ["a & b"])
    assert "in scale&lt;float&gt;</div>" in page
    assert "&lt;head&gt;" in page
    assert "note: a &amp; b" in page
    assert "<svg></svg>" in page
    assert 'class="tma-finding' not in as_html("nothing", [])


def test_a_section_is_indented_below_its_title():
    violation = Violation("BOX_RANGE", "box_sizes", "the box is 300", "at most 256", "use 256", "x")
    advice = Advice("BANK_CONFLICTS", "swizzle", "8-way", "it is slow", "use bytes128", "x")
    section = Section(
        "map 1",
        ["tiled\x1b"],
        ["accepted"],
        [("a", "b"), (1, 2)],
        [violation, advice, WAIT],
        ["> x"],
    )
    text = as_text("1 map", [section, Section(pictures=["<p>"])], is_head_first=True)
    assert text.splitlines() == [
        "1 map", "", "map 1", "  tiled\\x1b", "  accepted", "  a  b", "  1  2",
        "  the box is 300; at most 256", "    fix: use 256", "    rule: BOX_RANGE",
        "  advice: 8-way; it is slow", "    fix: use bytes128", "    rule: BANK_CONFLICTS",
        "  line 90: warning: the tile may be reused early [BULK_WAIT]",
        "    line 90 of the PTX", "    fix: wait", "    > x",
    ]  # fmt: skip
    page = as_html("1 map", [section])
    assert "<h3>map 1</h3><div><code>tiled\\x1b</code></div><div>accepted</div><table" in page
    assert "violation BOX_RANGE</b> the box is 300; at most 256</div>" in page
    assert "<b>warning BULK_WAIT</b> line 90</div>" in page
    assert "<pre>&gt; x</pre>" in page


def test_a_note_is_the_least_severity():
    note = replace(WAIT, severity="note")
    assert worst_first([note, WAIT, FENCE]) == [FENCE, WAIT, note]
    assert merged([note, WAIT]) == [replace(WAIT, sites=2)]
    assert total([note, FENCE]) == "1 error, 0 warnings, 1 note"


def test_json_has_every_field_by_its_name():
    read = json.loads(as_json([FENCE], notes=["n"], kernels=1))
    assert read["notes"] == ["n"]
    assert read["kernels"] == 1
    found = {
        name: tuple(v) if isinstance(v, list) else v for name, v in read["findings"][0].items()
    }
    assert Finding(**found) == FENCE


def test_sarif_points_to_the_source_or_to_the_file_that_was_read():
    rules = {"PROXY_FENCE": ("a fence is missing", "PTX ISA")}
    run = json.loads(as_sarif("tool", rules, [(FENCE, "k.ptx")], [(WAIT, "k.ptx")], ["n"]))["runs"][
        0
    ]
    fence, wait = run["results"]
    at = [result["locations"][0]["physicalLocation"] for result in (fence, wait)]
    assert at[0] == {
        "artifactLocation": {"uri": "dir%20with%20space/scale.cu"},
        "region": {"startLine": 31},
    }
    assert at[1] == {"artifactLocation": {"uri": "k.ptx"}, "region": {"startLine": 90}}
    assert "suppressions" in wait
    assert "suppressions" not in fence
    assert run["tool"]["driver"]["rules"][0]["help"] == {"text": "Source: PTX ISA"}
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"] == {"text": "n"}
