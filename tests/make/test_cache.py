"""A known layout is not checked again, and never lends its map to another request."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack.make import build
from tma_dlpack.make.cache import LayoutCache
from tma_dlpack.types.target import Target


@pytest.fixture(autouse=True)
def empty_cache():
    tma.cache_clear()
    yield
    tma.cache_clear()


def counts():
    info = tma.cache_info()
    return info.hits, info.misses, info.currsize


def array(shape=(64, 64), dtype=np.float32):
    """An array whose address is a multiple of 256."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + 256, np.uint8)
    start = -room.ctypes.data % 256
    return room[start : start + size].view(dtype).reshape(shape)


def test_a_repeated_layout_is_looked_up():
    a, b = array(), array()
    first = tma.make_tma_descriptor(a, (16, 16))
    assert counts() == (0, 1, 1)
    second = tma.make_tma_descriptor(b, (16, 16))
    assert counts() == (1, 1, 1)
    assert second.global_address == b.ctypes.data
    assert bytes(first)[8:] == bytes(second)[8:]
    assert bytes(second)[:8] == b.ctypes.data.to_bytes(8, "little")


def test_lists_and_tuples_of_equal_entries_share_an_entry():
    x = array()
    assert tma.make_tma_descriptor(x, [16, 16]) == tma.make_tma_descriptor(x, (16, 16))
    assert counts() == (1, 1, 1)


def test_clearing_forgets_layouts_and_counts():
    tma.make_tma_descriptor(array(), (16, 16))
    tma.cache_clear()
    assert counts() == (0, 0, 0)


def test_a_refused_call_is_not_kept():
    for _ in range(2):
        with pytest.raises(tma.TmaPreconditionError):
            tma.make_tma_descriptor(array(), (16, 3))
    assert counts() == (0, 2, 0)


def test_a_known_layout_at_a_misaligned_address_is_refused():
    x = array((65, 64), np.uint8)
    tma.make_tma_descriptor(x[:64], (16, 16))
    shifted = np.ndarray((64, 64), np.uint8, buffer=x, offset=8)
    with pytest.raises(tma.TmaPreconditionError, match="past a multiple of 16"):
        tma.make_tma_descriptor(shifted, (16, 16))


def test_a_known_layout_at_16_bytes_is_refused_where_32_are_asked():
    x = array((65, 8, 64), np.uint8)
    options = {"interleave_layout": "bytes32", "swizzle": "bytes32"}
    tma.make_tma_descriptor(x[:64], (1, 8, 32), **options)
    shifted = np.ndarray((64, 8, 64), np.uint8, buffer=x, offset=16)
    with pytest.raises(tma.TmaPreconditionError, match="past a multiple of 32"):
        tma.make_tma_descriptor(shifted, (1, 8, 32), **options)


class Chameleon:
    """Equal to everything, and another integer each time it is asked."""

    def __init__(self, *values):
        self.values = list(values)

    def __index__(self):
        return self.values.pop(0)

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(16)


@pytest.mark.parametrize(
    ("known", "stranger"),
    [
        ({"box_sizes": (1, 16)}, {"box_sizes": (True, 16)}),
        ({"box_sizes": (1, 16)}, {"box_sizes": (1.0, 16)}),
        ({"box_sizes": (1, 16)}, {"box_sizes": (tma.TmaSwizzle.bytes32, 16)}),
        ({"box_sizes": (1, 16)}, {"box_sizes": (np.True_, 16)}),
        ({"box_sizes": (1, 16)}, {"box_sizes": (np.float64(1), 16)}),
        ({"box_sizes": (1, 16)}, {"box_sizes": (1 + 0j, 16)}),
        ({"box_sizes": (16, 16)}, {"box_sizes": (16, Chameleon(3))}),
        ({"swizzle": 2}, {"swizzle": 2.0}),
        ({"swizzle": 2}, {"swizzle": tma.TmaL2FetchSize.bytes128}),
        ({"swizzle": tma.TmaSwizzle.bytes64}, {"swizzle": tma.TmaL2FetchSize.bytes128}),
        ({"oobfill": 1}, {"oobfill": True}),
        ({"data_type": 7}, {"data_type": 7.0}),
    ],
)
def test_equal_options_of_other_types_do_not_pass_as_known(known, stranger):
    x = array()
    fine = {"box_sizes": (16, 16)}
    tma.make_tma_descriptor(x, **fine | known)
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptor(x, **fine | stranger)
    assert caught.value.violations[0].argument == next(iter(stranger))


def test_an_object_that_counts_as_an_integer_is_asked_each_time():
    x = array()
    box = (16, Chameleon(16, 32, 3))
    assert tma.make_tma_descriptor(x, box).box_sizes == (16, 16)
    assert tma.make_tma_descriptor(x, box).box_sizes == (16, 32)
    with pytest.raises(tma.TmaPreconditionError):
        tma.make_tma_descriptor(x, box)
    assert tma.cache_info().currsize == 0


def test_a_generator_is_not_kept():
    box = (n for n in (16, 16))
    tma.make_tma_descriptor(array(), box)
    assert tma.cache_info().currsize == 0
    with pytest.raises(tma.TmaPreconditionError):
        tma.make_tma_descriptor(array(), box)


