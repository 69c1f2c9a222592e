"""Sentences in place of arguments: checks of a project's own, which name one precondition.

Most checks do not show all the numbers; what they show is judged as printed arguments are. A
sentence without a number counts only where its line says that it failed: documents quote the same
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tma_dlpack.checks import RULES
from tma_dlpack.checks.report import Report
from tma_dlpack.checks.words import OF_DRIVER
from tma_dlpack.debug.explain.judge import PrintedArguments, check_printed
from tma_dlpack.tables.coerce import counted, rows
from tma_dlpack.tables.errors import Violation
from tma_dlpack.tables.refusals import CALL_RULES, REFUSALS
from tma_dlpack.tables.targets import Target


class Sentence(NamedTuple):
    """One printer's check: who prints it, how, and which rule it is."""

    printer: str
    pattern: re.Pattern[str]
    rule: str
    source: str


#: Parts that several patterns have.
_PARTS: Final = {
    "<ASSERT>": r"Assertion[^\n]{0,200}?",
    "<ERROR>": r"(?:Error|Exception|what\(\)|[Cc]heck failed)[^\n]{0,99}?"
    r"(?:TMA|[Tt]ensor ?[Mm]ap)[^\n]{0,99}?",
    "<BYTES>": r"(?:(?P<bytes>-?\d{1,24})(?=[.,;:)\]]?\s|$)(?![ \t]*[(\[<](?:\w+ed\b|\.|…))|)",
    "<16>": r"(?:multiple of 16|16[- ]?(?:bytes?|B)[- ]aligned|divisible by 16|aligned to 16)",
    "<NOT_SUPPORTED>": r" not supported(?: on \.target '\w+')?",
}
#: Below each printer and its source: the rule, and how its check words it. A number of bytes is
#: judged as a printed stride is.
_CHECKS: Final = r"""
# CUTLASS | NVIDIA/cutlass copy_traits_sm90_tma.hpp
STRIDE_ALIGNED <ASSERT>gmem_prob_stride\[[1-4]\]\s*&\s*0b1111
STRIDE_RANGE <ASSERT>gmem_prob_stride\[[1-4]\]\)?\s*<\s*\(uint64_t
STRIDE_INNERMOST <ASSERT>gmem_prob_stride\[0\]\s*==
DIM_RANGE <ASSERT>gmem_prob_shape\[[0-4]\]\s*[<>]=
ADDRESS_ALIGNED <ASSERT>\(gmem_address\)\s*&\s*0b1111
BOX_RANGE <ASSERT>smem_box_shape\[[0-4]\]\s*[<>]=
ELEM_STRIDES_RANGE <ASSERT>smem_box_stride\[[0-4]\]\s*[<>]=
# ThunderKittens | HazyResearch/ThunderKittens include/types/global/tma.cuh
STRIDE_ALIGNED <ASSERT>gmem_stride\[[0-3]\]\s*%\s*16\s*==\s*0
BOX_INNER_16B <ASSERT>smem_shape\[0\]\s*\*\s*sizeof\(dtype\)\)\s*%\s*16
BOX_SWIZZLE_SPAN <ASSERT>smem_shape\[0\]\s*\*\s*sizeof\(dtype\)\s*<=
BOX_RANGE <ASSERT>smem_shape\[[0-4]\]\s*<=\s*256
# Triton | triton-lang/triton triton/tools/tensor_descriptor.py
STRIDE_ALIGNED AssertionError: strides must be 16-byte aligned
ADDRESS_ALIGNED AssertionError: base must be 16-byte aligned
STRIDE_INNERMOST AssertionError: Last dimension must be contiguous
DIM_RANGE AssertionError: shape must be positive
BOX_INNER_16B Descriptor block shape must have at least 16 bytes in the last dim[a-z]*, but got [\d
    *=]+ bytes
STRIDE_INNERMOST Tensor descriptor last dim must be 1(?:,? but got [\w-]+)?
RANK AssertionError: rank (?:cannot be more than 5|must not be zero|must be 1-5)
OOB_NAN Padding option `nan` is only supported for floating point
# TileLang | tile-ai/tilelang src/cuda/runtime.cc
STRIDE_ALIGNED globalStrides\[(?P<entry>\d)\] \(raw globalStride\[\d\] =
    (?:(?P<bytes>\d{1,24})|[^\n]{1,200}?)\) must\b
ADDRESS_ALIGNED globalAddress must be \d+-byte aligned, but mod\d+=\d+
DIM_RANGE globalDim\[\d\] must be (?:non-zero|<= 2\^32)
BOX_RANGE boxDim\[\d\] must be (?:non-zero|<= 256)
BOX_INNER_16B boxDim\[0\] \* elementSize must be a multiple of 16 bytes
BOX_SWIZZLE_SPAN boxDim\[0\] \* elementSize must be <= swizzle span
ELEM_STRIDES_RANGE elementStrides\[\d\] must be in \[1, 8\]
# JAX Mosaic GPU | jax-ml/jax jaxlib/mosaic/gpu/runtime.cc
STRIDE_ALIGNED Byte strides must be divisible by 16 and less [^\n]{0,20}but\s+got\s<BYTES>
DIM_RANGE TMA size must be less than 2\*\*32, but got -?\d+
STRIDE_INNERMOST Minormost stride must be 1, but got -?\d+
BOX_RANGE Window shape must be in \[0, 256\], but got -?\d+
BOX_INNER_16B last dimension of window shape must have a bytewidth\s+divisible by 16
# libcu++ | NVIDIA/cccl make_tma_descriptor.h
ADDRESS_ALIGNED tensor\.data \(address\) is not sufficiently aligned
ADDRESS_NULL (?:via CCCL|what\(\)|invalid_argument)[^\n]{0,40}Address is null
RANK tensor\.ndim \(rank\) must be between 1 and 5
RANK_INTERLEAVED tensor\.ndim \(rank\) must be greater than or equal to 3
DIM_RANGE tensor\.shape\[i\] must be greater than 0 and less than
STRIDE_ALIGNED Stride in bytes is not a multiple of the alignment
STRIDE_RANGE Stride in bytes is greater than or equal to 2\^40
STRIDE_UNIQUE Stride must be 0 or greater than or equal to the product
BOX_RANK Box sizes size mismatch
BOX_IN_SHAPE box_sizes\[i\] must be between 1 and min
BOX_INNER_16B tma_interleave_layout::none requires box_sizes innermost
BOX_SWIZZLE_SPAN tma_swizzle::bytes\w+\*? requires box_sizes innermost
BOX_SMEM Box sizes do not fit in shared memory
ELEM_STRIDES_RANGE elem_strides\[i\] must be greater than 0
INTERLEAVE_32B_SWIZZLE bytes32 requires tma_swizzle::bytes32
OOB_NAN tma_oob_fill::nan is only supported for floating-point
CAPABILITY Compute capability 9\.0 or higher is required
# XLA | openxla/xla xla/stream_executor/gpu/tma_metadata.cc
RANK unsupported rank for TMA: -?\d+
DIM_RANGE global_dims \([\d,]*\) must be non-zero and <= 2\^32
STRIDE_ALIGNED global_strides \([\d,]*\) must be a multiple of (?:16|32)
BOX_RANGE box_dims \[[\d,]*\] must be non-zero and <= 256
BOX_INNER_16B box_dims\[0\] \(\d+\) \* element_byte_width \(\d+\) must be a multiple
BOX_SWIZZLE_SPAN swizzle is k\d+B, box_dims\[0\] \* element_byte_width must be <= \d+
ELEM_STRIDES_RANGE element_strides \([\d,]*\) must be non-zero and <= 8
RANK_INTERLEAVED If TmaInterleave is not kNone, then tensor rank must
INTERLEAVE_32B_SWIZZLE when interleave is k32B, swizzle must be k32B
# cuda.core | NVIDIA/cuda-python cuda_core/cuda/core/_tensor_map.pyx
ADDRESS_ALIGNED Global memory address must be 16-byte aligned, got address 0x\w+
RANK [Tt]ensor rank must be between [13] and 5, got -?\d+
BOX_RANK box_dim must have \d+ elements \(same as tensor rank\), got \d+
BOX_RANGE box_dim\[\d\] must be in \[1, 256\], got -?\d+
ELEM_STRIDES_RANGE element_strides\[\d\] must be positive, got -?\d+
# TransformerEngine | NVIDIA/TransformerEngine transformer_engine/common/common.cu
ADDRESS_ALIGNED Tensor data pointer must be 16B aligned
STRIDE_ALIGNED Shape not supported\. For \d+-b\w+ data type, expected multiple of \d+, got \d+
# cuTile | NVIDIA/cutile-python cuda.tile
GATHER4 TILE_GATHER4 requires a rank-2 tensor map with tile_shape\[1\] == 1[^\n]{0,80}
GATHER4 TILE_GATHER4[^\n]{0,80}\b(?:not supported|invalid|rejected)
# ptxas | the PTX ISA, cp.async.bulk.tensor
SCATTER4 Feature '\.tile::scatter4[^'\n]{0,60}'<NOT_SUPPORTED>
GATHER4_TARGET Feature '\.tile::gather4[^'\n]{0,60}'<NOT_SUPPORTED>
# the program | its own check
STRIDE_ALIGNED <ERROR>[Ss]trides?\b[^\n]{0,60}?<16>
ADDRESS_ALIGNED <ERROR>(?:address|pointer|ptr)\b[^\n]{0,60}?<16>
BOX_RANGE <ERROR>[Bb]ox\w*[^\n]{0,60}?(?:<= ?256|\[[01], 256\]|most 256)
# TensorRT-LLM | NVIDIA/TensorRT-LLM trtllm-gen, buildNdTmaDescriptor
BOX_RANGE boxDim too large \d{1,10}
"""


