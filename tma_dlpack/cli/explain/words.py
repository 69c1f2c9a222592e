"""What printouts call the driver's arguments: words, names of enum members, who prints what.

A *strong* word hardly means anything else. A *weak* one (``dim``, ``shape``, ``format``) counts
only where strong ones stand around it. `FORMS` is the table of the projects that print arguments; a
new one is a row there, with an example in tests/cli/printed_forms.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tma_dlpack.tables.arguments import CORNERS, ENUMS, MapKind
from tma_dlpack.tables.enums import (
    NAMES,
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import sealed
from tma_dlpack.tables.meanings import parse
from tma_dlpack.tables.public import public

LONGEST_WORD = 60


def rows(table: str) -> list[list[str]]:
    """Return the rows of a table in text: cells between bars; an indented line continues a row."""
    lines = (" ".join(row.split()) for row in re.split(r"\n(?=\S)", table.strip()))
    return [[cell.strip() for cell in re.split(r"(?<= )\|(?= |$)", line)] for line in lines]


def key_of(word: str) -> str:
    """Return a word as the tables have it: in lower case, without underscores."""
    return word.replace("_", "").lower()


def _words(table: str) -> dict[str, str]:
    return {key_of(word): argument for argument, line in rows(table) for word in line.split()}


#: The driver's argument, as `TensorMap` names it | its words; case and underscores do not count.
STRONG: Final = _words("""
data_type | tensor_data_type tma_format tma_data_format elem_type tensor_map_data_type tma_data_type
    tma_dtype cu_dtype tmap_dtype tma_type desc_type
rank | tensor_rank tma_dim tma_rank
global_address | global_address gmem_address global_addr gmem_addr global_ptr gmem_ptr
global_dim | global_dim global_dims gmem_prob_shape gmem_shape gmem_dims gmem_dim global_shape
    global_sizes global_size gmem_dim_shape tensor_dims gmem_sizes
global_strides | global_strides global_stride gmem_prob_stride gmem_stride gmem_strides
    cuda_global_strides strides_in_bytes stride_in_bytes byte_strides outer_stride
    global_strides_bytes gmem_outer_stride
raw_strides | global_strides_raw
box_dim | box_dim box_dims box_shape box_size box_sizes smem_box_shape smem_shape smem_dims smem_box
    smem_dim block_size_dims tile_shapes window_shape smem_box_dim smem_box_size
element_strides | element_strides element_stride elem_strides elem_stride smem_box_stride
    smem_stride tile_strides traversal_strides traversal_stride box_strides box_stride elem_step
interleave | interleave interleave_mode interleave_layout tma_interleave
swizzle | swizzle swizzle_mode swizzle_type tma_swizzle smem_swizzle swizzle_size swizzle_bytes
    swizzle_kind
