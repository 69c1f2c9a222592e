"""Runner of programs with GPU core dumps switched on; it also dumps running processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tma_dlpack.debug import programs
from tma_dlpack.debug.core import driver, tma
from tma_dlpack.debug.postmortem.dump import Dump
from tma_dlpack.debug.postmortem.results import DeadBarrier, Fault, PostMortem
from tma_dlpack.debug.programs import status_of

#: Parts that every dump leaves out. `postmortem` does not need the constant banks, because
#: parameters have their own sections. With the constant banks, driver 580.159.04 stops writing the
#: dump of a torch process after 69 KB.
_SKIPPED: Final = "skip_nonrelocated_elf_images,skip_constbank_memory"
#: Parts that are left out by default. Without global memory, a dump is small and has no user data.
_MEMORY: Final = "skip_global_memory,skip_local_memory"
#: `_LOOK_SECONDS` is the time between two checks of the dumps. If the dumps have not grown for
#: `_SETTLED_SECONDS`, they may be complete, so they are read.
_LOOK_SECONDS, _SETTLED_SECONDS = 0.05, 1.0
#: The wait for complete dumps is given up in three cases: the dumps have not grown for
#: `_QUIET_SECONDS`; the process has ended, and the dumps have not grown for `_ENDED_SECONDS`; the
#: wait has lasted `_MOST_SECONDS`.
_QUIET_SECONDS, _ENDED_SECONDS, _MOST_SECONDS = 15.0, 2.0, 600.0
_GDB_SECONDS = 300.0

Reader = Callable[[Dump], PostMortem]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program: its exit status, the findings in its dumps, and notes."""

    status: int
    found: PostMortem | None
    notes: tuple[str, ...]


def _skipped(with_global: bool) -> str:
    """Return the parts that a dump leaves out, as flags for the driver and the debugger."""
    return _SKIPPED if with_global else f"{_SKIPPED},{_MEMORY}"


def environment(folder: Path, with_global: bool = False) -> dict[str, str]:
    """Return the environment variables that switch dumps on; CUDA replaces ``%p`` with the pid."""
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_FILE": str(folder / "core.%p"),
        "CUDA_COREDUMP_PIPE": str(folder / "pipe.%p"),
        "CUDA_COREDUMP_GENERATION_FLAGS": _skipped(with_global),
    }


_CUT: Final = (
    "the program ended while the driver wrote its dump. The driver holds errors and exit() back "
    "until the dump is whole, but not a signal, or abort() of another thread: switch off "
    "what watches the program (a time limit, NCCL's watchdog), or let it wait longer"
)


def run(
    words: Sequence[str],
    read: Reader,
    *,
    after: float | None = None,
    keep: Path | None = None,
    with_global: bool = False,
) -> Ended:
    """Run a program that is dumped after a fault, `after` seconds or Ctrl-C, and read its dumps.

    Parameters
    ----------
    words : sequence of str
        The program and its arguments.
    read : function
        Function that returns the `PostMortem` of a `Dump`.
    after : float, optional
        A program that runs longer than this number of seconds is assumed to hang, and is dumped.
    keep : Path, optional
        File to which the dump is moved. If there are several dumps, the process id is appended to
        the name of each file.
    with_global : bool
        Whether the dump contains global memory, and so also the maps in global memory.
    """
    programs.refuse_another_tool(
        "the driver makes no dump while another developer tool runs (trace, nsys, ncu, "
        "compute-sanitizer)"
    )
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_core_", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        interrupted: list[int] = []
        with _interrupts(interrupted):
            child = programs.begin(words, environment(folder, with_global))
            if isinstance(child, OSError):
                return Ended(status_of(child), None, (f"{words[0]}: {child.strerror}",))
            # from now on, this process counts presses of Ctrl-C; the child process continues to
            # ignore them
            signal.signal(signal.SIGINT, lambda number, frame: interrupted.append(number))
            notes = _wait(child, folder, after, interrupted)
        found, more = _read_all(folder, read, keep)
        return Ended(status_of(child), found, (*notes, *more))


@contextmanager
def _interrupts(interrupted: list[int]) -> Iterator[None]:
    """Ignore Ctrl-C in this process, and in a program that starts inside this context.

    After Ctrl-C, `run` requests a dump, which ends the program. Other signals are unchanged.
    """
    # a child process inherits an ignored signal
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say(text: str) -> None:
    print(f"tma_dlpack postmortem: {text}", file=sys.stderr, flush=True)


def _wait(
    child: subprocess.Popen[bytes], folder: Path, after: float | None, interrupted: list[int]
) -> tuple[str, ...]:
    """Wait until the program ends, and return notes; after Ctrl-C or `after` seconds, dump it."""
    start = time.monotonic()
    while child.poll() is None:
        if interrupted or (after is not None and time.monotonic() - start >= after):
            why = "Ctrl-C" if interrupted else f"no end after {after:g} seconds"
            return _dump_now(child, folder, why, interrupted)
        # after a fault, the driver writes a dump, and ends the program when the dump is complete
        if _dumps(folder):
            break
        time.sleep(_LOOK_SECONDS)
    if _dumps(folder):
        _wait_for_dumps(child, folder, interrupted)
        _end(child)
    return ()


def _dumps(folder: Path) -> list[Path]:
    return sorted(folder.glob("core.*"))


def _is_whole(path: Path) -> bool:
    try:
        Dump.open(path)
    except tma.TmaError:
        return False
    return True


