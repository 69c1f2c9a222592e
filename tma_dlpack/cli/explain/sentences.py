"""Sentences in place of arguments: checks of a project's own, which name one precondition.

Most checks do not show all the numbers; what they show is judged as printed arguments are. A
sentence without a number counts only where the text says that it failed: documents quote the same
words.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tma_dlpack.tables.limits import STRIDE_BYTES_END


class Sentence(NamedTuple):
    """One printer's check: who prints it, how, and which rule it is."""

    printer: str
    pattern: re.Pattern[str]
    rule: str
    source: str


_ASSERT = r"Assertion[^\n]{0,200}?"

_ERROR = (
    r"(?:Error|Exception|what\(\)|[Cc]heck failed)[^\n]{0,160}?"
    r"(?:TMA|[Tt]ensor ?[Mm]ap)[^\n]{0,160}?"
)
_OF_16 = r"(?:multiple of 16|16[- ]?(?:bytes?|B)[- ]aligned|divisible by 16|aligned to 16)"

#: By printer and its source: the rule, and how its check says it.
_SAID: Final[dict[tuple[str, str], tuple[tuple[str, str], ...]]] = {
    ("CUTLASS", "NVIDIA/cutlass copy_traits_sm90_tma.hpp"): (
        ("STRIDE_ALIGNED", _ASSERT + r"gmem_prob_stride\[[1-4]\]\s*&\s*0b1111"),
        ("STRIDE_RANGE", _ASSERT + r"gmem_prob_stride\[[1-4]\]\)?\s*<\s*\(uint64_t"),
        ("STRIDE_INNERMOST", _ASSERT + r"gmem_prob_stride\[0\]\s*=="),
        ("DIM_RANGE", _ASSERT + r"gmem_prob_shape\[[0-4]\]\s*[<>]="),
        ("ADDRESS_ALIGNED", _ASSERT + r"\(gmem_address\)\s*&\s*0b1111"),
        ("BOX_RANGE", _ASSERT + r"smem_box_shape\[[0-4]\]\s*[<>]="),
        ("ELEM_STRIDES_RANGE", _ASSERT + r"smem_box_stride\[[0-4]\]\s*[<>]="),
    ),
    ("ThunderKittens", "HazyResearch/ThunderKittens include/types/global/tma.cuh"): (
        ("STRIDE_ALIGNED", _ASSERT + r"gmem_stride\[[0-3]\]\s*%\s*16\s*==\s*0"),
        ("BOX_INNER_16B", _ASSERT + r"smem_shape\[0\]\s*\*\s*sizeof\(dtype\)\)\s*%\s*16"),
        ("BOX_SWIZZLE_SPAN", _ASSERT + r"smem_shape\[0\]\s*\*\s*sizeof\(dtype\)\s*<="),
        ("BOX_RANGE", _ASSERT + r"smem_shape\[[0-4]\]\s*<=\s*256"),
    ),
    ("Triton", "triton-lang/triton triton/tools/tensor_descriptor.py"): (
        ("STRIDE_ALIGNED", r"AssertionError: strides must be 16-byte aligned"),
        ("ADDRESS_ALIGNED", r"AssertionError: base must be 16-byte aligned"),
        ("STRIDE_INNERMOST", r"AssertionError: Last dimension must be contiguous"),
        ("DIM_RANGE", r"AssertionError: shape must be positive"),
        (
            "BOX_INNER_16B",
            r"Descriptor block shape must have at least 16 bytes in the last dimension, but got "
            r"\d+ \* \d+ = \d+ bytes",
        ),
        ("STRIDE_INNERMOST", r"Tensor descriptor last dim must be 1(?:,? but got [\w-]+)?"),
        ("RANK", r"AssertionError: rank (?:cannot be more than 5|must not be zero|must be 1-5)"),
        ("OOB_NAN", r"Padding option `nan` is only supported for floating point"),
    ),
    ("TileLang", "tile-ai/tilelang src/cuda/runtime.cc"): (
        (
            "STRIDE",
            r"globalStrides\[(?P<entry>\d)\] \(raw globalStride\[\d\] = "
            r"(?P<bytes>\d{1,20})\) must\b",
        ),
        ("ADDRESS_ALIGNED", r"globalAddress must be \d+-byte aligned, but mod\d+=\d+"),
        ("DIM_RANGE", r"globalDim\[\d\] must be (?:non-zero|<= 2\^32)"),
        ("BOX_RANGE", r"boxDim\[\d\] must be (?:non-zero|<= 256)"),
        ("BOX_INNER_16B", r"boxDim\[0\] \* elementSize must be a multiple of 16 bytes"),
        ("BOX_SWIZZLE_SPAN", r"boxDim\[0\] \* elementSize must be <= swizzle span"),
        ("ELEM_STRIDES_RANGE", r"elementStrides\[\d\] must be in \[1, 8\]"),
    ),
    ("JAX Mosaic GPU", "jax-ml/jax jaxlib/mosaic/gpu/runtime.cc"): (
        (
            "STRIDE",
            r"Byte strides must be divisible by 16 and less [^\n]{0,20}but\s+"
            r"got (?P<bytes>-?\d{1,20})",
        ),
        ("DIM_RANGE", r"TMA size must be less than 2\*\*32, but got -?\d+"),
        ("STRIDE_INNERMOST", r"Minormost stride must be 1, but got -?\d+"),
        ("BOX_RANGE", r"Window shape must be in \[0, 256\], but got -?\d+"),
        (
            "BOX_INNER_16B",
            r"last dimension of window shape must have a bytewidth\s+divisible by 16",
        ),
    ),
    ("libcu++", "NVIDIA/cccl make_tma_descriptor.h"): (
        ("ADDRESS_ALIGNED", r"tensor\.data \(address\) is not sufficiently aligned"),
        ("ADDRESS_NULL", r"(?:via CCCL|what\(\)|invalid_argument)[^\n]{0,40}Address is null"),
        ("RANK", r"tensor\.ndim \(rank\) must be between 1 and 5"),
        ("RANK_INTERLEAVED", r"tensor\.ndim \(rank\) must be greater than or equal to 3"),
        ("DIM_RANGE", r"tensor\.shape\[i\] must be greater than 0 and less than"),
        ("STRIDE_ALIGNED", r"Stride in bytes is not a multiple of the alignment"),
        ("STRIDE_RANGE", r"Stride in bytes is greater than or equal to 2\^40"),
        ("STRIDE_UNIQUE", r"Stride must be 0 or greater than or equal to the product"),
        ("BOX_RANK", r"Box sizes size mismatch"),
        ("BOX_IN_SHAPE", r"box_sizes\[i\] must be between 1 and min"),
        ("BOX_INNER_16B", r"tma_interleave_layout::none requires box_sizes innermost"),
        ("BOX_SWIZZLE_SPAN", r"tma_swizzle::bytes\w+\*? requires box_sizes innermost"),
        ("BOX_SMEM", r"Box sizes do not fit in shared memory"),
        ("ELEM_STRIDES_RANGE", r"elem_strides\[i\] must be greater than 0"),
        ("INTERLEAVE_32B_SWIZZLE", r"bytes32 requires tma_swizzle::bytes32"),
        ("OOB_NAN", r"tma_oob_fill::nan is only supported for floating-point"),
        ("CAPABILITY", r"Compute capability 9\.0 or higher is required"),
    ),
    ("XLA", "openxla/xla xla/stream_executor/gpu/tma_metadata.cc"): (
        ("RANK", r"unsupported rank for TMA: -?\d+"),
        ("DIM_RANGE", r"global_dims \([\d,]*\) must be non-zero and <= 2\^32"),
        ("STRIDE_ALIGNED", r"global_strides \([\d,]*\) must be a multiple of (?:16|32)"),
        ("BOX_RANGE", r"box_dims \[[\d,]*\] must be non-zero and <= 256"),
        (
            "BOX_INNER_16B",
            r"box_dims\[0\] \(\d+\) \* element_byte_width \(\d+\) must be a multiple",
        ),
        (
            "BOX_SWIZZLE_SPAN",
            r"swizzle is k\d+B, box_dims\[0\] \* element_byte_width must be <= \d+",
        ),
        ("ELEM_STRIDES_RANGE", r"element_strides \([\d,]*\) must be non-zero and <= 8"),
        ("RANK_INTERLEAVED", r"If TmaInterleave is not kNone, then tensor rank must"),
        ("INTERLEAVE_32B_SWIZZLE", r"when interleave is k32B, swizzle must be k32B"),
    ),
    ("cuda.core", "NVIDIA/cuda-python cuda_core/cuda/core/_tensor_map.pyx"): (
        ("ADDRESS_ALIGNED", r"Global memory address must be 16-byte aligned, got address 0x\w+"),
        ("RANK", r"[Tt]ensor rank must be between [13] and 5, got -?\d+"),
        ("BOX_RANK", r"box_dim must have \d+ elements \(same as tensor rank\), got \d+"),
        ("BOX_RANGE", r"box_dim\[\d\] must be in \[1, 256\], got -?\d+"),
        ("ELEM_STRIDES_RANGE", r"element_strides\[\d\] must be positive, got -?\d+"),
    ),
    ("TransformerEngine", "NVIDIA/TransformerEngine transformer_engine/common/common.cu"): (
        ("ADDRESS_ALIGNED", r"Tensor data pointer must be 16B aligned"),
        (
            "STRIDE_ALIGNED",
            r"Shape not supported\. For \d+-(?:byte|bit) data type, expected multiple of \d+, "
            r"got \d+",
        ),
    ),
    ("cuTile", "NVIDIA/cutile-python cuda.tile"): (
        (
            "GATHER4",
            r"TILE_GATHER4 requires a rank-2 tensor map with tile_shape\[1\] == 1[^\n]{0,80}",
        ),
        ("GATHER4", r"TILE_GATHER4[^\n]{0,80}\b(?:not supported|invalid|rejected)"),
    ),
    ("ptxas", "the PTX ISA, cp.async.bulk.tensor"): (
        (
            "SCATTER4",
            r"Feature '\.tile::scatter4[^'\n]{0,60}' not supported(?: on \.target '\w+')?",
        ),
        (
            "GATHER4_TARGET",
            r"Feature '\.tile::gather4[^'\n]{0,60}' not supported(?: on \.target '\w+')?",
        ),
    ),
    ("the program", "its own check"): (
        ("STRIDE_ALIGNED", _ERROR + r"[Ss]trides?\b[^\n]{0,60}?" + _OF_16),
        ("ADDRESS_ALIGNED", _ERROR + r"(?:address|pointer|ptr)\b[^\n]{0,60}?" + _OF_16),
        ("BOX_RANGE", _ERROR + r"[Bb]ox\w*[^\n]{0,60}?(?:<= ?256|\[[01], 256\]|most 256)"),
    ),
    ("TensorRT-LLM", "NVIDIA/TensorRT-LLM trtllm-gen, buildNdTmaDescriptor"): (
        ("BOX_RANGE", r"boxDim too large (?P<extent>\d{1,10})"),
    ),
}

