"""CUDA tensors without a GPU: C and Python on the stand-in for libcuda.

test_stand_in_gpu.py runs this file in a separate process, with or without C as the test suite.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading

import numpy as np
import pytest
from in_c import IN_C, MAKE, batch_in_c, by_python, compiled
from laws import SHARE
from random_requests import request_at_random
from stand_in_gpu import ARRAYS, CupyArray, JaxArray, StandIn, TvmArray, zeros

import tma_dlpack as tma
from tma_dlpack.make import extension
from tma_dlpack.tables import bits
from tma_dlpack.tensor_map.map import TensorMap

BOX = (16, 64)
TILED = {"box_sizes": BOX, "swizzle": "bytes128"}
COLUMN = {"channels_per_pixel": 64, "pixels_per_column": 64, "swizzle": "bytes128"}
IM2COL = {"pixel_box_lower_corner": (-1, -1), "pixel_box_upper_corner": (-1, -1), **COLUMN}
WIDE = {"lower_corner_width": -1, "upper_corner_width": 1, **COLUMN, "rules": "driver"}
IMAGES = (2, 14, 14, 64)
TILED_CALL, IM2COL_CALL = "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"


@pytest.fixture(autouse=True)
def gpu():
    stand_in = StandIn()
    stand_in.reset()
    for ordinal in range(3):  # find each GPU, and retain its primary context
        stand_in.set_context("")
        by_python("tiled", zeros((16, 64), ordinal), TILED)
        tma.make_tma_descriptor(zeros((16, 64), ordinal), **TILED)
    stand_in.reset()
    yield stand_in
    stand_in.reset()


def check_map(made: TensorMap, kind: str, x: object, given: dict) -> None:
    """Compare a map with Python's map, and its bytes with the measured layout."""
    expected = by_python(kind, x, given)
    assert bytes(made) == bytes(expected)
    if made.target.has_model:
        assert bytes(made) == bits.encode(made.arguments, made.global_address)
    assert made == expected
    assert made.description == expected.description
    assert made.advice == expected.advice
    assert (made.tensor is x, made.encoder, made.launchable) == (True, "driver", True)
    assert made.ptr % 128 == 0


# ---- equal bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shape", "options"),
    [
        pytest.param("tiled", (128, 64), TILED, id="tiled"),
        pytest.param("tiled", (64,), {**TILED, "box_sizes": (64,)}, id="rank 1"),
        pytest.param(
            "tiled", (3, 2, 5, 4, 64), {**TILED, "box_sizes": (1, 2, 1, 4, 64)}, id="rank 5"
        ),
        pytest.param("tiled", (128, 64), {**TILED, "elem_strides": (2, 1)}, id="elem_strides"),
        pytest.param("tiled", (128, 64), {**TILED, "target": "sm_90"}, id="target"),
        pytest.param("tiled", (128, 64), {**TILED, "rules": "driver"}, id="rules"),
        pytest.param("tiled", (128, 64), {**TILED, "allow": ("BOX_IN_SHAPE",)}, id="allow"),
        pytest.param("tiled", (128, 64), {**TILED, "shape": (64, 64), "offset": 64}, id="shape"),
        pytest.param("tiled", (128, 64), {**TILED, "split_inner": True}, id="split_inner"),
        pytest.param("tiled", (128, 64), {**TILED, "ragged": 0}, id="ragged"),
        pytest.param("im2col", IMAGES, IM2COL, id="im2col"),
        pytest.param("im2col_wide", IMAGES, WIDE, id="im2col-wide"),
    ],
)
@pytest.mark.parametrize("producer", ARRAYS)
def test_c_gives_what_python_gives(kind, shape, options, producer, gpu):
    x = producer(zeros(shape).array)
    made = (IN_C if extension.COMPILED else MAKE)[kind](x, **options)
    assert len(gpu.encodes) == 1
    check_map(made, kind, x, options)


def test_streams_are_those_that_each_library_takes():
    for producer, stream in ((CupyArray, -1), (JaxArray, 1), (TvmArray, -1)):
        x = producer(zeros((128, 64)).array)
        tma.make_tma_descriptor(x, BOX)
        assert x.streams == [stream]


