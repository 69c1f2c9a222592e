"""``python tests/bench cpp``: the time to make a map in C++ with this package's headers.

The bench compiles a small program with g++ and runs it. Each call has another number of rows. If
libcu++'s ``<cuda/tma>`` (CCCL 3.2) and ``<dlpack/dlpack.h>`` can be included, the bench also times
`cuda::make_tma_descriptor` on the same tensors. ``--include`` names the folders of these headers.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tma_dlpack.include import get_include
from tma_dlpack.tables.errors import TmaUnsupportedError

#: Prints one line per way: its name, and nanoseconds per call or why there are none.
PROGRAM = r"""
#include <tma_dlpack_make.hpp>
#include <chrono>
#include <cstdio>
#if __has_include(<cuda/tma>) && __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#include <cuda/tma>
#define WITH_LIBCUDACXX
#endif

static std::int64_t shape[2] = {64, 64}, strides[2] = {64, 1};

// The address is not looked at when a map is encoded.
template <class Tensor>
static Tensor matrix()
{
  Tensor x{};
  x.data = reinterpret_cast<void*>(0x7f0000000000ull);
  x.device.device_type = static_cast<decltype(x.device.device_type)>(2);
  x.ndim = 2;
  x.dtype.code = 2;
  x.dtype.bits = 16;
  x.dtype.lanes = 1;
  x.shape = shape;
  x.strides = strides;
  return x;
}

template <class Call>
static void time(const char* name, Call call)
{
  const int calls = 200000;
  try {
    shape[0] = 64;
    call();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      shape[0] = 64 + (i & 1023);
      call();
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    std::printf("%s\t%.1f\n", name, took.count() / calls);
  } catch (const std::exception&) {
    std::printf("%s\tneeds a GPU of compute capability 9.0\n", name);
  }
}

int main()
{
  TmaDlpackTensor x = matrix<TmaDlpackTensor>();
  TmaDlpackOptions options;
  tma_dlpack_start_options(&options, TMA_DLPACK_TILED);
  options.swizzle = 3;
  options.box_count = 2;
  options.box_sizes[0] = options.box_sizes[1] = 64;
  const TmaDlpackTarget target = {9, 0, tma_dlpack_target(0)[2]};
  volatile unsigned char kept = 0;
  time("judge and encode by the measured layout", [&] {
    TmaDlpackDescribed described;
    alignas(128) unsigned char bytes[128] = {};
    tma_dlpack_describe(&x, &options, &target, &described);
    if (tma_dlpack_judge(&described, tma_dlpack_asked(&options, &target)) == 0) {
      tma_dlpack_extend(&described);
      tma_dlpack_encode(&described, bytes);
    }
    kept = bytes[32];
  });
  time("tma_dlpack::make_tma_descriptor", [&] {
    (void)tma_dlpack::make_tma_descriptor(x, {64, 64}, tma_dlpack::Swizzle::bytes128);
  });
#ifdef WITH_LIBCUDACXX
  DLTensor y = matrix<DLTensor>();
  const int box[2] = {64, 64};
  time("cuda::make_tma_descriptor", [&] {
    (void)cuda::make_tma_descriptor(y, cuda::std::span<const int>{box},
                                    cuda::tma_interleave_layout::none,
                                    cuda::tma_swizzle::bytes128);
  });
#else
  std::printf("cuda::make_tma_descriptor\tneeds <cuda/tma> of CCCL 3.2 and <dlpack/dlpack.h>\n");
#endif
}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table. Returns 0."""
    parser = argparse.ArgumentParser(prog="python tests/bench cpp", description=__doc__)
    parser.add_argument("--include", type=Path, action="append", default=[], help="a header folder")
    options = parser.parse_args(argv)
    print("one map in C++, a new shape at every call        ns")
    for name, found in measure(options.include):
        print(f"  {name:42s}  {found if isinstance(found, str) else f'{found:6.1f}'}")
    return 0


def measure(include: Sequence[Path] = ()) -> list[tuple[str, float | str]]:
    """Return the nanoseconds per call of each function, or the reason why it could not be timed.

    Raises `TmaUnsupportedError` without g++.
    """
    if shutil.which("g++") is None:
        raise TmaUnsupportedError("bench cpp needs a C++ compiler: install g++")
    folders = [f"-I{folder}" for folder in (get_include(), *include)]
    with tempfile.TemporaryDirectory() as room:
        source, program = Path(room, "bench.cpp"), Path(room, "bench")
        source.write_text(PROGRAM, encoding="utf-8")
        command = ["g++", "-std=c++17", "-O2", *folders, str(source), "-o", str(program), "-ldl"]
        subprocess.run(command, check=True)
        printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in printed.splitlines()]
    return [(name, float(value) if value[0].isdigit() else value) for name, value in rows]
