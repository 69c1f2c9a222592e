"""`split_inner=True` and `ragged=dim`: attributes of the map, and coordinates of its tiles."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tma_dlpack as tma

X = np.arange(128 * 256, dtype=np.float32).reshape(128, 256)
WIDE = {"box_sizes": (8, 64), "swizzle": "bytes128"}


def refused(call, rule="ARGUMENT") -> str:
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call()
    assert [violation.rule for violation in caught.value.violations] == [rule]
    return str(caught.value)


def split(**options):
    return tma.make_tma_descriptor(X, **WIDE, split_inner=True, **options)


def test_a_map_remembers_its_options_beside_its_value():
    ordinary = tma.make_tma_descriptor(X, **WIDE | {"box_sizes": (8, 32)})
    ragged = tma.make_tma_descriptor(X, (8, 32), swizzle="bytes128", ragged=-2)
    both = split(ragged=0)
    assert (ordinary.split_inner, ordinary.ragged) == (False, None)
    assert (ragged.split_inner, ragged.ragged) == (False, 0)
    assert (both.split_inner, both.ragged) == (True, 0)
    for made in (ordinary, ragged, both, split()):
        remembered = made.split_inner, made.ragged
        moved = made.with_address(X.copy()), made.with_address(made.global_address)
        bare = tma.driver_replace_address(made, 4096)
        for one in (pickle.loads(pickle.dumps(made)), copy.copy(made), *moved, bare):
            assert (one.split_inner, one.ragged) == remembered
            assert one.key() == made.key()
        read = tma.TensorMap.from_bytes(bytes(made))
        assert (read.split_inner, read.ragged) == (None, None)
        assert read == made
        assert hash(read) == hash(made)


def test_a_kernel_is_not_looked_up_for_a_map_of_another_kind_of_coordinates():
    made = split()
    by_hand = tma.make_tma_descriptor(X, **tma.split_inner(X, (8, 64)))
    assert (made == by_hand, bytes(made) == bytes(by_hand)) == (True, True)
    assert made.key() != by_hand.key()
    assert made.key()._replace(split_inner=False) == by_hand.key()


def test_the_tile_of_a_split_map_is_found_by_the_tensors_coordinates():
    for tensor_map in (split(), tma.make_tma_descriptor(X, **tma.split_inner(X, (8, 64)))):
        for row, column in ((0, 0), (16, 64), (120, 192), (8, 96)):
            at = tma.split_inner_coords(tensor_map, (row, column))
            tile = tma.load_tile(tensor_map, at).array  # (spans, rows, span)
            expected = X[row : row + 8, column : column + 64]
            assert np.array_equal(np.concatenate(list(tile), axis=1), expected)


def test_coordinates_that_no_split_map_has_are_refused():
    plain = tma.make_tma_descriptor(X, (8, 32))
    assert "multiple of 32" in refused(lambda: tma.split_inner_coords(split(), (0, 16)))
    assert "use coords (0, 0)" in refused(lambda: tma.split_inner_coords(split(), (0, 16)))
    assert "be 2 integers" in refused(lambda: tma.split_inner_coords(split(), (0, 0, 0)))
    assert "be 2 integers" in refused(lambda: tma.split_inner_coords(split(), (0, 0.5)))
    assert "split inner dimension" in refused(lambda: tma.split_inner_coords(plain, (0, 0)))
    assert "is a int" in refused(lambda: tma.split_inner_coords(5, (0, 0)))
    both = split(ragged=0)
    assert "tma.ragged_coords" in refused(lambda: tma.split_inner_coords(both, (0, 0)))


@pytest.mark.parametrize("is_split", [False, True])
def test_rows_past_the_end_of_a_slice_are_filled(is_split):
    box = (8, 64) if is_split else (8, 32)
    tensor_map = tma.make_tma_descriptor(X, box, swizzle="bytes128", split_inner=is_split, ragged=0)
    for begin, size in ((5, 3), (64, 20), (120, 8)):
        at = tma.ragged_coords(tensor_map, begin, size, (0, 64))
        tile = tma.load_tile(tensor_map, at).array[0, 0]
        rows = np.concatenate(list(tile), axis=1) if is_split else tile
        expected = np.zeros(box, np.float32)
        count = min(8, size)
        expected[:count] = X[begin : begin + count, 64 : 64 + box[1]]
        assert np.array_equal(rows, expected)
    assert "128 rows" in refused(lambda: tma.ragged_coords(tensor_map, 120, 9, (0, 0)))
    assert "be 2 integers" in refused(lambda: tma.ragged_coords(tensor_map, 0, 8, (0, 0, 0)))


def test_a_ragged_map_of_a_described_tensor_has_the_rows_of_that():
    tensor_map = tma.make_tma_descriptor(X, (8, 32), shape=(64, 256), offset=256, ragged=0)
    at = tma.ragged_coords(tensor_map, 60, 4, (0, 0))
    assert tma.load_tile(tensor_map, at).array[0, 0, 0, 0] == X[61, 0]
    assert "64 rows" in refused(lambda: tma.ragged_coords(tensor_map, 60, 5, (0, 0)))


def test_messages_about_coordinates_name_the_function_that_gives_them():
    said = refused(lambda: tma.load_tile(split(), (0, 0)), "COPY_COORDS_COUNT")
    assert "tma.split_inner_coords" in said
    ragged = tma.make_tma_descriptor(X, (8, 32), ragged=0)
    assert "tma.ragged_coords" in refused(
        lambda: tma.load_tile(ragged, (0, 0)), "COPY_COORDS_COUNT"
    )
    plain = tma.make_tma_descriptor(X, (8, 32))
    assert "_coords" not in refused(lambda: tma.load_tile(plain, (0,)), "COPY_COORDS_COUNT")
    with pytest.raises(tma.TmaUnsupportedError, match="ragged_coords"):
        tma.tile_coords(ragged)
    assert len(tma.tile_coords(split())) == 16 * 4


def test_printed_maps_show_the_options_that_added_dimensions():
    assert "split_inner         True" in str(split())
    assert "ragged              0" in str(split(ragged=-2))
    plain = str(tma.make_tma_descriptor(X, (8, 32)))
    assert "split_inner" not in plain
    assert "ragged" not in plain


def test_generated_code_says_what_the_coordinates_are():
    code = split(ragged=0).cpp()
    assert "(k / 32, .., m, k % 32)" in code
    assert "// ragged=0 added the two outermost dimensions" in code
    assert "cuTensorMapEncodeTiled" in code
    assert "cuda::make_tma_descriptor(" not in code
    plain = tma.make_tma_descriptor(X, (8, 32)).cpp()
    assert "ragged" not in plain
    assert "split_inner" not in plain


#: (change by `replace`, whether the coordinates of each map of `MADE` depend on the change).
REPLACED = {
    "nothing": ({}, (False, False, False)),
    "address": ({"global_address": 4096}, (False, False, False)),
    "to what it was": ({"global_dim": {0: 32}}, (False, None, False)),
    "columns of the box": ({"box_dim": {2: 1}}, (False, None, False)),
    "columns of the tensor": ({"global_dim": {2: 4}}, (False, None, False)),
    "rows of the box": ({"box_dim": {1: 4}}, (False, False, False)),
    "fill and swizzle": ({"fill_mode": "nan", "swizzle_mode": "none"}, (False, False, False)),
    "type of the same size": ({"elemtype": "INT32"}, (False, False, False)),
    "larger type": ({"elemtype": "FLOAT64"}, (True, False, True)),
    "span of the box": ({"box_dim": {0: 16}}, (True, False, True)),
    "span of the tensor": ({"global_dim": {0: 16}}, (True, False, True)),
    "step of spans": ({"global_stride": {1: 256}}, (True, None, True)),
    "rows of the tensor": ({"global_dim": {1: 64}}, (False, True, True)),
    "stride of the rows": ({"global_stride": {0: 2048}}, (False, True, True)),
    "rank": ({"rank": 2}, (True, True, True)),
    "interleave": ({"interleave_layout": "bytes16"}, (True, True, True)),
    "wrapping stride": ({"global_stride": {2: 4096}}, (None, True, True)),
    "wrapping extent": ({"global_dim": {3: 4096}}, (None, True, True)),
}
MADE = {
    "split": {"box_sizes": (8, 64), "split_inner": True},
    "ragged": {"box_sizes": (8, 32), "ragged": 0},
    "both": {"box_sizes": (8, 64), "split_inner": True, "ragged": 0},
}


@pytest.mark.parametrize(
    ("options", "changes", "is_forgotten"),
    [
        pytest.param(options, changes, is_forgotten, id=f"{options}, {change}")
        for change, (changes, forgotten) in REPLACED.items()
        for options, is_forgotten in zip(MADE, forgotten, strict=True)
        if is_forgotten is not None  # None: the map has no such dimension, or another one there
    ],
)
def test_replace_forgets_the_options_whose_coordinates_would_be_wrong(
    options, changes, is_forgotten
):
    made = tma.make_tma_descriptor(X, swizzle="bytes128", **MADE[options])
    replaced = made.replace(**changes)
    remembered = (None, None) if is_forgotten else (made.split_inner, made.ragged)
    moved = replaced.with_address(64), tma.driver_replace_address(replaced, 64)
    for one in (replaced, pickle.loads(pickle.dumps(replaced)), *moved, moved[0].replace()):
        assert (one.split_inner, one.ragged) == remembered
        assert one.key()[-2:] == remembered
    coords = tma.split_inner_coords if options == "split" else slice_at_5
    if is_forgotten:
        refused(lambda: coords(replaced, (0, 0)))
    elif "global_address" not in changes:
        assert coords(replaced, (8, 32)) == coords(made, (8, 32))


def slice_at_5(tensor_map, coords):
    return tma.ragged_coords(tensor_map, 5, 40, coords)


def test_the_batch_item_that_was_replaced_forgets_too():
    (item,) = tma.make_tma_descriptors([X], **WIDE, split_inner=True)
    assert item.split_inner is True
    refused(lambda: tma.split_inner_coords(item.replace(box_dim={0: 16}), (0, 0)))
    at = tma.split_inner_coords(item.replace(global_dim={2: 2}), (16, 64))
    assert at == (2, 16, 0)