def _dump_now(
    child: subprocess.Popen[bytes], folder: Path, why: str, interrupted: list[int]
) -> tuple[str, ...]:
    """Request a dump from every process, wait until the files are complete, and return notes."""
    asked = 0
    # the driver makes a pipe for each process with a context; a byte in the pipe requests a dump
    for pipe in sorted(folder.glob("pipe.*")):
        # opening the pipe fails if the process has ended
        with suppress(OSError):
            end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(end, b"\n")
            os.close(end)
            asked += 1
    if not asked:
        child.terminate()
        _end(child)
        return (f"{why}; no process has a CUDA context, so there is nothing to dump",)
    _say(f"{why}: dumping {asked} {'process' if asked == 1 else 'processes'}")
    interrupted.clear()
    _wait_for_dumps(child, folder, interrupted)
    _end(child)
    return ()


def _wait_for_dumps(child: subprocess.Popen[bytes], folder: Path, interrupted: list[int]) -> None:
    """Wait until the dumps are complete or stop growing, or until Ctrl-C was pressed twice."""
    begun = grown = shown = time.monotonic()
    size, warned = -1, False
    while len(interrupted) < 2:
        now = time.monotonic()
        if interrupted and not warned:
            _say("the dump is not whole yet; Ctrl-C again gives it up")
            warned = True
        total = sum(path.stat().st_size for path in _dumps(folder))
        if total != size:
            size, grown = total, now
        has_ended, quiet = child.poll() is not None, now - grown
        # reading a dump takes time, so the dumps are read only if no more bytes are expected
        if has_ended or quiet > _SETTLED_SECONDS:
            dumps = _dumps(folder)
            is_whole = bool(dumps) and all(map(_is_whole, dumps))
            if is_whole or (has_ended and (not dumps or quiet > _ENDED_SECONDS)):
                return
        if (size > 0 and quiet > _QUIET_SECONDS) or now - begun > _MOST_SECONDS:
            return
        if now - shown > 2:
            _say(f"{size / 1e6:.1f} MB written")
            shown = now
        time.sleep(_LOOK_SECONDS)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait for a program to end; send SIGTERM after 3 seconds, and SIGKILL after 6 seconds."""
    for end in (child.terminate, child.kill):
        with suppress(subprocess.TimeoutExpired):
            child.wait(3)
            return
        end()
    child.wait()


def _read_all(folder: Path, read: Reader, keep: Path | None) -> tuple[PostMortem | None, list[str]]:
    found: list[PostMortem] = []
    notes: list[str] = []
    dumps = _dumps(folder)
    for path in dumps:
        kept = path
        if keep is not None:
            suffix = path.suffix if len(dumps) > 1 else ""
            kept = Path(shutil.move(path, keep.with_name(keep.name + suffix)))
        try:
            found.append(replace(read(Dump.open(kept)), path=kept.name))
        except tma.TmaError as error:
            notes.append(str(error).partition("\n")[0])
            if "cut off" in notes[-1]:
                notes.append(_CUT)
    return merged(found), notes


def merged(found: Sequence[PostMortem]) -> PostMortem | None:
    """Return the findings of several dumps as one `PostMortem`; return None for no dumps."""
    if len(found) < 2:
        return found[0] if found else None
    # equal faults, and equal states of a barrier, become one finding with the sum of their warps
    faults: dict[object, Fault] = {}
    for fault in (fault for one in found for fault in one.faults):
        known = faults.setdefault(fault.kind, replace(fault, alike=0))
        faults[fault.kind] = replace(known, alike=known.alike + fault.alike)
    barriers: dict[DeadBarrier, tuple[int, int]] = {}
    for barrier in (barrier for one in found for barrier in one.barriers):
        kind = replace(barrier, blocks=0, waiting=0)
        blocks, waiting = barriers.get(kind, (0, 0))
        barriers[kind] = blocks + barrier.blocks, waiting + barrier.waiting
    return PostMortem(
        path=", ".join(one.path for one in found),
        target=found[0].target,
        kernels=tuple(kernel for one in found for kernel in one.kernels),
        faults=tuple(faults.values()),
        barriers=tuple(replace(b, blocks=n, waiting=w) for b, (n, w) in barriers.items()),
        maps=tuple(one_map for one in found for one_map in one.maps),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def of_process(
    pid: int, read: Reader, *, keep: Path | None = None, with_global: bool = False
) -> PostMortem:
    """Dump a running process with cuda-gdb, and return the findings; the process continues."""
    debugger = driver.tool("cuda-gdb")
    if debugger is None:
        raise tma.TmaUnsupportedError(
            "--pid needs cuda-gdb, of the CUDA toolkit; without it, run the program by "
            "tma-dlpack postmortem -- PROGRAM"
        )
    with tempfile.TemporaryDirectory(prefix="tma_dlpack_core_", ignore_cleanup_errors=True) as name:
        path = Path(name) / f"core.{pid}"
        flags = _skipped(with_global)
        dump = f"generate-core-file --no-cpu --cuda-flags {flags} --cuda-core-file {path}"
        words = [debugger, "-q", "-batch", "-p", str(pid), "-ex", dump, "-ex", "detach"]
        done = programs.answer(words, _GDB_SECONDS)
        if not path.exists():
            raise tma.TmaUnsupportedError(_why_not(pid, done.stdout + done.stderr))
        if keep is not None:
            path = Path(shutil.move(path, keep))
        return replace(read(Dump.open(path)), path=path.name)


def _why_not(pid: int, talk: str) -> str:
    """Return the reason why cuda-gdb made no dump, according to its output."""
    if "No such process" in talk:
        return f"there is no process {pid}"
    if "ptrace" in talk or "not permitted" in talk:
        return (
            f"cuda-gdb may not attach to process {pid} (ptrace): run as its user, with "
            "/proc/sys/kernel/yama/ptrace_scope 0, in a container with --cap-add=SYS_PTRACE"
        )
    lines = [line for line in talk.splitlines() if line.strip()]
    return f"cuda-gdb made no dump of process {pid}; it said: {' | '.join(lines[-3:])}"
