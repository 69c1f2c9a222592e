"""The commands `explain`, `trace`, `lint`, `postmortem` and `decode`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from operator import and_
from pathlib import Path
from typing import Any, NamedTuple

from tma_dlpack.debug.core import cli, coerce, refusals, targets, tma


@cli.command(
    "find the cause of a failed encode or launch in what was printed",
    cli.option(
        "words",
        "files that hold the output of programs, such as whole logs, also compressed by gzip or "
        "xz; or a symptom in words (error 715, my kernel hangs); - for standard input",
        nargs="+",
        metavar="FILE|-|WORDS",
    ),
    cli.target("the GPU that the map is for:"),
    cli.html("explanation"),
    cli.JSON,
    heading=cli.FAILURES,
    examples=(
        "explain build.log",
        "explain error 715",
        'explain "my kernel hangs"',
        "explain build.log --html explanation.html --json",
    ),
    status="0 the encodes that were read are right, or a failure is explained; 1 an encode is "
    "refused; 2 neither was read, or wrong use; of several files, the first of 1, 2, 0",
)
def _explain(options: argparse.Namespace) -> int:
    from tma_dlpack.debug.explain import explain

    found = [(name, explain(text, options.target)) for name, text in _texts(options.words)]
    _show_each(options, found)
    if any(one.reports and not one.ok for _, one in found):
        return cli.EXIT_REFUSED
    explained = all(one.reports or one.symptoms for _, one in found)
    return cli.EXIT_OK if explained else cli.EXIT_NOTHING


def _texts(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file.

    If no word is a file, the words are one text, which has an empty name.
    """
    from tma_dlpack.debug import foreign

    files = [word == foreign.STDIN or foreign.is_there(word) for word in words]
    paths = [_is_path(word) for word in words]
    # "my kernel hangs" is a sentence, even if a folder named "kernel" exists. So one of the words
    # must look like the path of an existing file.
    if len(words) > 1 and not any(map(and_, files, paths)):
        files = [False]
    if not any(files) and not all(paths):
        yield "", " ".join(words)
        return
    for word in words:
        content = foreign.content(word, refusals.MAX_LOG_BYTES, "FILE_LOG")
        # The 128 raw bytes of a map become hex digits, which `explain` reads as a dump.
        is_map = len(content) == targets.MAP_BYTES and (b"\0" in content or not content.isascii())
        yield word, content.hex() if is_map else content.decode("utf-8", "replace")


def _is_path(word: str) -> bool:
    """Return whether a word must be a path, because it has a slash or a suffix.

    >>> _is_path("logs/build"), _is_path("build.log"), _is_path("715"), _is_path("error 715")
    (True, True, False, False)
    """
    return len(word.split()) == 1 and ("/" in word or bool(Path(word).suffix))


def _show_each(options: argparse.Namespace, found: Sequence[tuple[str, Any]], **to: Any) -> None:
    """Show each file's result below the file's name; show a single result without a name."""
    if len(found) == 1:
        one = found[0][1]
        cli.show(options, one, page=one._repr_html_, **to)
        return
    words = "\n\n".join(f"{coerce.printable(name)}: {one}" for name, one in found)
    results = _Several([one for _, one in found])
    cli.show(options, results, words, lambda: _page(found), **to)


def _page(found: Sequence[tuple[str, Any]]) -> str:
    """Return the results as HTML. If there are several, each result is below its file's name."""
    from tma_dlpack.debug.core import cards

    names = [cards.bold(coerce.printable(name)) * (len(found) > 1) for name, _ in found]
    return "".join(name + one._repr_html_() for name, (_, one) in zip(names, found, strict=True))


class _Several(NamedTuple):
    """The results of several files, which `to_json` writes as one JSON array."""

    all: list[Any]

    def to_json(self) -> str:
        return "[" + ",\n".join(cli.as_json(result).rstrip() for result in self.all) + "]"


@cli.command(
    "run any program and list every tensor map that it makes",
    cli.html("report"),
    cli.out("write the report to FILE, not to standard error"),
    cli.option("--json", "report what was recorded as JSON, not as text", action="store_true"),
    cli.option("unmarked", cli.HIDDEN, nargs=argparse.REMAINDER, default=[]),
    heading=cli.FAILURES,
    examples=(
        "trace -- python train.py",
        "trace --json -o trace.json -- python train.py --steps 2",
    ),
    status="the program's; 128 + n if signal n ended it; 127 if there is no such program",
    more="The report goes to standard error; the program's output is untouched.",
    runs_program=True,
)
def _trace(options: argparse.Namespace) -> int:
    from tma_dlpack.debug import programs, trace

    words = _program_of(options)
    if shutil.which(words[0]) is None:
        cli.failure(sys.stderr, options.json, f"{words[0]}: there is no such program")
        return programs.NOT_FOUND
    # With --json and without -o, the JSON goes to standard error, so no other text may go there.
    status, found = trace.run(words, talks=options.out is not None or not options.json)
    cli.show(options, found, page=found.html, to=options.out or sys.stderr)
    return status


