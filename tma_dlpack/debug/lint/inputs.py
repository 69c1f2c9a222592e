"""From what a user has to PTX: text, a file, a .cu by nvcc, a cubin or library by cuobjdump."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tma_dlpack.debug import programs
from tma_dlpack.include import get_include
from tma_dlpack.tables.errors import TmaUnsupportedError, argument_error
from tma_dlpack.tables.refusals import MAX_PTX_BYTES, REFUSALS

_PTX = REFUSALS["FILE_PTX"]
_TIMEOUT_S = 600
_CUDA = (".cu", ".cuh", ".cpp", ".cc", ".cxx")
#: The first bytes of ELF files, fat binaries, and archives.
_BINARY = (b"\x7fELF", b"\x50\xed\x55\xba", b"!<arch>")


@dataclass(frozen=True, slots=True)
class Input:
    """PTX, and where it is from."""

    text: str
    name: str = ""
    folder: Path | None = None


def read(source: str | os.PathLike[str], nvcc_flags: Sequence[str]) -> Input:
    """Return the PTX of a source, or refuse it in one sentence."""
    if isinstance(source, str) and ("\n" in source or ".version" in source or not source.strip()):
        return Input(_checked(source.encode("utf-8", "replace"), "the text"))
    if not (isinstance(source, str) or hasattr(source, "__fspath__")):
        fix = "pass the text of the PTX, or a path"
        raise argument_error(
            "source", f"source is a {type(source).__name__}", "be PTX or a path", fix
        )
    path = Path(source)
    if path.suffix in _CUDA and path.is_file():
        text = _by_nvcc(path, nvcc_flags)
        return Input(_checked(text, f"what nvcc made of {path}"), str(path), path.parent)
    _check_size(path.stat().st_size, str(path))
    content = path.read_bytes()
    if content.startswith(_BINARY):
        content = _by_cuobjdump(path)
    return Input(_checked(content, str(path)), str(path), path.parent)


def _checked(content: bytes, name: str) -> str:
    """Return the text if it is PTX."""
    _check_size(len(content), name)
    if not content.strip():
        raise _PTX.error("source", f"{name} is empty")
    if b"\0" in content.rstrip(b"\0"):
        raise _PTX.error("source", f"{name} is binary, and no ELF or fat binary")
    if b".version" not in content and b".target" not in content:
        raise _PTX.error("source", f"{name} is other text")
    return content.decode("utf-8", "replace")


def _check_size(size_bytes: int, name: str) -> None:
    if size_bytes > MAX_PTX_BYTES:
        fix = "lint the PTX of one source file at a time"
        raise _PTX.error("source", f"{name} has {size_bytes >> 20} MiB", fix=fix)


def _by_nvcc(path: Path, flags: Sequence[str]) -> bytes:
    """Compile to PTX with line numbers; our header is found, after the folders of the flags."""
    has_arch = any(f.startswith(("-arch", "--gpu-a", "-gencode", "--gencode")) for f in flags)
    arch = [] if has_arch else ["-arch=sm_90a"]
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_lint_") as folder:
        out = Path(folder) / "kernel.ptx"
        words = ["-ptx", "-lineinfo", *arch, *flags, f"-I{get_include()}", "-o", str(out)]
        _answer(
            "nvcc", [*words, str(path.resolve())], "its PTX (nvcc -ptx -lineinfo) made elsewhere"
        )
        if not out.is_file():
            raise TmaUnsupportedError(f"nvcc wrote no PTX; its flags were {' '.join(flags)}")
        return out.read_bytes()


def _by_cuobjdump(path: Path) -> bytes:
    """Return the PTX that a binary holds."""
    said = _answer("cuobjdump", ["--dump-ptx", str(path)], "the PTX itself (nvcc -ptx -lineinfo)")
    lines = said.splitlines()
    at = next((n for n, line in enumerate(lines) if line.lstrip().startswith(".version")), None)
    if at is None:
        fix = "build it with -gencode arch=compute_90a,code=compute_90a, or lint the PTX itself"
        raise _PTX.error("source", f"{path} holds machine code and no PTX", fix=fix)
    return "\n".join(lines[at:]).encode()


def _answer(name: str, words: Sequence[str], instead: str) -> str:
    """Return what a tool of CUDA prints."""
    tool = programs.tool(name)
    if tool is None:
        fix = f"install the CUDA toolkit, or lint {instead}"
        raise TmaUnsupportedError(f"{name} was not found: {fix}")
    done = programs.answer([tool, *words], _TIMEOUT_S)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-4:]
        raise TmaUnsupportedError(f"{name} failed: {' | '.join(lines) or 'no message'}")
    return done.stdout
