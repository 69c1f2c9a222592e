// l2_cache.cu: kernels that measure cache policies and prefetches of the L2 cache.
//
//   streamed  reads a large matrix once, and a small matrix again and again, with or without a policy
//   waiting   loads a tile, works, and loads the next tile, with or without a prefetch
//
// python tests/bench l2 measures the kernels; 06_hopper_gemm.ipynb shows the results.

#include <tma_dlpack.h>

using namespace tma_dlpack;

constexpr int ROWS = 64, TILE_BYTES = ROWS * 256;
constexpr int STAGES = 6;  // each stage has two tiles

// Load a tile of each matrix. `policies`: 0 means no policy, 1 a policy for the large matrix, 2 a policy for both.
template <int policies>
__device__ void load_both(unsigned char* to, const Map& large, const Map& small, Barrier* full,
                          int row, int again)
{
  arrive_expect_tx(full, 2 * TILE_BYTES);
  if constexpr (policies > 0)
    load(to, large, full, evict_first(), 0, row);  // evict the tile first, because no later copy reads it
  else
    load(to, large, full, 0, row);
  if constexpr (policies > 1)
    load(to + TILE_BYTES, small, full, evict_last(), 0, again);
  else
    load(to + TILE_BYTES, small, full, 0, again);
}

template <int policies>
__device__ void streamed(const Map& large, const Map& small, int tiles, int small_tiles)
{
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ Barrier full[STAGES];
  if (threadIdx.x != 0) return;
  for (Barrier& barrier : full) init(&barrier);

  PipelineState<STAGES> loading, loaded;
  int issued = 0, done = 0;
  for (int tile = blockIdx.x; tile < tiles || done < issued;)
  {
    if (tile < tiles && issued < done + STAGES)
    {
      load_both<policies>(stages + loading.stage() * 2 * TILE_BYTES, large, small,
                          &full[loading.stage()], tile * ROWS, tile % small_tiles * ROWS);
      tile += gridDim.x;
      ++issued;
      loading.advance();
      continue;
    }
    wait(&full[loaded.stage()], loaded.phase());
    ++done;
    loaded.advance();
  }
}

template <bool ahead>
__device__ void waiting(const Map& map, int tiles_of_a_block, int cycles)
{
  __shared__ alignas(128) unsigned char tile[TILE_BYTES];
  __shared__ Barrier full;
  if (threadIdx.x != 0) return;
  init(&full);
  for (int i = 0; i < tiles_of_a_block; ++i)
  {
    const int row = (blockIdx.x * tiles_of_a_block + i) * ROWS;
    if (ahead && i + 1 < tiles_of_a_block) prefetch_tile(map, 0, row + ROWS);  // only into L2
    arrive_expect_tx(&full, TILE_BYTES);
    load(tile, map, &full, 0, row);
    wait(&full, i & 1);
    for (const long long end = clock64() + cycles; clock64() < end;) {}  // the simulated work
  }
}

#define STREAMED(NAME, POLICIES)                                                                   \
  extern "C" __global__ void NAME(const __grid_constant__ Map large,                               \
                                  const __grid_constant__ Map small, int tiles, int small_tiles)   \
  {                                                                                                \
    streamed<POLICIES>(large, small, tiles, small_tiles);                                          \
  }

STREAMED(streamed_plain, 0)
STREAMED(streamed_evict_first, 1)
STREAMED(streamed_both, 2)

#define WAITING(NAME, AHEAD)                                                                       \
  extern "C" __global__ void NAME(const __grid_constant__ Map map, int tiles_of_a_block, int cycles) \
  {                                                                                                \
    waiting<AHEAD>(map, tiles_of_a_block, cycles);                                                 \
  }

WAITING(waiting_plain, false)
WAITING(waiting_prefetch, true)
