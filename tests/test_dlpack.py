"""Intake of real tensors: torch, NumPy, JAX, tvm-ffi and objects that behave like CuPy's."""

import gc
import os
import subprocess
import sys
import warnings
import weakref
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from tma_dlpack.dlpack import (
    Device,
    TensorView,
    as_tensor_view,
    canonical_strides,
    host_bytes,
    judge,
    read_layout,
    torch_dtype_table,
)
from tma_dlpack.dlpack import view as view_module
from tma_dlpack.dlpack.refusals import REFUSALS
from tma_dlpack.dtypes import DLDataType
from tma_dlpack.enums import DLDeviceType
from tma_dlpack.errors import TmaPreconditionError, TmaUnsupportedError

FLOAT32 = DLDataType(2, 32)
CPU = Device(1, 0)


def refusal_of(tensor):
    """The one violation with which a tensor is refused, and the error."""
    with pytest.raises(TmaPreconditionError) as caught:
        as_tensor_view(tensor)
    (violation,) = caught.value.violations
    assert violation.argument == "tensor"
    assert violation.found.startswith("tensor ")
    limit, _, source = REFUSALS[violation.rule]
    assert (violation.limit, violation.source) == (limit, source)
    assert violation.fix
    return violation, caught.value


class Exporting:
    """A producer that we do not know: only `__dlpack__`, and only what another exports."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)


# What good tensors give


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


def test_jax_array_is_seen_as_it_is():
    x = jnp.zeros((3, 8), jnp.bfloat16)
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
    assert (v.shape, v.strides) == ((3, 0, 8), (8, 8, 1))


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


def test_equal_layouts_give_equal_keys():
    a, b = np.zeros((4, 8)), np.zeros((4, 8))
    assert read_layout(a)[1] == read_layout(b)[1]
    assert read_layout(a)[1] != read_layout(a.T)[1]
    assert hash(read_layout(torch.zeros(3))[1]) == hash(read_layout(torch.ones(3))[1])


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


def test_torch_device_kinds_become_dlpack_devices():
    """The attribute route on devices that this machine lacks, with a stand-in for the tensor."""

    class Stand(torch.Tensor):
        where = torch.device("cuda", 3)
        pinned = False
        device = property(lambda self: self.where)

        def is_pinned(self):
            return self.pinned

    x = torch.zeros(4).as_subclass(Stand)
    assert as_tensor_view(x).device == Device(DLDeviceType.kDLCUDA, 3)
    Stand.where, Stand.pinned = torch.device("cpu"), True
    assert as_tensor_view(x).device == Device(DLDeviceType.kDLCUDAHost, 0)
    Stand.where = torch.device("xpu", 0)
    violation, _ = refusal_of(x)
    assert violation.rule == "TENSOR_DEVICE"
    assert "xpu:0" in violation.found


def test_hip_build_of_torch_is_refused(monkeypatch):
    class Rocm(torch.Tensor):
        device = property(lambda self: torch.device("cuda", 5))

    monkeypatch.setattr(torch.version, "hip", "6.2")
    violation, _ = refusal_of(torch.zeros(4).as_subclass(Rocm))
    assert violation.rule == "TENSOR_DEVICE"
    assert "ROCm device 5" in violation.found


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
        pytest.param((4, 1, 1733), (1736, 0, 1), 16, 32, (1736, 1736, 1), id="not past its outer"),
        pytest.param((4, 1, 1733), (1733, 9, 1), 16, 16, (1733, 1733, 1), id="nor hides its fault"),
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
    """Build strides that obey libcu++ (aligned, no overlap), then spoil those of extents 1."""
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


# What is refused: torch


class Wrapper(torch.Tensor):
    """A wrapper subclass as DTensor is one: no memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


def fake_tensor():
    with FakeTensorMode():
        return torch.zeros(3, 4)


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls some of these prototypes or deprecated
        return make()


ODD_TORCH = {
    "fake": (fake_tensor, "TENSOR_FAKE", "torch.library.custom_op"),
    "wrapper subclass": (lambda: Wrapper(torch.zeros(3)), "TENSOR_WRAPPER", "to_local()"),
    "meta": (lambda: torch.zeros(3, device="meta"), "TENSOR_META", 'device="cuda"'),
    "empty meta": (lambda: torch.zeros(0, device="meta"), "TENSOR_META", 'device="cuda"'),
    "sparse coo": (lambda: torch.eye(3).to_sparse(), "TENSOR_SPARSE", "x.to_dense()"),
    "sparse csr": (lambda: torch.eye(3).to_sparse_csr(), "TENSOR_SPARSE", "x.to_dense()"),
    "mkldnn": (lambda: torch.eye(3).to_mkldnn(), "TENSOR_SPARSE", "x.to_dense()"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        "TENSOR_NESTED",
        "x.unbind()",
    ),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
        "TENSOR_NESTED",
        "x.values()",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8),
        "TENSOR_QUANTIZED",
        "x.int_repr()",
    ),
    "bits8": (
        lambda: torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
        "TENSOR_TORCH_DTYPE",
        "x.view(torch.uint8)",
    ),
    "neg bit": (
        lambda: torch.zeros(3, dtype=torch.complex64).conj().imag,
        "TENSOR_NEG",
        "x.resolve_neg()",
    ),
    "conj bit": (
        lambda: torch.zeros(3, dtype=torch.complex64).conj(),
        "TENSOR_CONJ",
        "x.resolve_conj()",
    ),
}