SENTENCES: Final = tuple(
    Sentence(printer, re.compile(pattern), rule, source)
    for (printer, source), checks in _SAID.items()
    for rule, pattern in checks
)

#: What a sentence about a rule says of the limit, and what to do.
LIMITS: Final[dict[str, tuple[str, str, str]]] = {
    "ADDRESS_ALIGNED": (
        "global_address",
        "it must be a multiple of 16 bytes (32 with interleave 32B)",
        "start the tensor at an aligned element, or copy it: x.clone()",
    ),
    "ADDRESS_NULL": ("global_address", "it must not be 0", "skip an empty tensor"),
    "RANK": ("tensor_rank", "it must be 1..5", "merge dimensions, or make one map per slice"),
    "RANK_INTERLEAVED": ("interleave", "the rank must be at least 3", "use interleave none"),
    "DIM_RANGE": (
        "global_dim",
        "each must be 1..2^32",
        "skip an empty tensor; split one that is too long",
    ),
    "STRIDE_ALIGNED": (
        "global_strides",
        "each must be a multiple of 16 bytes (32 with interleave 32B)",
        "pad the inner dimension so that each row is a multiple of 16 bytes",
    ),
    "STRIDE_RANGE": (
        "global_strides",
        "each must be less than 2^40 bytes, and not negative",
        "index this dimension instead, and make one map per slice; look for 32-bit overflow",
    ),
    "STRIDE_INNERMOST": (
        "global_strides",
        "the innermost stride must be one element",
        "make the last dimension contiguous: x.contiguous(), or describe the transpose",
    ),
    "STRIDE_UNIQUE": (
        "global_strides",
        "each must be 0 or at least what the dimension inside it spans",
        "permute the tensor so that strides descend, or check only the driver's rules: "
        "rules='driver'",
    ),
    "BOX_RANK": ("box_dim", "it must have one entry per dimension", "pass one entry each"),
    "BOX_RANGE": ("box_dim", "each must be 1..256", "copy a larger tile in several steps"),
    "BOX_IN_SHAPE": (
        "box_dim",
        "each must be 1..min(extent, 256)",
        "shrink the box, or check only the driver's rules: rules='driver'",
    ),
    "BOX_INNER_16B": (
        "box_dim",
        "its inner row must be a multiple of 16 bytes",
        "widen the inner box to a multiple of 16 bytes",
    ),
    "BOX_SWIZZLE_SPAN": (
        "box_dim",
        "its inner row must not be wider than the swizzle span",
        "narrow the inner box to the span and copy in several steps, or use a wider swizzle",
    ),
    "BOX_SMEM": ("box_dim", "the box must fit shared memory", "shrink the box"),
    "ELEM_STRIDES_RANGE": ("element_strides", "each must be 1..8", "use 1"),
    "INTERLEAVE_32B_SWIZZLE": ("swizzle", "it must be bytes32", "use swizzle 32B"),
    "OOB_NAN": ("oob_fill", "NaN fill is for floating-point types", "fill with zeros"),
    "GATHER4": (
        "box_dim",
        "gather4 needs a map of rank 2 whose box has one row: each copy names four rows itself",
        "make a map with box_sizes=(1, columns), and copy 4 x columns elements at a time",
    ),
    "SCATTER4": (
        "target",
        "scatter4 exists on compute capability 10.x and 11.0 (sm_100a, sm_103a, sm_110a) alone, "
        "neither on sm_90 nor on sm_120 and sm_121",
        "store the rows with ordinary stores, or one tile copy for each run of rows",
    ),
    "GATHER4_TARGET": (
        "target",
        "gather4 came with compute capability 10.0; sm_120, sm_121: to .shared::cta only",
        "load the rows with ordinary loads on sm_90; write .shared::cta on sm_120 and sm_121",
    ),
    "CAPABILITY": ("target", "compute capability 9.0 or later", "use a Hopper or newer GPU"),
}


