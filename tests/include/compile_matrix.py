"""The targets for which each verb compiles: ``python tests/include/compile_matrix.py``.

Each verb has a kernel, which is its example in the reference. The kernels of a target are one file,
compiled with and without TMA_DLPACK_CHECK. The compiler's result is compared with the reference's
column of targets. Without names of targets, such as 90a, all targets are compiled.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tma_dlpack.include import get_include

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / ".packaging" / "header_reference.py"
HEADER = Path(get_include()) / "tma_dlpack.h"
HEADERS = ("tma_dlpack.h", "tma_dlpack_mma.h")
TARGETS = ("90", "90a", "100", "100a", "100f", "103a", "107a", "110a", "120a", "120f", "121a")
#: Functions of the driver that ptxas calls if a GPU lacks an instruction.
SYSTEM_CALL = re.compile(rb"__cuda_syscall_\w+")
#: Cells of the matrix. A verb is slow if ptxas calls a function of the driver.
COMPILES, DELETED, CALLS = "yes", "-", "slow"

#: Declarations of the names that the examples use.
NAMES = """
#include <tma_dlpack.h>
using namespace tma_dlpack;
extern __shared__ unsigned char smem[];
#define EXAMPLE(NAME, ...)                                                                       \\
  __global__ void NAME(const __grid_constant__ Map parameter, Map* maps, Map* place, void* out,  \\
                       float* x, const void** weights, unsigned tx_bytes, unsigned bytes,        \\
                       int column, int row, int c, int w, int h, int n, int r0, int r1, int r2,  \\
                       int r3, unsigned rows, unsigned row_bytes, unsigned byte, unsigned block, \\
                       unsigned warpgroup, unsigned a, unsigned step, int tiles, int expert,     \\
                       int i, unsigned short tap, unsigned short tap_w, unsigned short tap_h,    \\
                       unsigned short halo, unsigned long long descriptor, bool first)           \\
  {                                                                                              \\
    __shared__ alignas(1024) float tile[1024];                                                   \\
    __shared__ Map changed;                                                                      \\
    __shared__ Barrier full, empty, ready;                                                       \\
    __shared__ unsigned allocated;                                                               \\
    constexpr unsigned instruction = tcgen05_instruction_descriptor<MmaType::bf16, 128, 256>();  \\
    const unsigned long long tcgen05_a =                                                         \\
      descriptor_at(a, tcgen05_k_major_descriptor<128, Swizzle::bytes128>());                    \\
    float sums[32] = {};                                                                         \\
    unsigned columns[32] = {};                                                                   \\
    PipelineState<4> state;                                                                      \\
    CONTEXT                                                                                      \\
    __VA_ARGS__;                                                                                 \\
  }
