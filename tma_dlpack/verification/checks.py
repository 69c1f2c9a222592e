"""The checks of `verify`, which compare this package with the driver or the hardware.

A case depends only on the check's name, the seed and the case's number, so that `replay` can repeat
it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal, TypeVar

import numpy as np

from tma_dlpack.verification.arena import (
    ENCODERS,
    SIMULATOR,
    Arena,
    byte_difference,
    keywords_of,
    written,
)
from tma_dlpack.verification.core import MapKind, cuda, tma
from tma_dlpack.verification.on_device import (
    compare_change,
    compare_matrices,
    compare_product,
    random_change,
)
from tma_dlpack.verification.random_copies import Copy, random_call, random_copy, start_at_limits
from tma_dlpack.verification.random_operands import random_matrices, random_product

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check:
    """A check of `verify`. The report has one row for each check."""

    name: str
    kind: MapKind
    op: Literal["encode", "load", "store", "reduce", "limits", "wgmma", "ldmatrix", "change"]


CHECKS = (
    Check("encode tiled", "tiled", "encode"),
    Check("encode im2col", "im2col", "encode"),
    Check("encode im2col wide", "im2col_wide", "encode"),
    Check("tile loads", "tiled", "load"),
    Check("im2col loads", "im2col", "load"),
    Check("tile stores", "tiled", "store"),
    Check("im2col stores", "im2col", "store"),
    Check("tile reductions", "tiled", "reduce"),
    Check("tile loads at limits", "tiled", "limits"),
    Check("im2col loads at limits", "im2col", "limits"),
    Check("wgmma of loaded tiles", "tiled", "wgmma"),
    Check("ldmatrix of loaded tiles", "tiled", "ldmatrix"),
    Check("maps changed on the device", "tiled", "change"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case.

    `difference` is None if this package and the GPU agree. `evidence` has the result of the GPU or
    of the driver as JSON values. `verify` writes the evidence to its file.
    """

    call: str
    accepted: bool
    difference: str | None
    evidence: dict[str, Any] = field(default_factory=dict)


#: `Check.op` -> (function that makes a random case, function that runs the case and returns the
#: first difference).
_COMPARED: dict[str, tuple[Callable[..., Any], Callable[..., str | None]]] = {
    "wgmma": (random_product, compare_product),
    "ldmatrix": (random_matrices, compare_matrices),
    "change": (random_change, compare_change),
}


def run_case(check: Check, number: int, seed: int, arena: Arena) -> Outcome:
    """Run one case with this package and with the GPU, and compare the results."""
    # `Random` computes its seed from a str by a hash that is equal in every process.
    rng = Random(f"{check.name}/{seed}/{number}")
    if check.op == "encode":
        return _compare_encoders(check.kind, rng, arena.target)
    if check.op == "limits":
        return _compare_at_limits(check.kind, rng, arena)
    if check.op in _COMPARED:
        make, compare = _COMPARED[check.op]
        # Make the case even if it cannot run, because the outcome contains the text of the case.
        case = make(rng, arena.target.max_smem_bytes)
        if why := _cannot_run(check, arena.target):
            return Outcome(f"{case}, not run: {why}", False, None)
        return Outcome(f"{case}", True, compare(case, arena))
    copy = random_copy(check.op, check.kind, rng, arena.target.max_smem_bytes)
    return _compare_copy(copy, arena)


def _cannot_run(check: Check, target: tma.Target) -> str:
    """Return the reason why a check cannot run on a target; "" if the check can run."""
    if check.op == "wgmma" and not target.is_sm_9x:
        return "only sm_9x has wgmma"
    if check.op == "change" and not (target.has_model or target.has_derived_layout):
        return "the fields of maps are not known"
    return ""


# --- Encoders -----------------------------------------------------------------------------------


def _compare_encoders(kind: MapKind, rng: Random, target: tma.Target) -> Outcome:
    arguments = random_call(kind, rng)
    call = written(kind, arguments, target)
    encode = partial(ENCODERS[kind], **arguments, target=target)
    by_driver = _attempt(lambda: encode(encoder="driver"))
    accepted = isinstance(by_driver, tma.TensorMap)
    evidence = {
        "kind": kind,
        "arguments": arguments,
        "driver": _verdict(by_driver),
        "bytes": bytes(by_driver).hex() if isinstance(by_driver, tma.TensorMap) else None,
    }
    # If the layout of the target has not been measured, this package cannot encode maps for it, so
    # there is nothing to compare. The evidence is recorded nevertheless, for `FieldStatistics` in
    # learning.py.
    if not target.has_model:
        return Outcome(call, accepted, None, evidence)
    by_model = _attempt(lambda: encode(encoder="model"))
    difference = None
    if isinstance(by_driver, tma.TensorMap) and isinstance(by_model, tma.TensorMap):
        if bytes(by_driver) != bytes(by_model):
            difference = f"driver: {bytes(by_driver).hex()}\nmodel:  {bytes(by_model).hex()}"
    elif accepted or isinstance(by_model, tma.TensorMap):
        difference = f"driver: {_verdict(by_driver)}\nmodel: {_verdict(by_model)}"
    return Outcome(call, accepted, difference, evidence)


