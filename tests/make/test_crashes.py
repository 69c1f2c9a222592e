"""Inputs that crash other packages or make them lose an exception.

They are odd tensors, re-entry and interrupts.

tests/sanitizers.sh runs this file with AddressSanitizer.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.make import extension
from tma_dlpack.tensor_map.map import TensorMap

compiled = pytest.mark.skipif(not extension.COMPILED, reason="the extension is not built here")
BOX = (16, 64)
IM2COL = ((-1, -1), (-1, -1), 64, 32)


def array(rows: int = 128) -> np.ndarray:
    return np.zeros((rows, 64), np.float16)


def run(source: str) -> None:
    """Run a program in a separate process, with or without the C extension as this process."""
    lane = "" if extension.COMPILED else "import python_lane\n"
    tests = str(Path(__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {tests!r})\n{lane}" + textwrap.dedent(source)
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=300)


# ---- tensors whose memory is gone ----------------------------------------------------------------


def test_a_deleted_jax_array_is_refused_by_every_verb():
    jnp = pytest.importorskip("jax.numpy")
    x, y, image = jnp.ones((64, 64)), jnp.ones((64, 64)), jnp.ones((2, 14, 14, 64))
    made = tma.make_tma_descriptor(x, (8, 16))
    y.delete()
    image.delete()
    verbs = {
        "make": lambda: tma.make_tma_descriptor(y, (8, 16)),
        "batch": lambda: tma.make_tma_descriptors([x, y], (8, 16)),
        "with_address": lambda: made.with_address(y),
        "im2col": lambda: tma.make_im2col_descriptor(image, *IM2COL),
        "im2col_wide": lambda: tma.make_im2col_wide_descriptor(image, 0, 0, 64, 32),
        "check": lambda: tma.check_tma_descriptor(y, (8, 16)).raise_if_refused(),
    }
    for name, verb in verbs.items():
        with pytest.raises(tma.TmaPreconditionError, match="Array has been deleted") as caught:
            verb()
        assert [v.rule for v in caught.value.violations][:1] == ["TENSOR_EXPORT"], name
    assert made.with_address(x) == made


# ---- objects that only we make -------------------------------------------------------------------


@compiled
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: tma.make_tma_descriptor, id="function"),
        pytest.param(lambda: tma.make_tma_descriptors([array()], BOX)._made, id="batch"),
    ],
)
def test_the_types_of_inner_objects_cannot_be_instantiated(made):
    kind = type(made())
    assert kind.__module__ != "builtins"
    for make in (kind, lambda: object.__new__(kind), lambda: kind.__new__(kind)):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(TypeError):
        type("Sub", (kind,), {})


def test_a_map_without_content_raises_what_it_lacks():
    empty = object.__new__(TensorMap)
    for read in (bytes, repr, hash, lambda tm: tm.ptr, lambda tm: tm.with_address(4096)):
        with pytest.raises(Exception):  # noqa: B017, PT011 - any error, but no crash
            read(empty)


@compiled
def test_a_compiled_function_is_itself_when_copied_and_can_be_called_in_every_way():
    verb, x = tma.make_tma_descriptor, array()
    assert copy.copy(verb) is copy.deepcopy(verb) is verb
    made = verb(x, BOX)
    assert made == verb(*(x,), **{"box_sizes": BOX}) == verb.__call__(x, BOX)
    assert made == type(verb).__call__(verb, x, box_sizes=BOX) == verb.__wrapped__(x, BOX)


# ---- Python code that runs while a tensor is read ------------------------------------------------


class Producer:
    """A tensor that the extension considers a known library's, because of its module's name."""

    __module__ = "cupy.tests"

    def __init__(self, before=lambda: None):
        self.array = array()
        self.before = before

    def __dlpack__(self, **keywords):
        self.before()
        return self.array.__dlpack__(max_version=(1, 0))

    def __dlpack_device__(self):
        return (1, 0)


def test_types_learned_while_a_type_is_learned_do_not_overflow_their_table():
    run(
        """
        import numpy as np, tma_dlpack as tma

        class Meta(type):
            following = {}

            @property
            def __module__(cls):  # asked when the type is learned, which learns the next one first
                following = Meta.following.pop(cls, None)
                if following is not None:
                    tma.make_tma_descriptor(following(), (16, 64))
                return "cupy.tests"

        def method(self, **keywords):
            return np.zeros((64, 64), np.float16).__dlpack__(max_version=(1, 0))

        names = {"__dlpack__": method, "__dlpack_device__": lambda self: (1, 0)}
        types = [Meta(f"Type{i}", (), dict(names)) for i in range(64)]
        Meta.following.update(zip(types, types[1:]))
        for kind in (types[0], *types):
            assert tma.make_tma_descriptor(kind(), (16, 64)).shape == (64, 64)
        assert not Meta.following
        """
    )


@compiled
def test_a_batch_is_not_seen_before_it_is_filled():
    def batches():
        return [one for one in gc.get_objects() if type(one) is kind]

    kind = type(tma.make_tma_descriptors([array()], BOX)._made)
    seen = []
    tensors = [array(), Producer(lambda: seen.append(batches())), array()]
    batch = tma.make_tma_descriptors(tensors, BOX)
    assert seen
    assert seen == [[]] * len(seen)
    assert batches() == [batch._made]  # the collector tracks the object when it is complete
    assert [tm.shape for tm in batch] == [(128, 64)] * 3


class AsksForItself:
    """A tensor whose methods make a map of itself."""

    def __init__(self, error, in_device):
        self.error, self.in_device, self.calls = error, in_device, 0

    def __dlpack__(self, **keywords):
        self.calls += 1
        try:
            tma.make_tma_descriptor(self, BOX)
        except tma.TmaError as refused:
            raise (self.error("no") if self.error else refused) from refused

    def __dlpack_device__(self):
        if self.in_device:
            tma.make_tma_descriptor(self, BOX)
        return (1, 0)


MODULES = "tests.unknown", "cupy.tests", "mlx.tests"
ASKING = {name: type("Asks", (AsksForItself,), {"__module__": name}) for name in MODULES}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("in_device", [False, True], ids=["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize("error", [None, TypeError, ValueError], ids=["as is", "Type", "Value"])
def test_a_tensor_that_asks_for_a_map_of_itself_is_refused_soon(module, in_device, error):
    x = ASKING[module](error, in_device)
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptor(x, BOX)
    assert 1 <= x.calls <= 20
    assert [v.rule for v in caught.value.violations] == ["TENSOR_EXPORT"]
    if error is None:
        assert "needs a tensor map of itself" in str(caught.value)


def test_a_tensor_that_makes_a_map_of_another_and_two_threads_with_one_tensor_are_served():
    inner = []
    x = Producer(lambda: inner.append(tma.make_tma_descriptor(Producer(), BOX)))
    outer = tma.make_tma_descriptor(x, BOX)
    assert {tm.shape for tm in (outer, *inner)} == {(128, 64)}
    assert inner
    both = threading.Barrier(2)
    y, maps = Producer(lambda: both.wait(60)), []
    threads = [
        threading.Thread(target=lambda: maps.append(tma.make_tma_descriptor(y, BOX)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maps == [maps[0]] * 2


# ---- interrupts ----------------------------------------------------------------------------------


class Once:
    """Raise an error the first time only, so that asking again would lose it."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def __call__(self):
        self.calls += 1
        if self.calls == 1:
            raise self.error


