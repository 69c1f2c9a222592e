"""``python -m tma_dlpack``: the commands."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli import demo, described, doctor, hexdump
from tma_dlpack.cli.explain import explain
from tma_dlpack.cli.trace import program
from tma_dlpack.make import build
from tma_dlpack.tables.errors import TmaError, refusal
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tensor_map import text

AddOptions = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]

EXIT_OK, EXIT_REFUSED = 0, 1
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it
MAX_DUMP_BYTES = 1 << 16  # read of a file; the longest text form of a map has about 2000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status: 1 where something was refused, else 0.

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
        return EXIT_REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tma_dlpack", description=tma.__doc__)
    verbs = parser.add_subparsers(required=True, metavar="verb")
    for name, about, add_options, run in VERBS:
        verb = verbs.add_parser(name, help=about)
        add_options(verb)
        verb.set_defaults(run=run)
    return parser


def _no_options(verb: argparse.ArgumentParser) -> None:
    """Take no options."""


def _file(word: str) -> Path:
    if not word:
        raise argparse.ArgumentTypeError("the name of the file is empty")
    return Path(word)


def _demo(options: argparse.Namespace) -> int:
    demo.main()
    return EXIT_OK


def _check_options(verb: argparse.ArgumentParser) -> None:
    described.add_options(verb)
    verb.add_argument("--html", type=_file, metavar="FILE", help="also write the report as HTML")


def _check(options: argparse.Namespace) -> int:
    kind, request = described.request(options)
    report = build.check_view(kind, described.view(options), request)
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


def _draw_options(verb: argparse.ArgumentParser) -> None:
    described.add_options(verb)
    verb.add_argument("--figure", default="shared", choices=[*draw.FIGURES], help="default shared")
    verb.add_argument(
        "--coords",
        type=described.integers,
        help="coordinates of the tile, row-major; default: the first tile",
    )
    verb.add_argument(
        "--out", type=_file, metavar="FILE", help="write SVG to FILE instead of printing text"
    )


def _draw(options: argparse.Namespace) -> int:
    kind, request = described.request(options)
    tensor_map = build.make_view(kind, described.view(options), request)
    figure = draw.figure(tensor_map, options.figure, options.coords)
    if options.out:
        options.out.write_text(figure.svg(), encoding="utf-8")
    else:
        print(figure)
    return EXIT_OK


def _decode_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "map", metavar="DUMP|FILE", help=f"{hexdump.FORMS}; or a file of these or of 128 raw bytes"
    )
    verb.add_argument(
        "--target", default="sm_90", help="the GPU that the map was made for; default sm_90"
    )


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


def _verify_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-n", type=int, default=1000, help="random inputs per check; default 1000")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs; default 0")
    verb.add_argument("--device", type=int, default=0, help="index of the GPU; default 0")


def _verify(options: argparse.Namespace) -> int:
    report = tma.verify(options.n, options.seed, device_id=options.device)
    print(report)
    return EXIT_OK if report.ok else EXIT_REFUSED


def _rules_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("ids", nargs="*", metavar="ID", help="only these, such as BOX_IN_SHAPE")


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


def _explain_options(verb: argparse.ArgumentParser) -> None:
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


def _trace_options(verb: argparse.ArgumentParser) -> None:
    verb.usage = "python -m tma_dlpack trace [--html FILE] [--json FILE] -- PROGRAM ARGS..."
    verb.add_argument("--html", type=_file, metavar="FILE", help="also write the report as HTML")
    verb.add_argument("--json", type=_file, metavar="FILE", help="also write all that was recorded")
    verb.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")


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


def _doctor(options: argparse.Namespace) -> int:
    print(doctor.report())
    return EXIT_OK


#: Name, what it does, the function that adds its options, the function that runs it.
VERBS: tuple[tuple[str, str, AddOptions, Run], ...] = (
    ("demo", "make a map, copy a tile, see a refusal; needs no GPU", _no_options, _demo),
    (
        "check",
        "check the arguments for a tensor given by shape and dtype",
        _check_options,
        _check,
    ),
    ("draw", "draw the map or a tile, as SVG or as text", _draw_options, _draw),
    ("decode", "print the fields of the 128 bytes of a map", _decode_options, _decode),
    (
        "verify",
        "compare this package with the driver and GPU of this machine",
        _verify_options,
        _verify,
    ),
    (
        "rules",
        "list every rule: what it requires, why, and who refuses",
        _rules_options,
        _rules,
    ),
    (
        "explain",
        "find what is wrong with the printed arguments of a failed encode",
        _explain_options,
        _explain,
    ),
    (
        "trace",
        "run any program and list every tensor map that it makes",
        _trace_options,
        _trace,
    ),
    (
        "doctor",
        "list what is installed, and whether the driver or the model encodes",
        _no_options,
        _doctor,
    ),
)
