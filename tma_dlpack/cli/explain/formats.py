"""Who prints which words: the table of formats, and how a block becomes the driver's arguments.

The words themselves are in `names`. A row says what its printer does otherwise than the driver: an
array that begins with the size of an element, arrays padded to five, strides in elements, arguments
that are passed and not printed. Read in the projects' own sources on 2026-11-21; a block that fits
no row is read as the driver's own words are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.cli.explain.blocks import Block, Field
from tma_dlpack.cli.explain.printed import Entries, PrintedArguments
from tma_dlpack.cli.explain.values import (
    Pointer,
    data_type_of_word,
    interleave_of,
    l2_promotion_of,
    oob_fill_of,
    swizzle_of,
)
from tma_dlpack.encoding.arguments import MapKind
from tma_dlpack.types.dtypes import DATA_TYPES
from tma_dlpack.types.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)

__all__ = ["FORMATS", "Format", "format_of", "printed_arguments"]

@dataclass(frozen=True, slots=True)
class Format:
    """How one project prints the arguments of an encode.

    Attributes
    ----------
    name : str
    is_one : callable (block, words) -> bool
        Whether a block has this form; `words` are its words as printed.
    leading : bool
        Whether the first printed stride is the size of an element, which the driver does not read.
    padded : bool
        Whether arrays have five entries whatever the rank.
    elements : bool
        Whether strides count elements.
    implied : mapping
        What the code passes and does not print.
    source : str
        Where its words stand.
    """

    name: str
    is_one: Callable[[Block, frozenset[str]], bool]
    leading: bool = False
    padded: bool = False
    elements: bool = False
    implied: Mapping[str, int] = field(default_factory=dict)
    source: str = ""


_CUTLASS_WORDS = frozenset(
    "format dim gmem_address globalDim globalStrides boxDim elementStrides interleave swizzle "
    "l2Promotion oobFill tensorDataType tensorRank".split()
)


def _is_cutlass(block: Block, words: frozenset[str]) -> bool:
    if not words <= _CUTLASS_WORDS or "globalDim" not in words | {"globalStrides", "boxDim"} & words:
        return False
    spaced = sum(f.separator == " " for f in block.fields.values())
    return "gmem_address" in words or 2 * spaced > len(block.fields)


#: Rows are tried in this order.
FORMATS: tuple[Format, ...] = (
    Format(
        "tma_dlpack.h",
        lambda b, w: {"tensorDataType", "globalDim"} <= w and "uTensorMapEncode" in b.heading,
        source="include/tma_dlpack.h",
    ),
    Format(
        "TileLang",
        lambda b, w: bool({"globalStridesRaw", "cudaGlobalStrides"} & w),
        source="tile-ai/tilelang src/cuda/runtime.cc",
    ),
    Format(
        "CUTLASS",
        _is_cutlass,
        leading=True,
        padded=True,
        source="NVIDIA/cutlass include/cute/atom/copy_traits_sm90_tma.hpp",
    ),
    Format(
        "Triton",
        lambda b, w: "blockSize" in w or {"elemType", "elemSize"} <= w,
        implied={"interleave": 0, "l2_promotion": 2},
        source="triton-lang/triton third_party/nvidia/backend/driver.c",
    ),
    Format(
        "TensorRT-LLM and FlashInfer",
        lambda b, w: bool({"tmaFormat", "tileShapes", "tileStrides", "swizzleType"} & w),
        padded=True,
        implied={"interleave": 0, "l2_promotion": 2, "oob_fill": 0},
        source="flashinfer-ai/flashinfer include/flashinfer/trtllm/fmha/kernelParams.h",
    ),
    Format(
        "DeepGEMM",
        lambda b, w: {"global_memory", "shared_memory"} <= {x.lower() for x in w},
        elements=True,
        implied={"element_strides": 1, "interleave": 0, "l2_promotion": 3, "oob_fill": 0},
        source="deepseek-ai/DeepGEMM csrc/jit_kernels/impls/runtime_utils.hpp",
    ),
    Format(
        "ThunderKittens",
        lambda b, w: bool({"tma_format", "tma_dim", "tma_swizzle"} & w) and "gmem_shape" in w,
        padded=True,
        source="HazyResearch/ThunderKittens include/types/global/tma.cuh",
    ),
    Format(
        "kerutils (FlashMLA)",
        lambda b, w: "box_size" in w and bool({"swizzle_mode", "interleave_mode", "size"} & w),
        source="deepseek-ai/FlashMLA csrc/kerutils/include/kerutils/host/host.h",
    ),
    Format(
        "XLA",
        lambda b, w: "float_oob_fill" in w or "box_dims" in w and "element_size" in w,
        source="openxla/xla xla/stream_executor/gpu/tma_metadata.cc",
    ),
    Format(
        "nvFuser",
        lambda b, w: {"gmem_strides", "box_strides"} <= w,
        source="NVIDIA/Fuser csrc/tma.cpp",
    ),
)

_GENERAL = Format("", lambda b, w: True)
#: Words whose order and units are the driver's wherever they are printed.
_DRIVERS_OWN = frozenset({"globaldim", "globalstrides", "boxdim", "gmemprobshape", "gmemprobstride"})
_CUTLASS_ARRAY = "gmemprobstride"  # begins with the size of an element


def _words(block: Block) -> frozenset[str]:
    return frozenset(f.word for a, f in block.fields.items() if not a.startswith("unreadable"))


def format_of(block: Block) -> Format:
    """Give the row of the table that a block fits."""
    words = _words(block)
    return next((row for row in FORMATS if row.is_one(block, words)), _GENERAL)


def printed_arguments(block: Block) -> tuple[PrintedArguments, list[str]]:
    """Turn a block into the driver's arguments; give also what of it could not be read, and why."""
    row = format_of(block)
    notes: list[str] = []
    numbers = {a: f.value for a, f in block.fields.items() if isinstance(f.value, int)}
    kind = _kind(block)
    data_type, element_bytes = _type(block, numbers)
    dims = _entries(block, "global_dim", notes)
    strides, leading = _strides(block, row, notes)
    box = _entries(block, "box_dim", notes) if kind == "tiled" else None
    steps = _entries(block, "element_strides", notes)
    rank = numbers.get("rank")
    if rank is None and dims is not None:
        shape = _without_padding(dims, strides, box, leading) if row.padded else len(dims)
        rank = shape
    bits = _bits(data_type, element_bytes)
    if leading and strides and element_bytes is None and bits is None and strides[0]:
        element_bytes = strides[0]
        bits = element_bytes * 8
    order = _Order(rank, dims, strides, box, steps)
    order.drop_extra(leading, bits)
    if row.elements and not _is_bytes(block):
        order.scale(bits, notes)
    elif row is _GENERAL and not ({w.replace("_", "").lower() for w in _words(block)} & _DRIVERS_OWN):
        order.guess_free_turn(bits, block, notes)
    lengths = (("global_dim", "dims", 0), ("global_strides", "strides", 1))
    lengths += (("box_dim", "box", 0), ("element_strides", "steps", 0))  # type: ignore[assignment]
    for name, attribute, fewer in lengths:
        order.cut(name, attribute, fewer, notes)
    corners = {
        name: _entries(block, name, notes)
        for name in ("pixel_box_lower_corner", "pixel_box_upper_corner")
    }
    if kind == "im2col_wide":
        for name in corners:
            wide = numbers.get(f"{name}_width")
            corners[name] = corners[name] if wide is None else (wide,)
    elif rank is not None and rank > 2:
        corners = {n: c[: rank - 2] if c and len(c) >= rank - 2 else c for n, c in corners.items()}
    read = PrintedArguments(
        kind=kind,
        data_type=data_type,
        rank=rank,
        global_address=numbers.get("global_address"),
        global_dim=order.dims,
        global_strides=order.strides,
        box_dim=order.box,
        element_strides=order.steps,
        interleave=_option(block, "interleave", TmaInterleaveLayout, interleave_of),
        swizzle=_swizzle(block),
        l2_promotion=_option(block, "l2_promotion", TmaL2FetchSize, l2_promotion_of),
        oob_fill=_fill(block),
        channels_per_pixel=numbers.get("channels_per_pixel") if kind != "tiled" else None,
        pixels_per_column=numbers.get("pixels_per_column") if kind != "tiled" else None,
        element_bytes=element_bytes,
        printed_by=row.name,
        lines=(block.first_line, block.last_line),
        implied={n: v for n, v in row.implied.items() if n not in block.fields},
        **corners,  # type: ignore[arg-type]
    )
    return read, notes


