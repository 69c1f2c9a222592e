"""The tensors of the bench, and the calls of other libraries on these tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.timing import Row
from tma_dlpack import driver

SHAPE, BOX = (4096, 1024), (64, 64)  # float16
BARE = "bare __dlpack__"
REPEATED, NEW = "a repeated call", "a new shape at every call"


@dataclass(frozen=True, slots=True)
class Subject:
    """A tensor of a library, on a device.

    Attributes
    ----------
    name : str
        Such as ``"torch cuda"``.
    tensor : object
    export : str
        How its bare `__dlpack__` is called, with the tensor as ``x``.
    """

    name: str
    tensor: Any
    export: str

    @property
    def is_torch(self) -> bool:
        """Whether peers that accept torch tensors accept this tensor."""
        return self.name.startswith("torch")

    def with_rows(self, rows: int) -> Any:
        """Return a tensor of `rows` rows on the same device: the first rows if there are enough."""
        if not self.name.startswith("jax"):
            return self.tensor[:rows]
        jax = importlib.import_module("jax")  # slices of JAX are compiled, one by one
        (device,) = self.tensor.devices()
        return jax.device_put(np.zeros((rows, SHAPE[1]), np.float16), device)

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a GPU."""
        return self.name.endswith("cuda")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Error that names what cannot be measured on this machine, with the reason."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class _CannotError(Exception):
    pass


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _CannotError(f"{error.name or module} is not installed") from error


def _need_gpu() -> None:
    if not driver.is_available():
        raise _CannotError("needs a GPU")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:40]


# -- tensors -------------------------------------------------------------------------------------


def subjects() -> tuple[list[Subject], list[Skipped]]:
    """Make one tensor of each library and device that this machine has."""
    made, skipped = [], []
    for name, make in _SUBJECTS.items():
        try:
            made.append(Subject(name, *make()))
        except _CannotError as error:
            skipped.append(Skipped(name, str(error)))
        except Exception as error:  # a library without its GPU may raise anything
            skipped.append(Skipped(name, _first_line(error)))
    if any(subject.name == "torch cuda" for subject in made):
        _need("torch").cuda.set_device(0)  # JAX leaves the last of several GPUs current
    return made, skipped


_WITH_VERSION = "x.__dlpack__(max_version=(1, 3))"
_ON_CUDA = "x.__dlpack__(stream=-1, max_version=(1, 3))"


def _torch_cpu() -> tuple[Any, str]:
    torch = _need("torch")
    return torch.zeros(SHAPE, dtype=torch.float16), _WITH_VERSION


def _torch_cuda() -> tuple[Any, str]:
    torch = _need("torch")
    _need_gpu()
    return torch.zeros(SHAPE, dtype=torch.float16, device="cuda:0"), _ON_CUDA


def _numpy() -> tuple[Any, str]:
    knows_dlpack_1 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
    return np.zeros(SHAPE, np.float16), _WITH_VERSION if knows_dlpack_1 else "x.__dlpack__()"


def _jax_cpu() -> tuple[Any, str]:
    jax = _need("jax")
    host = jax.devices("cpu")[0]
    return jax.device_put(np.zeros(SHAPE, np.float16), host), _WITH_VERSION


def _jax_cuda() -> tuple[Any, str]:
    jax = _need("jax")
    _need_gpu()
    gpu = jax.devices("cuda")[0]
    x = jax.device_put(np.zeros(SHAPE, np.float16), gpu)
    return x.block_until_ready(), "x.__dlpack__(stream=1, max_version=(1, 3))"


def _cupy_cuda() -> tuple[Any, str]:
    cupy = _need("cupy")
    _need_gpu()
    return cupy.zeros(SHAPE, cupy.float16), _ON_CUDA


_SUBJECTS: dict[str, Callable[[], tuple[Any, str]]] = {
    "torch cpu": _torch_cpu,
    "numpy": _numpy,
    "jax cpu": _jax_cpu,
    "torch cuda": _torch_cuda,
    "cupy cuda": _cupy_cuda,
    "jax cuda": _jax_cuda,
}

