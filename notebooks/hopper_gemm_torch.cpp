// hopper_gemm_torch.cpp: hopper_gemm.cu as a PyTorch extension. Build it in the folder of these two files:
//
//   from torch.utils import cpp_extension
//   hopper = cpp_extension.load("hopper_gemm", ["hopper_gemm.cu", "hopper_gemm_torch.cpp"],
//                               extra_include_paths=[tma_dlpack.get_include()],
//                               extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"])

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <tma_dlpack.h>
#include <tma_dlpack_make.hpp>
#include <torch/extension.h>

#include <stdexcept>
#include <string>

cudaError_t launch_hopper_gemm(const CUtensorMap& a, const CUtensorMap& b, const CUtensorMap& c, int m,
                               int n, int k, cudaStream_t stream);

namespace
{

// Compute c = a x b^T with maps made in Python. a and b have k columns. a_map is TensorMap.as_torch() of
// make_tma_descriptor(a, (128, 64), swizzle="bytes128", rules="driver"). b_map and c_map are made in the same
// way, but c_map has boxes of (64, 64). rules="driver" accepts boxes that are larger than the matrix.
void gemm_out(const at::Tensor& c, const at::Tensor& a_map, const at::Tensor& b_map,
              const at::Tensor& c_map, int64_t k)
{
  const c10::cuda::CUDAGuard guard(c.device());
  C10_CUDA_CHECK(launch_hopper_gemm(
    tma_dlpack::tensor_map(a_map), tma_dlpack::tensor_map(b_map), tma_dlpack::tensor_map(c_map),
    static_cast<int>(c.size(0)), static_cast<int>(c.size(1)), static_cast<int>(k),
    c10::cuda::getCurrentCUDAStream()));
}

void require(bool condition, const std::string& message)
{
  if (!condition) throw std::invalid_argument(message);  // a ValueError in Python
}

// Return a x b^T, with maps made in C++. If a map is refused, Python raises a ValueError. The text of the
// error is one line with every argument of the map, which `tma-dlpack explain` explains.
at::Tensor gemm(const at::Tensor& a, const at::Tensor& b)
{
  require(a.dim() == 2 && b.dim() == 2, "a must be (m, k) and b (n, k): two dimensions each");
  require(a.size(1) == b.size(1), "a must be (m, k) and b (n, k), but a has " +
                                    std::to_string(a.size(1)) + " columns and b has " +
                                    std::to_string(b.size(1)));
  require(a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16,
          std::string("a and b must be bfloat16, not ") + c10::toString(a.scalar_type()) + " and " +
            c10::toString(b.scalar_type()));
  require(a.device() == b.device(), "a is on " + a.device().str() + " and b on " + b.device().str());
  c10::cuda::OptionalCUDAGuard guard;
  if (a.is_cuda()) guard.set_device(a.device());  // if a is a host tensor, making its map throws
  const at::Tensor c = at::empty({a.size(0), b.size(0)}, a.options());
  const auto swizzle = tma_dlpack::Swizzle::bytes128;
  tma_dlpack::MakeOptions options;
  options.driver_rules = true;  // boxes may be larger than the matrices
  C10_CUDA_CHECK(launch_hopper_gemm(
    tma_dlpack::make_tma_descriptor(a, {128, 64}, swizzle, options),
    tma_dlpack::make_tma_descriptor(b, {128, 64}, swizzle, options),
    tma_dlpack::make_tma_descriptor(c, {64, 64}, swizzle, options), static_cast<int>(a.size(0)),
    static_cast<int>(b.size(0)), static_cast<int>(a.size(1)), c10::cuda::getCurrentCUDAStream()));
  return c;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
  m.def("gemm_out", &gemm_out);
  m.def("gemm", &gemm);
}
