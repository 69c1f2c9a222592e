"""The result of `trace`, which shows each different map once, as text, HTML or JSON.

native/inject.c writes two files for each process: a file of JSON lines, and a file of 64-bit
counts. The `id` of a line is the index of its count in the second file.
"""

from __future__ import annotations

import html
import json
import struct
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tma_dlpack.debug.core import coerce, counted, errors, public, refusals, report, tma
from tma_dlpack.debug.foreign import refusing
from tma_dlpack.debug.trace.traced import TracedKernel, TracedMap, merged

UNSEEN = (
    "not seen: maps that a kernel builds or changes on the device (tensormap.replace, Triton's "
    "tl.make_tensor_descriptor), and kernels that read a map from global memory"
)
# Maximum number of bytes of all pictures in a notebook's HTML. The pictures of one map have about
# 120 KB.
_MOST_BYTES_IN_NOTEBOOKS = 380_000
_MOST_KERNELS = 6
# The version of the JSON format.
_FORMAT = 1


@public.public_in("tma_dlpack.debug")
class Trace:
    """The tensor maps that a process or a program made, as `trace` recorded them.

    ``print(t)`` shows each different map: the driver's arguments, the result, the library that made
    the map, the kernels that use it, and the rules that it breaks. Notebooks also show pictures.

    Attributes
    ----------
    maps : tuple of TracedMap
        Each different map, in the order of the first calls. Inside the ``with`` block of `trace`,
        the tuple has only the maps that were made so far.
    notes : tuple of str
        Calls that could not be traced, and why.

    Examples
    --------
    >>> from tma_dlpack.debug import Trace
    >>> t = Trace.from_json('{"tma_dlpack_trace": 1, "processes": [], "maps": []}')
    >>> len(t.maps), t.notes[0].partition(":")[0]
    (0, 'no process was traced')
    """

    def __init__(self, raw: Raw | Path) -> None:
        # If `_source` is a folder, the folder is read again at each use, until `_freeze` replaces
        # the path by the records.
        self._source = raw
        self._read: tuple[Raw, tuple[TracedMap, ...]] | None = None

    def _freeze(self) -> None:
        """Read the folder for the last time, because it is about to be removed."""
        self._source = self._raw

    @property
    def _raw(self) -> Raw:
        return read_folder(self._source) if isinstance(self._source, Path) else self._source

    @property
    def maps(self) -> tuple[TracedMap, ...]:
        """Each different map, in the order of the first calls."""
        raw = self._raw
        if self._read is None or self._read[0] is not raw:
            self._read = raw, tuple(merged(raw["maps"], raw["processes"]))
        return self._read[1]

    @property
    def notes(self) -> tuple[str, ...]:
        """Calls that could not be traced, and why."""
        processes = self._raw["processes"]
        if not processes:
            return (
                "no process was traced: libcuda did not load the trace. The program did not start "
                "CUDA, is linked statically, or runs in another environment (sudo, a container), "
                "or this machine has no driver (tma-dlpack doctor)",
            )
        return tuple(dict.fromkeys(_notes(processes, len(self.maps))))

    @classmethod
    @refusing("FILE_TRACE")
    def from_json(cls, text: str) -> Trace:
        """Return the trace in the JSON that `to_json` or ``tma-dlpack trace --json`` wrote."""
        try:
            if len(text) > refusals.MAX_TRACE_CHARACTERS:
                raise ValueError
            raw = json.loads(text)
            if raw["tma_dlpack_trace"] != _FORMAT:
                raise ValueError
            trace = cls({"processes": raw["processes"], "maps": raw["maps"]})
            str(trace)  # reads every map, so that wrong content is refused here
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise refusals.REFUSALS["FILE_TRACE"].error(
                "text", f"text is {coerce.shown(text)}"
            ) from error
        return trace

    def to_json(self) -> str:
        """Return the whole trace as JSON, which `from_json` reads."""
        return json.dumps({"tma_dlpack_trace": _FORMAT, **self._raw}, indent=1)

    def __repr__(self) -> str:
        return coerce.summary(f"Trace: {self._head()}")

    def __str__(self) -> str:
        return report.as_text(self._head(), self._sections(), is_head_first=True)

    def _head(self) -> str:
        maps, processes = self.maps, self._raw["processes"]
        calls = sum(traced.count for traced in maps)
        seen = sum(process["calls"] for process in processes)
        if not processes:
            return "no tensor map was seen"
        if not maps:
            return f"no tensor map was made; CUPTI saw {counted(seen, 'driver call')}"
        refused = sum(traced.result != 0 for traced in maps)
        words = [
            f"{counted(len(maps), 'different tensor map')} of {counted(calls, 'call')}",
            *([f"in {len(processes)} processes"] if len(processes) > 1 else ()),
        ]
        return f"{' '.join(words)}: {f'{refused} refused' if refused else 'all accepted'}"

    def _repr_html_(self) -> str:
        return self.html(_MOST_BYTES_IN_NOTEBOOKS)

    def html(self, most_bytes: int = 20_000_000) -> str:
        """Return the report as HTML, with pictures of at most `most_bytes` bytes in total."""
        overview = report.Section(pictures=self._overview())
        return report.as_html(self._head(), [overview, *self._sections(most_bytes)])

    def _sections(self, most_bytes: int = 0) -> Iterator[report.Section]:
        """Yield a section for each map, and then a section with the notes.

        All pictures together have at most `most_bytes` bytes.
        """
        room = most_bytes
        for number, traced in enumerate(self.maps, 1):
            pictures = _pictures(traced) if room > 0 else ""
            room -= len(pictures)
            yield report.Section(
                _title(number, traced),
                [*_lines(traced)],
                _contradiction(traced),
                findings=(*traced.report.violations, *traced.report.advice),
                pictures=[pictures] if room > 0 else (),
            )
        yield report.Section(lines=[f"note: {note}" for note in self.notes])

    def _overview(self) -> list[str]:
        """Return small pictures of all maps next to each other, if there are two maps or more."""
        from tma_dlpack.debug.core import cards

        known = ((n, traced, traced.tensor_map()) for n, traced in enumerate(self.maps, 1))
        # (number of the map, the map, whether its picture marks a problem)
        drawn = [(n, m, bool(t.result) or not t.report.ok) for n, t, m in known if m is not None]
        if len(drawn) < 2:
            return []
        some = f"{len(drawn)} of {len(self.maps)}" if len(drawn) < len(self.maps) else len(drawn)
        return [cards.multiples(drawn, f"{some} maps, each to its own scale").panels()]


