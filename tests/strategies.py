"""Requests as values, and what hypothesis draws them from.

A `Spec` is a request in the driver's words and order (index 0 innermost, strides in bytes). It can
be put through every door: a `make_*` call on a described tensor, or a `driver_encode_*` mirror.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tma_dlpack.checks.parse import read_call, read_driver_call
from tma_dlpack.checks.report import Report
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import Device, TensorView, canonical_strides
from tma_dlpack.make.build import check_view
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.targets import Target

ADDRESS = 0x7F00_0000_0000
CPU = Device(1, 0)

#: A DLPack type of each map type: the one that libcu++ maps to it, where there is one.
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
    """Describe a tensor: row-major, strides in elements, contiguous where they are left out."""
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
    """The arguments of make_tma_descriptor after the tensor."""
    return {"box_sizes": box_sizes} | TILED_OPTIONS | options


def im2col(lower, upper, channels, pixels, **options):
    """The arguments of make_im2col_descriptor after the tensor."""
    return {
        "pixel_box_lower_corner": lower,
        "pixel_box_upper_corner": upper,
        "channels_per_pixel": channels,
        "pixels_per_column": pixels,
    } | IM2COL_OPTIONS | options  # fmt: skip


def wide(lower, upper, channels, pixels, **options):
    """The arguments of make_im2col_wide_descriptor after the tensor."""
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
    """A way in: a kind of map, the set of rules that holds there, and the target."""

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
    """A request in the driver's words; the defaults are accepted by every set of rules."""

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
        """Give the request that it makes through a door."""
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

EXTENTS = st.sampled_from(
    (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 32, 33, 64, 96, 100, 128, 255, 256, 257, 300, 1024, 4096)
)
ODD_EXTENTS = st.one_of(
    EXTENTS, st.sampled_from((0, 1 << 31, (1 << 32) - 1, 1 << 32, 1 + (1 << 32)))
)

MAPPED_DTYPES = (
    (1, 8), (1, 16), (1, 32), (0, 32), (1, 64), (0, 64), (2, 16), (2, 32), (2, 64), (4, 16),
    (6, 8), (7, 8), (10, 8), (12, 8), (14, 8), (17, 4, 1), (17, 4, 2), (17, 4, 16), (1, 4, 16),
)  # fmt: skip
ODD_DTYPES = ((0, 8), (0, 16), (5, 64), (5, 128), (2, 32, 2), (2, 128), (15, 6), (1, 4), (42, 8))

SM_100 = Target((10, 0), 232_448)
TARGETS = st.sampled_from(
    (None, None, "sm_90", "sm_100", "sm_103", "sm_120", Target((9, 0), 16_384), SM_100)
)


