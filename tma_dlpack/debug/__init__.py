"""What reads other people's programs: their logs, their calls, their dead kernels, their PTX.

`explain/` reads printed arguments and symptoms, `trace/` lists the maps of a running program,
`postmortem/` reads the core dump of a dead kernel, `lint/` finds mistakes in PTX; `hexdump.py`
reads the 128 bytes of a map in the forms that tools print, `names.py` demangles. Each has a
docstring of its own; the commands stand in `cli/failures.py`.
"""
