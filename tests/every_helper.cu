// Every device function of tma_dlpack.h, so that ptxas sees each instruction.

#include <tma_dlpack.h>

using namespace tma_dlpack;

extern "C" __global__ void every_helper(const __grid_constant__ Map map, const Map* in_global_memory,
                                        unsigned tx_bytes, int c)
{
  __shared__ alignas(1024) unsigned char tile[1024];
  __shared__ Barrier full;

  prefetch(map);
  fence_acquire(in_global_memory);
  init(&full);
  init(&full, 2);
  expect_tx(&full, tx_bytes);

  load(tile, map, &full, c);
  load(tile, map, &full, c, c);
  load(tile, *in_global_memory, &full, c, c, c);
  load(tile, map, &full, c, c, c, c);
  load(tile, map, &full, c, c, c, c, c);
  load_im2col(tile, map, &full, c, c, c, OffsetsW{1});
  load_im2col(tile, map, &full, c, c, c, c, OffsetsWH{1, 2});
  load_im2col(tile, map, &full, c, c, c, c, c, OffsetsWHD{1, 2, 3});

  if (!try_wait(&full, 0)) wait(&full, 0);
  fence_async();

  store(map, tile, c);
  store(map, tile, c, c);
  store(map, tile, c, c, c);
  store(map, tile, c, c, c, c);
  store(map, tile, c, c, c, c, c);
  store_im2col(map, tile, c, c, c);
  store_im2col(map, tile, c, c, c, c);
  store_im2col(map, tile, c, c, c, c, c);

  commit();
  wait_read<3>();
  wait_read();
  wait_stores<1>();
  wait_stores();
}
