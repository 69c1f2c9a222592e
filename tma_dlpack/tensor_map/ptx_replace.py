"""PTX ``tensormap.replace``: its operands, a function with the same effect, and a CUDA kernel.

Source: PTX ISA, tensormap.replace. The bits for sm_90 are measured on an H200 (driver 580.159.04,
2026-11-20); the bits for sm_100 and later are derived from ptxas 13.0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tma_dlpack.tables import bits
from tma_dlpack.tables.bits import DERIVED_FIELDS
from tma_dlpack.tables.coerce import integer_of, shown
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType, TmaInterleaveLayout, TmaOobFill, TmaSwizzle
from tma_dlpack.tables.errors import TmaPreconditionError, TmaUnsupportedError, Violation
from tma_dlpack.tables.meanings import AnyEnum, choices_of, parse
from tma_dlpack.tables.refusals import REFUSALS
from tma_dlpack.tables.targets import (
    ADDRESS_END,
    DERIVED_NAMES,
    MAX_BOX,
    MAX_ELEM_STRIDE,
    MAX_RANK,
    STRIDE_BYTES_END,
    Target,
)
from tma_dlpack.tensor_map.attributes import MapAttributes


@dataclass(frozen=True, slots=True)
class Replacement:
    """An instruction ``tensormap.replace``: a PTX field, its ordinal, and the new value.

    `ordinal` is None for a field with one value. `value` is the argument of `TensorMap.replace` as
    a number.
    """

    field: str
    ordinal: int | None
    value: int

    @property
    def operand(self) -> int:
        """The operand of the instruction: rank - 1 for the field rank, else the value."""
        return self.value - 1 if self.field == "rank" else self.value

    @property
    def is_64_bit(self) -> bool:
        """Whether the operand has 64 bits (PTX type .b64)."""
        return self.field in ("global_address", "global_stride")

    @property
    def is_immediate(self) -> bool:
        """Whether the operand must be an immediate of the instruction."""
        return self.field not in _NUMBERS

    @property
    def name(self) -> str:
        """Name of the constant for the operand in the CUDA kernel."""
        return self.field if self.ordinal is None else f"{self.field}_{self.ordinal}"


@dataclass(frozen=True, slots=True)
class _Scalar:
    """The range and step of a field whose operand is an integer.

    `ordinals` is the number of ordinals of the field; 0 for a field with a single value.
    """

    low: int
    high: int
    step: int = 1
    ordinals: int = 0

    @property
    def limit(self) -> str:
        high = hex(self.high) if self.high > 1 << 20 else str(self.high)
        step = f" and a multiple of {self.step}" if self.step > 1 else ""
        return f"be {self.low}..{high}{step}"


#: The PTX fields whose operand is a number. Each range is limited by the width of the operand or of
#: the encoded bits.
_NUMBERS = {
    "global_address": _Scalar(0, ADDRESS_END - 1, step=16),
    "rank": _Scalar(1, MAX_RANK),
    "box_dim": _Scalar(1, MAX_BOX, ordinals=MAX_RANK),
    # the largest extent of a map is 2^32, but it does not fit the operand's 32 bits
    "global_dim": _Scalar(1, (1 << 32) - 1, ordinals=MAX_RANK),
    "global_stride": _Scalar(0, STRIDE_BYTES_END - 1, step=16, ordinals=MAX_RANK - 1),
    "element_stride": _Scalar(1, MAX_ELEM_STRIDE, ordinals=MAX_RANK),
}
#: The PTX fields whose operand is an immediate: field -> the enum whose values it takes.
PTX_ENUMS: dict[str, type[IntEnum]] = {
    "interleave_layout": TmaInterleaveLayout,
    "swizzle_mode": TmaSwizzle,
    "fill_mode": TmaOobFill,
}
#: In PTX, bytes128 and its variants with atoms have the same swizzle_mode. The field
#: swizzle_atomicity selects the variant.
_MAX_SWIZZLE_MODE = TmaSwizzle.bytes128
_TF32 = (TensorMapDataType.TFLOAT32, TensorMapDataType.TFLOAT32_FTZ)
_TYPE_OF_PTX = {r.ptx_elemtype: r.data_type for r in DATA_TYPES}
#: The largest PTX number of a data type on sm_90a, which has no packed types.
_MAX_ELEMTYPE = max(r.ptx_elemtype for r in DATA_TYPES if not r.is_packed)
#: PTX field -> the name of the same field in `DERIVED_FIELDS`.
_NAME_OF = {f.ptx: f.name for f in DERIVED_FIELDS if f.ptx and f.ptx != "elemtype"}
_FIELD = {(f.name, f.index): f for f in DERIVED_FIELDS}


def read_replacements(
    tensor_map: MapAttributes, given: Mapping[str, object]
) -> tuple[Replacement, ...]:
    """Convert the keyword arguments of `TensorMap.replace` to replacements of PTX fields.

    Raises `TmaPreconditionError` if a value is out of range or is not an integer; the error lists
    all such arguments. Raises `TmaUnsupportedError` for a map that ``tensormap.replace`` cannot
    change.
    """
    if tensor_map.kind != "tiled":
        raise TmaUnsupportedError(
            f"tensormap.replace changes tiled maps only, and this is an {tensor_map.kind} map; "
            "make a new map instead (PTX ISA, tensormap.replace)"
        )
    target = tensor_map.target
    if not target.has_model and not target.has_derived_layout:
        raise TmaUnsupportedError(
            f"the bytes of maps for {target} are not known, so they cannot be changed here; "
            f"known are the bytes for sm_90 and, derived from the compiler, for {DERIVED_NAMES}"
        )
    # read every argument before raising, so that one error lists all wrong values
    changes: list[Replacement] = []
    wrong: list[Violation] = []
    for name, value in given.items():
        if value is None:
            continue
        try:
            changes += _read(name, value, target)
            if name == "elemtype":
                _check_tf32(tensor_map.data_type, changes[-1].value)
        except TmaPreconditionError as refused:
            wrong.append(dataclasses.replace(refused.violations[0], argument=name))
    if wrong:
        raise TmaPreconditionError(wrong)
    return tuple(changes)


def _refused(found: str, must: str, fix: str) -> TmaPreconditionError:
    return REFUSALS["REPLACE_VALUE"].error("", found, limit=f"it must {must}", fix=fix)


def _read(name: str, value: object, target: Target) -> list[Replacement]:
    if name == "elemtype":
        return [Replacement(name, None, _elemtype(value, target))]
    if name == "swizzle_mode":
        return _swizzle(_member(name, value, TmaSwizzle), target)
    if name in PTX_ENUMS:
        return [Replacement(name, None, int(_member(name, value, PTX_ENUMS[name])))]
    scalar = _NUMBERS[name]
    if not scalar.ordinals:
        return [Replacement(name, None, _integer(name, value, scalar))]
    changes: dict[int, Replacement] = {}
    if not isinstance(value, Mapping):
        raise _refused(
            f"{name}={shown(value)}",
            "map ordinals to values; ordinal 0 is the innermost",
            f"pass a dict, {name}={{0: ...}}",
        )
    for ordinal, entry in value.items():
        place = integer_of(ordinal)
        if place is None or not 0 <= place < scalar.ordinals or place in changes:
            raise _refused(
                f"{name} has the ordinal {shown(ordinal)}",
                f"have ordinals 0..{scalar.ordinals - 1}, each once",
                "count dimensions from the innermost",
            )
        changes[place] = Replacement(name, place, _integer(f"{name}[{place}]", entry, scalar))
    return [*changes.values()]


def _check_tf32(now: TensorMapDataType | None, number: int) -> None:
    """Refuse to replace a TF32 type by another type.

    The instruction can set the bit `tf32` of a map, but cannot clear it.
    """
    if now in _TF32 and _TYPE_OF_PTX[number] not in _TF32:
        assert now is not None
        raise _refused(
            f"elemtype is {_TYPE_OF_PTX[number].name} for a map of {now.name}",
            "be TFLOAT32 or TFLOAT32_FTZ, because the instruction does not clear the bit of these",
            "start from a map of another type",
        )


def _integer(label: str, value: object, scalar: _Scalar) -> int:
    number = integer_of(value)
    if number is None:
        raise _refused(f"{label} is {shown(value)}", "be an integer", "pass an int")
    if not scalar.low <= number <= scalar.high or number % scalar.step:
        raise _refused(f"{label} is {number}", scalar.limit, "pass a value in range")
    return number


def _member(name: str, value: object, enum: type[AnyEnum], must: str = "") -> AnyEnum:
    member = parse(enum, value)
    if member is None:
        must = must or f"be a {enum.__name__}"
        raise _refused(f"{name}={shown(value)}", must, choices_of(enum, value))
    return member


def _swizzle(swizzle: int, target: Target) -> list[Replacement]:
    """Return the replacement of swizzle_mode; for sm_100 and later, also of swizzle_atomicity."""
    # the members of TmaSwizzle after bytes128 are in the order of PTX's atomicities 1, 2, 3
    mode = min(swizzle, int(_MAX_SWIZZLE_MODE))
    changes = [Replacement("swizzle_mode", None, mode)]
    if target.has_derived_layout:
        return [*changes, Replacement("swizzle_atomicity", None, swizzle - mode)]
    if swizzle > mode:
        raise _refused(
            f"swizzle_mode is {TmaSwizzle(swizzle).name}",
            "be 0..3 on sm_90a",
            "use swizzle_mode='bytes128'",
        )
    return changes


def _elemtype(value: object, target: Target) -> int:
    """Return the PTX number of an element type.

    `value` is a TensorMapDataType, the name of a member, or the PTX number itself.
    """
    if issubclass(type(value), (str, TensorMapDataType)):
        named = _member("elemtype", value, TensorMapDataType, "be a data type")
        number = DATA_TYPES[named].ptx_elemtype
        if number > _MAX_ELEMTYPE and not target.has_derived_layout:
            raise _refused(
                f"elemtype is {shown(value)}", "be a type of whole bytes on sm_90a", "use UINT8"
            )
        return number
    most = max(_TYPE_OF_PTX) if target.has_derived_layout else _MAX_ELEMTYPE
    return _integer("elemtype", value, _Scalar(0, most))


def apply(data: bytes, changes: tuple[Replacement, ...]) -> bytes:
    """Return the 128 bytes after the changes; as on the hardware, bytes 64..127 do not change."""
    for change in changes:
        # the PTX field elemtype is stored in two fields of the map, `element_type` and `tf32`
        if change.field == "elemtype":
            element_type, tf32 = bits.element_type_bits(_TYPE_OF_PTX[change.value], derived=True)
            data = _FIELD["element_type", None].write(data, element_type)
            data = _FIELD["tf32", None].write(data, int(tf32))
        else:
            field = _FIELD[_NAME_OF[change.field], change.ordinal]
            data = field.write(data, change.value)
    return data


def replace_field(data: bytes, field: str, ordinal: int | None, operand: int) -> bytes:
    """Return the 128 bytes after one ``tensormap.replace`` with this operand."""
    value = operand + 1 if field == "rank" else operand
    return apply(data, (Replacement(field, ordinal, value),))


# -- as a kernel -----------------------------------------------------------------------------------


# This is a format string, so each brace of C++ is written twice.
_KERNEL = """\
// Changes a tensor map on the device and makes it visible to later copies.
// Generated by tma_dlpack. tensormap.replace is specific to {arch}a:
// nvcc -gencode=arch=compute_{number}a,code={arch}a
// Launch with one warp:  replace_tensor_map<<<1, 32>>>(template_map, out);
//
// Before a thread block uses *out, one of its threads must acquire it:
//   asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(out) : "memory");
#include <cuda.h>  // CUtensorMap