def test_a_shape_never_seen_costs_one_encode_as_any_other(gpu):
    for rows in range(16, 64):
        x = zeros((rows, 64))
        gpu.forget()
        made = tma.make_tma_descriptor(x, **TILED)
        assert gpu.encodes == [f"{TILED_CALL}@0"]
        check_map(made, "tiled", x, TILED)


@compiled
def test_random_requests_on_any_gpu_under_any_context_agree_with_python(gpu):
    rng = random.Random(20261122)
    contexts = ("", "primary 0", "primary 1", "primary 2", "own 0", "own 1")
    maps = missed = 0
    requests = 4000 // SHARE
    for _ in range(requests):
        asked = request_at_random(rng)
        if asked is None or not isinstance(asked.tensor, np.ndarray):
            continue
        kind, given = asked.kind, asked.given
        managed = rng.random() < 0.1
        x = CupyArray(
            asked.tensor, 0 if managed else rng.choice((0, 1, 1, 2)), 13 if managed else 2
        )
        context, owner = rng.choice(contexts), rng.choice((0, 1, 2))
        gpu.set_context(context)
        gpu.library.stand_in_own_pointers(owner if managed else -1)
        gpu.forget()
        made = IN_C[kind](x, **given)
        encodes = gpu.encodes
        assert gpu.contexts == context
        expected = by_python(kind, x, given)
        if made is None:
            assert encodes == [] or expected is None  # the driver refused both calls
            missed += expected is not None
            continue
        maps += 1
        ordinal = owner if managed else x.device[1]
        if made.encoder == "driver":
            assert [call[-2:] for call in encodes] == [f"@{ordinal}"]
        else:
            assert encodes == []
        assert made._data == expected._data
        if made.target.has_model:
            assert bytes(made) == bits.encode(made.arguments, made.global_address)
        assert (made, made.description) == (expected, expected.description)
        assert made.launchable
    assert maps > requests / 40
    assert missed <= 0.05 * maps


# ---- contexts ------------------------------------------------------------------------------------

GET, DEVICE = "cuCtxGetCurrent", "cuCtxGetDevice"
PUSH, POP = "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"

#: Current context -> driver functions called for a tensor on GPU 0, by C and by Python. C encodes
#: in any context of the tensor's GPU.
CALLS = {
    "primary 0": ([GET, DEVICE, "encode"], [GET, "encode"]),
    "own 0": ([GET, DEVICE, "encode"], [GET, PUSH, "encode", POP]),
    "primary 1": ([GET, DEVICE, PUSH, "encode", POP], [GET, PUSH, "encode", POP]),
    "own 1": ([GET, DEVICE, PUSH, "encode", POP], [GET, PUSH, "encode", POP]),
    "": ([GET, PUSH, "encode", POP], [GET, PUSH, "encode", POP]),
}


@pytest.mark.parametrize(("kind", "options"), [("tiled", TILED), ("im2col", IM2COL)])
@pytest.mark.parametrize("context", list(CALLS))
def test_a_map_is_encoded_in_a_context_of_the_tensors_gpu(context, kind, options, gpu):
    x = zeros((128, 64) if kind == "tiled" else IMAGES)
    gpu.set_context(context)
    gpu.forget()
    made = MAKE[kind](x, **options)
    encode = f"{TILED_CALL if kind == 'tiled' else IM2COL_CALL}@0"
    expected = CALLS[context][0 if extension.COMPILED else 1]
    assert gpu.calls == [encode if call == "encode" else call for call in expected]
    assert gpu.contexts == context
    check_map(made, kind, x, options)


def test_the_second_gpu_gets_its_own_context(gpu):
    x = zeros((128, 64), gpu=1)
    made = tma.make_tma_descriptor(x, **TILED)
    assert (gpu.encodes, gpu.contexts) == ([f"{TILED_CALL}@1"], "primary 0")
    check_map(made, "tiled", x, TILED)


