"""``python -m tma_dlpack``: the commands.

Exit status: 0 accepted, 1 refused, 2 nothing could be read or the command was used wrongly. With
``--json`` a command prints `plain` of its result instead of text.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli import demo, described, doctor, hexdump
from tma_dlpack.cli.explain import explain
from tma_dlpack.cli.trace import program
from tma_dlpack.make import build
from tma_dlpack.tables.coerce import counted
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError, Violation, refusal
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tables.targets import TARGETS
from tma_dlpack.tensor_map import text
from tma_dlpack.verification.suggestions import suggest_view

AddOptions = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]

EXIT_OK, EXIT_REFUSED, EXIT_NOTHING = 0, 1, 2
EXIT_STATUS = "exit status: 0 accepted; 1 refused; 2 nothing could be read, or wrong use"
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report it
MAX_DUMP_BYTES = 1 << 16  # read of a file; the longest text form of a map has about 2000


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


def add_json(verb: argparse.ArgumentParser) -> None:
    """Add ``--json``, which `show` obeys."""
    verb.add_argument("--json", action="store_true", help="print the result as JSON, not as text")


def show(options: argparse.Namespace, result: object, words: object = None) -> None:
    """Print a result as JSON where ``--json`` is given; else `words`, which may be the result."""
    if options.json:
        print(json.dumps(plain(result), indent=2))
    else:
        print(result if words is None else words)


def plain(value: object) -> object:
    """Return a value as JSON has it: a dict for an object, the name of a member, hex of bytes.

    An object with a method ``as_dict`` says itself what it holds; a dataclass holds its public
    fields.

    >>> plain(tma.TmaSwizzle.bytes128), plain((1, b"ab"))
    ('bytes128', [1, '6162'])
    """
    if hasattr(type(value), "as_dict"):
        return plain(value.as_dict())  # type: ignore[attr-defined]
    if isinstance(value, IntEnum):
        return value.name
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return {name: plain(entry) for name, entry in vars_of(value).items()}
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
    add_json(verb)


def _check(options: argparse.Namespace) -> int:
    kind, request = described.request(options)
    report = build.check_view(kind, described.view(options), request)
    words, fixed = str(report), report.fixed()
    if not report.ok and fixed is not None:
        words += "\n\nthis would be accepted:\n  "
        words += ", ".join(f"{name}={_written(value)}" for name, value in fixed.items())
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
    verb.add_argument("--figure", default="shared", choices=[*draw.FIGURES], help="default shared")
    verb.add_argument(
        "--coords",
        type=described.integers,
        help="coordinates of the tile, row-major, such as -4,0; default: the first tile",
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


def _suggest_options(verb: argparse.ArgumentParser) -> None:
    described.add_tensor_options(verb)
    verb.add_argument("--tile", required=True, type=described.integers, help="such as 128,64")
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
    print(found)
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


def _decode(options: argparse.Namespace) -> int:
    tensor_map = tma.TensorMap.from_bytes(_map_bytes(options.map), options.target)
    words = [str(tensor_map), *text.hex_lines(bytes(tensor_map))]
    show(options, _attributes(tensor_map), "\n".join(words))
    return EXIT_REFUSED if tensor_map.is_nothing else EXIT_OK


def _attributes(tensor_map: tma.TensorMap) -> dict[str, object]:
    """Return what a map holds: the driver's words innermost first, ours row-major, its bytes."""
    return {
        "target": tensor_map.target.name,
        "global_address": tensor_map.global_address,
        **vars_of(tensor_map.arguments),
        "shape": tensor_map.shape,
        "box_sizes": tensor_map.box_sizes,
        "elem_strides": tensor_map.elem_strides,
        "tile": text.tile_line(tensor_map),
        "remarks": text.remarks(tensor_map, tensor_map.advice),
        "bytes": bytes(tensor_map),
    }


def _map_bytes(word: str) -> bytes:
    """Read a pasted dump, or a file or standard input that has a dump or 128 raw bytes."""
    pasted = hexdump.parse(word)
    if pasted is None or len(pasted) != MAP_BYTES:
        content = _content(word)
        if content is None:
            found = f"{word[:60]!r}{'...' * (len(word) > 60)}, which is neither a dump nor a file"
        else:
            found = f"{'at least ' * (len(content) == MAX_DUMP_BYTES)}{len(content)} bytes"
            raw = len(content) == MAP_BYTES
            pasted = content if raw else hexdump.parse(content.decode("ascii", "replace"))
        if pasted is not None:
            found = counted(len(pasted), "byte")
        if pasted is None or len(pasted) != MAP_BYTES:
            fix = f"pass a dump: {hexdump.FORMS}"
            raise refusal("map", f"the map is {found}", "be 128 bytes", fix)
    return pasted


def _content(word: str) -> bytes | None:
    """Read at most `MAX_DUMP_BYTES` of a file, or of standard input; None if there is no file."""
    if word == "-":
        return sys.stdin.buffer.read(MAX_DUMP_BYTES)
    if not _is_file(Path(word)):
        return None
    with Path(word).open("rb") as file:
        return file.read(MAX_DUMP_BYTES)  # /dev/zero never ends


def _is_file(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False


def _verify_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-n", type=int, default=1000, help="random inputs per check; default 1000")
    verb.add_argument("--seed", type=int, default=0, help="seed of the random inputs; default 0")
    verb.add_argument("--device", type=int, default=0, help="index of the GPU; default 0")
    verb.add_argument("--out", metavar="FILE", help="write all cases and results to this file")
    verb.add_argument("--read", metavar="FILE", help="read such a file instead; needs no GPU")
    verb.add_argument("--target", help="compare what was read with this target; default: its own")


def _verify(options: argparse.Namespace) -> int:
    if options.read is not None:
        from tma_dlpack.verification import learning

        report = learning.Findings.read(options.read).against(options.target)
    else:
        report = tma.verify(options.n, options.seed, device_id=options.device, out=options.out)
    print(report)
    return EXIT_OK if report.ok else EXIT_REFUSED


def _rules_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("ids", nargs="*", metavar="ID", help="only these, such as BOX_IN_SHAPE")
    add_json(verb)


def _rules(options: argparse.Namespace) -> int:
    found = [rule for rule_id in options.ids for rule in tma.rules(rule_id)] or tma.rules()
    show(options, found, "\n\n".join(map(str, found)))
    return EXIT_OK


def _explain_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "file",
        metavar="FILE|-",
        help="the output of the program, or its whole log; - for standard input",
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
    facts = doctor.facts()
    show(options, facts, doctor.report(facts))
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
    (
        "suggest",
        "suggest boxes and swizzles for a tile and its reader, best first",
        _suggest_options,
        _suggest,
    ),
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
        add_json,
        _doctor,
    ),
)
