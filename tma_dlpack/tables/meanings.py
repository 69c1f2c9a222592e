"""The spellings of an enum member that calls accept, such as 128, "SWIZZLE_128B" and "K_SW128".

Spellings are numbers of bytes, and names in the driver, CUTLASS, PTX and frameworks.

`parse` converts a user's value to a member. It accepts a word only if the word has exactly one
meaning. For example, it returns None for ``"u4"``, because two packed types have values of 4 bits.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np

from tma_dlpack.tables.coerce import integer_of, rows, shown, text_of
from tma_dlpack.tables.dtypes import (
    NAMED_DTYPES,
    NAMES_OF_DTYPES,
    DLDataType,
    data_type_of,
    overrides_of,
)
from tma_dlpack.tables.enums import NAMES, TensorMapDataType, c_name
from tma_dlpack.tables.errors import bad_value

AnyEnum = TypeVar("AnyEnum", bound=IntEnum)

NEAR = 0.75  # minimum similarity (difflib): 'byte128' is similar to 'bytes128', 'tiled' to no name


def _carriers(dtype: DLDataType) -> list[TensorMapDataType]:
    """Return the default data type of a DLPack type; if it has none, all types of the same size."""
    own = data_type_of(dtype)
    return [own] if own is not None else list(overrides_of(dtype))


_OF_DTYPES = "; ".join(
    f"{_carriers(NAMED_DTYPES[name])[0].name}: {name} {names}"
    for name, names in NAMES_OF_DTYPES.items()
)
#: The spellings of the members of each enum. The columns are the enum | words that may come before
#: a name | words that may come after a name | member: its other names. CUTLASS has the spellings
#: ``Swizzle<B,M,S>``, for addresses in bytes, and K_INTER and MN_INTER, which mean no swizzle.
_SPELLINGS = {
    enum: (before, after, names)
    for enum, before, after, names in rows(f"""
TmaInterleaveLayout | cutensormap tensormap enum tma interleaved interleave layout bytes b
    | bytes b interleaved interleave | none: no disable; bytes16: 16; bytes32: 32
TmaSwizzle | cutensormap tensormap enum cute cutlass gmma umma tma smem swizzling swizzle mode kind
    bits layout atom mn k sw s bytes b | bytes b swizzling swizzle atom
    | none: no disable disabled inter 0,4,3; bytes32: 32 1,4,3; bytes64: 64 2,4,3;
    bytes128: 128 3,4,3; bytes128_atom_32B: SW128_32B 2,5,2; bytes128_atom_64B: 1,6,1
TmaL2FetchSize | cutensormap tensormap enum cute tma l2 promotion promo kind fetch size bytes b
    | bytes b | none: no disable; bytes64: 64; bytes128: 128; bytes256: 256
TmaOobFill | cutensormap tensormap enum cute tma float oob fill kind | fill
    | none: no zero zeros; nan: nans
TensorMapIm2ColWideMode | cutensormap tensormap enum im2col wide mode | |
TensorMapDataType | cutensormap tensormap enum data type
    torch numpy np jax jnp cupy mldtypes mlx core tl cutlass cute cuda std at c10 k |
    | FLOAT32_FTZ: f32.ftz; TFLOAT32: tf32; TFLOAT32_FTZ: tf32.ftz; 16U4_ALIGN8B: b4x16;
    16U4_ALIGN16B: b4x16_p64; 16U6_ALIGN16B: b6x16_p32 b6p2x16; {_OF_DTYPES}
