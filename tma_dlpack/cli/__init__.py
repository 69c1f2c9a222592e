"""The command line, `python -m tma_dlpack`, and `explain`.

`main.py` has the parser and one function per command; a command only parses its options, calls a
public function and prints the result. `demo.py` and `doctor.py` are the two commands without a
public function; `hexdump.py` reads the 128 bytes in the forms that tools print. `explain/` reads
printed arguments, see there.

May import: everything. Imported by: `__main__.py`, and the package itself (`explain`).

A new command: a sub-parser in `main._parser`, its function, and a test in tests/cli that compares
the printed text. Errors are raised as TmaError: `main` prints them and exits with 1.
"""