def test_a_list_that_changes_is_another_option():
    x, box = array(), [16, 16]
    assert tma.make_tma_descriptor(x, box).box_sizes == (16, 16)
    box[0] = 8
    assert tma.make_tma_descriptor(x, box).box_sizes == (8, 16)
    box[1] = 3
    with pytest.raises(tma.TmaPreconditionError):
        tma.make_tma_descriptor(x, box)


def test_numpy_integers_are_kept_and_answer_as_python_integers_do():
    x = array()
    given_numpy = tma.make_tma_descriptor(x, tuple(np.array([16, 16])))
    given_python = tma.make_tma_descriptor(x, (16, 16))
    assert given_numpy == given_python
    assert all(type(n) is int for n in (*given_numpy.box_sizes, *given_python.box_sizes))


@pytest.mark.parametrize(
    "other",
    [
        {"x": array((32, 64))},
        {"x": array(dtype=np.int32)},
        {"x": array((64, 128))[:, :64]},
        {"box_sizes": (16, 32)},
        {"elem_strides": (2, 1)},
        {"swizzle": "bytes64"},
        {"l2_fetch_size": "bytes128"},
        {"oobfill": "nan"},
        {"data_type": "TFLOAT32"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_every_part_of_a_request_counts(other):
    fine = {"x": array(), "box_sizes": (16, 16)}

    def made(x, **options):
        return tma.make_tma_descriptor(x, **options)

    uncached = made(**fine | other)
    tma.cache_clear()
    known = made(**fine)
    assert made(**fine | other) == uncached != known
    assert tma.cache_info().currsize == 2


def test_targets_and_rules_count_too():
    x = array()
    maps = [
        tma.make_tma_descriptor(x, (16, 16), target=target, rules=rules)
        for target in (None, "sm_100", Target((9, 0), 4096))
        for rules in ("libcu++", "driver")
    ]
    assert counts() == (0, 6, 6)
    assert [m.target.name for m in maps] == ["sm_90", "sm_90", "sm_100", "sm_100", "sm_90", "sm_90"]


def test_kinds_of_maps_do_not_mix():
    x = array((2, 14, 14, 64), np.float16)
    column = tma.make_im2col_descriptor(x, (0, 0), (0, 0), 64, 64)
    tile = tma.make_tma_descriptor(x, (1, 1, 1, 64))
    assert (column.kind, tile.kind) == ("im2col", "tiled")
    assert tma.cache_info().currsize == 2


def test_the_cache_is_bounded_and_forgets_the_oldest_first():
    cache = LayoutCache(maxsize=4)
    template = tma.make_tma_descriptor(array(), (16, 16))._template
    for n in range(10):
        cache.keep("tiled", ("layout", n), (n,), template)
        assert cache.info().currsize == min(n + 1, 4)
    known = [cache.find("tiled", ("layout", n), (n,), 256) is not None for n in range(10)]
    assert known == [False] * 6 + [True] * 4


def test_no_tensor_is_kept_alive_by_the_cache():
    class Array(np.ndarray):
        """A subclass: it is asked through __dlpack__, as any producer is."""

    x = array().view(Array)
    tm = tma.make_tma_descriptor(x, (16, 16))
    assert tma.cache_info().currsize == 1
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is not None  # the map keeps it
    del tm
    gc.collect()
    assert alive() is None
    assert tma.cache_info().currsize == 1


LAYOUTS = [
    ((64, 64), np.float32),
    ((32, 128), np.float16),
    ((8, 16, 64), np.uint8),
    ((128,), np.int64),
]
OPTIONS = [
    {"unit": 1},
    {"unit": 2},
    {"unit": 2, "swizzle": "bytes32"},
    {"unit": 1, "l2_fetch_size": "bytes256"},
    {"unit": 3, "swizzle": "bytes32"},  # refused: the row is wider than the pattern
]


def make(x, unit, **options):
    """Give the bytes of a map, or the rules that refused it."""
    box = (1,) * (x.ndim - 1) + (unit * 16 // x.itemsize,)
    try:
        return bytes(tma.make_tma_descriptor(x, box, **options))
    except tma.TmaPreconditionError as error:
        return [v.rule for v in error.violations]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=30))
def test_any_sequence_of_calls_answers_as_without_a_cache(calls):
    tma.cache_clear()
    arrays = [array(*layout) for layout in LAYOUTS]
    for layout, option, freed in calls:
        if freed:
            arrays[layout] = array(*LAYOUTS[layout])
        cached = make(arrays[layout], **OPTIONS[option])
        build.CACHE, kept = LayoutCache(), build.CACHE
        try:
            assert make(arrays[layout], **OPTIONS[option]) == cached
        finally:
            build.CACHE = kept


def test_eight_threads_get_what_one_gets():
    arrays = [array(*layout) for layout in LAYOUTS for _ in range(2)]
    requests = [(x, options) for x in arrays for options in OPTIONS]
    expected = [make(x, **options) for x, options in requests]
    tma.cache_clear()
    wrong = []
    start = threading.Barrier(8)

    def work(offset):
        start.wait()
        for turn in range(10):
            for n in range(len(requests)):
                number = (n * 7 + offset * 5 + turn) % len(requests)
                x, options = requests[number]
                if turn == 5 and n == 0 and offset == 0:
                    tma.cache_clear()
                if make(x, **options) != expected[number]:
                    wrong.append((offset, number))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert tma.cache_info().currsize == len(LAYOUTS) * 4
