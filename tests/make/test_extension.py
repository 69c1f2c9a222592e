"""The C extension accepts only what Python accepts, with equal bytes, and leaves the rest.

Most tests are about C alone. The tests of public functions also run without the extension.
"""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import pickle
import pydoc
import random
import re
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from in_c import (
    CHECKED_IN_C,
    IN_C,
    MAKE,
    REPORT_IN_C,
    VERDICT_IN_C,
    alone,
    batch_in_c,
    by_python,
    compiled,
    hold_equal,
    with_defaults,
)
from laws import SHARE, law, many
from random_requests import request_at_random
from snapshot import CHECKS, MAKES

import tma_dlpack as tma
from tma_dlpack.checks.report import refusal_of
from tma_dlpack.checks.struct import STRUCT, describe
from tma_dlpack.make import build, extension
from tma_dlpack.tables.arguments import RARE_OPTIONS
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tensor_map.map import TensorMap
from tma_dlpack.tensor_map.storage import aligned_bytes

BOX = (16, 64)


def tensor(rows: int = 128, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(rows, 64, dtype=torch.float32).to(dtype)


def signature(function):
    return inspect.signature(function).parameters.values()


def accepted(x: object, box: object = BOX, **given: object):
    """Make a map in C alone, with swizzle="bytes128" by default."""
    return IN_C["tiled"](x, box, **{"swizzle": "bytes128", **given})


# ---- the options -------------------------------------------------------------------------------

FORMS = {
    ("flag", False): "bool",
    ("integer", 0): "SupportsIndex",
    ("integer", None): "SupportsIndex | None",
    ("integers", None): "Ints | None",
}


@pytest.mark.parametrize("kind", MAKE)
def test_the_options_that_few_calls_give_are_rows_with_their_form_and_default(kind):
    known = {option.name: option for option in RARE_OPTIONS}
    parameters = [p for p in signature(MAKE[kind]) if p.kind is p.KEYWORD_ONLY]
    own = ("mode", "data_type", "rules", "allow", "target")  # each has its own reader
    names = [p.name for p in parameters if p.name not in own]
    assert names == [name for name in known if kind == "tiled" or name in names]
    for parameter in parameters:
        if parameter.name in known:
            row = known[parameter.name]
            assert parameter.default is row.default
            assert parameter.annotation == FORMS[row.form, row.default]
    assert kind != "tiled" or len(names) == len(known)


@compiled
def test_a_parameter_that_c_does_not_read_is_refused_when_the_function_is_made():
    with pytest.raises(ValueError, match=r"^the parameter box_seizes is not read in C$"):
        extension.quick("tiled")(lambda tensor, box_seizes: None)
    with pytest.raises(ValueError, match=r"^these are not the parameters of the verb$"):
        extension.quick("driver_tiled")(lambda tensor_data_type: None)


# ---- against Python ------------------------------------------------------------------------------


def hold_against_python(seed: int, count: int) -> None:
    rng = random.Random(seed)
    maps = rare = refused = 0
    while count:
        asked = request_at_random(rng)
        if asked is None:
            continue
        count -= 1
        kind, x, given = asked
        made, expected = IN_C[kind](x, **given), by_python(kind, x, given)
        report = CHECKED_IN_C[kind](x, **given)
        assert (report is None) == (made is None), (kind, given)
        if made is None:
            assert expected is None or is_odd(x, given), (kind, x.shape, x.dtype, given)
            refused += hold_refusal_against_python(kind, x, given)
            continue
        maps += 1
        rare += made._target is not None or made._call[1][8] or made.split_inner is True
        assert expected is not None, (kind, x.shape, x.dtype, given)
        hold_equal(made, expected)
        assert made.tensor is x
        assert (report.ok, report.advice) == (True, expected.advice)
        if kind == "tiled" and maps % 8 == 0:
            batch = tma.make_tma_descriptors([x, x], **given)
            assert type(batch._made) is type(tma.make_tma_descriptors([], BOX)._made)
            for one in batch:
                hold_equal(one, expected)
    assert maps > 0.1 * count
    assert rare > 0.05 * maps
    assert refused > maps


def hold_refusal_against_python(kind, x, given) -> bool:
    """Compare C's refusal with Python's, in class and text; False if C refuses nothing."""
    error, report = VERDICT_IN_C[kind](x, **given), REPORT_IN_C[kind](x, **given)
    assert (error is None) == (report is None), (kind, given)
    if error is None:
        return False
    expected = build.check(kind, x, with_defaults(kind, given))
    assert error.violations == report.violations == expected.violations, (kind, given)
    assert type(error) is type(refusal_of(expected.violations))
    assert (report.ok, report.advice, str(report)) == (False, (), str(expected))
    return True


def is_odd(x, given) -> bool:
    """Return whether only Python accepts the call, as for types below a byte and odd steps."""
    steps = given["elem_strides"]
    return (
        str(x.dtype) in ("torch.uint4", "torch.float4_e2m1fn_x2", "complex64", "complex128")
        or getattr(x.dtype, "is_complex", False)
        or (steps is not None and not 0 <= steps[-1] <= 255)
        or not x.shape
        or 0 in x.shape
    )


@law
@compiled
def test_random_calls_of_every_option_agree_with_python():
    hold_against_python(seed=20261121, count=5000 // SHARE)


@compiled
@pytest.mark.slow
def test_many_random_calls_agree_with_python():
    # A million calls need 15 minutes, so only a run with all examples makes them.
    for seed in range({1: 200, 4: 20}.get(SHARE, 2)):
        hold_against_python(seed, count=5000)


DRIVER = {
    "tiled": tma.driver_encode_tiled,
    "im2col": tma.driver_encode_im2col,
    "im2col_wide": tma.driver_encode_im2col_wide,
}
DRIVER_IN_C = {kind: alone(f"driver_{kind}", verb) for kind, verb in DRIVER.items()}


def driver_words(a, address) -> dict[str, object]:
    """Return the arguments of a driver_encode_* function, which has other names than the map."""
    words = {"tensor_data_type": a.data_type, "tensor_rank": a.rank, "global_address": address}
    kinds = {
        "tiled": ("box_dim",),
        "im2col": ("pixel_box_lower_corner", "pixel_box_upper_corner"),
        "im2col_wide": ("mode",),
    }
    pixels = () if a.kind == "tiled" else ("channels_per_pixel", "pixels_per_column")
    for name in (
        *("global_dim", "global_strides", "element_strides", "interleave", "swizzle"),
        *("l2_promotion", "oob_fill", *kinds[a.kind], *pixels),
    ):
        words[name] = getattr(a, name)
    if a.kind == "im2col_wide":
        for which in ("lower", "upper"):
            words[f"pixel_box_{which}_corner_width"] = getattr(a, f"pixel_box_{which}_corner")[0]
    return words


def changed_at_random(rng, words) -> dict[str, object]:
    """Change one number, or none."""
    name = rng.choice(list(words))
    value = words[name]
    change = rng.choice(
        (lambda n: n + 1, lambda n: n - 1, lambda n: 2 * n, lambda n: 0, lambda n: 1 << 62)
    )
    if isinstance(value, tuple):
        at = rng.randrange(len(value)) if value else None
        return words | {name: tuple(change(n) if i == at else int(n) for i, n in enumerate(value))}
    return words | {name: change(int(value))}


def hold_bare_against_python(seed: int, count: int) -> None:
    rng = random.Random(seed)
    made_maps = refused = 0
    while made_maps < count:
        asked = request_at_random(rng)
        start = None if asked is None else by_python(*asked)
        if start is None:
            continue
        kind = start.kind
        words = driver_words(start.arguments, start.global_address)
        target = rng.choice(("sm_90", "sm_90", start.target, "sm_100", tma.Target((9, 0), 1024)))
        for given in (words, changed_at_random(rng, words), changed_at_random(rng, words)):
            made = DRIVER_IN_C[kind](**given, target=target)
            try:
                expected = build.mirror(kind, given, target, "auto")
            except tma.TmaError:
                expected = None
            assert (made is None) == (expected is None), (kind, given, target)
            if made is None:
                refused += 1
                continue
            made_maps += 1
            hold_equal(made, expected)
    assert refused > count / 20


@law
@compiled
def test_random_arguments_of_the_driver_agree_with_python():
    hold_bare_against_python(seed=7, count=1000 // SHARE)


@compiled
@pytest.mark.slow
def test_many_random_arguments_of_the_driver_agree_with_python():
    for seed in range(many(24)):
        hold_bare_against_python(seed, count=5000)


@compiled
def test_a_line_of_an_odd_number_of_half_bytes_counts_its_whole_bytes():
    """72 pixels of 7 channels of 4 bits: 3 bytes each, as the simulator counts them."""
    given = {
        "tensor_data_type": "16U4_ALIGN8B", "tensor_rank": 3, "global_address": 1 << 12,
        "global_dim": (6, 1, 2), "global_strides": (16, 144), "pixel_box_lower_corner": (-1,),
        "pixel_box_upper_corner": (-1,), "channels_per_pixel": 7, "pixels_per_column": 72,
        "element_strides": (1, 1, 1), "interleave": 0, "swizzle": 1, "l2_promotion": 0,
        "oob_fill": 0,
    }  # fmt: skip
    made = DRIVER_IN_C["im2col"](**given, target="sm_100")
    assert made.tx_bytes == build.mirror("im2col", given, "sm_100", "auto").tx_bytes == 72 * 3


# ---- options -------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize(
    "changed",
    [
        {"swizzle": TmaSwizzle.bytes128},
        {"swizzle": 3},
        {"swizzle": "CU_TENSOR_MAP_SWIZZLE_128B"},
        {"swizzle": "".join(["bytes", "128"])},
        {"elem_strides": (1, 1)},
        {"elem_strides": [1, 1]},
        {"data_type": "FLOAT16"},
        {"data_type": TensorMapDataType.FLOAT16},
        {"data_type": 6},
        {"rules": "driver"},
    ],
    ids=str,
)
def test_options_as_members_names_and_values_give_the_same_bytes(changed):
    x = tensor()
    assert bytes(accepted(x, **changed)) == bytes(accepted(x))


@compiled
@pytest.mark.parametrize(
    "given",
    [
        {"target": "sm_90"},
        {"target": "sm_90a"},
        {"target": tma.Target((9, 0), 50_000)},
        {"target": "sm_100"},
        {"target": "sm_120", "rules": "driver"},
        {"allow": ("BOX_IN_SHAPE",), "box_sizes": (200, 64)},
        {"allow": ["BOX_IN_SHAPE", "STRIDE_UNIQUE"], "box_sizes": (200, 64)},
        {"allow": {"BOX_IN_SHAPE"}, "box_sizes": (200, 64)},
        {"allow": frozenset({"BOX_IN_SHAPE"}), "box_sizes": (200, 64)},
        {"shape": (64, 64)},
        {"shape": [64, 64], "strides": [128, 1]},
        {"shape": torch.Size((64, 64))},
        {"shape": (4, 16, 64), "strides": (1024, 64, 1), "box_sizes": (1, 16, 64)},
        {"strides": (128, 1), "shape": (64, 64), "offset": 64},
        {"offset": -64},
        {"offset": np.int64(64)},
        {"split_inner": True},
        {"split_inner": True, "ragged": 0},
        {"split_inner": True, "swizzle": "none"},
        {"ragged": -2},
        {"ragged": 0, "target": "sm_100"},
        {"ragged": np.int32(0), "data_type": "BFLOAT16", "rules": "driver", "offset": 64},
    ],
    ids=str,
)
def test_every_option_is_taken_in_c(given):
    x = tensor()
    given = {"box_sizes": BOX, "swizzle": "bytes128", **given}
    made = IN_C["tiled"](x, **given)
    assert made is not None
    hold_equal(made, by_python("tiled", x, given))
    assert CHECKED_IN_C["tiled"](x, **given).ok
    (one,) = tma.make_tma_descriptors([x], **given)
    hold_equal(one, made)
    hold_equal(pickle.loads(pickle.dumps(made)).with_address(x), made)
    y = tensor()
    hold_equal(made.with_address(y), IN_C["tiled"](y, **given))
    at = made.with_address(made.global_address)
    assert (at, at.split_inner, at.ragged) == (made, made.split_inner, made.ragged)


def test_the_report_of_an_accepted_call_is_that_of_python_and_keeps_no_tensor():
    x, box = tensor(), [16, 32]
    report = tma.check_tma_descriptor(x, box, ragged=0, offset=64)
    expected = build.check("tiled", x, with_defaults("tiled", {
        "box_sizes": [16, 32], "ragged": 0, "offset": 64}))  # fmt: skip
    box.clear()
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    again = pickle.loads(pickle.dumps(report)), copy.copy(report), copy.deepcopy(report)
    for one in (report, *again):
        assert one == expected
        assert hash(one) == hash(expected)
        assert (str(one), repr(one)) == (str(expected), repr(expected))
        assert one.fixed() == expected.fixed()
        assert one.changes() == expected.changes() == {}
    assert [advice.rule for advice in report.advice] == ["BEYOND_TENSOR", "BANK_CONFLICTS"]
    with pytest.raises(AttributeError, match="no attribute 'advices'"):
        _ = report.advices


@compiled
def test_an_explicit_swizzle_is_told_from_the_default():
    split = {"split_inner": True}
    assert IN_C["tiled"](tensor(), BOX, swizzle="none", **split) is not None
    assert IN_C["tiled"](tensor(), BOX, **split) is None
    assert batch_in_c((tensor(),), aligned_bytes(128)[1], box_sizes=BOX, **split) is None
    default = inspect.signature(tma.make_tma_descriptor).parameters["swizzle"].default
    assert IN_C["tiled"](tensor(), BOX, swizzle=default, **split) is None


@compiled
def test_a_target_is_known_by_its_object():
    for _ in range(3):
        for smem in range(30_000, 30_020):  # more than are kept
            target = tma.Target((9, 0), smem)
            made = accepted(tensor(), target=target)
            assert (made.target is target, made.encoder) == (True, "model")
    assert accepted(tensor(), target=tma.Target((9, 0), 2047)) is None
    assert accepted(tensor(), target="sm_100")._data is None


@compiled
@pytest.mark.parametrize("box", [(16, 64), [16, 64]], ids=str)
def test_boxes_are_tuples_or_lists(box):
    assert accepted(tensor(), box).box_sizes == (16, 64)


@compiled
def test_calls_with_kept_and_with_other_arguments_make_the_maps_of_their_own():
    boxes = ((16, 32), (8, 32), (np.int64(8), 16), [16, 16])
    options = ({"swizzle": "bytes128"}, {"swizzle": "bytes64"}, {"ragged": 0}, {})
    calls = [
        (
            tensor(rows),
            box,
            given,
            bytes(by_python("tiled", tensor(rows), {"box_sizes": box, **given}))[8:],
        )
        for rows in (64, 128)
        for box in boxes
        for given in options
    ]
    rng = random.Random(3)
    for x, box, given, expected in rng.choices(calls, k=300):
        for _ in range(rng.randrange(1, 12)):
            assert bytes(tma.make_tma_descriptor(x, box, **given))[8:] == expected


def test_a_list_that_was_changed_is_read_again():
    x, box = tensor(), [16, 64]
    boxes = []
    for rows in range(1, 20):
        box[0] = rows
        boxes += [tma.make_tma_descriptor(x, box).box_sizes for _ in range(2)]
    assert boxes == [(rows, 64) for rows in range(1, 20) for _ in range(2)]


@compiled
def test_a_call_in_the_middle_of_another_has_its_own_arguments():
    x, inner = tensor(), []

    def call_too(phase, information):
        inner.append(tma.make_tma_descriptor(x, (8, 16)).box_sizes)

    limits = gc.get_threshold()
    gc.callbacks.append(call_too)
    gc.set_threshold(1)
    try:
        made = [tma.make_tma_descriptor(x, (16, 64)) for _ in range(200)]  # each in new memory
    finally:
        gc.set_threshold(*limits)
        gc.callbacks.remove(call_too)
    assert len(inner) > 100
    assert {tm.box_sizes for tm in made} == {(16, 64)}
    assert set(inner) == {(8, 16)}


@compiled
def test_numpy_integers_are_integers():
    assert accepted(tensor(), (np.int64(16), np.uint8(64))).box_sizes == (16, 64)
    assert accepted(tensor(), swizzle=np.int32(3)).swizzle is TmaSwizzle.bytes128


@compiled
@pytest.mark.parametrize(
    ("box", "changed"),
    [
        (None, {}),
        ((), {}),
        ((16,), {}),
        ((16, 64, 1), {}),
        ((16, True), {}),
        ((16, 64.0), {}),
        ((16, "64"), {}),
        ((16, 1 << 70), {}),
        ((16, TmaSwizzle.bytes32), {}),
        pytest.param(iter((16, 64)), {}, id="iterator"),
        ("ab", {}),
        ((16, 65), {}),
        ((129, 64), {}),
        (BOX, {"elem_strides": ()}),
        (BOX, {"elem_strides": (1,)}),
        (BOX, {"elem_strides": (9, 1)}),
        (BOX, {"interleave_layout": "none "}),
        (BOX, {"interleave_layout": "bytes16"}),
        (BOX, {"swizzle": None}),
        (BOX, {"swizzle": -1}),
        (BOX, {"swizzle": 7}),
        (BOX, {"swizzle": True}),
        (BOX, {"swizzle": 3.0}),
        (BOX, {"swizzle": "bytes128_atom_32B"}),
        (BOX, {"swizzle": tma.TmaInterleaveLayout.none}),
        (BOX, {"l2_fetch_size": 4}),
        (BOX, {"oobfill": 2}),
        (BOX, {"data_type": "FLOAT32"}),
        (BOX, {"data_type": "16U4_ALIGN8B"}),
        (BOX, {"rules": "cuda"}),
        (BOX, {"rules": None}),
        (BOX, {"target": "sm_80"}),
        (BOX, {"target": tma.Target((8, 0))}),
        (BOX, {"target": (9, 0)}),
        (BOX, {"allow": "BOX_IN_SHAPE"}),
        (BOX, {"allow": ("BOX_RANGE",)}),
        (BOX, {"allow": ("NONSENSE",)}),
        (BOX, {"allow": (None,)}),
        pytest.param(BOX, {"allow": iter(("BOX_IN_SHAPE",))}, id="iterator of ids"),
        (BOX, {"shape": (1 << 33, 64)}),
        (BOX, {"shape": (128, 64.0)}),
        (BOX, {"shape": ()}),
        (BOX, {"strides": (64,)}),
        (BOX, {"offset": None}),
        (BOX, {"offset": True}),
        (BOX, {"offset": 1}),
        (BOX, {"split_inner": None}),
        (BOX, {"split_inner": 1}),
        (BOX, {"ragged": True}),
        (BOX, {"ragged": 1}),
        (BOX, {"ragged": 2}),
    ],
    ids=str,
)
def test_what_is_not_plainly_in_order_is_left_to_python(box, changed):
    assert accepted(tensor(), box, **changed) is None


# ---- tensors -------------------------------------------------------------------------------------


class Subclass(torch.Tensor):
    pass


class Producer:
    """An unknown producer."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def fake():
    with torch._subclasses.fake_tensor.FakeTensorMode():  # imports torch's compiler: seconds
        return torch.zeros(128, 64, dtype=torch.float16)


ODD = {
    "lazily negated": lambda: torch.zeros(128, 64, dtype=torch.complex64).conj().imag,
    "negative view": lambda: torch._neg_view(tensor()),
    "conjugated": lambda: torch.zeros(128, 64, dtype=torch.complex64).conj(),
    "subclass": lambda: tensor().as_subclass(Subclass),
    "meta": lambda: torch.zeros(128, 64, dtype=torch.float16, device="meta"),
    "sparse": lambda: torch.zeros(128, 64).to_sparse(),
    "int4": lambda: torch.zeros(128, 64, dtype=torch.uint8).view(torch.uint4),
    "float4": lambda: torch.zeros(128, 64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "empty": lambda: torch.zeros(0, 64, dtype=torch.float16),
    "misaligned": lambda: torch.zeros(128, 65, dtype=torch.float16)[:, 1:],
    "unknown producer": lambda: Producer(np.zeros((128, 64), np.float16)),
    "masked array": lambda: np.ma.zeros((128, 64), np.float16),
    "record array": lambda: np.zeros((128, 64), np.float16).view(np.recarray),
    "big-endian": lambda: np.zeros((128, 64), ">f2"),
    "structured": lambda: np.zeros((128, 64), [("a", "f2")]),
    "scalar": lambda: np.zeros((), np.float16),
    "six dimensions": lambda: np.zeros((1,) * 4 + (128, 64), np.float16),
    "list": lambda: [[1.0] * 64] * 128,
    "none": lambda: None,
    "class": lambda: torch.Tensor,
    "capsule": lambda: np.zeros((128, 64), np.float16).__dlpack__(),
    "fake": fake,
}


@pytest.mark.parametrize("name", ODD)
@compiled
def test_odd_tensors_are_left_to_python(name):
    assert accepted(ODD[name]()) is None


@compiled
def test_functorch_wrappers_are_left_to_python():
    maps = []

    def look(x):
        maps.append(accepted(x))
        return x

    torch.vmap(look)(torch.zeros(3, 128, 64, dtype=torch.float16))
    torch.func.grad(lambda x: look(x).sum())(torch.zeros(128, 64))
    assert maps == [None, None]


@compiled
def test_parameters_and_tensors_with_a_gradient_are_taken():
    x = torch.nn.Parameter(torch.zeros(128, 64))
    y = torch.zeros(128, 64, requires_grad=True)
    for one in (x, y):
        made = accepted(one, (16, 32))
        assert (made.tensor is one, made.global_address) == (True, one.data_ptr())


@compiled
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float8_e4m3fn], ids=str)
def test_types_of_one_byte_are_carried_as_bytes(dtype):
    made = accepted(torch.zeros(128, 64, dtype=torch.uint8).view(dtype))
    assert made.data_type is TensorMapDataType.UINT8


@compiled
def test_read_only_arrays_say_so_in_their_view():
    x = np.zeros((128, 64), np.float16)
    x.flags.writeable = False
    assert accepted(x).view.read_only
    jax = pytest.importorskip("jax")
    y = jax.numpy.zeros((128, 64), "float16")
    made = accepted(y)
    expected = by_python("tiled", y, {"box_sizes": BOX, "swizzle": "bytes128"})
    assert (made.view.read_only, bytes(made)) == (True, bytes(expected))


# ---- objects -------------------------------------------------------------------------------------


@compiled
def test_references_come_and_go():
    x, box = tensor(), (16, 64)
    for _ in range(8):  # until what remembers calls remembers these
        accepted(x, box)
        accepted(x, (16, 63))
    before = sys.getrefcount(x), sys.getrefcount(box), sys.getrefcount(TensorMap)
    for _ in range(1000):
        accepted(x, box)
        accepted(x, (16, 63))
    assert (sys.getrefcount(x), sys.getrefcount(box), sys.getrefcount(TensorMap)) == before
    made = accepted(x, box)
    assert sys.getrefcount(x) == before[0] + 1
    del made
    assert sys.getrefcount(x) == before[0]


@compiled
@pytest.mark.slow
def test_memory_is_flat_over_a_million_calls():
    resource = pytest.importorskip("resource")
    x, n, image = tensor(), np.zeros((128, 64), np.float16), np.zeros((2, 14, 14, 64), np.float16)
    column = (-1, -1), (-1, -1), 64, 64

    def calls(count):
        for _ in range(count):
            bytes(accepted(x))
            accepted(n)
            accepted(x, (16, 63))
            IN_C["im2col"](image, *column, swizzle="bytes128")
            _ = accepted(x, split_inner=True, ragged=0, target="sm_100").tx_bytes
            _ = CHECKED_IN_C["tiled"](x, [16, 64], offset=64).advice
            list(tma.make_tma_descriptors((x, n), BOX))

    calls(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(many(150_000))  # of seven each
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048  # KiB


@compiled
def test_a_tensor_that_holds_its_own_map_is_collected():
    x = tensor()
    x.map = accepted(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


@compiled
def test_maps_can_be_referred_to_weakly():
    made = accepted(tensor())
    gone = weakref.ref(made)
    assert gone() is made
    del made
    assert gone() is None


@compiled
def test_bytes_lie_aligned_and_stay_what_they_were():
    maps = [accepted(tensor(rows)) for rows in range(64, 96)]
    for rows, made in zip(range(64, 96), maps, strict=True):
        assert int.from_bytes(bytes(made)[36:40], "little") == rows - 1
    bare = [
        tma.driver_encode_tiled("UINT8", 1, 4096 * i, (64,), (), (64,), (1,), encoder="model")
        for i in range(1, 20)
    ]
    assert {one.ptr % 128 for one in bare} == {0}
    assert len({one.ptr for one in bare}) == len(bare)


def test_writing_through_a_launchers_view_does_not_change_the_map():
    made = tma.driver_encode_tiled("UINT8", 1, 4096, (64,), (), (64,), (1,), encoder="model")
    before, number = bytes(made), hash(made)
    made.as_ctypes()[0] = b"\x07" if isinstance(made.as_ctypes()[0], bytes) else 7
    assert (bytes(made), hash(made)) == (before, number)


@compiled
def test_threads_make_maps_at_once():
    wrong = []

    def make(rows):
        x = tensor(rows)
        for _ in range(300):
            made = accepted(x)
            if made is None or made.shape != (rows, 64):
                wrong.append(rows)

    threads = [threading.Thread(target=make, args=(rows,)) for rows in range(64, 72)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


_FORK = """
import os, threading
import numpy as np
import tma_dlpack as tma

x = np.zeros((128, 64), np.float16)
expected = bytes(tma.make_tma_descriptor(x, (16, 64)))
done = False

def busy():
    while not done:
        tma.make_tma_descriptor(x, (16, 64))

thread = threading.Thread(target=busy)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        good = bytes(tma.make_tma_descriptor(x, (16, 64))) == expected
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
done = True
thread.join()
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_child_forked_in_the_middle_of_a_call_makes_maps():
    blocked = "" if extension.COMPILED else "import tests.python_lane\n"
    source = "import warnings; warnings.simplefilter('ignore')\n" + blocked + _FORK
    subprocess.run([sys.executable, "-c", source], check=True, timeout=120)


# ---- the verbs ---------------------------------------------------------------------------------


@compiled
def test_verbs_keep_signature_and_text():
    shown = inspect.signature(tma.make_tma_descriptor)
    assert list(shown.parameters)[:3] == ["tensor", "box_sizes", "elem_strides"]
    assert shown.parameters["swizzle"].default == "none"
    assert tma.make_tma_descriptor.__doc__.startswith("Make the tensor map of a tensor")
    assert tma.make_tma_descriptor.__name__ == "make_tma_descriptor"


def test_help_and_ipython_show_a_function_with_its_signature():
    text = pydoc.render_doc(tma.make_tma_descriptor, renderer=pydoc.plaintext)
    title, _, call, first, *_ = text.splitlines()
    assert re.fullmatch(
        r"Python Library Documentation: function (\w+ )?in module tma_dlpack\.make\.descriptors",
        title,
    )
    assert call.startswith("make_tma_descriptor(tensor: 'Tensor', box_sizes: ")
    assert first.strip().startswith("Make the tensor map of a tensor")
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shown = shell.inspector.info(tma.make_tma_descriptor, oname="make")
    assert (shown["type_name"], shown["call_def"]) == ("function", None)
    assert shown["definition"].startswith("make(")
    assert shown["docstring"].startswith("Make the tensor map of a tensor")
    assert "make_tma_descriptor" in inspect.getsource(tma.make_tma_descriptor)


def test_wrong_calls_raise_pythons_own_errors():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'box_sizes'"):
        tma.make_tma_descriptor(tensor())
    with pytest.raises(TypeError, match="unexpected keyword argument 'box'"):
        tma.make_tma_descriptor(tensor(), box=BOX)
    with pytest.raises(TypeError, match="multiple values for argument 'box_sizes'"):
        tma.make_tma_descriptor(tensor(), BOX, box_sizes=BOX)
    with pytest.raises(TypeError, match="positional argument"):
        tma.make_tma_descriptor(tensor(), BOX, None, "none", "none", "none", "none", None)


@law
def test_arguments_by_position_or_keyword_or_left_out_make_the_same_map():
    rng = random.Random(8)
    left_out = made_maps = 0
    while made_maps < 300 // SHARE:
        asked = request_at_random(rng)
        if asked is None or (expected := by_python(*asked)) is None:
            continue
        verb = MAKE[asked.kind]
        parameters = list(inspect.signature(verb).parameters.values())
        values = (asked.tensor, *with_defaults(asked.kind, asked.given).values())
        by_position = rng.randint(0, sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters))
        named = list(zip(parameters, values, strict=True))[by_position:]
        keywords = {p.name: value for p, value in named if value is not p.default}
        left_out += len(named) - len(keywords)
        shuffled = dict(rng.sample(list(keywords.items()), len(keywords)))
        made = verb(*values[:by_position], **shuffled)
        assert (made._data, made) == (expected._data, expected)
        assert made.description == expected.description
        made_maps += 1
    assert left_out > 300 // SHARE


@compiled
def test_a_map_in_the_memory_of_another_has_nothing_of_it():
    image, x = torch.zeros(2, 14, 14, 64, dtype=torch.float16), tensor()
    corner = ((-1, -1), (-1, -1), 64, 128)
    other = tma.make_im2col_descriptor(image, *corner, (1, 2, 2, 1), rules="driver")
    assert other.description is not None
    other._keep_data()
    gone, place = weakref.ref(other), id(other)
    del other
    assert gone() is None
    made = accepted(x)
    assert id(made) == place  # the memory of the map that was freed last
    assert (made._description, made._arguments, made._capsule) == (None, None, None)
    assert weakref.getweakrefcount(made) == 0
    fresh = [accepted(x) for _ in range(3)]  # at most one of them has used memory
    assert [(one._call, one) for one in fresh] == [(made._call, made)] * 3
    assert {
        one.ptr % 128 for one in (made.at_bare_address(4096), fresh[2].at_bare_address(4096))
    } == {0}


@compiled
def test_a_map_whose_tensor_holds_maps_is_freed_with_them():
    for _ in range(3):
        tensors = [tensor() for _ in range(5)]
        for x, y in itertools.pairwise(tensors):
            x.maps = accepted(y), accepted(y)
        made = accepted(tensors[0])
        gone = [weakref.ref(x) for x in tensors]
        del tensors, x, y, made
        assert [one() for one in gone] == [None] * 5
        again = [accepted(tensor()) for _ in range(5)]
        assert len({id(one) for one in again}) == 5
        assert len({bytes(one)[8:] for one in again}) == 1


@compiled
def test_keywords_made_at_run_time_are_understood():
    options = {"".join(["swiz", "zle"]): "bytes128", "".join(["box_", "sizes"]): BOX}
    for make in (tma.make_tma_descriptor, IN_C["tiled"]):
        assert make(tensor(), **options).swizzle is TmaSwizzle.bytes128


@compiled
def test_a_batch_in_one_call_has_the_bytes_of_single_calls():
    tensors = tuple(tensor(rows) for rows in range(64, 96))
    rows, address = aligned_bytes(128 * (len(tensors) + 1))
    maps = batch_in_c(tensors, address, box_sizes=BOX, swizzle="bytes128").maps
    assert [bytes(one) for one in maps] == [bytes(accepted(x)) for x in tensors]
    assert rows[:-128].tobytes() == b"".join(map(bytes, maps))
    assert batch_in_c((*tensors, None), address, box_sizes=BOX) is None


@compiled
def test_with_address_moves_a_map_to_a_tensor_of_the_same_layout():
    from tma_dlpack.native import _core

    x, y = tensor(), tensor()
    made = accepted(x)
    moved = _core.accept_address(made, y)
    assert (moved == accepted(y), moved.tensor is y) == (True, True)
    assert made.with_address(y) == moved
    assert _core.accept_address(made, 4096).global_address == 4096
    for other in (tensor(127), tensor().to(torch.bfloat16), 4097, 0, 1 << 57, -16, None, True):
        assert _core.accept_address(made, other) is None


def _filled(value):
    """Return a field without the zeros after its last entry, which C may not write."""
    return (
        value
        if not isinstance(value, tuple)
        else tuple(itertools.dropwhile(lambda n: n == 0, value[::-1]))
    )


@compiled
def test_the_struct_of_a_map_in_c_is_the_struct_that_python_describes():
    compared = 0
    for seed in range(3000):
        asked = request_at_random(random.Random(seed))
        if asked is None or not CHECKS[asked.kind](asked.tensor, **asked.given).ok:
            continue
        made = MAKES[asked.kind](asked.tensor, **asked.given)
        in_c = made._described(made)
        if in_c is None:  # C leaves this tensor to Python
            continue
        in_python = describe(made.description.request)
        for name, *_ in STRUCT:
            assert _filled(getattr(in_c, name)) == _filled(getattr(in_python, name)), (seed, name)
        assert in_c.mask == 0
        compared += 1
    assert compared > 300


_FRESH = """
import gc, importlib.machinery, importlib.util, inspect, numpy
import tma_dlpack as tma
from tma_dlpack.make import extension
from tma_dlpack.native import _core

def fresh_module():
    loader = importlib.machinery.ExtensionFileLoader("_core", _core.__file__)
    fresh = importlib.util.module_from_spec(importlib.util.spec_from_loader("_core", loader))
    loader.exec_module(fresh)
    return fresh

def verb_of(fresh):
    parameters = inspect.signature(tma.make_tma_descriptor).parameters
    defaults = {p.name: p.default for p in parameters.values()}
    return fresh.quick(lambda *a, **k: None, "tiled", defaults, inspect.Parameter.empty, 7)

x = numpy.zeros((64, 64), numpy.float16)
"""


@compiled
def test_nothing_is_made_before_setup_or_of_another_class():
    source = """
        fresh = fresh_module()
        assert fresh.accept_address(x, 4096) is None
        assert fresh.accept_many((x,), 4096, {}) is None
        try:
            verb_of(fresh)
        except ValueError as error:
            assert "setup was not called" in str(error)
        else:
            raise AssertionError("a verb was made before setup()")
        class Larger(tma.TensorMap):
            pass
        for other in (int, Larger):
            try:
                fresh.setup(other, *extension.SETUP[1:])
            except TypeError as error:
                assert "MapStorage" in str(error)
            else:
                raise AssertionError(f"{other} was taken for the class of maps")
        try:
            fresh.setup(*extension.SETUP)
            fresh.setup(*extension.SETUP)
        except ValueError as error:
            assert "setup is called once" in str(error)
        else:
            raise AssertionError("setup() was taken twice")
    """
    subprocess.run(
        [sys.executable, "-c", _FRESH + textwrap.dedent(source)], check=True, timeout=120
    )


@compiled
def test_maps_outlive_the_module_that_made_them():
    source = """
        for kept in (0, 1, 3):
            fresh = fresh_module()
            fresh.setup(*extension.SETUP)
            verb = verb_of(fresh)
            maps = [verb(x, (64, 64), target="sm_90") for _ in range(kept)]
            assert None not in maps
            del fresh, verb
            gc.collect()
            expected = tma.make_tma_descriptor(x, (64, 64), target="sm_90")
            assert [(one, bytes(one)) for one in maps] == [(expected, bytes(expected))] * kept
            del maps
    """
    subprocess.run(
        [sys.executable, "-c", _FRESH + textwrap.dedent(source)], check=True, timeout=120
    )


@compiled
def test_an_extension_of_other_tables_is_noticed_at_import():
    abi = Path(tma.__file__).parent / "tables" / "abi.py"
    source = f"""
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("tma_dlpack.tables.abi", {str(abi)!r})
        other = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        other.ABI ^= 1
        sys.modules["tma_dlpack.tables.abi"] = other
        try:
            import tma_dlpack
        except ImportError as error:
            assert "built from other tables" in str(error)
            assert "build it again" in str(error)
        else:
            raise AssertionError("nobody noticed")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(source)], check=True, timeout=120)


@compiled
def test_torch_without_the_exchange_api_is_read_by_its_attributes():
    source = """
        import torch
        del torch.Tensor.__dlpack_c_exchange_api__
        import test_extension as t
        for dtype in (torch.float16, torch.bfloat16, torch.uint8, torch.float8_e4m3fn):
            x = torch.zeros(128, 64).to(dtype)
            made = t.accepted(x[1:, ::1])
            given = {"box_sizes": t.BOX, "swizzle": "bytes128"}
            assert made is not None
            t.hold_equal(made, t.by_python("tiled", x[1:, ::1], given))
        assert t.accepted(torch.nn.Parameter(torch.zeros(128, 64)), (16, 32)) is not None
        for name, odd in t.ODD.items():
            assert t.accepted(odd()) is None, name
    """
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    program = f"import sys; sys.path[:0] = {paths!r}\n" + textwrap.dedent(source)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
