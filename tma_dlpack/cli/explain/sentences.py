"""Sentences in place of arguments: what printers say of a refusal, and the driver's results.

A row of `SENTENCES` is a check of some project's own that names one precondition, mostly without
all the numbers. A row of `HEADINGS` is a failed encode whose arguments are not printed there, with
where they would be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tma_dlpack.types.limits import STRIDE_BYTES_END

__all__ = ["HEADINGS", "RESULTS", "SENTENCES", "STICKY", "Result", "Sentence", "results_of", "said", "sticky_numbers"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One printer's check: who says it, how, and which rule it is.

    `rule` may be several, by the number that the sentence shows: the stride is misaligned or too
    large. `value` names the group of the pattern that shows it.
    """

    printer: str
    pattern: re.Pattern[str]
    rule: str
    source: str


def _row(printer: str, rule: str, pattern: str, source: str) -> Sentence:
    return Sentence(printer, re.compile(pattern), rule, source)


_CUTE = "NVIDIA/cutlass copy_traits_sm90_tma.hpp"
_LIBCU = "NVIDIA/cccl make_tma_descriptor.h"
_MOSAIC = "jax-ml/jax jaxlib/mosaic/gpu/runtime.cc"
_TRITON = "triton-lang/triton triton/tools/tensor_descriptor.py"
_KITTENS = "HazyResearch/ThunderKittens include/types/global/tma.cuh"
_TRTLLM = "NVIDIA/TensorRT-LLM trtllm-gen, buildNdTmaDescriptor"
_A = r"[Aa]ssert(?:ion)?[^\n]{0,200}?"

