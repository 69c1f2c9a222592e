"""Sentences in place of arguments: checks of a project's own, which name one precondition.

Most checks do not show all the numbers; what they show is judged as printed arguments are. A
sentence without a number counts only where its line says that it failed: documents quote the same
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tma_dlpack.cli.explain.words import rows
from tma_dlpack.tables import limits
from tma_dlpack.tables.limits import STRIDE_BYTES_END


class Sentence(NamedTuple):
    """One printer's check: who prints it, how, and which rule it is."""

    printer: str
    pattern: re.Pattern[str]
    rule: str
    source: str


#: Parts that several patterns have.
_PARTS: Final = {
    "<ASSERT>": r"Assertion[^\n]{0,200}?",
    "<ERROR>": r"(?:Error|Exception|what\(\)|[Cc]heck failed)[^\n]{0,160}?"
    r"(?:TMA|[Tt]ensor ?[Mm]ap)[^\n]{0,160}?",
    "<16>": r"(?:multiple of 16|16[- ]?(?:bytes?|B)[- ]aligned|divisible by 16|aligned to 16)",
    "<NOT_SUPPORTED>": r" not supported(?: on \.target '\w+')?",
}
#: Below each printer and its source: the rule, and how its check words it. STRIDE is misaligned or
#: too large, by its number.
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
STRIDE globalStrides\[(?P<entry>\d)\] \(raw globalStride\[\d\] = (?P<bytes>\d{1,20})\) must\b
ADDRESS_ALIGNED globalAddress must be \d+-byte aligned, but mod\d+=\d+
DIM_RANGE globalDim\[\d\] must be (?:non-zero|<= 2\^32)
BOX_RANGE boxDim\[\d\] must be (?:non-zero|<= 256)
BOX_INNER_16B boxDim\[0\] \* elementSize must be a multiple of 16 bytes
BOX_SWIZZLE_SPAN boxDim\[0\] \* elementSize must be <= swizzle span
ELEM_STRIDES_RANGE elementStrides\[\d\] must be in \[1, 8\]
# JAX Mosaic GPU | jax-ml/jax jaxlib/mosaic/gpu/runtime.cc
STRIDE Byte strides must be divisible by 16 and less [^\n]{0,20}but\s+got (?P<bytes>-?\d{1,20})
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
BOX_RANGE boxDim too large (?P<extent>\d{1,10})
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


def _in_words(numbers: Mapping[str, Any]) -> dict[str, str]:
    """Return limits as sentences have them: large powers of two as such."""
    found = {name: n for name, n in numbers.items() if isinstance(n, int)}
    large = {name for name, n in found.items() if n >= 1 << 20 and n & (n - 1) == 0}
    return {k: f"2^{n.bit_length() - 1}" if k in large else str(n) for k, n in found.items()}


