"""Reading real tensors of torch, NumPy, JAX and tvm-ffi, and objects that behave like CuPy's."""

import gc
import os
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tma_dlpack.dlpack import (
    Device,
    TensorView,
    as_tensor_view,
    canonical_strides,
    host_bytes,
    torch_dtype_table,
)
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.errors import TmaUnsupportedError

FLOAT32 = DLDataType(2, 32)
CPU = Device(1, 0)


class Exporting:
    """An unknown producer, which has only `__dlpack__` and exports another producer's capsule."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)


# Valid tensors


def test_numpy_array_is_seen_as_it_is():
    x = np.zeros((4, 6, 8), np.float32)[:, ::2]
    v = as_tensor_view(x)
    assert v == TensorView(
        x.ctypes.data, CPU, FLOAT32, (4, 3, 8), (48, 16, 1), False, "numpy.ndarray", x
    )
    assert v.owner is x
    assert v.capsule is None


def test_torch_tensor_is_seen_as_it_is():
    x = torch.zeros(4, 6, 8)[1:, ::2]
    v = as_tensor_view(x)
    assert v == TensorView(
        x.data_ptr(), CPU, FLOAT32, (3, 3, 8), (48, 16, 1), False, "torch.Tensor", x
    )
    assert type(v.shape) is tuple
    assert v.owner is x


def on_the_cpu(x):
    """Move a JAX array to the CPU, because JAX creates arrays on the GPU if there is a GPU."""
    return jax.device_put(x, jax.devices("cpu")[0])


def test_jax_array_is_seen_as_it_is():
    x = on_the_cpu(jnp.zeros((3, 8), jnp.bfloat16))
    v = as_tensor_view(x)
    assert (v.address, v.dtype, v.device) == (x.unsafe_buffer_pointer(), DLDataType(4, 16), CPU)
    assert (v.shape, v.strides) == ((3, 8), (8, 1))
    assert v.owner is x


def test_jax_float4_has_one_lane_and_shape_in_values():
    v = as_tensor_view(jnp.zeros((2, 32), jnp.float4_e2m1fn))
    assert (v.dtype, v.shape, v.strides) == (DLDataType(17, 4, 1), (2, 32), (32, 1))


def test_torch_float4_has_two_lanes_and_shape_in_bytes():
    v = as_tensor_view(torch.zeros(2, 16, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
    assert (v.dtype, v.shape, v.strides) == (DLDataType(17, 4, 2), (2, 16), (16, 1))


def test_tvm_ffi_tensor_is_seen_as_it_is():
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not in the test extra")
    source = torch.zeros(3, 8, dtype=torch.bfloat16)
    x = tvm_ffi.from_dlpack(source)
    v = as_tensor_view(x)
    assert (v.address, v.dtype) == (source.data_ptr(), DLDataType(4, 16))
    assert (v.shape, v.strides, v.device) == ((3, 8), (8, 1), CPU)


@pytest.mark.parametrize("dtype", list("?bBhHiIlLefdFD"))
def test_numpy_and_torch_agree_on_every_common_dtype(dtype):
    x = np.zeros((2, 8), dtype)
    v, t = as_tensor_view(x), as_tensor_view(torch.from_numpy(x))
    assert (v.address, v.dtype, v.shape, v.strides) == (t.address, t.dtype, t.shape, t.strides)


def test_torch_table_equals_what_torch_exports():
    exported = {}
    for dtype in torch_dtype_table():
        x = torch.zeros(16, dtype=torch.uint8).view(dtype)
        exported[dtype] = as_tensor_view(Exporting(x)).dtype
    assert exported == torch_dtype_table()
    assert len(exported) == 22


def test_parameter_gradient_inference_and_subclass_are_fine():
    class Mine(torch.Tensor):
        pass

    x = torch.zeros(4, 8)
    for kind in (
        torch.nn.Parameter(x),
        x.clone().requires_grad_(),
        x.clone().requires_grad_() * 2,
        x.as_subclass(Mine),
    ):
        v = as_tensor_view(kind)
        assert (v.address, v.shape) == (kind.data_ptr(), (4, 8))
    with torch.inference_mode():
        assert as_tensor_view(torch.ones(4)).shape == (4,)


def test_rank_zero_and_rank_seven_are_let_through():
    for x in (np.zeros(()), torch.zeros(()), jnp.zeros(())):
        v = as_tensor_view(x)
        assert (v.shape, v.strides) == ((), ())
    assert as_tensor_view(np.zeros((2,) * 7)).strides == (64, 32, 16, 8, 4, 2, 1)


@pytest.mark.parametrize("make", [np.zeros, torch.zeros, jnp.zeros], ids=["numpy", "torch", "jax"])
def test_tensor_without_elements_is_let_through_with_its_shape(make):
    v = as_tensor_view(make((3, 0, 8)))
    assert (v.shape, v.strides) == ((3, 0, 8), (0, 0, 1))


def test_broadcast_keeps_stride_zero_and_is_read_only_in_numpy():
    x = np.broadcast_to(np.zeros(8, np.float32), (4, 8))
    v = as_tensor_view(x)
    assert (v.strides, v.read_only) == ((0, 1), True)
    assert as_tensor_view(torch.zeros(8).expand(4, 8)).strides == (0, 1)


def test_read_only_numpy_array_is_marked():
    x = np.zeros(8)
    x.flags.writeable = False
    assert as_tensor_view(x).read_only is True
    assert as_tensor_view(np.zeros(8)).read_only is False


def test_view_compares_by_value_and_never_by_tensor():
    x = np.zeros((4, 8))
    assert as_tensor_view(x) == as_tensor_view(x)
    assert hash(as_tensor_view(x)) == hash(as_tensor_view(x))
    assert as_tensor_view(x) != as_tensor_view(x[1:])


def test_device_says_what_it_is():
    assert [str(Device(t, 1)) for t in (1, 2, 3, 13, 10, 99)] == [
        "cpu:1",
        "cuda:1",
        "cuda_host:1",
        "cuda_managed:1",
        "kDLROCM:1",
        "type 99:1",
    ]
    assert [t for t in range(20) if Device(t, 0).is_cuda] == [2, 13]
    assert [t for t in range(20) if Device(t, 0).is_host] == [1, 3]


# Strides of extents 1


@pytest.mark.parametrize(
    ("shape", "strides", "bits", "align", "expected"),
    [
        pytest.param((1,), (7,), 32, 16, (1,), id="innermost becomes 1"),
        pytest.param((1, 8), (1000, 1), 16, 16, (8, 1), id="outer becomes the inner span"),
        pytest.param((1, 1, 1), (5, 0, -3), 32, 16, (4, 4, 1), id="all ones, 16 bytes"),
        pytest.param((1, 1733), (0, 1), 16, 16, (1736, 1), id="rounded up to 16 bytes"),
        pytest.param((1, 1736), (0, 1), 16, 16, (1736, 1), id="a whole span stays exact"),
        pytest.param((1, 1736), (0, 1), 16, 32, (1744, 1), id="or to 32 bytes"),
        pytest.param((4, 1, 1733), (1736, 0, 1), 16, 16, (1736, 1736, 1), id="within its outer"),
        pytest.param((4, 1, 1733), (1733, 9, 1), 16, 16, (1733, 1736, 1), id="aligned always"),
        pytest.param((4, 1, 23), (16, 99, 1), 8, 16, (16, 32, 1), id="aligned under an overlap"),
        pytest.param((4, 1, 64), (32, 9, 1), 16, 16, (32, 64, 1), id="overlap is no cap"),
        pytest.param((4, 1, 60), (0, 9, 1), 16, 16, (0, 64, 1), id="broadcast is no cap"),
        pytest.param((8, 1, 1, 60), (64, 1, 2, 1), 16, 32, (64, 64, 64, 1), id="two in a row"),
        pytest.param((2, 1, 31), (32, 0, 1), 4, 16, (32, 32, 1), id="4-bit values"),
        pytest.param((1, 3), (0, 1), 24, 16, (16, 1), id="3-byte elements"),
        pytest.param((8, 1), (1, 77), 32, 16, (1, 1), id="a column keeps its stride"),
        pytest.param((), (), 32, 16, (), id="rank 0"),
    ],
)
def test_canonical_strides(shape, strides, bits, align, expected):
    assert canonical_strides(shape, strides, bits, align) == expected


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.lists(st.integers(0, 5), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([4, 8, 16, 32, 64, 128]),
    st.sampled_from([16, 32]),
    st.lists(st.integers(-50, 5000), min_size=5, max_size=5),
)
def test_extents_of_1_never_break_a_rule_that_the_others_keep(
    extents, pads, ones, bits, align, noise
):
    """Build strides that obey libcu++ (aligned, no overlap); randomize those of extents of 1."""
    unit = align * 8 // bits
    shape = tuple(1 if one else n for n, one in zip(extents, ones, strict=False))
    strides, span = [], 1
    for i in reversed(range(len(shape))):
        stride = 1 if not strides else (-(-span // unit) + pads[i]) * unit
        strides.insert(0, stride)
        span = stride * shape[i] if shape[i] > 1 else span
    given_strides = [
        noise[i] if n == 1 else s for i, (n, s) in enumerate(zip(shape, strides, strict=True))
    ]
    result = canonical_strides(shape, given_strides, bits, align)
    assert result[-1] == 1
    for i in range(len(shape) - 1):
        assert result[i] * bits % (8 * align) == 0
        assert result[i] >= shape[i + 1] * result[i + 1]
    assert all(r == s for n, r, s in zip(shape, result, strides, strict=True) if n > 1)
    assert canonical_strides(shape, result, bits, align) == result


def test_torch_and_numpy_size_one_strides_are_replaced():
    assert as_tensor_view(torch.zeros(8, 1000)[:1, :8]).strides == (8, 1)
    assert as_tensor_view(np.zeros((8, 1000))[:1, :8]).strides == (8, 1)
    assert as_tensor_view(np.zeros((8, 8))[:1][::-1]).strides == (8, 1)


# Nothing copied, leaked or imported


def tvm_tensor():
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not in the test extra")
    return tvm_ffi.from_dlpack(torch.zeros(4, 8))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(4, 8),
        lambda: np.zeros((4, 8)),
        lambda: jnp.zeros((4, 8)),
        tvm_tensor,
    ],
    ids=["torch", "numpy", "jax", "tvm-ffi"],
)
def test_ten_thousand_views_leak_nothing(make):
    tensor = make()
    references, grown = sys.getrefcount(tensor), []
    for _ in range(3):  # free lists grow only once, but a leak grows at every call
        gc.collect()
        blocks, objects = sys.getallocatedblocks(), len(gc.get_objects())
        for _ in range(5_000):
            as_tensor_view(tensor)
        gc.collect()
        grown.append((sys.getallocatedblocks() - blocks, len(gc.get_objects()) - objects))
    assert sys.getrefcount(tensor) == references
    assert min(grown) < (500, 50)


def test_a_view_keeps_its_tensor_alive_and_no_longer():
    class Tracked(np.ndarray):
        pass

    alive = []
    tensor = np.zeros(8).view(Tracked)
    tensor_id = id(tensor)
    weakref.finalize(tensor, alive.append, "gone")
    view = as_tensor_view(tensor)
    del tensor
    gc.collect()
    assert id(view.owner) == tensor_id
    assert alive == []
    del view
    gc.collect()
    assert alive == ["gone"]


def test_a_temporary_exported_by_an_unknown_producer_stays_alive():
    class Doubling:
        def __dlpack__(self, **keywords):
            return np.full(1000, 7, np.uint8).__dlpack__(**keywords)

    view = as_tensor_view(Doubling())
    others = [np.zeros(1000, np.uint8) for _ in range(50)]  # would take freed memory
    assert host_bytes(view).tolist() == [7] * 1000
    assert len(others) == 50


def test_import_brings_no_framework():
    code = (
        "import sys, tma_dlpack.dlpack as d, numpy; d.as_tensor_view(numpy.zeros(3));"
        "print([m for m in ('torch', 'jax', 'cupy', 'tvm_ffi', 'ml_dtypes') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"


# The bytes of host tensors


def test_host_bytes_span_what_shape_and_strides_reach():
    x = np.arange(64, dtype=np.uint16).reshape(4, 16)
    part = x[1:3, 2:5]
    got = host_bytes(as_tensor_view(part))
    assert got.tobytes() == x.tobytes()[36 : 36 + 38]
    assert got.ctypes.data == part.ctypes.data
    got[0] = 255
    assert x[1, 2] & 255 == 255


def test_host_bytes_of_torch_stop_at_the_view_not_at_its_storage():
    x = torch.arange(64, dtype=torch.int32).reshape(4, 16)
    got = host_bytes(as_tensor_view(x[0, :4]))
    assert got.view(np.int32).tolist() == [0, 1, 2, 3]


def test_host_bytes_of_overlapping_and_4_bit_tensors():
    assert host_bytes(as_tensor_view(np.broadcast_to(np.zeros(4), (9, 4)))).nbytes == 32
    assert (
        host_bytes(as_tensor_view(on_the_cpu(jnp.zeros((3, 32), jnp.float4_e2m1fn)))).nbytes == 48
    )
    assert host_bytes(as_tensor_view(np.zeros((2, 0)))).nbytes == 0
    assert host_bytes(as_tensor_view(np.ones(()))).nbytes == 8


def test_host_bytes_of_a_read_only_tensor_cannot_be_written():
    x = np.zeros(8)
    x.flags.writeable = False
    got = host_bytes(as_tensor_view(x))
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1


def test_host_bytes_keep_the_tensor_alive():
    got = host_bytes(as_tensor_view(np.full(1000, 7, np.uint8)))
    gc.collect()
    others = [np.zeros(1000, np.uint8) for _ in range(50)]  # would take freed memory
    assert got.tolist() == [7] * 1000
    assert len(others) == 50


def test_host_bytes_of_cuda_memory_are_unsupported():
    with pytest.raises(TmaUnsupportedError, match="cuda:0"):
        host_bytes(TensorView(4096, Device(2, 0), FLOAT32, (4,), (1,), False, "imitation", None))
