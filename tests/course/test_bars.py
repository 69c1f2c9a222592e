"""The chart of the measured ladder has a bar for each kernel of gemm_ladder.cu, in order."""

import re
from itertools import pairwise

import numpy as np
import pytest
import test_notebooks
from bench import ladder

import course
import tma_dlpack as tma
from course.bars import LADDER_SOURCE


def test_the_ladder_has_the_steps_of_the_bench_in_order():
    steps = [step.label for step in ladder.STEPS]
    assert [name for name, *_ in course.LADDER] == steps


def test_the_prose_may_say_which_steps_gain():
    runs = [numbers for _, numbers, _ in course.LADDER]
    gains = [least > most for (_, most), (least, _) in pairwise(runs)]
    assert gains == [False, True, True, False, True, True]


KERNELS = re.findall(
    r'^extern "C" __global__.*?^}\n',
    course.source(test_notebooks.NOTEBOOKS / "gemm_ladder.cu").text,
    re.M | re.S,
)


def test_the_ladder_is_seven_kernels_and_each_is_short():
    names = [re.search(r"\b(ladder_\w+)\(", kernel)[1] for kernel in KERNELS]
    assert names == [step.choice.kernel for step in ladder.STEPS]
    assert all(len(kernel.splitlines()) <= 50 for kernel in KERNELS)


@pytest.mark.parametrize("step", range(6))
def test_a_kernel_differs_from_the_one_before_in_at_most_20_lines(step):
    changes = course.difference(*KERNELS[step : step + 2]).splitlines()
    assert 0 < sum(line.startswith("+") for line in changes) <= 20
    assert sum(line.startswith("-") for line in changes) <= 20


def test_the_bars_are_as_long_as_their_numbers():
    figure = course.bars("two", "TFLOP/s", [("a", 100, ""), ("b", 200, "twice")], "somewhere")
    a, b = (cell for scene in figure.scenes() for cell in scene.items if cell.key)
    assert (a.text, b.text, b.title) == ("100", "200", "twice")
    assert b.columns == 2 * a.columns
    assert str(figure).splitlines()[2].split() == ["b", "200", "TFLOP/s", "twice"]


def share_of_torch(least, most):
    """Return the smallest and the largest share of torch.matmul's speed, in percent."""
    runs = re.search(r"(\d+) to (\d+)$", LADDER_SOURCE)
    slow, fast = int(runs[1]), int(runs[2])
    return f"{100 * least / fast:.0f} to {100 * most / slow:.0f} %"


def test_the_headline_of_chapter_00_has_its_denominator():
    text = " ".join(test_notebooks.read("00_what_is_tma").cells[1].source.split())
    first, (least, most) = course.LADDER[0][1], course.LADDER[-1][1]
    slow = f"reaches {first[0]} to {first[1]} TFLOP/s, which is {share_of_torch(*first)} of torch"
    assert slow in text
    assert f"reaches {least} to {most} TFLOP/s, which is {share_of_torch(least, most)}" in text


def test_the_reason_of_the_swizzles_step_is_what_the_package_says():
    """Neither box has bank conflicts; only the swizzled wide box can be read by wgmma."""
    x = np.zeros((256, 256), np.float16)
    narrow = tma.make_tma_descriptor(x, (128, 8))
    wide = tma.make_tma_descriptor(x, (128, 64), swizzle="bytes128")
    for tensor_map in (narrow, wide):
        swizzle = tensor_map.swizzle.name
        assert f"free with {swizzle}" in str(tma.bank_conflicts(tensor_map, "column"))
    with pytest.raises(tma.TmaPreconditionError, match="MATRIX_WIDTH"):
        tma.matrix_descriptor(tma.make_tma_descriptor(x, (128, 64)))
    assert tma.matrix_descriptor(wide).k_steps == 4
    assert wide.tx_bytes == 8 * narrow.tx_bytes
