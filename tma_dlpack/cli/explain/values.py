"""One printed value: a number, a list of numbers, or a name of an enum's member.

`read_value` looks at one place of a text and never further than `LONGEST_LIST` characters, so that
a whole log is read in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tma_dlpack.tables.enums import (
    C_ENUMS,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)

LONGEST_LIST = 600  # characters; five entries with types around them take fewer
_DIGITS = 24  # of a number; 2^64 has 20

_NUMBER = rf"[-+]?(?:0[xX][0-9a-fA-F]{{1,16}}|[0-9]{{1,{_DIGITS}}})[uUlL]{{0,3}}"
_ONE = re.compile(rf"{_NUMBER}(?![\w.])")
_ROW = re.compile(rf"{_NUMBER}(?![\w.])(?:(?:[ \t]*,[ \t]*|[ \t]+){_NUMBER}(?![\w.]))*")
_DASHED = re.compile(rf"(?:[ \t]*\n[ \t]*-[ \t]+{_NUMBER}(?=[ \t]*(?:\n|$))){{1,8}}")
_TIMES = re.compile(r"\d{1,10}(?:[ \t]?[x×][ \t]?\d{1,10})+\b")
_WRAPPED = re.compile(r"<?[A-Za-z_][\w.:]*[ (]\s*(-?\d{1,24})\s*[)>]|<(?:[\w.]+):\s*(-?\d{1,24})>")
_CAST = re.compile(r"\([A-Za-z_][\w:]*\)[ \t]*(?=[-\d])")
_MEMBER = re.compile(r"<[A-Za-z_][\w.]*:[ \t]*(-?\d{1,5})>")
_WORD = re.compile(r"[A-Za-z_0-9][\w.:]*")
_BARE_ADDRESS = re.compile(r"(?=[0-9a-fA-F]*[a-fA-F]|0000)[0-9a-fA-F]{8,16}(?![\w.])")
_NULL = re.compile(r"\(nil\)|nullptr\b|NULL\b|None\b")
_OPEN: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_BEFORE_LIST = re.compile(r"(?:\d{1,20}[ \t]+|[A-Za-z_][\w.:<>]*[ \t]*)(?=[\[({])")


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address printed where a list should be."""

    address: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why there is no value: the line ends, the rest is not a value, or it is a sentence."""

    why: str


CUT = Unreadable("cut")
JUNK = Unreadable("junk")
PROSE = Unreadable("prose")

Value = int | str | tuple[int, ...] | Pointer | Unreadable


def _int(text: str) -> int:
    digits = text.rstrip("uUlL")
    return int(digits, 16 if "x" in digits[:3].lower() else 10)


def read_list(text: str, at: int) -> tuple[Value, int]:
    r"""Read a list that stands at a place; give it and where it ends.

    Brackets of any kind, with or without a type before them, or numbers in a row on one line.

    >>> read_list("(64,128,1)", 0)[0], read_list("{64, 128}", 0)[0], read_list("64 128 1\n2", 0)[0]
    ((64, 128, 1), (64, 128), (64, 128, 1))
    >>> read_list("torch.Size([3, 4])", 0)[0], read_list("0x7ffe00000040", 0)[0]
    ((3, 4), Pointer(address=140728898420800))
    >>> read_list("(64,12", 0)[0], read_list(",041)", 0)[0], read_list("must be", 0)[0]
    (Unreadable(why='cut'), Unreadable(why='junk'), Unreadable(why='prose'))
    """
    before = _BEFORE_LIST.match(text, at)
    opens = before.end() if before else at
    if text[opens : opens + 1] in _OPEN and text[opens : opens + 1]:
        value, end = _bracketed(text, opens)
        if value is not PROSE or not before:
            return value, end
    dashed = _DASHED.match(text, at)
    if dashed:  # as YAML has it
        return tuple(_int(n) for n in re.split(r"[\s-]+", dashed[0]) if n), dashed.end()
    times = _TIMES.match(text, at)
    if times:
        return tuple(int(n) for n in re.split(r"\D+", times[0])), times.end()
    row = _ROW.match(text, at)
    if row is None:
        return _nothing(text, at), at
    numbers = tuple(_int(n) for n in re.split(r"[,\s]+", row[0]) if n)
    if _is_torn(text, row.end()):
        return JUNK, at
    if len(numbers) == 1 and row[0][:2] in ("0x", "0X") and numbers[0] >> 32:
        return Pointer(numbers[0]), row.end()
    return numbers, row.end()


def _bracketed(text: str, opens: int) -> tuple[Value, int]:
    """Read a list in brackets; other brackets in it are those of a type around each number."""
    depth, end = 0, opens
    for end in range(opens, min(len(text), opens + LONGEST_LIST)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0 and end > opens and text[end] in ")]}>":
            break
    else:
        rest = text[opens + 1 : opens + LONGEST_LIST]
        shown = re.fullmatch(r"[\s\d,xXa-fA-F-]*", rest) and len(text) <= opens + LONGEST_LIST
        return (CUT if shown else JUNK if re.match(r"\s*[\d,]", rest) else PROSE), opens
    inside = text[opens + 1 : end].strip()
    if inside[:1] in ("[", "(") and inside[-1:] in ("]", ")"):
        inside = inside[1:-1]  # torch.Size([...])
    inside = _WRAPPED.sub(lambda m: m[1] or m[2], inside)
    parts = [part for part in re.split(r"[,;\s]+", inside) if part]
    if len(parts) > 32 or not all(_ONE.fullmatch(part) for part in parts):
        return (JUNK if inside[:1].isdigit() or inside[:1] == "," else PROSE), opens
    if _is_torn(text, end + 1):
        return JUNK, opens
    return tuple(_int(part) for part in parts), end + 1


def _is_torn(text: str, end: int) -> bool:
    """Say whether a value goes on where it should end: ``128,0,128``, ``64(``, ``)1``."""
    rest = text[end : end + 3].lstrip(" \t")
    if rest[:1] == ",":
        return bool(rest[1:2]) and rest[1:2] in "0123456789,(["
    return text[end : end + 1] in tuple("([{") or text[end : end + 1].isalnum()


def _nothing(text: str, at: int) -> Unreadable:
    """Give the reason why there is no value."""
    line = text[at : at + 80].partition("\n")[0].strip()
    if not line:
        return CUT
    return PROSE if line[0].isalpha() or line[0] in "\"'`<-(*&.?/=!" else JUNK


def read_scalar(text: str, at: int, names: bool) -> tuple[Value, int]:
    """Read one number; or, where `names`, also the name of an enum's member.

    >>> read_scalar("3 (CU_TENSOR_MAP_SWIZZLE_128B)", 0, True)[0]
    3
    >>> read_scalar("CU_TENSOR_MAP_SWIZZLE_128B,", 0, True)[0]
    'CU_TENSOR_MAP_SWIZZLE_128B'
    >>> read_scalar("128,0,128", 0, True)[0], read_scalar("(nil)", 0, False)[0]
    (Unreadable(why='junk'), 0)
    """
    null = _NULL.match(text, at)
    if null and not names:
        return 0, null.end()
    bare = _BARE_ADDRESS.match(text, at)
    if bare and not names:
        return int(bare[0], 16), bare.end()  # as printf's %p has it on some systems
    member = _MEMBER.match(text, at)
    if member:
        return int(member[1]), member.end()
    cast = _CAST.match(text, at)
    start = cast.end() if cast else at
    number = _ONE.match(text, start)
    if number:
        return (JUNK if _is_torn(text, number.end()) else _int(number[0])), number.end()
    word = _WORD.match(text, start)
    if word and names:
        return word[0].rstrip(".:"), word.end()
    return _nothing(text, at), at


# -- enums by number, by name, by bytes -----------------------------------------------------------


def _squeezed(word: str) -> str:
    """Give the end of a dotted name in lower case, without underscores and a leading k."""
    tail = re.split(r"[.:]+", word)[-1]
    return tail.lower().replace("_", "").removeprefix("cutensormap")


_NAMES: Final[dict[type, dict[str, int]]] = {
    enum: {
        **{_squeezed(m.name): m.value for m in enum},
        **{_squeezed(prefix + s): n for n, s in enumerate(suffixes)},
        **{_squeezed(s): n for n, s in enumerate(suffixes)},
    }
    for enum, (prefix, suffixes) in C_ENUMS.items()
}
_NAMES[TmaSwizzle] |= {"noswizzle": 0, "disabled": 0, "0": 0}
_NAMES[TmaOobFill] |= {"zero": 0, "zeros": 0, "nan": 1}


def _member_of(enum: type, value: int | str, by_bytes: dict[int, int]) -> int | None:
    """Give the value of the member; an int that is no member as it is, None for another word."""
    if isinstance(value, str):
        word = _squeezed(value)
        if word in _NAMES[enum]:
            return _NAMES[enum][word]
        size = re.fullmatch(r"(?:swizzle|k|s|b|l2|bytes|interleave)*(\d{1,3})(?:b|bytes)?", word)
        return by_bytes.get(int(size[1])) if size else None
    return by_bytes.get(value, value)


def swizzle_of(value: int | str) -> int | None:
    """Give a swizzle mode printed as number, as name, or as its span in bytes.

    >>> swizzle_of(3), swizzle_of(128), swizzle_of("B64"), swizzle_of("TmaSwizzle.bytes32")
    (3, 3, 2, 1)
    """
    return _member_of(TmaSwizzle, value, {16: 0, 32: 1, 64: 2, 128: 3})


def interleave_of(value: int | str) -> int | None:
    """Give an interleave layout printed as number, as name, or in bytes."""
    return _member_of(TmaInterleaveLayout, value, {16: 1, 32: 2})


def l2_promotion_of(value: int | str) -> int | None:
    """Give an L2 promotion printed as number, as name, or in bytes."""
    return _member_of(TmaL2FetchSize, value, {64: 1, 128: 2, 256: 3})


def oob_fill_of(value: int | str) -> int | None:
    """Give a fill printed as number or as name."""
    return _member_of(TmaOobFill, value, {})


#: What frameworks and C++ call a type, where one type of the map holds it.
_TYPE_WORDS: Final = {
    **{_squeezed(t.name): t for t in TensorMapDataType},
    **{_squeezed(f"CU_TENSOR_MAP_DATA_TYPE_{t.name}"): t for t in TensorMapDataType},
    "half": TensorMapDataType.FLOAT16,
    "halft": TensorMapDataType.FLOAT16,
    "bfloat": TensorMapDataType.BFLOAT16,
    "fp16": TensorMapDataType.FLOAT16,
    "f16": TensorMapDataType.FLOAT16,
    "bf16": TensorMapDataType.BFLOAT16,
    "nvbfloat16": TensorMapDataType.BFLOAT16,
    "bfloat16t": TensorMapDataType.BFLOAT16,
    "fp32": TensorMapDataType.FLOAT32,
    "f32": TensorMapDataType.FLOAT32,
    "float": TensorMapDataType.FLOAT32,
    "tf32": TensorMapDataType.TFLOAT32,
    "fp64": TensorMapDataType.FLOAT64,
    "f64": TensorMapDataType.FLOAT64,
    "double": TensorMapDataType.FLOAT64,
    "u8": TensorMapDataType.UINT8,
    "u16": TensorMapDataType.UINT16,
    "u32": TensorMapDataType.UINT32,
    "s32": TensorMapDataType.INT32,
    "i32": TensorMapDataType.INT32,
    **dict.fromkeys(
        ("float8e4m3fn", "float8e5m2", "e4m3", "e5m2", "fp8", "fp8e4m3", "fp8e5m2"),
        TensorMapDataType.UINT8,
    ),
}


def data_type_of_word(value: int | str) -> int | None:
    """Give a map's data type printed as number or as name; None for a word that is none.

    >>> data_type_of_word("torch.bfloat16"), data_type_of_word("CU_TENSOR_MAP_DATA_TYPE_UINT8")
    (9, 0)
    """
    if isinstance(value, int):
        return value
    known = _TYPE_WORDS.get(_squeezed(value))
    return None if known is None else int(known)
