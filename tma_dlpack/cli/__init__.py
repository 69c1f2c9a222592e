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

`maps.py` has the commands that make and show a map, `machine.py` those about this installation; a
room with commands of its own, such as `debug`, has them in its `commands.py`, which `table.py`
finds. `table.py` registers, `main.py` reads the command line and words its errors, `output.py`
writes (`-` is standard output, ``--json``, ``--html``, colours), `common.py` has the options that
describe a tensor and a request.

Results go to standard output, remarks to standard error; a command that runs a program
(``runs_program=True``: words after ``--`` are `options.program`) reports on standard error or to
``-o``. A wrong command line raises `UsageError` with one sentence, anything else a TmaError; `main`
prints both. Exit status: 0 accepted, 1 refused or found, 2 nothing could be read.

A new command needs a file of tests/cli/examples for its examples, tests in tests/cli, and a
sentence in the guide; tests ask for all three.
"""
