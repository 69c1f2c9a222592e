"""Demangler of the C++ names of kernels, with limits on size and time.

A mangled name of 200 characters can demangle to gigabytes of text, because each substitution may
double the text. Names with few substitutions are demangled in this process. For names with many
substitutions, this file runs as a program in a separate process with limits on time and memory.
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import sys
from collections.abc import Iterable

# Maximum number of characters of a demangled name, and of a result of `short_name`.
MOST_CHARS, MOST_SHORT_CHARS = 4_000, 120
# Maximum number of characters of a mangled name. The longest names of CUTLASS have about 6,000.
LONGEST_MANGLED = 20_000
# If this many separate processes have exceeded a limit, the remaining names stay mangled.
MOST_STOPPED = 3
# Limits of a separate process: CPU seconds for each name, and bytes of the address space.
SECONDS, BYTES = 0.5, 1 << 30

_MANGLED = re.compile(rf"_Z\w[\w.$]{{0,{LONGEST_MANGLED}}}", re.ASCII)
# References of the Itanium C++ ABI, which insert other text of the name: a substitution (S_), a
# template parameter (T_), and the expansion of a pack (Dp).
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_|Dp")
_FEW = 5  # a name with more of these references is demangled in a separate process


def demangled(names: Iterable[str]) -> dict[str, str]:
    """Return the demangled C++ name for each name in `names`.

    A demangled name is cut to `MOST_CHARS` characters. A name that is not mangled maps to itself.
    """
    found = {name: name for name in names}
    mangled = [name for name in found if _MANGLED.fullmatch(name)]
    many = [name for name in mangled if len(_REFERENCE.findall(name)) > _FEW]
    found |= {name: demangle(name) for name in {*mangled}.difference(many)}
    for _ in range(MOST_STOPPED):
        shown = _in_a_process(many)
        found |= dict(zip(many, shown, strict=False))
        many = many[len(shown) + 1 :]  # skips the name that exceeded a limit
    return {name: _cut(text) for name, text in found.items()}


def short_name(name: str) -> str:
    """Return the C++ name of a mangled function, without parameters and template arguments.

    Unlike `demangle`, this function needs no C++ library.

    >>> short_name("_ZN4gemm6kernelILi128EEEv14CUtensorMap_st"), short_name("copy")
    ('gemm::kernel<...>', 'copy')
    """
    # In the Itanium C++ ABI, a name begins with _Z, and a name of several parts begins with _ZN.
    # Each part follows its length (4gemm6kernel). The letter I begins template arguments.
    parts: list[str] = []
    rest = name[2:] if name.startswith("_Z") else ""
    is_nested = rest.startswith("N")
    rest = rest[is_nested:]
    while found := re.match(r"\d{1,4}", rest):
        end = found.end() + int(found[0])
        if end > len(rest):
            return name[:MOST_SHORT_CHARS]
        parts.append(rest[found.end() : end])
        rest = rest[end:]
        if not is_nested:
            break
    text = "::".join(part for part in parts if not part.startswith("_GLOBAL__N"))
    text = text + "<...>" * rest.startswith("I") if text else name
    return text if len(text) <= MOST_SHORT_CHARS else f"{text[:MOST_SHORT_CHARS]}..."


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."


def _in_a_process(names: list[str]) -> list[str]:
    """Return the names that a separate process demangled before it ended."""
    if not names or not sys.executable:
        return []
    command = [sys.executable, "-I", "-S", __file__]
    try:
        done = subprocess.run(command, input="\n".join(names).encode(), capture_output=True)
    except OSError:
        return []
    return done.stdout.decode("utf-8", "replace").split("\n")[:-1]


def demangle(name: str) -> str:
    """Return the demangled name; return `name` itself if it cannot be demangled here."""
    try:
        cxa_demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return name
    cxa_demangle.restype = ctypes.c_void_p
    found = cxa_demangle(name.encode(), None, None, None)
    if not found:
        return name
    # __cxa_demangle allocates its result with malloc, so the caller frees it.
    text = ctypes.string_at(found).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


def main() -> None:
    """Demangle the names on standard input, one per line, until a name exceeds a limit."""
    import resource  # Windows does not have this module

    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    for name in sys.stdin.read().split("\n"):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # SIGPROF ends the process
        print(_cut(demangle(name)).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