SENTENCES: Final[tuple[Sentence, ...]] = (
    # CUTLASS and its relatives: assertions
    _row("CUTLASS", "STRIDE_ALIGNED", _A + r"gmem_prob_stride\[[1-4]\]\s*&\s*0b1111", _CUTE),
    _row("CUTLASS", "STRIDE_RANGE", _A + r"gmem_prob_stride\[[1-4]\]\)?\s*<\s*\(uint64_t", _CUTE),
    _row("CUTLASS", "STRIDE_INNERMOST", _A + r"gmem_prob_stride\[0\]\s*==", _CUTE),
    _row("CUTLASS", "DIM_RANGE", _A + r"gmem_prob_shape\[[0-4]\]\s*[<>]=", _CUTE),
    _row("CUTLASS", "ADDRESS_ALIGNED", _A + r"\((?:gmem_address|global_addr)\)\s*&\s*0b1111", _CUTE),
    _row("CUTLASS", "BOX_RANGE", _A + r"smem_box_shape\[[0-4]\]\s*[<>]=", _CUTE),
    _row("CUTLASS", "ELEM_STRIDES_RANGE", _A + r"smem_box_stride\[[0-4]\]\s*[<>]=", _CUTE),
    # ThunderKittens: assertions
    _row("ThunderKittens", "STRIDE_ALIGNED", _A + r"gmem_stride\[[0-3]\]\s*%\s*16\s*==\s*0", _KITTENS),
    _row("ThunderKittens", "BOX_INNER_16B", _A + r"smem_shape\[0\]\s*\*\s*sizeof\(dtype\)\)\s*%\s*16", _KITTENS),
    _row("ThunderKittens", "BOX_SWIZZLE_SPAN", _A + r"smem_shape\[0\]\s*\*\s*sizeof\(dtype\)\s*<=", _KITTENS),
    _row("ThunderKittens", "BOX_RANGE", _A + r"smem_shape\[[0-4]\]\s*<=\s*256", _KITTENS),
    # Triton: assertions of its TensorDescriptor
    _row("Triton", "STRIDE_ALIGNED", r"AssertionError: strides must be 16-byte aligned", _TRITON),
    _row("Triton", "ADDRESS_ALIGNED", r"AssertionError: base must be 16-byte aligned", _TRITON),
    _row("Triton", "STRIDE_INNERMOST", r"AssertionError: Last dimension must be contiguous", _TRITON),
    _row("Triton", "DIM_RANGE", r"AssertionError: shape must be positive", _TRITON),
    _row("Triton", "RANK", r"AssertionError: rank (?:cannot be more than 5|must not be zero|must be 1-5)", _TRITON),
    _row("Triton", "OOB_NAN", r"Padding option `nan` is only supported for floating point", _TRITON),
    # TileLang: what it finds before the encode
    _row("TileLang", "STRIDE", r"globalStrides\[(?P<entry>\d)\] \(raw globalStride\[\d\] = (?P<bytes>\d{1,20})\) must\b", "tile-ai/tilelang src/cuda/runtime.cc"),
    _row("TileLang", "ADDRESS_ALIGNED", r"globalAddress must be \d+-byte aligned, but mod\d+=\d+", "tile-ai/tilelang src/cuda/runtime.cc"),
    _row("TileLang", "DIM_RANGE", r"globalDim\[\d\] must be (?:non-zero|<= 2\^32)", "tile-ai/tilelang src/cuda/runtime.cc"),
    _row("TileLang", "BOX_RANGE", r"boxDim\[\d\] must be (?:non-zero|<= 256)", "tile-ai/tilelang src/cuda/runtime.cc"),
    _row("TileLang", "BOX_INNER_16B", r"boxDim\[0\] \* elementSize must be a multiple of 16 bytes", "tile-ai/tilelang src/cuda/runtime.cc"),
    _row("TileLang", "BOX_SWIZZLE_SPAN", r"boxDim\[0\] \* elementSize must be <= swizzle span", "tile-ai/tilelang src/cuda/runtime.cc"),
    _row("TileLang", "ELEM_STRIDES_RANGE", r"elementStrides\[\d\] must be in \[1, 8\]", "tile-ai/tilelang src/cuda/runtime.cc"),
    # JAX Mosaic GPU
    _row("JAX Mosaic GPU", "STRIDE", r"Byte strides must be divisible by 16 and less than 2\*\*40, but\s+got (?P<bytes>-?\d{1,20})", _MOSAIC),
    _row("JAX Mosaic GPU", "DIM_RANGE", r"TMA size must be less than 2\*\*32, but got -?\d+", _MOSAIC),
    _row("JAX Mosaic GPU", "STRIDE_INNERMOST", r"Minormost stride must be 1, but got -?\d+", _MOSAIC),
    _row("JAX Mosaic GPU", "BOX_RANGE", r"Window shape must be in \[0, 256\], but got -?\d+", _MOSAIC),
    _row("JAX Mosaic GPU", "BOX_INNER_16B", r"last dimension of window shape must have a bytewidth\s+divisible by 16", _MOSAIC),
    # libcu++, through whatever calls it (cuda.core says "via CCCL")
    _row("libcu++", "ADDRESS_ALIGNED", r"tensor\.data \(address\) is not sufficiently aligned", _LIBCU),
    _row("libcu++", "ADDRESS_NULL", r"(?:via CCCL|what\(\)|invalid_argument)[^\n]{0,40}Address is null", _LIBCU),
    _row("libcu++", "RANK", r"tensor\.ndim \(rank\) must be between 1 and 5", _LIBCU),
    _row("libcu++", "RANK_INTERLEAVED", r"tensor\.ndim \(rank\) must be greater than or equal to 3", _LIBCU),
    _row("libcu++", "DIM_RANGE", r"tensor\.shape\[i\] must be greater than 0 and less than", _LIBCU),
    _row("libcu++", "STRIDE_ALIGNED", r"Stride in bytes is not a multiple of the alignment", _LIBCU),
    _row("libcu++", "STRIDE_RANGE", r"Stride in bytes is greater than or equal to 2\^40", _LIBCU),
    _row("libcu++", "STRIDE_UNIQUE", r"Stride must be 0 or greater than or equal to the product", _LIBCU),
    _row("libcu++", "BOX_RANK", r"Box sizes size mismatch", _LIBCU),
    _row("libcu++", "BOX_IN_SHAPE", r"box_sizes\[i\] must be between 1 and min", _LIBCU),
    _row("libcu++", "BOX_INNER_16B", r"tma_interleave_layout::none requires box_sizes innermost", _LIBCU),
    _row("libcu++", "BOX_SWIZZLE_SPAN", r"tma_swizzle::bytes\w+\*? requires box_sizes innermost", _LIBCU),
    _row("libcu++", "BOX_SMEM", r"Box sizes do not fit in shared memory", _LIBCU),
    _row("libcu++", "ELEM_STRIDES_RANGE", r"elem_strides\[i\] must be greater than 0", _LIBCU),
    _row("libcu++", "INTERLEAVE_32B_SWIZZLE", r"bytes32 requires tma_swizzle::bytes32", _LIBCU),
    _row("libcu++", "OOB_NAN", r"tma_oob_fill::nan is only supported for floating-point", _LIBCU),
    _row("libcu++", "CAPABILITY", r"Compute capability 9\.0 or higher is required", _LIBCU),
    # TensorRT-LLM
    _row("TensorRT-LLM", "BOX_RANGE", r"boxDim too large (?P<extent>\d{1,10})", _TRTLLM),
)  # fmt: skip

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
        "permute the tensor so that strides descend, or let the driver alone judge: rules='driver'",
    ),
    "BOX_RANK": ("box_dim", "it must have one entry per dimension", "give one entry each"),
    "BOX_RANGE": ("box_dim", "each must be 1..256", "copy a larger tile in several steps"),
    "BOX_IN_SHAPE": (
        "box_dim",
        "each must be 1..min(extent, 256)",
        "shrink the box, or let the driver alone judge: rules='driver'",
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
    "CAPABILITY": ("target", "compute capability 9.0 or later", "use a Hopper or newer GPU"),
}