def _kind(block: Block) -> MapKind:
    if "pixel_box_lower_corner_width" in block.fields or "im2colwide" in block.heading.lower():
        return "im2col_wide"
    column = {"channels_per_pixel", "pixels_per_column", "pixel_box_lower_corner"}
    return "im2col" if column & block.fields.keys() or "m2col" in block.heading else "tiled"


def _type(block: Block, numbers: Mapping[str, Any]) -> tuple[Any, int | None]:
    """Give the map's type, and the bytes of an element as printed."""
    size = numbers.get("element_bytes")
    shown = block.fields.get("data_type")
    if shown is None or not isinstance(shown.value, (int, str)):
        return None, size
    number = data_type_of_word(shown.value)
    return (None if number is None else _member(TensorMapDataType, number)), size


def _member(enum: Any, number: int) -> Any:
    return enum(number) if number in enum._value2member_map_ else number


def _option(block: Block, name: str, enum: Any, read: Callable[[Any], int | None]) -> Any:
    shown = block.fields.get(name)
    if shown is None or not isinstance(shown.value, (int, str)):
        return None
    number = read(shown.value)
    return None if number is None else _member(enum, number)


def _swizzle(block: Block) -> Any:
    """Give the swizzle; DeepGEMM prints its atom beside it, as a base of 32 bytes."""
    base = block.fields.get("swizzle_base")
    if base is not None and base.value == 32:
        return TmaSwizzle.bytes128_atom_32B
    return _option(block, "swizzle", TmaSwizzle, swizzle_of)


