"""Change one instruction of a kernel at a time, and ask whether `lint` finds the mutant.

    python tests/lint/mutate.py [KERNEL...] [--judge judge.json] [--ptx FILE]
    python tests/lint/mutate.py --on-card 60 [--seed 0]

The kernels are those of tests/kernel_cases.py. `tma.run_kernel` decides whether a mutant is wrong.
The file of `--judge` stores these verdicts, because they take minutes. `--ptx` accepts any PTX,
without verdicts of `tma.run_kernel`. The instructions of one source line are changed together, as a
mistake in the source would do. `--on-card` draws mutants, and also runs each on the GPU, in a
separate process, because a mutant may hang or fault. A race that the simulator reports need not
change a result on the card.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_cases import BLACKWELL, CASES, Case

import tma_dlpack as tma
from tma_dlpack.kernel.compile import compile_kernel
from tma_dlpack.ptx import parse as ptx


class Change(NamedTuple):
    """A change of the instructions that match a pattern; `{0}`... are the pattern's groups."""

    name: str
    pattern: str
    new: str


_AWAIT = (
    r"(mbarrier\.(?:try|test)_wait\.parity\S*\s+[\w%]+\s*,\s*\[[^\]]*\]\s*,\s*)([\w%]+)([^;]*;)"
)
_EXPECT = r"(mbarrier\.arrive\.expect_tx[^;]*,\s*)([\w%]+)\s*;"
_CHANGED = "{{ .reg .b32 changed; "
#: A deleted wait reports immediately that its phase has ended.
CHANGES = tuple(
    Change(*row)
    for row in (
        ("delete the proxy fence", r"fence\.proxy\.async\S*;", ""),
        ("delete the map's fence", r"fence\.proxy\.tensormap[^;]*;", ""),
        ("delete the fence of the init", r"fence\.mbarrier_init[^;]*;", ""),
        ("delete the wait", r"mbarrier\.(?:try|test)_wait\S*\s+([\w%]+)\s*,[^;]*;",
         "setp.eq.b32 {1}, 0, 0;"),
        ("flip the parity", _AWAIT, _CHANGED + "xor.b32 changed, {2}, 1; {1}changed{3} }}"),
        ("make the parity constant", _AWAIT, "{1}0{3}"),
        ("delete the arrival", r"mbarrier\.arrive(?!\.expect)[^;]*;", ""),
        ("delete arrival and bytes", r"mbarrier\.arrive\.expect_tx[^;]*;", ""),
        ("delete the bytes", r"(mbarrier\.arrive)\.expect_tx(\S*\s+[\w%]+\s*,\s*\[[^\]]*\])[^;]*;",
         "{1}{2};"),
        ("expect half of the bytes", _EXPECT, _CHANGED + "shr.u32 changed, {2}, 1; {1}changed; }}"),
        ("expect twice the bytes", _EXPECT, _CHANGED + "shl.b32 changed, {2}, 1; {1}changed; }}"),
        ("count one more", r"(mbarrier\.init[^;]*,\s*)([\w%]+)\s*;",
         _CHANGED + "add.u32 changed, {2}, 1; {1}changed; }}"),
        *((f"delete {name}", pattern, "") for name, pattern in (
            ("the commit", r"cp\.async\.bulk\.commit_group\s*;"),
            ("the wait for stores", r"cp\.async\.bulk\.wait_group[^;]*;"),
            ("the block's barrier", r"(?:bar|barrier\.cta)\.(?:sync|arrive)\b[^;]*;"),
            ("the cluster's barrier", r"barrier\.cluster\.(?:arrive|wait)[^;]*;"),
            ("wgmma.fence", r"wgmma\.fence[^;]*;"),
            ("wgmma.commit_group", r"wgmma\.commit_group[^;]*;"),
            ("wgmma.wait_group", r"wgmma\.wait_group[^;]*;"),
            ("tcgen05.commit", r"tcgen05\.commit[^;]*;"),
            ("tcgen05.wait", r"tcgen05\.wait[^;]*;"),
            ("tcgen05.fence", r"tcgen05\.fence[^;]*;"),
            ("tcgen05.dealloc", r"tcgen05\.dealloc[^;]*;"),
        )),
    )
)  # fmt: skip


