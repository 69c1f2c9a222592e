"""``python -m tma_dlpack``: the commands."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli import demo, doctor, hexdump
from tma_dlpack.cli.explain import explain
from tma_dlpack.dlpack import Device, TensorView, canonical_strides, row_major_strides
from tma_dlpack.encoding.arguments import MapKind
from tma_dlpack.make import build
from tma_dlpack.rules.request import RULE_SETS
from tma_dlpack.tensor_map import text
from tma_dlpack.types.dtypes import dtype_named
from tma_dlpack.types.enums import DLDeviceType
from tma_dlpack.types.errors import TmaError, TmaUnsupportedError, refusal
from tma_dlpack.types.limits import MAP_BYTES

__all__ = ["main"]

EXIT_OK, EXIT_REFUSED = 0, 1
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it
BENCHES = ("call", "simulator", "gpu", "gemm", "conv", "cpp")
MAX_DUMP_BYTES = 1 << 16  # read of a file; the longest text form of a map has about 2000
#: Options whose value may begin with a minus sign, which argparse takes for another option.
SIGNED = ("--coords", "--lower", "--upper")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status: 1 where something was refused, else 0.

    141 if the other end of a pipe closed before everything was printed.
    """
    parser = _parser()
    options = parser.parse_args(_joined(sys.argv[1:] if argv is None else argv))
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        sys.stdout.flush()  # so that a closed pipe raises inside this try
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (TmaError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_REFUSED


def _joined(words: Sequence[str]) -> list[str]:
    """Write ``--coords -4,0`` as ``--coords=-4,0``."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in SIGNED and word[:1] == "-" and word[1:2].isdigit():
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tma_dlpack", description=tma.__doc__)
    verbs = parser.add_subparsers(required=True, metavar="verb")

    verb = verbs.add_parser("demo", help="make a map, copy a tile, see a refusal; needs no GPU")
    verb.set_defaults(run=_demo)

    verb = verbs.add_parser(
        "check", help="check the arguments for a tensor given by shape and dtype"
    )
    _add_tensor(verb)
    verb.add_argument("--html", type=_file, metavar="FILE", help="also write the report as HTML")
    verb.set_defaults(run=_check)

    verb = verbs.add_parser("draw", help="draw the map or a tile, as SVG or as text")
    _add_tensor(verb)
    verb.add_argument("--figure", default="shared", choices=[*draw.FIGURES], help="default shared")
    verb.add_argument(
        "--coords",
        type=_integers,
        help="coordinates of the tile, row-major; default: the first tile",
    )
    verb.add_argument(
        "--out", type=_file, metavar="FILE", help="write SVG to FILE instead of printing text"
    )
    verb.set_defaults(run=_draw)

    verb = verbs.add_parser("decode", help="print the fields of the 128 bytes of a map")
    verb.add_argument(
        "map", metavar="DUMP|FILE", help=f"{hexdump.FORMS}; or a file of these or of 128 raw bytes"
    )
    verb.add_argument(
        "--target", default="sm_90", help="the GPU that the map was made for; default sm_90"
    )
    verb.set_defaults(run=_decode)

    verb = verbs.add_parser(
        "verify", help="compare this package with the driver and GPU of this machine"
    )
    verb.add_argument("-n", type=int, default=1000, help="random inputs per check; default 1000")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs; default 0")
    verb.add_argument("--device", type=int, default=0, help="index of the GPU; default 0")
    verb.set_defaults(run=_verify)

    verb = verbs.add_parser("bench", help="measure time per call and bandwidth on this machine")
    verb.add_argument("what", choices=[*BENCHES, "all"])
    verb.add_argument(
        "rest",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="options of that benchmark; see --help",
    )
    verb.set_defaults(run=_bench)

    verb = verbs.add_parser("rules", help="list every rule: what it requires, why, and who refuses")
    verb.add_argument("ids", nargs="*", metavar="ID", help="only these, such as BOX_IN_SHAPE")
    verb.set_defaults(run=_rules)

    verb = verbs.add_parser(
        "explain", help="find what is wrong with the printed arguments of a failed encode"
    )
    verb.add_argument(
        "file",
        metavar="FILE",
        help="the output of the program, or its whole log; - for standard input",
    )
    verb.add_argument(
        "--target", default="sm_90", help="the GPU that the map is for; default sm_90"
    )
    verb.add_argument(
        "--html", type=_file, metavar="FILE", help="also write the explanation as HTML"
    )
    verb.set_defaults(run=_explain)

    verb = verbs.add_parser(
        "doctor", help="list what is installed, and whether the driver or the model encodes"
    )
    verb.set_defaults(run=_doctor)
    return parser


def _add_tensor(verb: argparse.ArgumentParser) -> None:
    """Add the options that describe a tensor and a request, row-major."""
    verb.add_argument("--shape", required=True, type=_integers, help="row-major, such as 128,64")
    verb.add_argument("--dtype", required=True, help="such as float16, bfloat16, float8_e4m3fn")
    verb.add_argument(
        "--strides", type=_integers, help="row-major, in elements; default contiguous"
    )
    verb.add_argument(
        "--address", type=_address, default=1 << 32, help="of the first element; default 2^32"
    )
    verb.add_argument("--box", type=_integers, help="box_sizes of a tiled map, row-major")
    verb.add_argument("--lower", type=_integers, help="of an im2col map: pixel_box_lower_corner")
    verb.add_argument("--upper", type=_integers, help="pixel_box_upper_corner, as D,H,W")
    verb.add_argument("--channels", type=int, help="channels_per_pixel")
    verb.add_argument("--pixels", type=int, help="pixels_per_column")
    verb.add_argument("--elem-strides", type=_integers)
    verb.add_argument("--interleave", default="none", type=_word)
    verb.add_argument("--swizzle", default="none", type=_word)
    verb.add_argument("--l2", default="none", type=_word, help="l2_fetch_size")
    verb.add_argument("--oobfill", default="none", type=_word)
    verb.add_argument("--data-type", type=_word)
    verb.add_argument("--rules", help="libcu++ (im2col: documented) or driver")
    verb.add_argument("--allow", type=_ids, metavar="ID,...", help="rules of libcu++ to switch off")
    verb.add_argument("--target", default="sm_90")


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


def _file(word: str) -> Path:
    if not word:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return Path(word)


def _integers(word: str) -> tuple[int, ...]:
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


def _demo(options: argparse.Namespace) -> int:
    demo.main()
    return EXIT_OK


def _check(options: argparse.Namespace) -> int:
    kind, request = _request(options)
    report = build.check_view(kind, _described(options), request)
    print(report)
    fixed = report.fixed()
    if not report.ok and fixed is not None:
        print("\nthis would be accepted:")
        print("  " + ", ".join(f"{name}={_written(value)}" for name, value in fixed.items()))
    if options.html:
        page = draw.page("tma_dlpack check", [draw.report_html(report)])
        options.html.write_text(page, encoding="utf-8")
    return EXIT_OK if report.ok else EXIT_REFUSED


def _written(value: object) -> str:
    """Write an argument as a user types it: a member of an enum by its name."""
    return repr(value.name if isinstance(value, IntEnum) else value)


def _draw(options: argparse.Namespace) -> int:
    kind, request = _request(options)
    tensor_map = build.make_view(kind, _described(options), request)
    figure = draw.figure(tensor_map, options.figure, options.coords)
    if options.out:
        options.out.write_text(figure.svg(), encoding="utf-8")
    else:
        print(figure)
    return EXIT_OK


def _described(options: argparse.Namespace) -> TensorView:
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


def _request(options: argparse.Namespace) -> tuple[MapKind, dict[str, object]]:
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


def _decode(options: argparse.Namespace) -> int:
    tensor_map = tma.TensorMap.from_bytes(_map_bytes(options.map), options.target)
    print(tensor_map)
    print("\n".join(text.hex_lines(bytes(tensor_map))))
    return EXIT_OK


def _map_bytes(word: str) -> bytes:
    """Read a pasted dump, or a file that has a dump or 128 raw bytes."""
    pasted = hexdump.parse(word)
    if pasted is not None and len(pasted) == MAP_BYTES:
        return pasted
    path = Path(word)
    if _is_file(path):
        with path.open("rb") as file:
            content = file.read(MAX_DUMP_BYTES)  # /dev/zero never ends
        if len(content) == MAP_BYTES:
            return content
        count = f"{'at least ' * (len(content) == MAX_DUMP_BYTES)}{len(content)} bytes"
        pasted, found = hexdump.parse(content.decode("ascii", "replace")), count
    else:
        found = f"{word[:60]!r}{'...' * (len(word) > 60)}, which is neither a dump nor a file"
    if pasted is None:
        raise refusal("map", f"the map is {found}", "be 128 bytes", f"pass a dump: {hexdump.FORMS}")
    return pasted  # of another length, which from_bytes refuses


def _is_file(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False


def _verify(options: argparse.Namespace) -> int:
    report = tma.verify(options.n, options.seed, device_id=options.device)
    print(report)
    return EXIT_OK if report.ok else EXIT_REFUSED


def _bench(options: argparse.Namespace) -> int:
    """Run one bench with its own options, or all with none."""
    names = BENCHES if options.what == "all" else (options.what,)
    worst = EXIT_OK
    for name in names:
        module = importlib.import_module(f"tma_dlpack.bench.{name}")
        try:
            worst = max(worst, module.main(options.rest))
        except TmaUnsupportedError as error:
            if options.what != "all":
                raise
            print(f"bench {name} skipped: {error}")
    return worst


def _rules(options: argparse.Namespace) -> int:
    by_id = {rule.id: rule for rule in tma.rules()}
    for rule_id in options.ids:
        if rule_id not in by_id:
            close = difflib.get_close_matches(rule_id.upper(), by_id, n=1)
            fix = (
                f"did you mean {close[0]}?"
                if close
                else "run python -m tma_dlpack rules to see all ids"
            )
            raise refusal("ID", f"{rule_id!r} is not the id of a rule", "be the id of a rule", fix)
    print("\n\n".join(str(by_id[rule_id]) for rule_id in options.ids or by_id))
    return EXIT_OK


def _explain(options: argparse.Namespace) -> int:
    """Exit with 1 if a rule is broken, with 0 if the text cannot be read."""
    content = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    dumped = len(content) == MAP_BYTES and not content.isascii()
    found = explain(content.hex() if dumped else content.decode("utf-8", "replace"), options.target)
    print(found)
    if options.html:
        page = draw.page("tma_dlpack explain", [found._repr_html_()])
        options.html.write_text(page, encoding="utf-8")
    return EXIT_OK if all(report.ok for report in found.reports) else EXIT_REFUSED


def _doctor(options: argparse.Namespace) -> int:
    print(doctor.report())
    return EXIT_OK
