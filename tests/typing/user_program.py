"""A user's program with every public name, which mypy --strict and pyright accept.

Type checkers read the program (.ci/run). A test compares it with the list of public names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tma_dlpack as tma
from tma_dlpack.debug import (
    DeadBarrier,
    DeadKernel,
    Explanation,
    Fault,
    FoundMap,
    LintFinding,
    LintReport,
    PostMortem,
    PrintedArguments,
    Trace,
    TracedMap,
)
from tma_dlpack.kernel import KernelRun
from tma_dlpack.report import RuleInfo, RuleList
from tma_dlpack.suggestions import Suggestion, Suggestions
from tma_dlpack.verification import BandwidthReport, VerifyReport


def make(x: npt.NDArray[np.float16]) -> tma.TensorMap:
    """Make the README's map, or the map that the report proposes."""
    tensor_map = tma.make_tma_descriptor(x, box_sizes=(64, 64), swizzle="bytes128")
    report: tma.Report = tma.check_tma_descriptor(x, box_sizes=(64, 100), swizzle="bytes128")
    if report.ok:
        return tensor_map
    violation: tma.Violation = report.violations[0]
    advice: tuple[tma.Advice, ...] = report.advice
    print(violation.rule, violation.found, violation.limit, violation.fix, violation.source, advice)
    fixed: dict[str, Any] | None = report.fixed()
    if fixed is not None:
        tma.make_tma_descriptor(x, **fixed)
    return tma.make_tma_descriptor(x, **report.accepted_arguments())


def options(x: npt.NDArray[np.float16]) -> tuple[tma.TensorMap, ...]:
    """Return every option as a member, a name or a value."""
    target: tma.Target = tma.TARGETS["sm_90"]
    wide = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128", split_inner=True)
    print(tma.split_inner_coords(wide, (0, 0)))
    return (
        tma.make_tma_descriptor(
            x,
            [64, 64],
            (1, 1),
            tma.TmaInterleaveLayout.none,
            tma.TmaSwizzle.bytes128,
            tma.TmaL2FetchSize.none,
            tma.TmaOobFill.nan,
            data_type=tma.TensorMapDataType.FLOAT16,
            rules="driver",
            allow=("BOX_IN_SHAPE",),
            shape=(64, 64),
            strides=(64, 1),
            offset=0,
            target=target,
        ),
        tma.make_tma_descriptor(x, **tma.split_inner(x, (64, 64))),
        wide,
        tma.make_tma_descriptor(x, **tma.ragged(x, (64, 64), dim=0)),
        tma.TensorMap.from_bytes(bytes(128), target="sm_90"),
    )


def convolve(images: npt.NDArray[np.float16]) -> tma.TensorMap:
    """Make the map of an im2col convolution."""
    tma.check_conv_descriptor(
        images, 3, padding=((1, 2), 1), channels_per_pixel=64, pixels_per_column=128
    ).raise_if_refused()
    if images.ndim == 4:
        return tma.make_conv_descriptor(
            images, [3, 3], padding=1, stride=(1, 2), channels_per_pixel=64, pixels_per_column=128
        )
    lower, upper = tma.im2col_corners((3, 3), padding=(1, (0, 1)))
    tma.check_im2col_descriptor(images, lower, upper, 64, 128).raise_if_refused()
    wide = tma.check_im2col_wide_descriptor(
        images, -1, 1, 64, 128, mode=tma.TensorMapIm2ColWideMode.w
    )
    if wide.ok:
        return tma.make_im2col_wide_descriptor(images, -1, 1, 64, 128, mode="w")
    return tma.make_im2col_descriptor(
        images, lower, upper, channels_per_pixel=64, pixels_per_column=128
    )


def driver(address: int) -> tma.TensorMap:
    """Use the driver's names, innermost first."""
    corners, ones = (-1, -1), (1, 1, 1, 1)
    tma.driver_encode_im2col(
        "FLOAT16", 4, address, (64, 14, 14, 2), (128, 1792, 25088), corners, corners, 64, 128, ones
    )
    tma.driver_encode_im2col_wide(
        "FLOAT16", 4, address, (64, 14, 14, 2), (128, 1792, 25088), -1, 1, 64, 128, ones
    )
    tiled = tma.driver_encode_tiled(
        tma.TensorMapDataType.FLOAT16,
        2,
        address,
        (64, 64),
        (128,),
        (64, 64),
        (1, 1),
        encoder="auto",
    )
    return tma.driver_replace_address(tiled, address + 128)