def test_threads_have_their_own_contexts(gpu):
    wrong = []

    def make(ordinal):
        gpu.set_context(f"primary {1 - ordinal}" if ordinal < 2 else "")
        for rows in range(16, 216):
            made = tma.make_tma_descriptor(zeros((rows, 64), ordinal % 2), **TILED)
            if made is None or made.shape != (rows, 64):
                wrong.append(rows)
        if {call[-1] for call in gpu.encodes} != {str(ordinal % 2)}:
            wrong.append(gpu.encodes)

    threads = [threading.Thread(target=make, args=(ordinal,)) for ordinal in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, gpu.contexts) == ([], "primary 0")


# ---- what Python explains ------------------------------------------------------------------------


@pytest.mark.parametrize("function", [TILED_CALL, PUSH])
def test_a_call_of_the_driver_that_fails_is_explained(function, gpu):
    x = zeros((128, 64))
    gpu.set_context("primary 1")
    gpu.fail(function)
    assert IN_C["tiled"](x, **TILED) is None
    with pytest.raises(tma.TmaDriverError) as refused:
        tma.make_tma_descriptor(x, BOX, swizzle="bytes128")
    said = str(refused.value)
    assert said.startswith(f"{function} returned CUDA_ERROR_INVALID_VALUE (1): invalid argument")
    assert gpu.contexts == "primary 1"
    if function == TILED_CALL:
        assert f"globalAddress = {x.array.ctypes.data:#x}" in said
        assert "boxDim[1] = 16" in said


@pytest.mark.parametrize(("result", "is_of_a_kernel"), [(1, False), (700, True), (999, True)])
def test_the_error_of_an_earlier_kernel_is_not_blamed_on_the_encode(result, is_of_a_kernel, gpu):
    gpu.fail(TILED_CALL, result)
    with pytest.raises(tma.TmaDriverError) as refused:
        tma.make_tma_descriptor(zeros((128, 64)), BOX)
    said = "It is the error of an earlier kernel, which every later call returns, an encode too."
    assert (said in str(refused.value)) is is_of_a_kernel
    assert ("CUDA_LAUNCH_BLOCKING=1" in str(refused.value)) is is_of_a_kernel


def test_a_context_that_cannot_be_popped_is_no_success(gpu):
    gpu.set_context("primary 1")
    gpu.fail(POP)
    assert IN_C["tiled"](zeros((128, 64)), **TILED) is None


def test_a_driver_that_does_not_say_what_is_current_encodes_in_a_pushed_context(gpu):
    x = zeros((128, 64))
    gpu.fail(GET)
    made = tma.make_tma_descriptor(x, **TILED)
    assert (gpu.calls, gpu.contexts) == ([GET, PUSH, f"{TILED_CALL}@0", POP], "primary 0")
    gpu.fail("")
    check_map(made, "tiled", x, TILED)


def test_a_gpu_of_another_capability_is_served_by_its_driver(gpu):
    x = zeros((128, 64), gpu=2)
    made = tma.make_tma_descriptor(x, **TILED)
    assert (gpu.encodes, made.target.name) == ([f"{TILED_CALL}@2"], "sm_100")
    check_map(made, "tiled", x, TILED)
    same = tma.make_tma_descriptor(zeros((128, 64)), **TILED)
    assert bytes(made)[8:] == bytes(same)[8:]  # bit 85 is cleared


def test_a_target_of_another_capability_is_not_encoded_by_this_driver(gpu):
    given = {**TILED, "target": "sm_100"}
    made = tma.make_tma_descriptor(zeros((128, 64)), **given)
    assert (gpu.encodes, made.encoder, made.launchable) == ([], None, True)
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100"):
        bytes(made)
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100"):
        _ = made.ptr
    back = tma.make_tma_descriptor(zeros((128, 64), gpu=2), **{**TILED, "target": "sm_90"})
    assert (gpu.encodes, back.encoder) == ([], "model")
    batch = tma.make_tma_descriptors([zeros((128, 64))], **given)
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100"):
        batch.numpy()


def test_a_gpu_that_is_not_there_is_refused_by_name(gpu):
    x = zeros((128, 64), gpu=7)
    assert IN_C["tiled"](x, **TILED) is None
    with pytest.raises(tma.TmaPreconditionError, match="there is no GPU 7: the driver shows 3"):
        tma.make_tma_descriptor(x, BOX)
    assert gpu.encodes == []


