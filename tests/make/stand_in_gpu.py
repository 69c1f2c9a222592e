"""Tensors on GPUs that do not exist, with stand_in_libcuda.c instead of the driver.

A process has the stand-in if it was started with `environment(folder)`, where `folder` has what
`build` made: libcuda is looked up once per process, by its name.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import tma_dlpack as tma

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
CUDA = 2  # kDLCUDA
#: Offsets of the DLTensor in the structs of both kinds of capsule, and of its device [dlpack.h
#: 1.3].
_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_DEVICE_AT = 8


def build(folder: Path, *flags: str) -> None:
    """Compile the stand-in into a folder."""
    include = f"-I{tma.get_include()}"
    source, library = HERE / "stand_in_libcuda.c", folder / "libcuda.so.1"
    command = [COMPILER, "-std=gnu11", "-O1", "-fPIC", "-shared", include, *flags, source]
    subprocess.run([*command, "-o", library], check=True, timeout=120)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return environment variables with which the loader finds this folder's libcuda first."""
    others = os.environ.get("LD_LIBRARY_PATH")
    path = str(folder) if others is None else f"{folder}{os.pathsep}{others}"
    return {**os.environ, "LD_LIBRARY_PATH": path, **more}


class StandIn:
    """The stand-in of this process. Tests set its contexts and failures, and read its calls."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.stand_in_contexts.restype = ctypes.c_char_p
        self.library.stand_in_calls.restype = ctypes.c_char_p
        self.library.stand_in_exchange_api.restype = ctypes.c_void_p
        self.library.stand_in_exchange_api.argtypes = [ctypes.c_void_p]

    def reset(self) -> None:
        """Remove all failures, and make the primary context of GPU 0 current."""
        self.set_context("primary 0")
        self.fail("")
        self.library.stand_in_own_pointers(-1)
        self.forget()

    def set_context(self, context: str) -> None:
        """Make one context current: "primary 0", "own 1"...; "" for none."""
        kind, _, gpu = context.partition(" ")
        self.library.stand_in_set_context(int(gpu or -1), kind == "primary")

    @property
    def contexts(self) -> str:
        """The current contexts of this thread, innermost last."""
        return self.library.stand_in_contexts().decode()

    def fail(self, function: str, result: int = 1, before: int = 0) -> None:
        """Make a function return a CUresult, after `before` more calls that succeed."""
        self.library.stand_in_fail(function.encode(), result, before)

    def forget(self) -> None:
        """Forget the calls so far."""
        self.library.stand_in_forget()

    @property
    def calls(self) -> list[str]:
        """Names of this thread's calls since `forget`; an encoder has the GPU of its context."""
        return self.library.stand_in_calls().decode().split()

    @property
    def encodes(self) -> list[str]:
        """The calls that encode a map."""
        return [call for call in self.calls if "Encode" in call]


def moved_capsule(capsule: Any, device_type: int, device_id: int) -> Any:
    """Write another device into a capsule."""
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = name_of(capsule)
    device = (ctypes.c_int32 * 2).from_address(
        pointer_of(capsule, name) + _TENSOR_AT[name] + _DEVICE_AT
    )
    device[:] = device_type, device_id
    return capsule


class CupyArray:
    """A NumPy array that reports a GPU as its device. Its type looks like CuPy's."""

    __module__ = "cupy"

    def __init__(self, array: Any, gpu: int = 0, device_type: int = CUDA) -> None:
        self.array = array
        self.device = device_type, gpu
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, max_version: Any = None, stream: int | None = None) -> Any:
        self.streams.append(stream)
        return moved_capsule(self.array.__dlpack__(max_version=max_version), *self.device)


class JaxArray(CupyArray):
    """A `CupyLike` array of a type that looks like JAX's."""

    __module__ = "jaxlib._jax"
    __dlpack__ = CupyArray.__dlpack__

    def platform(self) -> str:
        return "gpu"

    def is_deleted(self) -> bool:
        return False


class TvmArray(CupyArray):
    """Such an array, of a type that looks like TVM FFI's, which may be on any device."""

    __module__ = "tvm_ffi.core"
    __dlpack__ = CupyArray.__dlpack__


ARRAYS = [CupyArray, JaxArray, TvmArray]


def zeros(shape: tuple[int, ...], gpu: int = 0, dtype: Any = np.float16) -> CupyArray:
    """Make an array that reports a GPU as its device, aligned to 128 bytes."""
    size_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size_bytes + 128, np.uint8)
    start = -room.ctypes.data % 128
    return CupyArray(room[start : start + size_bytes].view(dtype).reshape(shape), gpu)


def put_torch_tensors_on_gpus(stand_in: StandIn) -> None:
    """Make every torch tensor of this process report the GPU `torch.Tensor.gpu` as its device."""
    import torch

    api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if api is not None:
        name = b"dlpack_exchange_api"
        pointer_of, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
        pointer_of.restype, new.restype = ctypes.c_void_p, ctypes.py_object
        pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        table = stand_in.library.stand_in_exchange_api(pointer_of(api, name))
        torch.Tensor._name_of_exchange_api = name  # capsules do not copy their names
        torch.Tensor.__dlpack_c_exchange_api__ = new(table, name, None)
    torch.Tensor.gpu = 0
    torch.Tensor.is_cuda, torch.Tensor.is_cpu = True, False
    torch.Tensor.get_device = lambda x: torch.Tensor.gpu
    torch.Tensor.device = property(lambda x: torch.device("cuda", torch.Tensor.gpu))


def put_torch_tensors_on_gpu(stand_in: StandIn, gpu: int) -> None:
    """Choose the GPU that all torch tensors report as their device."""
    import torch

    torch.Tensor.gpu = gpu
    stand_in.library.stand_in_put_torch_tensors(gpu)
