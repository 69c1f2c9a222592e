"""The typed user program uses every public name, with arguments that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.tables import enums
from tma_dlpack.tables.meanings import parse

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


def test_every_word_that_a_type_offers_is_understood():
    def words(offered) -> Iterator[str]:
        for choice in get_args(offered):
            yield from [choice] if isinstance(choice, str) else words(choice)

    offered = {
        enums.TmaInterleaveLayout: enums.Interleave,
        enums.TmaSwizzle: enums.Swizzle,
        enums.TmaL2FetchSize: enums.L2FetchSize,
        enums.TmaOobFill: enums.OobFill,
        enums.TensorMapDataType: enums.DataType,
    }
    found = {(enum, word): parse(enum, word) for enum in offered for word in words(offered[enum])}
    assert [asked for asked, member in found.items() if member is None] == []
    assert found[enums.TmaSwizzle, "Swizzle<3,4,3>"] is enums.TmaSwizzle.bytes128
    assert found[enums.TmaSwizzle, "SWIZZLE_64B"] is enums.TmaSwizzle.bytes64
    assert found[enums.TensorMapDataType, "bf16"] is enums.TensorMapDataType.BFLOAT16


@pytest.mark.slow
def test_at_least_98_of_100_public_symbols_have_a_known_type():
    pytest.importorskip("pyright", reason="pyright is not installed")
    options = ["--pythonpath", sys.executable, "--ignoreexternal", "--outputjson"]
    command = [sys.executable, "-m", "pyright", *options, "--verifytypes", "tma_dlpack"]
    environment = os.environ | {"PYTHONPATH": str(Path(tma.__file__).parents[1])}
    said = subprocess.run(command, capture_output=True, text=True, env=environment).stdout
    completeness = json.loads(said)["typeCompleteness"]
    unknown = [
        symbol["name"]
        for symbol in completeness["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert completeness["completenessScore"] >= 0.98, unknown
