"""Commands that make and show the map of a tensor. The tensor need not exist.

Four options describe the tensor's shape, dtype, strides and address. Other options set the
arguments of `make_tma_descriptor`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tma_dlpack.cli import output
from tma_dlpack.cli.output import JSON, integer, integers, show, status_of
from tma_dlpack.cli.table import (
    EXIT_OK,
    EXIT_REFUSED,
    MAPS,
    PRINTED,
    Option,
    UsageError,
    command,
    did_you_mean,
    option,
    wrong_word,
)
from tma_dlpack.tables.abi import ALLOWABLE_ROWS
from tma_dlpack.tables.arguments import CORNERS, ENUMS, OPTION_NAMES, MapKind
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.dtypes import NAMED_DTYPES, DLDataType
from tma_dlpack.tables.enums import DLDeviceType, TensorMapDataType
from tma_dlpack.tables.errors import TmaPreconditionError, argument_error

if TYPE_CHECKING:
    from tma_dlpack.dlpack import TensorView

# -- words ----------------------------------------------------------------------------------------


def _address(word: str) -> int:
    try:
        address = int(word, 0)
    except ValueError:
        address = -1
    if address < 0:
        raise wrong_word(f"{word!r} is not an address; write one such as 0x100000000")
    return address


def _ids(word: str) -> tuple[str, ...]:
    return tuple(part.upper() for part in word.split(",") if part)


def _word(word: str) -> str | int:
    """Convert a word that is a number to an int; return any other word unchanged."""
    try:
        return int(word, 0)
    except ValueError:
        return word


def _dtype_of(word: str) -> DLDataType:
    """Return the DLPack type with this name.

    The error for an unknown name suggests the most similar name.
    """
    from tma_dlpack.tables.meanings import dtype_named

    try:
        return dtype_named(word)
    except TmaPreconditionError as error:
        refused = error.violations[0]
        near = did_you_mean(word, NAMED_DTYPES).removeprefix("; ")
        fix = f"{near} Otherwise {refused.fix}" if near else refused.fix
        raise TmaPreconditionError(replace(refused, fix=fix)) from None


# -- options --------------------------------------------------------------------------------------

# Name of an argument of `make_tma_descriptor` -> the enum of its values.
_CHOICES: dict[str, type[IntEnum]] = {
    **{ours: ENUMS[drivers] for ours, drivers in OPTION_NAMES.items()},
    "data_type": TensorMapDataType,
}
#: `_COLUMN` has the arguments that only im2col maps have. `_OF_EVERY_MAP` has the arguments that
#: every map has. Both lists have the order of `Report.fixed()`.
_COLUMN = (*CORNERS, "channels_per_pixel", "pixels_per_column")
_OF_EVERY_MAP = ("elem_strides", *_CHOICES, "rules", "target")
# The im2col functions lack these arguments, so a command passes them only if the user sets them.
_ONLY_IF_GIVEN = ("allow", "split_inner", "ragged")


def _argument(flag: str, name: str, about: str, **more: Any) -> Option:
    """Return the option `flag` for the argument `name`. The help shows, for example, --box BOX."""
    return option(flag, about, dest=name, metavar=flag[2:].upper(), **more)


def _choices(name: str) -> str:
    """Return the names and numbers of an enum's members, for the help.

    The commands also accept the names of the driver, CUTLASS and PTX.
    """
    return ", ".join(f"{member.name} ({member.value})" for member in _CHOICES[name])


def _names(name: str) -> tuple[str, ...]:
    return tuple(member.name for member in _CHOICES[name])


def _enum(flag: str, name: str) -> Option:
    about = f"{name}: {_choices(name)}"
    return _argument(flag, name, about, type=_word, default="none", values=_names(name))


def _tensor(required: bool = True) -> tuple[Option, ...]:
    """Return the options that describe a tensor and its GPU. Shape and strides are row-major."""
    return (
        option("--shape", "row-major, such as 128,64", required=required, type=integers),
        option(
            "--dtype",
            "such as float16 (or fp16, half), bfloat16 (bf16), float32, uint8, int64, bool, "
            "float8_e4m3fn (e4m3), float4_e2m1fnx2; torch.float16 and the like",
            required=required,
            values=NAMED_DTYPES,
        ),
        option("--strides", "row-major, in elements; default contiguous", type=integers),
        option(
            "--address",
            "of the first element, below 2^57, such as 0x100000000; default 2^32",
            type=_address,
            default=1 << 32,
        ),
        option("--data-type", _choices("data_type"), type=_word, values=_names("data_type")),
        output.target("one of"),
    )


#: The default of `rules` for tiled maps, and the default for im2col maps.
_USUAL_RULES = ("libcu++", "documented")
_RULES = (
    option(
        "--rules",
        "libcu++ (the default; of im2col: documented) or driver",
        values=("libcu++", "documented", "driver"),
    ),
    option(
        "--allow",
        f"rules of libcu++ to switch off: {', '.join(ALLOWABLE_ROWS)}",
        type=_ids,
        metavar="ID,...",
        values=ALLOWABLE_ROWS,
    ),
)
#: The options that set the arguments of a `make_*` function. Lists are row-major.
_REQUEST = (
    _argument("--box", "box_sizes", "box_sizes of a tiled map, row-major, 1..256", type=integers),
    _argument("--lower", CORNERS[0], f"{CORNERS[0]} of an im2col map, D,H,W", type=integers),
    _argument("--upper", CORNERS[1], f"{CORNERS[1]}, as D,H,W", type=integers),
    _argument("--channels", "channels_per_pixel", "channels_per_pixel, 1..256", type=integer),
    _argument("--pixels", "pixels_per_column", "pixels_per_column, 1..1024", type=integer),
    option("--elem-strides", "row-major, 1..8 each; default 1", type=integers),
    _enum("--interleave", "interleave_layout"),
    _enum("--swizzle", "swizzle"),
    _enum("--l2", "l2_fetch_size"),
    _enum("--oobfill", "oobfill"),
    option(
        "--split-inner",
        "one copy fills a tile wider than the swizzle",
        action="store_true",
        default=None,
    ),
    option("--ragged", "one map for slices of any length along this dimension", type=integer),
    *_RULES,
)


# -- the tensor and the request -------------------------------------------------------------------


def _view(options: argparse.Namespace) -> TensorView:
    """Return a view of the tensor that the options describe. The view's device is GPU 0."""
    from tma_dlpack.dlpack import Device, TensorView, canonical_strides, row_major_strides

    shape: tuple[int, ...] = options.shape
    if any(n < 0 for n in shape):
        must, fix = "have extents of 0 or more", "pass extents such as --shape=128,64"
        raise argument_error("shape", f"shape is {shape}", must, fix)
    if len(options.strides or shape) != len(shape):
        found = f"strides are {options.strides} for shape {shape}"
        fix = f"pass {len(shape)} strides, or omit --strides"
        raise argument_error("strides", found, "have one entry per dimension", fix)
    dtype = _dtype_of(options.dtype)
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


