// torch_operator.cpp: torch.ops.tma_example.doubled(x) launches double_tiles.cu. setup.py builds the two files.

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <tma_dlpack_make.hpp>
#include <torch/library.h>

#include <stdexcept>
#include <string>

cudaError_t launch_double_tiles(const CUtensorMap& x, const CUtensorMap& out, std::int64_t rows,
                                std::int64_t columns, cudaStream_t stream);

namespace
{

// A map contains the tensor's address, so each call makes new maps. If TMA cannot copy the matrix, this function
// throws tma_dlpack::refused. Python shows the text of the exception, which `tma-dlpack explain` explains.
CUtensorMap map_of(const at::Tensor& matrix)
{
  tma_dlpack::MakeOptions options;
  options.allow = {"BOX_IN_SHAPE"};  // the matrix may be smaller than a tile
  return tma_dlpack::make_tma_descriptor(matrix, {16, 32}, tma_dlpack::Swizzle::none, options);
}

at::Tensor doubled(const at::Tensor& x)
{
  if (x.dim() != 2 || x.scalar_type() != at::kFloat)  // a ValueError in Python
    throw std::invalid_argument("doubled takes a float32 matrix, not " + std::to_string(x.dim()) +
                                " dimensions of " + c10::toString(x.scalar_type()));
  const c10::cuda::CUDAGuard guard(x.device());  // x's GPU is current until the function returns
  const at::Tensor out = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) return out;  // a grid of 0 blocks is an error
  C10_CUDA_CHECK(launch_double_tiles(map_of(x), map_of(out), x.size(0), x.size(1),
                                     c10::cuda::getCurrentCUDAStream()));
  return out;
}

}  // namespace

TORCH_LIBRARY(tma_example, m)
{
  m.def("doubled(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(tma_example, CUDA, m)
{
  m.impl("doubled", &doubled);
}
