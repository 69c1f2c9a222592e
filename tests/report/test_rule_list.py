"""`rules`: every row that refuses or advises, as data, text and HTML."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.advice import ADVICE, MAP_ADVICE
from tma_dlpack.cli.main import main
from tma_dlpack.dlpack.layout import REFUSALS as TENSOR_REFUSALS
from tma_dlpack.report.rule_list import GROUPS
from tma_dlpack.tables.refusals import COPY_REFUSALS

BY_ID = {rule.id: rule for rule in tma.rules()}


def test_every_row_is_listed_once():
    listed = [rule.id for rule in tma.rules()]
    assert len(set(listed)) == len(listed)
    rows = {rule.id for rule in RULES} | {row.id for row in ADVICE + MAP_ADVICE}
    of_tables = rows | set(COPY_REFUSALS) | set(TENSOR_REFUSALS)
    others = {rule.id for group in ("call", "operand", "file") for rule in tma.rules(group)}
    assert set(listed) == of_tables | others


def test_every_id_that_a_message_may_show_is_listed():
    ids = re.compile(r'"((?:ARGUMENT|[A-Z]{2,}_(?:BYTES|LAYOUT)|REPLACE_VALUE|C_TYPE|'
                     r'(?:LD)?MATRIX_[A-Z]+|SPLIT_[A-Z]+))"')  # fmt: skip
    package = Path(tma.__file__).parent
    kernels = {"postmortem", "kernel", "stuck.py"}  # the findings of these rules are about kernels
    others = {*kernels, "core.py"}  # a core.py lists names of Python
    files = [f for f in package.rglob("*.py") if others.isdisjoint(f.parts)]
    used = {i for file in files for i in ids.findall(file.read_text())}
    assert {"ARGUMENT", "C_TYPE", "MAP_BYTES", "MATRIX_RANK", "SPLIT_SPAN"} <= used
    assert used <= set(BY_ID)


def test_findings_are_made_of_rows_in_five_files_alone():
    """Every other file makes violations by a row, or by `argument_violation` and the like."""
    package = Path(tma.__file__).parent
    made = re.compile(r"\b(?<!class )Violation\(")
    assert {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if made.search(file.read_text())
    } == {
        "tables/errors.py",  # argument_violation
        "tables/rule.py",  # Rule.violation
        "checks/report.py",  # a precondition, with the fix that was tried
        "consumer/refusals.py",
        "tensor_map/description.py",  # an address that no map can have
    }


def test_a_rule_is_found_by_the_id_that_a_message_shows():
    (rule,) = tma.rules("ELEM_STRIDES_RANGE")
    assert str(rule) == (
        "ELEM_STRIDES_RANGE (refused by libcu++, driver)\n"
        "  elem_strides: it must be 1..8\n"
        "  why: the map stores stride - 1 in 3 bits\n"
        "  source: libcu++ make_tma_descriptor.h at 571f2fc3bc, __get_elem_strides; CUDA driver "
        "API,\n"
        "    cuTensorMapEncodeTiled (libcu++ and the documentation ignore the innermost entry "
        "unless\n"
        "    interleaved; the driver does not)"
    )
    with pytest.raises(tma.TmaPreconditionError, match="did you mean 'BOX_RANGE'"):
        tma.rules("box_rang")


@pytest.mark.parametrize("rule", BY_ID.values(), ids=BY_ID)
def test_a_rule_reads_as_a_sentence(rule):
    assert rule.asks
    assert rule.source
    assert not rule.asks.endswith((".", ";"))
    for text in (rule.asks, rule.why, rule.source):
        assert "<function" not in text
    if rule.group == "rule":
        assert rule.asks.startswith("it must ")
        assert rule.why
    assert (rule.refused_by == ()) == (rule.group == "advice")
    assert max(map(len, str(rule).splitlines())) <= 100


def test_a_group_is_a_part_of_the_list():
    groups = [tma.rules(group) for group in GROUPS]
    assert [rule for group in groups for rule in group] == list(tma.rules())
    assert [rule.id for rule in tma.rules("rule")] == [rule.id for rule in RULES]


@pytest.mark.parametrize(
    ("rule_id", "refused_by"),
    [
        ("BOX_IN_SHAPE", ("libcu++",)),
        ("STRIDE_UNIQUE", ("libcu++",)),
        ("BOX_INNER_16B", ("libcu++", "driver")),
        ("STRIDE_INNERMOST", ("libcu++",)),
        ("BOX_BYTES", ("driver",)),
        ("CHANNELS", ("driver",)),
        ("ATOM_SWIZZLE", ("libcu++", "driver", "hardware")),
        ("DATA_TYPE_OVERRIDE", ("tma_dlpack",)),
        ("COPY_INNER_16B", ("hardware",)),
        ("COPY_SMEM_OFFSET", ("hardware",)),
        ("COPY_MEMORY", ("tma_dlpack",)),
        ("TENSOR_META", ("tma_dlpack",)),
        ("BANK_CONFLICTS", ()),
    ],
)
def test_who_refuses(rule_id, refused_by):
    assert BY_ID[rule_id].refused_by == refused_by


def test_what_allow_switches_off_is_marked():
    assert [rule.id for rule in tma.rules() if rule.allowable] == list(ALLOWABLE)


def test_a_violation_cites_a_rule_of_the_list():
    report = tma.check_tma_descriptor(np.zeros((64, 64), np.float32), (65, 3), swizzle="bytes32")
    for finding in report.violations:
        assert finding.source == BY_ID[finding.rule].source


def test_the_list_is_a_table_in_a_notebook():
    rules = tma.rules("rule")
    assert repr(rules) == f"<RuleList of {len(RULES)} rules>"
    html = rules[3:5]._repr_html_()
    assert html.count("<tr>") == 3
    assert f"<td>{rules[3].id}</td>" in html


def test_the_command_line_prints_the_rules(capsys):
    assert main(["rules"]) == 0
    assert capsys.readouterr().out == f"{tma.rules()}\n"
    assert main(["rules", "BOX_RANGE", "COPY_GATHER4"]) == 0
    assert capsys.readouterr().out == f"{BY_ID['BOX_RANGE']}\n\n{BY_ID['COPY_GATHER4']}\n"
    assert main(["rules", "box_rang"]) == 2
    assert "did you mean BOX_RANGE?" in capsys.readouterr().err


def test_no_room_bears_the_name_of_a_public_function_but_draw():
    rooms = {module.name for module in pkgutil.iter_modules(tma.__path__)}
    assert rooms & set(tma.__all__) == {"draw"}
    assert dir(tma) == sorted(tma.__all__)


def test_a_group_that_does_not_exist_is_refused():
    with pytest.raises(
        tma.TmaPreconditionError, match=r"group is 'foo'; it must be one of 'tensor'"
    ):
        tma.rules("foo")
