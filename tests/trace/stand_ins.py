"""Stand-ins for the tests of trace: libcuda, libcupti and a program, compiled from C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import tma_dlpack as tma
from tma_dlpack.debug.trace import CUPTI

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")


def compile_c(source: str, output: Path, *flags: str) -> None:
    """Compile one file of this folder, to a shared object if the output's name is that of one."""
    shared = ("-shared", "-fPIC") if ".so" in output.name else ()
    flags = ("-std=gnu11", "-O1", "-w", *shared, f"-I{tma.get_include()}", *flags)
    command = [COMPILER, *flags, HERE / source, "-o", output, "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=120)


def build(folder: Path) -> None:
    """Compile the stand-ins and the program into a folder."""
    compile_c("stand_in_driver.c", folder / "libcuda.so.1")
    compile_c("stand_in_cupti.c", folder / "libcupti.so.13")
    compile_c("program.c", folder / "program")


def environment(folder: Path) -> dict[str, str]:
    """Return environment variables with which the loader finds this folder's libraries first."""
    others = os.environ.get("LD_LIBRARY_PATH")
    path = str(folder) if others is None else f"{folder}{os.pathsep}{others}"
    return {"LD_LIBRARY_PATH": path, CUPTI: str(folder / "libcupti.so.13")}
