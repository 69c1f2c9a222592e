"""What reads other people's programs: their logs, their calls, their dead kernels, their PTX.

`explain/` reads printed arguments and symptoms, `trace/` lists the maps of a running program;
`hexdump.py` reads the 128 bytes of a map in the forms that tools print. Each has a docstring of its
own; the commands stand in `cli/main.py`.
"""
