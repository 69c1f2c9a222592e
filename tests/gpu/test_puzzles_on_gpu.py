"""The solutions of the puzzles write the same bytes on a GPU as on the simulator."""

import re
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))

from course.puzzles import PUZZLES, judge  # noqa: E402  (in the notebooks' folder)

pytestmark = pytest.mark.gpu
SOURCE = (NOTEBOOKS / "puzzle_solutions.cu").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PUZZLES)
def test_a_solution_is_right_on_a_gpu(name):
    verdict = judge(name, SOURCE, backend="cuda")
    assert verdict, verdict


def test_wrong_values_are_seen_on_a_gpu_too():
    verdict = judge("one_copy", re.sub(r"tile\[i\] \+ 1", "tile[i] + 2", SOURCE), backend="cuda")
    assert "elements are wrong" in str(verdict)
