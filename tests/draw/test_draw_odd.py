"""Drawing an object that is not a map, tile or report raises an error, and does not crash."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from draw_cases import IM2COL, TILED

import tma_dlpack as tma
from tma_dlpack import draw

TILE = TILED["a dense tile"].tile()
MAP = TILE.tensor_map
COLUMN = IM2COL["a 3x3 convolution"].tensor_map
REPORT = tma.check_tma_descriptor(TILED["a dense tile"].tensor, (16, 3))


class Pretending:
    __class__ = tma.TensorMap


ODD = {
    "None": lambda: None,
    "a number": lambda: 3,
    "a number of 5000 digits": lambda: 10**5000,
    "a number of NumPy": lambda: np.float32(3),
    "an array": lambda: np.array([16, 64]),
    "an array of objects": lambda: np.array([object(), None], object),
    "a word": lambda: "diag",
    "bytes": lambda: b"row",
    "a list": lambda: [object()],
    "a dict": lambda: {0: object()},
    "endless": itertools.count,
    "no map, says otherwise": Pretending,
    "a class": lambda: tma.TensorMap,
}
WHOLE = {
    "bank_conflicts": draw.bank_conflicts,
    "tensor": draw.tensor,
    "shared": draw.shared,
    "walk": draw.walk,
    "figure": draw.figure,
    "the figure of bytes": lambda odd: draw.figure(odd, "bytes"),
    "fields_of": draw.fields_of,
    "diff, first": lambda odd: draw.diff(odd, MAP),
    "diff, second": lambda odd: draw.diff(MAP, odd),
    "tensor_map_html": draw.tensor_map_html,
    "tile_html": draw.tile_html,
    "report_html": draw.report_html,
}
OPTIONS = {
    "a title": lambda odd: draw.page(odd, []),
    "parts": lambda odd: draw.page("maps", odd),
    "a part": lambda odd: draw.page("maps", [odd]),
    "a figure's name": lambda odd: draw.figure(MAP, odd),
    "access": lambda odd: draw.bank_conflicts(MAP, odd),
    "what access gives": lambda odd: draw.bank_conflicts(MAP, lambda t: odd),
    "an index": lambda odd: draw.bank_conflicts(MAP, lambda t: (0, odd)),
    "threads": lambda odd: draw.bank_conflicts(MAP, lambda t: (0, 0), threads=odd),
    "bytes per thread": lambda odd: draw.bank_conflicts(
        MAP, lambda t: (0, 0), bytes_per_thread=odd
    ),
}
#: Unusual pictures that are right.
TAKEN = {
    ("a title", "a word"),
    ("a part", "a word"),
    ("what access gives", "None"),
    ("an index", "a number"),
    ("threads", "a number"),
    ("bytes per thread", "None"),
}
REFUSED = sorted(set(itertools.product(OPTIONS, ODD)) - TAKEN)


@pytest.mark.parametrize(("option", "odd"), sorted(TAKEN))
def test_what_only_looks_odd_is_drawn(option, odd):
    drawn = OPTIONS[option](ODD[odd]())
    assert "<html" in drawn if option in ("a title", "a part") else drawn.degree in (0, 1, 8)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("verb", WHOLE.values(), ids=WHOLE)
def test_what_is_neither_map_nor_tile_nor_report_is_refused(verb, odd):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        verb(odd())
    assert [v.rule for v in refused.value.violations] == ["ARGUMENT"]
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("option", "odd"), REFUSED)
def test_an_odd_option_is_refused(option, odd):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        OPTIONS[option](ODD[odd]())
    assert [v.rule for v in refused.value.violations] == ["ARGUMENT"]
    assert len(str(refused.value)) < 600


def test_a_refusal_says_what_was_given_and_what_is_asked():
    with pytest.raises(tma.TmaPreconditionError) as refused:
        draw.shared(3)
    assert str(refused.value) == (
        "tensor_map is of type int; it must be a TensorMap or a Tile\n"
        "  fix: pass make_tma_descriptor(x, ...)\n"
        "  rule: ARGUMENT"
    )


def test_the_map_is_called_tensor_map_everywhere():
    assert draw.bank_conflicts(tensor_map=MAP, access="row").degree == 1
    for verb in (draw.tensor, draw.shared, draw.figure, draw.fields_of):
        assert verb(tensor_map=MAP).title
    assert draw.walk(tensor_map=COLUMN).title
    assert draw.tensor_map_html(tensor_map=MAP)
    assert tma.explore(tensor=TILED["a dense tile"].tensor).tensor_map is not None


@pytest.mark.parametrize("verb", [draw.bank_conflicts, draw.tensor, draw.shared, draw.figure])
def test_the_tensor_map_may_be_a_tile(verb):
    assert verb(tensor_map=TILE).title
