"""Rules on the data type, and on the fill that it allows."""

from __future__ import annotations

from tma_dlpack.checks import names, repairs, words
from tma_dlpack.checks.request import Request
from tma_dlpack.checks.rule import HAS_TYPE, LIBCU, Rule
from tma_dlpack.tables.dtypes import overrides_of
from tma_dlpack.tables.enums import TmaOobFill


def _packed_found(r: Request) -> str:
    """Name the argument that decides the map's type, and the type."""
    data_type = r.arguments.data_type.name
    if r.view is None:
        found = f"tensor_data_type is {data_type}"
    elif r.asked_type is not None:
        found = f"data_type is {data_type}"
    else:
        found = f"tensor.dtype is {r.view.dtype}, which takes the map type {data_type}"
    return f"{found} on {r.target}"


def _override_fix(r: Request) -> str:
    assert r.view is not None
    choices = ", ".join(t.name for t in overrides_of(r.view.dtype))
    return f"omit data_type, or choose one of {choices}" if choices else words.carry_fix(r)


def _nan_found(r: Request) -> str:
    return f"{names.argument(r, 'oobfill')} is nan for the map type {r.type_row.data_type.name}"


def _nan_fix(r: Request) -> str:
    return f"use {names.argument(r, 'oobfill')}='none', which fills with zeros"


DATA_TYPE_RULES: tuple[Rule, ...] = (
    # 1. device
    Rule(
        id="PACKED_TYPE",
        step=12,
        on="tensor.dtype",
        why="packed types came with compute capability 10.0; the driver refuses them for sm_90",
        unsupported=True,
        after=("CAPABILITY",),
        holds="not is_packed or not is_sm_9x",
        found=_packed_found,
        must="be a type of whole bytes on compute capability 9.x",
        fix=words.packed_fix,
        libcudacxx="__check_device",
        repair=repairs.other_type,
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
        fix=words.carry_fix,
        libcudacxx="__get_tensor_map_data_type",
        repair=repairs.other_type,
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
        fix=_override_fix,
        source="tma_dlpack: data_type does not change the size of an element",
        repair=repairs.other_type,
    ),
    Rule(
        id="OOB_NAN",
        step=42,
        on="oobfill",
        why="the fill pattern is a NaN only in the floating-point types",
        after=HAS_TYPE,
        holds="oob_fill == 0 or is_float or passes_nan",
        found=_nan_found,
        must="be none for data types that are not floating-point",
        fix=_nan_fix,
        libcudacxx="__get_tensor_map_data_type",
        documented=True,
        repair=repairs.constant(oobfill=TmaOobFill.none),
    ),
    # 10. what only the driver requires
    Rule(
        id="OOB_NAN_FLOAT8",
        step=103,
        on="oobfill",
        why="maps of float8 and float4 have integer types, which have no NaN fill",
        sets=LIBCU,
        after=HAS_TYPE,
        holds="oob_fill == 0 or is_float or not passes_nan",
        found=_nan_found,
        must="be none for data types that are not floating-point",
        fix=_nan_fix,
        documented=True,
        differs="libcu++ lets float8 and float4 pass to the driver, which takes them as integers",
        repair=repairs.constant(oobfill=TmaOobFill.none),
    ),
)