def _request(options: argparse.Namespace) -> tuple[MapKind, dict[str, object]]:
    """Return the kind of map, and the arguments of the `make_*` function for this kind."""
    from tma_dlpack.checks.struct import RULE_SETS

    kind = _kind(options)
    names = ("box_sizes",) if kind == "tiled" else _COLUMN
    arguments = {name: getattr(options, name) for name in (*names, *_OF_EVERY_MAP)}
    if options.rules is None:
        arguments["rules"] = RULE_SETS[kind][0]
    for name in _ONLY_IF_GIVEN:
        if getattr(options, name) is not None:
            arguments[name] = getattr(options, name)
    return kind, arguments


def _kind(options: argparse.Namespace) -> MapKind:
    # A tiled map has none of the four im2col arguments. An im2col map has all of them.
    column = {getattr(options, name) for name in _COLUMN}
    if options.box_sizes is not None and column == {None}:
        return "tiled"
    if options.box_sizes is None and None not in column:
        return "im2col"
    raise UsageError(
        "pass either --box, such as --box 16,64, or for an im2col map all four of --lower, "
        "--upper, --channels and --pixels"
    )


# Name of an argument -> its option, such as "box_sizes" -> --box.
_OPTIONS = {
    entry.settings.get("dest", entry.names[-1][2:].replace("-", "_")): entry
    for entry in (*_tensor(), *_REQUEST)
}


def _as_flags(options: argparse.Namespace, arguments: dict[str, Any]) -> str:
    """Return a tensor and arguments of a `make_*` function as options of the command line.

    An example is "--shape=128,64 --dtype=float16 --box=16,64". `arguments` may be the arguments of
    a corrected call. If the command line has no option for an argument, the argument follows at the
    end in Python's syntax.
    """
    tensor_too = {name: getattr(options, name) for name in ("shape", "dtype", "strides", "address")}
    given = {name: value for name, value in arguments.items() if value is not None}
    words, rest = [], []
    for name, value in {**tensor_too, **given}.items():
        entry = _OPTIONS.get(name)
        if value is None or value is False or value == ():
            continue
        if entry is None:
            rest.append(f"{name}={value!r}")
        elif value is True:
            words.append(entry.names[-1])
        # An option is omitted if its value is the default.
        elif _word_of(value) not in (str(entry.settings.get("default")), *_USUAL_RULES):
            words.append(f"{entry.names[-1]}={_word_of(value)}")
    return " ".join(words) + (f"   (in Python: {', '.join(rest)})" if rest else "")


