"""`run_kernel`: run a whole kernel on the simulator or on the GPU.

`compile` turns a CUDA kernel into PTX. `arguments` turns the kernel's arguments into bytes and
memory. On the GPU the driver runs the kernel (`on_gpu`). The simulator translates each basic block
of the PTX into a Python function (`program`, `emit`). It runs threads that have the same program
counter together (`machine`, `threads`). Other files implement the instructions: `memory` implements
loads and stores, `mbarrier` and `barriers` implement barriers and waits, `copies` implements bulk
copies, and `matrix` and `tcgen05` implement matrix products. `order` reports memory accesses that
no synchronisation orders. `findings`, `timeline` and `result` define the `KernelRun` that
`run_kernel` returns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from tma_dlpack.kernel.arguments import bind, is_number, parameters_of
from tma_dlpack.kernel.compile import Compiled, compile_kernel
from tma_dlpack.kernel.core import (
    argument_error,
    as_tensor_view,
    at_least,
    bad_value,
    driver,
    integer_of,
    integers_of,
    opaque,
    text_of,
    tma,
)
from tma_dlpack.kernel.result import KernelRun
from tma_dlpack.kernel.schedules import run_schedules

__all__ = ["KernelRun", "run_kernel"]

# MAX_THREADS is the maximum number of threads of a block, and MAX_CLUSTER is the maximum number of
# blocks of a cluster (CUDA C++ Programming Guide, compute capability 9.0). If a cluster has more
# than 8 blocks, the kernel needs the attribute for non-portable cluster sizes.
MAX_THREADS = 1024
MAX_CLUSTER = 16


@opaque
def run_kernel(
    source: Any,
    name: str | None = None,
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any] = (),
    cluster: int | Sequence[int] | None = None,
    smem_bytes: int = 0,
    backend: Literal["simulator", "cuda"] | None = None,
    target: tma.Target | str | None = None,
    options: Sequence[str] = (),
    seed: int = 0,
    schedules: int = 2,
    max_steps: int | None = None,
) -> KernelRun:
    """Run a CUDA kernel on the simulator or the GPU, and return the findings.

    The simulator needs no GPU. It is the default if no tensor is on a GPU. The kernel changes the
    tensors in place, as a launch does. The simulator runs the kernel several times with different
    schedules. In the first schedule, asynchronous copies, products and arrivals finish as late as
    possible. In the second schedule they finish as early as possible, and in further schedules at
    random moments. The simulator reports hangs, races and missing fences even if the values are
    correct.

    Parameters
    ----------
    source : str or path
        PTX, CUDA C++, or the path of a .ptx or .cu file. CUDA C++ is compiled by NVRTC or nvcc.
    name : str, optional
        The kernel's name, either as the source writes it (``"gemm<128, 64>"``) or mangled. The
        name may be omitted if the source has one kernel.
    grid, block : int or sequence of int
        `grid` is the number of blocks, and `block` is the number of threads of a block. Each is an
        integer x, or a sequence (x,), (x, y) or (x, y, z). Missing sizes are 1.
    args : sequence
        The kernel's arguments in order. A `TensorMap` is passed by value; if the parameter is a
        pointer, the address of the map's bytes is passed. A `TensorMapBatch` is passed as the
        address of the maps' bytes. A ``__dlpack__`` tensor is passed as the address of its first
        element. Numbers, NumPy scalars, bytes and ctypes structures are passed by value.
    cluster : int or sequence of int, optional
        Number of blocks of a cluster along the axes (x, y, z). The default is the size that the
        kernel declares, or (1, 1, 1) if the kernel declares none.
    smem_bytes : int
        Size of a block's dynamic shared memory in bytes.
    backend : {"simulator", "cuda"}, optional
        Where to run the kernel. The default is "cuda" if a tensor, or the tensor of a map, is on a
        GPU. Otherwise the default is "simulator".
    target : Target or str, optional
        Target to compile for. On a GPU, the default is the target of that GPU. On the simulator,
        the default is the target of the first map among the arguments. If no argument is a map, the
        default is ``"sm_90"``.
    options : sequence of str
        Options of the compiler, such as ``"-DSTAGES=3"``.
    seed : int
        Seed of the random schedules. Two calls with equal arguments and seeds have equal results.
    schedules : int
        Number of schedules that the simulator runs: the first is late, the second is early, and all
        further schedules are random.
    max_steps : int, optional
        Maximum number of instructions in one schedule. This limit ends an endless loop. If several
        threads execute an instruction together, the instruction counts once.

    Returns
    -------
    KernelRun
        The result has ``run.ok`` and ``run.findings``. ``print(run)`` prints a summary, and
        ``run.raise_if_wrong()`` is for tests.

    Raises
    ------
    TmaPreconditionError
        If the source does not compile or has no such kernel, or if the arguments do not fit.
    TmaUnsupportedError
        If there is no compiler, or if the simulator does not support an instruction. The message
        names the instruction.
    TmaDriverError
        With ``backend="cuda"``, if the kernel fails on the GPU.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> ptx = '''
    ... .version 8.0
    ... .target sm_90
    ... .address_size 64
    ... .visible .entry twice(.param .u64 x) {
    ...   .reg .b32 %r<3>;
    ...   .reg .b64 %rd<4>;
    ...   ld.param.u64 %rd1, [x];
    ...   mov.u32 %r1, %tid.x;
    ...   mul.wide.u32 %rd2, %r1, 4;
    ...   add.s64 %rd3, %rd1, %rd2;
    ...   ld.global.u32 %r2, [%rd3];
    ...   add.u32 %r2, %r2, %r2;
    ...   st.global.u32 [%rd3], %r2;
    ...   ret;
    ... }'''
    >>> x = np.arange(4, dtype=np.int32)
    >>> tma.run_kernel(ptx, grid=1, block=4, args=(x,)).ok
    True
    >>> x
    array([0, 2, 4, 6], dtype=int32)
    """
    where = _backend(backend, args)
    grid3, block3 = _three("grid", grid), _three("block", block)
    threads = block3[0] * block3[1] * block3[2]
    if threads > MAX_THREADS:
        found, must = f"block has {threads} threads", f"have at most {MAX_THREADS} threads"
        raise argument_error("block", found, must, "pass a smaller block and more blocks")
    at_least("smem_bytes", smem_bytes, 0)
    at_least("schedules", schedules)
    if isinstance(options, str):
        raise bad_value("options", options, "be a sequence of str", f"pass options=({options!r},)")
    # `_cluster` compares the cluster size with the kernel's declaration in the PTX, so compile
    # first.
    compiled = compile_kernel(source, name, options, _architecture(target, args, where))
    header = _header(compiled)
    parameters = parameters_of(header)
    cluster3 = _cluster(cluster, header, grid3)
    bound = bind(parameters, args, on_gpu=where == "cuda")
    if where == "cuda":
        # Import here, because a run on the simulator needs no driver.
        from tma_dlpack.kernel import on_gpu

        on_gpu.launch(compiled, parameters, args, grid3, block3, cluster3, smem_bytes)
        return KernelRun(compiled.kernel, backend="cuda")
    return run_schedules(
        compiled, bound, grid3, block3, cluster3, smem_bytes, seed, schedules, max_steps
    )


def _backend(backend: object, args: Sequence[Any]) -> str:
    """Return "simulator" or "cuda"; if `backend` is None, the device of `args` decides."""
    name = text_of(backend if backend is None else getattr(backend, "name", backend))
    if name in ("simulator", "cuda"):
        return name
    if backend is not None:
        must, fix = "be 'simulator', 'cuda' or None", 'pass backend="simulator"'
        raise bad_value("backend", backend, must, fix)
    # Invalid arguments have no device; `bind` refuses them later with a better message.
    devices = [_device(value) for value in args] if isinstance(args, Sequence) else []
    return (
        "cuda" if any(device is not None and device.is_cuda for device in devices) else "simulator"
    )


def _device(value: object) -> Any:
    """Return the device of a tensor or map; None for other arguments."""
    if isinstance(value, tma.TensorMapBatch):
        return next((one.device for one in value), None)
    if isinstance(value, tma.TensorMap):
        return value.device
    return None if is_number(value) else as_tensor_view(value).device


def _three(argument: str, value: object) -> tuple[int, int, int]:
    """Return a size as (x, y, z), with 1 for missing entries."""
    one = integer_of(value)
    sizes = (one,) if one is not None else integers_of(value)
    if sizes is None or not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        must = "be 1 to 3 positive integers, (x, y, z)"
        raise bad_value(argument, value, must, f"pass {argument}=1, or {argument}=(2, 2)")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _architecture(target: Any, args: Sequence[Any], where: str) -> str:
    """Return the name of the target to compile for."""
    if target is not None:
        return tma.Target.of(target).name
    if where == "cuda":
        ids = [d.device_id for d in map(_device, args) if d is not None and d.is_cuda]
        # The first device decides, because the driver refuses a launch with tensors of two devices.
        return driver.device_target(ids[0] if ids else 0).name
    return next((value.target.name for value in args if isinstance(value, tma.TensorMap)), "sm_90")


def _header(compiled: Compiled) -> str:
    """Return a kernel's header in the PTX: its name, its parameters and its directives."""
    # For example ".entry k(.param .u64 x) .reqnctapercluster 2, 1, 1". The header ends before the
    # opening brace.
    found = re.search(
        rf"\.entry\s+{re.escape(compiled.kernel)}\s*(\(.*?\))?[^{{]*", compiled.ptx, re.S
    )
    assert found is not None
    return found[0]