def _fill(block: Block) -> Any:
    """Give the fill; Triton's padding says the same: 1 is NaN."""
    fill = _option(block, "oob_fill", TmaOobFill, oob_fill_of)
    return fill if fill is not None else _option(block, "padding", TmaOobFill, oob_fill_of)


def _entries(block: Block, name: str, notes: list[str]) -> Entries | None:
    """Give a list as printed: at one place, or entry by entry as ``name[0] = 64``."""
    indexed = block.indexed.get(name)
    if indexed:
        return tuple(indexed.get(i) for i in range(max(indexed) + 1))
    shown: Field | None = block.fields.get(name)
    if shown is None or isinstance(shown.value, str):
        return None
    if isinstance(shown.value, Pointer):
        notes.append(
            f"{shown.word} shows an address ({shown.value.address:#x}) in place of the list: print "
            "its entries"
        )
        return None
    return shown.value if isinstance(shown.value, tuple) else None


def _strides(block: Block, row: Format, notes: list[str]) -> tuple[Entries | None, bool]:
    """Give the strides as printed, and whether the first is the size of an element."""
    strides = _entries(block, "global_strides", notes)
    raw = _entries(block, "raw_strides", notes)
    if strides is None and raw is not None:
        return raw, True
    shown = block.fields.get("global_strides")
    word = shown.word.replace("_", "").lower() if shown else ""
    return strides, row.leading or word == _CUTLASS_ARRAY


def _without_padding(dims: Entries, strides: Entries | None, box: Entries | None, lead: bool) -> int:
    """Count dimensions less the trailing ones of extent 1, stride 0 and box 1 that pad to five."""
    rank = len(dims)
    while rank > 1 and dims[rank - 1] == 1:
        at = rank - 1 if lead else rank - 2
        if strides and len(strides) > at and strides[at] or box and box[rank - 1 : rank] not in ((1,), ()):
            break
        rank -= 1
    return rank


def _bits(data_type: object, element_bytes: int | None) -> int | None:
    if isinstance(data_type, TensorMapDataType):
        return DATA_TYPES[data_type].element_bits
    return None if element_bytes is None else element_bytes * 8


def _is_bytes(block: Block) -> bool:
    """Say whether strides are in bytes where this printer mostly counts elements.

    Copies of DeepGEMM's line that print bytes have no comma before the size of an element.
    """
    size, swizzle = block.fields.get("element_bytes"), block.fields.get("swizzle")
    shown = block.fields.get("global_strides")
    if shown is not None and shown.unit.startswith("byte"):
        return True
    return bool(size and swizzle and size.follows not in ("", ",", "\n", ")"))


