"""The rows of the frameworks: the types of a row, their export, and the texts of fixes."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch

import tma_dlpack as tma
from tma_dlpack.copies import launch
from tma_dlpack.dlpack import as_tensor_view, frameworks, native_of, storage_of, words_of
from tma_dlpack.dlpack.frameworks import FRAMEWORKS, OTHER, Framework, framework_of, is_trusted
from tma_dlpack.make import build
from tma_dlpack.tensor_map.storage import COMPILED

ROWS = {row.name: row for row in FRAMEWORKS}


class Exporting:
    """DLPack's methods of a NumPy array. If `device` is 2, they report a GPU."""

    device = 1

    def __init__(self, array=None):
        self.array = np.zeros((4, 8), np.float32) if array is None else array
        self.asked: list[dict] = []

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        return self.array.__dlpack__()


def imitation(package: str, name: str = "Tensor", base: type = Exporting, **members) -> type:
    return type(name, (base,), {"__module__": f"{package}.inside", **members})


@pytest.mark.parametrize(
    ("package", "row"),
    [(package, row) for row in FRAMEWORKS for package in row.packages],
    ids=[package for row in FRAMEWORKS for package in row.packages],
)
def test_a_type_belongs_to_the_framework_whose_package_defines_it(package, row):
    assert framework_of(imitation(package)) is row
    assert framework_of(imitation(f"{package}_like")) is OTHER
    mine = imitation("mine", base=imitation(package, __dlpack__=Exporting.__dlpack__))
    assert framework_of(mine) is OTHER  # a subclass may mean something else
    assert is_trusted(mine) is row.trusted  # but it inherits `__dlpack__`
    overriding = imitation(
        "mine", base=imitation(package), __dlpack__=lambda self, **keywords: self.array.__dlpack__()
    )
    assert not is_trusted(overriding)


def test_no_two_rows_take_one_package():
    packages = [package for row in FRAMEWORKS for package in row.packages]
    assert len(set(packages)) == len(packages)


@pytest.mark.parametrize("name", ["JAX", "tvm-ffi", "Paddle", "TensorFlow", "PyArrow"])
def test_a_tensor_on_a_gpu_is_exported_on_the_stream_of_the_row(name):
    row = ROWS[name]
    kind = imitation(row.packages[0])
    on_gpu, on_host = imitation(row.packages[0], device=2)(), kind()
    as_tensor_view(on_gpu)
    as_tensor_view(on_host)
    assert on_gpu.asked[-1]["stream"] == (1 if name == "JAX" else -1)
    assert "stream" not in on_host.asked[-1]


@pytest.mark.parametrize("row", FRAMEWORKS, ids=ROWS)
def test_capsules_are_kept_and_flagged_as_the_row_says(row):
    view = as_tensor_view(imitation(row.packages[0])())
    assert (view.capsule is None) is row.trusted
    assert view.read_only is row.immutable
    for name in row.variables:
        assert not as_tensor_view(imitation(row.packages[0], name)()).read_only


@pytest.mark.parametrize("row", FRAMEWORKS, ids=ROWS)
def test_words_have_the_places_that_fixes_fill(row):
    words = row.words
    filled = words.pad.format(padded=8, extent=5, padded_shape=(2, 8), widths=((0, 0), (0, 3)))
    assert "8" in filled or "3" in filled
    assert words.permute.format(order="1, 0").endswith("(1, 0)")
    assert "int32" in words.view_as.format(dtype="int32")
    view = as_tensor_view(imitation(row.packages[0])())
    assert words_of(view) is words


def test_a_new_framework_is_one_row(monkeypatch):
    monkeypatch.setitem(
        frameworks._BY_PACKAGE,
        "novel",
        Framework(name="Novel", packages=("novel",), stream=7, immutable=True),
    )
    x = imitation("novel", device=2)()
    view = as_tensor_view(x)
    assert x.asked[-1]["stream"] == 7
    assert (view.read_only, view.capsule) == (True, None)


@pytest.mark.skipif(not COMPILED, reason="the extension is not compiled here")
@pytest.mark.parametrize("in_c", [True, False])
def test_the_extension_reads_what_the_row_says(monkeypatch, in_c):
    package = f"novel_{in_c}"
    row = Framework(name="Novel", packages=(package,), in_c=in_c)
    monkeypatch.setitem(frameworks._BY_PACKAGE, package, row)
    read_in_python = []
    as_before = build.read
    monkeypatch.setattr(
        build, "read", lambda tensor: read_in_python.append(tensor) or as_before(tensor)
    )
    x = imitation(package)()
    tm = tma.make_tma_descriptor(x, (2, 8))
    assert tm.global_address == x.array.ctypes.data
    assert bool(read_in_python) is not in_c


def test_what_is_asked_by_attributes_is_asked_of_tensors_and_their_subclasses_alone():
    class Mine(torch.Tensor):
        pass

    assert native_of(Mine) is native_of(torch.nn.Parameter) is ROWS["torch"].native
    assert native_of(np.ma.MaskedArray) is ROWS["NumPy"].native
    assert native_of(torch.Size) is native_of(imitation("torch")) is native_of(np.float32) is None


@pytest.fixture
def cupy(monkeypatch):
    """The part of CuPy that this package calls."""
    module = types.ModuleType("cupy")
    current = types.SimpleNamespace(ptr=1234)
    module.cuda = types.SimpleNamespace(get_current_stream=lambda: current)
    memory = types.SimpleNamespace(ptr=0x7000, size=4096)
    module.ndarray = imitation("cupy", "ndarray", data=types.SimpleNamespace(mem=memory))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_cupys_memory_and_stream_are_found(cupy):
    x = cupy.ndarray()
    assert storage_of(as_tensor_view(x)) == (0x7000, 4096, True)
    assert launch.ordered_stream(x, 0, None) == 1234
    assert x.asked[-1] == {"stream": 1234}
    assert launch.ordered_stream(x, 0, 5) == 5
    assert x.asked[-1] == {"stream": 5}


def test_a_tensor_without_a_stream_of_its_own_is_copied_on_the_legacy_stream():
    x = imitation("tvm_ffi")()
    assert launch.ordered_stream(x, 0, None) == 0
    assert x.asked[-1] == {"stream": 1}  # as the array API standard asks
    assert launch.ordered_stream(None, 0, None) == 0


def test_torchs_streams_wait_for_each_other(monkeypatch):
    waited = []

    class External:
        def __init__(self, handle, device_id):
            self.handle = handle

        def wait_stream(self, other):
            waited.append((self.handle, other.cuda_stream))

    current = types.SimpleNamespace(cuda_stream=42)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device_id: current)
    monkeypatch.setattr(torch.cuda, "ExternalStream", External)
    assert launch.ordered_stream(torch.zeros(4), 0, None) == 42
    assert not waited
    assert launch.ordered_stream(torch.zeros(4), 0, 9) == 9
    assert waited == [(9, 42)]