def _attempt(run: Callable[[], T]) -> T | str:
    """Return the result of a call.

    If a rule refuses the call, return "refused by" and the rule's id. If the driver returns an
    error, return the text of this error.
    """
    try:
        return run()
    except tma.TmaPreconditionError as error:
        return f"refused by {error.violations[0].rule}"
    except tma.TmaDriverError as error:
        return f"TmaDriverError: {error}"


def _verdict(result: object, success: str = "accepted") -> str:
    return result if isinstance(result, str) else success


# --- Copies -------------------------------------------------------------------------------------

CUDA = cuda.CudaBackend()


def _compare_at_limits(kind: MapKind, rng: Random, arena: Arena) -> Outcome:
    """Compare a load of the simulator with the same load of the hardware.

    The map may have any size that the driver accepts. Most of these loads are out of bounds.
    """
    arguments = random_call(kind, rng)
    # All types and interleave layouts accept addresses that are multiples of 32 bytes.
    start = 32 * rng.randint(0, 1000)
    arguments["global_address"] = arena.device.address + start
    encode = partial(ENCODERS[kind], **arguments, target=arena.target, encoder="driver")
    verdict = _attempt(encode)
    # The hardware needs 8 bytes of shared memory for an mbarrier, and the simulator does not. Skip
    # tiles that leave no room for the mbarrier.
    room = arena.target.max_smem_bytes - cuda.BARRIER_BYTES
    if isinstance(verdict, str) or verdict.smem_bytes > room:
        return Outcome(written(kind, arguments, arena.target), False, None)
    coords, offsets = start_at_limits(rng, verdict.arguments)
    return _compare_copy(Copy("load", verdict.arguments, start, coords, offsets, 0, 0), arena)


def _compare_copy(copy: Copy, arena: Arena) -> Outcome:
    call = _described(copy, arena.target)
    on_device, on_host = arena.maps(copy.arguments, copy.start)
    data = b""
    if copy.op != "load":
        rng = np.random.default_rng(copy.data_seed)
        # Use random bytes, not a loaded tile, so that the result shows whether each byte is stored.
        data = rng.integers(0, 256, on_device.smem_bytes, np.uint8).tobytes()
    mine = _attempt(lambda: _run(SIMULATOR, on_host, copy, data, arena.host))
    real = _attempt(lambda: _run(CUDA, on_device, copy, data, arena.device))
    # `mine` and `real` are a str if the copy was refused, None after a store or reduction, and a
    # `Tile` after a load.
    if isinstance(mine, str) or isinstance(real, str):
        outcome = _judge_refusals(call, mine, real)
    elif mine is None or real is None:
        outcome = _judge_bytes(call, {"global memory": (arena.host, arena.device.get())})
    else:
        pairs = {"Tile.written": (mine.written, real.written), "Tile.smem": (mine.smem, real.smem)}
        outcome = _judge_bytes(call, pairs)
    if copy.op != "load":
        arena.reset()
    return outcome


def _run(
    backend: tma.Backend, tensor_map: tma.TensorMap, copy: Copy, data: Any, memory: Any
) -> tma.Tile | None:
    """Run a copy; return the tile of a load, or None for other copies."""
    where = {"memory": memory, "smem_offset": copy.smem_offset}
    if copy.op == "load":
        offsets = copy.im2col_offsets
        return backend.load_tile(tensor_map, copy.coords, im2col_offsets=offsets, **where)
    if copy.op == "store":
        backend.store_tile(tensor_map, copy.coords, data, **where)
    else:
        backend.reduce_tile(tensor_map, copy.coords, data, copy.op, **where)
    return None


def _judge_bytes(call: str, pairs: dict[str, tuple[Any, Any]]) -> Outcome:
    """Compare arrays of the simulator with arrays of the hardware, and return the outcome.

    `pairs` maps a name to (array of the simulator, array of the hardware). The evidence has the XOR
    of the first pair that differs.
    """
    for what, (mine, real) in pairs.items():
        difference = byte_difference(what, mine, real)
        if difference is not None:
            # The XOR of the two arrays is mostly 0, so it compresses well.
            packed = zlib.compress(np.ascontiguousarray(mine ^ real).tobytes())
            xor = base64.b64encode(packed).decode()
            evidence = {"hardware": "copied", "what": what, "xor": xor}
            return Outcome(call, True, difference, evidence)
    return Outcome(call, True, None, {"hardware": "copied"})


def _judge_refusals(call: str, simulated: object, real: object) -> Outcome:
    # At least one side refused the copy. The two sides agree only if both refused it by the same
    # rule.
    mine, theirs = _verdict(simulated, "copied"), _verdict(real, "copied")
    same = mine == theirs != "copied"
    difference = None if same else f"simulator: {mine}\nhardware:  {theirs}"
    return Outcome(call, False, difference, {"hardware": theirs})


def _described(copy: Copy, target: tma.Target) -> str:
    args, address = copy.arguments, f"global_address=arena + {copy.start}"
    offsets = f", im2col_offsets={copy.im2col_offsets}" if copy.im2col_offsets else ""
    return (
        f"tm = {written(args.kind, keywords_of(args), target, address)}\n"
        f"{copy.op}: coords={copy.coords}{offsets}, smem_offset={copy.smem_offset}, "
        f"data_seed={copy.data_seed}"
    )
