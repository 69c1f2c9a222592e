"""Commands about this installation and its GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tma_dlpack.cli import output
from tma_dlpack.cli.common import integer
from tma_dlpack.cli.output import JSON, show
from tma_dlpack.cli.table import (
    EXIT_NOTHING,
    EXIT_OK,
    EXIT_REFUSED,
    PRINTED,
    command,
    option,
)


@command(
    "make a map, copy a tile, see a refusal; needs no GPU",
    examples=("demo",),
    status=PRINTED,
)
def _demo(options: argparse.Namespace) -> int:
    import numpy as np

    import tma_dlpack as tma
    from tma_dlpack.tensor_map import text

    x = np.arange(128 * 64, dtype=np.float16).reshape(128, 64)
    _say('tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")')
    print("   # x: NumPy float16 (128, 64)")
    tm = tma.make_tma_descriptor(x, box_sizes=(16, 64), swizzle="bytes128")
    print(tm)
    print(f"\nits 128 bytes (encoder: {tm.encoder}):")
    print("\n".join(text.hex_lines(bytes(tm))))

    _say("tma.load_tile(tm, (120, 0)).array   # rows 120..135 of 128: half is out of bounds")
    tile = tma.load_tile(tm, (120, 0))
    filled = int(tile.filled.sum())
    same = np.array_equal(tile.array[:8], x[120:])
    print(f"{tile.array.shape}: {tile.array.size - filled} elements copied, {filled} filled")
    print(f"its first 8 rows equal x[120:]: {same}")

    y = np.zeros((4, 1733), dtype=np.float16)
    _say('tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")')
    print("   # y: NumPy float16 (4, 1733)")
    try:
        tma.make_tma_descriptor(y, box_sizes=(4, 300), swizzle="bytes128")
    except tma.TmaPreconditionError as error:
        print(f"TmaPreconditionError: {len(error.violations)} violations\n{error}")
    return EXIT_OK


def _say(code: str) -> None:
    print(f"\n>>> {code}")


@command(
    "compare this package with the driver and GPU of this machine",
    option("-n", "random inputs per check; default 1000", type=integer, default=1000),
    option("--seed", "seed of the random inputs; default 0", type=integer, default=0),
    option("--device", "index of the GPU; default 0", type=integer, default=0),
    output.out("write all cases and results to FILE, compressed if it ends in .gz"),
    option("--read", "read such a file instead; - is standard input; no GPU", metavar="FILE"),
    option("--target", "compare what was read with this target; default: its own"),
    JSON,
    examples=("verify -n 200", "verify --out found.json.gz"),
    status="0 no difference; 1 differences; 2 nothing to compare with (no driver or GPU), or wrong "
    "use",
)
def _verify(options: argparse.Namespace) -> int:
    import tma_dlpack as tma

    out = Path("/dev/stdout") if options.out == output.STDOUT else options.out
    if options.read is not None:
        from tma_dlpack.verification import learning

        source = Path("/dev/stdin" if options.read == "-" else options.read)
        source.stat()  # raises where there is none
        report = learning.Findings.read(source).against(options.target)
    else:
        try:
            report = tma.verify(options.n, options.seed, device_id=options.device, out=out)
        except tma.TmaUnsupportedError as missing:  # no driver, no GPU with TMA, no NVRTC
            output.failure(sys.stdout, options.json, str(missing))
            return EXIT_NOTHING
    if options.out == output.STDOUT:
        output.write(sys.stderr, f"{report}\n")
    else:
        show(options, report)
    return EXIT_OK if report.ok else EXIT_REFUSED


@command(
    "list what is installed, and whether the driver or the model encodes",
    JSON,
    examples=("doctor",),
    status=PRINTED,
)
def _doctor(options: argparse.Namespace) -> int:
    from tma_dlpack.cli import doctor

    facts = doctor.facts()
    show(options, facts, doctor.report(facts))
    return EXIT_OK


@command(
    "print the folder of the C and C++ headers",
    examples=("include",),
    status=PRINTED,
)
def _include(options: argparse.Namespace) -> int:
    import tma_dlpack as tma

    print(tma.get_include())
    return EXIT_OK


@command(
    "print the script by which a shell completes commands, flags and values",
    option("shell", "whose script", values=("bash", "zsh", "fish"), closed=True),
    examples=("completion bash", "completion zsh", "completion fish"),
    status=PRINTED,
    more='bash: add eval "$(tma-dlpack completion bash)" to ~/.bashrc. zsh: the same, with zsh, to '
    "~/.zshrc, after compinit. fish: write it to ~/.config/fish/completions/tma-dlpack.fish.",
)
def _completion(options: argparse.Namespace) -> int:
    from tma_dlpack.cli.completion import script

    sys.stdout.write(script(options.shell))
    return EXIT_OK
