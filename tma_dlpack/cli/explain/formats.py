"""Who prints which words: the table of formats, and how a block becomes the driver's arguments.

The names are in `names`. A row says where its project differs from the driver: an
array that begins with the size of an element, arrays padded to five, strides in elements, arguments
that are passed and not printed. Read in the projects' own sources on 2026-11-21; a block that fits
no row is read as the driver's own words are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack.cli.explain.blocks import Block, Field
from tma_dlpack.cli.explain.lists import Lists
from tma_dlpack.cli.explain.names import key_of
from tma_dlpack.cli.explain.printed import Entries, PrintedArguments
from tma_dlpack.cli.explain.values import (
    Pointer,
    data_type_of_word,
    interleave_of,
    l2_promotion_of,
    oob_fill_of,
    swizzle_of,
)
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)


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
        Whether arrays always have five entries, for every rank.
    elements : bool
        Whether strides count elements.
    implied : mapping
        What the code passes and does not print.
    order : tuple of str
        Its words in the order in which it prints them, where it prints a line each.
    source : str
        Where its words stand.
    """

    name: str
    is_one: Callable[[Block, frozenset[str]], bool]
    leading: bool = False
    padded: bool = False
    elements: bool = False
    implied: Mapping[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    source: str = ""


_HEAD = ("format", "tensorDataType", "dim", "tensorRank", "gmem_address", "globalDim")
_TAIL = ("elementStrides", "interleave", "swizzle", "l2Promotion", "oobFill")
_CUTLASS_ORDER = (*_HEAD, "globalStrides", "boxDim", *_TAIL)
_TILELANG_ORDER = (*_HEAD, "globalStridesRaw", "cudaGlobalStrides", "boxDim", *_TAIL)
_CUTLASS_WORDS = frozenset(_CUTLASS_ORDER)


def _is_cutlass(block: Block, words: frozenset[str]) -> bool:
    """Say whether it has CUTLASS's words, in lines without a sign between word and value."""
    if not words <= _CUTLASS_WORDS or not words & {"globalDim", "globalStrides", "boxDim"}:
        return False
    spaced = sum(f.separator == " " for f in block.fields.values())
    return bool(words & {"gmem_address", "format"}) or 2 * spaced > len(block.fields)


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
        order=_TILELANG_ORDER,
        source="tile-ai/tilelang src/cuda/runtime.cc",
    ),
    Format(
        "CUTLASS",
        _is_cutlass,
        leading=True,
        padded=True,
        order=_CUTLASS_ORDER,
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
        lambda b, w: "float_oob_fill" in w or ("box_dims" in w and "element_size" in w),
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
_DRIVERS_OWN = frozenset(
    {"globaldim", "globalstrides", "boxdim", "gmemprobshape", "gmemprobstride"}
)
_CUTLASS_ARRAY = "gmemprobstride"  # begins with the size of an element


def format_of(block: Block) -> Format:
    """Give the row of the table that a block fits."""
    words = frozenset(block.words)
    return next((row for row in FORMATS if row.is_one(block, words)), _GENERAL)


def printed_arguments(block: Block) -> tuple[PrintedArguments, list[str]]:
    """Turn a block into the driver's arguments; give also what of it could not be read, and why."""
    row = format_of(block)
    notes: list[str] = []
    numbers = {a: f.value for a, f in block.fields.items() if isinstance(f.value, int)}
    kind = _kind(block)
    data_type, element_bytes = _type(block, numbers)
    lists, element_bytes = _lists(block, row, kind, data_type, element_bytes, notes)
    column = {} if kind == "tiled" else _column(block, kind, lists.rank, numbers, notes)
    read = PrintedArguments(
        kind=kind,
        data_type=data_type,
        rank=lists.rank,
        global_address=numbers.get("global_address"),
        global_dim=lists.dims,
        global_strides=lists.strides,
        box_dim=lists.box,
        element_strides=lists.steps,
        interleave=_option(block, "interleave", TmaInterleaveLayout, interleave_of),
        swizzle=_swizzle(block),
        l2_promotion=_option(block, "l2_promotion", TmaL2FetchSize, l2_promotion_of),
        oob_fill=_fill(block),
        element_bytes=element_bytes,
        printed_by=row.name,
        lines=(block.first_line, block.last_line),
        implied={n: v for n, v in row.implied.items() if n not in block.fields},
        **column,
    )
    return read, notes


def _lists(
    block: Block,
    row: Format,
    kind: MapKind,
    data_type: Any,
    element_bytes: int | None,
    notes: list[str],
) -> tuple[Lists, int | None]:
    """Read the lists of a block, in the driver's order and units; and the bytes of an element."""
    strides, leading = _strides(block, row, notes)
    lists = Lists(
        _rank(block),
        _entries(block, "global_dim", notes),
        strides,
        _entries(block, "box_dim", notes) if kind == "tiled" else None,
        _entries(block, "element_strides", notes),
    )
    if lists.rank is None and lists.dims is not None:
        lists.rank = lists.rank_without_padding(leading) if row.padded else len(lists.dims)
    bits = _bits(data_type, element_bytes)
    if leading and strides and strides[0] and bits is None:
        element_bytes = strides[0]
        bits = element_bytes * 8
    lists.drop_extra(leading, bits if row is _GENERAL else None)
    if row.elements and not _is_bytes(block):
        lists.scale(bits, notes)
    elif row is _GENERAL and not {key_of(w) for w in block.words} & _DRIVERS_OWN:
        shown = block.fields.get("global_strides")
        lists.turn(bits, shown.unit if shown else "", notes)
    lists.cut(notes)
    return lists, element_bytes


def _rank(block: Block) -> int | None:
    shown = block.fields.get("rank")
    return shown.value if shown is not None and isinstance(shown.value, int) else None


def _column(
    block: Block, kind: MapKind, rank: int | None, numbers: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    """Read what an im2col map has in place of a box."""
    column: dict[str, Any] = {
        name: numbers.get(name) for name in ("channels_per_pixel", "pixels_per_column")
    }
    for name in ("pixel_box_lower_corner", "pixel_box_upper_corner"):
        corner = _entries(block, name, notes)
        if kind == "im2col_wide" and f"{name}_width" in numbers:
            corner = (numbers[f"{name}_width"],)
        elif corner is not None and rank is not None:
            corner = corner[: max(0, rank - 2)]
        column[name] = corner
    return column


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
    word = key_of(shown.word) if shown else ""
    return strides, row.leading or word == _CUTLASS_ARRAY


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