def rule_of(sentence: Sentence, found: re.Match[str]) -> str:
    """Give the rule that a sentence is about; a stride's number says which of two."""
    if sentence.rule != "STRIDE":
        return sentence.rule
    stride = int(found["bytes"])
    return "STRIDE_RANGE" if not 0 <= stride < STRIDE_BYTES_END else "STRIDE_ALIGNED"


def said(text: str) -> Iterator[tuple[int, Sentence, re.Match[str]]]:
    """Give every sentence of the table that a text has, each once, in the order of the text."""
    found = []
    seen: set[str] = set()
    for sentence in SENTENCES:
        for match in sentence.pattern.finditer(text):
            words = " ".join(match[0].split())
            if words not in seen:
                seen.add(words)
                found.append((match.start(), sentence, match))
    return iter(sorted(found, key=lambda item: item[0]))


# -- encodes without arguments --------------------------------------------------------------------

#: Pattern, printer, where the arguments would be.
HEADINGS: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = tuple(
    (re.compile(pattern), printer, where)
    for pattern, printer, where in (
        (
            r"Failed to create tensormap\s*\n\s*Dim:",
            "kerutils (FlashMLA)",
            "it prints two lines to standard error and all arguments to standard output: add those",
        ),
        (
            r"Failed to create tensormap with cuTensorMapEncodeTiled",
            "XLA",
            "it prints none; the HLO dump (--xla_dump_to) has TmaDescriptor{...}, which can be read",
        ),
        (
            r"Failed to initialize the TMA descriptor (?!due|\d|\.|,)[A-Za-z_]\w*",
            "TileLang before March 2026",
            "it prints the name alone: paste the generated host code (globalDim, globalStride, "
            "boxDim...), or update, and it prints all arguments. In tile-ai/tilelang#460 the last "
            "dimension was no multiple of 16 bytes (STRIDE_ALIGNED)",
        ),
        (
            r"Failed to encode TMA descriptor \S+:",
            "TileLang (CuTe DSL)",
            "it prints none: print the arguments of the encode beside it",
        ),
        (
            r"Failed to encode tensor map:",
            "DeepGEMM (Python)",
            "it prints none; newer releases print 'Making TMA desc: ...' with DG_JIT_DEBUG=1",
        ),
        (
            r"Error in \w+ TMA descriptor creation:",
            "ThunderKittens",
            "newer releases print 'cuTensorMapEncodeTiled arguments:' below; paste those lines",
        ),
        (
            r"via CCCL:",
            "cuda.core",
            "it prints no value: print the tensor's data pointer, shape, strides and dtype",
        ),
        (
            r"cuTensorMapEncode(?:Tiled|Im2col(?:Wide)?)\W{1,4}(?:failed|returned|error)",
            "cuTensorMapEncode*",
            "print every argument beside the result: tensorDataType, globalAddress, globalDim, "
            "globalStrides, boxDim, elementStrides, interleave, swizzle",
        ),
        (
            r"Failed to initialize the TMA descriptor",
            "CUTLASS or TensorRT-LLM",
            "they print the arguments beside this line, to standard error: paste those lines",
        ),
        (
            r"Failed to create (?:a )?(?:TMA descriptor|tensor ?map)",
            "an encoder",
            "print every argument beside the result",
        ),
    )
)