def _program_of(options: argparse.Namespace) -> list[str]:
    """Return the program to trace and its arguments; the ``--`` before it may be omitted."""
    unmarked: list[str] = options.unmarked
    if unmarked and options.program and shutil.which(unmarked[0]) is None:
        raise cli.UsageError(
            f"{unmarked[0]} stands before --, and is no program; -o FILE names the file of the "
            "report, and --json is a switch"
        )
    # If the program stands before the --, the -- is one of the program's arguments.
    words = [*unmarked, *["--"] * bool(unmarked and options.program), *options.program]
    if not words:
        example = f"{cli.program()} trace -- python train.py"
        raise cli.UsageError(f"trace needs a program to run, such as {example}")
    return words


@cli.command(
    "find mistakes around TMA in PTX, in a .cu or in a binary; needs no GPU",
    cli.option("files", "PTX; a .cu (by nvcc); an object, library or wheel (by cuobjdump)",
               nargs="+", metavar="FILE"),
    cli.option("--strict", "exit with 1 on warnings too, and on what was not followed in a kernel",
               action="store_true"),
    cli.option("--notes", "show findings that are harmless on measured hardware",
               action="store_true"),
    cli.option("--map", "a trace's JSON: compare copies with the maps of its launches",
               metavar="FILE"),
    cli.option("--sarif", "print SARIF 2.1.0, for code hosts", action="store_true"),
    cli.html("report"),
    cli.JSON,
    heading=cli.FAILURES,
    examples=(
        "lint kernel.ptx",
        "lint kernel.ptx --strict --json",
        "lint kernel.ptx --sarif",
        "lint kernel.ptx --html report.html",
        "lint kernel.ptx --map trace.json",
    ),
    status=
        "0 no error (with --strict: no warning either); 1 found; 2 a file was not read, or wrong "
        "use",
    more="Words after -- are flags for nvcc: lint kernel.cu -- -arch=sm_100a -Iinclude.",
    after_dashes="NVCC FLAGS...",
)  # fmt: skip
def _lint(options: argparse.Namespace) -> int:
    from tma_dlpack.debug import lint

    reports, failures = lint.run(options.files, options.map, options.program, options.notes)
    is_page_alone = options.html == cli.STDOUT
    if options.sarif and is_page_alone:
        raise cli.UsageError(
            "--sarif and --html - both write to standard output; name a file for one"
        )
    if options.html is not None:
        page = _page([(report.file, report) for report in reports])
        cli.write(options.html, tma.draw.page("tma_dlpack lint", [page]))
    if options.json or options.sarif:
        cli.write(cli.STDOUT, lint.printed(reports, failures, sarif=options.sarif) + "\n")
    else:
        for report in () if is_page_alone else reports:
            head = f"{report.file}: " if len(options.files) > 1 else ""
            cli.write(cli.STDOUT, f"{head}{report}\n")
        for failure in failures:
            cli.failure(sys.stderr, False, failure)
    # With --strict, warnings are failures, and so are instructions that the analysis skipped.
    strict = options.strict and any(
        any(finding.severity != lint.report.NOTE for finding in report.findings)
        or any(one.skipped for one in report.examined)
        for report in reports
    )
    if strict or not all(report.ok for report in reports):
        return cli.EXIT_REFUSED
    return cli.EXIT_NOTHING if failures or any(report.notes for report in reports) else cli.EXIT_OK