#include <cstdint>

extern "C" __global__ void __launch_bounds__(32)
replace_tensor_map(const __grid_constant__ CUtensorMap template_map, CUtensorMap* out) {{
{values}
  __shared__ alignas(128) CUtensorMap map;
  if (threadIdx.x == 0) {{
    map = template_map;
    const std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(&map));
{changes}
  }}
  __syncwarp();
  // The whole warp copies the 128 bytes to global memory and releases them to the tensor map proxy.
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
      " [%0], [%1], 128;"
      :: "l"(out), "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(&map))) : "memory");
}}
"""


def replace_kernel(replacements: Iterable[Replacement], arch: str) -> str:
    """Return the source of a CUDA C++ kernel that makes the changes.

    `arch` is the name of the target, such as sm_90.
    """
    values, changes = [], []
    for r in replacements:
        kind = "std::uint64_t" if r.is_64_bit else "std::uint32_t"
        # an immediate is part of the instruction, so it needs no constant
        if not r.is_immediate:
            number = f"{r.operand:#x}" if r.field == "global_address" else f"{r.operand}"
            suffix = "ull" if r.is_64_bit else "u"
            note = "  // the operand is rank - 1" if r.field == "rank" else ""
            values.append(f"  const {kind} {r.name} = {number}{suffix};{note}")
        changes.append(_instruction(r))
    return _KERNEL.format(
        arch=arch,
        number=arch.partition("_")[2],
        values="\n".join(values),
        changes="\n".join(changes),
    )


def _instruction(r: Replacement) -> str:
    bits = "b64" if r.is_64_bit else "b32"
    head = f"tensormap.replace.tile.{r.field}.shared::cta.b1024.{bits} [%0]"
    ordinal = "" if r.ordinal is None else f", {r.ordinal}"
    if r.is_immediate:
        note = f"  // {PTX_ENUMS[r.field](r.operand).name}" if r.field in PTX_ENUMS else ""
        return f'    asm volatile("{head}, {r.operand};" :: "r"(at) : "memory");{note}'
    constraint = "l" if r.is_64_bit else "r"
    return (
        f'    asm volatile("{head}{ordinal}, %1;" :: "r"(at), "{constraint}"({r.name}) : "memory");'
    )