def _sentences() -> Iterator[Sentence]:
    printer = source = ""
    for cells in rows(_CHECKS):
        first, _, rest = cells[0].partition(" ")
        if first == "#":
            printer, source = rest, cells[1]
            continue
        for name, part in _PARTS.items():
            rest = rest.replace(name, part)
        yield Sentence(printer, re.compile(rest), first, source)


SENTENCES: Final = tuple(_sentences())


#: Rule | what to do about it, for checks that show no numbers.
FIXES: Final = dict(
    rows("""
ADDRESS_ALIGNED | start the tensor at an aligned element, or copy it: x.clone()
ADDRESS_NULL | skip an empty tensor
RANK | merge dimensions, or make one map per slice
RANK_INTERLEAVED | use interleave none
DIM_RANGE | skip an empty tensor; split one that is too long
STRIDE_ALIGNED | pad the inner dimension so that each row is a multiple of 16 bytes
STRIDE_RANGE | index this dimension instead, and make one map per slice; look for 32-bit overflow
STRIDE_INNERMOST | make the last dimension contiguous: x.contiguous(), or describe the transpose
STRIDE_UNIQUE | permute the tensor so that strides descend, or check only the driver's rules:
    rules='driver'
BOX_RANK | pass one entry each
BOX_RANGE | copy a larger tile in several steps
BOX_IN_SHAPE | shrink the box, or check only the driver's rules: rules='driver'
BOX_INNER_16B | widen the inner box to a multiple of 16 bytes
BOX_SWIZZLE_SPAN | narrow the inner box to the span and copy in several steps, or use a wider
    swizzle
BOX_SMEM | shrink the box
ELEM_STRIDES_RANGE | use 1
INTERLEAVE_32B_SWIZZLE | use swizzle 32B
OOB_NAN | fill with zeros
CAPABILITY | use a Hopper or newer GPU
""")
)
_RULES: Final = {rule.id: rule for rule in (*RULES, *CALL_RULES)}

