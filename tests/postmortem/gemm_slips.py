"""Run a GEMM of the notebooks with one slip in a torch process: gemm_slips.py SLIP KERNEL.

KERNEL: grouped_gemm or hopper_gemm. A slip is a text of hopper_gemm.cu or grouped_gemm.cu, and the
text that replaces it. The matrices are zeros, so that a dump packs well.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

ARM = "    arrive_expect_tx(full(), STAGE_BYTES);\n"
INIT = "init(ring.fulls + stage), init(ring.empties + stage, CONSUMERS * Choose::cluster);"
FULL_WAIT = "wait(ring.full(), ring.at.phase());"
BY_THREAD_0, SYNC = (
    "  if (threadIdx.x == 0)\n    for (int stage",
    "  cluster_sync();\n  return ring;",
)
BY_THREAD_128 = BY_THREAD_0.replace("== 0", "== 128")
LATE = "  if (threadIdx.x == 128) __nanosleep(5000);\n"
SLIPS: dict[str, tuple[tuple[str, str], ...]] = {
    "right": (),
    "bytes": ((ARM, ARM.replace("BYTES", "BYTES + 1024")),),
    "no_arm": ((ARM, ""),),
    "full_count": ((INIT, INIT.replace("+ stage)", "+ stage, 2)", 1)),),
    "empty_count": ((INIT, INIT.replace("cluster)", "cluster + 1)")),),
    "no_init": ((INIT, INIT.partition(", ")[2]),),
    "late_init": ((BY_THREAD_0, f"{LATE}{BY_THREAD_128}"), (SYNC, "  return ring;")),
    "parity": (("  ring.at = ring.at.producer();\n", ""),),
    "consumer_parity": ((FULL_WAIT, FULL_WAIT.replace("phase()", "phase() ^ 1")),),
    "stage": (
        (FULL_WAIT, FULL_WAIT.replace("full()", "fulls + (ring.at.stage() + 1) % Choose::stages")),
    ),
    "no_release": (("block < Choose::cluster)", "block < Choose::cluster - 1)"),),
    "one_copy": (
        ("load_rows<TILE_M, TILE_M, false>(ring, ring.a(), a, k0, tile.row, 0);", ""),
        ("load_rows<TILE_M, TILE_M, false>(ring, ring.a(), a, k0, place.x, 0);", ""),
    ),
    "coordinate": (
        ("ring.a(), a, k0, tile.row", "ring.a(), a, k0 + 4, tile.row"),
        ("ring.a(), a, k0, place.x", "ring.a(), a, k0 + 4, place.x"),
    ),
}


def sources(slip: str) -> dict[str, str]:
    """Return the two sources with a slip. Each part of the slip is in one of the sources."""
    found = {name: (ROOT / "notebooks" / name).read_text() for name in FILES}
    for before, after in SLIPS[slip]:
        assert any(before in text for text in found.values()), before
        found = {name: text.replace(before, after) for name, text in found.items()}
    return found


FILES = ("hopper_gemm.cu", "grouped_gemm.cu")


class WithLines:
    """NVRTC, which leaves source lines in what it compiles."""

    def __init__(self, nvrtc: Any) -> None:
        self.nvrtc = nvrtc

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nvrtc, name)

    def nvrtcCompileProgram(self, program: Any, count: int, options: list[bytes]) -> Any:  # noqa: N802 - NVRTC's name
        return self.nvrtc.nvrtcCompileProgram(program, count + 1, [*options, b"-lineinfo"])


def main(slip: str, kernel: str) -> None:
    """Compile, launch, and wait."""
    import torch
    from bench import hopper

    from tma_dlpack.copies import launch

    compiler = launch.nvrtc_bindings()
    launch.nvrtc_bindings = lambda: WithLines(compiler)
    a, weights = (torch.zeros(256, 1024, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    c = torch.zeros(256, 256, dtype=torch.bfloat16, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources(slip).items():
            (Path(folder) / name).write_text(text)
        library = hopper.compile_file(Path(folder) / f"{kernel}.cu")
    if kernel == "grouped_gemm":
        ends = torch.tensor([256], dtype=torch.int32, device="cuda")
        launch = hopper.grouped_launcher(library, a, [weights], c, ends)
    else:
        launch = hopper.gemm_launcher(library, hopper.CHOICES[0], a, weights, c)
    torch.cuda.synchronize()
    print("launched", flush=True)
    launch()
    torch.cuda.synchronize()
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
