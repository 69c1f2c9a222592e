"""The explorer without a browser: its choices, the maps of choices, and stored outputs."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from draw_cases import numbered, pictured
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack.explorer.choice import Choice, choice_of, look, read_address
from tma_dlpack.explorer.page import address, state_of
from tma_dlpack.explorer.widget import NAMES, ONLY_TILE, Explorer, about, explore

TENSORS = {
    "a vector": numbered((100,)),
    "a matrix": numbered((300, 512), np.float32),
    "rank 3": numbered((8, 20, 40), np.float16),
    "rank 5": numbered((2, 3, 4, 5, 16)),
    "int8": numbered((64, 64), np.int8),
    "float64": np.zeros((40, 40)),
}
#: A tensor that no map can describe without a change -> the rule that refuses it.
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


# --- How it opens -------------------------------------------------------------------------------


@every_tensor
def test_it_opens_in_a_legal_state(tensor):
    explorer = explore(tensor)
    assert isinstance(explorer, Explorer)
    assert explorer.look.ok
    assert explorer.choice.coords == (0,) * tensor.ndim
    assert explorer.map is explorer.tensor_map
    assert explorer.map.tensor is tensor
    assert explorer.still().count("<img ") >= 2


@pytest.mark.parametrize(("tensor", "rule"), REFUSED.values(), ids=REFUSED)
def test_a_tensor_that_no_map_describes_is_shown_with_padded_rows_and_told_why(tensor, rule):
    explorer = explore(tensor)
    assert explorer.look.ok
    assert rule in explorer.note
    assert explorer.look.tensor_map.shape == tensor.shape
    assert explorer.tensor_map is None  # the page does not show the user's tensor
    assert rule in explorer.still()
    assert "✓ accepted" in explorer.still()  # of what is shown


@pytest.mark.parametrize(("tensor", "rule"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_the_code_for_a_refused_tensor_pads_it_and_is_accepted(tensor, rule, framework):
    module = pytest.importorskip(framework, reason=f"{framework} is not installed")
    own = tensor if framework == "numpy" else module.from_numpy(tensor)
    assert [v.rule for v in tma.check_tma_descriptor(own, (1,) * own.ndim).violations][:1] == [rule]
    code = explore(own).code.split("\n\n")[0]
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
    assert "RANK" in explorer.still()
    assert explorer.panel is not None  # the page says it too


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


def test_a_map_whose_arguments_its_tensor_takes_is_not_the_tile_alone():
    x = numbered((2, 4, 8, 64), np.float16)
    wide = tma.make_im2col_wide_descriptor(x, -1, 0, 64, 32, target="sm_100")
    explorer = explore(wide)
    assert (explorer.map, explorer.note) == (wide, "")
    explorer.set(pixels_per_column=16, mode="w128")
    assert explorer.map.arguments.pixels_per_column == 16
    assert "mode='w128'" in explorer.code


def test_the_plane_is_set_from_python_to_two_dimensions_in_their_order():
    explorer = explore(TENSORS["rank 3"])
    explorer.plane = [0, 2]
    for plane in ((0, 3), (2, 0), (1, 1), 1, None):
        with pytest.raises(tma.TmaPreconditionError, match=r"must be one of \[\(\), \(0, 1\)"):
            explorer.set(plane=plane)
    assert explorer.plane == (0, 2)


def test_an_im2col_map_walks_with_its_taps():
    explorer = explore(column(swizzle="bytes64"))
    assert explorer.map.kind == "im2col"
    assert explorer.coords == (0, -1, -1, 0)
    explorer.im2col_offsets = (2, 2)
    assert "shifted by the offsets" in pictured(explorer.still())
    assert "im2col_offsets=(2, 2)" in explorer.code


def test_a_map_without_its_tensor_lets_only_the_tile_be_chosen():
    tm = tma.TensorMap.from_bytes(
        bytes(tma.make_tma_descriptor(numbered((64, 64)), (8, 32), swizzle="bytes128"))
    )
    explorer = explore(tm)
    assert explorer.note == ONLY_TILE
    assert about(explorer, "")["onlyTile"]
    explorer.set(coords=(8, 0), box_sizes=(4, 32))
    assert explorer.look.ok
    assert explorer.map == tm


@pytest.mark.parametrize(
    "make",
    [
        lambda: column(elem_strides=(1, 2, 2, 1), swizzle="bytes64"),
        lambda: tma.make_im2col_wide_descriptor(
            numbered((2, 4, 8, 64)), 0, -1, 32, 32, target="sm_100"
        ),
    ],
    ids=["im2col", "im2col_wide"],
)
def test_the_choice_of_a_map_makes_the_same_map(make):
    tm = make()
    assert look(tm.tensor, choice_of(tm)).tensor_map == tm


# --- Choosing -----------------------------------------------------------------------------------


def test_each_argument_is_read_and_set_by_its_name(explorer):
    explorer.box_sizes = [16, 32]
    explorer.oobfill = tma.TmaOobFill.nan
    explorer.elem_strides = (2, 1)
    tm = explorer.map
    assert (tm.box_sizes, tm.oob_fill.name, tm.elem_strides) == ((16, 32), "nan", (2, 1))
    assert (explorer.box_sizes, explorer.oobfill) == ((16, 32), "nan")
    assert "oobfill='nan'" in explorer.code
    assert {"map", "save", *NAMES} <= set(dir(explorer))
    for name in NAMES:
        assert getattr(explorer, name) == getattr(explorer.choice, name)


@pytest.mark.parametrize("word", [1, "SWIZZLE_32B", tma.TmaSwizzle.bytes32, "bytes32"])
def test_an_option_is_set_by_every_word_that_means_it(explorer, word):
    explorer.set(swizzle=word, box_sizes=(8, 8))
    assert explorer.swizzle == "bytes32"
    assert "swizzle=bytes32&" in address(explorer.state())
    explorer.swizzle = "bytes23"
    assert explorer.look.report.violations[0].argument == "swizzle"


def test_a_name_that_it_does_not_have_is_refused(explorer):
    with pytest.raises(tma.TmaPreconditionError, match="the explorer has no 'boxes'"):
        explorer.boxes = (1, 2)
    with pytest.raises(AttributeError, match="'Explorer' object has no attribute 'boxes'"):
        _ = explorer.boxes
    with pytest.raises(tma.TmaPreconditionError, match="the explorer has no 'target'"):
        explorer.set(target="sm_100")


def test_coordinates_move_the_tile(explorer):
    explorer.coords = (296, 0)
    assert "box 296..303, 4 of 8 out of bounds" in pictured(explorer.still())


def test_what_is_refused_has_a_report_and_no_picture_of_its_own(explorer):
    explorer.box_sizes = (8, 33)
    assert explorer.map is None
    assert explorer.look.report.violations[0].rule == "BOX_INNER_16B"
    still = explorer.still()
    assert "BOX_INNER_16B" in still
    assert "<img " not in still
    assert "accepted</b>" not in still


def test_a_tile_that_would_kill_a_kernel_is_refused_and_the_map_is_not(explorer):
    explorer.coords = (0, 6)
    assert explorer.map is not None
    assert not explorer.look.ok
    assert "coords[1] is 6" in explorer.look.refusal
    assert "the map is accepted, this tile is refused" in explorer.still()


def test_set_changes_several_at_once(explorer):
    explorer.set(box_sizes=[16, 32], swizzle=tma.TmaSwizzle.none, coords=(8, 32))
    assert explorer.map.box_sizes == (16, 32)
    assert explorer.map.swizzle == tma.TmaSwizzle.none
    assert explorer.coords == (8, 32)


def test_a_split_or_ragged_tile_begins_at_its_first_coordinates():
    explorer = explore(numbered((64, 256), np.float16))
    explorer.set(split_inner=True, box_sizes=(8, 128))
    assert explorer.map.split_inner
    assert explorer.coords == (0, 0, 0)
    assert "split_inner=True" in explorer.code
    explorer.set(split_inner=False, box_sizes=(8, 64), ragged=0)
    assert (explorer.map.ragged, explorer.coords) == (0, (0,) * 4)


def test_the_code_of_the_call_makes_the_same_map(explorer):
    explorer.set(elem_strides=(3, 1), l2_fetch_size="bytes256")
    names = {"tma": tma, "tensor": explorer._subject}
    exec(explorer.code.split("\n\n")[0], names)
    assert names["tm"] == explorer.map
    assert names["tile"].array.shape == (3, 32)
    assert explorer.map.cpp() in explorer.code


# --- The state of the page ----------------------------------------------------------------------

SUBJECTS = {
    **{name: lambda t=t: explore(t) for name, t in TENSORS.items()},
    "im2col": lambda: explore(column(swizzle="bytes64")),
    "padded": lambda: explore(REFUSED["rows of 12 bytes"][0]),
    "for sm_100": lambda: explore(TENSORS["a matrix"], target="sm_100"),
    "no tensor": lambda: explore(tma.TensorMap.from_bytes(bytes(column()))),
}


@pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)
def test_a_state_that_is_heard_is_the_state_that_was_told(make):
    explorer = make()
    before, tensor_map = explorer.choice, explorer.map
    explorer.apply_state(address(explorer.state()) + "&tab=banks&access=row")
    assert explorer.choice == before
    assert explorer.map == tensor_map
    assert (explorer.state()["tab"], explorer.state()["access"]) == ("banks", "row")


def test_the_target_of_a_state_is_the_tensors_where_it_is_the_same(explorer):
    state = address(explorer.state())
    assert "target=sm_90" in state
    explorer.apply_state(state.replace("target=sm_90", "target=sm_100"))
    assert (explorer.choice.target, explorer.map.target.name) == ("sm_100", "sm_100")
    explorer.apply_state(state.replace("target=sm_90", ""))  # which the page leaves out
    assert explorer.choice.target is None


WORDS = [*Choice.__slots__, "tab", "shape", "dtype", "no such", ""]
VALUES = [
    *("x", "", "0", "-1", "8,64", "1,1,1,1,1,1", "1,,2", "9" * 20, "%ff", "\uff11", "1e3", "(1,2)"),
    *("bytes128", "none", "yes", "tiled", "im2col", "im2col_wide", "driver", "libcu++", "sm_100"),
    *("sm_1", "BOX_IN_SHAPE", "UINT8", "w128", "7,7", "-3,-3", "999999999,1", "0,1"),
]


@examples(300)
@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(VALUES)), max_size=6))
def test_a_hostile_state_is_read_as_the_page_reads_it(entries):
    explorer = explore(TENSORS["a matrix"])
    explorer.apply_state("#" + "&".join(f"{name}={text}" for name, text in entries))
    assert explorer.look.tensor_map is not None or not explorer.look.report.ok


@pytest.mark.parametrize("state", ["#kind=x", "#coords=no", "#rules=documented", "%", "#target=1"])
def test_what_cannot_be_read_of_a_state_is_as_it_is_first(state, explorer):
    first = read_address("", explorer.choice)
    explorer.apply_state(state)
    assert explorer.choice.arguments() == first.arguments()


def test_an_address_is_read_without_what_python_does_not_know():
    words = "#kind=im2col&shape=2,7,9,32&coords=0,-1,2,0&split_inner=yes&ragged=1&task=5&allow=A,B"
    choice = read_address(words, Choice(elem_strides=(1,) * 4, preparation="x = 1\n"))
    assert (choice.kind, choice.coords, choice.ragged) == ("im2col", (0, -1, 2, 0), 1)
    assert (choice.split_inner, choice.allow) == (True, ("A", "B"))
    assert (choice.elem_strides, choice.preparation) == ((1,) * 4, "x = 1\n")


@pytest.mark.parametrize("tensor", [np.zeros((2,) * 9), np.zeros(())], ids=["9 dimensions", "none"])
def test_what_the_page_does_not_have_is_shown_as_a_report(tensor):
    explorer = explore(tensor)
    assert explorer.panel is None
    assert "✗ refused" in explorer.still()
    assert "<iframe" not in explorer.still()
    with pytest.raises(tma.TmaUnsupportedError, match="the page has no tensor of"):
        explorer.state()


def test_a_map_of_a_packed_type_alone_is_described_by_its_bytes():
    storage = np.zeros(64 * 256 + 128, np.uint8)
    x = storage[-storage.ctypes.data % 128 :][: 64 * 256].reshape(64, 256)
    tm = tma.make_tma_descriptor(x, (8, 128), data_type="16U4_ALIGN16B", target="sm_100")
    state = state_of(tm, choice_of(tm))
    assert (state["shape"], state["strides"], state["dtype"]) == ((64, 256), (256, 1), "uint8")
    assert state["data_type"] == "16U4_ALIGN16B"


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


@pytest.fixture
def panel(explorer):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    return explorer.panel


def test_the_still_is_kept_beside_the_widget_and_follows_it(explorer, panel):
    kept = []
    panel._still = type("Handle", (), {"update": lambda self, data, raw: kept.append(data)})()
    panel.widget.state = panel.widget.state.replace("coords=0,0", "coords=8,0")
    assert explorer.coords == (8, 0)
    assert panel.still_class in kept[0]["text/html"]
    assert "(8, 0)" in kept[0]["text/html"]
    assert panel.widget.about["stored"] == panel.still_class


def test_what_is_set_in_python_goes_to_the_page_once_and_is_not_heard_again(explorer, panel):
    panel.widget.state += "&tab=banks"
    sent = []
    panel.widget.observe(lambda change: sent.append(change["new"]), "state")
    explorer.box_sizes = (16, 32)
    (state,) = sent
    assert "box_sizes=16,32&" in state
    assert state.endswith("&tab=banks")
    assert explorer.box_sizes == (16, 32)


def test_the_page_is_sent_to_a_widget_that_asks_for_it(explorer, panel):
    sent = []
    panel.widget.send = sent.append
    panel._ask(None, {"do": "page"}, [])
    panel._ask(None, "nonsense", [])
    ((name, text),) = sent[0].items()
    assert (len(sent), name) == (1, "page")
    assert text.startswith("<!doctype html>")
    assert f'"{address(explorer.state(is_stored=True))}"' in text


def test_a_repair_is_taken_over_by_name():
    choice = Choice((8, 32), (1, 1), swizzle="bytes128")
    changed = choice.changed(
        {"swizzle": tma.TmaSwizzle.bytes64, "target": None, "box_sizes": (4, 16)}
    )
    assert changed == Choice((4, 16), (1, 1), swizzle="bytes64")


def test_a_rule_is_allowed_away_of_an_im2col_map_too():
    images = np.zeros((4, 32, 64), np.float16)
    overlapping = np.lib.stride_tricks.as_strided(images, (4, 8, 8, 64), (4096, 128, 128, 2))
    choice = Choice(
        kind="im2col",
        pixel_box_lower_corner=(0, 0),
        pixel_box_upper_corner=(0, 0),
        channels_per_pixel=64,
        pixels_per_column=8,
    )
    assert [v.rule for v in look(overlapping, choice).report.violations] == ["STRIDE_UNIQUE"]
    allowed = look(overlapping, replace(choice, allow=("STRIDE_UNIQUE",)))
    assert allowed.ok
    assert "allow=('STRIDE_UNIQUE',)" in allowed.code


def test_map_is_read_only_and_says_why_it_is_none():
    explorer = explore(np.zeros((64, 256), np.float16))
    with pytest.raises(tma.TmaPreconditionError, match="read only"):
        explorer.map = None
    assert "save(FILE)" in repr(explorer)
    explorer.box_sizes = (16, 33)
    assert explorer.map is None
    assert "BOX_INNER_16B" in repr(explorer)
