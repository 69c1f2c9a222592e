// stable_operator.cpp: torch.ops.tma_example_wheel.doubled(x), which launches double_tiles.cu. It uses torch's stable
// ABI, so one library works with torch 2.10 and later. CMakeLists.txt builds the library for the wheel.

#include <cuda_runtime.h>
#include <tma_dlpack_make.hpp>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <stdexcept>

// libtorch_cuda.so defines this function. The declaration is weak, so this library also loads if torch has no CUDA.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device, void** stream);

cudaError_t launch_double_tiles(const CUtensorMap& x, const CUtensorMap& out, std::int64_t rows,
                                std::int64_t columns, cudaStream_t stream);

using torch::stable::Tensor;

static CUtensorMap map_of(const Tensor& matrix)
{
  tma_dlpack::MakeOptions options;
  options.allow = {"BOX_IN_SHAPE"};  // the matrix may be smaller than a tile
  return tma_dlpack::make_tma_descriptor(matrix, {16, 32}, tma_dlpack::Swizzle::none, options);
}

static Tensor doubled(const Tensor& x)
{
  if (x.dim() != 2 || x.scalar_type() != torch::headeronly::ScalarType::Float)
    throw std::invalid_argument("doubled takes a float32 matrix");
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  const Tensor out = torch::stable::new_empty(x, x.sizes());
  if (x.numel() == 0) return out;  // a grid of 0 blocks is an error
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream) != AOTI_TORCH_SUCCESS)
    throw std::runtime_error("torch has no current stream of this GPU");
  const cudaError_t failed = launch_double_tiles(map_of(x), map_of(out), x.size(0), x.size(1),
                                                 static_cast<cudaStream_t>(stream));
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
