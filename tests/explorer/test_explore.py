"""The explorer: a pure look at each choice, widgets that follow, and what it shows without them."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from draw_cases import numbered

import tma_dlpack as tma
from tma_dlpack.explorer.widget import Choice, Explorer, Still, explore, first_choice, look

needs_widgets = pytest.mark.skipif(
    importlib.util.find_spec("ipywidgets") is None, reason="ipywidgets is not installed"
)


@pytest.fixture
def explorer():
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
    return explore(numbered((300, 512), np.float32))


def test_the_first_choice_is_accepted_and_swizzled(explorer):
    assert isinstance(explorer, Explorer)
    assert explorer.look.report.ok
    assert explorer.look.choice.swizzle == "bytes128"
    assert explorer.tensor_map.box_sizes == (8, 32)


@pytest.mark.parametrize(
    "tensor",
    [
        numbered((100,)),
        numbered((2, 3, 4, 5, 16)),
        numbered((64, 64), np.int8),
        numbered((8, 1)),
        numbered((5, 7, 12), np.uint8),
    ],
    ids=["a vector", "rank 5", "int8", "one column", "rows of 12 bytes"],
)
def test_it_opens_on_any_tensor(tensor):
    explorer = explore(tensor)
    assert explorer.look.choice.coords == (0,) * tensor.ndim
    assert explorer.look.report.ok == (explorer.tensor_map is not None)
    assert "make_tma_descriptor" in explorer.look.html()


def test_int8_is_carried_as_bytes():
    assert first_choice(numbered((64, 64), np.int8)).data_type == "UINT8"


def test_a_tensor_that_cannot_be_read_is_refused():
    with pytest.raises(tma.TmaPreconditionError):
        explore("no tensor")


def test_each_control_changes_the_map(explorer):
    explorer.controls["box_sizes[0]"].value = 16
    explorer.controls["oobfill"].value = "nan"
    explorer.controls["elem_strides[0]"].value = 2
    tm = explorer.tensor_map
    assert (tm.box_sizes, tm.oob_fill.name, tm.elem_strides) == ((16, 32), "nan", (2, 1))
    assert "oobfill=&#x27;nan&#x27;" in explorer.look.html()


def test_coordinates_move_the_tile(explorer):
    explorer.controls["coords[0]"].value = 296
    assert "box 296..303, 4 of 8 out of bounds" in explorer.look.html()


def test_an_illegal_choice_shows_the_refusal_and_a_button_that_mends_it(explorer):
    assert explorer.fix.layout.display == "none"
    explorer.controls["box_sizes[1]"].value = 63
    assert explorer.tensor_map is None
    assert "BOX_INNER_16B" in explorer.look.html()
    assert explorer.fix.layout.display == ""
    explorer.fix.click()
    assert explorer.look.report.ok
    assert explorer.controls["box_sizes[1]"].value == explorer.tensor_map.box_sizes[1]
    assert explorer.fix.layout.display == "none"


def test_a_tile_that_would_kill_a_kernel_is_told_while_the_map_stays(explorer):
    explorer.controls["coords[1]"].value = 1
    assert explorer.tensor_map is not None
    assert "this tile is refused: coords[1] is 1" in explorer.look.html()


def test_the_code_is_the_call_and_the_c_of_the_map(explorer):
    code = explorer.look.code
    assert code.startswith("tm = tma.make_tma_descriptor(tensor, box_sizes=(8, 32), swizzle=")
    assert "tile = tma.load_tile(tm, (0, 0))" in code
    assert explorer.tensor_map.cpp() in code


def test_the_code_of_the_call_makes_the_same_map(explorer):
    explorer.controls["elem_strides[0]"].value = 3
    explorer.controls["l2_fetch_size"].value = "bytes256"
    names = {"tma": tma, "tensor": explorer._tensor}
    exec(explorer.look.code.split("\n\n")[0], names)
    assert names["tm"] == explorer.tensor_map


@needs_widgets
@pytest.mark.parametrize("shape", [(4096, 4096), (3, 4, 50, 60, 128)], ids=str)
def test_every_value_of_every_control_is_answered(shape):
    explorer = explore(np.zeros(shape, np.float16))
    for name, control in explorer.controls.items():
        old = control.value
        others = (control.max, control.min) if "[" in name else list(control.options)[-1:]
        for value in (*others, old):
            before = explorer.look
            control.value = value[1] if isinstance(value, tuple) else value
            assert explorer.look.choice == before.choice or explorer.look is not before
    assert explorer.look.report.ok


def test_without_ipywidgets_it_shows_the_first_look_and_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    still = explore(numbered((300, 512), np.float32))
    assert isinstance(still, Still)
    assert "pip install &#x27;tma_dlpack[notebook]&#x27;" in still._repr_html_()
    assert "install ipywidgets" in str(still)
    assert "shared memory" in still._repr_html_()
    assert still.tensor_map.box_sizes == (8, 32)


def test_a_viewer_without_widgets_still_gets_the_picture(explorer):
    bundle = explorer._repr_mimebundle_()
    assert "<svg" in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_repair_is_taken_over_by_name():
    choice = Choice((8, 32), (1, 1), swizzle="bytes128")
    changed = choice.changed(
        {"swizzle": tma.TmaSwizzle.bytes64, "target": None, "box_sizes": (4, 16)}
    )
    assert changed == Choice((4, 16), (1, 1), swizzle="bytes64")


def test_a_look_is_the_same_each_time():
    tensor = numbered((64, 64))
    choice = first_choice(tensor)
    assert look(tensor, choice).html() == look(tensor, choice).html()
