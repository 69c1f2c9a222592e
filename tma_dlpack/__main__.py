"""``python -m tma_dlpack``."""

import sys

from tma_dlpack.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
