"""Rules on the map's data type, and on the fill of elements outside the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from tma_dlpack.checks import candidates, views, words
from tma_dlpack.checks.candidates import Candidates
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import HAS_TYPE, LIBCU
from tma_dlpack.tables.errors import Rule


def _packed_found(r: Request) -> str:
    """Name the argument that decides the map's type, and the type."""
    data_type = r.arguments.data_type.name
    if r.is_driver_call:
        found = f"tensor_data_type is {data_type}"
    elif r.asked_type is not None:
        found = f"data_type is {data_type}"
    else:
        found = f"tensor.dtype is {r.tensor.dtype}, which takes the map type {data_type}"
    return f"{found} on {r.target}"


def _packed_candidates(r: Request) -> Iterator[Candidates]:
    """Yield the bytes that carry packed values, or a target that has the type."""
    yield chain(candidates.carriers(r), views.viewed(r, 8, "pass {}"))
    yield candidates.targets("sm_100", "build for sm_100 or later (target='sm_100')", is_guess=True)


def _carried_candidates(r: Request) -> Iterator[Candidates]:
    """Yield the types that carry the bits of a type that maps do not have."""
    yield chain(
        candidates.carriers(r) if r.target.is_sm_9x else candidates.data_types(r),
        views.viewed(r, 8, "pass a view or a copy as a type of 1, 2, 4 or 8 bytes, such as {}"),
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
        (
            w._replace(text=f"{w.text}, which fills with zeros")
            for w in candidates.members(r, "oobfill")
        )
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
    # 10. what only the driver requires
    _nan_rule(
        id="OOB_NAN_FLOAT8",
        step=103,
        why="maps of float8 and float4 have integer types, which have no NaN fill",
        sets=LIBCU,
        holds="oob_fill == 0 or is_float or not passes_nan",
        differs="libcu++ lets float8 and float4 pass to the driver, which takes them as integers",
    ),
)
