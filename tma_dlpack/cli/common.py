"""What commands share: options that describe a tensor and a request, and output as JSON.

The tensor need not exist. Options have the names of the arguments that they stand for.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tma_dlpack.checks import ALLOWABLE
from tma_dlpack.checks.request import RULE_SETS
from tma_dlpack.dlpack import Device, TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.arguments import CORNERS, ENUMS, OPTION_NAMES, MapKind
from tma_dlpack.tables.enums import DLDeviceType, TensorMapDataType
from tma_dlpack.tables.errors import refusal
from tma_dlpack.tables.meanings import dtype_named, parse
from tma_dlpack.tables.targets import TARGETS
from tma_dlpack.tensor_map import text
from tma_dlpack.tensor_map.map import TensorMap

#: A flag, and what `argparse.ArgumentParser.add_argument` takes with it.
Option = tuple[str, dict[str, Any]]

#: Options whose value may begin with a minus sign, which argparse takes for another option.
SIGNED = ("--coords", "--lower", "--upper")


def joined(words: Sequence[str]) -> list[str]:
    """Write ``--coords -4,0`` as ``--coords=-4,0``; after ``--``, leave all as it is."""
    own = words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for word in words[:own]:
        if found and found[-1] in SIGNED and word[:1] == "-" and word[1:2].isdigit():
            found[-1] += f"={word}"
        else:
            found.append(word)
    return [*found, *words[own:]]


# -- words ----------------------------------------------------------------------------------------


def _address(word: str) -> int:
    try:
        address = int(word, 0)
    except ValueError:
        address = -1
    if address < 0:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not an address; write one such as 0x100000000"
        )
    return address


def integers(word: str) -> tuple[int, ...]:
    """Read integers between commas; one comma may follow the last, as in ``(64,)``."""
    try:
        return tuple(int(part, 0) for part in word.strip("()[] ").removesuffix(",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a list of integers; write one such as 128,64"
        ) from None


def _ids(word: str) -> tuple[str, ...]:
    return tuple(part for part in word.split(",") if part)


def _word(word: str) -> str | int:
    """Read a number as an enum value, anything else as a name."""
    try:
        return int(word, 0)
    except ValueError:
        return word


# -- options --------------------------------------------------------------------------------------

_ENUMS: dict[str, type[IntEnum]] = {
    **{ours: ENUMS[drivers] for ours, drivers in OPTION_NAMES.items()},
    "data_type": TensorMapDataType,
}
#: The arguments that only im2col maps have, and those of every map, in the order of `fixed()`.
_COLUMN = (*CORNERS, "channels_per_pixel", "pixels_per_column")
_OF_EVERY_MAP = ("elem_strides", *_ENUMS, "rules", "target")


def option(flag: str, about: str, **more: Any) -> Option:
    """Describe an option as `argparse` takes it."""
    return flag, {"help": about, **more}


def _argument(flag: str, name: str, about: str, **more: Any) -> Option:
    """Describe an option for the argument `name` that shows the word of its flag."""
    return option(flag, about, dest=name, metavar=flag[2:].upper(), **more)


def _choices(name: str) -> str:
    """Return the names that an option takes; the driver's, CUTLASS's and PTX's work too."""
    return ", ".join(f"{member.name} ({member.value})" for member in _ENUMS[name])


def _enum(flag: str, name: str) -> Option:
    return _argument(flag, name, f"{name}: {_choices(name)}", type=_word, default="none")


def target(about: str) -> Option:
    """Describe ``--target``."""
    return option("--target", f"{about} {', '.join(TARGETS)}; default sm_90", default="sm_90")


def tensor(required: bool = True) -> tuple[Option, ...]:
    """Return the options that describe a tensor, row-major, and the GPU."""
    return (
        option("--shape", "row-major, such as 128,64", required=required, type=integers),
        option(
            "--dtype",
            "such as float16 (or fp16, half), bfloat16 (bf16), float32, uint8, int64, bool, "
            "float8_e4m3fn (e4m3), float4_e2m1fnx2; torch.float16 and the like",
            required=required,
        ),
        option("--strides", "row-major, in elements; default contiguous", type=integers),
        option(
            "--address",
            "of the first element, below 2^57, such as 0x100000000; default 2^32",
            type=_address,
            default=1 << 32,
        ),
        option("--data-type", _choices("data_type"), type=_word),
        target("one of"),
    )


#: The options that describe a request, row-major.
REQUEST = (
    _argument("--box", "box_sizes", "box_sizes of a tiled map, row-major, 1..256", type=integers),
    _argument("--lower", CORNERS[0], f"{CORNERS[0]} of an im2col map, D,H,W", type=integers),
    _argument("--upper", CORNERS[1], f"{CORNERS[1]}, as D,H,W", type=integers),
    _argument("--channels", "channels_per_pixel", "channels_per_pixel, 1..256", type=int),
    _argument("--pixels", "pixels_per_column", "pixels_per_column, 1..1024", type=int),
    option("--elem-strides", "row-major, 1..8 each; default 1", type=integers),
    _enum("--interleave", "interleave_layout"),
    _enum("--swizzle", "swizzle"),
    _enum("--l2", "l2_fetch_size"),
    _enum("--oobfill", "oobfill"),
    option("--rules", "libcu++ (the default; of im2col: documented) or driver"),
    option(
        "--allow",
        f"rules of libcu++ to switch off: {', '.join(ALLOWABLE)}",
        type=_ids,
        metavar="ID,...",
    ),
)


