"""One traced map: the driver's arguments, the result, and the rules that the arguments break."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tma_dlpack.debug.core import (
    CORNERS,
    ENUMS,
    KIND_OF,
    MapKind,
    check_address,
    errors,
    public,
    refusals,
    targets,
    tma,
)
from tma_dlpack.debug.explain.failures import RESULTS
from tma_dlpack.debug.explain.judge import PrintedArguments, check_printed, of_map
from tma_dlpack.debug.names import demangled

_NAMES = {0: "CUDA_SUCCESS", **{result.code: result.name for result in RESULTS}}
#: Prefixes of file names of shared objects. A call passes through these objects on its way to the
#: driver. `made_by` skips them, because they do not identify the caller.
_BETWEEN = ("libcuda.so", "libcupti", "_inject.", "libc.so", "ld-linux", "libffi", "_ctypes.")
#: Parts of the paths of files that are not the user's own code.
_PACKAGES = (
    "site-packages/",
    "dist-packages/",
    "<frozen",
    *(f"tma_dlpack/{room}/" for room in ("make", "tables", "driver", "copies")),
)
# The target that is assumed for calls without a context.
_ASSUMED = tma.Target.of("sm_90")
Bytes = bytes  # in `TracedMap`, the attribute `bytes` hides the type


class TracedKernel(NamedTuple):
    """A kernel that was launched with a map, and the place of the map in the kernel's parameters.

    `parameter` is the index of the parameter, and `offset` is the map's offset in the parameter, in
    bytes. If `is_least` is true, not all launches were counted, so `launches` is a minimum.
    """

    name: str
    parameter: int
    offset: int
    launches: int
    is_least: bool


@public.public_in("tma_dlpack.debug")
@errors.sealed
@dataclass(frozen=True, slots=True)
class TracedMap:
    """A tensor map that a traced program made, and the rules that its arguments break.

    Calls that differ only in the address share one `TracedMap`, with the address of the first call.

    Attributes
    ----------
    call : str
        The driver's function, such as ``"cuTensorMapEncodeTiled"``; "" for a map that was only
        seen as a kernel's parameter, because no call of the driver made it.
    arguments : PrintedArguments
        The driver's arguments; None for an argument that could not be read.
    result : int or None
        The CUresult, 0 for success; None if the call did not return.
    report : Report
        The rules that the arguments break, and advice.
    bytes : bytes or None
        The 128 bytes of the map that the first call made; None if the driver refused the call.
    kernels : tuple of str
        Names of the kernels that were launched with this map, or with a map that differs from this
        map only in the address of the tensor.
    count : int
        The number of calls that share this object.
    uses : tuple of TracedKernel
        The kernels in `kernels`; for each kernel, the parameter that has the map, and the number of
        launches.
    made_by : str
        The shared object that called the driver; "" if not known.
    python : tuple of str
        The Python frames of the first call, innermost first, as ``file:line in function``;
        empty if the thread did not hold the GIL.
    processes : tuple of str
        The processes that made the map: ``("rank 0", "rank 1")``, or ``("process 4711",)``.
    target : Target or None
        The GPU of the context; None if there was no context.
    """

    call: str
    arguments: PrintedArguments
    result: int | None
    report: tma.Report
    kernels: tuple[str, ...]
    count: int
    uses: tuple[TracedKernel, ...]
    made_by: str
    python: tuple[str, ...]
    processes: tuple[str, ...]
    target: tma.Target | None
    bytes: Bytes | None

    @property
    def ok(self) -> bool:
        """Whether the driver accepted the call, and no rule is broken."""
        return self.result == 0 and self.report.ok

    @property
    def result_name(self) -> str:
        """The name of `result` in cuda.h, such as ``"CUDA_SUCCESS"``."""
        if self.result is None:
            return "the call did not return"
        return _NAMES.get(self.result, f"CUresult {self.result}")

    @property
    def made_at(self) -> str:
        """The innermost Python frame of the user's own code; "" if there are no frames."""
        ours = [frame for frame in self.python if not any(p in frame for p in _PACKAGES)]
        return next(iter(ours or self.python), "")

    def tensor_map(self) -> tma.TensorMap | None:
        """Return the decoded map, or None if there are no bytes or their layout is not known."""
        return _decoded(self.bytes, self.target or _ASSUMED)