""")
}

_WORD = re.compile(r"[\w.:]{1,60}(<[\d, ]{1,20}>)?", re.ASCII)


def parse(enum: type[AnyEnum], value: object) -> AnyEnum | None:
    """Return the member that a user's value means.

    The value may be the member itself, the member's value, one of its names, or another spelling
    (see `meaning`). A number that is not the value of a member may be a number of bytes, such as
    128. Return None for a value with no meaning or several meanings, and for bools, floats and
    members of other enums.

    >>> from tma_dlpack.tables.enums import TmaSwizzle
    >>> parse(TmaSwizzle, "bytes128") is parse(TmaSwizzle, 3) is parse(TmaSwizzle, "SWIZZLE_128B")
    True
    >>> parse(TensorMapDataType, "16U4_ALIGN8B")
    <TensorMapDataType.16U4_ALIGN8B: 13>
    """
    if type(value) is enum:
        return value
    word = text_of(value)
    if word is None and (number := integer_of(value)) is not None:
        return enum(number) if 0 <= number < len(enum) else meaning(enum, str(number))
    if word is None and enum is TensorMapDataType:
        if (dtype := dlpack_type_of(value)) is not None:
            return next(iter(_carriers(dtype)), None)  # type: ignore[return-value]
        word = name_of_dtype(value)
    if word is None:
        return None
    member = NAMES[enum].get(word)
    return meaning(enum, word) if member is None else member  # type: ignore[return-value]


def has_name(enum: type[IntEnum], word: str) -> bool:
    """Return whether a word is a name of a member in `NAMES`, not another spelling."""
    return word in NAMES[enum]


def choices_of(enum: type[IntEnum], value: object) -> str:
    """Return the fix for a value for which `parse` returned None."""
    near = near_name(enum, value)
    if enum is TensorMapDataType and (needs := packed_needs(text_of(value) or "")):
        return needs
    choices = ", ".join(f"{m.name} ({m.value})" for m in enum)
    return f"choose one of {choices}" + (f"; did you mean {near!r}?" if near else "")


#: Packed data type -> (names of the types that it can hold, text). The text "two 4-bit" means that
#: two values of 4 bits fill one byte, and "four 6-bit" that four values of 6 bits fill three bytes.
_PACKED_WORDS = {
    "16U4_ALIGN8B": ("int4 uint4 float4 fp4 e2m1 float4_e2m1 float4_e2m1fn", "two 4-bit"),
    "16U6_ALIGN16B": ("float6 fp6 e2m3 e3m2 float6_e2m3fn float6_e3m2fn", "four 6-bit"),
}


def packed_needs(word: str) -> str:
    """Return the fix for a word that names a type of fewer than 8 bits; "" for any other word.

    >>> packed_needs("torch.int4")[:63]
    'int4 values are packed: pass a uint8 tensor that holds two 4-bi'
    """
    bare = word.rpartition(".")[2].lower()
    for name, (words, packed) in _PACKED_WORDS.items():
        if bare in words.split():
            holds = f"{packed} values in each {'byte' if '4' in packed else '3 bytes'}"
            return (
                f"{bare} values are packed: pass a uint8 tensor that holds {holds}, with data_type="
                f"{name!r}, on sm_100 or later (target='sm_100')"
            )
    return ""


def dlpack_type_of(value: object) -> DLDataType | None:
    """Return the DLPack type of an object with `__dlpack_data_type__`; else None."""
    method = getattr(type(value), "__dlpack_data_type__", None)
    try:
        code, bits, lanes = method(value)  # type: ignore[misc]
        return DLDataType(int(code), int(bits), int(lanes))
    except Exception:
        # The object lacks the method, or the method raises or does not return three integers.
        return None


@lru_cache(maxsize=256)
def meaning(enum: type[AnyEnum], word: str) -> AnyEnum | None:
    """Return the member that a spelling means; None if it means no member or several members.

    >>> from tma_dlpack.tables.enums import TmaSwizzle
    >>> meaning(TmaSwizzle, "128"), meaning(TmaSwizzle, "Swizzle<3,4,3>"), meaning(TmaSwizzle, "16")
    (<TmaSwizzle.bytes128: 3>, <TmaSwizzle.bytes128: 3>, None)
    """
    return _words_of(enum).get(_plain(enum, word)) if _WORD.fullmatch(word) else None


@cache
def _words_of(enum: type[AnyEnum]) -> dict[str, AnyEnum]:
    words: dict[str, AnyEnum] = {}
    for member in enum:
        words[_plain(enum, member.name)] = words[_plain(enum, c_name(member))] = member
    for names in filter(None, _SPELLINGS[enum.__name__][2].split("; ")):
        name, others = names.split(": ")
        words |= {_plain(enum, word): enum[name] for word in others.split()}
    return words


def _plain(enum: type[IntEnum], word: str) -> str:
    """Return the part of a word by which members differ, such as ``128`` for ``K_SW128``."""
    letters = re.sub(r"[^a-z0-9,]", "", word.lower().removesuffix("_t"))
    before, after = _around(enum)
    return after.sub("", before.sub("", letters))


@cache
def _around(enum: type[IntEnum]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    before, after, _ = _SPELLINGS[enum.__name__]
    return re.compile(f"^(?:{_either(before)})*"), re.compile(f"(?:{_either(after)})*$")


def _either(words: str) -> str:
    return "|".join(sorted(words.split(), key=len, reverse=True))


def near_name(enum: type[IntEnum], value: object) -> str | None:
    """Return the only name that is similar to a misspelt word; else None.

    A name is similar only if it has the same numbers as the word.

    >>> from tma_dlpack.tables.enums import TmaSwizzle
    >>> near_name(TmaSwizzle, "byte128"), near_name(TmaSwizzle, "bytes256")
    ('bytes128', None)
    """
    import difflib  # here, because the import takes a millisecond and only wrong names need it

    word = text_of(value)
    if word is None:
        word = name_of_dtype(value) or shown(value)  # "None" for None, which is similar to "none"
    if not _WORD.fullmatch(word):
        return None
    digits = re.findall(r"\d+", word)
    names = {name.lower(): name for name in enum.__members__ if re.findall(r"\d+", name) == digits}
    near = difflib.get_close_matches(word.lower(), names, n=2, cutoff=NEAR)
    return names[near[0]] if len(near) == 1 else None


def dtype_called(word: str) -> str | None:
    """Return NumPy's name of the dtype that a word means; None if no dtype has such a name.

    >>> dtype_called("torch.half"), dtype_called("bf16"), dtype_called("fp8")
    ('float16', 'bfloat16', None)
    """
    return _dtype_words().get(_plain(TensorMapDataType, word)) if _WORD.fullmatch(word) else None


@cache
def _dtype_words() -> dict[str, str]:
    return {
        _plain(TensorMapDataType, word): name
        for name, names in NAMES_OF_DTYPES.items()
        for word in (name, *names.split())
    }


def dtype_named(name: str) -> DLDataType:
    """Return the DLPack type of a name, such as ``"bfloat16"``, ``"bf16"`` or ``"torch.half"``.

    Raises `TmaPreconditionError` for an unknown name; the message lists the names.

    >>> dtype_named("float16") == dtype_named("half")
    True
    """
    bare = name.rpartition(".")[2]  # float16 if the name is torch.float16
    found = NAMED_DTYPES.get(bare) or NAMED_DTYPES.get(dtype_called(name) or "")
    if found is None:
        fix = packed_needs(name) or (
            "pass one of these names, or a usual one of them such as fp16, bf16, half or e4m3"
        )
        raise bad_value("dtype", name, f"be one of {', '.join(NAMED_DTYPES)}", fix)
    return found


def name_of_dtype(value: object) -> str | None:
    """Return the name of a dtype of NumPy, torch, JAX or ml_dtypes; None for anything else."""
    kind = type(value)
    try:
        if (kind.__module__, kind.__name__) == ("torch", "dtype"):
            return str(value)
        is_class = issubclass(kind, type) and value.__module__ != "builtins"
        if issubclass(kind, np.dtype) or is_class or hasattr(kind, "dtype"):
            return np.dtype(value).name  # type: ignore[call-overload, no-any-return]
    except Exception:  # a class of another module may raise any error
        return None
    return None
