"""Small multiples: every map is in its place and to scale, and only the wrong map is marked."""

from __future__ import annotations

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.draw.cards import LEAST, MOST_MAPS, ROOM, multiples
from tma_dlpack.draw.grid import NARROW, bounds


def made(shape, box):
    return tma.make_tma_descriptor(np.zeros(shape, np.float16), box)


IMAGES = tma.make_im2col_descriptor(
    np.zeros((2, 16, 16, 32), np.float16),
    pixel_box_lower_corner=(0, 0),
    pixel_box_upper_corner=(0, 0),
    channels_per_pixel=16,
    pixels_per_column=8,
)
MAPS = [
    (1, made((64, 128), (16, 64)), False),
    (2, made((4, 4096, 8), (1, 256, 8)), True),
    (4, made((64,), (64,)), False),
    (5, IMAGES, False),
]


def rectangles(scene, style):
    return [c for c in scene.items if c.style == style and c.title]


def test_each_tensor_and_its_box_are_to_scale_and_only_the_wrong_one_is_marked():
    figure = multiples(MAPS, "4 maps")
    for scene in (*figure.scenes(), *figure.narrow_scenes()):
        tensors = rectangles(scene, "tensor")
        boxes = rectangles(scene, "taken")
        (wrong,) = rectangles(scene, "conflict")
        assert wrong.title.startswith("map 2: ")
        assert [c.title[:5] for c in tensors] == ["map 1", "map 2", "map 4", "map 5"]
        assert [(c.columns, c.rows) for c in tensors] == [
            (ROOM[0], ROOM[1]),
            (LEAST, ROOM[1]),
            (ROOM[0], LEAST),
            (ROOM[0], ROOM[1]),
        ]
        assert [(c.columns, c.rows) for c in boxes] == [(56, 14), (ROOM[0], LEAST), (56, 28)]
        assert (wrong.columns, wrong.rows) == (LEAST, 3.5)


def test_a_phones_panel_is_no_wider_than_it_and_has_two_in_a_row():
    (scene,) = multiples(MAPS, "4 maps").narrow_scenes()
    assert scene.width <= NARROW
    assert len({c.column for c in rectangles(scene, "tensor")}) == 2
    assert all(0 <= bounds(c)[0] <= bounds(c)[2] <= scene.width for c in scene.items)


@pytest.mark.parametrize("count", [MOST_MAPS, MOST_MAPS + 1])
def test_many_maps_are_named_but_not_all_drawn(count):
    figure = multiples([(n, MAPS[0][1], False) for n in range(count)], "many")
    (scene,) = figure.scenes()
    assert len(rectangles(scene, "tensor")) == MOST_MAPS
    is_cut = any("further map not drawn" in c.text for c in scene.items)
    assert is_cut is (count > MOST_MAPS)
    assert len(figure.text().splitlines()) == count + 1