@st.composite
def fine_views(draw, dtypes=MAPPED_DTYPES, min_rank=1, max_rank=5, max_extent=4096):
    """Tensors that some request on sm_100 accepts: aligned, nested, in range."""
    dtype = DLDataType(*draw(st.sampled_from(dtypes)))
    rank = draw(st.integers(min_rank, max_rank))
    shape = [draw(EXTENTS.filter(lambda n: n <= max_extent)) for _ in range(rank)]
    if dtype.bits == 4:
        shape[-1] *= 2
    align_bits = 8 * draw(st.sampled_from((16, 32)))
    strides = [1]
    for n in shape[:0:-1]:
        span_bits = n * strides[0] * dtype.itemsize_bits
        bits = draw(st.sampled_from((span_bits, span_bits, 2 * span_bits, 0)))
        bits = -(-bits // align_bits) * align_bits
        if bits % dtype.itemsize_bits:
            bits = -(-bits // (align_bits * dtype.itemsize_bits)) * align_bits * dtype.itemsize_bits
        strides.insert(0, bits // dtype.itemsize_bits if bits < 8 << 40 else 0)
    address = ADDRESS + draw(st.sampled_from((0, 16, 32, 64)))
    drawn = view(tuple(shape), dtype, strides, address)
    assume(all(stride * dtype.itemsize_bits < 8 << 40 for stride in drawn.strides))
    return drawn


@st.composite
def odd_views(draw):
    """Tensors of any kind, most of them broken in some way."""
    dtype = draw(st.sampled_from(MAPPED_DTYPES + ODD_DTYPES))
    rank = draw(st.integers(0, 7))
    shape = tuple(draw(ODD_EXTENTS) for _ in range(rank))
    strides = draw(
        st.one_of(
            st.none(),
            st.tuples(*[st.sampled_from((0, 1, 2, 4, 8, 16, 64, 100, 4096, 1 << 40))] * rank),
        )
    )
    address = draw(st.sampled_from((ADDRESS, ADDRESS + 4, ADDRESS + 16, 0, 16, 1 << 57)))
    return view(shape, dtype, strides, address)


def words(enum):
    """Members, names and values of an enum, and what is none."""
    fine = st.sampled_from(list(enum)).flatmap(
        lambda m: st.sampled_from((m, m.name, m.value, str(m.name)))
    )
    return st.one_of(fine, fine, fine, st.sampled_from(("bytes", "", -1, 99, None, 1.0, True)))


def sizes(rank):
    """Lists for the entries of a box or elem_strides, most of the right length."""
    entries = st.one_of(EXTENTS, st.sampled_from((-1, 0, 9, 6, 12, 1 << 40, 1 << 70)))
    right = st.lists(entries, min_size=rank, max_size=rank)
    return st.one_of(right, right, right.map(tuple), st.lists(entries, max_size=7))


def common_options(rank, rules):
    """Arguments that all kinds of maps share, broken or not."""
    return {
        "elem_strides": st.one_of(
            st.none(), st.lists(st.integers(-1, 9), min_size=rank, max_size=rank), sizes(rank)
        ),
        "interleave_layout": st.one_of(st.just("none"), words(TmaInterleaveLayout)),
        "swizzle": words(TmaSwizzle),
        "l2_fetch_size": words(TmaL2FetchSize),
        "oobfill": words(TmaOobFill),
        "data_type": st.one_of(st.none(), st.none(), words(TensorMapDataType)),
        "rules": st.sampled_from((*rules, *rules, "cuda", None)),
        "target": st.one_of(TARGETS, st.sampled_from(("sm_80", Target((8, 0)), 90))),
    }


def options_of(kind, rank):
    """The arguments of a `make_*` call, by name, each broken now and then."""
    rank = min(rank, 8)
    if kind == "tiled":
        return {"box_sizes": sizes(rank)} | common_options(rank, ("libcu++", "driver"))
    counts = st.one_of(EXTENTS, st.integers(-1, 1100))
    options = {"channels_per_pixel": counts, "pixels_per_column": counts}
    options |= common_options(rank, ("documented", "driver"))
    offsets = st.sampled_from((0, 0, -1, 1, 3, -3, 15, -16, -17, 200, -200, 40_000, -40_000))
    if kind == "im2col":
        corner = st.lists(offsets, min_size=max(0, rank - 2), max_size=max(0, rank - 2))
        corner = st.one_of(corner, corner, st.lists(offsets, max_size=4))
        return options | {"pixel_box_lower_corner": corner, "pixel_box_upper_corner": corner}
    return options | {
        "lower_corner_width": offsets,
        "upper_corner_width": offsets,
        "mode": st.sampled_from(("w", "w128", 0, 1, 2, "x")),
    }


KINDS = st.sampled_from(("tiled", "im2col", "im2col_wide"))


#: What a refusal says at its end where only libcu++'s rules refuse.
LIFTED = "; or pass rules='driver': the driver itself accepts this"


def rules_of(report: Report) -> list[str]:
    """Give the rules that a report says are broken, in its order."""
    return [violation.rule for violation in report.violations]
