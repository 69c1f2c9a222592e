"""A tensor and a request described by options of the command line; the tensor need not exist."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tma_dlpack.checks.request import RULE_SETS
from tma_dlpack.dlpack import Device, TensorView, canonical_strides, row_major_strides
from tma_dlpack.tables.arguments import MapKind
from tma_dlpack.tables.dtypes import dtype_named
from tma_dlpack.tables.enums import DLDeviceType
from tma_dlpack.tables.errors import refusal

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


def add_options(verb: argparse.ArgumentParser) -> None:
    """Add the options that describe a tensor and a request, row-major."""
    verb.add_argument("--shape", required=True, type=integers, help="row-major, such as 128,64")
    verb.add_argument("--dtype", required=True, help="such as float16, bfloat16, float8_e4m3fn")
    verb.add_argument("--strides", type=integers, help="row-major, in elements; default contiguous")
    verb.add_argument(
        "--address", type=_address, default=1 << 32, help="of the first element; default 2^32"
    )
    verb.add_argument("--box", type=integers, help="box_sizes of a tiled map, row-major")
    verb.add_argument("--lower", type=integers, help="of an im2col map: pixel_box_lower_corner")
    verb.add_argument("--upper", type=integers, help="pixel_box_upper_corner, as D,H,W")
    verb.add_argument("--channels", type=int, help="channels_per_pixel")
    verb.add_argument("--pixels", type=int, help="pixels_per_column")
    verb.add_argument("--elem-strides", type=integers)
    verb.add_argument("--interleave", default="none", type=_word)
    verb.add_argument("--swizzle", default="none", type=_word)
    verb.add_argument("--l2", default="none", type=_word, help="l2_fetch_size")
    verb.add_argument("--oobfill", default="none", type=_word)
    verb.add_argument("--data-type", type=_word)
    verb.add_argument("--rules", help="libcu++ (im2col: documented) or driver")
    verb.add_argument("--allow", type=_ids, metavar="ID,...", help="rules of libcu++ to switch off")
    verb.add_argument("--target", default="sm_90")


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
