"""Device, rank, address, data type, sizes, strides: what is asked of the tensor."""

from __future__ import annotations

from collections.abc import Iterable

from tma_dlpack.rules import repairs, words
from tma_dlpack.rules.request import Case
from tma_dlpack.rules.rule import (
    HAS_TYPE,
    LIBCU,
    LIBCUDACXX,
    MEASURED,
    TILED,
    TILED_DOC,
    WIDE,
    WIDE_DOC,
    WRITTEN,
    Rule,
)
from tma_dlpack.types.coerce import counted
from tma_dlpack.types.dtypes import PACKED_TYPES, overrides_of
from tma_dlpack.types.enums import DLDataTypeCode, TmaInterleaveLayout, TmaOobFill
from tma_dlpack.types.limits import (
    ADDRESS_END,
    MAX_DIM,
    MAX_RANK,
    MIN_RANK_IM2COL,
    MIN_RANK_INTERLEAVED,
    PADDED_INNER_VALUES,
    STRIDE_BYTES_END,
)

__all__ = ["TENSOR_RULES"]

_NAN_REFUSED = (DLDataTypeCode.kDLInt, DLDataTypeCode.kDLUInt, DLDataTypeCode.kDLBool)


def _outer_to_inner(c: Case) -> Iterable[int]:
    return range(c.rank - 1, -1, -1)


def _strided(c: Case) -> Iterable[int]:
    return range(1, c.rank)


def _min_rank(c: Case) -> int:
    return 1 if c.kind == "tiled" else MIN_RANK_IM2COL


def _rank_fix(c: Case, i: int) -> str:
    if c.mirror:
        return "merge dimensions, or make one map per slice; add dimensions of 1 for im2col"
    if c.rank > MAX_RANK:
        return (
            "merge dimensions that are contiguous with x.reshape(...), or index the outer ones and "
            "make one map per slice"
        )
    if c.kind == "tiled":
        return "give it a dimension: x.reshape(1)"
    return "add dimensions of size 1 with x[None]: im2col reads N, [D,] [H,] W, C"


def _packed_unit(c: Case) -> int:
    """Values of which the innermost extent of a packed type must be a multiple."""
    return PADDED_INNER_VALUES if c.type_row.smem_chunk_bytes == 16 else 2


