"""Rules about the tensor (device, rank, address, data type, sizes, strides) and the fill."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from tma_dlpack.checks import candidates, words
from tma_dlpack.checks.candidates import Candidates
from tma_dlpack.checks.request import Request, in_bytes
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.rule import ALL_BUT_MEASURED, HAS_TYPE, LIBCU, MEASURED, TILED, WIDE, Rule
from tma_dlpack.tables.targets import MAX_RANK, MIN_RANK_IM2COL, MIN_RANK_INTERLEAVED


def _gpu_candidates(r: Request) -> Iterator[Candidates]:
    gpu, target = ("Blackwell", "sm_100") if r.kind == "im2col_wide" else ("Hopper", "sm_90")
    text = "use a {} or newer GPU, or make the map for one: target={!r}"
    yield candidates.targets(target, partial(text.format, gpu, target))


def _min_rank(r: Request) -> int:
    return 1 if r.kind == "tiled" else MIN_RANK_IM2COL


def _rank_fix(r: Request) -> str:
    if r.is_driver_call:
        return "merge dimensions, or make one map per slice; add dimensions of 1 for im2col"
    if r.rank > MAX_RANK:
        return (
            "merge dimensions that are contiguous with x.reshape(...), or index the outer ones and "
            "make one map per slice, with one entry of each argument per dimension"
        )
    if r.kind == "tiled":
        return "a single element needs no copy: pass it to the kernel as an argument"
    return (
        "add dimensions of size 1 with x[None], and corners with one entry per spatial dimension: "
        "im2col reads N, [D,] [H,] W, C"
    )


def _rank_candidates(r: Request) -> Iterator[Candidates]:
    if r.rank > MAX_RANK:
        yield candidates.merged(r, MAX_RANK)
        yield candidates.indexed(r, MAX_RANK)
    elif r.kind != "tiled":
        yield candidates.outer_ones(r, MIN_RANK_IM2COL, "{}: im2col reads N, [D,] [H,] W, C")


def _stride_must(r: Request, i: int) -> str:
    inside = counted(in_bytes(r.facts.inside_bits[i]), "byte")
    return f"be 0, or at least the {inside} that the next inner dimension spans"


def _packed_extent_candidates(r: Request) -> Iterator[Candidates]:
    if not r.is_driver_call:
        # `packed_unit` counts values of the map. The tensor's elements may be wider, for example
        # bytes with two 4-bit values. So convert the unit to elements of the tensor.
        bits_of_unit = r.type_row.packed_unit * r.facts.element_bits
        yield candidates.widened(r, -(-bits_of_unit // r.tensor.dtype.itemsize_bits))
        yield candidates.data_types(r)


def _less_aligned(r: Request) -> Iterator[Candidates]:
    """Yield options that need an alignment of 16 bytes instead of 32 bytes."""
    # interleave_layout=bytes32 or a padded type needs 32 bytes. The first alternative keeps an
    # interleaved layout, so it has bytes16 but not none.
    if r.facts.alignment_bytes > 16:
        yield (
            w for w in candidates.members(r, "interleave_layout") if w.change["interleave_layout"]
        )
        yield candidates.data_types(r)


def _address_candidates(r: Request) -> Iterator[Candidates]:
    # An option that needs less alignment moves no data, so it comes before other addresses and
    # copies.
    yield from _less_aligned(r)
    if not r.is_driver_call and not r.is_own_layout:
        offset = words.nearest_offset(r)
        if offset is not None:
            yield candidates.moved(r, offset)
    start = partial(
        "start the view at a multiple of {} bytes, or {}".format, r.facts.alignment_bytes
    )
    yield (w.reworded(start) for w in candidates.copies(r))


def _innermost_candidates(r: Request) -> Iterator[Candidates]:
    """Yield fixes of an innermost stride that is not 1.

    For the tensor's own layout, put the contiguous dimension last, or copy the tensor. For
    `strides=`, yield other strides.
    """
    if r.is_driver_call:
        return
    if not r.is_own_layout:
        # NumPy and the driver count strides in bytes; DLPack, torch and this package count
        # elements.
        text = "strides are in elements, not in bytes: did you mean {}?"
        if meant := words.strides_in_elements(r):
            yield candidates.described(meant, text.format, is_guess=True)
        given = (*r.tensor.strides[:-1], 1)
        yield candidates.described(given, "pass strides whose last entry is 1, such as {}".format)
        return
    strides = r.tensor.strides
    # Skip dimensions of extent 1: their strides are never used, so they may be 1 by chance.
    contiguous = [d for d, n in enumerate(r.tensor.shape) if strides[d] == 1 and n > 1]
    if contiguous and r.kind != "tiled" and r.rank >= 3 and strides[1] == 1:
        # N, C, [D,] [H,] W becomes N, [D,] [H,] W, C.
        order = (0, *range(2, r.rank), 1)
        text = (
            "this is an N, C, [D,] [H,] W tensor in channels_last memory: pass {}, which moves no "
            "data"
        )
        yield candidates.permuted(r, order, text.format)
        return
    elif contiguous:
        last = contiguous[-1]
        order = (*(d for d in range(r.rank) if d != last), last)
        yield candidates.permuted(
            r, order, partial("dimension {} is the contiguous one: pass {}".format, last)
        )
    else:
        text = "elem_strides cannot step the last dimension; {}"
        yield (w.reworded(text.format) for w in candidates.copies(r))
        return
    yield candidates.copies(r)


def _unique_candidates(r: Request) -> Iterator[Candidates]:
    yield candidates.allow(r, "STRIDE_UNIQUE")
    if not candidates.is_own(r):
        return
    # If the dimensions are sorted by stride, each dimension lies inside the dimension before it,
    # unless elements overlap. The last dimension must stay the last, because its stride must be 1.
    order = words.nesting_order(r.tensor)
    if order[-1] == r.rank - 1:
        yield candidates.permuted(r, order, "order the dimensions by stride: pass {}".format)
    yield candidates.copies(r)


def _aligned_candidates(r: Request) -> Iterator[Candidates]:
    yield from _less_aligned(r)
    if last := list(candidates.channels_last(r)):
        yield last
        return
    if not r.is_driver_call and not r.is_own_layout:
        # If an element is larger than `alignment_bytes`, the quotient is 0, so the unit is 1.
        unit = r.facts.alignment_bytes * 8 // r.tensor.dtype.itemsize_bits or 1
        strides = (*(-(-n // unit) * unit for n in r.tensor.strides[:-1]), r.tensor.strides[-1])
        yield candidates.described(
            strides,
            lambda code: (
                f"use strides that are multiples of {counted(unit, 'element')}, such as {code}"
            ),
        )
    yield candidates.copies(r)


_stride_rule = partial(
    Rule,
    step=61,
    on="tensor.strides",
    prerequisites=("RANK", "STRIDE_INNERMOST"),
    each="d > 0",
    found=words.stride_found,
    libcudacxx="__get_tensor_strides",
)

# The numbers in the comments below are the steps of libcu++: 1 device, 2 rank, 3 address, 4 data
# type, 5 sizes, 6 strides, 7 swizzle and interleaved layout, 8 box, 9 element strides. Step 10 has
# the rules that only the driver checks.
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
        candidates=_gpu_candidates,
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
        prerequisites=("CAPABILITY",),
        holds="has_wide",
        found=lambda r: f"the target of an im2col-wide map is {r.target}",
        must="be for compute capability 10.0 or later",
        candidates=lambda r: [
            candidates.targets(
                "sm_100",
                lambda: (
                    f"use make_im2col_descriptor, because {r.target} has no instruction for such a "
                    "map, or make it for a GPU that has: target='sm_100'"
                ),
            )
        ],
        documented=True,
        differs="driver 580.159.04 encodes it on sm_90 nevertheless",
    ),
    # 2. rank
    Rule(
        id="RANK",
        step=20,
        on="tensor.rank",
        why="a map has room for five dimensions; an im2col map has N, C and 1 to 3 spatial ones",
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
        candidates=_rank_candidates,
    ),
    Rule(
        id="RANK_INTERLEAVED",
        step=21,
        on="interleave_layout",
        why="an interleaved tensor has at least W, slices and N",
        kinds=TILED,
        prerequisites=("RANK",),
        holds="interleave == 0 or rank >= MIN_RANK_INTERLEAVED",
        found=lambda r: (
            f"{words.argument(r, 'interleave_layout')} is {r.arguments.interleave.name} for a "
            f"tensor of {counted(r.rank, 'dimension')}"
        ),
        must=f"be none for fewer than {MIN_RANK_INTERLEAVED} dimensions",
        libcudacxx="__get_tensor_map_rank",
        documented=True,
        differs="libcu++ page: rank must not exceed 3; code, driver and PTX: at least 3",
        candidates=lambda r: [
            candidates.members(r, "interleave_layout"),
            candidates.outer_ones(r, MIN_RANK_INTERLEAVED, "{}"),
        ],
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
        found=lambda r: f"the address is {r.address:#x}",
        must=lambda r: (
            f"be a multiple of {r.facts.alignment_bytes} bytes, and is "
            f"{counted(r.address % r.facts.alignment_bytes, 'byte')} past one"
        ),
        fix=lambda r: f"use an address that is a multiple of {r.facts.alignment_bytes}",
        libcudacxx="__get_tensor_address",
        documented=True,
        changes=("interleave_layout", "data_type"),
        candidates=_address_candidates,
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
        prerequisites=("RANK", *HAS_TYPE, "PACKED_TYPE"),
        holds="not is_packed or row_bits % (packed_unit * element_bits) == 0",
        found=lambda r: (
            f"the innermost extent is {counted(r.arguments.global_dim[0], 'value')} "
            f"of {r.facts.element_bits} bits"
        ),
        must=lambda r: f"be a multiple of {r.type_row.packed_unit} values",
        fix=lambda r: f"use a multiple of {r.type_row.packed_unit} values",
        libcudacxx="__get_tensor_sizes",
        documented=True,
        changes=("data_type",),
        candidates=_packed_extent_candidates,
    ),
    Rule(
        id="DIM_RANGE",
        step=51,
        on="tensor.shape",
        why="the map stores extent - 1 in 32 bits",
        prerequisites=("RANK",),
        each="d",
        outermost_first=True,
        holds="1 <= global_dim[d] <= MAX_DIM",
        found=words.extent_found,
        must="be 1..2^32",
        fix=lambda r, i: (
            "an empty tensor has nothing to copy: skip it"
            if r.arguments.global_dim[i] < 1
            else words.parts_fix(r, i)
        ),
        candidates=lambda r, i: [candidates.parts(r, i)] if r.arguments.global_dim[i] > 1 else [],
        libcudacxx="__get_tensor_sizes",
        documented=True,
        differs="the programming guide asks for more than one; every other source allows one",
    ),
    # 6. strides
    Rule(
        id="STRIDE_INNERMOST",
        step=60,
        on="tensor.strides",
        why="a map has no stride for the innermost dimension: its elements must be adjacent",
        make_only=True,
        prerequisites=("RANK",),
        holds="inner_stride == 1",
        found=lambda r: (
            f"{words.layout(r, 'strides')}[{r.rank - 1}] is "
            f"{counted(r.facts.inner_stride, 'element')}"
        ),
        must="be 1: the last dimension must be contiguous",
        fix="pass strides whose last entry is 1",
        candidates=_innermost_candidates,
        libcudacxx="__get_tensor_strides",
        differs="releases before 3.5 ignored it, and described other elements",
    ),
    _stride_rule(
        id="STRIDE_UNIQUE",
        why="libcu++ requires that elements do not overlap; the driver does not",
        asks="be 0, or at least shape[i+1] x strides[i+1], the span of the next inner dimension",
        make_only=True,
        sets=frozenset({"libcu++", "documented"}),
        holds="stride_bits[d - 1] == 0 or stride_bits[d - 1] >= inside_bits[d]",
        must=_stride_must,
        fix="order the dimensions by stride, each at least as large as the one inside it spans",
        changes=("allow",),
        candidates=lambda r, i: _unique_candidates(r),
        differs="page: strides[i] >= shape[i-1] and > 0; code: shape[i+1] x strides[i+1], or 0",
        if_allowed="copies the elements at these strides",
    ),
    _stride_rule(
        id="STRIDE_ALIGNED",
        why="the map stores strides in units of 16 bytes",
        asks="be a multiple of 16 bytes, or 32 with bytes32 and for the types padded to 16 bytes",
        holds="stride_bits[d - 1] % (8 * alignment_bytes) == 0",
        must=lambda r, i: f"be a multiple of {r.facts.alignment_bytes} bytes",
        fix=lambda r, i: f"use strides that are multiples of {r.facts.alignment_bytes} bytes",
        documented=True,
        changes=("interleave_layout", "data_type"),
        candidates=lambda r, i: _aligned_candidates(r),
    ),
    _stride_rule(
        id="STRIDE_RANGE",
        why="the map stores a stride in 36 bits, in units of 16 bytes",
        holds="0 <= stride_bits[d - 1] < 8 * STRIDE_BYTES_END",
        must="be less than 2^40 bytes, and not negative",
        fix="index this dimension instead, and make one map per slice",
        candidates=lambda r, i: [candidates.one_at_a_time(r, i)],
        documented=True,
    ),
    # 10. rules that the driver has and libcu++ does not check
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


# -- the data type and the fill --------------------------------------------------------------------


def _packed_found(r: Request) -> str:
    """Return a sentence that names the map's type and the argument that decides this type."""
    data_type = r.arguments.data_type.name
    if r.is_driver_call:
        found = f"tensor_data_type is {data_type}"
    elif r.asked_type is not None:
        found = f"data_type is {data_type}"
    else:
        found = f"tensor.dtype is {r.tensor.dtype}, which takes the map type {data_type}"
    return f"{found} on {r.target}"


