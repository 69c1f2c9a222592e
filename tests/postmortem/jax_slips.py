"""Copy a tile of a JAX array with one slip: jax_slips.py right | coordinate | bytes."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

SOURCE = """
#include <tma_dlpack.h>
using namespace tma_dlpack;
extern "C" __global__ void copy(const __grid_constant__ Map map, int column, unsigned bytes)
{
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full);
  __syncthreads();
  if (threadIdx.x == 0)
  {
    arrive_expect_tx(&full, bytes);
    load(smem, map, &full, column, 0);
  }
  wait(&full, 0);
}
"""


def main(slip: str) -> None:
    import jax
    import jax.numpy as jnp

    import tma_dlpack as tma
    from tma_dlpack import driver
    from tma_dlpack.copies import launch

    x = jax.block_until_ready(jnp.zeros((64, 64), jnp.float16))
    tensor_map = tma.make_tma_descriptor(x, (64, 64))
    copy = launch.compile_source(SOURCE, "copy.cu", driver.device_target(0)).kernel("copy", 0)
    column = ctypes.c_int(4 if slip == "coordinate" else 0)
    announced = ctypes.c_uint(tensor_map.tx_bytes + (64 if slip == "bytes" else 0))
    print("launched", flush=True)
    launch.launch(copy, 1, 64, 8192, 0, [launch.by_value(bytes(tensor_map)), column, announced])
    driver.call("cuCtxSynchronize")
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