_FAILED = re.compile(  # on the line of a sentence
    r"error|exception|assert|failed|abort|fatal|what\(\)|terminate|^[ \t>|]*\[\d+\] ",
    re.IGNORECASE,
)
_SHOWS_VALUE = re.compile(  # so does no document
    r"\bgot\b|mod\d+=\d|too large \d|Feature '|(?:dims|strides) [(\[]\d|\(\d+\) \* elem|\d\) must"
)
_HEADING = "Invalid TMA descriptor arguments"  # of TileLang, above its checks


def rule_of(sentence: Sentence, found: re.Match[str]) -> str:
    """Return the rule that a sentence is about; a stride's number says which of two."""
    if sentence.rule != "STRIDE":
        return sentence.rule
    stride = int(found["bytes"])
    return "STRIDE_RANGE" if not 0 <= stride < STRIDE_BYTES_END else "STRIDE_ALIGNED"


def sentences_in(text: str) -> list[tuple[Sentence, re.Match[str]]]:
    """Return every failed check of the table that a text has, each once, in its order."""
    found = []
    seen: set[str] = set()
    for sentence in SENTENCES:
        for match in sentence.pattern.finditer(text):
            words = " ".join(match[0].split())
            begin = text.rfind("\n", 0, match.start()) + 1
            line = text[max(begin, match.start() - 300) : match.end() + 60].partition("\n")[0]
            failed = _FAILED.search(line) or _SHOWS_VALUE.search(match[0] + line)
            below = _HEADING in text[max(0, match.start() - 600) : match.start()]
            if (failed or below) and words not in seen:
                seen.add(words)
                found.append((match.start(), sentence, match))
    return [(sentence, match) for _, sentence, match in sorted(found, key=lambda item: item[0])]


