"""Copy a tile on each of two GPUs in one torch process: two_gpus_slips.py right|coordinate|bytes.

The slips are those of jax_slips.py; GPU 1 runs two blocks, and lacks twice the bytes.
"""

from __future__ import annotations

import ctypes
import sys

from jax_slips import SOURCE


def main(slip: str) -> None:
    import torch

    import tma_dlpack as tma
    from tma_dlpack import driver
    from tma_dlpack.copies import launch

    library = launch.compile_source(SOURCE, "copy.cu", driver.device_target(0))
    tensors = [torch.zeros(64, 64, dtype=torch.float16, device=f"cuda:{n}") for n in (0, 1)]
    maps = [tma.make_tma_descriptor(x, (64, 64)) for x in tensors]
    print("launched", flush=True)
    for gpu, tensor_map in enumerate(maps):
        torch.cuda.set_device(gpu)
        torch.cuda.synchronize()
        more = 64 * (gpu + 1) if slip == "bytes" else 0
        announced = ctypes.c_uint(tensor_map.tx_bytes + more)
        column = ctypes.c_int(4 if slip == "coordinate" else 0)
        arguments = [launch.by_value(bytes(tensor_map)), column, announced]
        launch.launch(library.kernel("copy", gpu), gpu + 1, 64, 8192, 0, arguments)
    for gpu in (0, 1):
        torch.cuda.set_device(gpu)
        driver.call("cuCtxSynchronize")
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