def _pictures(traced: TracedMap) -> str:
    """Return two pictures as HTML: the tensor with its box, and the tile in shared memory.

    The result is "" if the map's bytes are not known.
    """
    tensor_map = traced.tensor_map()
    if tensor_map is None:
        return ""
    first = "tensor" if tensor_map.kind == "tiled" else "walk"
    try:
        return "".join(tma.draw.figure(tensor_map, name).panels() for name in (first, "shared"))
    except tma.TmaError as error:  # every copy with this map fails, so there is no picture
        return f"<p>not drawn: {html.escape(str(error))}</p>"


def _notes(processes: list[Raw], maps: int) -> Iterator[str]:
    for process in processes:
        where = f"process {process.get('pid', '?')}: " if len(processes) > 1 else ""
        yield from (where + problem_text(problem) for problem in process["problems"])
        if process["overflow"]:
            calls = f"{where}{process['overflow']} calls"
            yield f"{calls} made more different maps than the trace can distinguish"
        if process.get("kernels") == 0:
            yield f"{where}the driver does not report kernel parameters (before CUDA 12.4)"
    if any(process["pauses"] for process in processes):
        yield (
            "not all launches were recorded: after 100000 launches without a new map, only 1000 "
            "are recorded, ten times a second, which costs less; a kernel may be missing"
        )
    if any("cupti" in process for process in processes):
        yield UNSEEN
    if maps:
        yield f"while it ran, no other tool could subscribe to CUPTI ({ALONE})"


def _title(number: int, traced: TracedMap) -> str:
    who = ", ".join(traced.processes[:8]) + (", ..." if len(traced.processes) > 8 else "")
    if not traced.call:
        return f"map {number}: passed to a kernel, made without the driver; {who}"
    result = "accepted" if traced.result == 0 else traced.result_name
    if traced.result:
        result = f"refused with {traced.result_name} ({traced.result})"
    where = f" on {traced.target}" if traced.target else ""
    times = "once" if traced.count == 1 else f"{traced.count} times"
    return f"map {number}: {traced.call}, {times}: {result}; {who}{where}"


