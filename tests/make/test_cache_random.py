"""The cache is never seen: random sequences of calls give what a fresh cache gives.

Tensors change their layout between calls, die, and come back at the same address; options are equal
and of different types; objects count as integers and change their mind; threads share a cache.
"""

import random
import sys
import threading
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack.make import build
from tma_dlpack.make.cache import LayoutCache

torch = pytest.importorskip("torch")

STORAGE_ELEMS = 8192

# -- tensors that change -------------------------------------------------------------------------

#: (shape, strides, offset), elements: pairs that differ in one number; good ones and refused ones.
LAYOUTS = [
    ((64, 64), (64, 1), 0),
    ((64, 64), (64, 1), 64),
    ((64, 64), (64, 1), 1),  # misaligned
    ((64, 64), (80, 1), 0),
    ((64, 64), (60, 1), 0),  # a stride of 120 or 240 bytes
    ((32, 64), (64, 1), 0),
    ((64, 32), (64, 1), 0),
    ((64, 32), (128, 2), 0),  # not contiguous inside
    ((64, 64), (0, 1), 0),  # expanded
    ((1, 64), (7, 1), 0),  # a stride that no access uses
    ((2, 32, 64), (2048, 64, 1), 0),
    ((64,), (1,), 0),
    ((0, 64), (64, 1), 0),
    ((), (), 0),
]
DTYPES = [torch.float16, torch.bfloat16, torch.int16, torch.float32, torch.int32, torch.complex64]
NUMPY_DTYPES = ["<f2", "<i2", "<u2", "<f4", ">f4", "<c8"]


def torch_tensor(dtype, layout):
    return torch.zeros(STORAGE_ELEMS, dtype=dtype).as_strided(*layout)


def numpy_array(dtype, layout):
    shape, strides, offset = layout
    room = np.zeros(STORAGE_ELEMS, dtype)
    byte_strides = tuple(stride * room.itemsize for stride in strides)
    return np.ndarray(shape, dtype, room, offset * room.itemsize, byte_strides)


def restride(x, layout):
    return x.as_strided_(*layout) if is_plain_torch(x) else x


def resize(x, layout):
    return x.resize_(layout[0]) if is_plain_torch(x) else x


def set_to_other_storage(x, layout):
    return x.set_(torch.zeros(STORAGE_ELEMS, dtype=x.dtype)) if is_plain_torch(x) else x


def new_data(x, layout):
    if is_plain_torch(x):
        x.data = torch_tensor(x.dtype, layout)
    return x


def negate(x, layout):
    return torch._neg_view(x) if is_plain_torch(x) and not x.dtype.is_complex else x


def conjugate(x, layout):
    return x.conj() if isinstance(x, torch.Tensor) else x


def as_parameter(x, layout):
    floating = isinstance(x, torch.Tensor) and x.dtype.is_floating_point and not x.is_neg()
    return torch.nn.Parameter(x) if floating else x


def toggle_writeable(x, layout):
    if isinstance(x, np.ndarray):
        x.flags.writeable = not x.flags.writeable and x.base.flags.writeable
    return x


def is_plain_torch(x):
    return type(x) is torch.Tensor and not x.is_neg() and not x.is_conj()


CHANGES = [
    restride,
    resize,
    set_to_other_storage,
    new_data,
    negate,
    conjugate,
    as_parameter,
    toggle_writeable,
]

# -- options that look alike ---------------------------------------------------------------------


class Other(IntEnum):
    one = 1
    two = 2


class Fickle:
    """Counts as 16, then 32, then 16..., and says that it equals both."""

    def __init__(self):
        self.calls = 0

    def __index__(self):
        self.calls += 1
        return 16 if self.calls % 2 else 32

    def __eq__(self, other):
        return other in (16, 32)

    def __hash__(self):
        return hash(16)


class Pretender:
    """Says that it is the string "none", or None."""

    def __init__(self, like):
        self.like = like

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(self.like)


class Word(str):
    __slots__ = ()


# What is drawn are functions, so that objects with a state are new for each sequence of calls.
BOXES = [
    lambda: (16, 32),
    lambda: [16, 32],
    lambda: (16.0, 32),
    lambda: (np.int64(16), 32),
    lambda: (np.float32(16), 32),
    lambda: (Fickle(), 32),
    lambda: (True, 32),
    lambda: (1, 32),
    lambda: (Other.one, 32),
    lambda: np.array([16, 32]),
    lambda: torch.tensor([16, 32]),
    lambda: torch.Size((16, 32)),
    lambda: iter((16, 32)),
    lambda: "16",
    lambda: (1, 16, 32),
    lambda: (32,),
]
SWIZZLES = [
    *(lambda value=value: value for value in ("bytes64", Word("bytes64"), "none", "bytes128")),
    *(lambda value=value: value for value in (2, 2.0, np.int8(2), 0, False, 0.0, "2", None)),
    *(lambda value=value: value for value in (tma.TmaSwizzle.bytes64, Other.two)),
    lambda: Pretender("none"),
    lambda: Pretender("bytes64"),
]
OTHER_OPTIONS = [
    {},
    {"elem_strides": (1, 1)},
    {"elem_strides": (True, 1)},
    {"elem_strides": (1.0, 1)},
    {"elem_strides": (2, 1)},
    {"oobfill": "nan"},
    {"oobfill": 1},
    {"oobfill": True},
    {"oobfill": tma.TmaL2FetchSize.bytes64},
    {"l2_fetch_size": tma.TmaL2FetchSize.bytes64},
    {"l2_fetch_size": 1},
    {"interleave_layout": 0},
    {"data_type": "UINT16"},
    {"data_type": 1},
    {"data_type": tma.TensorMapDataType.UINT16},
    {"data_type": Pretender(None)},
    {"rules": "driver"},
    {"target": "sm_90"},
    {"target": tma.Target((9, 0))},
    {"target": "sm_100"},
    {"target": Pretender("sm_90")},
]


