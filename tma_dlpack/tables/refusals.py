"""Why arguments, bytes of maps, and files are refused: one row per reason that no room owns alone.

A copy's are in `copies.refusals`, an operand's in `consumer.refusals`, a tensor's in
`dlpack.refusals`, the preconditions of a map in `checks`. A row is raised by `Rule.error`; where
the limit depends on the call, `asks` says it in general, for the list of rules.
"""

from __future__ import annotations

from tma_dlpack.tables.errors import ARGUMENT, Rule
from tma_dlpack.tables.fields import PROVENANCE

#: Limits of files that others wrote: what is larger is not read.
MAX_PTX_BYTES = 96 << 20
MAX_TRACE_CHARACTERS = 1 << 27  # of JSON; 10,000 different maps have about 1 << 24
MAX_VERIFY_BYTES = 1 << 27  # of JSON; `verify` of 10,000 cases each writes about 80 MB
VERIFY_FORMAT = "tma_dlpack verify, 1"

_GATHER4 = "PTX ISA, cp.async.bulk.tensor"

CALL_RULES: tuple[Rule, ...] = (
    ARGUMENT,
    Rule(
        id="C_TYPE",
        group="call",
        asks="fit its C type in cuda.h",
        fix="pass a value that fits the C type in cuda.h",
        source="cuda.h, prototypes of cuTensorMap*",
    ),
    Rule(
        id="MAP_BYTES",
        group="call",
        on="data",
        asks="be 128 bytes, and those of a map",
        fix="dump the 128 bytes of a CUtensorMap, and pass the target that it was made for",
        source=f"the layout as {PROVENANCE}",
    ),
    Rule(
        id="REPLACE_VALUE",
        group="call",
        asks="be in the range of its field",
        fix="",
        source="PTX ISA, tensormap.replace",
    ),
    Rule(
        id="ADDRESS_LAYOUT",
        group="call",
        on="tensor_or_int",
        asks="have the shape, strides, dtype and device that are in the map",
        fix="make a new map of this tensor with make_tma_descriptor(x, ...)",
        source="CUDA driver API, cuTensorMapReplaceAddress",
    ),
    # of a text that `explain` reads
    Rule(
        id="DEVICE_CHECK",
        group="call",
        asks="be a call on the device that completes",
        fix="",
        source="a check of the checked build of tma_dlpack.h, on the device",
    ),
    Rule(
        id="GATHER4",
        group="call",
        on="box_dim",
        limit="gather4 needs a map of rank 2 whose box has one row",
        fix="make a map with box_sizes=(1, columns), and copy 4 x columns elements at a time: each "
        "copy names four rows",
        source=_GATHER4,
    ),
    Rule(
        id="SCATTER4",
        group="call",
        on="target",
        limit="scatter4 exists on sm_10x and sm_110 alone",
        fix="sm_90, sm_120 and sm_121 have none (sm_100a, sm_103a and sm_110a do): store the rows "
        "with ordinary stores, or one tile copy for each run of rows",
        source=_GATHER4,
    ),
    Rule(
        id="GATHER4_TARGET",
        group="call",
        on="target",
        limit="gather4 exists since compute capability 10.0",
        fix="load the rows with ordinary loads; sm_120 and sm_121 have it for .shared::cta alone",
        source=_GATHER4,
    ),
    # of a call that `trace` saw
    Rule(
        id="UNREADABLE",
        group="call",
        asks="point to memory of the process",
        limit="the driver reads and writes through it",
        fix="pass the address of memory that lives until the call returns",
        source="trace: process_vm_readv of the process itself",
    ),
    Rule(
        id="DRIVER_RESULT",
        group="call",
        on="tensor_map",
        asks="be a call that the driver accepts",
        fix="report it with the arguments: this driver asks something that the rules do not know",
        source="trace: the result of the call",
    ),
)

FILE_RULES: tuple[Rule, ...] = (
    Rule(
        id="FILE_CORE_DUMP",
        group="file",
        on="path",
        must="be a whole GPU core dump",
        fix="make one: python -m tma_dlpack postmortem --keep FILE -- PROGRAM, or set "
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 and CUDA_COREDUMP_FILE",
        source="tma_dlpack, postmortem",
    ),
    Rule(
        id="FILE_MAP",
        group="file",
        on="map",
        must="be 128 bytes",
        fix="pass a dump of 128 bytes as gdb, xxd or C print it, or a file that holds one",
        source="tma_dlpack, decode",
    ),
    Rule(
        id="FILE_PTX",
        group="file",
        on="source",
        must=f"be PTX, which has a .version and a .target, of at most {MAX_PTX_BYTES >> 20} MiB",
        fix="make it with nvcc -ptx -lineinfo, or pass the .cu itself",
        source="tma_dlpack, lint",
    ),
    Rule(
        id="FILE_TRACE",
        group="file",
        on="text",
        must=f"be the JSON of a trace, of at most {MAX_TRACE_CHARACTERS} characters",
        fix="run python -m tma_dlpack trace --json -o FILE -- PROGRAM",
        source="tma_dlpack, trace",
    ),
    Rule(
        id="FILE_VERIFY",
        group="file",
        on="path",
        must=f"be a file of the format {VERIFY_FORMAT!r}, of at most {MAX_VERIFY_BYTES >> 20} MiB",
        fix="pass what `python -m tma_dlpack verify --out FILE` wrote",
        source="tma_dlpack, verify",
    ),
)

#: The rows by id.
REFUSALS: dict[str, Rule] = {row.id: row for row in (*CALL_RULES, *FILE_RULES)}
