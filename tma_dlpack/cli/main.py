"""``python -m tma_dlpack``: the commands.

Exit status: 0 accepted, 1 refused, 2 nothing could be read or the command was used wrongly. With
``--json`` a command prints `output.plain` of its result instead of text.
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

import numpy as np

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli import described, doctor, hexdump
from tma_dlpack.cli.explain import explain
from tma_dlpack.cli.output import add_json, attributes, show, vars_of
from tma_dlpack.cli.trace import program
from tma_dlpack.explorer.page import page as explorer_page
from tma_dlpack.make import build
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError, Violation, refusal
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tables.targets import TARGETS
from tma_dlpack.tensor_map import text
from tma_dlpack.verification.suggestions import suggest_view

AddOptions = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]
#: Name, what it does, the function that adds its options, the function that runs it.
VERBS: list[tuple[str, str, AddOptions, Run]] = []

EXIT_OK, EXIT_REFUSED, EXIT_NOTHING = 0, 1, 2
EXIT_STATUS = "exit status: 0 accepted; 1 refused; 2 nothing could be read, or wrong use"
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    141 if the other end of a pipe closed before everything was printed.
    """
    words = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(described.joined(words))
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
    for name, about, add_options, run in VERBS:
        verb = verbs.add_parser(name, help=about, description=about, epilog=EXIT_STATUS)
        add_options(verb)
        verb.set_defaults(run=run)
    return parser


def _no_options(verb: argparse.ArgumentParser) -> None:
    """Take no options."""


def _command(about: str, add_options: AddOptions = _no_options) -> Callable[[Run], Run]:
    """Add a function to the commands, by its name."""

    def added(run: Run) -> Run:
        VERBS.append((run.__name__[1:], about, add_options, run))
        return run

    return added


def _file(word: str) -> Path:
    if not word:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return Path(word)


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


def _check_options(verb: argparse.ArgumentParser) -> None:
    described.add_options(verb)
    verb.add_argument("--html", type=_file, metavar="FILE", help="also write the report as HTML")
    add_json(verb)


@_command("check the arguments for a tensor given by shape and dtype", _check_options)
def _check(options: argparse.Namespace) -> int:
    kind, request = described.request(options)
    report = build.check_view(kind, described.view(options), request)
    words, fixed = str(report), report.fixed()
    if not report.ok and fixed is not None:
        asked = {name: _written(value) for name, value in fixed.items() if value is not None}
        words += "\n\nthis would be accepted:\n  "
        words += ", ".join(f"{name}={value}" for name, value in asked.items() if value != "'none'")
    show(options, {**vars_of(report), "fixed": fixed}, words)
    if options.html:
        page = draw.page("tma_dlpack check", [draw.report_html(report)])
        options.html.write_text(page, encoding="utf-8")
    return _status(report.violations)


def _written(value: object) -> str:
    """Write an argument as a user types it: a member of an enum by its name."""
    return repr(value.name if isinstance(value, IntEnum) else value)


def _draw_options(verb: argparse.ArgumentParser) -> None:
    described.add_options(verb)
    figures = "; ".join(f"{name}: {about}" for name, (about, _) in draw.FIGURES.items())
    verb.add_argument(
        "--figure",
        default="shared",
        choices=[*draw.FIGURES],
        metavar="FIGURE",
        help=f"{figures}; default shared",
    )
    verb.add_argument(
        "--coords",
        type=described.integers,
        help="coordinates of the tile, row-major, such as -4,0; default: the first tile",
    )
    verb.add_argument(
        "--out",
        type=_file,
        metavar="FILE",
        help="write SVG, or a page if FILE ends in .html, instead of printing text",
    )


@_command("draw the map or a tile, as text, SVG or a page of HTML", _draw_options)
def _draw(options: argparse.Namespace) -> int:
    kind, request = described.request(options)
    tensor_map = build.make_view(kind, described.view(options), request)
    figure = draw.figure(tensor_map, options.figure, options.coords)
    if options.out is None:
        print(figure)
    elif options.out.suffix == ".html":
        page = draw.page(figure.title, [figure])
        options.out.write_text(page, encoding="utf-8")
    elif options.out.suffix in ("", ".svg"):
        options.out.write_text(figure.svg(), encoding="utf-8")
    else:
        must = "end in .svg or .html"
        raise refusal("out", f"--out is {options.out}", must, "write SVG and convert it")
    return EXIT_OK


def _explore_options(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "Write the explorer as one HTML file, which needs no Python and no network, and open it in "
        "the browser. Without options it shows an example; everything can be changed in the page."
    )
    described.add_options(verb, required=False)
    verb.add_argument(
        "--coords", type=described.integers, help="coordinates of the tile, row-major, such as -4,0"
    )
    verb.add_argument(
        "--out", type=_file, metavar="FILE", help="write the page to FILE and open nothing"
    )


@_command("open the explorer in the browser, or write it to a file", _explore_options)
def _explore(options: argparse.Namespace) -> int:
    page = explorer_page(described.page_state(options))
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


def _suggest_options(verb: argparse.ArgumentParser) -> None:
    described.add_tensor_options(verb)
    verb.add_argument(
        "--tile", required=True, type=described.integers, help="row-major, such as 128,64"
    )
    verb.add_argument(
        "--reader",
        default="wgmma",
        choices=("wgmma", "tcgen05", "ldmatrix", "threads", "none"),
        help="who reads the tile; none if it is only stored; default wgmma",
    )
    verb.add_argument("--major", default="K", choices=("K", "MN"), help="default K")
    verb.add_argument("--access", default="row", choices=("row", "column"), help="of threads")
    verb.add_argument("--stages", type=int, default=1, help="tiles at a time; default 1")
    verb.add_argument("--smem-bytes", type=int, help="default: all that a block can have")
    add_json(verb)


