"""One map and one kernel with every launcher. Each doubles a matrix with `double_tiles.cu`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import warnings

import numpy as np
import pytest
from user_kernel import BOX, SELF_CONTAINED, SOURCE, THREADS, double, grid_of, kernel, map_of

import tma_dlpack as tma
from tma_dlpack.include import get_include

SM_90A = "-gencode=arch=compute_90a,code=sm_90a"


@pytest.fixture
def x(torch):
    """A matrix whose tiles all differ. After the launch, it must equal `doubled(x)`."""
    numbers = torch.arange(128 * 96, dtype=torch.float32, device="cuda")
    return numbers.reshape(128, 96)


@pytest.fixture
def doubled(x):
    return x.clone() * 2


# --- cuda.bindings --------------------------------------------------------------------------------


def test_cuda_bindings_takes_as_cuda_bindings_by_value(torch, x, doubled):
    double(map_of(x), torch.cuda.current_stream().cuda_stream)
    assert torch.equal(x, doubled)


def test_cuda_bindings_takes_an_array_of_pointers_with_ptr_in_it(torch, x, doubled):
    from cuda.bindings import driver

    tensor_map = map_of(x)
    tx_bytes = ctypes.c_uint(tensor_map.tx_bytes)
    pointers = (ctypes.c_void_p * 2)(tensor_map.ptr, ctypes.addressof(tx_bytes))
    size = (*grid_of(tensor_map), 1, THREADS, 1, 1, 0)
    stream = torch.cuda.current_stream().cuda_stream
    (result,) = driver.cuLaunchKernel(kernel(), *size, stream, ctypes.addressof(pointers), 0)
    assert result == driver.CUresult.CUDA_SUCCESS
    assert torch.equal(x, doubled)


# --- cuda.core ------------------------------------------------------------------------------------


@pytest.fixture
def core():
    return pytest.importorskip("cuda.core")


@pytest.fixture
def core_module(core):
    core.Device(0).set_current()
    options = core.ProgramOptions(std="c++17", arch="sm_90a", include_path=get_include())
    return core.Program(SOURCE, "c++", options).compile("cubin")


def test_cuda_core_takes_the_map_in_device_memory(core, core_module, torch, x, doubled):
    tensor_map = map_of(x)
    in_device_memory = tensor_map.as_torch().cuda()  # its own 128 bytes, which the kernel acquires
    config = core.LaunchConfig(grid=grid_of(tensor_map), block=THREADS)
    stream = core.Stream.from_handle(torch.cuda.current_stream().cuda_stream or 1)
    core.launch(
        stream,
        config,
        core_module.get_kernel("double_tiles_at"),
        in_device_memory.data_ptr(),
        np.uint32(tensor_map.tx_bytes),
    )
    torch.cuda.synchronize()
    assert torch.equal(x, doubled)


@pytest.mark.parametrize("form", ["as_ctypes", "as_cuda_bindings", "structured scalar"])
def test_cuda_core_refuses_maps_by_value_that_are_not_its_own(form, core, core_module, x):
    tensor_map = map_of(x)
    given = {
        "as_ctypes": tensor_map.as_ctypes,
        "as_cuda_bindings": tensor_map.as_cuda_bindings,
        "structured scalar": lambda: tensor_map.numpy().view("V128")[0],
    }[form]()
    config = core.LaunchConfig(grid=grid_of(tensor_map), block=THREADS)
    stream = core.Device(0).create_stream()
    with pytest.raises(TypeError, match="unsupported type"):
        core.launch(stream, config, core_module.get_kernel("double_tiles"), given, np.uint32(0))


def test_a_kernel_of_cuda_core_takes_the_map_by_value_through_cuda_bindings(
    core, core_module, torch, x, doubled
):
    from cuda.bindings import driver

    tensor_map = map_of(x)
    compiled = core_module.get_kernel("double_tiles")
    arguments = (tensor_map.as_cuda_bindings(), tensor_map.tx_bytes), (None, ctypes.c_uint)
    size = (*grid_of(tensor_map), 1, THREADS, 1, 1, 0)
    stream = torch.cuda.current_stream().cuda_stream
    function = driver.CUfunction(int(compiled.handle))
    (result,) = driver.cuLaunchKernel(function, *size, stream, arguments, 0)
    assert result == driver.CUresult.CUDA_SUCCESS
    assert torch.equal(x, doubled)


# --- CuPy -----------------------------------------------------------------------------------------


@pytest.fixture
def cupy_kernel(cupy):
    options = ("-std=c++17", f"-I{get_include()}")
    return cupy.RawModule(code=SOURCE, options=options).get_function("double_tiles")


@pytest.fixture
def cupy_x(cupy):
    return cupy.arange(128 * 96, dtype=cupy.float32).reshape(128, 96)


def test_cupy_takes_the_map_as_a_structured_scalar(cupy, cupy_kernel, cupy_x):
    tensor_map, expected = map_of(cupy_x), cupy_x * 2
    by_value = tensor_map.numpy().view("V128")  # one element of 128 bytes
    arguments = by_value, np.uint32(tensor_map.tx_bytes)
    cupy_kernel(grid_of(tensor_map), (THREADS,), arguments)
    assert cupy.array_equal(cupy_x, expected)


def test_cupy_takes_the_map_from_storage_of_any_alignment(cupy, cupy_kernel, cupy_x):
    tensor_map, expected = map_of(cupy_x), cupy_x * 2
    room = np.zeros(512, np.uint8)
    start = -room.ctypes.data % 128 + 8
    room[start : start + 128] = tensor_map.numpy()
    by_value = room[start : start + 128].view("V128")
    cupy_kernel(grid_of(tensor_map), (THREADS,), (by_value, np.uint32(tensor_map.tx_bytes)))
    assert cupy.array_equal(cupy_x, expected)


def test_cupy_refuses_the_map_as_128_bytes(cupy_kernel, cupy_x):
    tensor_map = map_of(cupy_x)
    with pytest.raises(TypeError):
        cupy_kernel(grid_of(tensor_map), (THREADS,), (tensor_map.numpy(), np.uint32(0)))


# --- a PyTorch extension --------------------------------------------------------------------------

EXTENSION = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <torch/extension.h>

void double_matrix(at::Tensor map, int64_t tx_bytes, int64_t rows, int64_t columns)
{
  const dim3 grid(columns / COLUMNS, rows / ROWS);
  const auto stream = at::cuda::getCurrentCUDAStream();
  double_tiles<<<grid, 32, 0, stream>>>(tma_dlpack::tensor_map(map), tx_bytes);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""
DECLARATION = "void double_matrix(at::Tensor map, int64_t tx_bytes, int64_t rows, int64_t columns);"


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    pytest.importorskip("torch")
    from torch.utils import cpp_extension

    if cpp_extension.CUDA_HOME is None or not cpp_extension.is_ninja_available():
        pytest.skip("load_inline needs the CUDA toolkit and ninja")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about the compiler and architectures
        return cpp_extension.load_inline(
            "tma_dlpack_example",
            cpp_sources=DECLARATION,
            cuda_sources=SOURCE + EXTENSION,
            functions=["double_matrix"],
            extra_include_paths=[get_include()],
            extra_cuda_cflags=["-std=c++17", SM_90A],
            build_directory=str(tmp_path_factory.mktemp("extension")),
        )


@pytest.mark.slow  # builds an extension
def test_a_pytorch_extension_takes_as_torch(extension, torch, x, doubled):
    tensor_map = map_of(x)
    extension.double_matrix(tensor_map.as_torch(), tensor_map.tx_bytes, *x.shape)
    assert torch.equal(x, doubled)


@pytest.mark.slow
def test_the_extension_refuses_what_is_not_as_torch(extension, torch, x):
    # load_inline's wrappers turn the header's std::invalid_argument into a RuntimeError.
    tensor_map = map_of(x)
    with pytest.raises(RuntimeError, match="is on a GPU"):
        extension.double_matrix(tensor_map.as_torch().cuda(), tensor_map.tx_bytes, *x.shape)
    with pytest.raises(RuntimeError, match=r"elements of 4 bytes, and must be uint8\[128\]"):
        extension.double_matrix(torch.zeros(32, dtype=torch.int32), 0, *x.shape)
    room = torch.zeros(512, dtype=torch.uint8)
    start = -room.data_ptr() % 128 + 64
    with pytest.raises(RuntimeError, match="not aligned to 128 bytes"):
        extension.double_matrix(room[start : start + 128], 0, *x.shape)


def test_the_map_of_a_host_tensor_never_reaches_the_extension(torch):
    tensor_map = map_of(torch.zeros(128, 96))
    with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
        tensor_map.as_torch()


LIBRARY = """
extern "C" int double_matrix(std::uintptr_t map, unsigned tx_bytes, unsigned columns, unsigned rows,
                             cudaStream_t stream)
{
  const dim3 grid(columns / COLUMNS, rows / ROWS);
  double_tiles<<<grid, 32, 0, stream>>>(tma_dlpack::tensor_map(map), tx_bytes);
  return cudaGetLastError();
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_prebuilt_library_takes_ptr_without_ninja_torch_headers_or_libcuda(
    torch, x, doubled, tmp_path
):
    (tmp_path / "library.cu").write_text(SOURCE + LIBRARY)
    command = ["nvcc", "-std=c++17", SM_90A, f"-I{get_include()}", "-shared", "-Xcompiler", "-fPIC"]
    linked = ["-Xlinker", "--no-undefined", "-o", str(tmp_path / "library.so")]
    subprocess.run([*command, *linked, str(tmp_path / "library.cu")], check=True)
    library = ctypes.CDLL(str(tmp_path / "library.so"))

    tensor_map = map_of(x)
    rows, columns = x.shape
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    address = ctypes.c_uint64(tensor_map.ptr)
    assert library.double_matrix(address, tensor_map.tx_bytes, columns, rows, stream) == 0
    assert torch.equal(x, doubled)


# --- numba-cuda -----------------------------------------------------------------------------------

NUMBA_FUNCTION = """
extern "C" __device__ int double_tile_of(int* result, unsigned long long map, unsigned tx_bytes)
{
  const auto* in_global_memory = reinterpret_cast<const tma_dlpack::Map*>(map);
  if (threadIdx.x == 0) tma_dlpack::fence_acquire(in_global_memory);
  double_tile(*in_global_memory, tx_bytes);
  *result = 0;
  return 0;
}
"""


@pytest.fixture
def numba_cuda():
    numba = pytest.importorskip("numba")
    cuda = pytest.importorskip("numba.cuda")
    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    try:
        cuda.jit("void()")(lambda: None)
    except AttributeError as error:  # a warning while numba-cuda 0.30 starts, about numpy.row_stack
        pytest.skip(f"numba-cuda does not start with NumPy {np.__version__}: {error}")
    return cuda


def test_numba_takes_the_address_of_the_map_in_device_memory(numba_cuda, torch, x, doubled):
    source = numba_cuda.CUSource(SELF_CONTAINED + NUMBA_FUNCTION)
    double_tile_of = numba_cuda.declare_device(
        "double_tile_of", "int32(uint64, uint32)", link=source
    )

    @numba_cuda.jit("void(uint64, uint32)")
    def double_all(address, tx_bytes):
        double_tile_of(address, tx_bytes)

    tensor_map = map_of(x)
    in_device_memory = tensor_map.as_torch().cuda()
    stream = numba_cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    address, tx_bytes = np.uint64(in_device_memory.data_ptr()), np.uint32(tensor_map.tx_bytes)
    double_all[grid_of(tensor_map), THREADS, stream](address, tx_bytes)
    torch.cuda.synchronize()
    assert torch.equal(x, doubled)


def test_numba_refuses_the_map_as_a_scalar_of_128_bytes(numba_cuda, x):
    @numba_cuda.jit
    def takes(tensor_map):
        pass

    by_value = map_of(x).numpy().view("V128")[0]
    with pytest.raises(ValueError, match="Cannot determine Numba type"):
        takes[1, 1](by_value)


def test_the_box_of_the_kernel_is_the_box_of_the_map(x):
    assert map_of(x).box_sizes == BOX


# --- numba-cuda-mlir ------------------------------------------------------------------------------

BY_ADDRESS = """
extern "C" __device__ void double_tile_of(unsigned long long map, unsigned tx_bytes)
{
  const auto* in_global_memory = reinterpret_cast<const tma_dlpack::Map*>(map);
  if (threadIdx.x == 0) tma_dlpack::fence_acquire(in_global_memory);
  double_tile(*in_global_memory, tx_bytes);
}
"""
BY_VALUE = """
extern "C" __device__ void double_tile_of(const tma_dlpack::Map* map, unsigned tx_bytes)
{
  double_tile(*map, tx_bytes);
}
"""


def _launch_by_mlir(argument, argument_type, function, tensor_map, torch):
    from numba_cuda_mlir import cuda, types

    double_tile_of = cuda.declare_device(
        "double_tile_of",
        types.void(argument_type, types.uint32),
        link=cuda.CUSource(SELF_CONTAINED + function),
        abi="c",
    )

    @cuda.jit
    def double_all(tensor_map, tx_bytes):
        double_tile_of(tensor_map, tx_bytes)

    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba warns of a small grid
        double_all[grid_of(tensor_map), THREADS, stream](argument, np.uint32(tensor_map.tx_bytes))
    torch.cuda.synchronize()


def test_numba_cuda_mlir_takes_the_address_of_the_map_in_device_memory(torch, x, doubled):
    types = pytest.importorskip("numba_cuda_mlir.types")
    tensor_map = map_of(x)
    in_device_memory = tensor_map.as_torch().cuda()
    address = np.uint64(in_device_memory.data_ptr())
    _launch_by_mlir(address, types.uint64, BY_ADDRESS, tensor_map, torch)
    assert torch.equal(x, doubled)


def test_numba_cuda_mlir_takes_the_map_by_value_or_is_refused(torch, x, doubled):
    types = pytest.importorskip("numba_cuda_mlir.types")
    from tma_dlpack.tensor_map.text import _passes_maps_by_value

    tensor_map = map_of(x)
    if _passes_maps_by_value():
        _launch_by_mlir(tensor_map, types.CUTensorMap, BY_VALUE, tensor_map, torch)
        assert torch.equal(x, doubled)
    else:
        with pytest.raises(tma.TmaUnsupportedError, match="CUTensorMap as a pointer"):
            _launch_by_mlir(tensor_map, types.CUTensorMap, BY_VALUE, tensor_map, torch)
