"""The command line: ``tma-dlpack``, or ``python -m tma_dlpack``.

A command is one function. The decorator `@command` adds the command's row to the table of
commands::

    @command(
        "print the folder of the C and C++ headers",    # the line of the command in --help
        JSON,                                           # an option; see table.option
        lambda: (option("--box", "row-major"),),        # a function that returns options
        examples=("include",),                          # tests run them in tests/cli/examples
        status="0 printed; 2 wrong use",
    )
    def _include(options: argparse.Namespace) -> int:   # the command's name is `include`
        import tma_dlpack as tma                        # imported here, so that --help stays fast

        show(options, tma.get_include())                # write text or JSON to standard output
        return EXIT_OK

`maps.py` has the commands that make and show a map, and the options of these commands. `machine.py`
has the commands about this installation. Other folders of the package, such as `debug`, have their
commands in a file `commands.py`. A file `commands.py` uses only the names that `tma_dlpack.cli`
exports. `table.py` registers commands, and imports the files that define commands. `main.py` reads
the command line and prints errors. `output.py` has the options that many commands share.
`output.py` also writes results as text with colours, as JSON, or as HTML. If the name of an output
file is `-`, the output goes to standard output.

Results go to standard output, and remarks go to standard error. A command with
``runs_program=True`` runs a program: the words after ``--`` become `options.program`. Such a
command writes its report to standard error, or to the file of ``-o``. A wrong command line raises
`UsageError` with one sentence. Other errors are `TmaError`. `main` prints both kinds of errors. The
exit status is 0 if the input was accepted. The status is 1 if the input was refused or contains an
error. The status is 2 if the input could not be read.

A new command needs tests in tests/cli, and a sentence in the guide. The files that the command's
examples read belong in tests/cli/examples. If the tests, the sentence or a file is missing, the
test suite fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tma_dlpack.public import imported_later

if TYPE_CHECKING:
    from tma_dlpack.cli.main import program
    from tma_dlpack.cli.output import (
        JSON,
        STDOUT,
        as_json,
        attributes,
        failure,
        hex_lines,
        html,
        integer,
        out,
        show,
        target,
        to_file,
        write,
    )
    from tma_dlpack.cli.table import (
        EXIT_NOTHING,
        EXIT_OK,
        EXIT_REFUSED,
        FAILURES,
        HIDDEN,
        MACHINE,
        MAPS,
        UsageError,
        command,
        option,
    )


__all__ = [
    "EXIT_NOTHING",
    "EXIT_OK",
    "EXIT_REFUSED",
    "FAILURES",
    "HIDDEN",
    "JSON",
    "MACHINE",
    "MAPS",
    "STDOUT",
    "UsageError",
    "as_json",
    "attributes",
    "command",
    "failure",
    "hex_lines",
    "html",
    "integer",
    "option",
    "out",
    "program",
    "show",
    "target",
    "to_file",
    "write",
]
_LATER = {
    "tma_dlpack.cli.main": ("program",),
    "tma_dlpack.cli.output": (
        "JSON",
        "STDOUT",
        "as_json",
        "attributes",
        "failure",
        "hex_lines",
        "html",
        "integer",
        "out",
        "show",
        "target",
        "to_file",
        "write",
    ),
    "tma_dlpack.cli.table": (
        "EXIT_NOTHING",
        "EXIT_OK",
        "EXIT_REFUSED",
        "FAILURES",
        "HIDDEN",
        "MACHINE",
        "MAPS",
        "UsageError",
        "command",
        "option",
    ),
}
__getattr__ = imported_later(__name__, _LATER)