@pytest.mark.parametrize("name", ODD_TORCH)
def test_odd_torch_tensor_is_refused_by_name(name):
    make, rule, fix = ODD_TORCH[name]
    tensor = quietly(make)
    violation, _ = refusal_of(tensor)
    assert violation.rule == rule
    assert fix in violation.fix


def test_odd_torch_tensor_is_accepted_after_its_fix():
    x = torch.zeros(3, dtype=torch.complex64).conj()
    assert as_tensor_view(x.resolve_conj()).dtype == DLDataType(5, 64)
    assert as_tensor_view(x.imag.resolve_neg()).dtype == FLOAT32
    assert as_tensor_view(torch.eye(3).to_sparse().to_dense()).shape == (3, 3)


def test_tensor_under_vmap_is_refused_with_torch_words():
    seen = []

    def body(x):
        seen.append(refusal_of(x))
        return x

    torch.vmap(body)(torch.zeros(2, 4))
    violation, error = seen[0]
    assert violation.rule == "TENSOR_EXPORT"
    assert "torch raised RuntimeError" in violation.found
    assert isinstance(error.__cause__, RuntimeError)


def test_torch_dtype_table_needs_an_imported_torch(monkeypatch):
    torch_dtype_table.cache_clear()
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(TmaUnsupportedError, match="import torch"):
        torch_dtype_table()


# What is refused: NumPy, JAX, no tensors at all


@pytest.mark.parametrize(
    ("array", "rule", "fix"),
    [
        pytest.param(np.zeros(3, ">f4"), "TENSOR_NUMPY_DTYPE", "newbyteorder", id="big-endian"),
        pytest.param(np.zeros(3, "i4,f4"), "TENSOR_NUMPY_DTYPE", "one field", id="structured"),
        pytest.param(np.zeros(3, object), "TENSOR_NUMPY_DTYPE", "8 to 64 bits", id="object"),
        pytest.param(
            np.zeros(3, "M8[s]"), "TENSOR_NUMPY_DTYPE", "view of its bytes", id="datetime"
        ),
        pytest.param(np.zeros(3, np.longdouble), "TENSOR_NUMPY_DTYPE", "8 to 64", id="longdouble"),
        pytest.param(
            np.zeros(3, ml_dtypes.bfloat16),
            "TENSOR_NUMPY_DTYPE",
            'x.view(numpy.uint16) and data_type="BFLOAT16"',
            id="bfloat16",
        ),
        pytest.param(
            np.zeros(3, ml_dtypes.float8_e4m3fn), "TENSOR_NUMPY_DTYPE", "numpy.uint8", id="float8"
        ),
        pytest.param(
            np.zeros(3, ml_dtypes.float4_e2m1fn), "TENSOR_NUMPY_DTYPE", "16U4_ALIGN8B", id="float4"
        ),
        pytest.param(
            np.zeros((3, 8))[:, ::-1], "TENSOR_STRIDE_NEGATIVE", "x.copy()", id="reversed"
        ),
        pytest.param(np.ma.zeros(3), "TENSOR_MASKED", "apart", id="masked array"),
        pytest.param(
            np.zeros(3, [("a", "f4"), ("b", "u1")])["a"],
            "TENSOR_EXPORT",
            "message asks",
            id="field",
        ),
    ],
)
def test_odd_numpy_array_is_refused_with_its_way_out(array, rule, fix):
    violation, error = refusal_of(array)
    assert violation.rule == rule
    assert fix in violation.fix
    if rule in ("TENSOR_NUMPY_DTYPE", "TENSOR_EXPORT"):
        assert isinstance(error.__cause__, BufferError)
        assert str(error.__cause__).splitlines()[0] in violation.found


def test_numpy_way_out_for_ml_dtypes_is_accepted():
    x = np.zeros((2, 8), ml_dtypes.bfloat16)
    assert as_tensor_view(x.view(np.uint16)).dtype == DLDataType(1, 16)


