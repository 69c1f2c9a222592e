"""What a GPU can do, as a value: rules ask a `Target`, never a device."""

from __future__ import annotations

from dataclasses import dataclass

from tma_dlpack.types.coerce import shown, text_of
from tma_dlpack.types.errors import refusal

__all__ = ["DEFAULT_TARGET", "TARGETS", "Target"]

#: Compute capability for which the 128 bytes have been measured (H200, driver 580.159.04).
MEASURED_CAPABILITY = (9, 0)

#: Those whose layout of tiled maps is derived from ptxas 13.0's code of ``tensormap.replace``.
DERIVED_CAPABILITIES = frozenset({(10, 0), (10, 3), (10, 7), (11, 0), (12, 0), (12, 1)})


def _is_int(value: object, low: int, end: int) -> bool:
    return type(value) is int and low <= value < end


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU as far as tensor maps are concerned.

    Parameters
    ----------
    compute_capability : tuple of two int
        Such as ``(9, 0)``.
    max_smem_bytes : int
        Shared memory per block after opt-in, bytes (``sharedMemPerBlockOptin``).
    driver_version : int or None
        ``cuDriverGetVersion``, such as 13000; None where no driver was asked.
    multiprocessors : int or None
        Number of SMs; None where no device was asked.

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

    def __post_init__(self) -> None:
        """Refuse what is no compute capability, no size, no version or no number of SMs."""
        pair = self.compute_capability
        if type(pair) is not tuple or len(pair) != 2 or not all(_is_int(n, 0, 100) for n in pair):
            found = f"compute_capability is {shown(pair)}"
            raise refusal("compute_capability", found, "be a pair of small integers", "pass (9, 0)")
        if not _is_int(self.max_smem_bytes, 1, 1 << 31):
            found = f"max_smem_bytes is {shown(self.max_smem_bytes)}"
            raise refusal("max_smem_bytes", found, "be a positive int", "pass 232_448 for sm_90")
        for name in ("driver_version", "multiprocessors"):
            value = getattr(self, name)
            if value is not None and not _is_int(value, 0, 1 << 31):
                found = f"{name} is {shown(value)}"
                raise refusal(name, found, "be an int, or None where it is not known", "pass None")

    @classmethod
    def of(cls, target: Target | str) -> Target:
        """Turn a preset's name (``"sm_90"``, ``"sm_90a"``) into the preset; leave a Target as is.

        Raises `TmaPreconditionError` for anything else.
        """
        if issubclass(type(target), Target):
            return target  # type: ignore[return-value]
        preset = _BY_NAME.get(text_of(target) or "")
        if preset is None:
            raise refusal(
                "target",
                f"target={shown(target)}",
                f"be {', '.join(TARGETS)} or a Target",
                "pass target='sm_90', or tma.Target((major, minor), max_smem_bytes)",
            )
        return preset

    @property
    def name(self) -> str:
        """``sm_90`` and the like."""
        return "sm_{}{}".format(*self.compute_capability)

    @property
    def has_tma(self) -> bool:
        """Whether there is a Tensor Memory Accelerator at all (9.0 and later)."""
        return self.compute_capability >= (9, 0)

    @property
    def is_sm_9x(self) -> bool:
        """Whether atom swizzles and packed types are missing (libcu++ asks the major version)."""
        return self.compute_capability[0] == 9

    @property
    def has_scatter4(self) -> bool:
        """Whether there is tile::scatter4: on 10.0 and later, but ptxas refuses it on 12.x."""
        return self.compute_capability >= (10, 0) and self.compute_capability[0] != 12

    @property
    def has_derived_layout(self) -> bool:
        """Whether tiled maps can be read, by a layout derived from the compiler's code.

        ptxas 13.0 writes the same bits for ``tensormap.replace`` on these as on sm_90; not
        measured. Encoding stays the driver's.
        """
        return self.compute_capability in DERIVED_CAPABILITIES

    @property
    def derived_names(self) -> str:
        """The names of all targets whose layout is derived."""
        return ", ".join("sm_{}{}".format(*pair) for pair in sorted(DERIVED_CAPABILITIES))

    @property
    def has_model(self) -> bool:
        """Whether the 128 bytes can be made without a driver, from the measured layout."""
        return self.compute_capability == MEASURED_CAPABILITY

    def __str__(self) -> str:
        """Give ``sm_90`` and the like."""
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

#: What a host tensor is described for unless told otherwise.
DEFAULT_TARGET = TARGETS["sm_90"]

#: Those names and the names of the architecture-specific code: sm_90a; sm_100a and sm_100f.
_BY_NAME = {
    name + suffix: preset
    for name, preset in TARGETS.items()
    for suffix in ("", "a", "f")
    if not (suffix == "f" and preset.is_sm_9x)
}
