"""Read what _inject.c wrote into a folder: per process, a file of JSON lines and one of counts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

#: Ids of the counts that belong to no line, and bytes of a count, as in _inject.c.
_CALLS, _OVERFLOW, _PAUSES = 0, 1, 2
_COUNT = struct.Struct("<Q")

Raw = dict[str, Any]


def read_folder(folder: Path) -> Raw:
    """Return what all processes wrote so far: ``{"processes": [...], "maps": [...]}``.

    Processes are in the order of their start. A map has its process (an index), its count, and its
    kernels with theirs. What `trace` writes as JSON is the same.
    """
    raw: Raw = {"processes": [], "maps": []}
    unknown: list[Raw] = []  # passed to kernels, and made by no call of the driver
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stem.partition("-")[2]):
        _add_process(raw, unknown, path)
    raw["maps"] += unknown
    return raw


def refusals(lines: list[Raw]) -> list[Raw]:
    """Return the lines of calls that the driver refused, or that may never return."""
    return [line for line in lines if line["is"] == "map" and line.get("result") != 0]


def parse(content: bytes) -> list[Raw]:
    """Parse the whole lines of a file; one that was cut off becomes a problem."""
    lines: list[Raw] = []
    for line in content.split(b"\n")[:-1]:
        try:
            lines.append(_decoded(json.loads(line)))
        except ValueError:
            lines.append({"is": "problem", "what": "line", "code": 0, "detail": ""})
    return lines


def _decoded(value: Any) -> Any:
    """Turn strings back into UTF-8: the library writes each byte as a character."""
    if isinstance(value, str):
        return value.encode("latin-1").decode("utf-8", "replace")
    if isinstance(value, list):
        return [_decoded(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _decoded(entry) for name, entry in value.items()}
    return value


def _add_process(raw: Raw, unknown: list[Raw], path: Path) -> None:
    lines = parse(path.read_bytes())
    counts = path.with_suffix(".count").read_bytes()

    def count(number: int) -> int:
        at = number * _COUNT.size
        is_there = at + _COUNT.size <= len(counts)
        return _COUNT.unpack_from(counts, at)[0] if is_there else int(number > _PAUSES)

    index = len(raw["processes"])
    process: Raw = {"problems": [], "calls": count(_CALLS), "overflow": count(_OVERFLOW)}
    process["pauses"] = count(_PAUSES)
    raw["processes"].append(process)
    maps: dict[int, Raw] = {}
    for line in lines:
        kind = line.pop("is")
        if kind in ("process", "start"):
            process.update(line)
        elif kind == "problem":
            process["problems"].append(line)
        elif kind == "map":
            number = line.pop("id")
            maps[number] = {**line, "process": index, "count": count(number), "kernels": []}
        elif kind == "kernel":
            number, of = line.pop("id"), line.pop("map")
            maps[of]["kernels"].append({**line, "count": count(number)})
        elif kind == "parameter":
            kernel = {name: line.pop(name) for name in ("kernel", "parameter", "offset")}
            found = {**line, "process": index, "count": 0, "call": None}
            unknown.append({**found, "kernels": [{**kernel, "count": 1}]})
    # one without a result, counted down when it returned, stands for a call that never did
    raw["maps"] += [found for found in maps.values() if found["count"] > 0]


# -- problems -------------------------------------------------------------------------------------

#: What cannot work beside a trace, as long as CUPTI has one subscriber at a time.
ALONE = "nsys, ncu, compute-sanitizer, cuda-gdb, torch.profiler, Proton"
_TAKEN, _DENIED = 39, (35, 40)  # CUptiResult (cupti_result.h)


def problem_text(problem: Raw) -> str:
    """Word a problem in one line: what happened, and what to do."""
    code, detail = problem["code"], problem["detail"]
    if problem["what"] == "subscribe" and code == _TAKEN:
        who = f" ({detail})" if detail and "not provided" not in detail else ""
        return (
            f"another tool{who} has CUPTI's one subscription, so nothing can be traced: run "
            f"without it ({ALONE}; a torch.profiler keeps it until the process ends)"
        )
    if problem["what"] == "subscribe" and code in _DENIED:
        return (
            f"CUPTI has no permission here (CUptiResult {code}): ask who administers the machine, "
            "or run outside this container"
        )
    return _PROBLEMS[problem["what"]].format(code=code)


_PROBLEMS = {
    "subscribe": "CUPTI could not be started (cuptiSubscribe returned {code}); it must be of the "
    "driver's CUDA version or older: install another nvidia-cuda-cupti",
    "enable": "this CUPTI does not know tensor maps (cuptiEnableCallback returned {code}): it must "
    "be of CUDA 12.0 or later",
    "cupti": "CUPTI was not found: pip install nvidia-cuda-cupti, or set "
    "TMA_DLPACK_TRACE_CUPTI to the path of libcupti.so",
    "driver": "the driver has no tensor maps: it must be of CUDA 12.0 (525.60) or later",
    "lost": "the subscription was lost on the way (something called cuptiFinalize, as a profiler "
    "does when it ends): later maps were not seen",
    "counts": "calls could not be counted (error {code}; is the disk full?): each map is shown as "
    "made once",
    "line": "a line of the record was cut off (is the disk full?): a map or a kernel is missing",
}
