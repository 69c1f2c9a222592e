"""The reference of tma_dlpack.h is generated from its comments; its examples compile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import compile_matrix
import pytest
from compile_matrix import GENERATOR, ROOT, TARGETS
from laws import by_cost

GUIDE = ROOT / "notebooks" / "guide"
HEADER = compile_matrix.text_of_headers()

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


@pytest.fixture(scope="module")
def reference():
    if not GENERATOR.exists():
        pytest.skip("the generator is not part of the wheel")
    return compile_matrix.generator()


@pytest.fixture(scope="module")
def verbs(reference):
    return reference.verbs(HEADER)


def text_of(reference, name):
    return (ROOT / reference.PAGE).with_name(name).read_text("utf-8")


def test_the_pages_are_what_the_generator_prints(reference):
    pages = reference.pages(text_of(reference, "headers.md"), HEADER)
    assert list(pages) == ["headers.md", *reference.PARTS]
    for name, text in pages.items():
        assert text_of(reference, name) == text, "run .packaging/header_reference.py"


def test_a_changed_comment_changes_a_page(reference):
    changed = reference.pages("", HEADER.replace("| SYNCS.PHASECHK\n", "| FREE\n"))
    assert text_of(reference, "headers_barriers.md") != changed["headers_barriers.md"]


def test_every_chapter_of_the_headers_is_in_one_page(reference, verbs):
    chapters = [chapter for _, chapters in reference.PARTS.values() for chapter in chapters]
    assert sorted(chapters) == sorted({verb.chapter for verb in verbs})


def test_every_verb_has_one_row_and_one_anchor(reference, verbs):
    outside = re.sub(
        r"^namespace detail$.*?^}  // namespace detail$", "", HEADER, flags=re.M | re.S
    )
    declared = set(re.findall(r"^__device__ inline [\w ]+?\b(\w+)\(", outside, re.M))
    declared |= set(re.findall(r"^TMA_DLPACK_EITHER constexpr [\w ]+?\b(\w+)\(", outside, re.M))
    assert len(declared) > 60
    names = [verb.name for verb in verbs]
    assert len(set(names)) == len(names)
    assert declared - set(names) == {"expect_tx", "prefetch"}  # deprecated
    parts = "".join(text_of(reference, name) for name in reference.PARTS)
    every = text_of(reference, "headers.md")
    for text in (parts, every):  # links to the page before it had parts still find the verb
        assert sorted(re.findall(r'<span id="header-(\w+)">', text)) == sorted(names)
    assert all(f"[`{name}`](#{name.lower()})" in parts for name in names)
    assert all(f"[`{name}`]({link})" in every for name, link in reference.links(HEADER).items())


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
    # A template head of two lines belongs to one declaration.
    assert len(signatures["tcgen05_instruction_descriptor"]) == 1
    assert len(signatures["wgmma"]) == 2
    assert all(s.startswith("template <") for s in signatures["wgmma"])


@needs_nvcc
@pytest.mark.parametrize("target", by_cost(TARGETS, fast=["90a"], slow=["100a", "120f"]))
def test_every_example_compiles_for_the_targets_of_its_row_and_is_deleted_elsewhere(
    target, reference
):
    checks = (False,) if target == "90a" else (False, True)
    try:
        cells = compile_matrix.cells_of(target, checks)
    except compile_matrix.UnknownTargetError:
        pytest.skip(f"this nvcc does not know sm_{target}")
    assert len(cells) > 70
    assert compile_matrix.broken_promises(target, cells) == []
    slow = {verb for verb, cell in cells.items() if cell == compile_matrix.CALLS}
    multicast = {"load_multicast", "load_im2col_multicast", "load_bulk_multicast"}
    assert slow == (multicast if target.startswith("12") else set())


def test_a_verb_that_compiles_elsewhere_than_its_row_says_is_a_broken_promise(reference):
    cells = {"load": compile_matrix.COMPILES, "wgmma_fence": compile_matrix.DELETED}
    assert compile_matrix.broken_promises("90", cells) == []
    assert compile_matrix.broken_promises("90a", cells) == ["wgmma_fence"]
    assert compile_matrix.broken_promises("90", dict.fromkeys(cells, "yes")) == ["wgmma_fence"]


@pytest.mark.slow
@needs_nvcc
@pytest.mark.skipif(shutil.which("nvdisasm") is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("target", ["90a", "100a"])
def test_the_instructions_of_a_row_are_in_the_machine_code_of_its_example(target, verbs, tmp_path):
    def has(verb, target):
        return verb.targets != "host" and compile_matrix.is_promised(verb.targets, target)

    # setmaxnreg is left out by ptxas in a kernel without launch bounds; load_from is Rubin's
    chosen = [
        verb
        for verb in verbs
        if has(verb, target) and "SETMAXREG" not in verb.cost and verb.name != "load_from"
    ]
    source = tmp_path / "costs.cu"
    source.write_text("\n".join([compile_matrix.NAMES, *map(compile_matrix.kernel, chosen)]) + "\n")
    status, said, _ = compile_matrix.nvcc(source, target, checked=False)
    assert status == 0, said
    command = ["nvdisasm", "-c", str(source.with_suffix(".cubin"))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, *parts = re.split(r"^//-+ \.text\.(\S+) -+$", printed, flags=re.M)
    code = dict(zip(parts[::2], parts[1::2], strict=True))
    compared = 0
    for verb in chosen:
        (sass,) = [text for name, text in code.items() if name.startswith(mangled(verb.name))]
        written = re.findall(r"/\*[0-9a-f]{4}\*/ +(?:@!?\w+ )?([A-Z][\w.]*)", sass)
        for named in re.findall(r"\b[A-Z]{3}[A-Z0-9_]*(?:\.[A-Z0-9_]+)*", verb.cost):
            words = {*named.split(".")}
            assert any(words <= {*one.split(".")} for one in written), (verb.name, named)
            compared += 1
    assert compared > 40


def mangled(verb: str) -> str:
    return f"_Z{len(verb) + 1}{verb}_"  # the kernel has the verb's name and a _


def compile_cubin(source: Path) -> None:
    status, said, _ = compile_matrix.nvcc(source, "90a", checked=False)
    assert status == 0, said


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