def merged(raws: Iterable[dict[str, Any]], processes: list[dict[str, Any]]) -> list[TracedMap]:
    """Return one `TracedMap` for each group of equal calls.

    The calls of a group may come from several processes.
    """
    groups: dict[object, list[dict[str, Any]]] = {}
    for raw in raws:
        groups.setdefault(_key(raw), []).append(raw)
    kernels = (kernel for group in groups.values() for raw in group for kernel in raw["kernels"])
    names = _names(frozenset(kernel["kernel"] for kernel in kernels))
    found = [_traced(group, processes, names) for group in groups.values()]
    return [traced for traced in found if traced is not None]


def _key(raw: dict[str, Any]) -> object:
    # Fields that are ignored when two calls are compared. Of the address, only the lowest 5 bits
    # are compared, because these bits determine whether the address is aligned.
    apart = ("kernels", "process", "process_rank", "count", "python", "objects", "map_address")
    known = {name: raw[name] for name in raw if name not in (*apart, "global_address", "before")}
    if known.get("bytes"):
        known["bytes"] = known["bytes"][16:]  # without the first 8 bytes, which are the address
    low = raw["global_address"] % 32 if "global_address" in raw else None
    return repr((sorted(known.items(), key=str), low))


def _traced(
    group: list[dict[str, Any]], processes: list[dict[str, Any]], names: dict[str, str]
) -> TracedMap | None:
    first = group[0]
    target = _target(first.get("device"))
    known = target or _ASSUMED
    data = bytes.fromhex(first["bytes"]) if first.get("bytes") else None
    made = _decoded(data, known)
    if first["call"] in KIND_OF:
        arguments = _encoded(KIND_OF[first["call"]], first)
    else:
        # No encode was recorded for this map. The record is about cuTensorMapReplaceAddress, or
        # about a kernel's parameter.
        before = made if data else _decoded(bytes.fromhex(first["before"]), known)
        arguments = PrintedArguments() if before is None else of_map(before)
        if "global_address" in first:  # the new address of cuTensorMapReplaceAddress
            arguments = dataclasses.replace(arguments, global_address=first["global_address"])
    report = _report(arguments, first, made, known)
    if first["call"] is None and not (arguments.global_address and report.ok):
        return None  # 128 bytes of a parameter that are not a map
    uses = _uses(group, processes, names)
    return TracedMap(
        call=first["call"] or "",
        arguments=arguments,
        result=first.get("result") if first["call"] else 0,
        report=report,
        kernels=tuple(dict.fromkeys(use.name for use in uses)),
        count=sum(raw["count"] for raw in group),
        uses=uses,
        made_by=_made_by(first),
        python=tuple(f"{path}:{line} in {name}" for path, line, name in first.get("python", ())),
        processes=tuple(
            sorted({_process(raw, processes) for raw in group}, key=lambda n: (len(n), n))
        ),
        target=target,
        bytes=data,
    )


def _target(device: dict[str, Any] | None) -> tma.Target | None:
    if device is None:
        return None
    versions = device.get("driver_version"), device.get("multiprocessors")
    return tma.Target((device["major"], device["minor"]), device["max_smem_bytes"], *versions)


def _process(raw: dict[str, Any], processes: list[dict[str, Any]]) -> str:
    if "process_rank" in raw:
        return f"rank {raw['process_rank']}"
    return f"process {processes[raw['process']].get('pid', '?')}"


@lru_cache(maxsize=16)
def _names(mangled: frozenset[str]) -> dict[str, str]:
    return demangled(mangled)


def _uses(
    group: list[dict[str, Any]], processes: list[dict[str, Any]], names: dict[str, str]
) -> tuple[TracedKernel, ...]:
    # (kernel, parameter, offset) -> the number of launches.
    counts: dict[tuple[str, int, int], int] = {}
    for kernel in (kernel for raw in group for kernel in raw["kernels"]):
        place = (names[kernel["kernel"]], kernel["parameter"], kernel["offset"])
        counts[place] = counts.get(place, 0) + kernel["count"]
    is_least = any(processes[raw["process"]]["pauses"] for raw in group)
    return tuple(TracedKernel(*place, count, is_least) for place, count in counts.items())


