"""`lint`: a finder of mistakes in PTX that uses TMA. It needs no GPU.

The package `tma_dlpack.ptx` reads the PTX and follows registers and paths. `events` lists the
events of a function, such as copies and fences, for the rules. `rules` has the rules about pairs of
events on a path, such as a write and a later copy. `order` has the rules about the order of
instructions. `protocol` finds the mbarriers, and `barriers` has the rules about mbarriers. `single`
has the rules about single instructions and about the maps of a launch. `report` defines the result.
This module converts every kind of source (text, .cu, binary, wheel) to PTX, and runs the rules.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tma_dlpack.debug import foreign, programs
from tma_dlpack.debug.core import counted, driver, errors, public, refusals, tma
from tma_dlpack.debug.lint import barriers, order, protocol, report, rules, single
from tma_dlpack.debug.lint.events import KNOWN_CALLS, Callees, Events, callee_of, summaries
from tma_dlpack.debug.lint.report import LintFinding, LintReport
from tma_dlpack.debug.lint.single import LaunchedMaps
from tma_dlpack.debug.names import short_name
from tma_dlpack.ptx.flow import Flow, TooLargeError
from tma_dlpack.ptx.parse import modules
from tma_dlpack.ptx.values import Values

__all__ = ["LintFinding", "LintReport", "lint", "run"]


_PTX = refusals.REFUSALS["FILE_PTX"]
# time limit of each run of nvcc or cuobjdump
_TIMEOUT_S = 600
_CUDA = (".cu", ".cuh", ".cpp", ".cc", ".cxx")
#: The first bytes of ELF files, fat binaries, and archives.
_BINARY = (b"\x7fELF", b"\x50\xed\x55\xba", b"!<arch>")
_WHEEL = b"PK\x03\x04"
# maximum size of an unpacked library of a wheel; larger libraries are skipped
_MOST_MEMBER_BYTES = 4 << 30


@public.untraced
def lint(
    source: str | os.PathLike[str],
    *,
    maps: Any = None,
    nvcc_flags: Sequence[str] = (),
    notes: bool = False,
) -> LintReport:
    """Return the mistakes that PTX code makes with TMA.

    An error is proved by the PTX. For example, two accesses overlap, and no path between them has
    the needed fence or wait. A warning is a possible mistake. `lint` does not see values that are
    computed at run time, so a report without findings does not prove that the code is correct.

    Parameters
    ----------
    source : str or path
        PTX as text; or the path of a PTX file, a .cu or .cuh file (which needs nvcc), or a fatbin,
        object, library or wheel that contains PTX (which needs cuobjdump).
    maps : path, Trace or sequence of TensorMap, optional
        The maps that kernels were launched with, such as a file from ``trace --json``. The kernel's
        instructions are compared with these maps. The n-th map of a sequence is the kernel's n-th
        parameter that has 128 bytes.
    nvcc_flags : sequence of str
        Flags of nvcc, such as ``-Iinclude``; ``-arch=sm_90a`` is the default.
    notes : bool
        Whether the report has findings of severity "note" in `findings`. If False, these findings
        are in `hidden`.

    Returns
    -------
    LintReport
        The findings, as text (``print(report)``), HTML, JSON (`to_json()`) or SARIF (`to_sarif()`).

    Raises
    ------
    TmaPreconditionError
        If the source is not PTX.
    TmaUnsupportedError
        If nvcc or cuobjdump is needed, but is not installed or fails.

    Examples
    --------
    A tile is written by ordinary stores and then copied by TMA, without a fence:

    >>> import tma_dlpack as tma
    >>> kernel = '''
    ... .version 9.0
    ... .target sm_90a
    ... .address_size 64
    ... .shared .align 128 .b8 tile[4096];
    ... .visible .entry copy(.param .u64 out) {
    ...   ld.param.u64 %rd1, [out];
    ...   mov.u32 %r1, tile;
    ...   st.shared.u32 [%r1], 0;
    ...   bar.sync 0;
    ...   cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 4096;
    ...   cp.async.bulk.commit_group;
    ...   cp.async.bulk.wait_group.read 0;
    ...   ret;
    ... }'''
    >>> report = tma.lint(kernel)
    >>> [(f.rule, f.severity, f.line) for f in report.findings]
    [('PROXY_FENCE', 'error', 11)]
    >>> tma.lint(kernel.replace("bar.sync", "fence.proxy.async; bar.sync")).ok
    True
    """
    launched = maps if isinstance(maps, LaunchedMaps | None) else LaunchedMaps(maps)
    given = _input(source, nvcc_flags)
    unread: list[str] = []
    examined: list[report.Examined] = []
    # `comments`: line of the PTX -> comment that may suppress a finding; `mistakes`: name of a
    # function -> mistakes in the function
    comments: dict[int, str] = {}
    mistakes: dict[str, list[rules.Mistake]] = {}
    functions = 0
    for module in modules(given.text):
        # each function is checked alone; in place of a call, the rules see the events that
        # `summaries` returns for the callee
        callees = summaries(module.functions)
        names = map(short_name, module.unread)
        unread += [f"{name}: its braces do not close; not checked" for name in names]
        comments |= module.comments
        functions += len(module.functions)
        for function in module.functions:
            try:
                events = Events(Flow(Values(module, function)), callees)
                found = _mistakes(events, launched)
            except TooLargeError:
                unread.append(f"{short_name(function.name)}: too many paths; not checked")
            else:
                mistakes.setdefault(function.name, []).extend(found)
                examined += _examined(events, callees)
    suppressions = report.Suppressions(comments, given.folder)
    shown, allowed = report.findings(mistakes, suppressions)
    unread += [f"{text}: a suppression needs a reason" for text in suppressions.without_reason]
    aside = [] if notes else [finding for finding in shown if finding.severity == report.NOTE]
    return LintReport(
        tuple(finding for finding in shown if finding not in aside), tuple(allowed), tuple(unread),
        functions, given.name, tuple(examined), tuple(aside),
    )  # fmt: skip


def _mistakes(events: Events, launched: LaunchedMaps | None) -> list[rules.Mistake]:
    """Return the mistakes in one function."""
    sizes = single.bytes_of_copies(events, launched)
    known = protocol.Protocol(events, sizes)
    found = [
        *rules.paths(events), *single.alone(events), *barriers.barriers(known),
        *order.orders(known),
    ]  # fmt: skip
    return found if launched is None else [*found, *single.with_maps(events, launched)]


# kinds of events that `_examined` reports if their address in shared memory is unknown
_COPIES = ("load", "store")


def _examined(events: Events, callees: Callees) -> Iterator[report.Examined]:
    """Yield the `Examined` of a function; yield nothing if the function has no bulk copies."""
    function = events.flow.values.function
    happened = Counter(h.what for block in events.blocks for h in block)
    copies = happened["load"] + happened["store"] + happened["send"]
    if not copies:
        return
    # several instructions may initialise one barrier, so count addresses, not instructions
    barriers = {(access.terms, at) for access in events.accesses if access.what == "init"
                for at, _ in access.spans}  # fmt: skip
    counts = {
        "copy": copies,
        "barrier": len(barriers),
        "wait": happened["await"] + happened["wait"],
        "fence": happened["fence"] + happened["init_fence"],
    }
    called = {callee_of(code) for code in function.code if code.opcode.startswith("call")}
    absent = sorted(called - {*callees, *KNOWN_CALLS})
    unknown = sum(len(a.code) for a in events.accesses if a.what in _COPIES and not a.origins)
    skipped = [f"{name}(), whose code is not in the file" for name in map(short_name, absent)]
    if unknown:
        skipped.append(f"{counted(unknown, 'copy')} whose shared memory is known at run time only")
    yield report.Examined(function.name, counts, tuple(skipped))


def run(
    sources: Iterable[str], maps: Any = None, nvcc_flags: Sequence[str] = (), notes: bool = False
) -> tuple[list[LintReport], list[str]]:
    """Lint several files; return the reports, and a message for each file without a report."""
    launched = None if maps is None else LaunchedMaps(maps)
    reports, failures = [], []
    for source in sources:
        try:
            found = lint(Path(source), maps=launched, nvcc_flags=nvcc_flags, notes=notes)
            reports.append(found)
        except (OSError, ValueError, RuntimeError) as error:
            words = (isinstance(error, OSError) and error.strerror) or str(error)
            failures.append(words if words.startswith(source) else f"{source}: {words}")
    return reports, failures


def printed(reports: Sequence[LintReport], failures: Sequence[str], *, sarif: bool) -> str:
    """Return reports as JSON or SARIF. The messages in `failures` become notes."""
    unread = LintReport((), notes=tuple(failures))
    return (report.as_sarif if sarif else report.as_json)([*reports, unread])


# -- reading PTX from text, a file, a .cu (by nvcc) or a binary (by cuobjdump) --------------------


class Input(NamedTuple):
    """PTX as text, with the name and the folder of the file that it was read from."""

    text: str
    name: str = ""
    folder: Path | None = None


def _input(source: str | os.PathLike[str], nvcc_flags: Sequence[str]) -> Input:
    """Return the PTX of a source; raise an error if the source has no PTX."""
    # a string is taken as PTX, not as a path, if it is empty, or if it contains a newline or
    # .version: paths contain no newline, and every PTX module contains .version
    if isinstance(source, str) and ("\n" in source or ".version" in source or not source.strip()):
        return Input(_checked(source.encode("utf-8", "replace"), "the text"))
    if not (isinstance(source, str) or hasattr(source, "__fspath__")):
        fix = "pass the text of the PTX, or a path"
        raise errors.argument_error(
            "source", f"source is a {type(source).__name__}", "be PTX or a path", fix
        )
    name = os.fspath(source)
    with foreign.plain_file(name, refusals.MAX_PTX_BYTES, "FILE_PTX") as path:
        return _of_file(path, Path(name), nvcc_flags)


def _of_file(path: Path, name: Path, nvcc_flags: Sequence[str]) -> Input:
    """Return the PTX of the file at `path`.

    `name` is the path that the user passed. `path` may be a decompressed copy of this file.
    """
    if path.suffix in _CUDA:
        text = _by_nvcc(path, nvcc_flags)
        return Input(_checked(text, f"what nvcc made of {name}"), str(name), name.parent)
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(_WHEEL):
        content = _of_wheel(path, name)
    elif start.startswith(_BINARY):
        content = _by_cuobjdump(path, str(name))
    else:
        _check_size(path.stat().st_size, str(name))
        content = path.read_bytes()
    return Input(_checked(content, str(name)), str(name), name.parent)


def _checked(content: bytes, name: str) -> str:
    """Return the content as text; raise an error if the content is not PTX."""
    _check_size(len(content), name)
    if not content.strip():
        raise _PTX.error("source", f"{name} is empty")
    # PTX from memory may end with NUL bytes, as C strings do
    if b"\0" in content.rstrip(b"\0"):
        raise _PTX.error("source", f"{name} is binary, and no ELF or fat binary")
    if b".version" not in content:
        raise _PTX.error("source", f"{name} is other text")
    text = content.decode("utf-8", "replace")
    # every module has .version, then .target; if the last .target is missing, the file was cut off
    if ".target" not in text[text.rindex(".version") :]:
        raise _PTX.error("source", f"{name} ends before its .target")
    return text


def _check_size(size_bytes: int, name: str) -> None:
    if size_bytes > refusals.MAX_PTX_BYTES:
        fix = "lint the PTX of one source file at a time"
        raise _PTX.error("source", f"{name} has {size_bytes >> 20} MiB", fix=fix)


def _by_nvcc(path: Path, flags: Sequence[str]) -> bytes:
    """Compile a CUDA file to PTX with line numbers.

    The headers of tma_dlpack are on the include path.
    """
    # the include folder of tma_dlpack is last, so folders in the flags are searched first
    has_arch = any(f.startswith(("-arch", "--gpu-a", "-gencode", "--gencode")) for f in flags)
    arch = [] if has_arch else ["-arch=sm_90a"]
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_lint_") as folder:
        out = Path(folder) / "kernel.ptx"
        words = ["-ptx", "-lineinfo", *arch, *flags, f"-I{tma.get_include()}", "-o", str(out)]
        if path.suffix != ".cu":
            words[:0] = ["-x", "cu"]
        _answer(
            "nvcc", [*words, str(path.resolve())], "its PTX (nvcc -ptx -lineinfo) made elsewhere"
        )
        if not out.is_file():
            raise tma.TmaUnsupportedError(f"nvcc wrote no PTX; its flags were {' '.join(flags)}")
        return out.read_bytes()


def _by_cuobjdump(path: Path, name: str) -> bytes:
    """Return the PTX in a binary."""
    said = _answer("cuobjdump", ["--dump-ptx", str(path)], "the PTX itself (nvcc -ptx -lineinfo)")
    lines = said.splitlines()
    # lines before the first .version are cuobjdump's own header
    at = next((n for n, line in enumerate(lines) if line.lstrip().startswith(".version")), None)
    if at is not None:
        return "\n".join(lines[at:]).encode()
    listed = _answer("cuobjdump", ["--list-elf", str(path)], "the PTX itself")
    targets = sorted({*re.findall(r"sm_\d+[af]?", listed)})
    machine = f" for {', '.join(targets)}" if targets else ""
    fix = "build it with -gencode arch=compute_90a,code=compute_90a, or lint the PTX itself"
    raise _PTX.error("source", f"{name} holds machine code{machine} and no PTX", fix=fix)


def _of_wheel(path: Path, name: Path) -> bytes:
    """Return the PTX of all libraries in a wheel; skip libraries without PTX."""
    found: list[bytes] = []
    refused: list[tma.TmaError] = []
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory(prefix="tma_dlpack_") as at:
        for member in wheel.infolist():
            if not member.filename.endswith(_OF_WHEEL) or member.file_size > _MOST_MEMBER_BYTES:
                continue
            library = Path(at) / "library"
            with wheel.open(member) as packed, library.open("wb") as file:
                shutil.copyfileobj(packed, file)
            if library.read_bytes()[:8].startswith(_BINARY):
                try:
                    found.append(_by_cuobjdump(library, f"{name}: {member.filename}"))
                except tma.TmaError as error:
                    refused.append(error)
            elif member.filename.endswith(".ptx"):
                found.append(library.read_bytes())
    if found:
        return b"\n".join(found)
    if refused:
        raise refused[0]
    raise _PTX.error("source", f"{name} is an archive without a library in it")


# suffixes of a wheel's files that may contain PTX
_OF_WHEEL = (".so", ".cubin", ".fatbin", ".o", ".a", ".ptx", ".pyd", ".dll")


def _answer(name: str, words: Sequence[str], instead: str) -> str:
    """Return the output of a CUDA tool.

    `instead` names a file that can be linted without this tool. If the tool is not found, the error
    recommends this file.
    """
    tool = driver.tool(name)
    if tool is None:
        fix = f"install the CUDA toolkit, or lint {instead}"
        raise tma.TmaUnsupportedError(f"{name} was not found: {fix}")
    done = programs.answer([tool, *words], _TIMEOUT_S)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-4:]
        raise tma.TmaUnsupportedError(f"{name} failed: {' | '.join(lines) or 'no message'}")
    return done.stdout
