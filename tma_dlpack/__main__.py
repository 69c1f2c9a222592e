"""The command ``python -m tma_dlpack``, which is the same as ``tma-dlpack``."""

import sys

from tma_dlpack.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
