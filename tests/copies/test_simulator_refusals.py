"""Every row of the table of refusals has a test."""

from __future__ import annotations

import pathlib

import tma_dlpack as tma
from tma_dlpack.tables.refusals import COPY_REFUSALS


def test_every_refusal_of_a_copy_has_a_test():
    here = pathlib.Path(__file__).parent
    tests = "".join(path.read_text() for path in here.glob("test_*.py"))
    assert [rule for rule in COPY_REFUSALS if f'"{rule}"' not in tests] == []


def test_a_copy_is_refused_by_rows_of_the_table_alone():
    """No module of copies/ makes a Violation without a row of the table."""
    room = pathlib.Path(tma.__file__).parent / "copies"
    made = [path.name for path in room.glob("*.py") if "Violation(" in path.read_text()]
    assert made == []
