// jax_handler.cpp: double_tiles.cu as a handler of XLA's FFI, which jax_double.py builds and calls.

#include <cuda_runtime.h>
#include <tma_dlpack_make.hpp>
#include <xla/ffi/api/ffi.h>

namespace ffi = xla::ffi;
using Matrix = ffi::BufferR2<ffi::F32>;

cudaError_t launch_double_tiles(const CUtensorMap& x, const CUtensorMap& out, std::int64_t rows,
                                std::int64_t columns, cudaStream_t stream);

// TmaDlpackTensor has the members of DLTensor. XLA's buffers are dense and row-major, so the strides are null.
static tma_dlpack::TriedMap map_of(const Matrix& matrix, std::int32_t device)
{
  auto* shape = const_cast<std::int64_t*>(matrix.dimensions().begin());
  const TmaDlpackTensor tensor = {matrix.untyped_data(), {TMA_DLPACK_CUDA, device}, 2,
                                  {TMA_DLPACK_FLOAT, 32, 1}, shape, nullptr, 0};
  tma_dlpack::MakeOptions options;
  options.allow = {"BOX_IN_SHAPE"};
  return tma_dlpack::try_make_tma_descriptor(tensor, {16, 32}, tma_dlpack::Swizzle::none, options);
}

static ffi::Error doubled(cudaStream_t stream, std::int32_t device, Matrix x, ffi::Result<Matrix> out)
{
  const auto x_map = map_of(x, device), out_map = map_of(*out, device);
  if (!x_map) return ffi::Error::InvalidArgument(x_map.refusal);
  if (!out_map) return ffi::Error::InvalidArgument(out_map.refusal);
  const auto shape = x.dimensions();
  const cudaError_t failed =
    launch_double_tiles(x_map.map, out_map.map, shape[0], shape[1], stream);
  return failed ? ffi::Error::Internal(cudaGetErrorString(failed)) : ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Doubled, doubled,
                              ffi::Ffi::Bind()
                                .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                .Ctx<ffi::DeviceOrdinal>()
                                .Arg<Matrix>()
                                .Ret<Matrix>());
