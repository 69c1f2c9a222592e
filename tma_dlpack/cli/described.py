"""A tensor and a request described by options of the command line; the tensor need not exist."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from enum import IntEnum

from tma_dlpack.checks import ALLOWABLE
from tma_dlpack.checks.request import RULE_SETS
from tma_dlpack.dlpack import Device, TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.enums import (
    NAMES,
    DLDeviceType,
    TensorMapDataType,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
)
from tma_dlpack.tables.errors import refusal
from tma_dlpack.tables.meanings import dtype_named
from tma_dlpack.tables.targets import TARGETS

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


def add_tensor_options(verb: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the options that describe a tensor, row-major, and the GPU."""
    verb.add_argument("--shape", required=required, type=integers, help="row-major, such as 128,64")
    verb.add_argument(
        "--dtype",
        required=required,
        help="such as float16 (or fp16, half), bfloat16 (bf16), float32, uint8, int64, bool, "
        "float8_e4m3fn (e4m3), float4_e2m1fnx2; torch.float16 and the like",
    )
    verb.add_argument("--strides", type=integers, help="row-major, in elements; default contiguous")
    verb.add_argument(
        "--address",
        type=_address,
        default=1 << 32,
        help="of the first element, below 2^57, such as 0x100000000; default 2^32",
    )
    verb.add_argument("--data-type", type=_word, help=_choices(TensorMapDataType))
    verb.add_argument(
        "--target", default="sm_90", help=f"one of {', '.join(TARGETS)}; default sm_90"
    )


def add_options(verb: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the options that describe a tensor and a request, row-major."""
    add_tensor_options(verb, required)
    verb.add_argument("--box", type=integers, help="box_sizes of a tiled map, row-major, 1..256")
    verb.add_argument(
        "--lower", type=integers, help="pixel_box_lower_corner of an im2col map, D,H,W"
    )
    verb.add_argument("--upper", type=integers, help="pixel_box_upper_corner, as D,H,W")
    verb.add_argument("--channels", type=int, help="channels_per_pixel, 1..256")
    verb.add_argument("--pixels", type=int, help="pixels_per_column, 1..1024")
    verb.add_argument("--elem-strides", type=integers, help="row-major, 1..8 each; default 1")
    for name, enum, argument in (
        ("--interleave", TmaInterleaveLayout, "interleave_layout"),
        ("--swizzle", TmaSwizzle, "swizzle"),
        ("--l2", TmaL2FetchSize, "l2_fetch_size"),
        ("--oobfill", TmaOobFill, "oobfill"),
    ):
        verb.add_argument(name, default="none", type=_word, help=f"{argument}: {_choices(enum)}")
    verb.add_argument("--rules", help="libcu++ (the default; of im2col: documented) or driver")
    verb.add_argument(
        "--allow",
        type=_ids,
        metavar="ID,...",
        help=f"rules of libcu++ to switch off: {', '.join(ALLOWABLE)}",
    )


def _choices(enum: type[IntEnum]) -> str:
    """Return the names that an option takes; the driver's, CUTLASS's and PTX's work too."""
    return ", ".join(f"{member.name} ({member.value})" for member in enum)


def view(options: argparse.Namespace) -> TensorView:
    """Describe a tensor that does not exist, on a GPU."""
    shape: tuple[int, ...] = options.shape
    if any(n < 0 for n in shape):
        found = f"shape is {shape}"
        raise refusal(
            "shape", found, "have extents of 0 or more", "pass extents such as --shape=128,64"
        )
    if len(options.strides or shape) != len(shape):
        found = f"strides are {options.strides} for shape {shape}"
        raise refusal(
            "strides",
            found,
            "have one entry per dimension",
            f"pass {len(shape)} strides, or omit --strides",
        )
    dtype = dtype_named(options.dtype)
    return TensorView(
        address=options.address,
        device=Device(DLDeviceType.kDLCUDA, 0),
        dtype=dtype,
        shape=shape,
        strides=canonical_strides(
            shape, options.strides or row_major_strides(shape), dtype.itemsize_bits
        ),
        read_only=False,
        producer="described",
        owner=None,
    )


def request(options: argparse.Namespace) -> tuple[MapKind, dict[str, object]]:
    """Read the kind of map, and the arguments of its `make_*` function."""
    corners = {"pixel_box_lower_corner": options.lower, "pixel_box_upper_corner": options.upper}
    counts = {"channels_per_pixel": options.channels, "pixels_per_column": options.pixels}
    column: dict[str, object] = corners | counts
    kind: MapKind
    if options.box is not None and set(column.values()) == {None}:
        kind = "tiled"
    elif options.box is None and None not in column.values():
        kind = "im2col"
    else:
        raise refusal(
            "box",
            "neither --box nor all four im2col options are given, or both are",
            "be --box, or --lower, --upper, --channels and --pixels for an im2col map",
            "pass a box such as --box 16,64",
        )
    return kind, {
        **({"box_sizes": options.box} if kind == "tiled" else column),
        "elem_strides": options.elem_strides,
        "interleave_layout": options.interleave,
        "swizzle": options.swizzle,
        "l2_fetch_size": options.l2,
        "oobfill": options.oobfill,
        "data_type": options.data_type,
        "rules": RULE_SETS[kind][0] if options.rules is None else options.rules,
        "target": options.target,
        **({} if options.allow is None else {"allow": options.allow}),
    }


def page_state(options: argparse.Namespace) -> dict[str, object]:
    """Return what `add_options` and --coords read as a state of the explorer's page.

    What is not given is left to the page; names of the driver, of CUTLASS and of PTX become ours.
    """
    given = {
        "kind": None if options.lower is None else "im2col",
        "shape": options.shape,
        "strides": options.strides,
        "dtype": options.dtype and str(dtype_named(options.dtype)),
        "address": options.address,
        "target": options.target,
        "box_sizes": options.box,
        "elem_strides": options.elem_strides,
        "coords": options.coords,
        "pixel_box_lower_corner": options.lower,
        "pixel_box_upper_corner": options.upper,
        "channels_per_pixel": options.channels,
        "pixels_per_column": options.pixels,
        "interleave_layout": _member(TmaInterleaveLayout, options.interleave),
        "swizzle": _member(TmaSwizzle, options.swizzle) if options.box else None,
        "l2_fetch_size": _member(TmaL2FetchSize, options.l2),
        "oobfill": _member(TmaOobFill, options.oobfill),
        "data_type": _member(TensorMapDataType, options.data_type),
        "rules": options.rules,
        "allow": options.allow,
    }
    return {name: value for name, value in given.items() if value is not None}


def _member(enum: type[IntEnum], word: str | int | None) -> str | None:
    """Return the name of a member; a word that is none stays, for the page to name it."""
    if word is None or (isinstance(word, int) and word not in enum._value2member_map_):
        return None if word is None else str(word)
    return (
        enum(word).name if isinstance(word, int) else getattr(NAMES[enum].get(word), "name", word)
    )


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