@cli.command(
    "explain a GPU core dump: why a TMA program died, or where it hangs",
    cli.option(
        "core",
        "dumps, also compressed by xz or gzip; - for standard input",
        nargs="*",
        metavar="CORE|-",
    ),
    cli.option("--after", "with a program: dump it after this many seconds", type=float,
               metavar="SECONDS"),
    cli.option("--pid", "dump a live process, by cuda-gdb", type=int, metavar="PID"),
    cli.to_file("--keep", "keep the dump"),
    cli.option("--global", "let the dump hold global memory, and the maps in it",
               action="store_true"),
    cli.html("report"),
    cli.out("write the report to FILE"),
    cli.JSON,
    heading=cli.FAILURES,
    examples=(
        "postmortem dead.core",
        "postmortem dead.core --json --html dead.html",
        "postmortem --after 5 -o report.txt -- python train.py",
    ),
    status="0 nothing wrong found; 1 a fault or a hang is found; 2 no dump was read, or wrong use",
    more="With a program: dumps are switched on in it, and one is read after a fault, after "
    "SECONDS, or at Ctrl-C. Its output is untouched; the report goes to standard error, or to -o.",
    after_dashes="PROGRAM ARGS...",
)  # fmt: skip
def _postmortem(options: argparse.Namespace) -> int:
    from tma_dlpack.debug import postmortem as post
    from tma_dlpack.debug.postmortem import program

    sources = [bool(options.core), options.pid is not None, bool(options.program)]
    if sum(sources) != 1:
        raise cli.UsageError(
            "postmortem needs one of: a dump, --pid PID, or -- PROGRAM; such as postmortem "
            "core.1234"
        )
    # "global" is a keyword of Python, so `options.global` would be a syntax error.
    kept = {"keep": options.keep, "with_global": vars(options)["global"]}
    if options.core:
        return _dumps(options)
    if not options.program:
        try:
            found = program.of_process(options.pid, post.read, **kept)
        except tma.TmaUnsupportedError as error:  # nothing was read, so the status is 2, not 1
            cli.failure(sys.stderr, options.json, str(error))
            return cli.EXIT_NOTHING
    else:
        ended = program.run(options.program, post.read, after=options.after, **kept)
        for note in ended.notes:
            cli.failure(sys.stderr, options.json, note)
        if ended.found is None:
            whole = "whole " * bool(ended.notes)
            why = f"the program ended with status {ended.status}, and no {whole}GPU core dump "
            why += "was made"
            # The JSON has the keys of `PostMortem.to_json`, but no findings.
            names = ("faults", "barriers", "maps", "kernels", "notes")
            empty = json.dumps({name: [] for name in names} | {"target": None})
            cli.write(options.out or sys.stderr, f"{empty if options.json else why}\n")
            return cli.EXIT_NOTHING if ended.status or ended.notes else cli.EXIT_OK
        found = ended.found
    to = options.out or (sys.stderr if options.program else cli.STDOUT)
    cli.show(options, found, page=found._repr_html_, to=to)
    return cli.EXIT_OK if found.ok else cli.EXIT_REFUSED


def _dumps(options: argparse.Namespace) -> int:
    """Explain each dump that can be read, and report an error for each dump that cannot be read."""
    from tma_dlpack.debug import postmortem as post

    found: list[tuple[str, post.PostMortem]] = []
    unread = False
    for core in options.core:
        try:
            found.append((core, post.postmortem(core)))
        except (tma.TmaError, OSError) as error:
            # If this is the only dump, raise the error, which `main` prints.
            if len(options.core) == 1 and not isinstance(error, tma.TmaUnsupportedError):
                raise
            unread = True
            words = str(error) if isinstance(error, tma.TmaError) else f"{core}: {error.strerror}"
            cli.failure(sys.stderr, options.json, words)
    if found:
        _show_each(options, found, to=options.out or cli.STDOUT)
    if not all(one.ok for _, one in found):
        return cli.EXIT_REFUSED
    return cli.EXIT_NOTHING if unread else cli.EXIT_OK


@cli.command(
    "print the fields of the 128 bytes of a map",
    cli.option(
        "map",
        "128 bytes as a debugger, xxd or a C source shows them; or a file of these or of 128 "
        "raw bytes; - for standard input",
        metavar="DUMP|FILE|-",
    ),
    cli.target("the GPU that the map was made for:"),
    cli.JSON,
    heading=cli.MAPS,
    examples=("decode map.bin", "decode gdb.txt --json"),
    status="0 a map; 1 the bytes are no map; 2 nothing could be read, or wrong use",
)
def _decode(options: argparse.Namespace) -> int:
    from tma_dlpack.debug import foreign

    tensor_map = tma.TensorMap.from_bytes(foreign.map_bytes(options.map), options.target)
    words = [str(tensor_map), *cli.hex_lines(bytes(tensor_map))]
    cli.show(options, cli.attributes(tensor_map), "\n".join(words))
    return cli.EXIT_REFUSED if tensor_map.is_zero else cli.EXIT_OK
