"""Limits of the engine and the driver, and `Target`: the facts about a GPU that rules need.

Rules read these facts, so that they never ask a device. Limits whose names end in `END` are the
first value that is too large. Source: CUDA driver API, cuTensorMapEncodeTiled and
cuTensorMapEncodeIm2col. The limits marked as measured are from an H200 (driver 580.159.04,
2026-11-20).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.errors import argument_error, bad_value

MAP_BYTES = 128  # of a CUtensorMap; its address field comes first
ADDRESS_BYTES = 8
ALIGNMENT_BYTES = 128  # alignas of CUtensorMap in CUDA 13's cuda.h (64 in the documents)

MAX_RANK = 5
MIN_RANK_IM2COL = 3
MIN_RANK_INTERLEAVED = 3

ADDRESS_END = 1 << 57  # measured
STRIDE_BYTES_END = 1 << 40
MAX_DIM = 1 << 32

MAX_BOX = 256  # entries of a box, and channels per pixel
MAX_PIXELS = 1024
MAX_ELEM_STRIDE = 8
#: A ragged map (make.recipes has the arithmetic): the extent of the ragged dimension, the extent of
#: the two dimensions that are added, and the smallest stride that is too large, in elements: its
#: product with RAGGED_EXTENT is 2^64.
RAGGED_EXTENT = 1 << 30
RAGGED_EXTRA_EXTENT = 0x7FFF_0000
RAGGED_STRIDE_END = 1 << 34

CORNER_ENDS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}  # rank -> a corner entry lies in [-end, end)
MAX_BOX_BYTES = 233_472  # 228 KB; measured
INNER_BYTES = 16  # a row of a box is a multiple of it
PACKED_GROUP = 16  # values of a packed type in one chunk of shared memory
PADDED_INNER_VALUES = 128  # a row of a box, for the two packed types that are padded to 16 bytes

#: nvbug 5736804: on compute capability 10.0 and later, drivers before this one set bit 85, the
#: allocation class (tables/bits.py), in maps whose memory is smaller than this and not dense,
#: and copies through them can fault. Source: release notes of driver 595.71.05; documented, not
#: measured.
BIT_85_MENDED_IN = 13020  # CUDA 13.2, as cuDriverGetVersion returns it
BIT_85_SMALL_BYTES = 128 * 1024

DLPACK_VERSION = (1, 3)  # the highest that is read

WIDE_SWIZZLES = 0b001_1100  # of im2col-wide maps: bit i for TmaSwizzle i

#: Bytes of one row of the pattern, by TmaSwizzle; a box must not be wider.
SWIZZLE_SPAN_BYTES = (0, 32, 64, 128, 128, 128, 128)

#: CUresults that are an error of a kernel: every later call of the process returns them.
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})
HOW_TO_FIND = (
    "Run the program again with CUDA_LAUNCH_BLOCKING=1, so that the failing launch itself raises, "
    "or under compute-sanitizer, which names the kernel and the access."
)

# --- Targets ------------------------------------------------------------------------------------

#: Where the layout of the 128 bytes is from, for sm_90 and for the targets with a derived layout.
PROVENANCE = "measured on an NVIDIA H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; not published"
DERIVED = "derived from ptxas 13.0 and maps of CuTe DSL 4.8.1, not measured"

#: Features of a GPU, as expressions of its compute capability. The generator prints them in C.
COLUMNS: dict[str, str] = {
    "has_tma": "major >= 9",
    "is_sm_9x": "major == 9",
    "has_wide": "major >= 10",
    "has_scatter4": "major >= 10 and major != 12",
    "has_model": "major == 9 and minor == 0",
    "has_derived_layout": "major == 10 and (minor == 0 or minor == 3 or minor == 7) "
    "or major == 11 and minor == 0 or major == 12 and minor <= 1",
}


@functools.cache
def _columns(compute_capability: tuple[int, int]) -> dict[str, bool]:
    major, minor = compute_capability
    names = {"major": major, "minor": minor}
    return {name: bool(eval(text, {}, names)) for name, text in COLUMNS.items()}


def _column() -> Any:
    return field(init=False, compare=False, repr=False)


def _is_int(value: object, low: int, end: int) -> bool:
    return type(value) is int and low <= value < end


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU that a map is for: compute capability, shared memory, driver version.

    Pass one, or a preset's name such as ``"sm_90"``, as `target=`; `TARGETS` has the presets.

    Parameters
    ----------
    compute_capability : tuple of two int
        Such as ``(9, 0)``.
    max_smem_bytes : int
        Shared memory per block after opt-in, bytes (``sharedMemPerBlockOptin``).
    driver_version : int or None
        As ``cuDriverGetVersion`` gives it, such as 13000; None if not known.
    multiprocessors : int or None
        Number of SMs; None if not known.

    Attributes
    ----------
    has_tma : bool
        Whether the GPU has a Tensor Memory Accelerator (9.0 and later).
    is_sm_9x : bool
        Whether it is 9.x, without atom swizzles and packed types (as libcu++ decides).
    has_wide : bool
        Whether it has instructions for im2col-wide maps: 10.0 and later.
    has_scatter4 : bool
        Whether it has tile::scatter4: 10.0 and later, except 12.x, where ptxas refuses it.
    has_model : bool
        Whether maps can be encoded without a driver, by the measured layout (sm_90 only; H200,
        driver 580.159.04); so are the driver's own rules.
    has_derived_layout : bool
        Whether tiled maps can be decoded with a layout derived from the compiler: the code that
        ptxas 13.0 generates for ``tensormap.replace`` writes the same bits on these GPUs as on
        sm_90; not measured. Only the driver encodes maps for them.

    Raises
    ------
    TmaPreconditionError
        If an argument is not as above.

    Examples
    --------
    >>> Target((9, 0), 232_448).name
    'sm_90'
    >>> TARGETS["sm_120"].max_smem_bytes
    101376
    """

    compute_capability: tuple[int, int]
    max_smem_bytes: int = 232_448
    driver_version: int | None = None
    multiprocessors: int | None = None
    has_tma: bool = _column()
    is_sm_9x: bool = _column()
    has_wide: bool = _column()
    has_scatter4: bool = _column()
    has_model: bool = _column()
    has_derived_layout: bool = _column()

    def __post_init__(self) -> None:
        """Refuse arguments of the wrong type or range; fill the columns."""
        pair = self.compute_capability
        if type(pair) is not tuple or len(pair) != 2 or not all(_is_int(n, 0, 100) for n in pair):
            raise bad_value(
                "compute_capability", pair, "be a pair of small integers", "pass (9, 0)"
            )
        if not _is_int(self.max_smem_bytes, 1, 1 << 31):
            fix = "pass 232_448 for sm_90"
            raise bad_value("max_smem_bytes", self.max_smem_bytes, "be a positive int", fix)
        for name in ("driver_version", "multiprocessors"):
            value = getattr(self, name)
            if value is not None and not _is_int(value, 0, 1 << 31):
                raise bad_value(
                    name, value, "be an int, or None where it is not known", "pass None"
                )
        for name, value in _columns(pair).items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, target: Target | str) -> Target:
        """Return the preset of a name, such as ``"sm_90"`` or ``"sm_90a"``, or the Target itself.

        Raises `TmaPreconditionError` for anything else.
        """
        if issubclass(type(target), Target):
            return target  # type: ignore[return-value]
        preset = PRESETS.get(text_of(target) or "")
        if preset is None:
            fix = "pass target='sm_90', or tma.Target((major, minor), max_smem_bytes)"
            must = f"be {', '.join(TARGETS)} or a Target"
            if _BEFORE_TMA.fullmatch(text_of(target) or ""):
                must += "; TMA needs Hopper (sm_90) or later"
            raise argument_error("target", f"target={shown(target)}", must, fix)
        return preset

    @property
    def name(self) -> str:
        """Its name, such as ``sm_90``."""
        return "sm_{}{}".format(*self.compute_capability)

    def __str__(self) -> str:
        """Return the name, such as ``sm_90``."""
        return self.name


