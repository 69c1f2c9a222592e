"""The reference of tma_dlpack.h: printed from its comments, whole; its examples compile."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tma_dlpack.include import get_include

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / ".packaging" / "header_reference.py"
GUIDE = ROOT / "notebooks" / "guide"
HEADER = (Path(get_include()) / "tma_dlpack.h").read_text("utf-8")

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


@pytest.fixture(scope="module")
def reference():
    if not GENERATOR.exists():
        pytest.skip("the generator is not part of the wheel")
    spec = importlib.util.spec_from_file_location("header_reference", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules["header_reference"] = module  # where dataclass looks
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def verbs(reference):
    return reference.verbs(HEADER)


def test_the_page_is_what_the_generator_prints(reference):
    page = (ROOT / reference.PAGE).read_text("utf-8")
    assert page == reference.page(page, HEADER), "run .packaging/header_reference.py"


def test_a_changed_comment_changes_the_page(reference):
    page = (ROOT / reference.PAGE).read_text("utf-8")
    assert page != reference.page(page, HEADER.replace("| SYNCS.PHASECHK\n", "| FREE\n"))


def test_every_verb_has_one_row_and_one_anchor(reference, verbs):
    outside = re.sub(
        r"^namespace detail$.*?^}  // namespace detail$", "", HEADER, flags=re.M | re.S
    )
    declared = set(re.findall(r"^__device__ inline [\w ]+?\b(\w+)\(", outside, re.M))
    declared |= set(re.findall(r"^TMA_DLPACK_EITHER constexpr [\w ]+?\b(\w+)\(", outside, re.M))
    assert len(declared) > 60
    names = [verb.name for verb in verbs]
    assert len(set(names)) == len(names)
    assert declared - set(names) == {"expect_tx"}  # deprecated
    page = (ROOT / reference.PAGE).read_text("utf-8")
    assert sorted(re.findall(r'<span id="header-(\w+)">', page)) == sorted(names)
    assert all(f"[`{name}`](#{name.lower()})" in page for name in names)


def test_every_overload_of_a_verb_stands_in_its_entry(verbs):
    signatures = {verb.name: verb.signatures for verb in verbs}
    assert signatures["wait"] == ["void wait(Barrier* barrier, unsigned parity)"]
    assert len(signatures["load_bulk"]) == 2  # with a policy, and without
    assert len(signatures["tensor_map"]) == 3
    assert signatures["evict_first"] == ["CachePolicy evict_first()"]
    assert signatures["replace_global_dim"] == [
        "template <unsigned dimension> void replace_global_dim(Map* map, unsigned value)"
    ]
    assert "PipelineState producer()" in signatures["PipelineState"]


#: What the examples' names are.
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
                       unsigned short halo, bool first)                                          \\
  {                                                                                              \\
    __shared__ alignas(1024) float tile[1024];                                                   \\
    __shared__ Map changed;                                                                      \\
    __shared__ Barrier full, empty, ready;                                                       \\
    PipelineState<4> state;                                                                      \\
    CONTEXT                                                                                      \\
    __VA_ARGS__;                                                                                 \\
  }
"""
#: By the verb's targets: what to compile for. Rubin's needs a newer nvcc; the host's are elsewhere.
COMPILED_FOR = {"sm_100": "100a", "sm_100a, 100f, 103a, 110a": "100a"}


def example(verb) -> str:
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


@needs_nvcc
@pytest.mark.parametrize("target", ["90a", "100a"])
def test_every_example_compiles(target, verbs, tmp_path):
    chosen = [
        verb
        for verb in verbs
        if COMPILED_FOR.get(verb.targets, "90a") == target
        and verb.targets not in ("host", "sm_107a, 107f")
    ]
    assert len(chosen) > (60 if target == "90a" else 6)
    source = tmp_path / "examples.cu"
    source.write_text("\n".join([NAMES, *map(example, chosen)]))
    compile_cubin(source, target)


def compile_cubin(source: Path, target: str = "90a") -> None:
    option = f"-gencode=arch=compute_{target},code=sm_{target}"
    command = ["nvcc", "-std=c++17", option, f"-I{get_include()}", "-cubin", "-o"]
    built = subprocess.run(
        [*command, str(source.with_suffix(".cubin")), str(source)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr


@needs_nvcc
def test_the_kernel_of_the_guide_to_clusters_compiles(tmp_path):
    (code,) = re.findall(r"```cpp\n(.*?)```", (GUIDE / "clusters.md").read_text("utf-8"), re.S)
    source = tmp_path / "clusters.cu"
    source.write_text(f"#include <tma_dlpack.h>\nusing namespace tma_dlpack;\n{code}")
    compile_cubin(source)


def test_every_name_of_ours_in_the_porting_table_is_a_verb(verbs):
    names = {verb.name for verb in verbs}
    rows = [
        line.removeprefix("| ").split(" | ")[0]
        for line in (GUIDE / "porting.md").read_text("utf-8").splitlines()
        if line.startswith("| ") and "`tma_dlpack.h`" not in line
    ]
    assert len(rows) > 30
    for cell in rows:
        for code in re.findall(r"`(.*?)`", cell):
            name = re.match(r"\w+", code)[0]
            assert name in names | {"state"}, code
