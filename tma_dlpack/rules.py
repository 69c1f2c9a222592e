"""The preconditions, as one table of rows in libcu++'s order. `check` runs it; nothing else does.

A row belongs to sets of rules:

``"libcu++"``     what `cuda::make_tma_descriptor` asks (NVIDIA/cccl at `CCCL_COMMIT`), and last what
                  the driver asks beyond it, because libcu++ hands its result to the driver
``"driver"``      what the driver asks, as `make_tma_descriptor(rules="driver")` holds it
``"documented"``  the CUDA driver API document
``"measured"``    the driver's own verdict on sm_90, as `driver_encode_*` holds it
                  [H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; tests/golden]

Index 0 is innermost. Rows of one `step` are one loop of libcu++: its findings come place by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tma_dlpack import repairs
from tma_dlpack.case import SWIZZLE_SPAN_BYTES, Case
from tma_dlpack.dtypes import PACKED_TYPES, data_type_of, overrides_of
from tma_dlpack.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle

__all__ = ["CCCL_COMMIT", "RULES", "Rule"]

CCCL_COMMIT = "571f2fc3bc"  # 2026-08-22, the header the line references are to
LIBCUDACXX = f"libcu++ make_tma_descriptor.h at {CCCL_COMMIT}"
TILED_DOC = "CUDA driver API, cuTensorMapEncodeTiled"
IM2COL_DOC = "CUDA driver API, cuTensorMapEncodeIm2col"
WIDE_DOC = "CUDA driver API, cuTensorMapEncodeIm2colWide"
MEASURED = "measured, H200, driver 580.159.04"

MAX_RANK = 5
MAX_DIM = 1 << 32
MAX_STRIDE_BYTES = 1 << 40
MAX_ADDRESS = 1 << 57
MAX_BOX = 256
MAX_ELEM_STRIDE = 8
MAX_PIXELS = 1024
MAX_BOX_BYTES = 233_472  # 228 KB, what the driver computes with floor division
ALIGN16B_INNER = 128  # values of the two packed types that are padded to 16 bytes

ALL = frozenset({"libcu++", "driver", "documented", "measured"})
DRIVER = frozenset({"driver", "measured"})
LIBCU = frozenset({"libcu++"})
WRITTEN = frozenset({"libcu++", "driver", "documented"})

Kinds = tuple[str, ...]
TILED: Kinds = ("tiled",)
IM2COL: Kinds = ("im2col",)
WIDE: Kinds = ("im2col_wide",)
COLUMNS: Kinds = ("im2col", "im2col_wide")
EVERY: Kinds = ("tiled", "im2col", "im2col_wide")

Ask = Callable[[Case, int], Any]


def _once(c: Case) -> Iterable[int]:
    return (0,)


def _inner_to_outer(c: Case) -> Iterable[int]:
    return range(c.rank)


def _outer_to_inner(c: Case) -> Iterable[int]:
    return range(c.rank - 1, -1, -1)


def _strided(c: Case) -> Iterable[int]:
    return range(1, c.rank)


def _spatial(c: Case) -> Iterable[int]:
    return range(1 if c.kind == "im2col_wide" else c.spatial)


@dataclass(frozen=True, slots=True)
class Rule:
    """One precondition.

    Attributes
    ----------
    id : str
        Stable name; it never changes meaning.
    step : int
        Place in libcu++'s order.
    on : str
        The argument it is about.
    holds : callable (case, place) -> bool
    found, fix : callable (case, place) -> str
    must : str or callable
        What is asked, to be read after "must".
    source : str
    sets : frozenset of str
        The sets of rules that it belongs to.
    kinds : tuple of str
        The kinds of map.
    needs : tuple of str
        Ids of rows, and names of arguments, without which the question makes no sense.
    needs_here : tuple of str
        The same for one place: ``"ROW[i]"`` is the place in question, ``"ROW[0]"`` a fixed one.
    applies : callable (case) -> bool
    places : callable (case) -> indices
    driver : str or None
        For a row of libcu++ alone: the row of the driver that a call must still pass.
    unsupported : bool
        Whether it says that the target lacks something (a RuntimeError in C++).
    repair : callable (case, place) -> dict, or None
        Keyword arguments that would mend it; empty where none does.
    differs : str
        Where header, documentation and driver disagree, and whom we follow.
    """

    id: str
    step: int
    on: str
    holds: Ask
    found: Ask
    must: str | Ask
    fix: Ask
    source: str
    sets: frozenset[str] = ALL
    kinds: Kinds = EVERY
    needs: tuple[str, ...] = ()
    needs_here: tuple[str, ...] = ()
    applies: Callable[[Case], bool] = field(default=lambda c: True)
    places: Callable[[Case], Iterable[int]] = _once
    driver: str | None = None
    unsupported: bool = False
    repair: Ask | None = None
    differs: str = ""

    def limit(self, c: Case, i: int) -> str:
        """Give what is asked, as a sentence."""
        must = self.must if isinstance(self.must, str) else self.must(c, i)
        return f"it must {must}"


_ATOMS = (
    TmaSwizzle.bytes128_atom_32B,
    TmaSwizzle.bytes128_atom_32B_flip_8B,
    TmaSwizzle.bytes128_atom_64B,
)
_U4_ALIGN8B = TensorMapDataType["16U4_ALIGN8B"]
_U4_ALIGN16B = TensorMapDataType["16U4_ALIGN16B"]
_U6_ALIGN16B = TensorMapDataType["16U6_ALIGN16B"]
_SWIZZLES_OF_PADDED = {
    _U4_ALIGN16B: (TmaSwizzle.none, TmaSwizzle.bytes128, TmaSwizzle.bytes128_atom_32B),
    _U6_ALIGN16B: (
        TmaSwizzle.none,
        TmaSwizzle.bytes128,
        TmaSwizzle.bytes128_atom_32B,
        TmaSwizzle.bytes128_atom_64B,
    ),
}
_WIDE_SWIZZLES = (TmaSwizzle.bytes64, TmaSwizzle.bytes128, TmaSwizzle.bytes128_atom_32B)


def _type_name(c: Case) -> str:
    if c.mirror or c.view is None:
        return f"tensor_data_type is {c.data_type.name if c.data_type is not None else None}"
    if c.asked_type is not None:
        return f"data_type is {c.asked_type.name}"
    return f"tensor.dtype is {c.view.dtype}"


def _dtype_fix(c: Case, i: int) -> str:
    assert c.view is not None
    choices = overrides_of(c.view.dtype)
    if choices:
        return (
            f"say how to carry its bits: data_type={choices[0].name!r}"
            + (f" (or {', '.join(t.name for t in choices[1:])})" if choices[1:] else "")
            + "; a copy moves bits and never looks at their meaning"
        )
    return "view or cast the tensor to a type of 1, 2, 4 or 8 bytes, such as x.view(torch.uint8)"


def _packed_fix(c: Case, i: int) -> str:
    if c.view is not None and TensorMapDataType.UINT8 in overrides_of(c.view.dtype):
        return (
            "carry it as bytes, data_type='UINT8', or build for sm_100 or later (target='sm_100')"
        )
    return "view the tensor as uint8 and copy bytes, or build for sm_100 or later (target='sm_100')"


def _pad_fix(c: Case, i: int) -> str:
    """Say how to allocate so that the stride of dimension i is aligned."""
    if c.mirror or c.view is None or c.rank < 2:
        return f"lay the tensor out with strides that are multiples of {c.alignment_bytes} bytes"
    bits = c.view.dtype.itemsize_bits
    unit = c.alignment_bytes * 8 // bits if c.alignment_bytes * 8 % bits == 0 else 0
    extent = c.view.shape[-1]
    if i != 1 or not unit:
        return (
            f"make dimension {c.rank - 1 - i} step by a multiple of {c.alignment_bytes} bytes, "
            f"such as by padding the dimensions inside it, or copy: x.contiguous()"
        )
    padded = -(-extent // unit) * unit
    if padded == extent:
        return (
            f"copy the tensor to a layout whose rows start every {padded} elements: "
            "x = x.contiguous()"
        )
    return (
        f"pad the last dimension from {extent} to {padded} elements: "
        f"y = torch.empty(..., {padded})[..., :{extent}]; y.copy_(x)"
    )


def _inner_fix(c: Case, i: int) -> str:
    change = repairs.inner_box(c, 0)
    value = next(iter(change.values()), None)
    to = f"; the nearest that fits is {value}" if value is not None else ""
    unit = c.inner_unit
    return f"use a multiple of {unit} elements (16 bytes){to}"


def _corner_holds(values: str) -> Ask:
    def holds(c: Case, i: int) -> bool:
        half = 1 << (c.corner_bits - 1)
        return -half <= int(getattr(c, values)[i]) < half

    return holds


def _corner_must(c: Case, i: int) -> str:
    half = 1 << (c.corner_bits - 1)
    return f"be in {-half}..{half - 1} for a tensor of rank {c.rank}"


def _corner_count(values: str, which: str) -> dict[str, Any]:
    return dict(
        on=f"pixel_box_{which}_corner",
        kinds=IM2COL,
        needs=("RANK", f"pixel_box_{which}_corner"),
        holds=lambda c, i: len(getattr(c, values)) == c.spatial,
        found=lambda c, i: f"pixel_box_{which}_corner has {len(getattr(c, values))} entries",
        must=lambda c, i: (
            f"have {c.spatial}, one per spatial dimension, as (D, H, W) of the tensor"
        ),
        fix=lambda c, i: (
            f"give {c.spatial} entries, row-major: im2col_corners() makes both corners"
        ),
        source=IM2COL_DOC,
        repair=repairs.corner_count(which),
    )


def _corner_range(values: str, which: str) -> dict[str, Any]:
    return dict(
        kinds=COLUMNS,
        places=_spatial,
        holds=_corner_holds(values),
        found=lambda c, i: f"{c.say_corner(which, i)} is {getattr(c, values)[i]}",
        must=_corner_must,
        fix=lambda c, i: "use a smaller kernel, padding or dilation, or a lower rank",
        source=IM2COL_DOC,
        repair=repairs.corner_range(which),
    )


RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="CAPABILITY",
        step=10,
        on="target",
        unsupported=True,
        needs=("target",),
        holds=lambda c, i: c.target.has_tma,
        found=lambda c, i: f"the target has compute capability {c.target.name[3:]} ({c.target})",
        must="have a Tensor Memory Accelerator: compute capability 9.0 or later",
        fix=lambda c, i: (
            "use a Hopper or newer GPU, or describe the tensor for one: target='sm_90'"
        ),
        source=f"{LIBCUDACXX}, __check_device",
    ),
    Rule(
        id="ATOM_SWIZZLE",
        step=11,
        on="swizzle",
        unsupported=True,
        needs=("CAPABILITY", "swizzle"),
        applies=lambda c: c.target.is_sm_9x,
        holds=lambda c, i: c.swizzle not in _ATOMS,
        found=lambda c, i: f"swizzle is {c.swizzle.name if c.swizzle else None} on {c.target}",
        must="be none, bytes32, bytes64 or bytes128 on compute capability 9.x",
        fix=lambda c, i: "use swizzle='bytes128', or build for sm_100 or later (target='sm_100')",
        source=f"{LIBCUDACXX}, __check_device",
        repair=repairs.constant(swizzle=TmaSwizzle.bytes128),
    ),
    Rule(
        id="PACKED_TYPE",
        step=12,
        on="tensor.dtype",
        unsupported=True,
        needs=("CAPABILITY", "DTYPE", "DATA_TYPE_OVERRIDE", "data_type"),
        applies=lambda c: c.target.is_sm_9x,
        holds=lambda c, i: c.data_type not in PACKED_TYPES,
        found=lambda c, i: f"{_type_name(c)}, which takes the map type {c.data_type.name}",
        must="be a type of whole bytes on compute capability 9.x",
        fix=_packed_fix,
        source=f"{LIBCUDACXX}, __check_device",
        repair=repairs.unpacked_type,
    ),
    Rule(
        id="WIDE_CAPABILITY",
        step=13,
        on="target",
        unsupported=True,
        kinds=WIDE,
        sets=frozenset({"documented"}),
        needs=("CAPABILITY",),
        applies=lambda c: not c.mirror,
        holds=lambda c, i: c.target.compute_capability >= (10, 0),
        found=lambda c, i: f"im2col-wide is asked on {c.target}",
        must="be compute capability 10.0 or later",
        fix=lambda c, i: (
            "use make_im2col_descriptor; or pass rules='driver', which this driver accepts on "
            "sm_90, though no sm_90 instruction reads such a map"
        ),
        source=WIDE_DOC,
        differs="documents: 10.0; driver 580.159.04 encodes it on sm_90",
        repair=repairs.constant(rules="driver"),
    ),
    # 2. rank
    Rule(
        id="RANK",
        step=20,
        on="tensor.rank",
        holds=lambda c, i: (1 if c.kind == "tiled" else 3) <= c.rank <= MAX_RANK,
        found=lambda c, i: (
            f"tensor_rank is {c.rank}" if c.mirror else f"the tensor has {c.rank} dimensions"
        ),
        must=lambda c, i: "be {}..5".format(1 if c.kind == "tiled" else 3),
        fix=lambda c, i: (
            "merge dimensions that are contiguous with x.flatten(...), or index the outer ones "
            "and make one map per slice"
            if c.rank > MAX_RANK
            else "add dimensions of size 1 with x[None] (im2col reads N, [D,] [H,] W, C)"
            if c.kind != "tiled"
            else "give it a dimension: x.reshape(1)"
        ),
        source=f"{LIBCUDACXX}, __get_tensor_map_rank; {TILED_DOC}",
    ),
    Rule(
        id="RANK_INTERLEAVED",
        step=21,
        on="tensor.rank",
        kinds=TILED,
        needs=("RANK", "interleave_layout"),
        applies=lambda c: c.interleaved,
        holds=lambda c, i: c.rank >= 3,
        found=lambda c, i: f"an interleaved layout is asked for {c.rank} dimensions",
        must="have at least 3 dimensions (such as N, C/8, H, W of units of 16 bytes)",
        fix=lambda c, i: "use interleave_layout='none', or add outer dimensions with x[None]",
        source=f"{LIBCUDACXX}, __get_tensor_map_rank; {TILED_DOC}",
        differs="libcu++ page: must not exceed 3; code, driver and PTX: at least 3",
        repair=repairs.constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    # 3. address
    Rule(
        id="ADDRESS_NULL",
        step=30,
        on="tensor.address",
        sets=WRITTEN,
        applies=lambda c: not c.mirror,
        holds=lambda c, i: c.address != 0,
        found=lambda c, i: "the tensor has no memory: its address is 0",
        must="be an address on the GPU",
        fix=lambda c, i: "allocate the tensor before describing it",
        source=f"{LIBCUDACXX}, __get_tensor_address",
    ),
    Rule(
        id="ADDRESS_ALIGNED",
        step=31,
        on="tensor.address",
        needs=("interleave_layout",),
        holds=lambda c, i: c.address % c.alignment_bytes == 0,
        found=lambda c, i: (
            f"the address {c.address:#x} is {c.address % c.alignment_bytes} bytes past a "
            f"multiple of {c.alignment_bytes}"
        ),
        must=lambda c, i: f"be a multiple of {c.alignment_bytes} bytes",
        fix=lambda c, i: (
            "start the view at an aligned element, or copy it: x = x.clone() "
            "(allocators align to 256 bytes)"
            if not c.mirror
            else "pass an aligned address"
        ),
        source=f"{LIBCUDACXX}, __get_tensor_address; {TILED_DOC}",
        repair=repairs.narrower_interleave,
    ),
    # 4. data type
    Rule(
        id="DTYPE",
        step=40,
        on="tensor.dtype",
        sets=WRITTEN,
        needs=("data_type",),
        applies=lambda c: not c.mirror and c.asked_type is None,
        holds=lambda c, i: c.view is None or data_type_of(c.view.dtype) is not None,
        found=lambda c, i: f"tensor.dtype is {c.view.dtype if c.view else None}",
        must="be one that tensor maps have: uint8/16/32/64, int32/64, float16/32/64, bfloat16, "
        "bool, a float8, or 4-bit values",
        fix=_dtype_fix,
        source=f"{LIBCUDACXX}, __get_tensor_map_data_type",
        repair=repairs.carried_type,
    ),
    Rule(
        id="DATA_TYPE_OVERRIDE",
        step=41,
        on="data_type",
        sets=WRITTEN,
        needs=("data_type",),
        applies=lambda c: not c.mirror and c.asked_type is not None,
        holds=lambda c, i: c.view is None or c.asked_type in overrides_of(c.view.dtype),
        found=lambda c, i: (
            f"data_type is {c.asked_type.name if c.asked_type is not None else None} for a tensor "
            f"of {c.view.dtype if c.view else None}"
        ),
        must="have the element size of the tensor",
        fix=lambda c, i: (
            "choose one of "
            + (", ".join(t.name for t in overrides_of(c.view.dtype)) if c.view else "")
            if c.view is not None and overrides_of(c.view.dtype)
            else "view the tensor as another type first: x.view(torch.uint8)"
        ),
        source="tma_dlpack: a map never reinterprets the size of an element",
        repair=repairs.carried_type,
    ),
    Rule(
        id="OOB_NAN",
        step=42,
        on="oobfill",
        needs=("DTYPE", "DATA_TYPE_OVERRIDE", "data_type", "oobfill"),
        applies=lambda c: c.oob_fill is TmaOobFill.nan,
        holds=lambda c, i: c.type_row.is_float,
        found=lambda c, i: f"oobfill is nan for the map type {c.type_row.data_type.name}",
        must="be none for data types that are no floating-point types",
        fix=lambda c, i: "use oobfill='none', which fills with zero",
        source=f"{LIBCUDACXX}, __get_tensor_map_data_type; {TILED_DOC}",
        differs="libcu++ lets float8 pass as uint8 with nan; the driver then refuses it",
        repair=repairs.constant(oobfill=TmaOobFill.none),
    ),
    # 5. sizes
    Rule(
        id="DIM_PACKED",
        step=50,
        on="tensor.shape",
        sets=WRITTEN,
        needs=("RANK", "DTYPE", "DATA_TYPE_OVERRIDE", "data_type", "PACKED_TYPE"),
        applies=lambda c: c.data_type in PACKED_TYPES,
        holds=lambda c, i: c.dims[0] % (2 if c.data_type is _U4_ALIGN8B else ALIGN16B_INNER) == 0,
        found=lambda c, i: f"the innermost extent is {c.dims[0]} values of {c.element_bits} bits",
        must=lambda c, i: "be a multiple of {} values".format(
            2 if c.data_type is _U4_ALIGN8B else ALIGN16B_INNER
        ),
        fix=lambda c, i: "pad the last dimension",
        source=f"{LIBCUDACXX}, __get_tensor_sizes; {TILED_DOC}",
    ),
    Rule(
        id="DIM_RANGE",
        step=51,
        on="tensor.shape",
        places=_outer_to_inner,
        needs=("RANK",),
        holds=lambda c, i: 1 <= c.dims[i] <= MAX_DIM,
        found=lambda c, i: f"{c.say_dim(i)} is {c.dims[i]}",
        must="be 1..2^32",
        fix=lambda c, i: (
            "skip empty tensors: there is nothing to copy"
            if c.dims[i] < 1
            else "split the tensor along this dimension, one map per part"
        ),
        source=f"{LIBCUDACXX}, __get_tensor_sizes; {TILED_DOC}",
        differs="guide text: greater than one; its table and everything else: at least one",
    ),
    # 6. strides
    Rule(
        id="STRIDE_INNERMOST",
        step=60,
        on="tensor.strides",
        sets=WRITTEN,
        needs=("RANK",),
        applies=lambda c: not c.mirror,
        holds=lambda c, i: c.innermost_stride == 1,
        found=lambda c, i: f"tensor.strides[{c.rank - 1}] is {c.innermost_stride} elements",
        must="be 1: the last dimension must be contiguous",
        fix=lambda c, i: repairs.transpose_hint(c),
        source=LIBCUDACXX,
        differs="releases before 3.5 ignored it, and described other elements",
    ),
    Rule(
        id="STRIDE_UNIQUE",
        step=61,
        on="tensor.strides",
        sets=frozenset({"libcu++", "documented"}),
        places=_strided,
        needs=("RANK", "STRIDE_INNERMOST"),
        applies=lambda c: not c.mirror,
        holds=lambda c, i: (
            c.strides_bytes[i - 1] == 0 or c.strides_bytes[i - 1] >= c.nested_bytes(i)
        ),
        found=lambda c, i: c.say_stride(i),
        must=lambda c, i: (
            f"be 0, or at least the {c.nested_bytes(i)} bytes that the dimensions inside it span"
        ),
        fix=lambda c, i: (
            "order the dimensions by stride with x.permute(...), or copy: x = x.contiguous()"
        ),
        source=f"{LIBCUDACXX}, __get_tensor_strides",
        differs="page: strides[i] >= shape[i-1] and > 0; code: shape[i+1] x strides[i+1], or 0",
    ),
    Rule(
        id="STRIDE_ALIGNED",
        step=61,
        on="tensor.strides",
        places=_strided,
        needs=("RANK", "interleave_layout"),
        holds=lambda c, i: c.strides_bytes[i - 1] % c.alignment_bytes == 0,
        found=lambda c, i: c.say_stride(i),
        must=lambda c, i: f"be a multiple of {c.alignment_bytes} bytes",
        fix=_pad_fix,
        source=f"{LIBCUDACXX}, __get_tensor_strides; {TILED_DOC}",
        repair=repairs.narrower_interleave,
    ),
    Rule(
        id="STRIDE_RANGE",
        step=61,
        on="tensor.strides",
        places=_strided,
        needs=("RANK",),
        holds=lambda c, i: 0 <= c.strides_bytes[i - 1] < MAX_STRIDE_BYTES,
        found=lambda c, i: c.say_stride(i),
        must="be 0..2^40 - 1 bytes",
        fix=lambda c, i: "index this dimension instead, and make one map per slice",
        source=f"{LIBCUDACXX}, __get_tensor_strides; {TILED_DOC}",
    ),
    # 7. interleave and swizzle
    Rule(
        id="INTERLEAVE_32B_SWIZZLE",
        step=70,
        on="swizzle",
        sets=WRITTEN,
        needs=("interleave_layout", "swizzle"),
        applies=lambda c: c.interleave is TmaInterleaveLayout.bytes32,
        holds=lambda c, i: c.swizzle is TmaSwizzle.bytes32,
        found=lambda c, i: f"swizzle is {c.swizzle.name if c.swizzle is not None else None}",
        must="be bytes32 when interleave_layout is bytes32",
        fix=lambda c, i: "use swizzle='bytes32'",
        source=f"{LIBCUDACXX}, __check_swizzle; {TILED_DOC}",
        differs="driver 580.159.04 accepts others",
        repair=repairs.constant(swizzle=TmaSwizzle.bytes32),
    ),
    Rule(
        id="PACKED_INTERLEAVE",
        step=71,
        on="interleave_layout",
        needs=("PACKED_TYPE", "DTYPE", "DATA_TYPE_OVERRIDE", "data_type", "interleave_layout"),
        applies=lambda c: c.data_type is _U6_ALIGN16B,
        holds=lambda c, i: not c.interleaved,
        found=lambda c, i: f"interleave_layout is {c.interleave.name if c.interleave else None}",
        must="be none for 16U6_ALIGN16B",
        fix=lambda c, i: "use interleave_layout='none'",
        source=TILED_DOC,
        repair=repairs.constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    Rule(
        id="PACKED_SWIZZLE",
        step=72,
        on="swizzle",
        needs=(
            "PACKED_TYPE",
            "DTYPE",
            "DATA_TYPE_OVERRIDE",
            "data_type",
            "ATOM_SWIZZLE",
            "swizzle",
        ),
        applies=lambda c: c.data_type in _SWIZZLES_OF_PADDED,
        holds=lambda c, i: c.swizzle in _SWIZZLES_OF_PADDED[c.type_row.data_type],
        found=lambda c, i: f"swizzle is {c.swizzle.name if c.swizzle is not None else None}",
        must=lambda c, i: "be {} for {}".format(
            " or ".join(s.name for s in _SWIZZLES_OF_PADDED[c.type_row.data_type]),
            c.type_row.data_type.name,
        ),
        fix=lambda c, i: "use swizzle='bytes128'",
        source=TILED_DOC,
        repair=repairs.constant(swizzle=TmaSwizzle.bytes128),
    ),
    Rule(
        id="WIDE_SWIZZLE",
        step=73,
        on="swizzle",
        kinds=WIDE,
        sets=frozenset({"documented"}),
        needs=("swizzle", "ATOM_SWIZZLE"),
        holds=lambda c, i: c.swizzle in _WIDE_SWIZZLES,
        found=lambda c, i: f"swizzle is {c.swizzle.name if c.swizzle is not None else None}",
        must="be bytes64, bytes128 or bytes128_atom_32B for an im2col-wide map",
        fix=lambda c, i: "use swizzle='bytes128'",
        source=WIDE_DOC,
        differs="driver 580.159.04 accepts the others on sm_90",
        repair=repairs.constant(swizzle=TmaSwizzle.bytes128),
    ),
    # 8. box
    Rule(
        id="BOX_RANK",
        step=80,
        on="box_sizes",
        kinds=TILED,
        needs=("RANK", "box_sizes"),
        holds=lambda c, i: len(c.box or ()) == c.rank,
        found=lambda c, i: f"box_sizes has {len(c.box or ())} entries",
        must=lambda c, i: f"have {c.rank}, one per dimension of the tensor",
        fix=lambda c, i: (
            f"give {c.rank} entries, row-major; 1 for dimensions that a tile does not span"
        ),
        source=f"{LIBCUDACXX}, __get_box_sizes",
        repair=repairs.entries("box_sizes"),
    ),
    Rule(
        id="BOX_RANGE",
        step=81,
        on="box_sizes",
        kinds=TILED,
        places=_inner_to_outer,
        needs=("BOX_RANK", "box_sizes"),
        holds=lambda c, i: 1 <= (c.box or ())[i] <= MAX_BOX,
        found=lambda c, i: f"{c.say_box(i)} is {(c.box or ())[i]}",
        must="be 1..256",
        fix=lambda c, i: (
            "use 256, and several copies for a larger tile"
            if (c.box or ())[i] > MAX_BOX
            else "use at least 1"
        ),
        source=f"{LIBCUDACXX}, __get_box_sizes; {TILED_DOC}",
        repair=repairs.clamp_box,
    ),
    Rule(
        id="BOX_IN_SHAPE",
        step=81,
        on="box_sizes",
        kinds=TILED,
        sets=LIBCU,
        places=_inner_to_outer,
        needs=("BOX_RANK", "box_sizes"),
        needs_here=("BOX_RANGE[i]", "DIM_RANGE[i]"),
        holds=lambda c, i: (c.box or ())[i] <= c.dims[i],
        found=lambda c, i: f"{c.say_box(i)} is {(c.box or ())[i]}",
        must=lambda c, i: f"be at most {c.say_dim(i)} = {c.dims[i]}",
        fix=lambda c, i: f"use {min(c.dims[i], MAX_BOX)}",
        source=f"{LIBCUDACXX}, __get_box_sizes",
        differs="driver: more is accepted, and the rest of the tile is filled",
        repair=repairs.clamp_box,
    ),
    Rule(
        id="BOX_INNER_16B",
        step=82,
        on="box_sizes",
        kinds=TILED,
        needs=("BOX_RANK", "box_sizes", "interleave_layout"),
        needs_here=("BOX_RANGE[0]",),
        applies=lambda c: not c.interleaved,
        holds=lambda c, i: c.inner_box_bytes % 16 == 0,
        found=lambda c, i: f"{c.say_inner()} spans {c.inner_box_bytes} bytes",
        must="be a multiple of 16 bytes when interleave_layout is none",
        fix=_inner_fix,
        source=f"{LIBCUDACXX}, __get_box_sizes; {TILED_DOC}",
        repair=repairs.inner_box,
    ),
    Rule(
        id="BOX_PACKED",
        step=82,
        on="box_sizes",
        needs=(
            "BOX_RANK",
            "PACKED_TYPE",
            "DTYPE",
            "DATA_TYPE_OVERRIDE",
            "data_type",
            "box_sizes",
            "channels_per_pixel",
        ),
        applies=lambda c: c.data_type in _SWIZZLES_OF_PADDED,
        holds=lambda c, i: c.inner_box == ALIGN16B_INNER,
        found=lambda c, i: f"{c.say_inner()} is {c.inner_box} values",
        must=lambda c, i: f"be {ALIGN16B_INNER} for {c.type_row.data_type.name}",
        fix=lambda c, i: f"use {ALIGN16B_INNER} values",
        source=TILED_DOC,
        repair=repairs.inner_to(ALIGN16B_INNER),
    ),
    Rule(
        id="BOX_SWIZZLE_SPAN",
        step=83,
        on="box_sizes",
        needs=(
            "BOX_RANK",
            "CHANNELS",
            "box_sizes",
            "channels_per_pixel",
            "swizzle",
            "interleave_layout",
        ),
        needs_here=("BOX_RANGE[0]",),
        applies=lambda c: not c.interleaved and bool(c.swizzle),
        holds=lambda c, i: c.inner_box_bytes <= c.span_bytes,
        found=lambda c, i: f"{c.say_inner()} spans {c.inner_box_bytes} bytes",
        must=lambda c, i: (
            f"be at most {c.span_bytes} bytes with swizzle {c.swizzle.name if c.swizzle else ''}"
        ),
        fix=repairs.span_hint,
        source=f"{LIBCUDACXX}, __get_box_sizes; {TILED_DOC}",
        differs="libcu++ page: when interleaved; code and driver: when not",
        repair=repairs.fit_span,
    ),
    Rule(
        id="BOX_SMEM",
        step=84,
        on="box_sizes",
        kinds=TILED,
        sets=LIBCU,
        driver="BOX_BYTES",
        needs=("BOX_RANK", "BOX_RANGE", "box_sizes"),
        holds=lambda c, i: c.box_bytes <= c.target.max_smem_bytes,
        found=lambda c, i: f"the box takes {c.box_bytes} bytes",
        must=lambda c, i: (
            f"fit the {c.target.max_smem_bytes} bytes of shared memory of a block on {c.target}"
        ),
        fix=repairs.smem_hint,
        source=f"{LIBCUDACXX}, __get_box_sizes",
        repair=repairs.shrink_box,
    ),
    # 9. element strides
    Rule(
        id="ELEM_STRIDES_RANK",
        step=90,
        on="elem_strides",
        needs=("RANK", "elem_strides"),
        holds=lambda c, i: len(c.elem_strides or ()) == c.rank,
        found=lambda c, i: f"elem_strides has {len(c.elem_strides or ())} entries",
        must=lambda c, i: f"have {c.rank}, one per dimension of the tensor",
        fix=lambda c, i: (
            "leave it out for strides of 1, or give one entry per dimension, row-major"
        ),
        source=f"{LIBCUDACXX}, __get_elem_strides",
        repair=repairs.entries("elem_strides"),
    ),
    Rule(
        id="ELEM_STRIDES_RANGE",
        step=91,
        on="elem_strides",
        places=lambda c: range(
            1 if c.rules in ("libcu++", "documented") and not c.interleaved else 0, c.rank
        ),
        needs=("ELEM_STRIDES_RANK", "elem_strides", "interleave_layout"),
        holds=lambda c, i: 1 <= (c.elem_strides or ())[i] <= MAX_ELEM_STRIDE,
        found=lambda c, i: f"{c.say_elem_stride(i)} is {(c.elem_strides or ())[i]}",
        must="be 1..8",
        fix=lambda c, i: "use 1 to take every element; for larger steps, index the tensor: x[::n]",
        source=f"{LIBCUDACXX}, __get_elem_strides; {TILED_DOC}",
        differs="libcu++ and documents ignore the innermost when not interleaved; the driver asks it",
        repair=repairs.clamp_elem_stride,
    ),
    Rule(
        id="ELEM_STRIDES_IN_SHAPE",
        step=91,
        on="elem_strides",
        kinds=TILED,
        sets=LIBCU,
        places=lambda c: range(0 if c.interleaved else 1, c.rank),
        needs=("ELEM_STRIDES_RANK", "elem_strides"),
        needs_here=("ELEM_STRIDES_RANGE[i]", "DIM_RANGE[i]"),
        holds=lambda c, i: (c.elem_strides or ())[i] <= c.dims[i],
        found=lambda c, i: f"{c.say_elem_stride(i)} is {(c.elem_strides or ())[i]}",
        must=lambda c, i: f"be at most {c.say_dim(i)} = {c.dims[i]}",
        fix=lambda c, i: f"use {min(c.dims[i], MAX_ELEM_STRIDE)}",
        source=f"{LIBCUDACXX}, __get_elem_strides",
        repair=repairs.clamp_elem_stride,
    ),
    # im2col
    Rule(id="LOWER_CORNER_COUNT", step=92, **_corner_count("lower", "lower")),
    Rule(id="UPPER_CORNER_COUNT", step=92, **_corner_count("upper", "upper")),
    Rule(
        id="LOWER_CORNER",
        step=93,
        on="pixel_box_lower_corner",
        needs=("RANK", "LOWER_CORNER_COUNT", "pixel_box_lower_corner", "lower_corner_width"),
        **_corner_range("lower", "lower"),
    ),
    Rule(
        id="UPPER_CORNER",
        step=93,
        on="pixel_box_upper_corner",
        needs=("RANK", "UPPER_CORNER_COUNT", "pixel_box_upper_corner", "upper_corner_width"),
        **_corner_range("upper", "upper"),
    ),
    Rule(
        id="BOUNDING_BOX",
        step=94,
        on="pixel_box_upper_corner",
        kinds=COLUMNS,
        places=_spatial,
        needs=(
            "RANK",
            "DIM_RANGE",
            "LOWER_CORNER_COUNT",
            "UPPER_CORNER_COUNT",
            "pixel_box_lower_corner",
            "pixel_box_upper_corner",
            "lower_corner_width",
            "upper_corner_width",
            "interleave_layout",
        ),
        needs_here=("LOWER_CORNER[i]", "UPPER_CORNER[i]"),
        holds=lambda c, i: c.bounding_box_extent(i) > 0,
        found=lambda c, i: (
            f"the bounding box is {c.bounding_box_extent(i)} pixels along {'WHD'[i]}: "
            f"{c.say_dim(c.first_spatial + i)} = {c.dims[c.first_spatial + i]}, "
            f"upper {(c.upper or ())[i]}, lower {(c.lower or ())[i]}"
        ),
        must="have at least one pixel along every spatial dimension: size + upper - lower > 0",
        fix=lambda c, i: (
            "use a kernel no larger than the padded image; im2col_corners() makes both"
        ),
        source=f"{IM2COL_DOC}; {MEASURED}",
        differs="the driver adds in 32-bit signed integers, which wrap",
        repair=repairs.open_bounding_box,
    ),
    Rule(
        id="WIDE_DIMS",
        step=94,
        on="tensor.shape",
        kinds=WIDE,
        sets=DRIVER,
        places=lambda c: range(1, c.spatial),
        needs=("RANK", "DIM_RANGE", "interleave_layout"),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.spatial_size(i) > 0,
        found=lambda c, i: f"{c.say_dim(c.first_spatial + i)} is {c.dims[c.first_spatial + i]}",
        must="be 1..2^31 - 1 along H and D",
        fix=lambda c, i: "split the tensor along this dimension, one map per part",
        source=MEASURED,
    ),
    Rule(
        id="CHANNELS",
        step=95,
        on="channels_per_pixel",
        kinds=COLUMNS,
        needs=("channels_per_pixel",),
        holds=lambda c, i: 1 <= (c.channels or 0) <= MAX_BOX,
        found=lambda c, i: f"channels_per_pixel is {c.channels}",
        must="be 1..256",
        fix=lambda c, i: "use 256 at most, and several copies for more channels",
        source=IM2COL_DOC,
        repair=repairs.clamp_count("channels_per_pixel", "channels", MAX_BOX),
    ),
    Rule(
        id="PIXELS",
        step=95,
        on="pixels_per_column",
        kinds=COLUMNS,
        needs=("pixels_per_column",),
        holds=lambda c, i: 1 <= (c.pixels or 0) <= MAX_PIXELS,
        found=lambda c, i: f"pixels_per_column is {c.pixels}",
        must="be 1..1024",
        fix=lambda c, i: "use 1024 at most, and several copies for more pixels",
        source=IM2COL_DOC,
        repair=repairs.clamp_count("pixels_per_column", "pixels", MAX_PIXELS),
    ),
    # 10. what the driver asks beyond
    Rule(
        id="ADDRESS_RANGE",
        step=100,
        on="tensor.address",
        holds=lambda c, i: 0 <= c.address < MAX_ADDRESS,
        found=lambda c, i: f"the address is {c.address:#x}",
        must="be below 2^57",
        fix=lambda c, i: "pass the address of device memory",
        source=MEASURED,
    ),
    Rule(
        id="CHANNELS_16B",
        step=101,
        on="channels_per_pixel",
        kinds=COLUMNS,
        needs=("CHANNELS", "channels_per_pixel"),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.inner_box_bytes % 16 == 0,
        found=lambda c, i: f"channels_per_pixel spans {c.inner_box_bytes} bytes",
        must="be a multiple of 16 bytes",
        fix=_inner_fix,
        source=MEASURED,
        differs="not in the im2col document",
        repair=repairs.inner_box,
    ),
    Rule(
        id="BOX_INNER_16B_INTERLEAVED",
        step=101,
        on="box_sizes",
        kinds=TILED,
        needs=("BOX_RANK", "box_sizes", "interleave_layout"),
        needs_here=("BOX_RANGE[0]",),
        applies=lambda c: c.interleaved and c.target.has_model,
        holds=lambda c, i: c.inner_box_bytes % 16 == 0,
        found=lambda c, i: f"{c.say_inner()} spans {c.inner_box_bytes} bytes",
        must="be a multiple of 16 bytes for the driver, interleaved or not",
        fix=_inner_fix,
        source=MEASURED,
        differs="libcu++ and the documents ask it only when not interleaved",
        repair=repairs.inner_box,
    ),
    Rule(
        id="BOX_BYTES",
        step=102,
        on="box_sizes",
        kinds=TILED,
        needs=(
            "BOX_RANK",
            "BOX_RANGE",
            "BOX_SMEM",
            "ELEM_STRIDES_RANK",
            "ELEM_STRIDES_RANGE",
            "box_sizes",
            "elem_strides",
        ),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.floor_box_bytes <= MAX_BOX_BYTES,
        found=lambda c, i: f"the driver counts {c.floor_box_bytes} bytes for the box",
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        fix=repairs.smem_hint,
        source=MEASURED,
        repair=repairs.shrink_box,
    ),
    Rule(
        id="COLUMN_BYTES",
        step=102,
        on="pixels_per_column",
        kinds=COLUMNS,
        needs=(
            "CHANNELS",
            "PIXELS",
            "channels_per_pixel",
            "pixels_per_column",
        ),
        applies=lambda c: c.target.has_model,
        holds=lambda c, i: c.box_bytes <= MAX_BOX_BYTES,
        found=lambda c, i: f"a column takes {c.box_bytes} bytes",
        must=f"be at most {MAX_BOX_BYTES} bytes (228 KB)",
        fix=lambda c, i: "use fewer pixels per column or fewer channels per pixel",
        source=MEASURED,
        differs="not in the im2col document",
        repair=repairs.shrink_column,
    ),
)

assert len({r.id for r in RULES}) == len(RULES), "ids of rules are unique"
assert SWIZZLE_SPAN_BYTES[TmaSwizzle.bytes64] == 64
