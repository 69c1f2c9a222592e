"""The typed user program has every public name; what it calls is called with what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma

PROGRAM = Path(__file__).with_name("user_program.py")


def test_the_program_has_every_public_name():
    named = set(re.findall(r"\btma\.(\w+)", PROGRAM.read_text(encoding="utf-8")))
    assert set(tma.__all__) - named == set()


def test_its_functions_run_as_far_as_there_is_no_gpu(capsys):
    names: dict[str, object] = {"__name__": "user_program"}
    exec(compile(PROGRAM.read_text(encoding="utf-8"), PROGRAM.name, "exec"), names)
    x = np.zeros((128, 64), np.float16)
    assert "box_sizes" in names["handled"](x) or "TensorMap" in names["handled"](x)
    tensor_map = names["options"](x)[0]
    assert names["numbers"](tensor_map)[0] > 0
    assert names["copy"](tensor_map, x).shape == (64, 64)
    assert names["integers_of_numpy"](x).box_sizes == (32, 32)
    assert names["own_tensor"]().rank == 2
    assert names["convolve"](np.zeros((2, 14, 14, 64), np.float16)).kind == "im2col"


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_accepts_the_program_and_refuses_each_mistake(checker):
    pytest.importorskip(checker, reason=f"{checker} is not installed")
    wrong = PROGRAM.with_name("wrong_program.py")
    options = ["--strict"] if checker == "mypy" else ["--pythonpath", sys.executable]
    command = [sys.executable, "-m", checker, *options, str(PROGRAM), str(wrong)]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    lines = wrong.read_text(encoding="utf-8").splitlines()
    mistakes = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    found = re.findall(r"(\w+)\.py:(\d+)(?::\d+)?(?: -)?:? error", said)
    assert {int(line) for file, line in found if file == wrong.stem} == mistakes, said
    assert {file for file, _ in found} == {wrong.stem}, said
