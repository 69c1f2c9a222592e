"""Rules on the tensor: device, rank, address, sizes, strides."""

from __future__ import annotations

from tma_dlpack.checks import names, repairs, words
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import (
    ALL_BUT_MEASURED,
    HAS_TYPE,
    MEASURED,
    TILED,
    WIDE,
    Rule,
)
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.enums import TmaInterleaveLayout
from tma_dlpack.tables.limits import (
    MAX_RANK,
    MIN_RANK_IM2COL,
    MIN_RANK_INTERLEAVED,
)


def _min_rank(r: Request) -> int:
    return 1 if r.kind == "tiled" else MIN_RANK_IM2COL


def _rank_fix(r: Request) -> str:
    if r.is_driver_call:
        return "merge dimensions, or make one map per slice; add dimensions of 1 for im2col"
    if r.rank > MAX_RANK:
        return (
            "merge dimensions that are contiguous with x.reshape(...), or index the outer ones and "
            "make one map per slice"
        )
    if r.kind == "tiled":
        return "give it a dimension: x.reshape(1)"
    return "add dimensions of size 1 with x[None]: im2col reads N, [D,] [H,] W, C"


def _packed_extent_fix(r: Request) -> str:
    if r.view is None:
        return f"use a multiple of {r.type_row.packed_unit} values"
    bits_of_unit = r.type_row.packed_unit * r.element_bits
    return words.pad_extent_fix(r, -(-bits_of_unit // r.view.dtype.itemsize_bits))


TENSOR_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="CAPABILITY",
        step=10,
        on="target",
        why="earlier GPUs have no Tensor Memory Accelerator",
        sets=ALL_BUT_MEASURED,
        unsupported=True,
        holds="has_tma",
        found=lambda r: "the target has compute capability {}.{}".format(
            *r.target.compute_capability
        ),
        must="have a Tensor Memory Accelerator: compute capability 9.0 or later",
        fix="use a Hopper or newer GPU, or make the map for one: target='sm_90'",
        libcudacxx="__check_device",
        repair=repairs.constant(target=None),
    ),
    Rule(
        id="WIDE_CAPABILITY",
        step=13,
        on="target",
        why="sm_90 has no instruction that uses an im2col-wide map",
        make_only=True,
        unsupported=True,
        kinds=WIDE,
        sets=frozenset({"documented"}),
        after=("CAPABILITY",),
        holds="has_wide",
        found=lambda r: f"the target of an im2col-wide map is {r.target}",
        must="be for compute capability 10.0 or later",
        fix=lambda r: f"use make_im2col_descriptor: {r.target} has no instruction for such a map",
        documented=True,
        differs="driver 580.159.04 encodes it on sm_90 nevertheless",
    ),
    # 2. rank
    Rule(
        id="RANK",
        step=20,
        on="tensor.rank",
        why="a map has room for five dimensions; an im2col map has N and C beside the spatial ones",
        asks="have 1 to 5 dimensions, 3 to 5 for im2col maps",
        holds="1 <= rank <= MAX_RANK and (kind == TILED or rank >= MIN_RANK_IM2COL)",
        found=lambda r: (
            f"tensor_rank is {r.rank}"
            if r.is_driver_call
            else f"the tensor has {counted(r.rank, 'dimension')}"
        ),
        must=lambda r: f"{'be' if r.is_driver_call else 'have'} {_min_rank(r)}..{MAX_RANK}",
        fix=_rank_fix,
        libcudacxx="__get_tensor_map_rank",
        documented=True,
    ),
    Rule(
        id="RANK_INTERLEAVED",
        step=21,
        on="interleave_layout",
        why="an interleaved tensor has at least W, slices and N",
        kinds=TILED,
        after=("RANK",),
        holds="interleave == 0 or rank >= MIN_RANK_INTERLEAVED",
        found=lambda r: (
            f"{names.argument(r, 'interleave_layout')} is {r.arguments.interleave.name} for a "
            f"tensor of {counted(r.rank, 'dimension')}"
        ),
        must=f"be none for fewer than {MIN_RANK_INTERLEAVED} dimensions",
        fix=lambda r: (
            f"use {names.argument(r, 'interleave_layout')}='none', or add outer dimensions of "
            f"size 1{'' if r.is_driver_call else ' with x[None]'}"
        ),
        libcudacxx="__get_tensor_map_rank",
        documented=True,
        differs="libcu++ page: rank must not exceed 3; code, driver and PTX: at least 3",
        repair=repairs.constant(interleave_layout=TmaInterleaveLayout.none),
    ),
    # 3. address
    Rule(
        id="ADDRESS_NULL",
        step=30,
        on="tensor.address",
        why="only a tensor without elements may have the address 0, and it has nothing to copy",
        make_only=True,
        holds="not is_null",
        found="the tensor has no memory: its address is 0",
        must="have an address",
        fix="an empty tensor has nothing to copy: skip it",
        libcudacxx="__get_tensor_address",
    ),
    Rule(
        id="ADDRESS_ALIGNED",
        step=31,
        on="tensor.address",
        why="the hardware moves memory in units of 16 bytes, for some layouts 32",
        asks="be a multiple of 16 bytes, or 32 with bytes32 and for the types padded to 16 bytes",
        holds="address % alignment_bytes == 0",
        found=lambda r: (
            f"the address {r.address:#x} is {counted(r.address % r.alignment_bytes, 'byte')} past "
            f"a multiple of {r.alignment_bytes}"
        ),
        must=lambda r: f"be a multiple of {r.alignment_bytes} bytes",
        fix=words.alignment_fix,
        libcudacxx="__get_tensor_address",
        documented=True,
        repair=repairs.less_aligned,
    ),
    # 5. sizes
    Rule(
        id="DIM_PACKED",
        step=50,
        on="tensor.shape",
        why="a row of packed values must be whole bytes, and whole groups for padded types",
        asks="have an innermost extent that is a multiple of 2 values, of 128 for the types padded "
        "to 16 bytes",
        sets=ALL_BUT_MEASURED,
        after=("RANK", *HAS_TYPE, "PACKED_TYPE"),
        holds="not is_packed or row_bits % (packed_unit * element_bits) == 0",
        found=lambda r: (
            f"the innermost extent is {counted(r.arguments.global_dim[0], 'value')} "
            f"of {r.element_bits} bits"
        ),
        must=lambda r: f"be a multiple of {r.type_row.packed_unit} values",
        fix=_packed_extent_fix,
        libcudacxx="__get_tensor_sizes",
        documented=True,
        repair=repairs.other_type,
    ),
    Rule(
        id="DIM_RANGE",
        step=51,
        on="tensor.shape",
        why="the map stores extent - 1 in 32 bits",
        after=("RANK",),
        each="d",
        outermost_first=True,
        holds="1 <= global_dim[d] <= MAX_DIM",
        found=names.extent_found,
        must="be 1..2^32",
        fix=lambda r, i: (
            "an empty tensor has nothing to copy: skip it"
            if r.arguments.global_dim[i] < 1
            else words.parts_fix(r, i)
        ),
        libcudacxx="__get_tensor_sizes",
        documented=True,
        differs="the programming guide's text says greater than one; everything else, at least one",
    ),
    # 6. strides
    Rule(
        id="STRIDE_INNERMOST",
        step=60,
        on="tensor.strides",
        why="a map has no stride for the innermost dimension: its elements must be adjacent",
        make_only=True,
        after=("RANK",),
        holds="inner_stride == 1",
        found=lambda r: (
            f"{names.layout(r, 'strides')}[{r.rank - 1}] is "
            f"{counted(r.innermost_stride, 'element')}"
        ),
        must="be 1: the last dimension must be contiguous",
        fix=words.transpose_fix,
        libcudacxx="__get_tensor_strides",
        differs="releases before 3.5 ignored it, and described other elements",
    ),
    Rule(
        id="STRIDE_UNIQUE",
        step=61,
        on="tensor.strides",
        why="libcu++ requires that elements do not overlap; the driver does not",
        asks="be 0, or at least shape[i+1] x strides[i+1], the span of the next inner dimension",
        make_only=True,
        sets=frozenset({"libcu++", "documented"}),
        after=("RANK", "STRIDE_INNERMOST"),
        each="d > 0",
        holds="stride_bits[d - 1] == 0 or stride_bits[d - 1] >= inside_bits[d]",
        found=names.stride_found,
        must=lambda r, i: (
            f"be 0, or at least the {counted(r.nested_bytes(i), 'byte')} that the next inner "
            "dimension spans"
        ),
        fix=lambda r, i: words.nesting_fix(r),
        libcudacxx="__get_tensor_strides",
        differs="page: strides[i] >= shape[i-1] and > 0; code: shape[i+1] x strides[i+1], or 0",
    ),
    Rule(
        id="STRIDE_ALIGNED",
        step=61,
        on="tensor.strides",
        why="the map stores strides in units of 16 bytes",
        asks="be a multiple of 16 bytes, or 32 with bytes32 and for the types padded to 16 bytes",
        after=("RANK", "STRIDE_INNERMOST"),
        each="d > 0",
        holds="stride_bits[d - 1] % (8 * alignment_bytes) == 0",
        found=names.stride_found,
        must=lambda r, i: f"be a multiple of {r.alignment_bytes} bytes",
        fix=lambda r, i: words.padding_fix(r),
        libcudacxx="__get_tensor_strides",
        documented=True,
        repair=lambda r, i: repairs.less_aligned(r),
    ),
    Rule(
        id="STRIDE_RANGE",
        step=61,
        on="tensor.strides",
        why="the map stores a stride in 36 bits, in units of 16 bytes",
        after=("RANK", "STRIDE_INNERMOST"),
        each="d > 0",
        holds="0 <= stride_bits[d - 1] < 8 * STRIDE_BYTES_END",
        found=names.stride_found,
        must="be less than 2^40 bytes, and not negative",
        fix=words.index_fix,
        libcudacxx="__get_tensor_strides",
        documented=True,
    ),
    # 10. what only the driver requires
    Rule(
        id="ADDRESS_RANGE",
        step=100,
        on="tensor.address",
        why="the driver accepts addresses of 57 bits",
        holds="0 <= address < ADDRESS_END",
        found=lambda r: f"the address is {r.address:#x}",
        must="be below 2^57, and not negative",
        fix="pass the address of device memory, such as data_ptr() of a torch tensor gives",
        source=MEASURED,
    ),
)
