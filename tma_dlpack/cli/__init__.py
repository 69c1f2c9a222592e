"""The command line, `python -m tma_dlpack`, and `explain` and `trace`.

`main.py` has two functions for each command: one adds its options, the other calls a public
function and prints the result. `described.py` reads a tensor and a request from options.
`doctor.py` is a command without a public function; `hexdump.py` reads the 128 bytes in the forms
that tools print, `output.py` prints results as JSON. `explain/` reads printed arguments, `trace/`
lists the maps of a running program, see there.

A new command: its functions in `main.py`, marked ``@_command`` (`output.add_json` adds ``--json``,
and `output.show` obeys it), and a test in tests/cli that compares the printed text. Errors are
raised as TmaError, which `main` prints; it exits with 2 for an argument that cannot be read, and
with 1 for a broken rule.
"""