class _Order:
    """The lists of one printout on their way to the driver's order, units and lengths."""

    def __init__(
        self,
        rank: int | None,
        dims: Entries | None,
        strides: Entries | None,
        box: Entries | None,
        steps: Entries | None,
    ) -> None:
        self.rank, self.dims, self.strides, self.box, self.steps = rank, dims, strides, box, steps

    def drop_extra(self, leading: bool, bits: int | None) -> None:
        """Leave out a stride of dimension 0, which is the size of an element."""
        if self.strides is None or not self.strides:
            return
        as_many = self.rank is not None and len(self.strides) >= self.rank
        own = bits is not None and self.strides[0] == bits // 8 and as_many
        if leading and as_many or own and len(self.strides) == self.rank:
            self.strides = self.strides[1:]
        elif leading and self.dims is not None and len(self.strides) == len(self.dims):
            self.strides = self.strides[1:]

    def scale(self, bits: int | None, notes: list[str]) -> None:
        """Turn strides in elements into bytes."""
        if self.strides is None:
            return
        if bits is None:
            notes.append("strides are in elements, and the size of an element is not shown")
            self.strides = None
        else:
            self.strides = tuple(None if s is None else s * bits // 8 for s in self.strides)

    def guess_free_turn(self, bits: int | None, block: Block, notes: list[str]) -> None:
        """Turn lists that show by themselves that they are row-major, or in elements.

        They do where the strides have one entry per dimension with a 1 (or the size of an element)
        at the inner end, or where they are those of a dense tensor in one order and unit alone.
        Else they are taken as the driver's: innermost first, in bytes.
        """
        if self.strides is None or self.dims is None or None in self.strides + self.dims:
            return
        rank, strides = len(self.dims), self.strides
        shown = block.fields.get("global_strides")
        unit = shown.unit if shown else ""
        size = bits // 8 if bits else None
        if len(strides) == rank and rank > 1:
            inner = {1} if not size else {1, size}
            if strides[-1] in inner and strides[0] not in inner:
                self._reverse(strides[:-1][::-1])
                notes.append("lists are row-major here: the last stride is that of one element")
            elif strides[0] in inner:
                self.strides = strides[1:]
            else:
                return
            end = strides[-1] if strides[0] not in inner else strides[0]
            if unit.startswith("elem") or end == 1 and size != 1 and not unit.startswith("byte"):
                self.scale(bits, notes)
            return
        if unit.startswith("elem"):
            self.scale(bits, notes)
        elif size and len(strides) == rank - 1 and rank > 1:
            self._turn_dense(size, notes)

    def _turn_dense(self, size: int, notes: list[str]) -> None:
        assert self.dims is not None and self.strides is not None
        for turned, factor, said in (
            (False, 1, ""),
            (False, size, "strides count elements here: they are those of a dense tensor"),
            (True, 1, "lists are row-major here: the strides are those of a dense tensor"),
            (True, size, "lists are row-major and strides count elements here: a dense tensor"),
        ):
            dims = self.dims[::-1] if turned else self.dims
            strides = tuple(s * factor for s in self.strides[:: -1 if turned else 1] if s is not None)
            if strides == _dense(dims, size):
                if turned:
                    self._reverse(strides)
                self.strides = strides
                notes.extend([said] if said else [])
                return

    def _reverse(self, strides: Entries) -> None:
        self.strides = strides
        self.dims = self.dims[::-1] if self.dims else self.dims
        self.box = self.box[::-1] if self.box else self.box
        self.steps = self.steps[::-1] if self.steps else self.steps

    def cut(self, name: str, attribute: str, fewer: int, notes: list[str]) -> None:
        """Drop entries past the rank, as C does; a list that is too short is not readable."""
        values: Entries | None = getattr(self, attribute)
        if values is None or self.rank is None or not 1 <= self.rank <= 16:
            return
        count = self.rank - fewer
        if len(values) < count:
            shown = f"{len(values)} of {count} entries"
            notes.append(f"{name} shows {shown} for rank {self.rank}: the others are not known")
            values = (*values, *(None,) * (count - len(values))) if len(values) else None
        setattr(self, attribute, None if values is None else values[:count])


def _dense(dims: Entries, size: int) -> Entries:
    strides, step = [], size
    for extent in dims[:-1]:
        step *= extent or 0
        strides.append(step)
    return tuple(strides)
