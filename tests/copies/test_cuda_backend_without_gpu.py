"""The messages of the CUDA backend where something is missing."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.copies import launch
from tma_dlpack.tables.targets import Target

NO_GPU = pytest.mark.skipif(driver.is_available(), reason="there is a GPU here")


def bare_map() -> tma.TensorMap:
    return tma.driver_encode_tiled(
        "UINT8", 1, 0x7F0000000000, (64,), (), (16,), (1,), encoder="model"
    )


@NO_GPU
@pytest.mark.parametrize(
    "copy",
    [
        lambda tm: tma.load_tile(tm, (0,), backend="cuda"),
        lambda tm: tma.load_tiles(tm, [(0,), (16,)], backend="cuda"),
        lambda tm: tma.store_tile(tm, (0,), np.zeros(16, np.uint8), backend="cuda"),
    ],
    ids=["load_tile", "load_tiles", "store_tile"],
)
def test_without_a_driver_every_verb_says_what_is_missing(copy):
    with pytest.raises(tma.TmaUnsupportedError, match="no CUDA driver"):
        copy(bare_map())


@NO_GPU
def test_the_cuda_backend_is_not_given_without_a_driver():
    with pytest.raises(tma.TmaUnsupportedError, match="no CUDA driver"):
        tma.backend("cuda")


def shown_gpu(monkeypatch, target):
    facts = driver.DeviceFacts(0, "Some GPU", target)
    monkeypatch.setattr(driver, "status", lambda: driver.DriverStatus(13000, (facts,), None))


def test_the_cuda_backend_is_not_given_on_an_older_gpu(monkeypatch):
    shown_gpu(monkeypatch, Target((8, 6)))
    with pytest.raises(tma.TmaUnsupportedError, match=r"Some GPU \(sm_86\).*9\.0"):
        tma.backend("cuda")


def test_the_cuda_backend_is_not_given_without_its_extra(monkeypatch):
    shown_gpu(monkeypatch, Target((9, 0)))

    def fail(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(launch, "import_module", fail)
    with pytest.raises(
        tma.TmaUnsupportedError, match=r"pip install cuda-bindings nvidia-cuda-nvrtc"
    ):
        tma.backend("cuda")


def shown_nvrtc(monkeypatch, version):
    bindings = SimpleNamespace(nvrtcVersion=version)
    monkeypatch.setattr(launch, "import_module", lambda name: bindings)


def test_the_cuda_backend_is_not_given_where_the_library_of_nvrtc_is_missing(monkeypatch):
    def fail():
        raise RuntimeError("no libnvrtc.so found")

    shown_gpu(monkeypatch, Target((9, 0)))
    shown_nvrtc(monkeypatch, fail)
    with pytest.raises(tma.TmaUnsupportedError, match=r"no libnvrtc\.so found.*pip install"):
        tma.backend("cuda")


def test_the_cuda_backend_is_given_where_all_is_there(monkeypatch):
    shown_gpu(monkeypatch, Target((9, 0)))
    shown_nvrtc(monkeypatch, lambda: (0, 13, 0))
    assert tma.backend("cuda").name == "cuda"


@pytest.mark.parametrize("coords", [(1,), (0, 0), (1 << 31,), ("a",)])
def test_requests_are_checked_before_a_driver_is_asked(coords):
    with pytest.raises(tma.TmaPreconditionError):
        tma.load_tile(bare_map(), coords, backend="cuda")


def test_the_map_of_a_host_tensor_is_refused():
    tensor_map = tma.make_tma_descriptor(np.zeros((8, 16), np.float32), (8, 16))
    with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
        tma.load_tile(tensor_map, (0, 0), backend="cuda")


def test_host_memory_is_refused():
    with pytest.raises(tma.TmaUnsupportedError, match="memory is on cpu:0"):
        tma.load_tile(bare_map(), (0,), backend="cuda", memory=np.zeros(64, np.uint8))


def test_a_missing_extra_names_what_to_install(monkeypatch):
    def fail(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(launch, "import_module", fail)
    with pytest.raises(
        tma.TmaUnsupportedError, match=r"pip install cuda-bindings nvidia-cuda-nvrtc"
    ):
        launch.compile_source("// not compiled before", "a.cu", Target((9, 0)))


def test_an_older_gpu_is_refused_by_its_compute_capability():
    with pytest.raises(tma.TmaUnsupportedError, match=r"sm_86.*9\.0"):
        launch.compile_source("", "a.cu", Target((8, 6)))


@pytest.mark.parametrize(
    ("name", "room"), [("copies.cu", "copies"), ("bandwidth.cu", "verification")]
)
def test_the_packaged_kernels_include_the_users_header_and_say_no_ptx_of_their_own(name, room):
    source = launch.packaged(name, f"tma_dlpack.{room}")
    included = [line for line in source.splitlines() if line.startswith("#include")]
    assert included == ["#include <tma_dlpack.h>"]
    assert "asm" not in source


class Handle:
    def __init__(self, name, value):
        setattr(self, name, value)


class Protocol:
    def __cuda_stream__(self):
        return (0, 77)


@pytest.mark.parametrize(
    "stream",
    [
        77,
        np.int64(77),
        Handle("ptr", 77),
        Handle("cuda_stream", 77),
        Handle("handle", 77),
        Protocol(),
    ],
    ids=["int", "numpy", "cupy", "torch", "cuda.core", "__cuda_stream__"],
)
def test_every_kind_of_stream_gives_its_handle(stream):
    assert launch.stream_handle(stream) == 77


@pytest.mark.parametrize("stream", ["default", 1.5, object()])
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(tma.TmaUnsupportedError, match="stream is a"):
        launch.stream_handle(stream)


def test_a_producer_orders_its_work_before_the_stream():
    asked = []

    class Tensor:
        def __dlpack__(self, *, stream):
            asked.append(stream)

    assert launch.ordered_stream(Tensor(), 0, None) == 0
    assert launch.ordered_stream(Tensor(), 0, 77) == 77
    assert asked == [1, 77]  # in DLPack, 1 means the legacy default stream


def test_the_package_needs_neither_nvrtc_nor_a_driver_to_import():
    code = (
        "import sys, tma_dlpack, tma_dlpack.copies.cuda, tma_dlpack.verification\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('cuda', 'torch', 'cupy')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
