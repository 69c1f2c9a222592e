"""`Target`: the facts about a GPU that rules need, so that they never ask a device."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.tables.coerce import shown, text_of
from tma_dlpack.tables.errors import argument_error, bad_value

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