# -- a checked build of tma_dlpack.h --------------------------------------------------------------

_PLACE = r"-?\d+, -?\d+, -?\d+"
DEVICE_CHECK: Final = re.compile(
    rf"tma_dlpack check: (?P<file>[^\n]{{1,300}}?:\d+), block \((?P<block>{_PLACE})\), thread "
    rf"\((?P<thread>{_PLACE})\), (?P<verb>[^:;\n]+): (?P<found>[^;\n]+); (?P<limit>[^\n]+)"
)
#: Words of a check -> what to change.
_DEVICE_FIXES: Final = (
    (
        r"initiali[sz]",
        "one thread runs mbarrier_init, then fence_barrier_init, then __syncthreads()",
    ),
    (
        r"param|__grid_constant__|local memory",
        "pass the map as a const __grid_constant__ parameter",
    ),
    (r"expect|tx|bytes (?:arrive|in flight)", "expect the bytes of all copies of this phase"),
    (r"arriv", "initialize the barrier for as many arrivals as come"),
    (r"parity|phase", "flip the parity after each wait, and begin with 0"),
    (r"rank|dimension", "use the copy of the map's rank, with as many coordinates"),
    (r"coord", "step the innermost coordinate by a multiple of 16 bytes"),
    (r"align|multiple of", "align it: alignas(128) for tiles, alignas(8) for barriers"),
    (r"shared|smem|beyond", "ask for enough dynamic shared memory at the launch"),
    (r"multicast|cluster", "name only blocks of the cluster in the mask"),
)


def device_fix(verb: str, found: str, limit: str) -> str:
    """Return what to change after a failed check on the device."""
    words = f"{verb} {found} {limit}"
    fixes = (fix for pattern, fix in _DEVICE_FIXES if re.search(pattern, words, re.IGNORECASE))
    return next(fixes, f"change the call so that {limit.removeprefix('it ')}")