l2_promotion | l2_promotion l2_promo tma_l2_promotion l2_fetch_size l2_promotion_size
oob_fill | oob_fill float_oob_fill tma_oob_fill oob oob_fill_mode
pixel_box_lower_corner | pixel_box_lower_corner pixel_box_lower lower_corner tma_lower_corner
pixel_box_upper_corner | pixel_box_upper_corner pixel_box_upper upper_corner tma_upper_corner
pixel_box_lower_corner_width | pixel_box_lower_corner_width
pixel_box_upper_corner_width | pixel_box_upper_corner_width
channels_per_pixel | channels_per_pixel smem_box_channel
pixels_per_column | pixels_per_column smem_box_pixel
element_bytes | elem_size element_size elem_bytes element_bytes elem_bytewidth
""")
WEAK: Final = _words("""
data_type | format dtype data_type
rank | dim rank ndim num_dims
global_address | gmem address data_ptr ptr
global_dim | shape shapes size sizes dims tensor_shape tensor_size global_memory
global_strides | stride strides
box_dim | box block_size block_shape tile tile_shape tile_size tile_dims shared_memory
l2_promotion | l2
oob_fill | fill
padding | padding
swizzle_base | base
element_bytes | itemsize
mode | mode
""")

#: Arguments that are lists.
ARRAYS: Final = frozenset(
    {"global_dim", "global_strides", "raw_strides", "box_dim", "element_strides", *CORNERS}
)

#: Words that are written apart.
MULTI_WORD: Final = re.compile(
    r"(?i)\b(global|shared|outer|elem|element|item|box|data|tensor|block|tile) "
    r"(memory|stride|strides|size|sizes|ptr|address|dim|dims|shape|type|rank)(?=[\"']?[ \t]*[:=])"
)

#: Where a printout begins or ends: two such places are two encodes.
HEADING: Final = (
    r"(?i:TMA Desc Addr(?::?[ \t]+\d+(?: \(\w+=\d+\))?)?"
    r"|(?:\b\w{1,40}_)?cuTensorMapEncode(?:Tiled|Im2col(?:Wide)?)\b"
    r"|Making (?:\dD )?TMA desc"
    r"|(?:TmaDescriptor|CudaTensorMapInfo|TensorMapSpec)\s*[{(]|TensorMapInfo\("
    r"|Failed to (?:initialize|create|encode)[\w ]{0,40}?(?:TMA|tensor ?map)"
    r"|TMA descriptor creation)"
)


@lru_cache(maxsize=4096)
def meaning_of(word: str) -> tuple[str, str, bool] | None:
    """Return the argument that a word names, the key in the table, and whether it is strong.

    >>> meaning_of("A_desc_globalDim"), meaning_of("head_dim")
    (('global_dim', 'globaldim', True), None)
    """
    if len(word) > LONGEST_WORD:
        return None
    key = key_of(word)
    if key in STRONG:
        return STRONG[key], key, True
    if key in WEAK:
        return WEAK[key], key, False
    parts = word.lower().split("_")
    tails = ("".join(parts[first:]) for first in range(1, len(parts)))
    return next(((STRONG[tail], tail, True) for tail in tails if tail in STRONG), None)


# -- members of enums by number, by name, by bytes ------------------------------------------------


_ENUMS: Final[dict[str, Any]] = {**ENUMS, "mode": TensorMapIm2ColWideMode}
#: What a printout alone may mean: DeepGEMM's 16 bytes are no swizzle; any float8 is a byte.
_PRINTED: Final = {("swizzle", "16"): 0, ("data_type", "fp8"): 0, ("data_type", "bfloat"): 9}
#: Arguments that may be printed as a name.
NAMED: Final = frozenset({*_ENUMS, "padding"})


def member_of(argument: str, value: int | str) -> Any:
    """Return the member that a number, a name or bytes stand for.

    A number that is no member stays an int; None for a word that is no name.

    >>> member_of("swizzle", "B64").name, member_of("swizzle", 128).name, member_of("swizzle", 9)
    ('bytes64', 'bytes128', 9)
    >>> member_of("data_type", "torch.bfloat16").name, member_of("data_type", "float3")
    ('BFLOAT16', None)
    """
    enum = _ENUMS[argument]
    tail = re.split(r"[.:]+", value)[-1] if isinstance(value, str) else value
    if isinstance(tail, str) and tail.startswith("CU_TENSOR_MAP") and tail not in NAMES[enum]:
        return None  # the rest of the name is missing
    for word in (value, tail):  # as it is, and without a scope that is not known
        printed = _PRINTED.get((argument, str(word).lower()))
        member = parse(enum, word) if printed is None else enum(printed)
        if member is not None:
            return member
    return value if isinstance(value, int) else None


# -- who prints which words -----------------------------------------------------------------------


class Form(NamedTuple):
    """How one project prints the arguments of an encode.

    A block has this form if it has all the keys of one of `any_of`. `words` are its words in the
    order in which it prints them, () if not known; `implied` is what its code passes and does not
    print. `flags`: "leading" if the first stride is the size of an element, which the driver does
    not read; "padded" if lists may have five entries for every rank, "garbage" if those past the
    rank are memory of something else; "elements" if strides count these.
    """

    name: str = ""
    any_of: tuple[frozenset[str], ...] = ()
    flags: frozenset[str] = frozenset()
    implied: Mapping[str, int] = MappingProxyType({})
    words: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Its words as the tables have them."""
        return tuple(map(key_of, self.words))


