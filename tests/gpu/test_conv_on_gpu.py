"""`make_conv_descriptor` on the hardware: columns times a filter equal torch's convolution."""

from __future__ import annotations

import itertools

import pytest

import tma_dlpack as tma

CONVOLUTIONS = {
    "1-D": (
        (30,),
        {"kernel_size": (5,), "padding": ((3, 1),), "stride": (2,), "dilation": (2,)},
    ),
    "2-D": (
        (9, 10),
        {
            "kernel_size": (3, 2),
            "padding": ((1, 2), (0, 1)),
            "stride": (2, 1),
            "dilation": (1, 3),
        },
    ),
    "3-D": (
        (4, 6, 7),
        {
            "kernel_size": (2, 3, 3),
            "padding": ((0, 1), (1, 1), (2, 0)),
            "stride": (1, 2, 3),
            "dilation": (1, 1, 2),
        },
    ),
}


@pytest.mark.parametrize("swizzle", ["none", "bytes64"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_columns_times_a_filter_are_torch_s_convolution(case, swizzle, torch):
    extents, words = CONVOLUTIONS[case]
    x = torch.randint(-8, 9, (2, *extents, 16), device="cuda").float()
    tm = tma.make_conv_descriptor(
        x, **words, channels_per_pixel=16, pixels_per_column=32, swizzle=swizzle
    )
    weight = torch.randint(-8, 9, (5, 16, *words["kernel_size"])).double()
    sides = [n for before_after in reversed(words["padding"]) for n in before_after]
    padded = torch.nn.functional.pad(x.cpu().double().movedim(-1, 1), sides)
    convolve = getattr(torch.nn.functional, f"conv{len(extents)}d")
    direct = convolve(padded, weight, stride=words["stride"], dilation=words["dilation"])
    expected = direct.movedim(1, -1).reshape(-1, 5)
    result = 0
    for tap in itertools.product(*map(range, words["kernel_size"])):
        offsets = tuple(t * d for t, d in zip(tap, words["dilation"], strict=True))
        tiles = tma.load_tiles(tm, tma.tile_coords(tm), im2col_offsets=offsets)
        pixels = torch.as_tensor(tiles.array.reshape(-1, 16)[: len(expected)].copy()).double()
        result = result + pixels @ weight[(..., *tap)].T
    assert torch.equal(result, expected)
