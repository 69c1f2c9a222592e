"""The results of random calls, written to a file and compared after a change.

    python tests/snapshot.py write FILE [CALLS]    record: CALLS is 4,000 if omitted
    python tests/snapshot.py compare FILE          run the calls of FILE again, print differences
    python tests/snapshot.py digest [CALLS]        print one hash of all results

A row is one call: its report as text, `fixed()`, the bytes and attributes of the map, the text of
its pictures and a hash of its HTML (every 16th accepted call), the report of `explain` for the
printed arguments (every 16th), a mirror call of the driver (every 4th), and a command (every 64th).
Tensors are at a fixed address, so that rows do not depend on addresses of memory. Add `pure` as the
last word to run without the C extension.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import io
import itertools
import json
import random
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__" and sys.argv[-1] == "pure":
    import python_lane  # noqa: F401 # hides the extension

import random_requests
from random_requests import request_at_random

import tma_dlpack as tma
from tma_dlpack.cli.main import main as command
from tma_dlpack.verification.random_copies import random_call

Row = dict[str, Any]

#: The address of the tensors: 4 pages that no allocator uses.
ADDRESS, POOL_BYTES = 0x5A_0000_0000, 4 * 4096
_READ_WRITE, _PRIVATE, _ANONYMOUS, _FIXED = 3, 0x2, 0x20, 0x100000

CHECKS = {
    "tiled": tma.check_tma_descriptor,
    "im2col": tma.check_im2col_descriptor,
    "im2col_wide": tma.check_im2col_wide_descriptor,
}
MAKES = {
    "tiled": tma.make_tma_descriptor,
    "im2col": tma.make_im2col_descriptor,
    "im2col_wide": tma.make_im2col_wide_descriptor,
}
ENCODES = {
    "tiled": tma.driver_encode_tiled,
    "im2col": tma.driver_encode_im2col,
    "im2col_wide": tma.driver_encode_im2col_wide,
}
ATTRIBUTES = (
    "kind", "rank", "data_type", "global_address", "global_dim", "global_strides", "box_dim",
    "element_strides", "interleave", "swizzle", "l2_promotion", "oob_fill", "shape", "strides",
    "box_sizes", "elem_strides", "tx_bytes", "smem_bytes", "smem_alignment", "split_inner",
    "ragged", "channels_per_pixel", "pixels_per_column", "pixel_box_lower_corner",
    "pixel_box_upper_corner", "launchable", "encoder",
)  # fmt: skip
_DTYPES = ("float16", "float32", "uint8", "bfloat16", "float8_e4m3fn")
_SWIZZLES = ("none", "bytes32", "bytes64", "bytes128")


def at_a_fixed_address() -> None:
    """Put the pool of `random_requests` at `ADDRESS`, which is equal in all processes."""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = _PRIVATE | _ANONYMOUS | _FIXED
    found = mmap(ADDRESS, POOL_BYTES, _READ_WRITE, flags, -1, 0)
    if found != ADDRESS:
        raise OSError(ctypes.get_errno(), f"no memory could be mapped at {ADDRESS:#x}")
    memory = (ctypes.c_uint8 * POOL_BYTES).from_address(ADDRESS)
    random_requests._POOL = np.frombuffer(memory, np.uint8)
    random_requests._START = 0


def rows(seeds: range) -> Iterator[Row]:
    """Yield a row for each seed that draws a call."""
    at_a_fixed_address()
    for seed in seeds:
        rng = random.Random(seed)
        asked = request_at_random(rng)
        if asked is None:
            continue
        row: Row = {"seed": seed, "kind": asked.kind, "given": _words(asked.given)}
        row |= _checked(CHECKS[asked.kind], asked)
        if row["ok"]:
            row |= _made(asked, with_pictures=seed % 16 == 0)
        if seed % 4 == 0:
            row["mirror"] = _mirrored(rng)
        if seed % 16 == 1:
            row["explained"] = str(tma.explain(_printed(random_call("tiled", rng))))
        if seed % 64 == 2:
            row["command"] = _commanded(rng)
        yield row


def _checked(check: Any, asked: Any) -> Row:
    x = asked.tensor
    report = check(x, **asked.given)
    findings = [*report.violations, *report.advice]
    fixed = None if report.ok else report.fixed()
    return {
        "ok": report.ok,
        "text": str(report),
        "findings": [[f.rule, f.argument, f.found, f.limit, f.fix, f.source] for f in findings],
        "fixed": None if fixed is None else _words(fixed),
    }


def _words(keywords: Row) -> list[str]:
    """Return keyword arguments as text, with sorted sets, whose order differs per process."""
    plain = {k: sorted(v) if isinstance(v, set | frozenset) else v for k, v in keywords.items()}
    return sorted(f"{name}={value!r}" for name, value in plain.items())


def _made(asked: Any, with_pictures: bool) -> Row:
    made = MAKES[asked.kind](asked.tensor, **asked.given)
    row: Row = _of_map(made)
    if with_pictures:
        row["html"] = hashlib.sha256(made._repr_html_().encode()).hexdigest()
        for name in ("bytes", "shared", "tensor"):
            with contextlib.suppress(tma.TmaError):
                row[name] = str(tma.draw.figure(made, name))
        with contextlib.suppress(tma.TmaError):
            tile = tma.load_tile(made, (0,) * made.rank)
            row["tile"] = hashlib.sha256(tile.smem.tobytes()).hexdigest()
    return row


def _of_map(made: Any) -> Row:
    has = [name for name in ATTRIBUTES if hasattr(made, name)]
    row: Row = {name: repr(getattr(made, name)) for name in has}
    row["map"] = repr(made)
    row["advice"] = [str(a) for a in made.advice]
    with contextlib.suppress(tma.TmaError):
        row["encoded"] = bytes(made).hex()
    with contextlib.suppress(tma.TmaError):
        row["cpp"] = made.cpp()
    return row


def _mirrored(rng: random.Random) -> Row | str:
    kind = rng.choice(tuple(ENCODES))
    target = rng.choice((None, None, "sm_100", "sm_120"))
    try:
        given = {} if target is None else {"target": target}
        return _of_map(ENCODES[kind](**random_call(kind, rng), **given))
    except tma.TmaError as error:
        return str(error)


def _printed(call: Row) -> str:
    """Return a call in the form in which CUTLASS prints a refused call."""
    named = tma.TensorMapDataType[call["tensor_data_type"]].value
    words = {
        "format": named,
        "dim": call["tensor_rank"],
        "gmem_address": f"{call['global_address']:#x}",
        "globalDim": _listed(call["global_dim"]),
        "globalStrides": _listed((0, *call["global_strides"])),
        "boxDim": _listed(call["box_dim"]),
        "elementStrides": _listed(call["element_strides"]),
        "interleave": call["interleave"],
        "swizzle": call["swizzle"],
        "l2Promotion": call["l2_promotion"],
        "oobFill": call["oob_fill"],
    }
    lines = ["TMA Desc Addr:   0x7ffc1f0a2d40", *(f"{k:14} {v}" for k, v in words.items())]
    return "\n".join([*lines, "Error: Failed to initialize the TMA descriptor 1", ""])


def _listed(numbers: Any) -> str:
    five = itertools.islice(itertools.chain(numbers, itertools.repeat(1)), 5)
    return f"({','.join(map(str, five))})"


def _commanded(rng: random.Random) -> Row:
    shape = f"{rng.choice((64, 100, 4096))},{rng.choice((24, 64, 1000))}"
    box = f"{rng.choice((8, 64, 300))},{rng.choice((8, 64, 63))}"
    dtype, swizzle = rng.choice(_DTYPES), rng.choice(_SWIZZLES)
    line = rng.choice(
        (
            f"check --shape {shape} --dtype {dtype} --box {box} --swizzle {swizzle}",
            f"check --shape {shape} --dtype {dtype} --box {box} --swizzle {swizzle} --json",
            f"suggest --shape {shape} --dtype {dtype} --tile 64,64",
            f"draw --shape {shape} --dtype {dtype} --box {box} --swizzle {swizzle}",
            "rules box",
        )
    )
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command(shlex.split(line))
        except SystemExit as end:
            status = end.code
    return {"line": line, "status": status, "out": out.getvalue(), "err": err.getvalue()}


def differences(before: Row, after: Row) -> Iterator[str]:
    """Yield one line for each changed entry of a row."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            was, now = (json.dumps(r.get(name), indent=1) for r in (before, after))
            yield f"call {before['seed']}, {name}:\n  was {was}\n  now {now}"


def _read(path: Path) -> Iterator[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, calls: int) -> None:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for row in rows(range(calls)):
            file.write(json.dumps(row) + "\n")


def compare(path: Path, most_shown: int = 20) -> int:
    """Run the calls of a file again, print the first differences, and return the number of all."""
    before = {row["seed"]: row for row in _read(path)}
    count = 0
    for row in rows(range(max(before) + 1)):
        plain = json.loads(json.dumps(row))
        for line in differences(before.pop(row["seed"], {"seed": row["seed"]}), plain):
            count += 1
            if count <= most_shown:
                print(line)
    print(f"{count} differences; {len(before)} calls are missing")
    return count + len(before)


def digest(calls: int) -> str:
    """Return one hash of the results of the first calls."""
    hashed = hashlib.sha256()
    for row in rows(range(calls)):
        hashed.update(json.dumps(row).encode())
    return hashed.hexdigest()


if __name__ == "__main__":
    verb, *words = [word for word in sys.argv[1:] if word != "pure"]
    if verb == "digest":
        print(digest(int(words[0]) if words else 4000))
    elif verb == "write":
        write(Path(words[0]), int(words[1]) if words[1:] else 4000)
    else:
        sys.exit(compare(Path(words[0])) != 0)
