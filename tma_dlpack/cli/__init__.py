"""The command line: ``tma-dlpack``, or ``python -m tma_dlpack``.

A command is one function below its row of the table::

    @command(
        "print the folder of the C and C++ headers",    # one line of --help
        JSON,                                           # its options, see table.option
        lambda: (option("--box", "row-major"),),        # or a function that returns some
        examples=("include",),                          # a test runs each, in tests/cli/examples
        status="0 printed; 2 wrong use",
    )
    def _include(options: argparse.Namespace) -> int:   # its name is `include`
        import tma_dlpack as tma                        # imported when it runs: --help stays fast

        show(options, tma.get_include())                # text or JSON, to standard output
        return EXIT_OK

`maps.py` has the commands that make and show a map, and their options; `machine.py` has the
commands about this installation. Other folders of the package, such as `debug`, have their commands
in a `commands.py`. `table.py` imports these files, and they use the names that this package
exports. `table.py` registers commands. `main.py` reads the command line and prints errors.
`output.py` has the options of many commands, and writes results (``--json``, ``--html``, colours;
`-` is standard output).

Results go to standard output and remarks to standard error. A command that runs a program
(``runs_program=True``: words after ``--`` are `options.program`) reports on standard error or to
``-o``. A wrong command line raises `UsageError` with one sentence; other errors are `TmaError`.
`main` prints both. Exit status: 0 accepted, 1 refused or found, 2 nothing could be read.

A new command needs files in tests/cli/examples for its examples, tests in tests/cli, and a sentence
in the guide; tests check that all three exist.
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