def test_managed_memory_is_on_the_gpu_that_the_driver_says(gpu):
    x = CupyArray(zeros((128, 64)).array, 0, device_type=13)
    for owner, ordinal in ((1, 1), (2, 2), (-1, 0)):  # -1: the driver does not know it
        gpu.library.stand_in_own_pointers(owner)
        gpu.forget()
        made = tma.make_tma_descriptor(x, **TILED)
        assert gpu.encodes == [f"{TILED_CALL}@{ordinal}"]
        check_map(made, "tiled", x, TILED)


def test_pinned_memory_is_host_memory(gpu):
    made = tma.make_tma_descriptor(CupyArray(zeros((128, 64)).array, 0, device_type=3), BOX)
    assert (made.encoder, made.launchable, gpu.encodes) == ("model", False, [])


def test_requests_that_are_refused_call_no_encoder(gpu):
    with pytest.raises(tma.TmaPreconditionError):
        tma.make_tma_descriptor(zeros((128, 64)), (16, 65))
    assert gpu.encodes == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_drivers_state_alone(gpu):
    x = zeros((128, 64))
    expected = bytes(tma.make_tma_descriptor(x, **TILED))
    child = os.fork()
    if child == 0:
        gpu.forget()
        made = tma.make_tma_descriptor(x, BOX, swizzle="bytes128")
        good = (bytes(made), made.encoder, gpu.encodes) == (expected, "model", [])
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(tma.make_tma_descriptor(x, **TILED)) == expected


# ---- another address -----------------------------------------------------------------------------


def test_with_address_gives_the_map_of_the_other_tensor(gpu):
    x, y = zeros((128, 64)), zeros((128, 64))
    made = tma.make_tma_descriptor(x, BOX, swizzle="bytes128")
    gpu.forget()
    moved = made.with_address(y)
    assert gpu.encodes == []
    check_map(moved, "tiled", y, TILED)
    far = made.with_address(1 << 40)
    assert (far.global_address, far.launchable, far.ptr % 128) == (1 << 40, True, 0)
    assert bytes(far)[8:] == bytes(made)[8:]


def test_with_address_stays_on_its_gpu():
    made = tma.make_tma_descriptor(zeros((128, 64)), BOX)
    with pytest.raises(tma.TmaPreconditionError):
        made.with_address(zeros((128, 64), gpu=1))


# ---- batches -------------------------------------------------------------------------------------


def test_a_batch_has_the_maps_of_its_tensors_on_both_gpus(gpu):
    tensors = [zeros((16 + i, 64), gpu=i % 2) for i in range(32)]
    gpu.set_context("own 0")
    batch = tma.make_tma_descriptors(tensors, BOX, swizzle="bytes128")
    assert gpu.encodes == [f"{TILED_CALL}@{i % 2}" for i in range(32)]
    assert gpu.contexts == "own 0"
    assert (batch.launchable, batch.ptr) == (True, batch.numpy().ctypes.data)
    for x, made, row in zip(tensors, batch, batch.numpy(), strict=True):
        assert bytes(made) == bytes(row)
        check_map(made, "tiled", x, TILED)
    assert len({batch.ptr, *(made.ptr for made in batch)}) == 33


def test_a_batch_of_which_one_encode_fails_is_explained_and_lets_go(gpu):
    tensors = [zeros((16 + i, 64)) for i in range(8)]
    before = [sys.getrefcount(x) for x in tensors]
    gpu.fail(TILED_CALL, before=5)
    rows = np.zeros(8 * 128 + 128, np.uint8)
    start = rows.ctypes.data + -rows.ctypes.data % 128
    assert batch_in_c(tuple(tensors), start, **TILED) is None
    said = rf"^tensors\[\d\]: {TILED_CALL} returned CUDA_ERROR_INVALID"
    with pytest.raises(tma.TmaDriverError, match=said):
        tma.make_tma_descriptors(tensors, BOX, swizzle="bytes128")
    gc.collect()
    assert [sys.getrefcount(x) for x in tensors] == before


