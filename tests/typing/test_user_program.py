"""The typed user program has every public name; what it calls is called with what is there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

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
    assert names["convolve"](np.zeros((2, 14, 14, 64), np.float16)).kind == "im2col"
