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
in a `commands.py`, which `table.py` imports. `table.py` registers commands. `main.py` reads the
command line and prints errors. `output.py` has the options of many commands, and writes
results (``--json``, ``--html``, colours; `-` is standard output).

Results go to standard output and remarks to standard error. A command that runs a program
(``runs_program=True``: words after ``--`` are `options.program`) reports on standard error or to
``-o``. A wrong command line raises `UsageError` with one sentence; other errors are `TmaError`.
`main` prints both. Exit status: 0 accepted, 1 refused or found, 2 nothing could be read.

A new command needs files in tests/cli/examples for its examples, tests in tests/cli, and a sentence
in the guide; tests check that all three exist.
"""
