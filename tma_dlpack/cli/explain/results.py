"""What the driver returned, and encodes whose arguments are not printed where they fail."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
            "it prints none; the dump of --xla_dump_to has TmaDescriptor{...}, which can be read",
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
            r"global_stride \(\d+\) must be (?:a multiple of the previous stride|>= global_dim)",
            "XLA",
            "this is a rule of its own, which the driver does not ask",
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
#: An error of a kernel; every later call of the process returns it, an encode too.
STICKY: Final = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})

_RESULT_NAME = re.compile("|".join(sorted(_BY_NAME, key=len, reverse=True)))
#: Words that only CUDA says; others count where the line speaks of CUDA or of a map.
_OF_CUDA_ALONE = frozenset({700, 702, 710, 714, 715, 717, 719})
_ABOUT = r"(?:CUDA|cuda|Triton Error|descriptor|[Tt]ensor ?[Mm]ap)[^\n]{0,120}?\b"
_BY_WORDS: Final = {result.words: result for result in RESULTS}
_LONGEST_FIRST = "|".join(map(re.escape, sorted(_BY_WORDS, key=len, reverse=True)))
_RESULT_WORDS = re.compile(rf"(?P<about>{_ABOUT})?(?P<words>{_LONGEST_FIRST})")
_RESULT_CODE = re.compile(
    r"(?:TMA descriptor|TMA desc|tensor ?map|[Tt]ensor map|TensorMapEncode\w*|CUresult)"
    r"(?: [A-Za-z_]\w*| \d{1,3}(?=:))?(?:,? ?(?:error code|code|failed|returned|error|result))*"
    r"[ ,:=(]{1,3}(?P<code>\d{1,3})(?![\w.])"
)


def results_of(text: str) -> list[Result]:
    """Give the driver's results that a text shows, each once, in the order of the text.

    >>> [r.code for r in results_of("the TMA descriptor 700 ... misaligned address")]
    [700, 716]
    """
    found: list[tuple[int, Result]] = []
    for match in _RESULT_CODE.finditer(text):
        code = int(match["code"])
        if code in _BY_CODE:
            found.append((match.start(), _BY_CODE[code]))
    found += [(m.start(), _BY_NAME[m[0]]) for m in _RESULT_NAME.finditer(text)]
    for match in _RESULT_WORDS.finditer(text):
        result = _BY_WORDS[match["words"]]
        if match["about"] or result.code in _OF_CUDA_ALONE:
            found.append((match.start(), result))
    return list(dict.fromkeys(result for _, result in sorted(found, key=lambda item: item[0])))


def sticky_numbers(text: str) -> list[Result]:
    """Give the sticky codes that stand by themselves in a text whose order cannot be trusted."""
    codes = dict.fromkeys(int(n) for n in re.findall(r"(?<![\w.])\d{3}(?![\w.])", text))
    return [_BY_CODE[code] for code in codes if code in STICKY]