#: Rule | argument | the limit | what to do. For checks without numbers, which have no report.
_LIMITS: Final = """
ADDRESS_ALIGNED | global_address | it must be a multiple of {INNER_BYTES} bytes (32 with interleave
    32B) | start the tensor at an aligned element, or copy it: x.clone()
ADDRESS_NULL | global_address | it must not be 0 | skip an empty tensor
RANK | tensor_rank | it must be 1..{MAX_RANK} | merge dimensions, or make one map per slice
RANK_INTERLEAVED | interleave | the rank must be at least {MIN_RANK_INTERLEAVED} | use interleave
    none
DIM_RANGE | global_dim | each must be 1..{MAX_DIM} | skip an empty tensor; split one that is too
    long
STRIDE_ALIGNED | global_strides | each must be a multiple of {INNER_BYTES} bytes (32 with interleave
    32B) | pad the inner dimension so that each row is a multiple of {INNER_BYTES} bytes
STRIDE_RANGE | global_strides | each must be less than {STRIDE_BYTES_END} bytes, and not negative |
    index this dimension instead, and make one map per slice; look for 32-bit overflow
STRIDE_INNERMOST | global_strides | the innermost stride must be one element | make the last
    dimension contiguous: x.contiguous(), or describe the transpose
STRIDE_UNIQUE | global_strides | each must be 0 or at least what the dimension inside it spans |
    permute the tensor so that strides descend, or check only the driver's rules: rules='driver'
BOX_RANK | box_dim | it must have one entry per dimension | pass one entry each
BOX_RANGE | box_dim | each must be 1..{MAX_BOX} | copy a larger tile in several steps
BOX_IN_SHAPE | box_dim | each must be 1..min(extent, {MAX_BOX}) | shrink the box, or check only the
    driver's rules: rules='driver'
BOX_INNER_16B | box_dim | its inner row must be a multiple of {INNER_BYTES} bytes | widen the inner
    box to a multiple of {INNER_BYTES} bytes
BOX_SWIZZLE_SPAN | box_dim | its inner row must not be wider than the swizzle span | narrow the
    inner box to the span and copy in several steps, or use a wider swizzle
BOX_SMEM | box_dim | the box must fit shared memory | shrink the box
ELEM_STRIDES_RANGE | element_strides | each must be 1..{MAX_ELEM_STRIDE} | use 1
INTERLEAVE_32B_SWIZZLE | swizzle | it must be bytes32 | use swizzle 32B
OOB_NAN | oob_fill | NaN fill is for floating-point types | fill with zeros
CAPABILITY | target | compute capability 9.0 or later | use a Hopper or newer GPU
GATHER4 | box_dim | gather4 needs a map of rank 2 whose box has one row: each copy names four rows |
    make a map with box_sizes=(1, columns), and copy 4 x columns elements at a time
SCATTER4 | target | scatter4 exists on compute capability 10.x and 11.0 (sm_100a, sm_103a, sm_110a)
    alone, neither on sm_90 nor on sm_120 and sm_121 | store the rows with ordinary stores, or one
    tile copy for each run of rows
GATHER4_TARGET | target | gather4 came with compute capability 10.0; sm_120 and sm_121 have it for
    .shared::cta alone | load the rows with ordinary loads; write .shared::cta on sm_120 and sm_121
"""
#: Rule -> argument, limit, fix; numbers are those of `tables.limits`.
LIMITS: Final[dict[str, tuple[str, ...]]] = {
    rule: tuple(rest) for rule, *rest in rows(_LIMITS.format(**_in_words(vars(limits))))
}

_FAILED = re.compile(  # on the line of a sentence
    r"error|exception|assert|failed|abort|fatal|what\(\)|terminate|^[ \t>|]*\[\d+\] ",
    re.IGNORECASE,
)
_SHOWS_VALUE = re.compile(  # so does no document
    r"\bgot\b|mod\d+=\d|too large \d|Feature '|last dim must be 1|TILE_GATHER4 requires"
    r"|(?:dims|strides) [(\[]\d|\(\d+\) \* elem|\d\) must"
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
#: Words of a check (include/tma_dlpack_check.h), as a pattern | what to change.
_DEVICE_FIXES: Final = r"""
never initiali[sz] | one thread calls init(), then __syncthreads(); cluster_sync() for other blocks
local memory | pass the map as a const __grid_constant__ parameter
neither shared nor global | copy the map to shared memory, change it there and publish() it
map at \S+ is in shared memory | publish() it to global memory, then fence_acquire() it there
all zeros|map's address is | copy the 128 bytes of a launchable map there before the kernel runs
warp | call publish() where all 32 threads of the warp come along, outside of if (threadIdx.x == 0)
innermost coordinate | step the innermost coordinate by a multiple of 16 bytes
negative | begin stores inside the tensor: only what lies past its end is clipped
corners | begin the walk inside the corners; for stores, make corners that keep inside the tensor
rank is|mask | name only blocks of the cluster
rank | use the copy of the map's rank, with as many coordinates
2147483648 | describe at most 2147483648 elements along each dimension
element type | use an operation that the type has, or a map of another type
this verb takes|im2col | use the im2col verbs with im2col maps, and replace_* with tiled ones
loads of 0 bytes | issue the loads that were expected, on this barrier
this is arrival | initialize the barrier for as many arrivals as come
parity | pass the parity of the phase: flip it after each wait, and begin with 0
expect | expect the bytes of all copies of this phase, before them
arriv | initialize the barrier for as many arrivals as come
ends at shared | ask for enough dynamic shared memory at the launch, and end the tile within it
swizzle | align the tile to what the swizzle repeats: alignas(1024) for bytes128
not in this block | pass an address in the block's own shared memory
\b8 bytes|multiple of 8\b | align the barrier to 8 bytes, in shared memory
align|multiple of | align it to 128 bytes: alignas(128)
coord | step the innermost coordinate by a multiple of 16 bytes
"""


def device_fix(verb: str, found: str, limit: str) -> str:
    """Return what to change after a failed check on the device."""
    words = f"{verb} {found} {limit}"
    fixes = (
        fix for pattern, fix in rows(_DEVICE_FIXES) if re.search(pattern, words, re.IGNORECASE)
    )
    return next(fixes, f"change the call so that {limit.removeprefix('it ')}")