"""


class UnknownTargetError(Exception):
    """Error: this nvcc does not support a target."""


@functools.cache
def generator() -> Any:
    """Return the module that reads the header's comments."""
    spec = importlib.util.spec_from_file_location("header_reference", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules["header_reference"] = module  # where dataclass looks
    spec.loader.exec_module(module)
    return module


def text_of_headers() -> str:
    """Return the text of the device headers."""
    return "\n".join((HEADER.parent / Path(name).name).read_text("utf-8") for name in HEADERS)


def kernel(verb: Any) -> str:
    """Return three lines with a kernel that contains the verb's example."""
    text = verb.example.replace("...", ";")
    of_global = verb.name.startswith("fence_re") or "maps" in text
    context = "Map* map = maps;" if of_global else "const Map& map = parameter;"
    if verb.name.startswith("replace"):
        context = "Map& map = changed;"
    if re.search(r"\brows\[|\(rows,|, rows,", text):
        context += " float* rows_ = tile;"
        text = re.sub(r"\brows\b", "rows_", text)
    if verb.name == "PipelineState":
        context += " int tile_ = 0;"
        text = re.sub(r"\btile\b", "tile_", text)
    return f"#undef CONTEXT\n#define CONTEXT {context}\nEXAMPLE({verb.name}_, {text})"


def is_promised(targets: str, target: str) -> bool:
    """Return whether a row of the reference lists a target."""
    number, suffixed = int(re.match(r"\d+", target)[0]), target[-1] in "af"
    return {
        "sm_90": True,
        "host and device": True,
        "host, sm_90": number < 100,
        "sm_90a": target == "90a",
        "sm_90a (slow on sm_90, 12x)": True,
        "suffix a or f": suffixed,
        "sm_100": number >= 100,
        "sm_100a, 100f, 103a, 110a": suffixed and 100 <= number < 120,
        "sm_107a, 107f": suffixed and number == 107,  # with nvcc 13.4 or later
    }[targets]


def nvcc(source: Path, target: str, checked: bool) -> tuple[int, str, bytes]:
    """Compile a file; return the status, the output, and the machine code."""
    out = source.with_suffix(".cubin")
    out.unlink(missing_ok=True)
    option = f"-gencode=arch=compute_{target},code=sm_{target}"
    check = f"-DTMA_DLPACK_CHECK={int(checked)}"
    command = ["nvcc", "-std=c++17", option, check, f"-I{HEADER.parent}", "-cubin", "-o", str(out)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    if "Unsupported gpu architecture" in done.stderr:
        raise UnknownTargetError(target)
    return done.returncode, done.stderr, out.read_bytes() if out.exists() else b""


def compiled(verbs: list[Any], target: str, checked: bool, folder: Path) -> dict[str, str]:
    """Return the cell of each verb; raise if the compiler reports another error."""
    source = folder / "verbs.cu"
    status, kept = 1, verbs
    while status:  # nvcc reports a deleted template only once, for all calls
        source.write_text("\n".join([NAMES, *map(kernel, kept)]) + "\n")
        status, said, code = nvcc(source, target, checked)
        assert said.count(": error: ") == said.count("-- it is a deleted function"), said
        deleted = re.findall(
            r': error: function "tma_dlpack::v\d+_\d+::(?:unchecked::)?(\w+)', said
        )
        assert not status or {verb.name for verb in kept} & {*deleted}, said
        kept = [verb for verb in kept if verb.name not in deleted]
    calls = [call.decode() for call in SYSTEM_CALL.findall(code)]
    assert all(call.endswith("multicast") for call in calls)
    cells = dict.fromkeys([verb.name for verb in verbs], DELETED)
    for name in (verb.name for verb in kept):
        cells[name] = CALLS if calls and name.endswith("multicast") else COMPILES
    return cells


def cells_of(target: str, checks: tuple[bool, ...] = (False, True)) -> dict[str, str]:
    """Return a column of the matrix, which must be equal with and without TMA_DLPACK_CHECK."""
    verbs = [v for v in generator().verbs(text_of_headers()) if v.targets != "host"]
    with tempfile.TemporaryDirectory() as folder:
        columns = [compiled(verbs, target, checked, Path(folder)) for checked in checks]
    assert columns[0] == columns[-1]
    return columns[0]


def broken_promises(target: str, cells: dict[str, str]) -> list[str]:
    """Return the verbs for which the compiler and the reference disagree."""
    targets = {v.name: v.targets for v in generator().verbs(text_of_headers())}
    return [n for n, cell in cells.items() if (cell != DELETED) != is_promised(targets[n], target)]


def main(targets: list[str]) -> int:
    """Print the matrix; return 1 if it differs from the reference."""
    columns = {}
    for target in targets or TARGETS:
        try:
            columns[target] = cells_of(target)
        except UnknownTargetError:
            print(f"this nvcc does not know sm_{target}")
    verbs = list(next(iter(columns.values()), ()))
    print(f"{'each with and without the check':31}" + "".join(f"{t:>6}" for t in columns))
    for verb in verbs:
        print(f"{verb:31}" + "".join(f"{column[verb]:>6}" for column in columns.values()))
    wrong = [f"{v} on {t}" for t, column in columns.items() for v in broken_promises(t, column)]
    print(
        f"{len(verbs)} verbs, {len(columns)} targets; {len(wrong)} other than in the reference",
        *wrong,
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
