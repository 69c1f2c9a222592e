"""``python -m tma_dlpack``: the commands.

Exit status: 0 accepted, 1 refused, 2 nothing could be read or the command was used wrongly. With
``--json`` a command prints `common.plain` of its result instead of text.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli import common, doctor
from tma_dlpack.cli.common import JSON, Option, attributes, option, show, vars_of
from tma_dlpack.debug import hexdump
from tma_dlpack.debug.explain import explain
from tma_dlpack.debug.trace import program
from tma_dlpack.explorer.page import page as explorer_page
from tma_dlpack.make import build
from tma_dlpack.suggestions.tile_suggestions import suggest_view
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError, Violation, refusal
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tensor_map import text

Run = Callable[[argparse.Namespace], int]
#: Name, what it does, its options, other texts of its help, the function that runs it.
VERBS: list[tuple[str, str, tuple[Option, ...], dict[str, Any], Run]] = []

EXIT_OK, EXIT_REFUSED, EXIT_NOTHING = 0, 1, 2
EXIT_STATUS = "exit status: 0 accepted; 1 refused; 2 nothing could be read, or wrong use"
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    141 if the other end of a pipe closed before everything was printed.
    """
    words = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(common.joined(words))
    run: Run = options.run
    try:
        status = run(options)
        sys.stdout.flush()  # so that a closed pipe raises inside this try
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (TmaError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if isinstance(error, TmaPreconditionError):
            return _status(error.violations)
        return EXIT_REFUSED if isinstance(error, TmaError) else EXIT_NOTHING


def _status(violations: Sequence[Violation]) -> int:
    """Return 2 if an argument could not be read, 1 if a rule is broken, else 0."""
    if any(violation.rule == "ARGUMENT" for violation in violations):
        return EXIT_NOTHING
    return EXIT_REFUSED if violations else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tma_dlpack", description=tma.__doc__, epilog=EXIT_STATUS
    )
    version = f"tma_dlpack {tma.__version__}"
    parser.add_argument("--version", action="version", version=version)
    verbs = parser.add_subparsers(required=True, metavar="verb")
    for name, about, options, texts, run in VERBS:
        texts = {"description": about, "epilog": EXIT_STATUS, **texts}
        verb = verbs.add_parser(name, help=about, **texts)
        for flag, settings in options:
            verb.add_argument(flag, **settings)
        verb.set_defaults(run=run)
    return parser


def _command(about: str, *options: Option, **texts: str) -> Callable[[Run], Run]:
    """Add a function to the commands, by its name; `texts` are other texts of its help."""

    def added(run: Run) -> Run:
        VERBS.append((run.__name__[1:], about, options, texts, run))
        return run

    return added


def _file(word: str) -> Path:
    if not word:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return Path(word)


def _to_file(flag: str, about: str) -> Option:
    return option(flag, about, type=_file, metavar="FILE")


def _page(what: str) -> Option:
    return _to_file("--html", f"also write the {what} as HTML")


def _write_page(options: argparse.Namespace, verb: str, html: Callable[[], str]) -> None:
    """Obey ``--html``."""
    if options.html:
        page = draw.page(f"tma_dlpack {verb}", [html()])
        options.html.write_text(page, encoding="utf-8")


def _coords(more: str = "") -> Option:
    about = f"coordinates of the tile, row-major, such as -4,0{more}"
    return option("--coords", about, type=common.integers)


@_command("make a map, copy a tile, see a refusal; needs no GPU")
def _demo(options: argparse.Namespace) -> int:
    x = np.arange(128 * 64, dtype=np.float16).reshape(128, 64)
    _say('tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")')
    print("   # x: NumPy float16 (128, 64)")
    tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    print(tm)
    print(f"\nits 128 bytes (encoder: {tm.encoder}):")
    print("\n".join(text.hex_lines(bytes(tm))))

    _say("tma.load_tile(tm, (120, 0)).array   # rows 120..135 of 128: half is out of bounds")
    tile = tma.load_tile(tm, (120, 0))
    filled = int(tile.filled.sum())
    same = np.array_equal(tile.array[:8], x[120:])
    print(f"{tile.array.shape}: {tile.array.size - filled} elements copied, {filled} filled")
    print(f"its first 8 rows equal x[120:]: {same}")

    y = np.zeros((4, 1733), dtype=np.float16)
    _say('tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")')
    print("   # y: NumPy float16 (4, 1733)")
    try:
        tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")
    except tma.TmaPreconditionError as error:
        print(f"TmaPreconditionError: {len(error.violations)} violations\n{error}")
    return EXIT_OK


