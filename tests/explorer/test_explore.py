"""The explorer without a browser: its choices, what is legal of them, and what it answers."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from draw_cases import numbered, pictured

import tma_dlpack as tma
from tma_dlpack.explorer.choice import Choice, choice_of, first_choice, look
from tma_dlpack.explorer.legal import legal_options, legal_ranges, ranges
from tma_dlpack.explorer.page import address, state_of
from tma_dlpack.explorer.widget import Explorer, explore

TENSORS = {
    "a vector": numbered((100,)),
    "a matrix": numbered((300, 512), np.float32),
    "rank 3": numbered((8, 20, 40), np.float16),
    "rank 5": numbered((2, 3, 4, 5, 16)),
    "int8": numbered((64, 64), np.int8),
    "float64": np.zeros((40, 40)),
}
#: What no map describes as it is: the rule that refuses it.
REFUSED = {
    "one column": (numbered((8, 1)), "STRIDE_ALIGNED"),
    "rows of 12 bytes": (numbered((5, 7, 12), np.uint8), "STRIDE_ALIGNED"),
    "transposed": (numbered((64, 32)).T, "STRIDE_INNERMOST"),
}
every_tensor = pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)


def column(**options):
    images = numbered((2, 7, 9, 32), np.float16)
    lower, upper = tma.im2col_corners((3, 3), padding=1)
    return tma.make_im2col_descriptor(images, lower, upper, 32, 40, **options)


@pytest.fixture
def explorer():
    return explore(TENSORS["a matrix"])


def choose(explorer, tab="tensor", **values):
    """Ask as the front end does: ``coords_1`` stands for ``coords[1]``."""
    named = {}
    for name, value in values.items():
        field, _, index = name.rpartition("_")
        named[f"{field}[{index}]" if index.isdigit() else name] = value
    return explorer.hear({"do": "choose", "values": named, "tab": tab, "seq": 1})


# --- How it opens -------------------------------------------------------------------------------


@every_tensor
def test_it_opens_in_a_legal_state(tensor):
    explorer = explore(tensor)
    assert isinstance(explorer, Explorer)
    assert explorer.look.ok
    assert explorer.choice.coords == (0,) * tensor.ndim
    assert explorer.tensor_map.tensor is tensor
    assert explorer.answer({})["panels"]


@pytest.mark.parametrize(("tensor", "rule"), REFUSED.values(), ids=REFUSED)
def test_a_tensor_that_no_map_describes_is_shown_with_padded_rows_and_told_why(tensor, rule):
    explorer = explore(tensor)
    assert explorer.look.ok
    assert rule in explorer.note
    assert explorer.look.tensor_map.shape == tensor.shape
    assert explorer.tensor_map is None  # what is shown is not the user's tensor
    answer = explorer.answer({})
    assert rule in answer["note"]
    assert answer["state"] == "✓ accepted"  # of what is shown
    assert rule in explorer.still()


@pytest.mark.parametrize(("tensor", "rule"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_the_code_for_a_refused_tensor_pads_it_and_is_accepted(tensor, rule, framework):
    module = pytest.importorskip(framework, reason=f"{framework} is not installed")
    own = tensor if framework == "numpy" else module.from_numpy(tensor)
    assert [v.rule for v in tma.check_tma_descriptor(own, (1,) * own.ndim).violations][:1] == [rule]
    ((_, code),) = explore(own).answer({})["codes"]
    names = {"tma": tma, "np": np, "torch": module, "tensor": own}
    exec(code, names)
    assert names["tm"].shape == tuple(own.shape)
    assert np.array_equal(names["tensor"], own)


def test_what_is_stored_contains_no_address_of_host_memory(explorer):
    address = f"{explorer.tensor_map.global_address:x}"
    assert address in explorer.code
    stored = pictured(explorer.still()) + str(explorer)
    stored += pictured(explorer.tensor_map._repr_html_())
    assert address not in stored
    assert "address of the tensor" in stored


def test_a_terminal_says_where_the_explorer_is_seen():
    shown = "<Explorer: a notebook shows it; save(FILE) writes it as a page>"
    assert repr(tma.explore(np.zeros((64, 64), np.float16))) == shown


def test_a_tensor_that_cannot_be_read_is_refused():
    with pytest.raises(tma.TmaPreconditionError):
        explore("no tensor")


def test_what_has_no_shape_for_a_map_opens_with_its_report():
    explorer = explore(np.zeros((2,) * 6, np.float32))
    assert not explorer.look.ok
    assert "RANK" in explorer.answer({})["report"]


def test_the_target_is_that_of_the_map():
    assert explore(numbered((64, 64)), target="sm_100").look.tensor_map.target.name == "sm_100"


# --- Maps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"elem_strides": (1, 2)}, {"oobfill": "nan", "l2_fetch_size": "bytes128"}],
    ids=str,
)
def test_a_map_is_explored_from_where_it_is(options):
    x = numbered((64, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128", **options)
    assert explore(tm).tensor_map == tm


def plane_menus(explorer):
    return [control["options"] for control in explorer.controls() if control["name"] == "plane"]


def drawn_dimensions(answer):
    """Return the dimensions that are drawn down and across, as scripts read them."""
    return [int(re.search(rf'data-{axis}="(\d+) ', answer["panels"][0])[1]) for axis in "yx"]


def test_the_plane_of_a_deep_tensor_is_chosen_from_a_menu():
    explorer = explore(TENSORS["rank 5"])
    (planes,) = plane_menus(explorer)
    assert planes[:3] == ["", "0, 1", "0, 2"]
    assert len(planes) == 1 + 10
    assert drawn_dimensions(explorer.answer({})) == [3, 4]
    answer = choose(explorer, plane="2, 3")
    assert answer["values"]["plane"] == "2, 3"
    assert drawn_dimensions(answer) == [2, 3]
    assert explorer.choice.plane == (2, 3)
    assert "plane" not in explorer.code  # it is of the picture, not of the map
    assert "plane=2,3" in address(state_of(explorer._subject, explorer.choice))
    assert choose(explorer, plane="2, 2")["values"]["plane"] == "2, 3"  # not in the menu
    assert drawn_dimensions(choose(explorer, plane="")) == [3, 4]
    assert "plane" not in address(state_of(explorer._subject, explorer.choice))


@pytest.mark.parametrize(
    "subject",
    [TENSORS["a vector"], TENSORS["a matrix"], column()],
    ids=["a vector", "a matrix", "im2col"],
)
def test_without_three_dimensions_of_a_box_there_is_no_menu_of_planes(subject):
    assert plane_menus(explore(subject)) == []


def test_the_plane_is_set_from_python_to_two_dimensions_in_their_order():
    explorer = explore(TENSORS["rank 3"])
    explorer.set(plane=[0, 2])
    assert drawn_dimensions(explorer.answer({})) == [0, 2]
    for plane in ((0, 3), (2, 0), (1, 1), 1, None):
        with pytest.raises(tma.TmaPreconditionError, match=r"must be one of \[\(\), \(0, 1\)"):
            explorer.set(plane=plane)
    assert explorer.choice.plane == (0, 2)


def test_an_im2col_map_walks_with_its_taps():
    explorer = explore(column(swizzle="bytes64"))
    assert explorer.tensor_map.kind == "im2col"
    assert explorer.choice.coords == (0, -1, -1, 0)
    reach = ranges(explorer._subject, explorer.choice)
    assert reach["im2col_offsets[0]"].most == 2  # a kernel of 3, padding 1
    answer = choose(explorer, im2col_offsets_0=2, im2col_offsets_1=2)
    assert "shifted by the offsets" in answer["panels"][0]
    assert "im2col_offsets=(2, 2)" in explorer.code


def test_a_map_without_its_tensor_lets_only_the_tile_be_chosen():
    tm = tma.TensorMap.from_bytes(
        bytes(tma.make_tma_descriptor(numbered((64, 64)), (8, 32), swizzle="bytes128"))
    )
    explorer = explore(tm)
    assert [control["name"] for control in explorer.controls()] == ["coords[0]", "coords[1]"]
    assert choose(explorer, coords_0=8)["ok"]
    assert explorer.tensor_map == tm


def test_the_choice_of_a_map_makes_the_same_map():
    tm = column(elem_strides=(1, 2, 2, 1), swizzle="bytes64")
    assert look(tm.tensor, choice_of(tm)).tensor_map == tm


# --- Choosing -----------------------------------------------------------------------------------


def test_each_control_changes_the_map(explorer):
    choose(explorer, box_sizes_0=16, oobfill="nan", elem_strides_0=2)
    tm = explorer.tensor_map
    assert (tm.box_sizes, tm.oob_fill.name, tm.elem_strides) == ((16, 32), "nan", (2, 1))
    assert "oobfill='nan'" in explorer.code


def test_coordinates_move_the_tile(explorer):
    assert "box 296..303, 4 of 8 out of bounds" in choose(explorer, coords_0=296)["panels"][0]


def test_what_is_refused_has_a_report_and_a_fix_and_no_picture_of_its_own(explorer):
    answer = choose(explorer, box_sizes_1=33)
    assert (answer["ok"], answer["panels"]) == (False, [])
    assert "BOX_INNER_16B" in answer["report"]
    assert answer["fix"] == "apply box_sizes=(8, 32)"
    assert explorer.tensor_map is None
    assert "accepted</b>" not in answer["report"]
    mended = explorer.hear({"do": "fix", "tab": "tensor"})
    assert mended["ok"]
    assert mended["values"]["box_sizes[1]"] == 32
    assert mended["panels"]


def test_a_tile_that_would_kill_a_kernel_is_mended_by_moving_it(explorer):
    answer = choose(explorer, coords_1=6)
    assert not answer["ok"]
    assert "coords[1] is 6" in answer["refusal"]
    assert "the map is accepted, this tile is refused" in answer["state"]
    assert explorer.hear({"do": "fix"})["values"]["coords[1]"] in (4, 8)
    assert explorer.look.ok


def test_undo_goes_back_to_the_last_accepted(explorer):
    before = choose(explorer, box_sizes_0=24)["values"]
    choose(explorer, box_sizes_1=33)
    assert explorer.hear({"do": "undo"})["values"] == before


@pytest.mark.parametrize(
    "values",
    [{"coords[0]": "x"}, {"coords[9]": 1}, {"swizzle": 3}, {"nothing": 1}, {"coords[0]": None}],
    ids=str,
)
def test_what_is_no_value_of_a_control_is_ignored(explorer, values):
    before = explorer.choice
    explorer.hear({"do": "choose", "values": values})
    assert explorer.choice == before


def test_set_changes_it_from_python(explorer):
    explorer.set(box_sizes=[16, 32], swizzle=tma.TmaSwizzle.none, coords=(8, 32))
    assert explorer.tensor_map.box_sizes == (16, 32)
    assert explorer.tensor_map.swizzle == tma.TmaSwizzle.none
    with pytest.raises(tma.TmaPreconditionError, match="the explorer has no 'boxes'"):
        explorer.set(boxes=(1, 2))


def test_the_code_of_the_call_makes_the_same_map(explorer):
    choose(explorer, elem_strides_0=3, l2_fetch_size="bytes256")
    names = {"tma": tma, "tensor": explorer._subject}
    exec(explorer.code.split("\n\n")[0], names)
    assert names["tm"] == explorer.tensor_map
    assert names["tile"].array.shape == (3, 32)
    assert explorer.tensor_map.cpp() in explorer.code


@pytest.mark.parametrize("tab", ["tensor", "shared", "copy", "banks", "bytes", "code"])
def test_every_tab_answers_in_plain_data(explorer, tab):
    answer = choose(explorer, tab=tab)
    assert json.loads(json.dumps(answer)) == answer
    assert (answer["tab"], bool(answer["panels"])) == (tab, tab != "code")


def test_a_packed_type_snaps_in_its_own_values_and_shows_its_gaps():
    storage = np.zeros(64 * 256 + 128, np.uint8)
    x = storage[-storage.ctypes.data % 128 :][: 64 * 256].reshape(64, 256)
    explorer = explore(x, target="sm_100")
    explorer.set(data_type="16U4_ALIGN16B", box_sizes=(8, 128))
    assert explorer.look.ok
    inner = explorer.legal()["legal"]["coords[1]"]
    assert (inner["step"], inner["most"]) == (128, 512 + 64)
    answer = choose(explorer, tab="shared", coords_1=128)
    assert answer["ok"]
    assert "8 bytes of gap after 8 of values" in answer["panels"][0]


def test_the_banks_tab_steps_through_an_access_and_ranks_the_swizzles():
    x = numbered((128, 64), np.float16)
    explorer = explore(tma.make_tma_descriptor(x, (16, 64)))
    ask = {"do": "show", "tab": "banks", "access": "ldmatrix", "phase": 2}
    answer = explorer.hear(ask)
    assert answer["banks"] == {"phase": 2, "last": 3}
    assert answer["menu"]["options"] == ["column", "row", "ldmatrix"]
    assert "32 wavefronts with none" in answer["title"]
    assert "8 wavefronts, 24 of 32 so far" in answer["panels"][0]
    assert "4, free" in answer["panels"][1]
    assert explorer.hear({**ask, "phase": 99})["banks"]["phase"] == 3


def test_the_tensor_core_tab_shows_the_atoms_or_says_why_it_cannot_read_the_tile():
    x = numbered((128, 64), np.float16)
    good = explore(tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128"))
    assert "64 of M or N, 64 of K" in good.hear({"do": "show", "tab": "core"})["title"]
    answer = explore(numbered((64, 64), np.float64)).hear({"do": "show", "tab": "core"})
    assert (answer["ok"], answer["panels"]) == (True, [])
    assert "FLOAT64" in answer["refusal"]


def test_bytes_that_are_not_known_leave_a_sentence():
    answer = explore(numbered((64, 64)), target="sm_100").hear({"do": "show", "tab": "bytes"})
    assert "has not been measured" in answer["refusal"]


# --- What is legal ------------------------------------------------------------------------------


@every_tensor
def test_what_is_shaded_is_what_the_rules_refuse(tensor):
    choice = first_choice(tensor)
    for name, reach in legal_ranges(tensor, choice, look(tensor, choice).tensor_map).items():
        if name.startswith("coords"):
            continue
        refused = {v for run in reach.refused for v in range(run.first, run.last + 1)}
        for value in range(reach.least, reach.most + 1, 3):
            is_legal = value % reach.step == 0 and value not in refused
            assert look(tensor, choice.put(name, value)).report.ok == is_legal, (name, value)


@every_tensor
def test_coordinates_snap_to_what_a_copy_takes(tensor):
    choice = first_choice(tensor)
    for name, reach in legal_ranges(tensor, choice, look(tensor, choice).tensor_map).items():
        if name.startswith("coords"):
            for value in range(-20, 20):
                moved = look(tensor, choice.put(name, value))
                assert moved.ok == (value % reach.step == 0), (name, value)


def test_a_column_starts_in_its_bounding_box():
    tm = column()
    reach = legal_ranges(tm.tensor, choice_of(tm), tm)
    assert (reach["coords[1]"].least, reach["coords[1]"].most) == (-1, 5)
    assert reach["coords[3]"].step == 8


def test_reasons_name_the_rule_and_the_limit():
    tensor = TENSORS["a matrix"]
    choice = first_choice(tensor)
    reach = legal_ranges(tensor, choice, None)["box_sizes[1]"]
    assert reach.step == 4
    assert reach.reason.startswith("BOX_INNER_16B: it must be a multiple of 16 bytes")
    (run,) = reach.refused
    assert (run.first, run.last) == (36, 256)
    assert run.reason.startswith("BOX_SWIZZLE_SPAN: it must be at most 128 bytes")


def test_options_that_would_be_refused_say_why():
    tensor = TENSORS["a matrix"]
    found = legal_options(tensor, first_choice(tensor))
    assert set(found["swizzle"]) >= {"bytes32", "bytes64"}
    assert "BOX_SWIZZLE_SPAN" in found["swizzle"]["bytes64"]
    assert "bytes128" not in found["swizzle"]


def test_legal_values_are_those_beside_the_last_accepted_choice(explorer):
    before = explorer.legal()
    choose(explorer, box_sizes_1=33)
    assert explorer.legal() == before


# --- Without a kernel ---------------------------------------------------------------------------


def test_the_still_is_an_image_of_the_state_with_its_code(explorer):
    still = explorer.still()
    assert still.count("<img ") == 3
    assert "✓ accepted" in still
    assert "make_tma_descriptor(tensor, box_sizes=(8, 32)" in still
    assert "shape[0] = 300" in pictured(still)


def test_without_anywidget_there_is_a_still_and_a_hint(monkeypatch):
    pytest.importorskip("IPython", reason="IPython is not installed")
    from tma_dlpack.explorer import widget

    widget._widget_class.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    explorer = explore(TENSORS["a matrix"])
    explorer._ipython_display_()
    (data,) = shown
    assert widget.HINT.split("'")[0] in data["text/html"]
    assert "<img " in data["text/html"]
    widget._widget_class.cache_clear()


def test_with_anywidget_the_still_is_kept_beside_the_widget_and_follows_it():
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    explorer = explore(TENSORS["a matrix"])
    panel = explorer.panel
    sent, kept = [], []
    panel.widget.send = sent.append
    panel._still = type("Handle", (), {"update": lambda self, data, raw: kept.append(data)})()
    panel._hear(None, {"do": "choose", "values": {"coords[0]": 8}, "seq": 4}, [])
    panel._hear(None, {"do": "legal", "seq": 5}, [])
    assert [answer["seq"] for answer in sent] == [4, 5]
    assert panel.widget.start["view"]["values"]["coords[0]"] == 8
    assert panel.still_class in kept[0]["text/html"]
    assert "(8, 0)" in kept[0]["text/html"]


def test_a_repair_is_taken_over_by_name():
    choice = Choice((8, 32), (1, 1), swizzle="bytes128")
    changed = choice.changed(
        {"swizzle": tma.TmaSwizzle.bytes64, "target": None, "box_sizes": (4, 16)}
    )
    assert changed == Choice((4, 16), (1, 1), swizzle="bytes64")