def _word_of(value: object) -> str:
    """Return a value in the form in which a user writes it after a flag.

    >>> _word_of((16, 64)), _word_of(TensorMapDataType.UINT8)
    ('16,64', 'UINT8')
    """
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, (tuple, list)):
        return ",".join(map(_word_of, value))
    return str(value)


def _page_state(options: argparse.Namespace) -> dict[str, object]:
    """Return the options as the initial state of the explorer's page.

    The state omits options that the user did not pass, and `rules` if it is the default. Names of
    the driver, CUTLASS and PTX become the names of this package's enums.
    """
    from tma_dlpack.checks.struct import RULE_SETS

    # Without a box, or the four options of im2col, the page chooses the box.
    is_chosen = all(getattr(options, name) is None for name in ("box_sizes", *_COLUMN))
    kind: MapKind = "tiled" if is_chosen else _kind(options)
    if options.coords and options.shape and options.ragged is None:
        rank = len(options.shape) + bool(options.split_inner)
        if len(options.coords) != rank:
            found = counted(len(options.coords), "integer")
            raise UsageError(f"--coords has {found}; the map has {counted(rank, 'dimension')}")
    # The options `out` and `command` belong to the command line, not to the map.
    ours = ("out", "command")
    given = {name: value for name, value in vars(options).items() if name not in ours}
    given["kind"] = kind if kind == "im2col" else None
    given["dtype"] = options.dtype and str(_dtype_of(options.dtype))
    given |= {name: _member(enum, given[name]) for name, enum in _CHOICES.items()}
    given["split_inner"] = "yes" if options.split_inner else None
    if is_chosen and options.swizzle == "none":
        del given["swizzle"]  # the page chooses the swizzle together with the box
    if options.rules == RULE_SETS[kind][0]:
        del given["rules"]
    return {name: value for name, value in given.items() if value is not None}


def _member(enum: type[IntEnum], word: str | int | None) -> str | None:
    """Return the name of the enum member that a word or a number means.

    An unknown word is returned unchanged, so that the explorer's page reports the word.
    """
    from tma_dlpack.tables.meanings import parse

    if word is None:
        return None
    member = parse(enum, word)
    return str(word) if member is None else member.name


# -- the commands -------------------------------------------------------------------------------

_COORDS = option(
    "--coords",
    "coordinates of the tile, row-major, such as -4,0; default: the first tile",
    type=integers,
)
_EXAMPLE = "--shape 4096,4096 --dtype bfloat16"


@command(
    "check the arguments for a tensor given by shape and dtype",
    *_tensor(),
    *_REQUEST,
    output.html("report"),
    JSON,
    heading=MAPS,
    examples=(
        f"check {_EXAMPLE} --box 128,64 --swizzle bytes128",
        "check --shape 64,1733 --dtype float16 --box 64,64",
        "check --shape 8,56,56,64 --dtype fp16 --lower -1,-1 --upper -1,-1 --channels 64 "
        "--pixels 128",
        f"check {_EXAMPLE} --box 128,100 --json",
    ),
)
def _check(options: argparse.Namespace) -> int:
    from tma_dlpack import draw
    from tma_dlpack.cli.main import program
    from tma_dlpack.make import build
    from tma_dlpack.tensor_map.text import tile_line

    # This command prints broken rules as its result. It therefore calls `check_view`, which returns
    # a report instead of raising an error.
    kind, arguments = _request(options)
    report = build.check_view(kind, _view(options), arguments)
    words, fixed = str(report), report.fixed()
    if report.ok:
        words += f"\n{tile_line(build.make_view(kind, _view(options), arguments))}"
    elif fixed is not None:
        words += f"\n\nthis would be accepted:\n  {program()} check "
        words += _as_flags(options, fixed)
    found = {**output.vars_of(report), "fixed": fixed}
    show(options, found, words, lambda: draw.report_html(report))
    return status_of(report.violations)


