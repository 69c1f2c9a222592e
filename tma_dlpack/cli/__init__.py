"""The command line, `python -m tma_dlpack`.

`main.py` has a function for each command, below its options: it calls a public function and prints
the result. `common.py` has the options that commands share: it reads a tensor and a request from
them, and prints results as JSON. `doctor.py` is a command without a public function.

A new command: a function in `main.py`, marked ``@_command`` with its options (`common.show` obeys
`common.JSON`), and a test in tests/cli that compares the printed text. Errors are raised as
TmaError, which `main` prints; it exits with 2 for an argument that cannot be read, and
with 1 for a broken rule.
"""
