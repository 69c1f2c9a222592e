"""Limits of the TMA engine and of the driver, and `Target`: the facts about a GPU that rules need.

Rules read a `Target` and never query a device. A limit whose name ends in `END` is the smallest
value that is too large. Source of the limits: CUDA driver API, cuTensorMapEncodeTiled and
cuTensorMapEncodeIm2col. Limits with the comment "measured" were measured on an H200 (driver
580.159.04, 2026-11-20).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.errors import argument_error, bad_value

MAP_BYTES = 128  # size of a CUtensorMap
ADDRESS_BYTES = 8  # size of the address field, which is at the start of a CUtensorMap
ALIGNMENT_BYTES = 128  # alignas of CUtensorMap in cuda.h of CUDA 13; the documents say 64

MAX_RANK = 5
MIN_RANK_IM2COL = 3
MIN_RANK_INTERLEAVED = 3

ADDRESS_END = 1 << 57  # measured
STRIDE_BYTES_END = 1 << 40
MAX_DIM = 1 << 32

MAX_BOX = 256  # limit of each extent of a box, and of channels per pixel
MAX_PIXELS = 1024
MAX_ELEM_STRIDE = 8
#: Constants of a ragged map (make.recipes has the arithmetic). RAGGED_EXTENT is the extent of the
#: ragged dimension. RAGGED_EXTRA_EXTENT is the extent of each of the two added dimensions.
#: RAGGED_STRIDE_END is the smallest stride, in elements, that is too large: its product with
#: RAGGED_EXTENT is 2^64.
RAGGED_EXTENT = 1 << 30
RAGGED_EXTRA_EXTENT = 0x7FFF_0000
RAGGED_STRIDE_END = 1 << 34

CORNER_ENDS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}  # rank -> end: -end <= entry of a corner < end
MAX_BOX_BYTES = 233_472  # 228 KB; measured
INNER_BYTES = 16  # the size of a row of a box must be a multiple of this
PACKED_GROUP = 16  # number of values of a packed type in a chunk of shared memory
PADDED_INNER_VALUES = 128  # values in a row of a box of an ALIGN16B type

#: nvbug 5736804: drivers older than BIT_85_MENDED_IN wrongly set bit 85 (the allocation class, see
#: tables/bits.py) of some maps. Copies with such maps can fault. The maps are for compute
#: capability 10.0 and later, and their tensor is not dense and spans fewer than BIT_85_SMALL_BYTES
#: bytes. Source: release notes of driver 595.71.05; documented, not measured.
BIT_85_MENDED_IN = 13020  # CUDA 13.2 as a number of cuDriverGetVersion
BIT_85_SMALL_BYTES = 128 * 1024

DLPACK_VERSION = (1, 3)  # the highest version that this package can read

WIDE_SWIZZLES = 0b001_1100  # bit i is set if im2col-wide maps may have the TmaSwizzle of value i

#: TmaSwizzle -> span in bytes. A row of a box must not be wider than the span; 0 means no limit.
SWIZZLE_SPAN_BYTES = (0, 32, 64, 128, 128, 128, 128)

#: The CUresults of failed kernels. After such a failure, every later call of the process returns
#: the same CUresult.
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 999})
HOW_TO_FIND = (
    "Run the program again with CUDA_LAUNCH_BLOCKING=1, so that the failing launch itself raises, "
    "or under compute-sanitizer, which names the kernel and the access."
)

# --- Targets ------------------------------------------------------------------------------------

#: The source of the layout of the 128 bytes: PROVENANCE for sm_90, DERIVED for the targets with a
#: derived layout.
PROVENANCE = "measured on an NVIDIA H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; not published"
DERIVED = "derived from ptxas 13.0 and maps of CuTe DSL 4.8.1, not measured"

#: Features of a GPU: name -> condition on its compute capability. `.packaging/generate.py` prints
#: the conditions in C.
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

    Pass a Target, or the name of a preset such as ``"sm_90"``, as `target=`. `TARGETS` has the
    presets.

    Parameters
    ----------
    compute_capability : tuple of two int
        Major and minor number, such as ``(9, 0)``.
    max_smem_bytes : int
        Maximum shared memory per block in bytes, after opt-in (``sharedMemPerBlockOptin``).
    driver_version : int or None
        The version that ``cuDriverGetVersion`` returns, such as 13000; None if it is not known.
    multiprocessors : int or None
        Number of SMs; None if it is not known.

    Attributes
    ----------
    has_tma : bool
        Whether the GPU has a Tensor Memory Accelerator (9.0 and later).
    is_sm_9x : bool
        Whether the compute capability is 9.x. Such a GPU has no atom swizzles and no packed types;
        libcu++ uses the same condition.
    has_wide : bool
        Whether the GPU has instructions for im2col-wide maps (10.0 and later).
    has_scatter4 : bool
        Whether the GPU has tile::scatter4: 10.0 and later, except 12.x, for which ptxas refuses
        the instruction.
    has_model : bool
        Whether maps can be encoded without a driver, in the measured layout (sm_90 only). The
        layout and the driver's own rules were measured on an H200, driver 580.159.04.
    has_derived_layout : bool
        Whether tiled maps can be decoded with a layout that is derived from the compiler, not
        measured. The code that ptxas 13.0 generates for ``tensormap.replace`` writes the same bits
        for these GPUs as for sm_90. Only the driver encodes maps for these GPUs.

    Raises
    ------
    TmaPreconditionError
        If an argument has a wrong type or is out of range.

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
        """Refuse arguments of the wrong type or range; compute the features in `COLUMNS`."""
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
        """Return a Target unchanged, or the preset of a name such as ``"sm_90"`` or ``"sm_90a"``.

        Raises `TmaPreconditionError` for any other argument.
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
        """Name of the target, such as ``sm_90``."""
        return "sm_{}{}".format(*self.compute_capability)

    def __str__(self) -> str:
        """Return the name, such as ``sm_90``."""
        return self.name


#: The presets that `target=` accepts by name. Source of the sizes of shared memory: CUDA C++
#: Programming Guide, technical specifications per compute capability (227 KB, and 99 KB on 12.x);
#: for sm_107, arch.h of CUTLASS (327 KB).
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

#: The target for host tensors if `target=` is omitted.
DEFAULT_TARGET = TARGETS["sm_90"]

#: The presets by name. Names of architecture-specific and family-specific code are included, such
#: as sm_90a, sm_100a and sm_100f.
PRESETS = {
    name + suffix: preset
    for name, preset in TARGETS.items()
    for suffix in ("", "a", "f")
    if not (suffix == "f" and preset.is_sm_9x)
}

#: The names of the presets with a derived layout, as text for messages.
DERIVED_NAMES = ", ".join(name for name, preset in TARGETS.items() if preset.has_derived_layout)