def _cluster(cluster: object, header: str, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the cluster size (x, y, z); if `cluster` is None, the kernel's declaration decides."""
    # For example ".reqnctapercluster 2, 1, 1". The sizes y and z are optional in PTX.
    declared = re.search(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", header)
    own = _three("cluster", [int(n) for n in declared.groups() if n]) if declared else None
    sizes = own or (1, 1, 1) if cluster is None else _three("cluster", cluster)
    if own is not None and sizes != own:
        found = f"cluster is {sizes}, and the kernel declares {own}"
        raise argument_error("cluster", found, "be as declared", f"pass cluster={own}, or omit it")
    blocks = sizes[0] * sizes[1] * sizes[2]
    if blocks > MAX_CLUSTER:
        found, must = f"cluster has {blocks} blocks", f"have at most {MAX_CLUSTER} blocks"
        raise argument_error("cluster", found, must, "pass a smaller cluster")
    if any(g % c for g, c in zip(grid, sizes, strict=True)):
        # The message proposes a grid that is rounded up to whole clusters.
        whole = tuple(-(-g // c) * c for g, c in zip(grid, sizes, strict=True))
        found = f"grid is {grid} and a cluster has {sizes} blocks"
        raise argument_error("grid", found, "consist of whole clusters", f"pass grid={whole}")
    return sizes
