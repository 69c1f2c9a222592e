"""Every picture of a map has a layout for a phone of 390 px, in which nothing is cut off."""

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.draw.grid import MARGIN, NARROW, WORDS, bounds

MAPS = {
    "two dimensions": tma.make_tma_descriptor(
        np.zeros((30, 104), np.float16), (8, 64), swizzle="bytes128"
    ),
    "four dimensions": tma.make_tma_descriptor(
        np.zeros((64, 64, 128, 256), np.float16), (2, 8, 8, 64), swizzle="bytes128"
    ),
}
PICTURES = ["tensor", "shared", "bank_conflicts", "copy_motion", "barrier"]
PICTURES += ["fields_of", "access_steps", "swizzle_bits", "matrix"]


@pytest.mark.parametrize("of", MAPS)
@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_fits_a_phone(name, of):
    if name == "matrix" and of != "two dimensions":
        pytest.skip("a tensor core reads matrices")
    figure = getattr(draw, name)(MAPS[of])
    for scene in figure.narrow_scenes():
        assert scene.width <= NARROW
        for cell in scene.items:
            left, _, right, _ = bounds(cell)
            if cell.style in WORDS and cell.text:
                assert left >= MARGIN - 1, cell.text
                assert right <= scene.width, cell.text


@pytest.mark.parametrize("name", PICTURES)
def test_no_two_texts_of_a_narrow_picture_overlap(name):
    figure = getattr(draw, name)(MAPS["two dimensions"])
    for scene in figure.narrow_scenes():
        texts = [cell for cell in scene.items if cell.style in WORDS and cell.text and not cell.css]
        for n, cell in enumerate(texts):
            left, top, right, bottom = bounds(cell)
            for other in texts[n + 1 :]:
                x0, y0, x1, y1 = bounds(other)
                across, down = min(right, x1) - max(left, x0), min(bottom, y1) - max(top, y0)
                assert across <= 1 or down <= 3, (cell.text, other.text)