# -- what others do with them --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """The code by which another library makes a map, or the part that Python can call."""

    label: str
    takes: Callable[[Subject], bool]
    make: Callable[[], Callable[[Any], Any]]  # raises _CannotError where it cannot be had


def peer_rows(subject: Subject) -> Iterator[Row | Skipped]:
    """Return the peers that can be measured with a tensor, and list the peers that refuse it."""
    x, group = subject.tensor, group_of(REPEATED, subject.name)
    yield Row(group, BARE, subject.export, {"x": x})
    if subject.is_torch:
        attributes = "x.data_ptr(), x.dtype, x.get_device(), x.shape, x.stride()"
        yield Row(group, "torch attributes, unchecked", attributes, {"x": x})
    for peer in PEERS:
        if not peer.takes(subject):
            continue
        try:
            call = peer.make()
            call(x)
        except _CannotError:
            continue  # `missing_peers` lists it once
        except Exception as error:
            yield Skipped(f"{peer.label}, {subject.name}", _first_line(error))
        else:
            yield Row(group, peer.label, "call(x)", {"call": call, "x": x})


def group_of(calls: str, subject: str) -> str:
    """Name the table of a subject's repeated calls, or of those with a new shape each time.

    >>> group_of(REPEATED, "torch cpu")
    'a repeated call, torch cpu tensor'
    """
    return f"{calls}, {subject} tensor"


def with_new_shapes(row: Row, subject: Subject, views: Sequence[Any]) -> Row:
    """Return a statement whose runs use the tensors of a list in turn as ``x``.

    Each round first runs the statement once on every tensor. Otherwise the first row would load the
    tensors into the caches for the rows that follow.
    """
    return Row(
        group_of(NEW, subject.name),
        row.label,
        f"x = next(each); {row.statement}",
        {**row.names, "views": views},
        setup=f"for x in views:\n    {row.statement}\neach = iter(views)",
        number=len(views),
    )


def missing_peers() -> Iterator[Skipped]:
    """Return the peers that are missing on this machine, with the reasons."""
    for peer in PEERS:
        try:
            peer.make()
        except _CannotError as error:
            yield Skipped(peer.label, str(error))


def _cuda_core() -> Callable[[Any], Any]:
    """Make a view and its as_tensor_map, as cuda.core's documentation shows them."""
    view_of = _need("cuda.core.utils").StridedMemoryView.from_any_interface
    _need_gpu()

    def call(x: Any) -> Any:
        return view_of(x, stream_ptr=-1).as_tensor_map(box_dim=BOX)

    return call


def _cuda_bindings() -> Callable[[Any], Any]:
    """Call the driver's encoder through cuda.bindings, as a user writes it."""
    cuda = _need("cuda.bindings.driver")
    _need_gpu()

    def call(x: Any) -> Any:
        error, tensor_map = cuda.cuTensorMapEncodeTiled(
            cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            x.ndim,
            x.data_ptr(),
            [cuda.cuuint64_t(n) for n in reversed(x.shape)],
            [cuda.cuuint64_t(n * x.element_size()) for n in reversed(x.stride()[:-1])],
            [cuda.cuuint32_t(n) for n in reversed(BOX)],
            [cuda.cuuint32_t(1) for _ in x.shape],
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        if error != cuda.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuTensorMapEncodeTiled: {error}")
        return tensor_map

    return call


def _triton() -> Callable[[Any], Any]:
    """Make Triton's descriptor on the host: a record that Triton's launcher later encodes in C."""
    from_tensor = _need("triton.tools.tensor_descriptor").TensorDescriptor.from_tensor

    def call(x: Any) -> Any:
        return from_tensor(x, list(BOX))

    return call


PEERS = (
    Peer("cuda.core view + as_tensor_map", lambda s: s.is_cuda, _cuda_core),
    Peer("cuda.bindings by hand", lambda s: s.is_cuda and s.is_torch, _cuda_bindings),
    Peer("Triton TensorDescriptor, no encode", lambda s: s.is_torch, _triton),
)