def integer(value, once):
    def index(self):
        once()
        return value

    return type("Integer", (np.int64,), {"__index__": index})(value)


INTEGERS = {
    "box_sizes": lambda n: tma.make_tma_descriptor(array(), (n(16), 64)),
    "box_sizes in a list": lambda n: tma.make_tma_descriptor(array(), [n(16), 64]),
    "swizzle": lambda n: tma.make_tma_descriptor(array(), BOX, swizzle=n(3)),
    "elem_strides": lambda n: tma.make_tma_descriptor(array(), BOX, (n(1), 1)),
    "batch": lambda n: tma.make_tma_descriptors([array()], (n(16), 64)),
    "channels": lambda n: tma.make_im2col_descriptor(
        np.zeros((2, 14, 14, 64), np.float16), (-1, -1), (-1, -1), n(64), 32
    ),
    "driver_encode_tiled": lambda n: tma.driver_encode_tiled(
        "UINT8", 1, n(4096), (64,), (), (64,), (1,), encoder="model"
    ),
}


@pytest.mark.parametrize("verb", INTEGERS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit], ids=lambda e: e.__name__)
def test_an_interrupt_inside_an_index_method_is_raised(verb, error):
    once = Once(error)
    with pytest.raises(error):
        INTEGERS[verb](lambda value: integer(value, once))
    assert once.calls == 1


@compiled
@pytest.mark.parametrize("verb", INTEGERS)
def test_running_out_of_memory_inside_an_index_method_is_raised(verb):
    with pytest.raises(MemoryError):
        INTEGERS[verb](lambda value: integer(value, Once(MemoryError())))


@pytest.mark.parametrize("verb", INTEGERS)
def test_another_error_inside_an_index_method_leaves_the_call_to_the_rules(verb):
    once = Once(ValueError("once"))
    try:
        made = INTEGERS[verb](lambda value: integer(value, once))
    except tma.TmaError:  # asked once more and refused
        assert not extension.COMPILED
    else:
        assert made is not None
    assert once.calls >= 1


def test_an_index_method_that_empties_its_list_does_no_harm():
    def empty():
        box.clear()
        gc.collect()

    box = [integer(16, empty), *map(np.int64, (64,))]
    with contextlib.suppress(tma.TmaPreconditionError):
        assert tma.make_tma_descriptor(array(), box).box_sizes == BOX
    assert box == []