def _packed_extent_fix(c: Case, i: int) -> str:
    if c.view is None:
        return f"use a multiple of {_packed_unit(c)} values"
    bits_of_unit = _packed_unit(c) * c.element_bits
    return words.pad_extent_fix(c, -(-bits_of_unit // c.view.dtype.itemsize_bits))


def _libcudacxx_refuses_nan(c: Case) -> bool:
    """Say whether libcu++ looks at the fill of a type: not at float8's and float4's."""
    if c.rules != "libcu++" or c.view is None or c.asked_type is not None:
        return True
    return c.view.dtype.code in _NAN_REFUSED


def _override_fix(c: Case, i: int) -> str:
    assert c.view is not None
    choices = ", ".join(t.name for t in overrides_of(c.view.dtype))
    return f"leave it out, or choose one of {choices}" if choices else words.carry_fix(c, i)


def _fill_suits_type(c: Case) -> bool:
    return c.oob_fill is not TmaOobFill.nan or c.type_row.is_float


TENSOR_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="CAPABILITY",
        step=10,
        on="target",
        sets=WRITTEN,
        unsupported=True,
        needs=("target",),
        holds=lambda c, i: c.target.has_tma,
        found=lambda c, i: "the target has compute capability {}.{}".format(
            *c.target.compute_capability
        ),
        must="have a Tensor Memory Accelerator: compute capability 9.0 or later",
        fix=lambda c, i: (
            "use a Hopper or newer GPU, or describe the tensor for one: target='sm_90'"
        ),
        source=f"{LIBCUDACXX}, __check_device",
        repair=repairs.constant(target=None),
    ),
    Rule(
        id="PACKED_TYPE",
        step=12,
        on="tensor.dtype",
        unsupported=True,
        needs=("target", "CAPABILITY", "data_type"),
        applies=lambda c: c.data_type in PACKED_TYPES,
        holds=lambda c, i: not c.target.is_sm_9x,
        found=lambda c, i: f"{c.say_type()} on {c.target}",
        must="be a type of whole bytes on compute capability 9.x",
        fix=words.packed_fix,
        source=f"{LIBCUDACXX}, __check_device",
        repair=repairs.other_type,
    ),
    Rule(
        id="WIDE_CAPABILITY",
        step=13,
        on="target",
        unsupported=True,
        kinds=WIDE,
        sets=frozenset({"documented"}),
        needs=("target", "CAPABILITY"),
        applies=lambda c: not c.mirror,
        holds=lambda c, i: c.target.compute_capability >= (10, 0),
        found=lambda c, i: f"an im2col-wide map is asked for {c.target}",
        must="be for compute capability 10.0 or later",
        fix=lambda c, i: f"use make_im2col_descriptor: no {c.target} instruction reads such a map",
        source=WIDE_DOC,
        differs="driver 580.159.04 encodes it on sm_90 all the same",
    ),
    # 2. rank
    Rule(
        id="RANK",
        step=20,
        on="tensor.rank",
        holds=lambda c, i: _min_rank(c) <= c.rank <= MAX_RANK,
        found=lambda c, i: (
            f"tensor_rank is {c.rank}"
            if c.mirror
            else f"the tensor has {counted(c.rank, 'dimension')}"
        ),
        must=lambda c, i: ("be {}..{}" if c.mirror else "have {}..{}").format(
            _min_rank(c), MAX_RANK
        ),
        fix=_rank_fix,
        source=f"{LIBCUDACXX}, __get_tensor_map_rank; {TILED_DOC}",
    ),
    Rule(
        id="RANK_INTERLEAVED",
        step=21,
        on="interleave_layout",
        kinds=TILED,
        needs=("RANK", "interleave_layout"),
        applies=lambda c: c.interleaved,
        holds=lambda c, i: c.rank >= MIN_RANK_INTERLEAVED,
        found=lambda c, i: (
            f"{c.argument('interleave_layout')} is {c.interleave.name} for a tensor of "
            f"{counted(c.rank, 'dimension')}"
        ),
        must=f"be none for fewer than {MIN_RANK_INTERLEAVED} dimensions",
        fix=lambda c, i: (
            f"use {c.argument('interleave_layout')}='none', or add outer dimensions of size 1"
            + ("" if c.mirror else " with x[None]")
        ),
        source=f"{LIBCUDACXX}, __get_tensor_map_rank; {TILED_DOC}",
        differs="libcu++ page: rank must not exceed 3; code, driver and PTX: at least 3",
        repair=repairs.constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    # 3. address
    Rule(
        id="ADDRESS_NULL",
        step=30,
        on="tensor.address",
        applies=lambda c: not c.mirror,
        holds=lambda c, i: c.address != 0,
        found=lambda c, i: "the tensor has no memory: its address is 0",
        must="have an address",
        fix=lambda c, i: "an empty tensor has nothing to copy: skip it",
        source=f"{LIBCUDACXX}, __get_tensor_address",
    ),
    Rule(
        id="ADDRESS_ALIGNED",
        step=31,
        on="tensor.address",
        needs=("interleave_layout", "data_type"),
        holds=lambda c, i: c.address % c.alignment_bytes == 0,
        found=lambda c, i: (
            f"the address {c.address:#x} is {counted(c.address % c.alignment_bytes, 'byte')} past "
            f"a multiple of {c.alignment_bytes}"
        ),
        must=lambda c, i: f"be a multiple of {c.alignment_bytes} bytes",
        fix=words.alignment_fix,
        source=f"{LIBCUDACXX}, __get_tensor_address; {TILED_DOC}",
        repair=repairs.less_aligned,
    ),
    # 4. data type
    Rule(
        id="DTYPE",
        step=40,
        on="tensor.dtype",
        needs=("data_type",),
        applies=lambda c: not c.mirror and c.asked_type is None,
        holds=lambda c, i: c.data_type is not None,
        found=lambda c, i: f"tensor.dtype is {c.view.dtype if c.view else 'unknown'}",
        must="be one that tensor maps have: uint8/16/32/64, int32/64, float16/32/64, bfloat16, "
        "bool, a float8, or 4-bit values of 16 lanes (or float4_e2m1fn)",
        fix=words.carry_fix,
        source=f"{LIBCUDACXX}, __get_tensor_map_data_type",
        repair=repairs.other_type,
    ),
    Rule(
        id="DATA_TYPE_OVERRIDE",
        step=41,
        on="data_type",
        needs=("data_type",),
        applies=lambda c: not c.mirror and c.asked_type is not None,
        holds=lambda c, i: c.data_type is not None,
        found=lambda c, i: (
            f"data_type is {c.asked_type.name if c.asked_type is not None else 'left out'} for a "
            f"tensor of {c.view.dtype if c.view else 'unknown type'}"
        ),
        must="have the element size of the tensor",
        fix=_override_fix,
        source="tma_dlpack: a map never reinterprets the size of an element",
        repair=repairs.other_type,
    ),
    Rule(
        id="OOB_NAN",
        step=42,
        on="oobfill",
        needs=(*HAS_TYPE, "oobfill"),
        applies=_libcudacxx_refuses_nan,
        holds=lambda c, i: _fill_suits_type(c),
        found=lambda c, i: (
            f"{c.argument('oobfill')} is nan for the map type {c.type_row.data_type.name}"
        ),
        must="be none for data types that are not floating-point",
        fix=lambda c, i: f"use {c.argument('oobfill')}='none', which fills with zeros",
        source=f"{LIBCUDACXX}, __get_tensor_map_data_type; {TILED_DOC}",
        repair=repairs.constant(oobfill=TmaOobFill.none),
    ),
    # 5. sizes
    Rule(
        id="DIM_PACKED",
        step=50,
        on="tensor.shape",
        sets=WRITTEN,
        needs=("RANK", *HAS_TYPE, "PACKED_TYPE"),
        applies=lambda c: c.data_type in PACKED_TYPES,
        holds=lambda c, i: c.dims[0] % _packed_unit(c) == 0,
        found=lambda c, i: (
            f"the innermost extent is {counted(c.dims[0], 'value')} of {c.element_bits} bits"
        ),
        must=lambda c, i: f"be a multiple of {_packed_unit(c)} values",
        fix=_packed_extent_fix,
        source=f"{LIBCUDACXX}, __get_tensor_sizes; {TILED_DOC}",
        repair=repairs.other_type,
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
            "an empty tensor has nothing to copy: skip it"
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
        needs=("RANK",),
        applies=lambda c: not c.mirror,
        holds=lambda c, i: c.innermost_stride == 1,
        found=lambda c, i: (
            f"tensor.strides[{c.rank - 1}] is {counted(c.innermost_stride, 'element')}"
        ),
        must="be 1: the last dimension must be contiguous",
        fix=words.transpose_fix,
        source=f"{LIBCUDACXX}, __get_tensor_strides",
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
            f"be 0, or at least the {counted(c.nested_bytes(i), 'byte')} that the dimension inside "
            "it spans"
        ),
        fix=words.nesting_fix,
        source=f"{LIBCUDACXX}, __get_tensor_strides",
        differs="page: strides[i] >= shape[i-1] and > 0; code: shape[i+1] x strides[i+1], or 0",
    ),
    Rule(
        id="STRIDE_ALIGNED",
        step=61,
        on="tensor.strides",
        places=_strided,
        needs=("RANK", "STRIDE_INNERMOST", "interleave_layout", "data_type"),
        holds=lambda c, i: c.strides_bytes[i - 1] % c.alignment_bytes == 0,
        found=lambda c, i: c.say_stride(i),
        must=lambda c, i: f"be a multiple of {c.alignment_bytes} bytes",
        fix=words.padding_fix,
        source=f"{LIBCUDACXX}, __get_tensor_strides; {TILED_DOC}",
        repair=repairs.less_aligned,
    ),
    Rule(
        id="STRIDE_RANGE",
        step=61,
        on="tensor.strides",
        places=_strided,
        needs=("RANK", "STRIDE_INNERMOST"),
        holds=lambda c, i: 0 <= c.strides_bytes[i - 1] < STRIDE_BYTES_END,
        found=lambda c, i: c.say_stride(i),
        must="be less than 2^40 bytes, and not negative",
        fix=lambda c, i: "index this dimension instead, and make one map per slice",
        source=f"{LIBCUDACXX}, __get_tensor_strides; {TILED_DOC}",
    ),
    # 10. what the driver asks beyond
    Rule(
        id="ADDRESS_RANGE",
        step=100,
        on="tensor.address",
        holds=lambda c, i: 0 <= c.address < ADDRESS_END,
        found=lambda c, i: f"the address is {c.address:#x}",
        must="be below 2^57, and not negative",
        fix=lambda c, i: "pass the address of device memory",
        source=MEASURED,
    ),
    Rule(
        id="OOB_NAN_FLOAT8",
        step=103,
        on="oobfill",
        sets=LIBCU,
        needs=(*HAS_TYPE, "oobfill"),
        applies=lambda c: not _libcudacxx_refuses_nan(c),
        holds=lambda c, i: _fill_suits_type(c),
        found=lambda c, i: f"oobfill is nan for the map type {c.type_row.data_type.name}",
        must="be none for data types that are not floating-point",
        fix=lambda c, i: f"use {c.argument('oobfill')}='none', which fills with zeros",
        source=TILED_DOC,
        differs="libcu++ lets float8 and float4 pass to the driver, which takes them as integers",
        repair=repairs.constant(oobfill=TmaOobFill.none),
    ),
)
