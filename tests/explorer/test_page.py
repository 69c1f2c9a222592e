"""The page as a file: its size, its state, and its copy in a stored notebook."""

from __future__ import annotations

import re

import numpy as np
from draw_cases import numbered

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.explorer.choice import choice_of
from tma_dlpack.explorer.page import address, embedded, page, state_of
from tma_dlpack.explorer.widget import explore

MOST_BYTES = 600_000
MOST_EMBEDDED = 104_000


def test_the_page_is_small_and_names_no_other_file():
    text = page({"shape": (64, 128)})
    assert len(text.encode()) <= MOST_BYTES
    assert re.findall(r"<link|<script src|import |https?://(?!www\.w3\.org/)", text) == []


def test_the_command_writes_the_page_and_says_nothing(tmp_path, capsys):
    path = tmp_path / "a.html"
    words = ["--shape", "64,128", "--dtype", "bf16", "--box", "8,64", "--swizzle", "SWIZZLE_128B"]
    assert main(["explore", *words, "--out", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert '"#shape=64,128&dtype=bfloat16&' in text
    assert "&box_sizes=8,64&" in text
    assert "&swizzle=bytes128&" in text
    assert capsys.readouterr().out == ""


def test_the_command_opens_the_page_in_the_browser(monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert main(["explore"]) == 0
    path = capsys.readouterr().out.strip()
    assert opened == [f"file://{path}"]


def test_the_command_without_a_browser_names_the_file(monkeypatch, capsys):
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert main(["explore"]) == 0
    assert "no browser was found here; open the file yourself" in capsys.readouterr().err


def test_a_state_is_that_of_the_explorer_without_the_address_of_this_process():
    x = numbered((64, 128), np.float32)
    explorer = explore(x)
    explorer.set(box_sizes=(16, 32), coords=(8, 32))
    state = state_of(x, explorer.choice, is_stored=True)
    assert state["shape"] == (64, 128)
    assert state["strides"] == (128, 1)
    assert state["dtype"] == "float32"
    assert state["address"] == 1 << 32
    crooked = x.view(np.uint8).reshape(-1)[4:8004].reshape(50, 160)
    choice = explore(crooked).choice
    assert state_of(crooked, choice, is_stored=True)["address"] == (1 << 32) + 4
    assert state_of(crooked, choice)["address"] == crooked.ctypes.data
    text = address(state)
    assert "box_sizes=16,32&" in text
    assert "coords=8,32" in text
    assert "None" not in text


def test_an_explorer_is_saved_as_a_page_in_its_state(tmp_path):
    lower, upper = tma.im2col_corners((3, 3), padding=1)
    images = numbered((2, 7, 9, 32), np.float16)
    tensor_map = tma.make_im2col_descriptor(images, lower, upper, 32, 40, swizzle="bytes64")
    path = tmp_path / "conv.html"
    explore(tensor_map).save(path)
    text = path.read_text(encoding="utf-8")
    assert "&kind=im2col&" in text
    assert "&shape=2,7,9,32&" in text
    assert "&pixels_per_column=40&" in text


def test_a_map_without_its_tensor_has_a_page_too():
    x = numbered((64, 128), np.float16)
    known = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")
    bare = tma.TensorMap.from_bytes(bytes(known))
    state = state_of(bare, choice_of(bare))
    assert state["shape"] == (64, 128)
    assert state["strides"] == (128, 1)
    assert (state["dtype"], state["data_type"]) == ("float16", "FLOAT16")
    assert state["address"] == known.global_address


def test_a_wide_map_has_a_page_too(tmp_path):
    x = np.zeros((2, 4, 8, 64), np.float16)
    wide = tma.make_im2col_wide_descriptor(x, 0, -1, 64, 32, mode="w128", target="sm_100")
    explore(wide).save(tmp_path / "wide.html")
    text = (tmp_path / "wide.html").read_text(encoding="utf-8")
    assert "&kind=im2col_wide&" in text
    assert "lower_corner_width=0&upper_corner_width=-1&channels_per_pixel=64&" in text
    assert "mode=w128&" in text
    assert "<iframe" in explore(wide).still()


def test_a_stored_notebook_carries_the_page_folded_and_compressed():
    still = explore(numbered((64, 128), np.float32)).still()
    assert still.count("<iframe") == 1
    assert "shape=64,128" in still
    assert len(embedded({"shape": (64, 128)})) <= MOST_EMBEDDED