@_command("suggest boxes and swizzles for a tile and its reader, best first", _suggest_options)
def _suggest(options: argparse.Namespace) -> int:
    given = {"data_type": options.data_type, "target": options.target}
    found = suggest_view(
        described.view(options),
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


def _decode_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "map",
        metavar="DUMP|FILE|-",
        help=f"{hexdump.FORMS}; or a file of these or of 128 raw bytes; - for standard input",
    )
    verb.add_argument(
        "--target",
        default="sm_90",
        help=f"the GPU that the map was made for: {', '.join(TARGETS)}; default sm_90",
    )
    add_json(verb)


@_command("print the fields of the 128 bytes of a map", _decode_options)
def _decode(options: argparse.Namespace) -> int:
    tensor_map = tma.TensorMap.from_bytes(hexdump.map_bytes(options.map), options.target)
    words = [str(tensor_map), *text.hex_lines(bytes(tensor_map))]
    show(options, attributes(tensor_map), "\n".join(words))
    return EXIT_REFUSED if tensor_map.is_nothing else EXIT_OK


def _verify_options(verb: argparse.ArgumentParser) -> None:
    verb.epilog = (
        "exit status: 0 no difference; 1 differences; 2 nothing to compare with (no driver or "
        "GPU), or wrong use"
    )
    verb.add_argument("-n", type=int, default=1000, help="random inputs per check; default 1000")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs; default 0")
    verb.add_argument("--device", type=int, default=0, help="index of the GPU; default 0")
    verb.add_argument("--out", metavar="FILE", help="write all cases and results to this file")
    verb.add_argument("--read", metavar="FILE", help="read such a file instead; needs no GPU")
    verb.add_argument("--target", help="compare what was read with this target; default: its own")


@_command("compare this package with the driver and GPU of this machine", _verify_options)
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


def _rules_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("ids", nargs="*", metavar="ID", help="only these, such as BOX_IN_SHAPE")
    add_json(verb)


@_command("list every rule: what it requires, why, and who refuses", _rules_options)
def _rules(options: argparse.Namespace) -> int:
    found = [rule for rule_id in options.ids for rule in tma.rules(rule_id)] or tma.rules()
    show(options, found, "\n\n".join(map(str, found)))
    return EXIT_OK


def _explain_options(verb: argparse.ArgumentParser) -> None:
    verb.epilog = (
        "exit status: 0 the encodes that were read are right; 1 one is refused; 2 no encode was "
        "read (the causes of a symptom are listed all the same), or wrong use"
    )
    verb.add_argument(
        "file",
        metavar="FILE|-",
        help="the output of the program or its whole log, a line of a checked build, or a symptom "
        "in words (error 715, my kernel hangs); - for standard input",
    )
    verb.add_argument(
        "--target",
        default="sm_90",
        help=f"the GPU that the map is for: {', '.join(TARGETS)}; default sm_90",
    )
    verb.add_argument(
        "--html", type=_file, metavar="FILE", help="also write the explanation as HTML"
    )
    add_json(verb)


@_command("find the cause of a failed encode or launch in what was printed", _explain_options)
def _explain(options: argparse.Namespace) -> int:
    content = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    dumped = len(content) == MAP_BYTES and (b"\0" in content or not content.isascii())
    found = explain(content.hex() if dumped else content.decode("utf-8", "replace"), options.target)
    show(options, found)
    if options.html:
        page = draw.page("tma_dlpack explain", [found._repr_html_()])
        options.html.write_text(page, encoding="utf-8")
    if not found.reports:
        return EXIT_NOTHING
    return EXIT_OK if found.ok else EXIT_REFUSED


def _trace_options(verb: argparse.ArgumentParser) -> None:
    verb.usage = "python -m tma_dlpack trace [--html FILE] [--json FILE] -- PROGRAM ARGS..."
    verb.epilog = "exit status: the program's; 128 + n if signal n ended it"
    verb.add_argument("--html", type=_file, metavar="FILE", help="also write the report as HTML")
    verb.add_argument("--json", type=_file, metavar="FILE", help="also write all that was recorded")
    verb.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")


@_command("run any program and list every tensor map that it makes", _trace_options)
def _trace(options: argparse.Namespace) -> int:
    """Exit with the program's status."""
    words = options.program[options.program[:1] == ["--"] :]
    if not words:
        fix = "run python -m tma_dlpack trace -- python my_program.py"
        raise refusal("PROGRAM", "no program is named", "be a program and its arguments", fix)
    status, trace = program.run(words)
    print(trace)
    if options.html:
        page = draw.page("tma_dlpack trace", [trace.html()])
        options.html.write_text(page, encoding="utf-8")
    if options.json:
        options.json.write_text(trace.to_json(), encoding="utf-8")
    return status


@_command("print the folder of the C and C++ headers")
def _include(options: argparse.Namespace) -> int:
    print(tma.get_include())
    return EXIT_OK


@_command("list what is installed, and whether the driver or the model encodes", add_json)
def _doctor(options: argparse.Namespace) -> int:
    facts = doctor.facts()
    show(options, facts, doctor.report(facts))
    return EXIT_OK
