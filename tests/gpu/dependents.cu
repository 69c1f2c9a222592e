// Two kernels of a stream, the second launched to start early (programmatic stream serialization):
// dependents. Prints "right" if the second one read what the first wrote, and whether it started before the
// first had ended.

#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#include <tma_dlpack.h>

using namespace tma_dlpack;

constexpr unsigned N = 256;

// Let the next kernel start, wait until it has started or a time limit is over, and then write.
__global__ void first(unsigned* words, volatile unsigned* started, unsigned* seen_early)
{
  launch_dependents();
  for (int i = 0; i < 2000 && *started == 0; ++i) __nanosleep(1000);
  if (threadIdx.x == 0) *seen_early = *started;
  words[threadIdx.x] = 1000 + threadIdx.x;
}

__global__ void second(const unsigned* words, volatile unsigned* started, unsigned* out)
{
  __shared__ alignas(128) unsigned tile[N];
  __shared__ Barrier full;
  if (threadIdx.x == 0) *started = 1, init(&full);
  __syncthreads();
  wait_dependencies();
  if (threadIdx.x < 32 && elect_one())
  {
    arrive_expect_tx(&full, sizeof tile);
    load_bulk(tile, words, sizeof tile, &full);
  }
  wait(&full, 0);
  out[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

int main()
{
  unsigned* words;
  cudaMalloc(&words, (2 * N + 2) * sizeof(unsigned));
  cudaMemset(words, 0, (2 * N + 2) * sizeof(unsigned));
  unsigned *const out = words + N, *const started = out + N, *const seen_early = started + 1;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaFuncAttributes loaded;  // load the kernel now, because its first launch would wait for running kernels
  cudaFuncGetAttributes(&loaded, first);
  cudaFuncGetAttributes(&loaded, second);
  first<<<1, N, 0, stream>>>(words, started, seen_early);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = 1, launch.blockDim = N, launch.stream = stream;
  launch.attrs = &attribute, launch.numAttrs = 1;
  cudaLaunchKernelEx(&launch, second, static_cast<const unsigned*>(words),
                     static_cast<volatile unsigned*>(started), out);
  std::vector<unsigned> result(N + 2);
  const cudaError_t error = cudaStreamSynchronize(stream);
  cudaMemcpy(result.data(), out, (N + 2) * sizeof(unsigned), cudaMemcpyDeviceToHost);
  bool right = error == cudaSuccess;
  for (unsigned i = 0; i < N; ++i) right &= result[i] == 1000 + N - 1 - i;
  std::printf("%s, %s\n", right ? "right" : cudaGetErrorName(error),
              result[N + 1] ? "started early" : "started after");
}