def test_a_batch_with_host_tensors_is_not_launchable(gpu):
    batch = tma.make_tma_descriptors([zeros((64, 64)), zeros((64, 64)).array], BOX)
    assert (batch.launchable, gpu.encodes) == (False, [f"{TILED_CALL}@0"])
    with pytest.raises(tma.TmaUnsupportedError, match="host tensor"):
        _ = batch.ptr


# ---- bare arguments ------------------------------------------------------------------------------

BARE = ("FLOAT16", 2, 4096, (64, 128), (128,), (64, 16), (1, 1))


@compiled
@pytest.mark.parametrize(
    ("context", "calls"),
    [
        ("primary 0", [GET, DEVICE, GET, DEVICE, f"{TILED_CALL}@0"]),
        ("own 1", [GET, DEVICE, GET, DEVICE, f"{TILED_CALL}@1"]),
        ("", [GET, GET, PUSH, f"{TILED_CALL}@0", POP]),
        ("primary 2", [GET, DEVICE]),
    ],
)
def test_bare_arguments_are_encoded_for_the_current_gpu(context, calls, gpu):
    gpu.set_context(context)
    made = tma.driver_encode_tiled(*BARE)
    assert (gpu.calls, gpu.contexts) == (calls, context)
    assert made.encoder == ("model" if context == "primary 2" else "driver")
    assert bytes(made) == bytes(tma.driver_encode_tiled(*BARE, encoder="model"))


def test_bare_arguments_agree_with_the_rules():
    for arguments, encode in (
        (BARE, tma.driver_encode_tiled),
        (
            ("FLOAT16", 4, 4096, (64, 14, 14, 2), (128, 1792, 25088), (-1, -1), (-1, -1), 64, 64,
             (1, 1, 1, 1)),
            tma.driver_encode_im2col,
        ),
        (
            ("FLOAT16", 4, 4096, (64, 14, 14, 2), (128, 1792, 25088), -1, 1, 64, 64,
             (1, 1, 1, 1)),
            tma.driver_encode_im2col_wide,
        ),
    ):  # fmt: skip
        made = encode(*arguments, encoder="auto")
        long = encode(*arguments, encoder="driver")
        assert (made.encoder, made, bytes(made)) == ("driver", long, bytes(long))


# ---- references and memory -----------------------------------------------------------------------


def exercise(gpu, x, y, images):
    """Call each function that makes or refuses a map of a CUDA tensor once."""
    made = tma.make_tma_descriptor(x, **TILED, ragged=0, target="sm_90")
    bytes(made), made.ptr, made.with_address(y), made.with_address(1 << 40), made.tx_bytes
    tma.make_im2col_descriptor(images, **IM2COL)
    IN_C["tiled"](x, (16, 65))
    _ = tma.check_tma_descriptor(x, [16, 64]).ok
    tma.make_tma_descriptors([x, y], BOX)
    tma.driver_encode_tiled(*BARE)
    gpu.fail(TILED_CALL)
    assert IN_C["tiled"](x, **TILED) is None
    gpu.fail("")


@pytest.mark.parametrize("context", ["primary 0", "primary 1"])
def test_references_and_memory_are_let_go(context, gpu):
    x, y, images = zeros((128, 64)), zeros((128, 64)), zeros(IMAGES)
    x.__class__ = Silent
    y.__class__ = images.__class__ = Silent
    gpu.set_context(context)
    for _ in range(50):
        exercise(gpu, x, y, images)
    gc.collect()
    objects = (x, y, images, TensorMap, BOX)
    before, blocks = [sys.getrefcount(one) for one in objects], sys.getallocatedblocks()
    for _ in range(1000):
        exercise(gpu, x, y, images)
    gc.collect()
    assert [sys.getrefcount(one) for one in objects] == before
    assert sys.getallocatedblocks() - blocks < 500  # a leak at each call would be 1000


class Silent(CupyArray):
    """A producer whose `__dlpack__` does not record the stream."""

    __module__ = "cupy"

    def __dlpack__(self, **keywords):
        self.streams.clear()
        return CupyArray.__dlpack__(self, **keywords)