class Mutant(NamedTuple):
    """A changed PTX text, the change, and the place of the changed instructions."""

    change: str
    place: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.change}, {self.place}"


def mutants(text: str, entry: str) -> Iterator[Mutant]:
    """Return the mutants of one kernel of a file."""
    lines = text.splitlines(keepends=True)
    function = next(f for m in ptx.modules(text) for f in m.functions if f.name == entry)
    for change in CHANGES:
        pattern = re.compile(change.pattern)
        places: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for code in function.code:
            if pattern.search(lines[code.line - 1]):
                places[code.place or (code.line,)].append(code.line)
        for place, numbers in places.items():
            mutated = list(lines)
            for number in set(numbers):
                line = mutated[number - 1]
                found = pattern.search(line)
                assert found is not None
                new = change.new.format(found[0], *found.groups())
                mutated[number - 1] = line[: found.start()] + new + line[found.end() :]
            at = " < ".join(f"{Path(str(f)).name}:{n}" for f, n in place) if code.place else place
            yield Mutant(change.name, str(at), "".join(mutated))


def found_by_lint(text: str, entry: str, maps: list[tma.TensorMap]) -> set[tuple[str, str]]:
    """Return rule and severity of each finding of lint in the kernel."""
    findings = tma.lint(text, maps=maps or None).findings
    return {(f.rule, f.severity) for f in findings if f.kernel == entry}


def cases(names: list[str]) -> Iterator[tuple[str, Callable[[], Case], str, str]]:
    """Return the kernels of these names (all for an empty list): case, PTX and name in it."""
    for name, make in {**CASES, **BLACKWELL}.items():
        if not names or name in names:
            case = make()
            options = (*case.keywords.get("options", ()), "-lineinfo")
            target = case.keywords.get("target", "sm_90")
            made = compile_kernel(case.source, case.name, options, target)
            yield name, make, made.ptx, made.kernel


def judged(case: Case, text: str, entry: str) -> str:
    """Return the rules that run_kernel finds, "wrong result", or "" for a right mutant."""
    keywords = {k: v for k, v in case.keywords.items() if k != "options"}
    try:
        run = tma.run_kernel(text, entry, schedules=3, max_steps=400_000, **keywords)
    except tma.TmaError as error:
        return f"refused: {error}"[:60]
    except Exception as error:
        return f"run_kernel failed: {error!r}"[:80]
    rules = sorted({f.rule for f in run.findings if f.severity == "error"})
    if not rules and any((got != expected).any() for got, expected in case.results):
        return "wrong result"
    return ", ".join(rules)


_SECONDS_ON_CARD = 40  # about 5 for a right kernel; more on a shared GPU


def run_on_card(name: str, path: str, entry: str) -> str:
    """Run a mutant of a case on the GPU ten times; return the error, "" if there is none."""
    for _ in range(10):
        case = CASES[name]()
        keywords = {k: v for k, v in case.keywords.items() if k != "options"}
        try:
            tma.run_kernel(Path(path).read_text(), entry, backend="cuda", **keywords)
        except Exception as error:  # any error is the result
            code = re.search(r"CUDA_ERROR_\w+", str(error))
            return code[0] if code else f"{type(error).__name__}: {error}"[:60]
        if any((got != expected).any() for got, expected in case.results):
            return "wrong result"
    return ""