@compiled
def test_an_interrupt_while_a_type_is_learned_is_raised_and_other_errors_are_not():
    pytest.importorskip("torch", reason="torch is not installed")
    run(
        """
        import sys, types, numpy as np, torch, tma_dlpack as tma
        from tma_dlpack.dlpack import torch_tensor

        pending = []

        def interrupted():
            if pending:
                raise pending.pop()

        class Meta(type):
            @property
            def __module__(cls):
                interrupted()
                return "cupy.tests"

        def method(self, **keywords):
            return np.zeros((64, 64), np.float16).__dlpack__(max_version=(1, 0))

        Known = Meta("Known", (), {"__dlpack__": method, "__dlpack_device__": lambda self: (1, 0)})

        class Module(types.ModuleType):
            @property
            def Tensor(self):
                interrupted()
                return torch.Tensor

        is_neg, real = torch.Tensor.is_neg, sys.modules["torch"]
        stand_in = Module("torch")
        stand_in.__dict__.update({k: v for k, v in vars(real).items() if k != "Tensor"})

        def table():
            interrupted()
            return dtypes

        dtypes = torch_tensor.torch_dtype_table()
        x = torch.zeros(64, 64, dtype=torch.float16)

        def of_module(thing):
            sys.modules["torch"] = stand_in
            try:
                return tma.make_tma_descriptor(thing, (16, 64))
            finally:
                sys.modules["torch"] = real

        def of_method(thing):
            torch.Tensor.is_neg = property(lambda self: interrupted() or is_neg.__get__(self))
            try:
                return tma.make_tma_descriptor(thing, (16, 64))
            finally:
                del torch.Tensor.is_neg  # it is of the base class

        def of_table(thing):
            api, torch_tensor.torch_dtype_table = torch.Tensor.__dlpack_c_exchange_api__, table
            del torch.Tensor.__dlpack_c_exchange_api__
            try:
                return tma.make_tma_descriptor(thing, (16, 64))
            finally:
                torch.Tensor.__dlpack_c_exchange_api__ = api
                torch_tensor.torch_dtype_table = original

        original = torch_tensor.torch_dtype_table
        has_api = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        belongs = lambda thing: tma.make_tma_descriptor(thing, (16, 64))
        roads = [(of_module, x), (of_method, x), (belongs, Known())]
        roads += [(of_table, x)] if has_api else []
        for error in (KeyboardInterrupt, MemoryError):
            for road, thing in roads:
                pending[:] = [error]
                try:
                    road(thing)
                except error:
                    assert not pending
                else:
                    raise AssertionError((road, error))
        for road, thing in roads:
            pending[:] = [ValueError]
            assert road(thing).shape == (64, 64), road  # by the long road, or at the second try
        """
    )


# ---- check never raises --------------------------------------------------------------------------


class NoClass:
    @property
    def __class__(self):
        raise ValueError("no class")


class NothingAtAll:
    def __getattribute__(self, name):
        raise ValueError(name)


class NoClassWord(str, NoClass):
    __slots__ = ()
    __class__ = NoClass.__dict__["__class__"]


ODD = {
    "no class": NoClass(),
    "no attribute": NothingAtAll(),
    "a word": NoClassWord("none"),
    "in a tuple": (NoClass(), NoClass()),
    "in a list": [NothingAtAll()],
    "in a set": {NoClass()},
}
CHECKED = {
    "tiled": (tma.check_tma_descriptor, (array(), BOX)),
    "im2col": (tma.check_im2col_descriptor, (np.zeros((2, 14, 14, 64), np.float16), *IM2COL)),
    "im2col_wide": (
        tma.check_im2col_wide_descriptor,
        (np.zeros((2, 14, 14, 64), np.float16), 0, 0, 64, 32),
    ),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", CHECKED)
def test_a_class_attribute_that_raises_is_reported_for_every_argument(kind, odd):
    check, required = CHECKED[kind]
    names = list(inspect.signature(check).parameters)
    given = dict(zip(names, required, strict=False))
    for name in names:
        report = check(**{"target": "sm_100", **given, name: ODD[odd]})
        assert report.fixed() is None or isinstance(report.fixed(), dict)
        if odd != "a word":  # which is an option's name
            assert name in {v.argument for v in report.violations}
            assert name in str(report)


class Device:
    def __init__(self, device):
        self.device = device

    def __dlpack__(self, **keywords):
        return array().__dlpack__(max_version=(1, 0))

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ((10**5000, 0), "an int of 16610 bits"),
        ((-(10**5000), 0), "an int of 16610 bits"),
        ((8, 10**5000), "kDLMetal:an int of 16610 bits"),
        ((8, 1), "kDLMetal:1"),
    ],
    ids=["large type", "negative type", "large ordinal", "another device"],
)
def test_a_device_of_any_number_is_named(device, found):
    (violation,) = tma.check_tma_descriptor(Device(device), BOX).violations
    assert (violation.rule, found in violation.found) == ("TENSOR_DEVICE", True)


@pytest.mark.parametrize(
    "device",
    [(1, 0), (2, 10**5000), 5, None, ("a", 2)],
    ids=["host", "large ordinal", "one number", "none", "word"],
)
def test_of_an_unreadable_device_the_capsule_decides(device):
    assert tma.check_tma_descriptor(Device(device), BOX).ok
