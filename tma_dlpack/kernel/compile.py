"""Compile CUDA C++ to PTX with NVRTC or nvcc, and find a kernel by its name.

Source: NVRTC's guide (name expressions, `nvrtcGetLoweredName`), nvcc's manual (``-ptx``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tma_dlpack.kernel.core import argument_error, driver, nvrtc_bindings, shown, tma

# Time limit of nvcc in seconds.
_NVCC_SECONDS = 600
_CUDA_FILES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c")
_MAX_SOURCE_BYTES = 96 << 20
# Number of lines that an error message repeats from a compiler's log.
_LOG_LINES = 20
# For example ".visible .entry _Z4gemm14CUtensorMap_st" and ".target sm_90a".
_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak)\s+)*\.entry\s+([\w$]+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)
_MISSING_HEADER = re.compile(r"(?:could not|cannot) open source file")
# File name that compiler messages and line tables use if the source is a text, not a file.
_TEXT = "kernel.cu"
# Options that only NVRTC has. nvcc always behaves as if it had these options.
_NVRTC_ONLY = frozenset(("device-int128", "default-device"))
_GLOBAL = re.compile(r"\b__global__\b")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">\n]+)", re.MULTILINE)
_FOLDER_OPTION = re.compile(r"^(?:-I|--include-path[=\n])\n?(.+)", re.MULTILINE)

#: Path of a header -> (time of the last change in ns, size in bytes).
Headers = tuple[tuple[Path, tuple[int, int]], ...]


class Compiled(NamedTuple):
    """The PTX of a source, and the mangled name of the requested kernel."""

    ptx: str
    kernel: str
    #: Target of the PTX, such as "sm_90a".
    target: str
    #: Name of the source in messages: the path of the file, or "the source".
    name: str


def compile_kernel(
    source: object, name: str | None, options: Sequence[str], target: str
) -> Compiled:
    """Return the PTX of a source, and the mangled name of the requested kernel.

    Parameters
    ----------
    source : str or path
        PTX or CUDA C++, or the path of a file with PTX or CUDA C++.
    name : str or None
        The kernel's name, either as the source writes it or mangled. The name may be None if the
        source has one kernel.
    options : sequence of str
        Options of the compiler.
    target : str
        Target such as ``"sm_90"``. The source is compiled for the architecture-specific form of the
        target, such as ``sm_90a``.

    Raises
    ------
    TmaPreconditionError
        If the source is neither PTX nor CUDA C++, does not compile, or has no such kernel.
    TmaUnsupportedError
        If the source is CUDA C++ and there is no compiler.
    """
    text, label, path = _read(source)
    if _is_ptx(text):
        return _with_kernel(text, name, label, {})
    if not _GLOBAL.search(text):
        found = f"{label} has neither .entry of PTX nor __global__ of CUDA C++"
        fix = "pass the text of a kernel, or the path of a .ptx or .cu file"
        raise argument_error("source", found, "be PTX or CUDA C++ with a kernel", fix)
    is_file = path is not None and path.suffix in _CUDA_FILES
    folder = str(path.resolve().parent) if path is not None else ""
    words = tuple(options)
    headers = _headers(text, folder or ".", words)
    # A compiler compiles a template instance only if the source names the instance. The PTX always
    # contains all kernels that are no templates, so their names are not part of the cache's key.
    instance = name if isinstance(name, str) and "<" in name else ""
    ptx, lowered = _compiled(text, label, folder, instance, words, target, is_file, headers)
    return _with_kernel(ptx, name, label, lowered)


def _headers(text: str, folder: str, options: tuple[str, ...]) -> Headers:
    """Return the headers that a source includes directly or through other headers.

    The headers are searched in the source's folder, in the folders of the -I options, and in this
    package. If a header changes, the source must be compiled again. So the headers are part of the
    cache's key.
    """
    named = _FOLDER_OPTION.findall("\n".join(options))  # "-I" and the folder may be two options
    places = [Path(place) for place in (folder, *named, tma.get_include())]
    found: dict[Path, tuple[int, int]] = {}
    unread = [(text, Path(folder))]
    while unread:
        source, own = unread.pop()
        for name in _INCLUDE.findall(source):
            path = next((p / name for p in (own, *places) if (p / name).is_file()), None)
            if path is not None and path not in found:
                state = path.stat()
                found[path] = state.st_mtime_ns, state.st_size
                unread.append((path.read_text("utf-8", "replace"), path.parent))
    return tuple(found.items())


def _is_ptx(text: str) -> bool:
    return bool(_ENTRY.search(text)) and ".version" in text


def _read(source: object) -> tuple[str, str, Path | None]:
    """Return (text of the source, its name in messages, path of the file or None)."""
    # A kernel has line breaks or braces, and a path has neither.
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, "the source", None
    if not isinstance(source, str | os.PathLike):
        fix = "pass PTX or CUDA C++ as text, or a path"
        found = f"source is a {type(source).__name__}"
        raise argument_error("source", found, "be text or a path", fix)
    path = Path(source)
    try:
        # Check the size first, so that a file of many gigabytes is not read.
        size_bytes = path.stat().st_size
        data = path.read_bytes() if size_bytes <= _MAX_SOURCE_BYTES else b""
    except (OSError, ValueError) as error:
        found = f"source is {shown(source)}, which cannot be read: {error}"
        fix = "pass the path of a .ptx or .cu file, or the text itself"
        raise argument_error("source", found, "be text or a readable file", fix) from error
    if size_bytes > _MAX_SOURCE_BYTES:
        found = f"{path} has {size_bytes >> 20} MiB"
        must = f"have at most {_MAX_SOURCE_BYTES >> 20} MiB"
        raise argument_error("source", found, must, "pass the PTX of one source file")
    # Zero bytes at the end are allowed, because some tools write PTX as a C string.
    if b"\0" in data.rstrip(b"\0"):
        found, fix = f"{path} is a binary file", "pass its PTX: cuobjdump --dump-ptx, nvcc -ptx"
        raise argument_error("source", found, "be PTX or CUDA C++", fix)
    return data.decode("utf-8", "replace"), str(path), path


# -- names -----------------------------------------------------------------------------------------


def _with_kernel(ptx: str, name: str | None, label: str, lowered: dict[str, str]) -> Compiled:
    kernels = list(dict.fromkeys(_ENTRY.findall(ptx)))
    found = _TARGET.search(ptx)
    target = found[1] if found else "sm_90"
    return Compiled(ptx, _choose(kernels, name, label, lowered), target, label)


def _choose(kernels: list[str], name: Any, label: str, lowered: dict[str, str]) -> str:
    if name is not None and not isinstance(name, str):
        found = f"name is a {type(name).__name__}"
        raise argument_error("name", found, "be a kernel's name", f"pass {_several(kernels)}")
    if not kernels:
        fix = 'name a template instance as the source writes it: name="gemm<128, 64>"'
        raise argument_error("source", f"{label} has no kernel", "have a kernel", fix)
    if name is None:
        if len(kernels) == 1:
            return kernels[0]
        found = f"{label} has {len(kernels)} kernels: {_several(kernels)}"
        fix = f"pass name={base_name(kernels[0])!r}, or another of them"
        raise argument_error("name", found, "be named where there are several kernels", fix)
    known = lowered.get(name)
    fitting = [k for k in kernels if k in (name, known)] or [k for k in kernels if _fits(k, name)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        found = f"{label} has no kernel {name!r}; it has {_several(kernels)}"
        raise argument_error("name", found, "be one of them", f"pass name={kernels[0]!r}")
    found = f"{name!r} is the name of {len(fitting)} kernels: {', '.join(fitting)}"
    fix = f"pass the mangled name: name={fitting[0]!r}"
    raise argument_error("name", found, "be the name of one kernel", fix)


def _several(kernels: Sequence[str]) -> str:
    more = f" and {len(kernels) - 6} more" if len(kernels) > 6 else ""
    return ", ".join(kernels[:6]) + more


def base_name(kernel: str) -> str:
    """Return a kernel's name without namespaces, template arguments and parameters.

    >>> base_name("_ZN4gemm6kernelILi128EEEv14CUtensorMap_st"), base_name("corner")
    ('kernel', 'corner')
    """
    parts = _parts(kernel)[0]
    return parts[-1] if parts else kernel


def _parts(kernel: str) -> tuple[list[str], str]:
    """Return (parts, rest) of a mangled name.

    The parts are the namespaces, outermost first, then the kernel's name.
    """
    # The Itanium ABI writes the length before each part: "_ZN4gemm6kernelILi128EEEv" has the parts
    # "gemm" and "kernel", and the rest "ILi128EEEv".
    rest = kernel[2:] if kernel.startswith("_Z") else ""
    rest = rest.removeprefix("N")
    parts = []
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found[0])
        parts.append(rest[found.end() : end])
        rest = rest[end:]
    return [part for part in parts if not part.startswith("_GLOBAL__N")], rest


def _fits(kernel: str, name: str) -> bool:
    """Return whether a mangled name `kernel` can belong to the C++ name `name`.

    Compare the namespaces, the kernel's name, and the numbers among the template arguments.
    """
    head, _, arguments = name.partition("<")
    parts, rest = _parts(kernel)
    wanted = [part.strip() for part in head.split("::") if part.strip()]
    if not parts:
        return kernel == head.strip()
    if parts[-len(wanted) :] != wanted:
        return False
    # "true" and "false" count as numbers: "gemm<128, true>" has "128" and "true", but
    # "f<uint8_t>" has no number.
    numbers = re.findall(r"(?<![\w.])(?:true|false|-?\d+)\b", arguments)
    if not numbers:
        return not arguments or rest.startswith("I")
    # The ABI writes -1 as "n1", and the int 128 as "Li128E". The letter "i" is the type int. For an
    # enumerator, the name of the enum is in place of this letter.
    codes = {"true": "1", "false": "0"}
    mangled = ["n" + n[1:] if n.startswith("-") else codes.get(n, n) for n in numbers]
    found = re.findall(r"L(?:[a-z]|N?[\w]+?E)(n?\d+)E", rest) or re.findall(r"(n?\d+)E", rest)
    return found[: len(mangled)] == mangled


# -- compilers -------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _compiled(
    text: str,
    label: str,
    folder: str,
    instance: str,
    options: tuple[str, ...],
    target: str,
    is_file: bool,
    headers: Headers,
) -> tuple[str, dict[str, str]]:
    """Return (PTX of all kernels, template instance -> mangled name); the result is cached.

    NVRTC is tried first. nvcc is tried if NVRTC is missing or does not find a header. nvcc is also
    tried if NVRTC refuses a .cu file, because such a file may have host code.
    """
    # An architecture in the options replaces the architecture of `target`.
    arch = next(
        (o.partition("=")[2] for o in options if o.startswith(("-arch=", "--gpu-arch"))), ""
    )
    arch = (arch or f"{target.rstrip('af')}a").replace("sm_", "compute_")
    rest = tuple(o for o in options if not o.startswith(("-arch=", "--gpu-arch")))
    nvcc = driver.tool("nvcc")
    try:
        nvrtc = nvrtc_bindings()
    except tma.TmaUnsupportedError as missing:
        if nvcc is None:
            fix = "pip install cuda-bindings nvidia-cuda-nvrtc, or pass PTX"
            raise tma.TmaUnsupportedError(
                f"{label} is CUDA C++, and there is neither NVRTC nor nvcc to compile it: {fix}"
            ) from missing
        return _by_nvcc(nvcc, text, label, folder, instance, rest, arch), {}
    ptx, lowered, log = _by_nvrtc(nvrtc, text, label, folder, instance, rest, arch)
    # NVRTC's log has "__nv_name_map" if the source does not have the template instance. Compile
    # again without the instance, so that the message can list the kernels of the source.
    if "__nv_name_map" in log:
        ptx, lowered, log = _by_nvrtc(nvrtc, text, label, folder, "", rest, arch)
    if ptx:
        return ptx, lowered
    if nvcc is not None and (is_file or _MISSING_HEADER.search(log)):
        return _by_nvcc(nvcc, text, label, folder, instance, rest, arch), {}
    raise _not_compiled(label, "NVRTC", log)


def _not_compiled(label: str, compiler: str, log: str) -> Exception:
    lines = [line for line in log.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    found = f"{label} does not compile with {compiler}:\n" + "\n".join(lines[:_LOG_LINES])
    fix = f"correct it ({errors[0].strip()[:200]})" if errors else "read the compiler's message"
    return argument_error("source", found, "compile", fix)


def _include_folders() -> list[str]:
    """Return the folders with headers of this package, of a CUDA toolkit and of PyPI packages."""
    folders = [tma.get_include()]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    folders += [str(path) for path in (Path(home) / "include",) if path.is_dir()]
    # CUDA 13 moved libcu++ and CUB to the folder "cccl".
    folders += [str(path) for path in (Path(home) / "include" / "cccl",) if path.is_dir()]
    for packages in [p for p in sys.path if p.endswith("site-packages")]:
        found = sorted(Path(packages, "nvidia").glob("*/include"))
        folders += [str(path) for path in found]
        folders += [str(path / "cccl") for path in found if (path / "cccl").is_dir()]
    return folders


def _by_nvrtc(
    nvrtc: Any,
    text: str,
    label: str,
    folder: str,
    instance: str,
    options: tuple[str, ...],
    arch: str,
) -> tuple[str, dict[str, str], str]:
    """Return (PTX, instance -> mangled name, log); PTX is "" if the compilation fails."""
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    file_name = Path(label).name if folder else _TEXT
    result, program = nvrtc.nvrtcCreateProgram(text.encode(), file_name.encode(), 0, [], [])
    if result != success:
        raise tma.TmaUnsupportedError(f"NVRTC cannot start: {result}")
    if instance:
        nvrtc.nvrtcAddNameExpression(program, instance.encode())
    # With -default-device, functions without __device__ are compiled for the device. -lineinfo adds
    # line numbers of the source to the PTX, so that findings can name these lines.
    own = [f"--gpu-architecture={arch}", "-default-device", "-lineinfo"]
    if not any("std=" in option for option in options):
        own.append("--std=c++17")
    own += [f"-I{f}" for f in ([folder] if folder else []) + _include_folders()]
    words = [option.encode() for option in (*own, *options)]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
    log = _output(nvrtc, program, "ProgramLog")
    if result != success:
        nvrtc.nvrtcDestroyProgram(program)
        return "", {}, log or str(result)
    lowered = {}
    if instance:
        result, mangled = nvrtc.nvrtcGetLoweredName(program, instance.encode())
        if result == success:
            lowered[instance] = mangled.decode()
    ptx = _output(nvrtc, program, "PTX")
    nvrtc.nvrtcDestroyProgram(program)
    # If the source is a text, the PTX contains the file name with the path of the current folder.
    # Remove this path, so that the PTX does not depend on the current folder.
    if not folder:
        ptx = ptx.replace(f'"{Path.cwd() / _TEXT}"', f'"{_TEXT}"')
    return ptx, lowered, log


def _output(nvrtc: Any, program: Any, what: str) -> str:
    _, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    buffer = bytearray(size)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return bytes(buffer).rstrip(b"\0").decode(errors="replace")


def _by_nvcc(
    nvcc: str,
    text: str,
    label: str,
    folder: str,
    instance: str,
    options: tuple[str, ...],
    arch: str,
) -> str:
    """Return the PTX of all kernels of a source and of a template instance."""
    if instance:
        text += f"\nstatic auto* tma_dlpack_instance = &{instance};\n"
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_kernel_") as scratch:
        source, out = Path(scratch) / Path(label or "kernel.cu").name, Path(scratch) / "kernel.ptx"
        source = source.with_suffix(".cu")
        source.write_text(text)
        words = [nvcc, "-ptx", "-lineinfo", f"-arch={arch.replace('compute_', 'sm_')}"]
        if not any("std=" in option for option in options):
            words.append("-std=c++17")
        words += [f"-I{f}" for f in ([folder] if folder else []) + [tma.get_include()]]
        words += [option for option in options if option.lstrip("-") not in _NVRTC_ONLY]
        words += ["-o", str(out), str(source)]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                timeout=_NVCC_SECONDS,
                encoding="utf-8",
                errors="replace",
            )
        except subprocess.TimeoutExpired as late:
            raise tma.TmaUnsupportedError(f"nvcc took more than {_NVCC_SECONDS} s") from late
        # nvcc writes the name of the scratch file into messages and line tables. Replace it with
        # the name of the user's source.
        named = label if folder else _TEXT
        if done.returncode or not out.is_file():
            log = (done.stderr or done.stdout).replace(str(source), named)
            raise _not_compiled(label, "nvcc", log)
        ptx = out.read_text(errors="replace")
        return ptx.replace(str(source), named)