def test_deleted_and_traced_jax_arrays_are_refused_with_jax_words():
    x = jnp.zeros(4)
    x.delete()
    violation, error = refusal_of(x)
    assert violation.rule == "TENSOR_EXPORT"
    assert "deleted" in violation.found
    assert isinstance(error.__cause__, RuntimeError)

    seen = []
    jax.jit(lambda t: (seen.append(refusal_of(t)), t)[1])(jnp.zeros(4))
    violation, error = seen[0]
    assert violation.rule == "TENSOR_EXPORT"
    assert error.__cause__ is not None


def test_a_refused_first_tensor_does_not_spoil_the_next_of_its_type():
    class Mine(np.ndarray):
        pass

    x = np.zeros(8).view(Mine)
    assert refusal_of(x[::-1])[0].rule == "TENSOR_STRIDE_NEGATIVE"
    assert as_tensor_view(x).shape == (8,)


@pytest.mark.parametrize(
    "thing",
    [None, 3, 2.5, "text", b"bytes", [1, 2], (1,), {}, object(), np.float32(1), memoryview(b"a")],
)
def test_no_tensor_at_all_is_refused_with_what_is_accepted(thing):
    violation, _ = refusal_of(thing)
    assert violation.rule == "TENSOR_TYPE"
    assert "__dlpack__" in violation.limit
    assert type(thing).__name__ in violation.found


@pytest.mark.parametrize("kind", [np.ndarray, torch.Tensor, SimpleNamespace])
def test_a_class_instead_of_its_tensor_is_refused(kind):
    violation, _ = refusal_of(kind)
    assert violation.rule == "TENSOR_TYPE"
    assert violation.found.startswith("tensor is the class ")


def test_raw_capsule_is_refused():
    violation, _ = refusal_of(np.zeros(3).__dlpack__())
    assert violation.rule == "TENSOR_RAW_CAPSULE"
    assert violation.fix == "pass x instead of x.__dlpack__()"


# Judging layouts that no producer here makes

GOOD = (2, 0, 2, 32, 1, 0, (4, 8), (8, 1))


def layout_with(**changes):
    names = ("device_type", "device_id", "code", "bits", "lanes", "flags", "shape", "strides")
    return tuple({**dict(zip(names, GOOD, strict=True)), **changes}.values())


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        *[
            pytest.param({"device_type": t.value}, "TENSOR_DEVICE", id=t.name)
            for t in DLDeviceType
            if t not in (1, 2, 3, 13)
        ],
        pytest.param({"device_type": 99}, "TENSOR_DEVICE", id="unknown device"),
        pytest.param({"device_id": -1}, "TENSOR_DEVICE", id="negative device id"),
        pytest.param({"bits": 0}, "TENSOR_DTYPE", id="no bits"),
        pytest.param({"lanes": 0}, "TENSOR_DTYPE", id="no lanes"),
        pytest.param({"code": 3}, "TENSOR_OPAQUE", id="opaque handles"),
        pytest.param({"code": 17, "bits": 4, "flags": 4}, "TENSOR_PADDED", id="padded 4 bits"),
        pytest.param({"shape": (4, -8)}, "TENSOR_EXTENT", id="negative extent"),
        pytest.param({"strides": (-8, 1)}, "TENSOR_STRIDE_NEGATIVE", id="negative stride"),
    ],
)
def test_layout_is_refused(changes, rule):
    assert judge(GOOD) == (Device(2, 0), FLOAT32, (4, 8), (8, 1), False)
    with pytest.raises(TmaPreconditionError) as caught:
        judge(layout_with(**changes))
    assert caught.value.violations[0].rule == rule


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"device_type": 13}, id="managed memory"),
        pytest.param({"flags": 4}, id="padded flag on whole bytes"),
        pytest.param({"flags": 2}, id="a copy"),
        pytest.param({"code": 5, "bits": 64}, id="complex"),
        pytest.param({"code": 0, "bits": 8}, id="int8"),
        pytest.param({"code": 99}, id="a type code of the future"),
        pytest.param({"strides": (7, 3)}, id="strides that a map cannot have"),
        pytest.param({"shape": (1, 8), "strides": (-5, 1)}, id="negative stride of extent 1"),
        pytest.param({"shape": (0, 8), "strides": (-5, 1)}, id="negative stride without elements"),
    ],
)
def test_layout_is_left_to_the_rules(changes):
    layout = layout_with(**changes)
    device, dtype, shape, _, _ = judge(layout)
    assert (device.device_type, *dtype, shape) == (layout[0], *layout[2:5], layout[6])


# __cuda_array_interface__