def _made_by(raw: dict[str, Any]) -> str:
    paths = (path for path, _ in raw.get("objects", ()))
    return next((p for p in paths if not os.path.basename(p).startswith(_BETWEEN)), "")


# -- arguments and verdicts -----------------------------------------------------------------------


def _encoded(kind: MapKind, raw: dict[str, Any]) -> PrintedArguments:
    """Return the arguments of an encode, with None for each array that could not be read."""
    names = ("rank", "global_address", "channels_per_pixel", "pixels_per_column")
    values: dict[str, Any] = {name: raw.get(name) for name in names}
    for name in ("global_dim", "global_strides", "box_dim", "element_strides", *CORNERS):
        values[name] = tuple(raw[name]) if isinstance(raw.get(name), list) else None
    if kind == "im2col_wide":
        values |= dict(zip(CORNERS, ((raw["lower_width"],), (raw["upper_width"],)), strict=True))
    # A number that is not a member of its enum stays an int.
    for name, enum in ENUMS.items():
        values[name] = enum(raw[name]) if raw[name] in list(enum) else raw[name]
    implied = {"mode": raw["mode"]} if "mode" in raw else {}
    return PrintedArguments(kind=kind, implied=implied, **values)


def _decoded(data: Bytes | None, target: tma.Target) -> tma.TensorMap | None:
    """Return the map that 128 bytes encode; None if there are no bytes or they are not a map."""
    try:
        return None if data is None else tma.TensorMap.from_bytes(data, target)
    except tma.TmaError:
        return None


def _report(
    arguments: PrintedArguments, raw: dict[str, Any], made: tma.TensorMap | None, target: tma.Target
) -> tma.Report:
    """Return a report of the rules that a call breaks.

    If the call failed but breaks no rule, the report has the driver's result instead.
    """
    refused = bool(raw["call"]) and raw.get("result") != 0
    violations = tuple(_unreadable(raw))
    if violations or arguments.rank is None:
        return tma.Report(violations or tuple(_other_reasons(raw)) * refused)
    if raw["call"] == "cuTensorMapReplaceAddress":
        violations = _wrong_address(raw["global_address"]) if refused else ()
    else:
        report = check_printed(arguments, target)
        if report.ok and not refused:
            return tma.Report((), report.advice + (made.advice if made is not None else ()))
        violations = report.violations
    return tma.Report(violations or tuple(_other_reasons(raw)) * refused)


def _unreadable(raw: dict[str, Any]) -> Iterator[tma.Violation]:
    # inject.c writes {"unreadable": address} in place of an argument that it could not read.
    for name, value in raw.items():
        if isinstance(value, dict) and "unreadable" in value:
            what = "the CUtensorMap" if name == "map_address" else name
            pointer = f"the pointer is {value['unreadable']:#x}"
            found = f"{what} is not readable: {pointer}, where this process has no memory"
            yield refusals.REFUSALS["UNREADABLE"].violation(name, found)


def _wrong_address(address: int) -> tuple[tma.Violation, ...]:
    """Return the violations of an address that was passed to cuTensorMapReplaceAddress.

    This driver function requires an alignment of 16 bytes for every map.
    """
    try:
        check_address(address, "global_address", 16)
    except tma.TmaPreconditionError as error:
        return error.violations
    return ()


def _other_reasons(raw: dict[str, Any]) -> Iterator[tma.Violation]:
    """Yield the driver's result as a violation, for a refused call that breaks no rule."""
    result = raw.get("result")
    if result is None:
        return
    name = _NAMES.get(result, "an unknown error")
    found, limit = f"the driver returned {name} ({result})", "the arguments are in order"
    fix = next((known.fix for known in RESULTS if known.code == result), "")
    if result in targets.STICKY:
        limit = "this is the error of an earlier kernel, which every later call returns"
        fix = targets.HOW_TO_FIND
    yield refusals.REFUSALS["DRIVER_RESULT"].violation("tensor_map", found, limit=limit, fix=fix)
