"""The first CUDA release that compiles each verb: ``python tests/include/compilers.py [FOLDER]``.

FOLDER holds NVRTC's wheels from PyPI, unpacked or not, one folder for each release; without it they
are downloaded. Each verb's example and each kernel of the repository is compiled by each release,
with and without TMA_DLPACK_CHECK. The page notebooks/reference/compilers.md is written from what
compiles; with ``--check`` it is compared instead.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import compile_matrix
from compile_matrix import ROOT

PAGE = ROOT / "notebooks" / "reference" / "compilers.md"
#: NVRTC's packages on PyPI, the oldest release that is supported first.
RELEASES = {
    "12.4": "nvidia-cuda-nvrtc-cu12==12.4.127",
    "12.6": "nvidia-cuda-nvrtc-cu12==12.6.85",
    "12.8": "nvidia-cuda-nvrtc-cu12==12.8.93",
    "12.9": "nvidia-cuda-nvrtc-cu12==12.9.86",
    "13.0": "nvidia-cuda-nvrtc==13.0.88",
}
#: Target -> the first release that supports it.
TARGETS = {"sm_90a": "12.4", "sm_100a": "12.8", "sm_120a": "12.8"}
#: Kernel of the repository -> its target.
KERNELS = {
    "extension/double_tiles.cu": "sm_90a",
    "hopper_gemm.cu": "sm_90a",
    "grouped_gemm.cu": "sm_90a",
    "hopper_conv.cu": "sm_90a",
    "gemm_ladder.cu": "sm_90a",
    "blackwell_gemm.cu": "sm_100a",
}
DELETED = re.compile(r'error: function "tma_dlpack::v\d+_\d+::(?:unchecked::)?(\w+)')
HEAD = """# Compilers

`tma_dlpack.h` needs C++17 and CUDA 12.4 or later. The first table lists, for each verb (function of
the header) and target, the first release of CUDA that compiles the verb, with and without
`TMA_DLPACK_CHECK`. An older release prints an error, which names the release that the verb needs.
`python tests/include/compilers.py` compiles every verb's example with NVRTC
{releases}, and writes this page.

- **nvcc** 13.0 compiles every verb for every target (`python tests/include/compile_matrix.py`).
- **clang** 20 and later compile every verb except those of the tensor cores (wgmma, tcgen05),
  because the inline assembly of clang has no constraint "C". We tried clang 22, and assembled its
  PTX with ptxas of CUDA 13.0. clang releases before 20 ignore `__grid_constant__`, so the map is in
  local memory, and the copy ends with error 700. So the header refuses these releases by `#error`.
  For host code, any C++17 compiler works.
- **NVRTC before 12.9** has no `__builtin_FILE`, so a kernel with `TMA_DLPACK_CHECK` prints
  `file ?:0` instead of the file and the line.
- **NVRTC 12.8 and wgmma**: write `float d[128] = {{}};`. If no statement initialises the
  accumulators, ptxas serializes the wgmma (C7515).
"""


def release_of(number: str) -> tuple[int, ...]:
    """Return a release in a form that sorts: "12.10" is after "12.9"."""
    return tuple(map(int, number.split(".")))


def library_of(folder: Path) -> Path:
    """Return the NVRTC of a release's folder; wheels there are unpacked."""
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "site")
    (found,) = (p for p in folder.rglob("libnvrtc.so.1?") if "alt" not in p.name)
    return found


def downloaded(folder: Path) -> Path:
    """Download NVRTC's wheels, one folder for each release."""
    for release, requirement in RELEASES.items():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        subprocess.run([*command, str(folder / release), requirement], check=True)
    return folder


def _compile(library: str, source: str, options: list[str], answer: Any) -> None:
    for builtins in Path(library).parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))  # NVRTC's own search does not find this folder
    nvrtc, program = ctypes.CDLL(library), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    result = nvrtc.nvrtcCompileProgram(program, len(options), encoded)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    answer.send((result == 0, log.value.decode()))