class Interface:
    def __init__(self, **fields):
        self.__cuda_array_interface__ = {
            "shape": (4, 8),
            "typestr": "<f4",
            "data": (0x7F00_0000_0000, False),
            "strides": None,
            "version": 3,
            "stream": 1,
        } | fields


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, (FLOAT32, (4, 8), (8, 1), False), id="plain"),
        pytest.param({"strides": (64, 4)}, (FLOAT32, (4, 8), (16, 1), False), id="byte strides"),
        pytest.param(
            {"data": (0x7F00_0000_0000, True), "typestr": "|b1"},
            (DLDataType(6, 8), (4, 8), (8, 1), True),
            id="read-only bool",
        ),
        pytest.param({"typestr": "<c8"}, (DLDataType(5, 64), (4, 8), (8, 1), False), id="complex"),
        pytest.param(
            {"shape": (1, 8), "strides": (3, 4)}, (FLOAT32, (1, 8), (8, 1), False), id="1"
        ),
    ],
)
def test_cuda_array_interface_is_read(fields, expected):
    v = as_tensor_view(Interface(**fields))
    assert (v.dtype, v.shape, v.strides, v.read_only) == expected
    assert (v.address, v.device) == (0x7F00_0000_0000, Device(2, 0))


def test_cuda_array_interface_may_be_null_without_elements():
    v = as_tensor_view(Interface(shape=(0, 8), data=(None, False)))
    assert (v.address, v.shape) == (0, (0, 8))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        pytest.param({"typestr": ">f4"}, "TENSOR_INTERFACE_DTYPE", id="big-endian"),
        pytest.param({"typestr": "|V8"}, "TENSOR_INTERFACE_DTYPE", id="structured"),
        pytest.param({"typestr": "nonsense"}, "TENSOR_INTERFACE", id="no type"),
        pytest.param({"data": (0, False)}, "TENSOR_NULL", id="null"),
        pytest.param({"data": (-8, False)}, "TENSOR_INTERFACE", id="negative address"),
        pytest.param({"data": (1 << 64, False)}, "TENSOR_INTERFACE", id="65-bit address"),
        pytest.param({"data": None}, "TENSOR_INTERFACE", id="no data"),
        pytest.param({"shape": (2.5, 8)}, "TENSOR_INTERFACE", id="fractional extent"),
        pytest.param({"shape": (-4, 8)}, "TENSOR_EXTENT", id="negative extent"),
        pytest.param({"shape": (1,) * 65}, "TENSOR_INTERFACE", id="65 dimensions"),
        pytest.param({"strides": (4,)}, "TENSOR_INTERFACE", id="strides of another rank"),
        pytest.param({"strides": (30, 4)}, "TENSOR_BYTE_STRIDES", id="fractional stride"),
        pytest.param({"strides": (-32, 4)}, "TENSOR_STRIDE_NEGATIVE", id="negative stride"),
        pytest.param({"mask": object()}, "TENSOR_MASKED", id="masked"),
    ],
)
def test_cuda_array_interface_is_refused(fields, rule):
    assert refusal_of(Interface(**fields))[0].rule == rule


def test_dlpack_goes_before_cuda_array_interface():
    class Both(Exporting, Interface):
        __cuda_array_interface__ = Interface().__cuda_array_interface__

    x = np.zeros((2, 4))
    assert as_tensor_view(Both(x)).address == x.ctypes.data


def test_a_temporary_exported_by_an_unknown_producer_stays_alive():
    class Doubling:
        def __dlpack__(self, **keywords):
            return np.full(1000, 7, np.uint8).__dlpack__(**keywords)

    view = as_tensor_view(Doubling())
    others = [np.zeros(1000, np.uint8) for _ in range(50)]  # would take freed memory
    assert host_bytes(view).tolist() == [7] * 1000
    assert len(others) == 50


# Nothing copied, leaked or imported


def tvm_tensor():
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not in the test extra")
    return tvm_ffi.from_dlpack(torch.zeros(4, 8))


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
    as_tensor_view(tensor)
    gc.collect()
    references, objects = sys.getrefcount(tensor), len(gc.get_objects())
    blocks = sys.getallocatedblocks()
    for _ in range(10_000):
        as_tensor_view(tensor)
    assert sys.getrefcount(tensor) == references
    assert sys.getallocatedblocks() - blocks < 1_000
    gc.collect()
    assert len(gc.get_objects()) - objects < 100


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


def test_types_made_on_the_fly_do_not_pile_up():
    for _ in range(view_module._MAX_READERS + 10):
        kind = type("Fleeting", (np.ndarray,), {})
        as_tensor_view(np.zeros(3).view(kind))
    assert len(view_module._readers) <= view_module._MAX_READERS


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
    assert host_bytes(as_tensor_view(jnp.zeros((3, 32), jnp.float4_e2m1fn))).nbytes == 48
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
        host_bytes(as_tensor_view(Interface()))
