"""The command line: `python -m tma_dlpack`."""