def sequence(rng, length=50):
    """Random steps on two tensors, with so few layouts and options that calls come again."""

    def some_of(choices):
        few = [choices[0], choices[0], rng.choice(choices), rng.choice(choices)]
        return lambda: rng.choice(few)

    layout, dtype, option = some_of(LAYOUTS), some_of(DTYPES + NUMPY_DTYPES), some_of(OTHER_OPTIONS)
    box, swizzle = some_of(range(len(BOXES))), some_of(range(len(SWIZZLES)))
    for _ in range(length):
        what = rng.choice(["new", "change", "call", "call", "call", "call"])
        place = rng.randrange(2)
        if what == "new":
            yield what, place, dtype(), layout()
        elif what == "change":
            yield what, place, rng.choice(CHANGES), layout()
        else:
            yield what, place, box(), swizzle(), option()


@contextmanager
def cache(of_this_kind):
    before, build.CACHE = build.CACHE, of_this_kind
    try:
        yield
    finally:
        build.CACHE = before


def outcome(x, box, swizzle, options):
    """Everything that a call says: the map and what it knows, or every violation."""
    try:
        tm = tma.make_tma_descriptor(x, box, swizzle=swizzle, **options)
    except tma.TmaPreconditionError as error:
        return type(error), [(v.rule, v.argument, v.limit) for v in error.violations]
    data = bytes(tm) if tm.encoder else None
    assert tm.tensor is x
    return data, tm.arguments, tm.view, tm.target, tm.launchable, tm.encoder, tm.advice


def fresh_outcome(*call):
    with cache(LayoutCache()):
        return outcome(*call)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=True), st.sampled_from([1, 2, 4096, 4096]))
def test_a_shared_cache_gives_what_a_fresh_one_gives(rng, maxsize):
    shared = LayoutCache(maxsize)
    tensors = [torch_tensor(torch.float16, LAYOUTS[0]) for _ in range(2)]
    # The same objects in all calls, twice, because some of them are used up or change with use.
    boxes, swizzles = [make() for make in BOXES], [make() for make in SWIZZLES]
    fresh_boxes, fresh_swizzles = [make() for make in BOXES], [make() for make in SWIZZLES]
    for what, place, *rest in sequence(rng):
        if what == "new":
            dtype, layout = rest
            tensors[place] = None  # frees the storage, which the next one may get
            make = torch_tensor if isinstance(dtype, torch.dtype) else numpy_array
            tensors[place] = make(dtype, layout)
        elif what == "change":
            change, layout = rest
            tensors[place] = change(tensors[place], layout)
        else:
            box, swizzle, options = rest
            x = tensors[place]
            want = fresh_outcome(x, fresh_boxes[box], fresh_swizzles[swizzle], options)
            with cache(shared):
                assert outcome(x, boxes[box], swizzles[swizzle], options) == want
        assert shared.info().currsize <= maxsize


def test_threads_that_share_a_small_cache_get_their_own_maps():
    rng = random.Random(7)
    threads, calls_each = 6, 150
    work = []
    for _ in range(threads):
        tensors = [torch_tensor(torch.float16, layout) for layout in LAYOUTS[:6]]
        calls = [
            (
                rng.choice(tensors),
                (16, 32),
                rng.choice(SWIZZLES[:3])(),
                rng.choice(OTHER_OPTIONS[:3]),
            )
            for _ in range(calls_each)
        ]
        work.append([(call, fresh_outcome(*call)) for call in calls])
    shared, wrong, start = LayoutCache(maxsize=8), [], threading.Barrier(threads)

    def run(calls):
        start.wait()
        wrong.extend(call for call, want in calls if outcome(*call) != want)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with cache(shared):
            running = [threading.Thread(target=run, args=(calls,)) for calls in work]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    info = shared.info()
    assert info.currsize <= 8
    assert info.hits > 0 < info.misses


def test_a_tensor_freed_and_allocated_again_at_its_address_is_read_anew():
    shared, addresses = LayoutCache(), set()
    with cache(shared):
        for rows in (64, 32, 64, 16) * 5:
            x = torch.zeros(64 * 64, dtype=torch.float16)[: rows * 64].view(rows, 64)
            tm = tma.make_tma_descriptor(x, (16, 32))
            assert (tm.shape, tm.global_address, tm.tensor) == ((rows, 64), x.data_ptr(), x)
            addresses.add(x.data_ptr())
            del x, tm
    assert len(addresses) < 20  # some of them came again, or the test says nothing
    assert shared.info().currsize == 3


@pytest.mark.parametrize(
    "equal_options",
    [
        pytest.param([{"swizzle": 2}, {"swizzle": tma.TmaSwizzle.bytes64}], id="value and member"),
        pytest.param([{"elem_strides": (1, 1)}, {"elem_strides": (np.int8(1), 1)}], id="integers"),
    ],
)
def test_options_that_are_equal_and_of_other_types_are_known_side_by_side(equal_options):
    shared, x = LayoutCache(), torch_tensor(torch.float16, LAYOUTS[0])
    with cache(shared):
        for options in equal_options * 3:
            tma.make_tma_descriptor(x, (16, 32), **options)
    assert shared.info()[:2] == (4, 2)


def test_a_list_or_a_new_tuple_of_the_same_box_is_known():
    shared, x = LayoutCache(), torch_tensor(torch.float16, LAYOUTS[0])
    with cache(shared):
        for box in ([16, 32], (16, 32), tuple(iter((16, 32))), [16, 32]):
            tma.make_tma_descriptor(x, box)
    assert shared.info()[:2] == (3, 1)
