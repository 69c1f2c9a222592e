"""Reasons to refuse arguments, bytes of maps, and files, shared by several rooms: a row each.

A copy's are in `copies.refusals`, an operand's in `consumer.refusals`, a tensor's in
`dlpack.refusals`, the preconditions of a map in `checks`. `Rule.error` raises a row. If the limit
depends on the call, `asks` is the general limit for the list of rules.
"""

from __future__ import annotations

from tma_dlpack.tables.fields import PROVENANCE
from tma_dlpack.tables.rule import ARGUMENT, Rule, rules_of

#: Limits of files from other sources; larger files are not read.
MAX_PTX_BYTES = 96 << 20
MAX_LOG_BYTES = 1 << 27
MAX_PIPED_DUMP_BYTES = 1 << 29  # of a core dump from a pipe or compressed; a file has no limit
MAX_TRACE_CHARACTERS = 1 << 27  # of JSON; 10,000 different maps have about 1 << 24
MAX_VERIFY_BYTES = 1 << 27  # of JSON; `verify` of 10,000 cases each writes about 80 MB
VERIFY_FORMAT = "tma_dlpack verify, 1"

_GATHER4 = "PTX ISA, cp.async.bulk.tensor"

CALL_RULES: tuple[Rule, ...] = (
    ARGUMENT,
    *rules_of(
        "call",
        f"""
id | on | asks | limit | fix | source
C_TYPE | | fit its C type in cuda.h | | pass a value that fits the C type in cuda.h
    | cuda.h, prototypes of cuTensorMap*
MAP_BYTES | data | be 128 bytes, and those of a map |
    | dump the 128 bytes of a CUtensorMap, and pass the target that it was made for
    | the layout as {PROVENANCE}
REPLACE_VALUE | | be in the range of its field | | | PTX ISA, tensormap.replace
ADDRESS_LAYOUT | tensor_or_int | have the shape, strides, dtype and device that are in the map |
    | make a new map of this tensor with make_tma_descriptor(x, ...)
    | CUDA driver API, cuTensorMapReplaceAddress
DEVICE_CHECK | | be a call on the device that completes | |
    | a check of the checked build of tma_dlpack.h, on the device
GATHER4 | box_dim | | gather4 needs a map of rank 2 whose box has one row
    | make a map with box_sizes=(1, columns), and copy 4 x columns elements at a time: each copy
    names four rows | {_GATHER4}
SCATTER4 | target | | scatter4 exists on sm_10x and sm_110 alone
    | sm_90, sm_120 and sm_121 have none (sm_100a, sm_103a and sm_110a do): store the rows with
    ordinary stores, or one tile copy for each run of rows | {_GATHER4}
GATHER4_TARGET | target | | gather4 exists since compute capability 10.0
    | load the rows with ordinary loads; sm_120 and sm_121 have it for .shared::cta alone
    | {_GATHER4}
UNREADABLE | | point to memory of the process | the driver reads and writes through it
    | pass the address of memory that lives until the call returns
    | trace: process_vm_readv of the process itself
DRIVER_RESULT | tensor_map | be a call that the driver accepts |
    | report it with the arguments: this driver asks something that the rules do not know
    | trace: the result of the call
""",
    ),
)
FILE_RULES = rules_of(
    "file",
    f"""
id | on | must | fix | source
FILE_CORE_DUMP | path | be a whole GPU core dump
    | make one: tma-dlpack postmortem --keep FILE -- PROGRAM, or set
    CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 and CUDA_COREDUMP_FILE | tma_dlpack, postmortem
FILE_LOG | text | be a log of at most {MAX_LOG_BYTES >> 20} MiB
    | pass the part of it around the first error | tma_dlpack, explain
FILE_MAP | map | be 128 bytes
    | pass a dump of 128 bytes as gdb, xxd or C print it, or a file that holds one
    | tma_dlpack, decode
FILE_PTX | source
    | be PTX, which has a .version and a .target, of at most {MAX_PTX_BYTES >> 20} MiB
    | make it with nvcc -ptx -lineinfo, or pass the .cu itself | tma_dlpack, lint
FILE_TRACE | text | be the JSON of a trace, of at most {MAX_TRACE_CHARACTERS} characters
    | run tma-dlpack trace --json -o FILE -- PROGRAM | tma_dlpack, trace
FILE_VERIFY | path
    | be a file of the format {VERIFY_FORMAT!r}, of at most {MAX_VERIFY_BYTES >> 20} MiB
    | pass what `tma-dlpack verify --out FILE` wrote | tma_dlpack, verify
""",
)

#: The rows by id.
REFUSALS: dict[str, Rule] = {row.id: row for row in (*CALL_RULES, *FILE_RULES)}
