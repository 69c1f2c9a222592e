"""The command `verify`; cli/table.py finds this file because its name is `commands.py`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tma_dlpack.verification.core import cli, tma


@cli.command(
    "compare this package with the driver and GPU of this machine",
    cli.option("-n", "random inputs per check; default 1000", type=cli.integer, default=1000),
    cli.option("--seed", "seed of the random inputs; default 0", type=cli.integer, default=0),
    cli.option("--device", "index of the GPU; default 0", type=cli.integer, default=0),
    cli.out("write all cases and results to FILE, compressed if it ends in .gz"),
    cli.option("--read", "read such a file instead; - is standard input; no GPU", metavar="FILE"),
    cli.option("--target", "compare what was read with this target; default: its own"),
    cli.JSON,
    heading=cli.MACHINE,
    examples=("verify -n 200", "verify --out found.json.gz"),
    status="0 no difference; 1 differences; 2 nothing to compare with (no driver or GPU), or wrong "
    "use",
)
def _verify(options: argparse.Namespace) -> int:

    # `verify` writes its file to a path. If this path is standard output, write the report to
    # standard error.
    out = Path("/dev/stdout") if options.out == cli.STDOUT else options.out
    if options.read is not None:
        from tma_dlpack.verification import learning

        source = Path("/dev/stdin" if options.read == "-" else options.read)
        source.stat()  # Raise an error if the file does not exist.
        report = learning.Findings.read(source).against(options.target)
    else:
        try:
            report = tma.verify(options.n, options.seed, device_id=options.device, out=out)
        except tma.TmaUnsupportedError as missing:  # No driver, no GPU with TMA, or no NVRTC.
            cli.failure(sys.stdout, options.json, str(missing))
            return cli.EXIT_NOTHING
    if options.out == cli.STDOUT:
        cli.write(sys.stderr, f"{report}\n")
    else:
        cli.show(options, report)
    return cli.EXIT_OK if report.ok else cli.EXIT_REFUSED