def _form(name: str, any_of: str, how: str, words: str) -> Form:
    together = tuple(frozenset(map(key_of, group.split("+"))) for group in any_of.split())
    implied = {k: int(v) for k, _, v in (word.partition("=") for word in how.split()) if v}
    return Form(name, together, frozenset(how.split()), implied, tuple(words.split()))


#: Name | words of which one is there | how it prints, what it implies | its words, in their order.
#: Rows are tried in this order. Read in the projects' own sources on 2026-11-21: include/
#: tma_dlpack.h; tilelang src/cuda/runtime.cc; cutlass include/cute/atom/copy_traits_sm90_tma.hpp;
#: triton third_party/nvidia/backend/driver.c; flashinfer include/flashinfer/trtllm/fmha/
#: kernelParams.h; DeepGEMM csrc/jit_kernels/impls/runtime_utils.hpp; ThunderKittens include/types/
#: global/tma.cuh; FlashMLA csrc/kerutils/include/kerutils/host/host.h; xla xla/stream_executor/gpu/
#: tma_metadata.cc; Fuser csrc/tma.cpp.
FORMS: Final[tuple[Form, ...]] = tuple(
    _form(*row)
    for row in rows("""
tma_dlpack.h | tensorDataType+globalDim | |
TileLang | globalStridesRaw cudaGlobalStrides | | format tensorDataType dim tensorRank gmem_address
    globalDim globalStridesRaw cudaGlobalStrides boxDim smem_box_pixel smem_box_channel
    pixelBoxLowerCorner pixelBoxUpperCorner elementStrides interleave swizzle l2Promotion oobFill
CUTLASS | globalDim globalStrides boxDim | leading padded | format tensorDataType dim tensorRank
    gmem_address globalDim globalStrides boxDim smem_box_pixel smem_box_channel pixelBoxLowerCorner
    pixelBoxUpperCorner elementStrides interleave swizzle l2Promotion oobFill
Triton | blockSize elemType+elemSize | interleave=0 l2_promotion=2 | elemType rank global_address
    elemSize swizzle padding channelsPerPixel pixelsPerColumn shape strides blockSize pixelBoxLower
    pixelBoxUpper elementStrides fill
TensorRT-LLM and FlashInfer | tileShapes tileStrides swizzleType tmaFormat+gmem | padded garbage
    interleave=0 l2_promotion=2 oob_fill=0 | tmaFormat dim gmem Shape Stride tileShapes tileStrides
    swizzleType
DeepGEMM | global_memory+shared_memory outer_stride | elements element_strides=1 interleave=0
    l2_promotion=3 oob_fill=0 | global_memory shared_memory outer_stride swizzle base elem_size
ThunderKittens | tma_dim tma_swizzle tma_interleave gmem_shape+smem_shape | padded | tma_format
    tma_dim global_addr gmem_shape gmem_stride smem_shape smem_stride tma_interleave tma_swizzle
    tma_l2Promotion tma_oobFill
kerutils (FlashMLA) | box_size+size swizzle_mode+interleave_mode box_size+swizzle_mode | | Dim size
    strides box_size element_strides global_ptr data_type swizzle_mode l2_promotion interleave_mode
    oob_fill
XLA | float_oob_fill box_dims+element_size | | element_size rank global_dims global_strides box_dims
    element_strides interleave swizzle l2_promotion float_oob_fill
nvFuser | gmem_strides+box_strides | |
""")
)
GENERAL: Final = Form()
#: Words whose order and units are the driver's wherever they are printed.
DRIVERS_OWN: Final = frozenset(
    ["globaldim", "globalstrides", "boxdim", "gmemprobshape", "gmemprobstride"]
)
CUTE_STRIDES: Final = "gmemprobstride"  # begins with the size of an element