def integers_of_numpy(x: npt.NDArray[np.float16]) -> tma.TensorMap:
    """Pass NumPy integers and arrays as arguments that accept integers."""
    sizes = np.array([64, 64])
    tma.make_tma_descriptor(x, sizes, offset=np.int64(0), ragged=None)
    tma.driver_encode_tiled(6, np.int32(2), 1 << 20, sizes, (128,), sizes, (1, 1), swizzle=3)
    return tma.make_tma_descriptor(x, list(sizes // 2), swizzle=np.int32(2))


class ArrayOfMine:
    """A tensor of another framework."""

    def __dlpack__(self, *, stream: int | None = None, max_version: object = None) -> object:
        """Return the capsule."""
        return np.zeros((64, 64), np.float16).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the tensor, the host."""
        return (1, 0)


def own_tensor() -> tma.TensorMap:
    """Pass a tensor of another framework."""
    return tma.make_tma_descriptor(ArrayOfMine(), (64, 64), swizzle="bytes128")


def numbers(tensor_map: tma.TensorMap) -> tuple[int, tuple[int, ...], bytes]:
    """Read a map."""
    total: int = tensor_map.tx_bytes + tensor_map.smem_bytes + tensor_map.smem_alignment
    dims: tuple[int, ...] = tensor_map.global_dim + tensor_map.box_sizes + tensor_map.strides
    swizzle: tma.TmaSwizzle = tensor_map.swizzle
    kind: str = tensor_map.kind
    print(swizzle.name, kind, tensor_map.launchable, tensor_map.cpp(), tensor_map.device)
    return total, dims, bytes(tensor_map)


def copy(tensor_map: tma.TensorMap, x: npt.NDArray[np.float16]) -> npt.NDArray[np.float16]:
    """Copy tiles on the simulator."""
    simulator: tma.Backend = tma.backend("simulator")
    tile: tma.Tile = tma.load_tile(tensor_map, (0, 0), backend=simulator)
    tiles = tma.load_tiles(tensor_map, tma.tile_coords(tensor_map), backend="simulator")
    tma.store_tile(tensor_map, (0, 0), tile.array)
    tma.reduce_tile(tensor_map, (0, 0), tile.array, "add")
    print(tiles.filled.sum(), tile.written.sum(), tile.smem.nbytes, tile.tx_bytes)
    return np.asarray(tile.array, dtype=np.float16)


def consume(tensor_map: tma.TensorMap) -> int:
    """Return a tensor core its tile."""
    descriptor: tma.MatrixDescriptor = tma.matrix_descriptor(tensor_map, instruction="wgmma")
    addresses = tma.ldmatrix_addresses(tensor_map, 0, 0)
    coords: tuple[int, ...] = tma.ragged_coords(tensor_map, 0, 64, (0, 0))
    return descriptor.advance(1).value + int(addresses[0]) + len(coords)


def choose(x: npt.NDArray[np.float16]) -> tma.TensorMap:
    """Ask `suggest` for a box."""
    found: Suggestions = tma.suggest(x, (128, 64), reader="ldmatrix", stages=4)
    best: Suggestion = found[0]
    print(len(found), found.reasons, best.copies * best.tx_bytes, best.smem_bytes, best.reasons)
    return tma.make_tma_descriptor(x, **best.arguments)


def look(tensor_map: tma.TensorMap, x: npt.NDArray[np.float16], text: str) -> None:
    """Draw, explain, lint and explore."""
    report: LintReport = tma.lint(text, nvcc_flags=["-Iinclude"])
    mistake: LintFinding = report.findings[0]
    print(report.ok, mistake.rule, mistake.source, mistake.path, report.to_json())
    explanation: Explanation = tma.explain(text)
    request: PrintedArguments = explanation.requests[0]
    every: RuleList = tma.rules()
    rule: RuleInfo = every[0]
    print(tma.draw.tensor(tensor_map, (0, 0)), tma.bank_conflicts(tensor_map, "column"))
    explorer = tma.explore(x)
    explorer.box_sizes = (8, 64)
    explored: tma.TensorMap | None = explorer.map
    print(explanation, request, rule, explored, explorer.code, tma.get_include())


def run(source: str, x: npt.NDArray[np.float16]) -> str:
    """Run a kernel without a GPU."""
    tensor_map = tma.make_tma_descriptor(x, (8, 64))
    found: KernelRun = tma.run_kernel(source, "copy", grid=1, block=128, args=(tensor_map, x))
    print(found.ok, found.findings, found.barriers, found.steps, found.schedule, found.timeline)
    return found.to_json()


def dead(path: str) -> str:
    """Read a GPU core dump."""
    found: PostMortem = tma.postmortem(path)
    fault: Fault = found.faults[0]
    barrier: DeadBarrier = found.barriers[0]
    kernel: DeadKernel = found.kernels[0]
    parameter: FoundMap = found.maps[0]
    print(found.ok, fault.rule, fault.fix, barrier.message, kernel.grid, parameter.map.box_sizes)
    return found.to_json()


def measure(x: Sequence[npt.NDArray[np.float16]]) -> tuple[BandwidthReport, VerifyReport]:
    """Ask a GPU."""
    batch: tma.TensorMapBatch = tma.make_tma_descriptors(x, (64, 64))
    print(batch.numpy().shape, [tensor_map.rank for tensor_map in batch])
    with tma.trace() as trace:
        tma.make_tma_descriptor(x[0], (64, 64))
    traced: TracedMap = trace.maps[0]
    recorded: Trace = Trace.from_json(trace.to_json())
    print(recorded, traced.arguments.box_dim, traced.result, traced.report.ok, traced.kernels)
    return tma.bandwidth(x[0], [(64, 64)]), tma.verify(1000)


def handled(x: npt.NDArray[np.float16]) -> str:
    """Catch the exceptions, from the narrowest to the widest class."""
    try:
        return repr(make(x))
    except tma.TmaTargetError as error:
        return f"another GPU: {error}"
    except tma.TmaPreconditionError as error:
        return "\n".join(violation.fix for violation in error.violations)
    except (tma.TmaUnsupportedError, tma.TmaDriverError) as error:
        return str(error)
    except tma.TmaError:
        raise