@command(
    "suggest boxes and swizzles for a tile and its reader, best first",
    *_tensor(),
    option("--tile", "row-major, such as 128,64", required=True, type=integers),
    option(
        "--reader",
        "who reads the tile, none if it is only stored; default wgmma",
        default="wgmma",
        values=("wgmma", "tcgen05", "ldmatrix", "threads", "none"),
        closed=True,
    ),
    option("--major", "K or MN; default K", default="K", values=("K", "MN")),
    option("--access", "of threads", default="row", values=("row", "column"), closed=True),
    option("--stages", "tiles at a time; default 1", type=integer, default=1),
    option("--smem-bytes", "default: all that a block can have", type=integer),
    *_RULES,
    JSON,
    heading=MAPS,
    examples=(
        f"suggest {_EXAMPLE} --tile 128,64",
        "suggest --shape 1024,512 --dtype fp32 --tile 64,32 --reader threads --access column",
    ),
    status="0 suggestions printed; 1 no suggestion, with reasons; 2 wrong use",
)
def _suggest(options: argparse.Namespace) -> int:
    from tma_dlpack.suggestions.tile_suggestions import suggest_view

    # Options that the user did not pass are omitted, so that `suggest_view` uses its own defaults.
    names = ("data_type", "rules", "allow", "target")
    given = {name: getattr(options, name) for name in names}
    found = suggest_view(
        _view(options),
        options.tile,
        {name: value for name, value in given.items() if value is not None},
        reader=None if options.reader == "none" else options.reader,
        major=options.major,
        access=options.access,
        stages=options.stages,
        smem_bytes=options.smem_bytes,
    )
    show(options, found)
    return EXIT_OK if found else EXIT_REFUSED


def _figures() -> Iterator[Option]:
    from tma_dlpack.draw import FIGURES

    about = "; ".join(f"{name}: {about}" for name, (about, *_) in FIGURES.items())
    yield option("--figure", f"{about}; default shared", default="shared", values=FIGURES)


@command(
    "draw the map or a tile, as text, SVG or a page of HTML",
    *_tensor(),
    *_REQUEST,
    _figures,
    _COORDS,
    output.out("write SVG, or a page if FILE ends in .html, instead of printing text"),
    option("--narrow", "draw the SVG for a phone", action="store_true"),
    heading=MAPS,
    examples=(
        f"draw {_EXAMPLE} --box 16,64 --swizzle bytes128",
        f"draw {_EXAMPLE} --box 16,64 --figure tensor --coords 4088,0 -o tensor.svg",
        f"draw {_EXAMPLE} --box 16,64 --swizzle bytes128 --figure banks -o -",
    ),
)
def _draw(options: argparse.Namespace) -> int:
    from tma_dlpack import draw
    from tma_dlpack.draw.grid import NARROW
    from tma_dlpack.make import build

    target: Path | None = options.out
    if target is not None and target.suffix not in ("", ".html", ".svg"):
        raise UsageError(f"--out is {target}: write .svg or .html, and convert it")
    if options.figure not in draw.FIGURES:
        near = did_you_mean(options.figure, draw.FIGURES)
        raise UsageError(f"there is no figure {options.figure}{near}")
    kind, arguments = _request(options)
    tensor_map = build.make_view(kind, _view(options), arguments)
    figure = draw.figure(tensor_map, options.figure, options.coords)
    if target is None:
        output.write(output.STDOUT, f"{figure}\n")
    elif target.suffix == ".html":
        output.write(target, draw.page(figure.title, [figure]))
    else:
        output.write(target, figure.svg(NARROW) if options.narrow else figure.svg())
    return EXIT_OK


@command(
    "open the explorer in the browser, or write it to a file",
    *_tensor(required=False),
    *_REQUEST,
    _COORDS,
    output.out("write the page to FILE and open nothing"),
    heading=MAPS,
    examples=(
        "explore",
        f"explore {_EXAMPLE} --box 64,64 --swizzle bytes128 -o explorer.html",
    ),
    status=PRINTED,
    more="Write the explorer as one HTML file, which needs no Python and no network, and open it "
    "in the browser. Without options it shows an example; everything can be changed in the page.",
)
def _explore(options: argparse.Namespace) -> int:
    from tma_dlpack.explorer.page import page

    # The page starts with the arguments of the command line.
    html = page(_page_state(options))
    if options.out:
        output.write(options.out, html)
        return EXIT_OK
    import tempfile
    import webbrowser

    # The folder must not be removed, because the browser may read the file after this program ends.
    path = Path(tempfile.mkdtemp(prefix="tma_dlpack-")) / "explorer.html"
    path.write_text(html, encoding="utf-8")
    print(path)
    if not webbrowser.open(path.as_uri()):
        print("no browser was found here; open the file yourself", file=sys.stderr)
    return EXIT_OK
