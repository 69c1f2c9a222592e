"""Small random TMA kernels: tiles in, arithmetic, tiles out, through a ring of stages.

A case has options for one CUDA source, and the results that NumPy computes. Numbers are small
integers in float32, so that every result is exact.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

import tma_dlpack as tma

SOURCE = r"""
#include <tma_dlpack.h>
using namespace tma_dlpack;

__device__ float changed(float v) { return v * FACTOR + SUMMAND; }

extern "C" __global__ void tiles(const __grid_constant__ Map x, const __grid_constant__ Map y,
                                 int across, int count) {
  __shared__ alignas(1024) float stages[STAGES][ROWS * COLUMNS];
  __shared__ Barrier full[STAGES];
  PipelineState<STAGES> next, at;
  const auto load_tile = [&](int tile) {
    store_wait_read();
    arrive_expect_tx(full + next.stage(), sizeof(stages[0]));
    load(stages[next.stage()], x, full + next.stage(), tile % across * COLUMNS,
         tile / across * ROWS);
    next.advance();
  };
  const int ahead = (STAGES - 1) * gridDim.x;
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) init(&barrier);
    for (int tile = blockIdx.x; tile < count && tile < ahead; tile += gridDim.x) load_tile(tile);
  }
  __syncthreads();
  for (int tile = blockIdx.x; tile < count; tile += gridDim.x, at.advance()) {
    if (threadIdx.x == 0 && tile + ahead < count) load_tile(tile + ahead);
    wait(full + at.stage(), at.phase());
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x)
      stages[at.stage()][i] = changed(stages[at.stage()][i]);
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      const int column = tile % across * COLUMNS, row = tile / across * ROWS;
#if REDUCES
      reduce<Reduction::add>(y, stages[at.stage()], column, row);
#else
      store(y, stages[at.stage()], column, row);
#endif
      store_commit();
    }
  }
  if (threadIdx.x == 0) store_wait();
}

// Two blocks load half of each tile into both, and store it to rows of their own.
extern "C" __global__ void __cluster_dims__(2)
  shared_tiles(const __grid_constant__ Map x, const __grid_constant__ Map y, int across,
               int count) {
  __shared__ alignas(1024) float tile[ROWS * COLUMNS];
  __shared__ Barrier full;
  const int rank = static_cast<int>(cluster_rank());
  if (threadIdx.x == 0) init(&full);
  cluster_sync();
  for (int n = 0; n < count; ++n) {
    const int column = n % across * COLUMNS, row = n / across * ROWS;
    if (threadIdx.x == 0) arrive_expect_tx(&full, sizeof(tile));
    cluster_sync();  // both expect the bytes before any half comes
    if (threadIdx.x == 0)
      load_multicast(tile + rank * (ROWS / 2) * COLUMNS, x, &full, 3, column,
                     row + rank * ROWS / 2);
    wait(&full, n & 1);
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x) tile[i] = changed(tile[i]);
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0)
      store(y, tile, column, row + rank * HEIGHT), store_commit(), store_wait_read();
    cluster_sync();  // both tiles may be loaded over
  }
  if (threadIdx.x == 0) store_wait();
}
"""


class Case(NamedTuple):
    """Keyword arguments of `run_kernel`, the arrays that it writes, and the expected arrays."""

    name: str
    keywords: dict[str, Any]
    written: np.ndarray
    expected: np.ndarray


def case(seed: int) -> Case:
    """Return the random kernel of a seed."""
    r = random.Random(seed)
    shares = r.random() < 0.3
    rows, columns = r.choice((8, 16, 24)), r.choice((8, 32, 64))  # half a tile: n * 128 bytes
    high, wide = r.randint(1, 70), 4 * r.randint(1, 40)
    height = -(-high // rows) * rows
    numbers = np.random.default_rng(seed)
    x = numbers.integers(-9, 10, (high, wide)).astype(np.float32)
    y = numbers.integers(-9, 10, (2 * height if shares else high, wide)).astype(np.float32)
    factor, summand = r.randint(-3, 3), r.randint(-5, 5)
    reduces = not shares and r.random() < 0.3
    expected = y.copy()
    for first in (0, height) if shares else (0,):
        # elements outside x are loaded as zeros and changed; the store writes those that are in y
        part = expected[first : first + (height if shares else high)]
        padded = np.zeros((len(part), wide), np.float32)
        padded[:high] = x
        value = padded * factor + summand
        part[:] = part + value if reduces else value
    across = -(-wide // columns)
    count = across * (height // rows)
    box_x = (rows // 2, columns) if shares else (rows, columns)
    maps = [
        tma.make_tma_descriptor(t, box, rules="driver")
        for t, box in ((x, box_x), (y, (rows, columns)))
    ]
    macros = {
        "STAGES": r.randint(1, 4), "ROWS": rows, "COLUMNS": columns, "FACTOR": f"({factor}.0f)",
        "SUMMAND": f"({summand}.0f)", "REDUCES": int(reduces), "HEIGHT": height,
    }  # fmt: skip
    keywords = {
        "grid": 2 if shares else r.randint(1, 3), "block": r.choice((32, 96, 128)),
        "args": (*maps, across, count), "options": [f"-D{k}={v}" for k, v in macros.items()],
    }  # fmt: skip
    return Case("shared_tiles" if shares else "tiles", keywords, y, expected)