# -- the arguments of one encode -----------------------------------------------------------------

Entries = tuple[int | None, ...]

COMMON = ("data_type", "rank", "global_address", "global_dim", "global_strides")
COLUMN = (*CORNERS, "channels_per_pixel", "pixels_per_column")
OPTIONS = ("element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill")
#: Every argument, in the driver's order.
ARGUMENTS = (*COMMON, "box_dim", *COLUMN, *OPTIONS)


def arguments_of(kind: MapKind) -> tuple[str, ...]:
    """Return the names of the arguments of an encode of one kind, in the driver's order."""
    return (*COMMON, *(("box_dim",) if kind == "tiled" else COLUMN), *OPTIONS)


@public
@sealed
@dataclass(frozen=True, slots=True)
class PrintedArguments:
    """The arguments of one encode, as read from a printout by `explain`.

    The attributes are named as in `TensorMap`. Arrays are innermost first, and strides are in bytes
    for dimensions 1 to rank - 1, whatever the printout uses. An argument, or a single entry, that
    is not printed, or cannot be read for certain, is None. A number that is not a member of its
    enum stays an int.

    Attributes
    ----------
    kind : {"tiled", "im2col", "im2col_wide"}
    data_type, rank, global_address, global_dim, global_strides, box_dim, element_strides, \
interleave, swizzle, l2_promotion, oob_fill
        As in `TensorMap`.
    pixel_box_lower_corner, pixel_box_upper_corner, channels_per_pixel, pixels_per_column
        For im2col maps; None for tiled ones.
    element_bytes : int or None
        Bytes of one element, if the printout shows them.
    printed_by : str
        The project whose format it is; "" if it is not a known one.
    lines : (int, int)
        Its first and last line in the text, counted from 1.
    implied : mapping
        Arguments that this project always passes and does not print (source: its code). They are
        checked too.
    inferred : tuple of str
        Arguments that are not printed and follow from others, as the rank from the lists.
    """

    kind: MapKind = "tiled"
    data_type: TensorMapDataType | int | None = None
    rank: int | None = None
    global_address: int | None = None
    global_dim: Entries | None = None
    global_strides: Entries | None = None
    box_dim: Entries | None = None
    element_strides: Entries | None = None
    interleave: TmaInterleaveLayout | int | None = None
    swizzle: TmaSwizzle | int | None = None
    l2_promotion: TmaL2FetchSize | int | None = None
    oob_fill: TmaOobFill | int | None = None
    pixel_box_lower_corner: Entries | None = None
    pixel_box_upper_corner: Entries | None = None
    channels_per_pixel: int | None = None
    pixels_per_column: int | None = None
    element_bytes: int | None = None
    printed_by: str = field(default="", compare=False)
    lines: tuple[int, int] = field(default=(0, 0), compare=False)
    implied: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)
    inferred: tuple[str, ...] = field(default=(), compare=False)

    def shown(self) -> dict[str, Any]:
        """Return the arguments that the printout has, by name, in the driver's order."""
        values = {name: getattr(self, name) for name in ARGUMENTS}
        return {name: value for name, value in values.items() if value is not None}

    def missing(self) -> tuple[str, ...]:
        """Return what an encode of this kind takes and the printout does not show."""
        missing: list[str] = []
        for name in arguments_of(self.kind):
            value = getattr(self, name)
            if value is None and name not in self.implied:
                missing.append(name)
            elif isinstance(value, tuple):
                missing += [f"{name}[{i}]" for i, entry in enumerate(value) if entry is None]
        return tuple(missing)

    def __str__(self) -> str:
        words = ", ".join(f"{name}={_text(name, value)}" for name, value in self.shown().items())
        return f"{self.kind}: {words}"


def _text(name: str, value: object) -> str:
    if name == "global_address":
        return f"{value:#x}"
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, tuple):
        entries = ", ".join("?" if v is None else str(v) for v in value)
        return f"({entries}{',' * (len(value) == 1)})"
    return str(value)