def _packed_candidates(r: Request) -> Iterator[Candidates]:
    """Yield map types that are not packed, a view as bytes, and a target that has packed types."""
    yield chain(candidates.carriers(r), candidates.viewed(r, 8, "pass {}"))
    yield candidates.targets("sm_100", "build for sm_100 or later (target='sm_100')", is_guess=True)


def _carried_candidates(r: Request) -> Iterator[Candidates]:
    """Yield map types and views that keep the bits of a dtype for which maps have no type."""
    yield chain(
        candidates.carriers(r) if r.target.is_sm_9x else candidates.data_types(r),
        candidates.viewed(
            r, 8, "pass a view or a copy as a type of 1, 2, 4 or 8 bytes, such as {}"
        ),
    )


_nan_rule = partial(
    Rule,
    on="oobfill",
    prerequisites=HAS_TYPE,
    found=lambda r: (
        f"{words.argument(r, 'oobfill')} is nan for the map type {r.type_row.data_type.name}"
    ),
    must="be none for data types that are not floating-point",
    documented=True,
    candidates=lambda r: [
        (w.reworded("{}, which fills with zeros".format) for w in candidates.members(r, "oobfill"))
    ],
)

DATA_TYPE_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="PACKED_TYPE",
        step=12,
        on="tensor.dtype",
        why="packed types came with compute capability 10.0; the driver refuses them for sm_90",
        unsupported=True,
        prerequisites=("CAPABILITY",),
        holds="not is_packed or not is_sm_9x",
        found=_packed_found,
        must="be a type of whole bytes on compute capability 9.x",
        fix="pass a type of whole bytes, or build for sm_100 or later (target='sm_100')",
        libcudacxx="__check_device",
        changes=("data_type",),
        candidates=_packed_candidates,
    ),
    # 4. data type
    Rule(
        id="DTYPE",
        step=40,
        on="tensor.dtype",
        why="a map names one of 16 element types",
        make_only=True,
        holds="asked_type >= 0 or data_type >= 0",
        found=lambda r: f"tensor.dtype is {r.view.dtype if r.view else 'unknown'}",
        must="be one that tensor maps have: uint8/16/32/64, int32/64, float16/32/64, bfloat16, "
        "bool, a float8, or 4-bit values of 16 lanes (or float4_e2m1fn)",
        fix="pass a view or a copy as a type of 1, 2, 4 or 8 bytes",
        libcudacxx="__get_tensor_map_data_type",
        changes=("data_type",),
        candidates=_carried_candidates,
    ),
    Rule(
        id="DATA_TYPE_OVERRIDE",
        step=41,
        on="data_type",
        why="with another element size, shape and strides would mean something else",
        make_only=True,
        holds="asked_type < 0 or data_type >= 0",
        found=lambda r: (
            f"data_type is {r.asked_type.name if r.asked_type is not None else 'omitted'} for a "
            f"tensor of {r.view.dtype if r.view else 'unknown type'}"
        ),
        must="have the element size of the tensor",
        source="tma_dlpack: data_type does not change the size of an element",
        candidates=lambda r: [candidates.data_types(r)],
    ),
    _nan_rule(
        id="OOB_NAN",
        step=42,
        why="the fill pattern is a NaN only in the floating-point types",
        holds="oob_fill == 0 or is_float or passes_nan",
        libcudacxx="__get_tensor_map_data_type",
    ),
    # 10. rules that the driver has and libcu++ does not check
    _nan_rule(
        id="OOB_NAN_FLOAT8",
        step=103,
        why="maps of float8 and float4 have integer types, which have no NaN fill",
        sets=LIBCU,
        holds="oob_fill == 0 or is_float or not passes_nan",
        differs="libcu++ lets float8 and float4 pass to the driver, which takes them as integers",
    ),
)