def view(options: argparse.Namespace) -> TensorView:
    """Describe a tensor that does not exist, on a GPU."""
    shape: tuple[int, ...] = options.shape
    if any(n < 0 for n in shape):
        must, fix = "have extents of 0 or more", "pass extents such as --shape=128,64"
        raise refusal("shape", f"shape is {shape}", must, fix)
    if len(options.strides or shape) != len(shape):
        found = f"strides are {options.strides} for shape {shape}"
        fix = f"pass {len(shape)} strides, or omit --strides"
        raise refusal("strides", found, "have one entry per dimension", fix)
    dtype = dtype_named(options.dtype)
    strides = options.strides or row_major_strides(shape)
    return TensorView(
        address=options.address,
        device=Device(DLDeviceType.kDLCUDA, 0),
        dtype=dtype,
        shape=shape,
        strides=canonical_strides(shape, strides, dtype.itemsize_bits),
        read_only=False,
        producer="described",
        owner=None,
    )


def request(options: argparse.Namespace) -> tuple[MapKind, dict[str, object]]:
    """Read the kind of map, and the arguments of its `make_*` function."""
    kind = _kind(options)
    names = ("box_sizes",) if kind == "tiled" else _COLUMN
    arguments = {name: getattr(options, name) for name in (*names, *_OF_EVERY_MAP)}
    if options.rules is None:
        arguments["rules"] = RULE_SETS[kind][0]
    if options.allow is not None:
        arguments["allow"] = options.allow
    return kind, arguments


def _kind(options: argparse.Namespace) -> MapKind:
    column = {getattr(options, name) for name in _COLUMN}
    if options.box_sizes is not None and column == {None}:
        return "tiled"
    if options.box_sizes is None and None not in column:
        return "im2col"
    raise refusal(
        "box",
        "neither --box nor all four im2col options are given, or both are",
        "be --box, or --lower, --upper, --channels and --pixels for an im2col map",
        "pass a box such as --box 16,64",
    )


def page_state(options: argparse.Namespace) -> dict[str, object]:
    """Return the options as a state of the explorer's page.

    What is not given is left to the page; names of the driver, of CUTLASS and of PTX become ours.
    """
    given = {name: value for name, value in vars(options).items() if name not in ("run", "out")}
    given["kind"] = None if options.pixel_box_lower_corner is None else "im2col"
    given["dtype"] = options.dtype and str(dtype_named(options.dtype))
    given |= {name: _member(enum, given[name]) for name, enum in _ENUMS.items()}
    if not options.box_sizes:
        del given["swizzle"]  # the page chooses it with the box
    return {name: value for name, value in given.items() if value is not None}


def _member(enum: type[IntEnum], word: str | int | None) -> str | None:
    """Return the name of a member; a word that is none stays, for the page to name it."""
    if word is None:
        return None
    member = parse(enum, word)
    return str(word) if member is None else member.name


# -- what a command prints ------------------------------------------------------------------------

#: What `show` obeys.
JSON = option("--json", "print the result as JSON, not as text", action="store_true")


def show(options: argparse.Namespace, result: object, words: object = None) -> None:
    """Print a result as JSON where ``--json`` is given; else `words`, which may be the result."""
    if options.json:
        print(json.dumps(plain(result), indent=2))
    else:
        print(result if words is None else words)


def plain(value: object) -> object:
    """Return a value as JSON has it: a dict for an object, the name of a member, hex of bytes.

    Of a dataclass: its public fields.

    >>> from tma_dlpack import TmaSwizzle
    >>> plain(TmaSwizzle.bytes128), plain((1, b"ab"))
    ('bytes128', [1, '6162'])
    """
    if isinstance(value, IntEnum):
        return value.name
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value):
        value = vars_of(value)
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(entry) for name, entry in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [plain(entry) for entry in value]
    return str(value)


def vars_of(value: Any) -> dict[str, object]:
    """Return the public fields of a dataclass, after `ok` where it has that."""
    names = [field.name for field in dataclasses.fields(value) if field.name[0] != "_"]
    names = ["ok"] * hasattr(value, "ok") + names
    return {name: getattr(value, name) for name in names}


def attributes(tensor_map: TensorMap) -> dict[str, object]:
    """Return what a map holds: the driver's words innermost first, ours row-major, its bytes."""
    return {
        "target": tensor_map.target.name,
        "global_address": tensor_map.global_address,
        **tensor_map.arguments._asdict(),
        "shape": tensor_map.shape,
        "box_sizes": tensor_map.box_sizes,
        "elem_strides": tensor_map.elem_strides,
        "tile": text.tile_line(tensor_map),
        "remarks": text.remarks(tensor_map, tensor_map.advice),
        "bytes": bytes(tensor_map),
    }
