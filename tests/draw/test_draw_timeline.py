"""Timelines and chains: every bar is in its lane and place, and only the fault is marked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from draw_cases import pictured

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.draw.grid import NARROW, bounds

ROWS = [
    ("warp 0", 0, 10, "run", "expect_tx", "announces 512 bytes"),
    ("copy 0", 10, 60, "copy", "tile 0", "512 bytes", False, "k0"),
    ("warp 1", 5, None, "wait", "full, phase 0", "waits forever", True),
    ("warp 0", 20, 30, "use", "mma"),
]


def bars(scene):
    """Return style, hatching and text of every bar, without legend, lanes and arrows."""
    return [(c.style, c.hatched, c.title) for c in scene.items if ": " in c.title]


def test_a_barrier_of_rows_shows_them_and_takes_no_option_of_the_model():
    figure = draw.barrier(iter(ROWS))
    assert (figure.title, figure.rows) == ("mbarrier", draw.lanes(ROWS).rows)
    for options in ({"mistake": "wrong parity"}, {"stages": 2}, {"blocks": 2}):
        (name,) = options
        with pytest.raises(tma.TmaPreconditionError, match=f"{name} is .* be omitted where rows"):
            draw.barrier(ROWS, **options)
    with pytest.raises(tma.TmaPreconditionError, match="tensor_map"):
        draw.barrier(np.zeros((4, 4)))


def test_a_lane_for_each_actor_and_only_the_fault_is_marked():
    figure = draw.lanes(ROWS, title="a ring")
    assert figure.actors == ("warp 0", "copy 0", "warp 1")
    for scene in (*figure.scenes(), *figure.narrow_scenes()):
        assert sorted(bars(scene)) == [
            ("cell", False, "warp 0: announces 512 bytes"),
            ("conflict", True, "warp 1: waits forever"),
            ("taken", False, "copy 0: 512 bytes"),
            ("tint6", False, "warp 0: mma"),
        ]
    assert figure.sentence == "Wrong: warp 1: waits forever."


def test_bars_are_where_their_times_are_and_an_open_one_ends_with_the_axis():
    (scene,) = draw.lanes(ROWS).scenes()
    place = {c.title: bounds(c) for c in scene.items if ": " in c.title}
    start = place["warp 0: announces 512 bytes"][0]
    unit = (place["copy 0: 512 bytes"][2] - start) / 60
    assert place["copy 0: 512 bytes"][0] - start == pytest.approx(10 * unit, abs=0.02)
    assert place["warp 1: waits forever"][2] > start + 60 * unit
    tops = {title.partition(":")[0]: box[1] for title, box in place.items()}
    assert tops["warp 0"] < tops["copy 0"] < tops["warp 1"]


@pytest.mark.parametrize("name", ["w", "warp 31 of block (12, 0, 0) of its cluster"])
def test_the_narrow_layout_fits_a_phone(name):
    figure = draw.lanes([(name, 0, 3, "run"), ("another", 1, 2, "fault", "too late")])
    assert all(scene.width <= NARROW for scene in figure.narrow_scenes())
    assert all(scene.width > NARROW for scene in figure.scenes())
    chain = draw.chain([(name, "b", "512 of 1024 bytes", True)])
    assert all(scene.width <= NARROW for scene in chain.narrow_scenes())


def test_the_text_marks_the_fault_without_colour_and_fits_the_terminal():
    lines = draw.lanes([*ROWS, ("a" * 200, 0, 1, "run", "b" * 200)]).text().splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line.startswith("✗")] == ["✗ 5..∞ warp 1: waits forever"]


def test_the_fault_is_drawn_when_bars_are_many():
    many = [("warp", n, n + 1, "run") for n in range(1000)]
    (scene,) = draw.lanes([*many, ("warp", 1000, 1001, "run", "", "late", True)]).scenes()
    assert ("conflict", True, "warp: late") in bars(scene)
    assert any("601 further bars" in c.text for c in scene.items)


def test_labels_are_escaped():
    page = draw.lanes([("<b>", 0, 1, "run", "<i>")]).svg()
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;" in page


@pytest.mark.parametrize(
    ("rows", "options", "found"),
    [
        ([], {}, "rows"),
        ([("warp", 0, 1, "sleep")], {}, "rows[0].kind"),
        ([("warp", 0, 1), ("warp", 3, 2)], {}, "rows[1].end"),
        ([("warp", 0, 1)], {"arrows": [("warp", "copy", 0)]}, "arrows[0]"),
    ],
)
def test_rows_that_cannot_be_drawn_are_refused_by_name(rows, options, found):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        draw.lanes(rows, **options)
    assert str(caught.value).startswith(found)


def test_a_bar_of_no_length_is_drawn():
    (scene,) = draw.lanes([("warp", 3, 3, "run")]).scenes()
    assert bars(scene) == [("cell", False, "warp: runs")]


def test_a_chain_marks_what_is_guilty_and_nothing_else():
    links = [
        ("warp 4", "0x410", "phase 1"),
        ("0x410", "copy 2", "512 bytes"),
        ("copy 2", "0x400", "", True),
    ]
    (scene,) = draw.chain(links).scenes()
    wrong = [c.text for c in scene.items if c.style == "conflict"]
    assert wrong == ["0x400"]
    assert [c.text for c in scene.items if c.style == "cell"] == ["warp 4", "0x410", "copy 2"]
    assert not draw.chain(links).is_cycle
    assert draw.chain([("a", "b"), ("b", "a")]).is_cycle
    with pytest.raises(tma.TmaPreconditionError):
        draw.chain([])


PTX = Path(__file__).parent.parent / "cli" / "examples" / "kernel.ptx"


def test_a_missing_fence_is_two_lanes_with_the_copy_as_the_fault():
    figure = draw.missing_fence("st.shared.u32", "cp.async.bulk.global")
    assert figure.actors == ("threads", "async proxy")
    assert [row.is_wrong for row in figure.rows] == [False, True]
    assert figure.rows[1].start < figure.rows[0].end  # nothing orders them
    other = draw.missing_fence("cp.async.bulk.shared", "ld.shared.u32")
    assert other.actors == ("async proxy", "threads")


def test_the_report_of_lint_draws_its_missing_fence():
    report = tma.lint(PTX.read_text(encoding="utf-8"))
    (gap,) = (f for f in report.findings if f.rule == "PROXY_FENCE")
    shown = pictured(report._repr_html_())
    assert "async proxy: cp.async.bulk.global" in shown
    assert gap.where in report._repr_html_()
    clean = dataclasses.replace(report, findings=())
    assert "async proxy" not in pictured(clean._repr_html_())


def test_a_refusal_is_displayed_as_its_card():
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptor(np.zeros((64, 64), np.float32), (16, 3))
    assert caught.value._repr_html_() == draw.error_html(caught.value)