def _say(code: str) -> None:
    print(f"\n>>> {code}")


@_command(
    "check the arguments for a tensor given by shape and dtype",
    *common.tensor(),
    *common.REQUEST,
    _page("report"),
    JSON,
)
def _check(options: argparse.Namespace) -> int:
    kind, request = common.request(options)
    report = build.check_view(kind, common.view(options), request)
    words, fixed = str(report), report.fixed()
    if not report.ok and fixed is not None:
        asked = {name: _written(value) for name, value in fixed.items() if value is not None}
        words += "\n\nthis would be accepted:\n  "
        words += ", ".join(f"{name}={value}" for name, value in asked.items() if value != "'none'")
    show(options, {**vars_of(report), "fixed": fixed}, words)
    _write_page(options, "check", lambda: draw.report_html(report))
    return _status(report.violations)


def _written(value: object) -> str:
    """Write an argument as a user types it: a member of an enum by its name."""
    return repr(value.name if isinstance(value, IntEnum) else value)


_FIGURES = "; ".join(f"{name}: {about}" for name, (about, _) in draw.FIGURES.items())


@_command(
    "draw the map or a tile, as text, SVG or a page of HTML",
    *common.tensor(),
    *common.REQUEST,
    option(
        "--figure",
        f"{_FIGURES}; default shared",
        default="shared",
        choices=[*draw.FIGURES],
        metavar="FIGURE",
    ),
    _coords("; default: the first tile"),
    _to_file("--out", "write SVG, or a page if FILE ends in .html, instead of printing text"),
)
def _draw(options: argparse.Namespace) -> int:
    kind, request = common.request(options)
    tensor_map = build.make_view(kind, common.view(options), request)
    figure = draw.figure(tensor_map, options.figure, options.coords)
    if options.out is None:
        print(figure)
    elif options.out.suffix == ".html":
        options.out.write_text(draw.page(figure.title, [figure]), encoding="utf-8")
    elif options.out.suffix in ("", ".svg"):
        options.out.write_text(figure.svg(), encoding="utf-8")
    else:
        must = "end in .svg or .html"
        raise refusal("out", f"--out is {options.out}", must, "write SVG and convert it")
    return EXIT_OK


@_command(
    "open the explorer in the browser, or write it to a file",
    *common.tensor(required=False),
    *common.REQUEST,
    _coords(),
    _to_file("--out", "write the page to FILE and open nothing"),
    description="Write the explorer as one HTML file, which needs no Python and no network, and "
    "open it in the browser. Without options it shows an example; everything can be changed in the "
    "page.",
)
def _explore(options: argparse.Namespace) -> int:
    page = explorer_page(common.page_state(options))
    if options.out:
        options.out.write_text(page, encoding="utf-8")
        return EXIT_OK
    folder = Path(tempfile.mkdtemp(prefix="tma_dlpack-"))
    path = folder / "explorer.html"
    path.write_text(page, encoding="utf-8")
    print(path)
    if not webbrowser.open(path.as_uri()):
        print("no browser was found here; open the file yourself", file=sys.stderr)
    return EXIT_OK


