// double_tiles.cu: out = 2 * x for float32 matrices, one block for each tile. There is no framework in this
// file: torch_operator.cpp and jax_handler.cpp call its launcher, cupy_double.py its kernel.

#include <tma_dlpack.h>

constexpr int ROWS = 16, COLUMNS = 32, THREADS = 128;  // box_sizes = {16, 32}

extern "C" __global__ void __launch_bounds__(THREADS)
  double_tiles(const __grid_constant__ tma_dlpack::Map x, const __grid_constant__ tma_dlpack::Map out)
{
  __shared__ alignas(128) float tile[ROWS * COLUMNS];
  __shared__ tma_dlpack::Barrier full;
  const int row = blockIdx.x * ROWS, column = blockIdx.y * COLUMNS;

  if (threadIdx.x == 0)
  {
    tma_dlpack::init(&full);
    tma_dlpack::arrive_expect_tx(&full, sizeof(tile));  // the whole box, also where it leaves the matrix
    tma_dlpack::load(tile, x, &full, column, row);  // coordinates: innermost first
  }
  __syncthreads();
  tma_dlpack::wait(&full, 0);

  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += THREADS) tile[i] *= 2;

  tma_dlpack::fence_async();  // every thread: what it wrote, the copy engine reads
  __syncthreads();
  if (threadIdx.x == 0)
  {
    tma_dlpack::store(out, tile, column, row);  // skips what lies outside the matrix
    tma_dlpack::commit();
    tma_dlpack::wait_read();  // shared memory must live until it is read
  }
}

#ifndef __CUDACC_RTC__  // CuPy compiles the kernel alone

// Tiles of rows are the grid's x, which has room for 2^31 of them; y has room for 65535.
cudaError_t launch_double_tiles(const CUtensorMap& x, const CUtensorMap& out, std::int64_t rows,
                                std::int64_t columns, cudaStream_t stream)
{
  const dim3 tiles(static_cast<unsigned>((rows + ROWS - 1) / ROWS),
                   static_cast<unsigned>((columns + COLUMNS - 1) / COLUMNS));
  double_tiles<<<tiles, THREADS, 0, stream>>>(x, out);
  return cudaGetLastError();  // a launch that failed; what fails later is in the stream's next error
}

#endif
