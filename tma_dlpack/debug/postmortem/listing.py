"""Machine code around an instruction, as nvdisasm prints it, where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tma_dlpack.debug.postmortem.dump import Function
from tma_dlpack.debug.postmortem.sass import INSTRUCTION_BYTES

_BEFORE, _AFTER = 4, 2  # instructions
_SECONDS = 10
_LINE = re.compile(r"/\*([0-9a-f]+)\*/\s+(\S.*?)\s*;")


@cache
def disassembler() -> str | None:
    """Return the path of nvdisasm: of the path, or of the toolkit."""
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")


def listing(function: Function, pc: int, target: str) -> tuple[str, ...]:
    """Return the instructions around an address, that one marked; empty without nvdisasm."""
    program = disassembler()
    if program is None:
        return ()
    place = (pc - function.start) // INSTRUCTION_BYTES
    first = max(0, place - _BEFORE)
    code = function.code[first : place + 1 + _AFTER].tobytes()
    base = hex(first * INSTRUCTION_BYTES)
    name = target.upper().replace("_", "")
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_core_") as folder:
        path = Path(folder) / "code"
        path.write_bytes(code)
        words = [program, "--binary", f"{name}a", "--base-address", base, str(path)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return ()
    found = [(int(at, 16), text) for at, text in _LINE.findall(done.stdout)]
    here = place * INSTRUCTION_BYTES
    return tuple(f"{'>' if at == here else ' '} {at:#06x}  {text}" for at, text in found)