# -- results of the driver ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """A CUresult as texts show it: number, name, and the driver's words for it."""

    code: int
    name: str
    words: str


RESULTS: Final[tuple[Result, ...]] = tuple(
    Result(code, f"CUDA_ERROR_{name}", words)
    for code, name, words in (
        (1, "INVALID_VALUE", "invalid argument"),
        (2, "OUT_OF_MEMORY", "out of memory"),
        (3, "NOT_INITIALIZED", "initialization error"),
        (4, "DEINITIALIZED", "driver shutting down"),
        (100, "NO_DEVICE", "no CUDA-capable device is detected"),
        (201, "INVALID_CONTEXT", "invalid device context"),
        (500, "NOT_FOUND", "named symbol not found"),
        (700, "ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
        (702, "LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
        (710, "ASSERT", "device-side assert triggered"),
        (714, "HARDWARE_STACK_ERROR", "hardware stack error"),
        (715, "ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"),
        (716, "MISALIGNED_ADDRESS", "misaligned address"),
        (717, "INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"),
        (718, "INVALID_PC", "invalid program counter"),
        (719, "LAUNCH_FAILED", "unspecified launch failure"),
        (801, "NOT_SUPPORTED", "operation not supported"),
        (999, "UNKNOWN", "unknown error"),
    )
)
_BY_CODE: Final = {result.code: result for result in RESULTS}
_BY_NAME: Final = {result.name: result for result in RESULTS}
_BY_WORDS: Final = {result.words: result for result in RESULTS}
#: An error of a kernel; every later call of the process returns it, an encode too.
STICKY: Final = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})

_RESULT_NAME = re.compile("|".join(sorted(_BY_NAME, key=len, reverse=True)))
_RESULT_WORDS = re.compile("|".join(map(re.escape, sorted(_BY_WORDS, key=len, reverse=True))))
_RESULT_CODE = re.compile(
    r"(?:TMA descriptor|TMA desc|tensor ?map|[Tt]ensor map|TensorMapEncode\w*|CUresult)"
    r"(?: [A-Za-z_]\w*| \d{1,3}(?=:))?(?:,? ?(?:error code|code|failed|returned|error|result))*"
    r"[ ,:=(]{1,3}(?P<code>\d{1,3})(?![\w.])"
)


def results_of(text: str) -> list[Result]:
    """Give the driver's results that a text shows, each once, in the order of the text.

    >>> [r.code for r in results_of("Failed to initialize the TMA descriptor 700 ... misaligned address")]
    [700, 716]
    """
    found: list[tuple[int, Result]] = []
    for match in _RESULT_CODE.finditer(text):
        result = _BY_CODE.get(int(match["code"]))
        if result is not None:
            found.append((match.start(), result))
    found += [(m.start(), _BY_NAME[m[0]]) for m in _RESULT_NAME.finditer(text)]
    found += [(m.start(), _BY_WORDS[m[0]]) for m in _RESULT_WORDS.finditer(text)]
    return list(dict.fromkeys(result for _, result in sorted(found, key=lambda item: item[0])))


def sticky_numbers(text: str) -> list[Result]:
    """Give the sticky codes that stand by themselves in a text whose order cannot be trusted."""
    codes = dict.fromkeys(int(n) for n in re.findall(r"(?<![\w.])\d{3}(?![\w.])", text))
    return [_BY_CODE[code] for code in codes if code in STICKY]