def _lines(traced: TracedMap) -> Iterator[str]:
    """Yield lines of text that describe a map."""
    yield str(traced.arguments)
    if traced.made_by:
        yield f"made by {traced.made_by}"
    if traced.python:
        inner = traced.python[0]
        yield f"at {traced.made_at}" + (f", through {inner}" if inner != traced.made_at else "")
    for use in traced.uses[:_MOST_KERNELS]:
        yield f"passed to {_kernel(use)}"
    if len(traced.uses) > _MOST_KERNELS:
        yield f"and to {len(traced.uses) - _MOST_KERNELS} more kernels"


def _kernel(use: TracedKernel) -> str:
    place = f"parameter {use.parameter}" + (f", byte {use.offset}" if use.offset else "")
    times = "once" if use.launches == 1 else f"{use.launches} times"
    times += " or more" if use.is_least else ""
    return f"{use.name} ({place}), {times}"


def _contradiction(traced: TracedMap) -> list[str]:
    """Return one sentence if the driver accepted a map that the rules refuse; otherwise []."""
    is_refused_here = traced.result == 0 and not traced.report.ok
    return ["the driver accepted it, although these rules refuse it:"] * is_refused_here


def refusal_text(traced: TracedMap) -> str:
    """Return the text that explains a refused call on standard error while the program runs."""
    head = f"tma_dlpack trace: {traced.processes[0]}: {traced.call}: {traced.result_name}"
    facts = [errors.wrapped(line, "  ") for line in (*_lines(traced), *_contradiction(traced))]
    lines = [*facts, *map(str, traced.report.violations)]
    return coerce.printable("\n".join([head, *(textwrap.indent(line, "  ") for line in lines)]))


# -- reading what native/inject.c wrote ------------------------------------------------------------

#: Indices of the counts that belong to the whole process. Every other count belongs to a JSON line
#: (native/inject.c).
_CALLS, _OVERFLOW, _PAUSES = 0, 1, 2
_COUNT = struct.Struct("<Q")  # one count

Raw = dict[str, Any]


def read_folder(folder: Path) -> Raw:
    """Return the records of all processes: ``{"processes": [...], "maps": [...]}``.

    Processes are in the order of their start. The record of a map has the index of the map's
    process, the number of calls that made the map, and the map's kernels, each with its number of
    launches. `Trace.to_json` writes the records unchanged.
    """
    raw: Raw = {"processes": [], "maps": []}
    # Maps that were passed to a kernel, although no recorded call of the driver made them.
    unknown: list[Raw] = []
    # File names are "PID-START.jsonl".
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stem.partition("-")[2]):
        _add_process(raw, unknown, path)
    raw["maps"] += unknown
    return raw


def refused_lines(lines: list[Raw]) -> list[Raw]:
    """Return the lines of calls that the driver refused, or that did not return yet."""
    return [line for line in lines if line["is"] == "map" and line.get("result") != 0]


def parse(content: bytes) -> list[Raw]:
    """Parse the complete lines of a file; a line that is not JSON becomes a problem."""
    lines: list[Raw] = []
    for line in content.split(b"\n")[:-1]:
        try:
            lines.append(_decoded(json.loads(line)))
        except ValueError:
            lines.append({"is": "problem", "what": "line", "code": 0, "detail": ""})
    return lines


def _decoded(value: Any) -> Any:
    """Decode the strings in a JSON value as UTF-8; inject.c writes each byte as a character."""
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
        # If inject.c could not write the counts, the count of each JSON line is 1, and the counts
        # of the process are 0.
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
    # A call with an unreadable pointer may end the program. For such a call, inject.c writes a line
    # without a result and adds 1 to the count of this line before the call. If the call returns,
    # inject.c subtracts the 1 again, and the line is dropped here because its count is 0.
    raw["maps"] += [found for found in maps.values() if found["count"] > 0]


# -- problems -------------------------------------------------------------------------------------

#: Tools that cannot run during a trace, because CUPTI has one subscriber at a time.
ALONE = "nsys, ncu, compute-sanitizer, cuda-gdb, torch.profiler, Proton"
_TAKEN, _DENIED = 39, (35, 40)  # CUptiResult (cupti_result.h)


def problem_text(problem: Raw) -> str:
    """Return one line about a problem: what happened, and what to do."""
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


# Field "what" of a problem -> the text about the problem. {code} is a CUptiResult or an errno.
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
