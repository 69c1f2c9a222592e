"""Refused tensors: unusual tensors, other objects, unusual layouts and array interfaces."""

import pathlib
import sys
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tma_dlpack.dlpack import Device, as_tensor_view, check_layout, torch_dtype_table
from tma_dlpack.dlpack.layout import REFUSALS
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.enums import DLDeviceType
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError

FLOAT32 = DLDataType(2, 32)
CPU = Device(1, 0)


def refusal_of(tensor):
    """Return the only violation with which a tensor is refused, and the error."""
    with pytest.raises(TmaPreconditionError) as caught:
        as_tensor_view(tensor)
    (violation,) = caught.value.violations
    assert violation.argument == "tensor"
    assert violation.found.startswith("tensor ")
    row = REFUSALS[violation.rule]
    assert (violation.limit, violation.source) == (row.limit, row.source)
    assert violation.fix
    return violation, caught.value


# Refused: torch


class Wrapper(torch.Tensor):
    """A wrapper subclass such as DTensor, which has no memory of its own."""

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
        warnings.simplefilter("ignore")  # some types warn in torch
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


# Refused: NumPy, JAX, other objects


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
        *[
            pytest.param(np.zeros(3, getattr(ml_dtypes, name)), "TENSOR_NUMPY_DTYPE", way, id=name)
            for name, way in (
                ("int4", "16U4_ALIGN8B"),
                ("float6_e2m3fn", "four 6-bit values in three bytes"),
                ("float6_e3m2fn", "16U6_ALIGN16B"),
                ("int2", "x.view(numpy.uint8)"),
                ("uint2", "x.view(numpy.uint8)"),
                ("int1", "x.view(numpy.uint8)"),
                ("uint1", "x.view(numpy.uint8)"),
                ("complex32", "x.view(numpy.uint32)"),
                ("bcomplex32", "x.view(numpy.uint32)"),
            )
            if hasattr(ml_dtypes, name)  # newer releases have more
        ],
        pytest.param(
            np.zeros((3, 8))[:, ::-1], "TENSOR_STRIDE_NEGATIVE", "x.copy()", id="reversed"
        ),
        pytest.param(np.ma.zeros(3), "TENSOR_MASKED", "x.data", id="masked array"),
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


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_jax_integers_below_a_byte_are_refused_with_their_way_out(name):
    x = jnp.zeros((2, 16), getattr(jnp, name))
    whole = name.rstrip("24") + "8"
    assert f"x.astype(jax.numpy.{whole})" in refusal_of(x)[0].fix
    assert as_tensor_view(x.astype(whole)).shape == (2, 16)


def test_the_refusal_of_a_torch_dtype_names_nothing_private():
    violation, _ = refusal_of(quietly(lambda: torch.zeros(4, dtype=torch.uint8).view(torch.bits8)))
    assert "float8" in violation.limit
    assert "torch_dtype_table" not in str(violation)


def test_a_negative_device_id_is_what_is_wrong():
    with pytest.raises(TmaPreconditionError, match="cuda:-1; the id of a device must be 0 or more"):
        check_layout(layout_with(device_id=-1))


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


def test_torch_device_kinds_become_dlpack_devices():
    """Reading by attributes for devices that this machine lacks, with a stand-in for the tensor."""

    class Stand(torch.Tensor):
        where = torch.device("cuda", 3)
        device = property(lambda self: self.where)
        is_cuda = property(lambda self: self.where.type == "cuda")
        is_cpu = property(lambda self: self.where.type == "cpu")

        def get_device(self):
            return -1 if self.where.index is None else self.where.index

    x = torch.zeros(4).as_subclass(Stand)
    assert as_tensor_view(x).device == Device(DLDeviceType.kDLCUDA, 3)
    Stand.where = torch.device("cpu")
    assert as_tensor_view(x).device == Device(DLDeviceType.kDLCPU, 0)
    Stand.where = torch.device("xpu", 0)
    violation, _ = refusal_of(x)
    assert violation.rule == "TENSOR_DEVICE"
    assert "xpu:0" in violation.found


def test_hip_build_of_torch_is_refused(monkeypatch):
    class Rocm(torch.Tensor):
        device = property(lambda self: torch.device("cuda", 5))
        is_cuda = True

        def get_device(self):
            return 5

    monkeypatch.setattr(torch.version, "hip", "6.2")
    violation, _ = refusal_of(torch.zeros(4).as_subclass(Rocm))
    assert violation.rule == "TENSOR_DEVICE"
    assert "ROCm device 5" in violation.found


# Layouts that no installed producer makes

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
        pytest.param({"device_id": -1}, "TENSOR_DEVICE_ID", id="negative device id"),
        pytest.param({"bits": 0}, "TENSOR_DTYPE", id="no bits"),
        pytest.param({"lanes": 0}, "TENSOR_DTYPE", id="no lanes"),
        pytest.param({"code": 3}, "TENSOR_OPAQUE", id="opaque handles"),
        pytest.param({"code": 17, "bits": 4, "flags": 4}, "TENSOR_PADDED", id="padded 4 bits"),
        pytest.param({"shape": (4, -8)}, "TENSOR_EXTENT", id="negative extent"),
        pytest.param({"strides": (-8, 1)}, "TENSOR_STRIDE_NEGATIVE", id="negative stride"),
    ],
)
def test_layout_is_refused(changes, rule):
    assert check_layout(GOOD) == (Device(2, 0), FLOAT32, (4, 8), (8, 1), False)
    with pytest.raises(TmaPreconditionError) as caught:
        check_layout(layout_with(**changes))
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
    device, dtype, shape, _, _ = check_layout(layout)
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
    class Both(Interface):
        def __dlpack__(self, **keywords):
            return x.__dlpack__(**keywords)

    x = np.zeros((2, 4))
    assert as_tensor_view(Both()).address == x.ctypes.data


def test_every_refusal_has_a_test():
    here = pathlib.Path(__file__).parent
    tests = "".join(path.read_text() for path in here.glob("test_dlpack*.py"))
    assert [rule for rule in REFUSALS if f'"{rule}"' not in tests] == []
