"""The measured ladder: a bar for each kernel of gemm_ladder.cu, in the bench's order."""

from bench import ladder

import course


def test_the_ladder_has_the_steps_of_the_bench_in_order():
    steps = [*(step.label for step in ladder.STEPS), "7 persistent: hopper_gemm"]
    assert [name for name, *_ in course.LADDER] == steps


def test_each_step_is_faster_than_the_one_before():
    values = [value for _, value, _ in course.LADDER]
    assert values == sorted(values)


def test_the_bars_are_as_long_as_their_numbers():
    figure = course.bars("two", "TFLOP/s", [("a", 100, ""), ("b", 200, "twice")], "somewhere")
    a, b = (cell for scene in figure.scenes() for cell in scene.items if cell.key)
    assert (a.text, b.text, b.title) == ("100", "200", "twice")
    assert b.columns == 2 * a.columns
    assert str(figure).splitlines()[2].split() == ["b", "200", "TFLOP/s", "twice"]
