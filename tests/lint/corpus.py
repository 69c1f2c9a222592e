"""Lint every PTX file in a folder, and print a table: python tests/lint/corpus.py FOLDER.

The user provides the folder: PTX of public kernels, which are not part of the repository.
Only kernels with bulk copies count. A finding that several kernels share is one line.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import tma_dlpack as tma
from tma_dlpack.debug.lint.rules import SEVERITIES
from tma_dlpack.ptx import parse as ptx


def has_bulk_copies(function: ptx.Function) -> bool:
    return any(code.opcode.startswith(("cp.async.bulk", "cp.reduce")) for code in function.code)


def main(folder: Path) -> None:
    total: Counter[str] = Counter()
    megabytes = took = 0.0
    print("| file | MB | s | kernels with TMA | errors | warnings | notes |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("*.ptx")):
        functions = ptx.parse(path.read_text("utf-8", "replace")).functions
        kernels = sum(function.is_entry and has_bulk_copies(function) for function in functions)
        begun = time.perf_counter()
        report = tma.lint(path, notes=True)
        seconds = time.perf_counter() - begun
        found = {name: Counter[str]() for name in SEVERITIES}
        for finding in report.findings:
            found[finding.severity][finding.rule] += 1
        words = [
            ", ".join(f"{rule} {count}" for rule, count in sorted(rules.items())) or "-"
            for rules in found.values()
        ]
        size = path.stat().st_size / 1e6
        print(f"| {path.stem} | {size:.1f} | {seconds:.2f} | {kernels} | {' | '.join(words)} |")
        megabytes, took = megabytes + size, took + seconds
        total.update({"files": 1, "kernels": kernels, "errors": len(found["error"])})
        for note in report.notes:
            print(f"| | | | | {note[:80]} | |")
    print(f"\n{total['kernels']} kernels in {total['files']} files")
    print(f"{megabytes:.1f} MB in {took:.1f} s, {megabytes / took:.1f} MB/s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
