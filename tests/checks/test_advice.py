"""Advice: each row has a request to which it applies, and a neighbour without the advice."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from strategies import im2col, tiled, view, wide

import tma_dlpack as tma
from tma_dlpack.checks.advice import ADVICE, advise, bank_conflict_degree
from tma_dlpack.checks.call import read_call
from tma_dlpack.checks.report import find_violations
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import TensorView
from tma_dlpack.tables.errors import Advice
from tma_dlpack.tables.targets import Target

KIB = 1024
KINDS = {
    "box_sizes": "tiled",
    "pixel_box_lower_corner": "im2col",
    "lower_corner_width": "im2col_wide",
}


def accepted(
    x: TensorView, given: dict[str, Any], target: Target | str = "sm_90", assumed: bool = False
) -> Request:
    """A request that breaks no rule."""
    kind = next(kind for word, kind in KINDS.items() if word in given)
    request = read_call(kind, x.at(0), x.address, given, Target.of(target), assumed)
    assert find_violations(request) == ()
    return request


def advice_of(rule: str, request: Request) -> Advice | None:
    return next((a for a in advise(request) if a.rule == rule), None)


def matrix(columns, rows=64, pitch=None, dtype=(2, 32)):
    """Return a matrix, float32 by default, whose rows are `pitch` elements apart."""
    return view((rows, columns), dtype, strides=(pitch or columns, 1))


def two_rows(bytes_apart):
    """Two rows of 256 bytes."""
    return matrix(64, rows=2, pitch=bytes_apart // 4)


def images(width_pitch=64):
    """Two images of 9 x 9 pixels, 64 channels of float16."""
    pitch = width_pitch
    return view((2, 9, 9, 64), (2, 16), strides=(81 * pitch, 9 * pitch, pitch, 1))


def with_driver(version):
    return Target((10, 0), driver_version=version)


EVEN = matrix(64)
ROWS = tiled((16, 32), swizzle="bytes128")  # a row of 128 bytes, as wide as the swizzle
ONE_ROW = tiled((1, 16))
COLUMN = im2col((0, 0), (0, 0), 64, 8, swizzle="bytes128")
WIDE_COLUMN = wide(0, 0, 64, 8)

#: (row, difference, request to which the row applies, request to which it does not apply).
NEIGHBOURS = [
    ("TARGET_ASSUMED", "named", (EVEN, ROWS, "sm_90", True), (EVEN, ROWS, "sm_90", False)),
    (
        "BEYOND_TENSOR",
        "one row more",
        (EVEN, ROWS | {"shape": (65, 64)}),
        (EVEN, ROWS | {"shape": (64, 64)}),
    ),
    (
        "STRIDES_IN_BYTES",
        "in bytes",
        (EVEN, ROWS | {"shape": (64, 64), "strides": (256, 1)}),
        (EVEN, ROWS | {"shape": (64, 64), "strides": (252, 1)}),
    ),
    (
        "STRIDES_IN_BYTES",
        "beyond the tensor",
        (EVEN, ROWS | {"shape": (17, 64), "strides": (256, 1)}),
        (EVEN, ROWS | {"shape": (16, 64), "strides": (256, 1)}),  # every fourth row
    ),
    (
        "CHANNELS_BEYOND",
        "one unit more",
        (images(), COLUMN | {"channels_per_pixel": 72, "swizzle": "none"}),
        (images(), COLUMN),
    ),
    (
        "ELEM_STRIDES_TILE",
        "every second row",
        (EVEN, tiled((16, 32), swizzle="bytes128", elem_strides=(2, 1))),
        (EVEN, tiled((1, 32), swizzle="bytes128", elem_strides=(2, 1))),
    ),
    (
        "ELEM_STRIDES_TILE",
        "the innermost only when interleaved",
        (
            view((2, 2, 8, 8)),
            tiled((1, 1, 8, 4), interleave_layout="bytes16", elem_strides=(1, 1, 1, 2)),
        ),
        (view((2, 2, 8, 8)), tiled((1, 1, 8, 4), elem_strides=(1, 1, 1, 2), rules="driver")),
    ),
    (
        "DIM_OVER_2_31",
        "one row more",
        (matrix(64, rows=(1 << 31) + 1), ROWS),
        (matrix(64, rows=1 << 31), ROWS),
    ),
    (
        "DIM_OVER_2_31",
        "one row of 16 bytes more",
        (matrix((1 << 31) + 4, rows=1), tiled((1, 32))),
        (matrix(1 << 31, rows=1), tiled((1, 32))),
    ),
    (
        "DIM_OVER_2_31",
        "tiled maps alone",
        (view(((1 << 31) + 1, 9, 9, 64), (2, 16)), tiled((1, 1, 1, 64))),
        (view(((1 << 31) + 1, 9, 9, 64), (2, 16)), COLUMN),
    ),
    *(
        row
        for rule in ("STORE_OVERRUN", "COORDINATE_STEP")
        for row in (
            (rule, "rows of 248 bytes", (matrix(62, pitch=64), ROWS), (EVEN, ROWS)),
            (
                rule,
                "rows of 255 bytes",
                (matrix(255, pitch=256, dtype=(1, 8)), tiled((16, 128), swizzle="bytes128")),
                (matrix(256, dtype=(1, 8)), tiled((16, 128), swizzle="bytes128")),
            ),
            (
                rule,
                "not interleaved",
                (view((2, 2, 2, 7), strides=(32, 16, 8, 1)), tiled((1, 1, 1, 4))),
                (
                    view((2, 2, 2, 7), strides=(32, 16, 8, 1)),
                    tiled((1, 1, 1, 4), interleave_layout="bytes16"),
                ),
            ),
        )
    ),
    ("BANK_CONFLICTS", "no swizzle", (EVEN, tiled((16, 32))), (EVEN, ROWS)),
    ("BANK_CONFLICTS", "rows of 32 bytes", (EVEN, tiled((8, 8))), (EVEN, tiled((8, 4)))),
    ("BANK_CONFLICTS", "rows of 128 bytes", (EVEN, tiled((8, 32))), (EVEN, tiled((8, 36)))),
    ("BANK_CONFLICTS", "five rows", (EVEN, tiled((5, 8))), (EVEN, tiled((4, 8)))),
    (
        "BANK_CONFLICTS",
        "five rows, every second of the box",
        (EVEN, tiled((9, 8), elem_strides=(2, 1))),
        (EVEN, tiled((8, 8), elem_strides=(2, 1))),
    ),
    (
        "BANK_CONFLICTS",
        "five pixels",
        (images(), im2col((0, 0), (0, 0), 16, 5)),
        (images(), im2col((0, 0), (0, 0), 16, 4)),
    ),
    (
        "BANK_CONFLICTS",
        "not interleaved",
        (view((2, 2, 8, 8)), tiled((1, 1, 8, 8))),
        (view((2, 2, 8, 8)), tiled((1, 1, 8, 8), interleave_layout="bytes16")),
    ),
    (
        "NARROW_ROWS",
        "rows of 16 bytes",
        (EVEN, tiled((16, 4))),
        (EVEN, tiled((16, 8))),
    ),
    (
        "NARROW_ROWS",
        "of a wider tensor",
        (view((64, 8)), tiled((16, 4))),
        (view((64, 4)), tiled((16, 4))),
    ),
    (
        "NARROW_ROWS",
        "not interleaved",
        (view((2, 2, 8, 8)), tiled((1, 1, 8, 4))),
        (view((2, 2, 8, 8)), tiled((1, 1, 8, 4), interleave_layout="bytes16")),
    ),
    (
        "SWIZZLE_PADDING",
        "rows of 112 bytes",
        (EVEN, tiled((16, 28), swizzle="bytes128")),
        (EVEN, tiled((16, 32), swizzle="bytes128")),
    ),
    (
        "SWIZZLE_PADDING",
        "with swizzle",
        (EVEN, tiled((16, 4), swizzle="bytes32")),
        (EVEN, tiled((16, 4))),
    ),
    (
        "SWIZZLE_PADDING",
        "not interleaved",
        (view((2, 2, 8, 8)), tiled((1, 1, 8, 4), swizzle="bytes32")),
        (
            view((2, 2, 8, 8)),
            tiled((1, 1, 8, 4), interleave_layout="bytes32", swizzle="bytes32"),
        ),
    ),
    (
        "BIT_85",
        "on compute capability 10.0",
        (two_rows(512), ONE_ROW, "sm_100"),
        (two_rows(512), ONE_ROW, "sm_90"),
    ),
    (
        "BIT_85",
        "with a driver before 13.2",
        (two_rows(512), ONE_ROW, with_driver(13019)),
        (two_rows(512), ONE_ROW, with_driver(13020)),
    ),
    (
        "BIT_85",
        "under 128 KiB",
        (two_rows(128 * KIB - 16 - 256), ONE_ROW, "sm_100"),
        (two_rows(128 * KIB - 256), ONE_ROW, "sm_100"),
    ),
    (
        "BIT_85",
        "not dense",
        (two_rows(256 + 16), ONE_ROW, "sm_100"),
        (two_rows(256), ONE_ROW, "sm_100"),
    ),
    (
        "BIT_85",
        "im2col maps too",
        (images(72), COLUMN, "sm_100"),
        (images(64), COLUMN, "sm_100"),
    ),
    (
        "WIDE_ON_SM_90",
        "below compute capability 10.0",
        (images(), WIDE_COLUMN | {"rules": "driver"}, "sm_90"),
        (images(), WIDE_COLUMN | {"rules": "driver"}, "sm_100"),
    ),
    (
        "WIDE_ON_SM_90",
        "im2col-wide maps alone",
        (images(), WIDE_COLUMN | {"rules": "driver"}, "sm_90"),
        (images(), COLUMN, "sm_90"),
    ),
]


@pytest.mark.parametrize(
    ("rule", "applies", "does_not"),
    [pytest.param(rule, *cases, id=f"{rule}: {step}") for rule, step, *cases in NEIGHBOURS],
)
def test_advice_is_given_up_to_its_limit_and_not_a_step_beyond(rule, applies, does_not):
    reported = advice_of(rule, accepted(*applies))
    assert reported is not None
    assert all((reported.argument, reported.found, reported.limit, reported.fix, reported.source))
    assert advice_of(rule, accepted(*does_not)) is None


def test_every_row_of_advice_has_neighbours():
    of_the_driver = {"ADDRESS_ZERO"}  # the test of this row is below
    rows = [row.id for row in ADVICE if row.id not in of_the_driver]
    assert rows == list(dict.fromkeys(rule for rule, *_ in NEIGHBOURS))


def test_a_map_of_address_0_comes_with_advice():
    arguments = ("FLOAT32", 2, 0, (64, 64), (256,), (32, 16), (1, 1), 0, 3)
    at_0 = tma.driver_encode_tiled(*arguments, encoder="model")
    assert "ADDRESS_ZERO" in [advice.rule for advice in at_0.advice]
    at_16 = tma.driver_encode_tiled(*arguments[:2], 16, *arguments[3:], encoder="model")
    assert "ADDRESS_ZERO" not in [advice.rule for advice in at_16.advice]


def test_the_tile_of_element_strides_is_named():
    request = accepted(EVEN, tiled((17, 32), swizzle="bytes128", elem_strides=(2, 1)))
    tile = advice_of("ELEM_STRIDES_TILE", request)
    assert (
        tile.found == "a box of (17, 32) with elem_strides (2, 1) gives a tile of (9, 32) elements"
    )


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", range(1, 10))
@pytest.mark.parametrize("pitch", range(16, 272, 16))
def test_the_degree_is_that_of_the_busiest_group_of_banks(pitch, rows):
    groups = Counter(row * pitch % 128 // 16 for row in range(min(rows, 8)))
    assert bank_conflict_degree(pitch, rows) == max(groups.values())


@pytest.mark.parametrize(
    ("columns", "ways", "fix"),
    [
        (8, 2, "use swizzle='bytes32' and read through the same pattern"),
        (16, 4, "use swizzle='bytes64' and read through the same pattern"),
        (24, 2, "use swizzle='bytes128' and read through the same pattern"),
        (32, 8, "use swizzle='bytes128' and read through the same pattern"),
        (40, 2, "narrow the box to 32 elements (128 bytes) and use swizzle='bytes128'"),
    ],
)
def test_the_fix_of_bank_conflicts_is_the_narrowest_swizzle_that_takes_the_row(columns, ways, fix):
    reported = advice_of("BANK_CONFLICTS", accepted(EVEN, tiled((16, columns))))
    assert reported.found.startswith(f"rows of {4 * columns} bytes")
    assert reported.found.endswith(f"{ways}-way bank conflicts")
    assert reported.fix == fix
    swizzle = re.search("swizzle='(.*?)'", fix)[1]
    followed = accepted(EVEN, tiled((16, min(columns, 32)), swizzle=swizzle))
    assert advice_of("BANK_CONFLICTS", followed) is None


def test_numbers_in_advice_are_those_of_the_request():
    ragged = accepted(matrix(63, pitch=64), ROWS)
    assert advice_of("STORE_OVERRUN", ragged).found == "the last dimension spans 252 bytes"
    step = advice_of("COORDINATE_STEP", ragged)
    assert step.found == "a tile that ends with the row would start at element 31"
    assert step.fix == "step the innermost coordinate by multiples of 4 elements"
    padding = advice_of("SWIZZLE_PADDING", accepted(EVEN, tiled((16, 28), swizzle="bytes128")))
    assert padding.found == "rows of 112 bytes take 128 bytes each in shared memory"
    assert padding.fix == "widen the box to 32 elements, or use swizzle='none'"
    small = advice_of("BIT_85", accepted(two_rows(512), ONE_ROW, "sm_100"))
    assert small.found == "a tensor of 768 bytes that is not dense, on sm_100"


def test_only_tiled_maps_have_their_bit_85_cleared():
    tile = advice_of("BIT_85", accepted(two_rows(512), ONE_ROW, "sm_100"))
    column = advice_of("BIT_85", accepted(images(72), COLUMN, "sm_100"))
    ways = (
        "make the tensor dense; or pad its allocation to 128 KiB; or update the driver to CUDA "
        "13.2 or later, whose maps are right (from 13.5 cuTensorMapSetAllocationClass sets the "
        "class)"
    )
    assert column.fix == ways
    assert tile.fix == f"{ways}; or use encoder='driver' or libcu++, which clear the bit"


@pytest.mark.parametrize("data_type", ["16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"])
def test_the_swizzle_that_is_proposed_for_packed_values_is_accepted(data_type):
    x = view((64, 1536), (1, 8))
    columns = 64 if data_type == "16U4_ALIGN8B" else 128
    options = tiled((16, columns), data_type=data_type, target="sm_100")
    advice = advice_of("BANK_CONFLICTS", accepted(x, options, "sm_100"))
    row_bytes = 32 if data_type == "16U4_ALIGN8B" else 128  # with the gaps
    assert advice.found.startswith(f"rows of {row_bytes} bytes")
    swizzle = re.search("swizzle='(.*?)'", advice.fix)[1]
    followed = accepted(x, options | {"swizzle": swizzle}, "sm_100")
    assert advice_of("BANK_CONFLICTS", followed) is None
    assert advice_of("SWIZZLE_PADDING", followed) is None