def on_card(name: str, mutant: Mutant, entry: str) -> str:
    """Return the result of a mutant on the GPU, from a separate process."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(mutant.text)
        file.flush()
        command = [sys.executable, __file__, "--run", name, file.name, entry]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS_ON_CARD, check=True
            )
        except subprocess.TimeoutExpired:
            return "hang"
        except subprocess.CalledProcessError as error:
            return f"process ended with {error.returncode}"
    return done.stdout.strip()


def verdicts(drawn: tuple[str, Mutant, str, str]) -> tuple[str, str, str]:
    """Return the findings of the simulator, `lint` and the GPU in a mutant; "" means no finding."""
    name, mutant, text, entry = drawn
    case = CASES[name]()
    maps = [arg for arg in case.keywords["args"] if isinstance(arg, tma.TensorMap)]
    new = found_by_lint(mutant.text, entry, maps) - found_by_lint(text, entry, maps)
    rules = ", ".join(sorted({rule for rule, _ in new}))
    return judged(case, mutant.text, entry), rules, on_card(name, mutant, entry)


def sample_on_card(number: int, seed: int) -> None:
    """Print the results of drawn mutants in the simulator, in `lint` and on the GPU."""
    every = [
        (name, mutant, text, entry)
        for name, _, text, entry in cases(list(CASES))
        for mutant in mutants(text, entry)
    ]
    drawn = random.Random(seed).sample(every, number)
    counts: Counter[tuple[str, ...]] = Counter()
    print("| kernel | mutant | simulator | lint | card |")
    print("|---|---|---|---|---|")
    with ProcessPoolExecutor(8, multiprocessing.get_context("spawn")) as pool:
        for (name, mutant, *_), found in zip(drawn, pool.map(verdicts, drawn), strict=True):
            print(f"| {name} | {mutant.name} | {' | '.join(found)} |", flush=True)
            counts[tuple("wrong" if words else "right" for words in found)] += 1
    for (simulator, lint, card), count in sorted(counts.items()):
        print(f"{count}: {simulator} in the simulator, {lint} for lint, {card} on the card")


def table(rows: list[tuple[str, Mutant, str | None, set[tuple[str, str]]]]) -> str:
    """Return the counts by kernel and by change, then the wrong mutants that lint misses."""
    lines = []
    for title, key in (("kernel", lambda r: r[0]), ("change", lambda r: r[1].change)):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            found = bool(row[3])
            wrong = {None: "unjudged", "": "right"}.get(row[2], "wrong")
            for name in (key(row), "all"):
                counts[name][f"{wrong} {'found' if found else 'not found'}"] += 1
        heads = ("wrong found", "wrong not found", "right found", "right not found",
                 "unjudged found", "unjudged not found")  # fmt: skip
        heads = tuple(head for head in heads if counts["all"][head])
        lines += [f"| {title} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for name, of in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])):
            lines.append(f"| {name} | {' | '.join(str(of[head]) for head in heads)} |")
        lines.append("")
    lines += [f"missed: {kernel}: {mutant.name}: {verdict}"
              for kernel, mutant, verdict, found in rows if verdict and not found]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("kernels", nargs="*")
    options.add_argument("--judge", type=Path)
    options.add_argument("--ptx", type=Path, action="append", default=[])
    options.add_argument("--on-card", type=int, default=0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--run", nargs=3, help="one mutant on the card: case, PTX, kernel")
    given = options.parse_args()
    if given.run:
        print(run_on_card(*given.run))
        return
    if given.on_card:
        sample_on_card(given.on_card, given.seed)
        return
    known = json.loads(given.judge.read_text()) if given.judge and given.judge.exists() else {}
    rows = []
    for name, case, text, entry in cases(given.kernels) if given.kernels or not given.ptx else ():
        maps = [arg for arg in case().keywords["args"] if isinstance(arg, tma.TensorMap)]
        right = found_by_lint(text, entry, maps)
        for mutant in mutants(text, entry):
            key = f"{name}: {mutant.name}"
            if key not in known and given.judge:
                known[key] = judged(case(), mutant.text, entry)
                given.judge.write_text(json.dumps(known, indent=1))
            found = found_by_lint(mutant.text, entry, maps) - right
            rows.append((name, mutant, known.get(key), found))
    for path in given.ptx:
        text = path.read_text()
        for function in (f for m in ptx.modules(text) for f in m.functions if f.is_entry):
            right = found_by_lint(text, function.name, [])
            for mutant in mutants(text, function.name):
                found = found_by_lint(mutant.text, function.name, []) - right
                rows.append((f"{path.stem} {function.name[:40]}", mutant, None, found))
    print(table(rows))


if __name__ == "__main__":
    main()