_FAILED = re.compile(  # on the line of a sentence
    r"error|exception|assert|failed|abort|fatal|what\(\)|terminate|^[ \t>|]*\[\d+\] ",
    re.IGNORECASE,
)
_SHOWS_VALUE = re.compile(  # so does no document
    r"\bgot\b|mod\d+=\d|too large \d|Feature '|last dim must be 1|TILE_GATHER4 requires"
    r"|(?:dims|strides) [(\[]\d|\(\d+\) \* elem|\d\) must"
)
_HEADING = "Invalid TMA descriptor arguments"  # of TileLang, above its checks


def sentences_in(text: str) -> list[tuple[Sentence, re.Match[str]]]:
    """Return every failed check of the table that a text has, each once, in its order."""
    found = []
    seen: set[str] = set()
    for sentence in SENTENCES:
        for match in sentence.pattern.finditer(text):
            words = " ".join(match[0].split())
            begin = text.rfind("\n", 0, match.start()) + 1
            line = text[max(begin, match.start() - 60) : match.end() + 60].partition("\n")[0]
            failed = _FAILED.search(line) or _SHOWS_VALUE.search(match[0] + line)
            below = _HEADING in text[max(0, match.start() - 600) : match.start()]
            if (failed or below) and words not in seen:
                seen.add(words)
                found.append((match.start(), sentence, match))
    return [(sentence, match) for _, sentence, match in sorted(found, key=lambda item: item[0])]


