"""Explanations why a wait at an mbarrier never ends. `ROWS` has a row for each explanation.

The first row whose condition holds explains the wait. `postmortem` reads the state of a barrier
from a core dump, and the simulator of kernels passes the state of its simulated barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, Final, NamedTuple, Protocol

from tma_dlpack.tables.coerce import counted

# `copies` tries at most _MOST_COPIES copies of each size, and at most _MOST_MAPS sizes.
_MOST_COPIES, _MOST_MAPS = 4, 4


class Word(Protocol):
    """The state of an mbarrier.

    `count` is the number of arrivals that each phase expects. `arrivals` and `bytes` are the
    numbers of arrivals and of bytes that are pending in the current phase. `bytes` is negative if
    copies completed before expect_tx announced their bytes.
    """

    count: int
    arrivals: int
    bytes: int
    phase: int
    is_initialised: bool


class Stuck(Protocol):
    """A barrier at which threads wait.

    `announced` is the number of bytes that each phase expects, or None if it is not known. `maps`
    are the maps of the launch; each has `tx_bytes`. `here` has all other barriers of the same block
    at which threads wait. `far` has the addresses of the barriers in other blocks of the cluster at
    which threads wait.

    `came` is the number of arrivals that happened in this phase, and `elsewhere` has the addresses
    of the barriers in `here`. `is_behind`: bytes came from another block of the cluster, whose own
    barrier is already armed. `is_ahead`: another block, which sends bytes to this barrier, must
    still arm its own barrier. `is_untouched`: no thread has arrived in this phase. `is_first`: no
    barrier of the kernel has completed a phase. `passed` is the number of warps that have passed
    the wait although warps of their warpgroups still wait, and `ended` is the number of warps of
    the block that have ended.
    """

    # Common interface of `postmortem.survey.State` and the simulator's barriers.
    word: Word
    announced: int | None
    maps: Iterable[Any]
    far: set[int]
    came: int
    elsewhere: set[int]
    here: Mapping[Any, Any]
    is_behind: bool
    is_ahead: bool
    is_untouched: bool
    is_first: bool
    passed: int
    ended: int


# -- bytes ----------------------------------------------------------------------------------------


def copies(bytes_: int, maps: Iterable[Any]) -> str:
    """Return copies whose bytes add up to `bytes_`, such as "2 x 8,192 + 1 x 4,096".

    Return "" if no copies add up to this number.
    """
    # Use only the largest sizes, and try the sums of the fewest copies first.
    sizes = sorted({found.tx_bytes for found in maps}, reverse=True)[:_MOST_MAPS]
    for counts in sorted(product(range(_MOST_COPIES + 1), repeat=len(sizes)), key=sum):
        if bytes_ and sum(n * size for n, size in zip(counts, sizes, strict=True)) == bytes_:
            used = [(n, size) for n, size in zip(counts, sizes, strict=True) if n]
            return " + ".join(f"{n} x {size:,}" for n, size in used)
    return ""


def _whole(bytes_: int, maps: Iterable[Any]) -> str:
    """Return the result of `copies` in brackets; "" if no copies add up."""
    made_of = copies(bytes_, maps)
    return f" ({made_of})" if made_of else ""


def _one_copy(maps: Iterable[Any]) -> str:
    sizes = dict.fromkeys(f"{found.tx_bytes:,}" for found in maps)
    if not sizes:
        return "no map is among the parameters"
    return f"one copy by a map of this launch is {' or '.join(sizes)} bytes"


def _missing(state: Stuck) -> str:
    pending, announced = state.word.bytes, state.announced
    text = f"every thread arrived, and {pending:,} bytes are missing"
    if announced is not None and announced >= pending:
        came = announced - pending
        text = f"{announced:,} bytes are expected, {came:,} came, and {pending:,} are missing"
    # If a copy was not issued, the missing bytes are the bytes of one or more whole copies. Any
    # other number of missing bytes means that the number in expect_tx is wrong.
    made_of = copies(pending, state.maps)
    if state.maps:
        text += f" ({made_of}: whole copies)" if made_of else " (no whole copies)"
    return text


def _arrivals(count: int, state: Stuck) -> str:
    return f"{count} of {counted(state.word.count, 'arrival')}"


def _where(addresses: Iterable[int]) -> str:
    return " and ".join(f"{address:#x}" for address in sorted(addresses))


# -- messages -------------------------------------------------------------------------------------


def _of_another_block(state: Stuck) -> str:
    where = f": its warps wait at {_where(state.far)}" if state.far else ""
    return (
        f"{_missing(state)}; another block of the cluster, whose copies these may be, has not "
        f"armed its own barrier here{where}"
    )


def _some_arrived(state: Stuck) -> str:
    pending = state.word.arrivals
    more = f", and {state.word.bytes:,} bytes are missing" if state.word.bytes else ""
    elsewhere = ""
    if state.here:
        where = _where(state.elsewhere)
        elsewhere = f", perhaps of warps that wait at {where}, a stage or a parity off"
    return (
        f"{_arrivals(state.came, state)} came{more}: it was initialised for {pending} too many, or "
        f"{counted(pending, 'arrival')} of this phase never happened{elsewhere}"
    )


def _cycle(state: Stuck) -> str:
    came = ""
    if state.is_behind:
        came = f" ({-state.word.bytes:,} bytes of another block's copies came)"
    return (
        f"a cycle: nobody has arrived here in this phase{came}, and warps of the same blocks wait "
        f"at {_where(state.elsewhere)}, where nobody has arrived either"
    )


def _follows(state: Stuck) -> str:
    came = f"{_arrivals(state.came, state)} came" if state.came else "nobody has arrived"
    where = _where(state.elsewhere)
    return f"{came} in this phase: the warps that would may be those that wait at {where}"


class Row(NamedTuple):
    """An explanation of a wait that never ends: id of the rule, condition, message and fix."""

    rule: str
    holds: Callable[[Any], bool]
    message: Callable[[Any], str]
    fix: str


def _is_cycle(state: Stuck) -> bool:
    # Each barrier needs arrivals of warps that wait at another barrier, so no warp can continue.
    others = state.here.values()
    return state.is_untouched and bool(others) and all(other.is_untouched for other in others)


# The order matters: a row assumes that the conditions of all rows above it are false.
ROWS: Final = (
    Row(
        "BARRIER_INIT", lambda s: not s.word.is_initialised,
        lambda s: "it was never initialised: its count is 0",
        "initialise it in one thread, then fence.mbarrier_init and a barrier of the block",
    ),
    Row(
        "HANG_BYTES", lambda s: s.word.bytes < 0 and not s.word.arrivals,
        lambda s: f"every thread arrived, and {-s.word.bytes:,} bytes came that nobody announced: "
        f"the copies have more bytes than it expects; {_one_copy(s.maps)}",
        "announce exactly the bytes of the copies of a phase: tx_bytes of each map, out-of-bounds "
        "elements included",
    ),
    Row(
        "HANG_NOT_ANNOUNCED", lambda s: s.word.bytes < 0 and not s.is_behind,
        lambda s: f"{-s.word.bytes:,} bytes came{_whole(-s.word.bytes, s.maps)} that nobody "
        f"announced, and {_arrivals(s.word.arrivals, s)} did not happen: no thread ran "
        "mbarrier.arrive.expect_tx",
        "let one thread run mbarrier.arrive.expect_tx with the bytes of its copies, for each phase",
    ),
    Row(
        "HANG_FOLLOWS",
        lambda s: not s.word.arrivals and s.is_ahead and bool(copies(s.word.bytes, s.maps)),
        _of_another_block,
        "correct what that block waits for first",
    ),
    Row(
        "HANG_NO_COPY",
        lambda s: s.word.arrivals == 0 and s.word.bytes == s.announced,
        lambda s: f"armed for {s.word.bytes:,} bytes{_whole(s.word.bytes, s.maps)}, and none came: "
        f"no copy was issued, or it completes on another barrier; {_one_copy(s.maps)}",
        "issue the copy after arming, on this barrier",
    ),
    Row(
        "HANG_BYTES", lambda s: s.word.arrivals == 0 and s.word.bytes > 0,
        lambda s: f"{_missing(s)}; {_one_copy(s.maps)}",
        "announce exactly the bytes of the copies of a phase: tx_bytes of each map, out-of-bounds "
        "elements included; or issue the copy that is missing",
    ),
    Row(
        "HANG_MISSED", lambda s: s.passed > 0,
        lambda s: f"{counted(s.passed, 'warp')} of the same warpgroups went on to a wgmma, which "
        "needs all four: if they pass this wait too, their phase ended, and the next began before "
        "the others looked",
        "let each wait name the stage and the parity that its copies arm, and let a stage be "
        "filled again only when every warp that reads it has arrived",
    ),
    Row(
        "HANG_FOLLOWS",
        lambda s: s.word.arrivals > 0 and any(other.passed for other in s.here.values()),
        _follows,
        "correct what those wait for first",
    ),
    Row(
        "HANG_ARRIVALS", lambda s: 0 < s.word.arrivals < s.word.count or s.word.bytes > 0,
        _some_arrived,
        "initialise it with the number of arrivals of a phase, or let every thread arrive",
    ),
    Row(
        "HANG_CYCLE", lambda s: _is_cycle(s) and s.is_first,
        lambda s: f"{_cycle(s)}; no phase need ever have ended",
        "let the producer's first wait for an empty stage be with parity 1: a fresh barrier lets "
        "parity 1 pass, and holds parity 0",
    ),
    Row(
        "HANG_CYCLE", _is_cycle,
        lambda s: f"{_cycle(s)}; some barrier has been through a phase",
        "let each consumer arrive at the stage's empty barrier when it has read it, in each block "
        "that writes there, and the producer at the full one, in every phase; flip the parity "
        "where the ring begins again, the consumers' from 0, the producer's from 1",
    ),
    Row("HANG_FOLLOWS", lambda s: bool(s.here), _follows, "correct what those wait for first"),
    Row(
        "HANG_ENDED", lambda s: s.ended > 0,
        lambda s: f"{_arrivals(s.word.arrivals, s)} are missing, and no warp is left to arrive: "
        f"{counted(s.ended, 'warp')} of a block ended before that",
        "let the warps that read a stage arrive at its barrier before they return",
    ),
    Row(
        "HANG_PARITY", lambda s: s.word.phase == 1,
        lambda s: "the phase of parity 0 has ended and nobody has arrived since: the wait names "
        "the other parity, or the next arrival and copy were never issued",
        "flip the parity after each phase, from 0; or issue the arrival and the copy",
    ),
    Row(
        "HANG_NOBODY_ARRIVED", lambda s: True,
        lambda s: "nobody has arrived in this phase, and no byte is announced",
        "arm it: mbarrier.arrive.expect_tx, then the copy; or arrive",
    ),
)  # fmt: skip