#: The presets that `target=` takes by name. Shared memory: CUDA C++ Programming Guide, technical
#: specifications per compute capability (227 KB, and 99 KB on 12.x); of sm_107 CUTLASS's arch.h
#: (327 KB).
TARGETS: dict[str, Target] = {
    "sm_90": Target((9, 0), 232_448),
    "sm_100": Target((10, 0), 232_448),
    "sm_103": Target((10, 3), 232_448),
    "sm_107": Target((10, 7), 334_848),
    "sm_110": Target((11, 0), 232_448),
    "sm_120": Target((12, 0), 101_376),
    "sm_121": Target((12, 1), 101_376),
}

_BEFORE_TMA = re.compile(r"(?:sm|compute)_[1-8]\d")

#: The target of host tensors without `target=`.
DEFAULT_TARGET = TARGETS["sm_90"]

#: The presets by name, including the names of architecture-specific code: sm_90a, sm_100a, sm_100f.
PRESETS = {
    name + suffix: preset
    for name, preset in TARGETS.items()
    for suffix in ("", "a", "f")
    if not (suffix == "f" and preset.is_sm_9x)
}

#: The presets whose layout of tiled maps is derived, in words.
DERIVED_NAMES = ", ".join(name for name, preset in TARGETS.items() if preset.has_derived_layout)
