// stable_operator.cpp: torch.ops.tma_example_wheel.doubled(x), which launches double_tiles.cu. It uses torch's stable
// ABI, so one library works with torch 2.10 and later. CMakeLists.txt builds the library for the wheel.

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <tma_dlpack_make.hpp>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <stdexcept>

cudaError_t launch_double_tiles(const CUtensorMap& x, const CUtensorMap& out, std::int64_t rows,
                                std::int64_t columns, cudaStream_t stream);

using torch::stable::Tensor;

static CUtensorMap map_of(const Tensor& matrix)
{
  tma_dlpack::MakeOptions options;
  options.allow = {"BOX_IN_SHAPE"};  // the matrix may be smaller than a tile
  return tma_dlpack::make_tma_descriptor(matrix, {16, 32}, tma_dlpack::Swizzle::none, options);
}

// libtorch_cuda.so defines aoti_torch_get_current_cuda_stream(). This library is not linked to libtorch_cuda.so, so that
// it also loads if torch has no CUDA. torch has loaded libtorch_cuda.so before a tensor is on a GPU.
static cudaStream_t current_stream(std::int32_t device)
{
  static void* const torch_cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  static const auto get = reinterpret_cast<AOTITorchError (*)(std::int32_t, void**)>(
    torch_cuda == nullptr ? nullptr : dlsym(torch_cuda, "aoti_torch_get_current_cuda_stream"));
  void* stream = nullptr;
  if (get == nullptr || get(device, &stream) != AOTI_TORCH_SUCCESS)
    throw std::runtime_error("torch has no current stream of this GPU");
  return static_cast<cudaStream_t>(stream);
}

static Tensor doubled(const Tensor& x)
{
  if (x.dim() != 2 || x.scalar_type() != torch::headeronly::ScalarType::Float)
    throw std::invalid_argument("doubled takes a float32 matrix");
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  const Tensor out = torch::stable::new_empty(x, x.sizes());
  if (x.numel() == 0) return out;  // a grid of 0 blocks is an error
  const cudaError_t failed = launch_double_tiles(map_of(x), map_of(out), x.size(0), x.size(1),
                                                 current_stream(x.get_device_index()));
  if (failed) throw std::runtime_error(cudaGetErrorString(failed));
  return out;
}

STABLE_TORCH_LIBRARY(tma_example_wheel, m)
{
  m.def("doubled(Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(tma_example_wheel, CUDA, m)
{
  m.impl("doubled", TORCH_BOX(&doubled));
}