def compiled(library: Path, source: str, target: str, checked: bool) -> tuple[bool, str]:
    """Compile with one NVRTC, in a separate process; return (success, output)."""
    options = [f"--gpu-architecture={target}", "--std=c++17", f"-I{compile_matrix.HEADER.parent}"]
    options += [f"-I{ROOT / 'notebooks'}", f"-DTMA_DLPACK_CHECK={int(checked)}"]
    ours, theirs = multiprocessing.Pipe()
    arguments = (str(library), source, options, theirs)
    process = multiprocessing.get_context("spawn").Process(target=_compile, args=arguments)
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def verbs_of(library: Path, target: str, checked: bool) -> set[str]:
    """Return the verbs that compile; raise if a compiler reports any error but "deleted"."""
    generator = compile_matrix.generator()
    kept = [v for v in generator.verbs(compile_matrix.text_of_headers()) if v.targets != "host"]
    while True:
        source = "\n".join([compile_matrix.NAMES, *map(compile_matrix.kernel, kept)])
        is_compiled, log = compiled(library, source, target, checked)
        if is_compiled:
            return {verb.name for verb in kept}
        deleted = {*DELETED.findall(log)} & {verb.name for verb in kept}
        assert deleted, log
        kept = [verb for verb in kept if verb.name not in deleted]


def found(folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the first release of each verb by target, and of each kernel."""
    verbs: dict[str, dict[str, str]] = {target: {} for target in TARGETS}
    kernels: dict[str, str] = {}
    releases = sorted((p.name for p in folder.iterdir() if p.is_dir()), key=release_of)
    for release in releases:
        library = library_of(folder / release)
        for target, first in TARGETS.items():
            if release_of(release) < release_of(first):
                continue
            plain, checked = (verbs_of(library, target, check) for check in (False, True))
            assert plain == checked, (release, target, plain ^ checked)
            for name in plain:
                verbs[target].setdefault(name, release)
        for name, target in KERNELS.items():
            if release_of(release) < release_of(TARGETS[target]):
                continue
            source = (ROOT / "notebooks" / name).read_text("utf-8")
            answers = [compiled(library, source, target, checked) for checked in (False, True)]
            is_serialized = "serialized" in answers[0][1]
            assert not is_serialized, (release, name, answers[0][1])
            if all(is_compiled for is_compiled, _ in answers):
                kernels.setdefault(name, release)
    return verbs, kernels


def page(releases: list[str], verbs: dict[str, dict[str, str]], kernels: dict[str, str]) -> str:
    """Return the page. All verbs that a target's first release compiles are in one row."""
    lines = [HEAD.format(releases=", ".join(releases)), "| verb | " + " | ".join(TARGETS) + " |"]
    lines.append("|---|" + "---|" * len(TARGETS))
    lines.append(
        "| every verb that the target has, except those below | "
        + " | ".join(TARGETS.values())
        + " |"
    )
    header = compile_matrix.text_of_headers()
    links = compile_matrix.generator().links(header)
    names = [v.name for v in compile_matrix.generator().verbs(header)]
    for name in names:
        row = {t: verbs[t].get(name, "-") for t in TARGETS}
        if any(row[t] not in ("-", TARGETS[t]) for t in TARGETS):
            lines.append(f"| [`{name}`]({links[name]}) | " + " | ".join(row.values()) + " |")
    lines += ["", "| kernel | target | CUDA |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {target} | {kernels.get(name, 'none')} |" for name, target in KERNELS.items()
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with the existing page; return 1 if the pages differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    temporary = Path(tempfile.mkdtemp())
    try:
        folder = given.folder or downloaded(temporary)
        releases = sorted((p.name for p in folder.iterdir() if p.is_dir()), key=release_of)
        text = page(releases, *found(folder))
    finally:
        shutil.rmtree(temporary)
    if given.check:
        is_same = PAGE.read_text("utf-8") == text
        print("the page is what the compilers do" if is_same else f"another page:\n{text}")
        return int(not is_same)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
