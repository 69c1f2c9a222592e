"""Compile the explorer's C core to WebAssembly: python .packaging/page_core.py [FILE].

The script writes ``tma_dlpack/native/page.wasm`` and ``page.json``. ``page.json`` contains the hash
of the sources and the version of the compiler (ziglang from PyPI). Both files are checked in, so no
build of the package needs a compiler for WebAssembly. tests/explorer/test_page_core.py compares
the files with the sources.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "tma_dlpack"
WASM, ORIGIN = PACKAGE / "native" / "page.wasm", PACKAGE / "native" / "page.json"
SOURCES = (
    "native/page.c",
    "native/freestanding/string.h",
    "include/tma_dlpack_make.h",
    "include/tma_dlpack_tables.h",
)
OPTIONS = (
    *("-target", "wasm32-freestanding", "-std=c11", "-Os", "-g0", "-nostdlib"),
    *("-Inative/freestanding", "-Wl,--no-entry", "-Wl,--strip-all"),
)


def sources_hash() -> str:
    """Return one hash of the compiler's options and the sources together."""
    hashed = hashlib.sha256(" ".join(OPTIONS).encode())
    for name in SOURCES:
        hashed.update((PACKAGE / name).read_bytes())
    return hashed.hexdigest()


def compile_to(path: Path) -> None:
    """Compile the C core, and write the WebAssembly module to a file."""
    command = [sys.executable, "-m", "ziglang", "cc", *OPTIONS, "-o", str(path), "native/page.c"]
    subprocess.run(command, cwd=PACKAGE, check=True)
    path.chmod(0o644)


if __name__ == "__main__":
    compile_to(Path(sys.argv[1]) if sys.argv[1:] else WASM)
    if not sys.argv[1:]:
        origin = {"sources": sources_hash(), "ziglang": version("ziglang")}
        ORIGIN.write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {WASM} ({WASM.stat().st_size} bytes) and {ORIGIN}")