def report_of(
    sentence: Sentence, found: re.Match[str], line: int, target: Target
) -> tuple[PrintedArguments, Report]:
    """Turn a project's own error message into a report; check its number if it shows one."""
    shown, strides = found.groupdict(), None
    if shown.get("bytes"):
        entries_before = (None,) * int(shown.get("entry", 0))
        strides = (*entries_before, int(shown["bytes"]))
    read = PrintedArguments(global_strides=strides, printed_by=sentence.printer, lines=(line, line))
    report = check_printed(read, target)
    if report.violations:
        return read, report
    rule = _RULES[sentence.rule]
    violation = rule.violation(
        OF_DRIVER.get(str(rule.on), str(rule.on)),
        f"{sentence.printer} says: {' '.join(found[0].split())}",
        limit=rule.limit or f"it must {rule.asks or rule.must}",
        fix=FIXES.get(rule.id, ""),
        source=f"{sentence.printer}'s own check, {sentence.source}",
    )
    return read, Report((violation,))


# -- a checked build of tma_dlpack.h --------------------------------------------------------------

_PLACE = r"-?\d{1,10}, -?\d{1,10}, -?\d{1,10}"
_DEVICE_CHECK: Final = re.compile(
    r"tma_dlpack check: (?P<file>[^\n]{1,300}?:\d{1,9}), "
    rf"block \((?P<block>{_PLACE})\), thread \((?P<thread>{_PLACE})\), "
    r"(?P<verb>[^:;\n]{1,99}): (?P<found>[^;\n]{1,300}); (?P<limit>[^\n]{1,400})"
)
#: Words of a check that name no action, as a pattern | what to change.
_DEVICE_FIXES: Final = rows(r"""
map .*is an? (im2col|tiled) | use the verb of this kind of map, or make a map of the other kind
coordinates; | use the verb with as many coordinates as the map has dimensions
innermost coordinate | step the innermost coordinate by a multiple of 16 bytes
coordinate \d+ is|corners of | begin the copy where the map's corners, or a store's tensor, allow it
dimension \d+ of the map | make maps of parts of the tensor
changed map | publish() the map to global memory, and use it there
barrier .*aligned to 8 | declare the barrier __shared__ alignas(8)
of the warp | call it with all 32 threads of the warp, outside of branches that divide them
swizzle repeats | align the tile to what the swizzle repeats, or index by the absolute address
multiple of 128 | align it: alignas(128); for a tile with a swizzle, alignas(1024)
ends at shared | ask for more dynamic shared memory at the launch, or take a smaller box or fewer
    stages
bytes are expected; | expect the bytes in several phases, or on several barriers
parity is | flip the parity after each wait, and begin with 0
expect.*loads | arrive_expect_tx() the sum of all loads' bytes, before them: each brings the map's
    tx_bytes
arrival | init() the barrier for as many arrivals as come in a phase
cluster has | name only blocks of the cluster: a bit of the mask, or a rank below its size
element type | use an operation that this element type has
""")


def _device_fix(found: str, limit: str) -> str:
    """Return what to change after a failed check on the device; most limits say it."""
    words = f"{found}; {limit}"
    fixes = (fix for pattern, fix in _DEVICE_FIXES if re.search(pattern, words, re.IGNORECASE))
    return next(fixes, limit)


def device_checks(text: str) -> Iterator[tuple[int, Violation]]:
    """Return the place of each failed check that a checked build printed, once, and the check."""
    failed: dict[tuple[str, ...], list[re.Match[str]]] = {}
    for match in _DEVICE_CHECK.finditer(text):
        failed.setdefault(match.group("file", "verb", "found", "limit"), []).append(match)
    for (file, verb, what, limit), matches in failed.items():
        first = matches[0]
        who = f"block ({first['block']}), thread ({first['thread']})"
        more = f" and {counted(len(matches) - 1, 'other line')}" if len(matches) > 1 else ""
        yield (
            first.start(),
            REFUSALS["DEVICE_CHECK"].violation(
                verb,
                f"{verb} in {who}{more}: {what}",
                limit=limit,
                fix=f"in {file}: {_device_fix(what, limit)}",
            ),
        )
