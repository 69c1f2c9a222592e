"""Requests as values, and the strategies from which hypothesis draws them.

A `Spec` is a request with the driver's names and order (index 0 innermost, strides in bytes). A
Spec can become a `make_*` call on a described tensor, or a `driver_encode_*` call.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st
from random_requests import described

from tma_dlpack.checks.call import read_call, read_driver_call
from tma_dlpack.checks.report import Report
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import Device, TensorView, canonical_strides
from tma_dlpack.make.build import check_view
from tma_dlpack.tables.dtypes import NAMED_DTYPES, DLDataType, data_type_of
from tma_dlpack.tables.targets import Target

ADDRESS = 0x7F00_0000_0000
CPU = Device(1, 0)

#: Map type -> a DLPack type; if possible, a type that libcu++ maps to this map type.
DTYPES = {
    "UINT8": (1, 8),
    "UINT16": (1, 16),
    "UINT32": (1, 32),
    "INT32": (0, 32),
    "UINT64": (1, 64),
    "INT64": (0, 64),
    "FLOAT16": (2, 16),
    "FLOAT32": (2, 32),
    "FLOAT64": (2, 64),
    "BFLOAT16": (4, 16),
    "16U4_ALIGN8B": (17, 4, 2),
}


def view(shape, dtype=(2, 32), strides=None, address=ADDRESS, device=CPU, producer="torch.Tensor"):
    """Describe a tensor, row-major, with strides in elements; contiguous if strides are omitted."""
    dtype = DLDataType(*dtype)
    if strides is None:
        strides = []
        span = 1
        for n in reversed(shape):
            strides.insert(0, span)
            span *= max(n, 1)
    strides = canonical_strides(shape, strides, dtype.itemsize_bits)
    return TensorView(address, device, dtype, tuple(shape), strides, False, producer, None)


TILED_OPTIONS: dict[str, Any] = {
    "elem_strides": None,
    "interleave_layout": "none",
    "swizzle": "none",
    "l2_fetch_size": "none",
    "oobfill": "none",
    "data_type": None,
    "rules": "libcu++",
    "target": None,
}
IM2COL_OPTIONS = TILED_OPTIONS | {"rules": "documented"}
TILED_OPTIONS |= {"allow": (), "shape": None, "strides": None, "offset": 0}
TILED_OPTIONS |= {"split_inner": False, "ragged": None}
WIDE_OPTIONS = IM2COL_OPTIONS | {"swizzle": "bytes128", "mode": "w"}


def tiled(box_sizes, **options):
    """Return the arguments of make_tma_descriptor that follow the tensor."""
    return {"box_sizes": box_sizes} | TILED_OPTIONS | options


def im2col(lower, upper, channels, pixels, **options):
    """Return the arguments of make_im2col_descriptor that follow the tensor."""
    return {
        "pixel_box_lower_corner": lower,
        "pixel_box_upper_corner": upper,
        "channels_per_pixel": channels,
        "pixels_per_column": pixels,
    } | IM2COL_OPTIONS | options  # fmt: skip


def wide(lower, upper, channels, pixels, **options):
    """Return the arguments of make_im2col_wide_descriptor that follow the tensor."""
    return {
        "lower_corner_width": lower,
        "upper_corner_width": upper,
        "channels_per_pixel": channels,
        "pixels_per_column": pixels,
    } | WIDE_OPTIONS | options  # fmt: skip


def check(kind: str, tensor: TensorView, given: dict[str, Any]) -> Report:
    return check_view(kind, tensor, given)


# -- one request through every door ----------------------------------------------------------------


@dataclass(frozen=True)
class Door:
    """A kind of map, its set of rules, and the target."""

    kind: str
    rules: str
    mirror: bool
    target: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.rules}-{'mirror' if self.mirror else 'make'}"


DOORS = (
    Door("tiled", "libcu++", False, "sm_90"),
    Door("tiled", "driver", False, "sm_90"),
    Door("tiled", "documented", True, "sm_100"),
    Door("tiled", "measured", True, "sm_90"),
    Door("im2col", "documented", False, "sm_90"),
    Door("im2col", "measured", False, "sm_90"),
    Door("im2col", "documented", True, "sm_100"),
    Door("im2col", "measured", True, "sm_90"),
    Door("im2col_wide", "documented", False, "sm_100"),
    Door("im2col_wide", "measured", False, "sm_90"),
    Door("im2col_wide", "documented", True, "sm_100"),
    Door("im2col_wide", "measured", True, "sm_90"),
)


@dataclass(frozen=True)
class Spec:
    """A request with the driver's names. Every set of rules accepts the defaults."""

    kind: str
    data_type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    elem_strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    address: int = ADDRESS
    interleave: str = "none"
    swizzle: str = "none"
    oob: str = "none"
    rank: int | None = None
    innermost_stride: int = 1
    dtype: tuple[int, ...] | None = None
    asked: str | None = None
    target: Target | str | None = None
    split_inner: bool = False
    ragged: int | None = None

    def but(self, **changes: Any) -> Spec:
        return dataclasses.replace(self, **changes)

    def through(self, door: Door) -> Request:
        """Return the request of a call for a kind, a set of rules and a target."""
        target = Target.of(self.target or door.target)
        if door.mirror:
            return read_driver_call(door.kind, self._mirror_words(), target)
        tensor = self._view()
        return read_call(
            door.kind, tensor.at(0), tensor.address, self._make_words(door), target, False
        )

    def _options(self) -> dict[str, Any]:
        return {"swizzle": self.swizzle, "l2_promotion": 0, "oob_fill": self.oob}

    def _mirror_words(self) -> dict[str, Any]:
        return self._options() | {
            "tensor_data_type": self.asked or self.data_type,
            "tensor_rank": len(self.dims) if self.rank is None else self.rank,
            "global_address": self.address,
            "global_dim": self.dims,
            "global_strides": self.strides,
            "box_dim": self.box,
            "element_strides": self.elem_strides,
            "interleave": self.interleave,
            "pixel_box_lower_corner": self.lower,
            "pixel_box_upper_corner": self.upper,
            "pixel_box_lower_corner_width": self.lower[0] if self.lower else 0,
            "pixel_box_upper_corner_width": self.upper[0] if self.upper else 0,
            "channels_per_pixel": self.channels,
            "pixels_per_column": self.pixels,
            "mode": 0,
        }

    def _view(self) -> TensorView:
        dtype = DLDataType(*(self.dtype or DTYPES[self.data_type]))
        element_bits = {"16U4_ALIGN8B": 4, "16U4_ALIGN16B": 4, "16U6_ALIGN16B": 6}.get(
            self.asked or self.data_type, dtype.itemsize_bits
        )
        inner = self.dims[0] * element_bits // dtype.itemsize_bits
        strides = [stride * 8 // dtype.itemsize_bits for stride in self.strides]
        return TensorView(
            address=self.address,
            device=CPU,
            dtype=dtype,
            shape=(*self.dims[:0:-1], inner),
            strides=(*strides[::-1], self.innermost_stride),
            read_only=False,
            producer="torch.Tensor",
            owner=None,
        )

    def _make_words(self, door: Door) -> dict[str, Any]:
        given = {
            "elem_strides": self.elem_strides[::-1],
            "interleave_layout": self.interleave,
            "swizzle": self.swizzle,
            "l2_fetch_size": "none",
            "oobfill": self.oob,
            "data_type": self.asked,
            "rules": "driver" if door.rules == "measured" else door.rules,
            "target": self.target or door.target,
        }
        if self.kind == "tiled":
            added = {"split_inner": self.split_inner, "ragged": self.ragged}
            return given | added | {"box_sizes": self.box[::-1]}
        given |= {"channels_per_pixel": self.channels, "pixels_per_column": self.pixels}
        if self.kind == "im2col":
            corners = {"lower": self.lower[::-1], "upper": self.upper[::-1]}
            return given | {f"pixel_box_{k}_corner": v for k, v in corners.items()}
        return given | {
            "lower_corner_width": self.lower[0],
            "upper_corner_width": self.upper[0],
            "mode": "w",
        }


TILED_SPEC = Spec(
    "tiled", "FLOAT32", (64, 32, 8), (256, 8192), (1, 1, 1), box=(16, 8, 2), swizzle="bytes64"
)
IM2COL_SPEC = Spec(
    "im2col",
    "FLOAT16",
    (32, 14, 14, 2),
    (64, 896, 12544),
    (1, 1, 1, 1),
    lower=(-1, -1),
    upper=(-1, -1),
    channels=32,
    pixels=64,
)
WIDE_SPEC = Spec(
    "im2col_wide",
    "FLOAT16",
    (64, 14, 14, 2),
    (128, 1792, 25088),
    (1, 1, 1, 1),
    lower=(-1,),
    upper=(-1,),
    channels=64,
    pixels=64,
    swizzle="bytes128",
)

# -- what hypothesis draws from --------------------------------------------------------------------

MAPPED_DTYPES = tuple(t for t in NAMED_DTYPES.values() if data_type_of(t) is not None)
_EXTENTS = (-1, 0, 1, 9, 64, 100, 256, 257, 4096, 1 << 32, 1 << 40, 1 << 70)
_ODD_LISTS = tuple(_EXTENTS[first : first + count] for first in range(9) for count in (0, 2, 3, 7))
_ODD_CORNERS = ((), (0,), (-17, 15), (0, 200, -200), (40_000, -40_000, 0))
#: Argument -> values that are invalid or rarely valid. Enums have separate words.
_ODD = {
    **dict.fromkeys(("box_sizes", "elem_strides"), _ODD_LISTS),
    **dict.fromkeys(("pixel_box_lower_corner", "pixel_box_upper_corner"), _ODD_CORNERS),
    **dict.fromkeys(("lower_corner_width", "upper_corner_width"), (-40_000, -17, 15, 200)),
    **dict.fromkeys(("channels_per_pixel", "pixels_per_column"), _EXTENTS),
    "mode": ("w", "w128", 2, "x"),
    "rules": ("cuda", None),
    "target": ("sm_80", Target((8, 0)), 90),
}
_ODD_WORDS = ("bytes", "", -1, 99, None, 1.0, True)
#: The options that only some kinds of maps have, and that a fix may add.
_SELDOM = ("allow", "shape", "strides", "offset", "split_inner", "ragged")


class Drawn(NamedTuple):
    """A call for a described tensor with all arguments, and the seed of the call."""

    seed: int
    kind: str
    tensor: TensorView
    options: dict[str, Any]


def drawn(seed: int, kind: str | None = None) -> Drawn:
    """Return the call of a seed. In some calls an argument is unreadable or far from valid."""
    rng = random.Random(seed)
    kind, x, given = described(rng, kind=kind)
    options = {"tiled": TILED_OPTIONS, "im2col": IM2COL_OPTIONS, "im2col_wide": WIDE_OPTIONS}[kind]
    options = {k: v for k, v in (options | given).items() if k not in _SELDOM}
    if rng.random() < 0.5:
        name = rng.choice(sorted(options))
        options[name] = rng.choice(_ODD.get(name, _ODD_WORDS))
    strides = tuple(map(abs, x.strides))  # negative strides are refused earlier
    return Drawn(seed, kind, view(x.shape, x.dtype, strides, x.address), options)


def requests(kind: str | None = None) -> st.SearchStrategy[Drawn]:
    """Draw calls of one kind of map, or of all."""
    return st.integers(0, (1 << 64) - 1).map(lambda seed: drawn(seed, kind))


#: The end of a refusal's text if only libcu++'s rules refuse.
LIFTED = "; or pass rules='driver': the driver itself accepts this"


def rules_of(report: Report) -> list[str]:
    """Return the rules that a report names as broken, in its order."""
    return [violation.rule for violation in report.violations]