@_command(
    "suggest boxes and swizzles for a tile and its reader, best first",
    *common.tensor(),
    option("--tile", "row-major, such as 128,64", required=True, type=common.integers),
    option(
        "--reader",
        "who reads the tile; none if it is only stored; default wgmma",
        default="wgmma",
        choices=("wgmma", "tcgen05", "ldmatrix", "threads", "none"),
    ),
    option("--major", "default K", default="K", choices=("K", "MN")),
    option("--access", "of threads", default="row", choices=("row", "column")),
    option("--stages", "tiles at a time; default 1", type=int, default=1),
    option("--smem-bytes", "default: all that a block can have", type=int),
    JSON,
)
def _suggest(options: argparse.Namespace) -> int:
    given = {"data_type": options.data_type, "target": options.target}
    found = suggest_view(
        common.view(options),
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


@_command(
    "print the fields of the 128 bytes of a map",
    option(
        "map",
        f"{hexdump.FORMS}; or a file of these or of 128 raw bytes; - for standard input",
        metavar="DUMP|FILE|-",
    ),
    common.target("the GPU that the map was made for:"),
    JSON,
)
def _decode(options: argparse.Namespace) -> int:
    tensor_map = tma.TensorMap.from_bytes(hexdump.map_bytes(options.map), options.target)
    words = [str(tensor_map), *text.hex_lines(bytes(tensor_map))]
    show(options, attributes(tensor_map), "\n".join(words))
    return EXIT_REFUSED if tensor_map.is_nothing else EXIT_OK


@_command(
    "compare this package with the driver and GPU of this machine",
    option("-n", "random inputs per check; default 1000", type=int, default=1000),
    option("--seed", "seed of the random inputs; default 0", type=int, default=0),
    option("--device", "index of the GPU; default 0", type=int, default=0),
    option("--out", "write all cases and results to this file", metavar="FILE"),
    option("--read", "read such a file instead; needs no GPU", metavar="FILE"),
    option("--target", "compare what was read with this target; default: its own"),
    epilog="exit status: 0 no difference; 1 differences; 2 nothing to compare with (no driver or "
    "GPU), or wrong use",
)
def _verify(options: argparse.Namespace) -> int:
    if options.read is not None:
        from tma_dlpack.verification import learning

        report = learning.Findings.read(options.read).against(options.target)
    else:
        try:
            report = tma.verify(options.n, options.seed, device_id=options.device, out=options.out)
        except tma.TmaUnsupportedError as missing:  # no driver, no GPU with TMA, no NVRTC
            print(f"{type(missing).__name__}: {missing}", file=sys.stderr)
            return EXIT_NOTHING
    print(report)
    return EXIT_OK if report.ok else EXIT_REFUSED


@_command(
    "list every rule: what it requires, why, and who refuses",
    option("ids", "only these, such as BOX_IN_SHAPE", nargs="*", metavar="ID"),
    JSON,
)
def _rules(options: argparse.Namespace) -> int:
    found = [rule for rule_id in options.ids for rule in tma.rules(rule_id)] or tma.rules()
    show(options, found, "\n\n".join(map(str, found)))
    return EXIT_OK


@_command(
    "find the cause of a failed encode or launch in what was printed",
    option(
        "file",
        "the output of the program or its whole log, a line of a checked build, or a symptom in "
        "words (error 715, my kernel hangs); - for standard input",
        metavar="FILE|-",
    ),
    common.target("the GPU that the map is for:"),
    _page("explanation"),
    JSON,
    epilog="exit status: 0 the encodes that were read are right; 1 one is refused; 2 no encode was "
    "read (the causes of a symptom are listed all the same), or wrong use",
)
def _explain(options: argparse.Namespace) -> int:
    content = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    dumped = len(content) == MAP_BYTES and (b"\0" in content or not content.isascii())
    found = explain(content.hex() if dumped else content.decode("utf-8", "replace"), options.target)
    show(options, found)
    _write_page(options, "explain", found._repr_html_)
    if not found.reports:
        return EXIT_NOTHING
    return EXIT_OK if found.ok else EXIT_REFUSED


@_command(
    "run any program and list every tensor map that it makes",
    _page("report"),
    _to_file("--json", "also write all that was recorded"),
    option("program", "the program and its arguments", nargs=argparse.REMAINDER),
    usage="python -m tma_dlpack trace [--html FILE] [--json FILE] -- PROGRAM ARGS...",
    epilog="exit status: the program's; 128 + n if signal n ended it",
)
def _trace(options: argparse.Namespace) -> int:
    """Exit with the program's status."""
    words = options.program[options.program[:1] == ["--"] :]
    if not words:
        fix = "run python -m tma_dlpack trace -- python my_program.py"
        raise refusal("PROGRAM", "no program is named", "be a program and its arguments", fix)
    status, trace = program.run(words)
    print(trace)
    _write_page(options, "trace", trace.html)
    if options.json:
        options.json.write_text(trace.to_json(), encoding="utf-8")
    return status


@_command("print the folder of the C and C++ headers")
def _include(options: argparse.Namespace) -> int:
    print(tma.get_include())
    return EXIT_OK


@_command("list what is installed, and whether the driver or the model encodes", JSON)
def _doctor(options: argparse.Namespace) -> int:
    facts = doctor.facts()
    show(options, facts, doctor.report(facts))
    return EXIT_OK
