"""tma_dlpack.h, compiled by nvcc for sm_90a; its host part is called with Python's values."""

import ctypes
import re
import shutil
import subprocess
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.consumer.operand import SPAN_BYTES
from tma_dlpack.geometry.plan import swizzle_offset
from tma_dlpack.include import get_include

HERE = Path(__file__).parents[1]
DOUBLE_TILES = HERE / "gpu" / "double_tiles.cu"
EVERY_HELPER = HERE / "every_helper.cu"
SM_90A = "-gencode=arch=compute_90a,code=sm_90a"

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def nvcc(source, *options, out="out.o"):
    warnings = ["-Werror=all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    command = ["nvcc", *warnings, f"-I{get_include()}", *options, "-o", str(out), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def a_map():
    strides, ones = (256,), (1, 1)
    return tma.driver_encode_tiled(
        "FLOAT32", 2, 1 << 40, (64, 64), strides, (32, 16), ones, encoder="model"
    )


# --- device part ----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("source", [EVERY_HELPER, DOUBLE_TILES], ids=lambda path: path.stem)
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_kernels_with_the_header_compile_for_sm_90a(source, standard, tmp_path):
    built = nvcc(source, f"-std={standard}", SM_90A, "-cubin", out=tmp_path / "out.cubin")
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "out.cubin").read_bytes()[:4] == b"\x7fELF"


#: ptxas warns about multicast on targets that are not optimized for it: 90 without a, 12.x. For
#: these targets, only warnings of the compiler itself are errors.
ADVISED_AGAINST = ("90", "100", "120a", "120f", "121a")
ARCHITECTURES = ("90", "90a", "100", "100a", "100f", "103a", "107a", "110a", "120a", "120f", "121a")
#: Functions of the driver that ptxas calls if a GPU lacks an instruction.
SYSTEM_CALL = re.compile(rb"__cuda_syscall_\w+")


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_helper_is_instructions_on_every_architecture_that_has_it(name, tmp_path):
    option = f"-gencode=arch=compute_{name},code=sm_{name}"
    command = ["nvcc", "-std=c++17", f"-I{get_include()}", option, "-cubin"]
    if name not in ADVISED_AGAINST:
        command.append("-Werror=all-warnings")
    command += ["-o", str(tmp_path / "out.cubin"), str(EVERY_HELPER)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Unsupported gpu architecture" in built.stderr:
        pytest.skip(f"this nvcc does not know sm_{name}")
    assert built.returncode == 0, built.stderr
    cubin = (tmp_path / "out.cubin").read_bytes()
    assert cubin[:4] == b"\x7fELF"
    calls = {call.decode() for call in SYSTEM_CALL.findall(cubin)}
    if name.startswith("12"):  # these targets have no multicast
        assert len(calls) == 9
        assert all(call.endswith("multicast") for call in calls)
    else:
        assert not calls


def refused(statements, tmp_path, option=SM_90A):
    """Compile kernels, each with one statement; return the compiler's messages for each."""
    source = tmp_path / "refused.cu"
    kernels = [
        f"__global__ void kernel{n}(const __grid_constant__ Map map, unsigned long long* out, "
        "Map* to, const __grid_constant__ RankedMap<2> ranked, "
        "const __grid_constant__ RankedMap<3> three) "
        f"{{ [[maybe_unused]] __shared__ Barrier full; {statement} }}"
        for n, statement in enumerate(statements)
    ]
    lines = ["#include <tma_dlpack.h>", "using namespace tma_dlpack;", *kernels]
    source.write_text("\n".join(lines))
    built = nvcc(source, "-std=c++17", option, "-cubin", out=tmp_path / "refused.cubin")
    assert built.returncode != 0
    said = re.split(r"^(?=\S+: error)", built.stderr, flags=re.MULTILINE)
    # each error names the line of its statement, in its first line or as the template's use
    places = [
        re.compile(rf"refused\.cu\({n}\)|at line {n} of \S*refused\.cu")
        for n in range(3, 3 + len(statements))
    ]
    found = [[text for text in said if place.search(text)] for place in places]
    return [" ".join(" ".join(texts).split()) for texts in found]


NOT_COMPILED = {
    "*out = matrix_descriptor<24, 1024, Swizzle::bytes128>();": "are multiples of 16 bytes",
    "*out = matrix_descriptor<16, 8, Swizzle::none>();": "are multiples of 16 bytes",
    "*out = matrix_descriptor<16, 262144, Swizzle::none>();": "are less than 262144 bytes",
    "*out = k_major_descriptor<12, Swizzle::bytes64>();": "reads 8 rows at a time",
    "*out = swizzled_index<float, Swizzle::none>(1, 1);": "the index is row * columns",
    "*out = swizzled_index<double2, Swizzle::bytes128_atom_32B_flip_8B>(1, 1);": "or 8 if it flips",
    "*out = k_major_descriptor<64, Swizzle::bytes128_atom_32B>();": "reads tiles with the swizzle",
    "*out = mn_major_descriptor<64, Swizzle::bytes128_atom_64B>();": "reads tiles with the swizzle",
    "*out = tcgen05_k_major_descriptor<8, Swizzle::bytes128_atom_32B_flip_8B>();": "reads tiles",
    "*out = tcgen05_mn_major_descriptor<64, Swizzle::bytes128_atom_64B>();": "reads tiles with the",
    "*out = tcgen05_mn_major_descriptor<12, Swizzle::bytes128_atom_32B>();": "8 of 32-bit elements",
    "replace_swizzle_mode<Swizzle::bytes128_atom_32B>(to);": "swizzle_mode is a number below 4",
    "load(out, map, &full);": "one coordinate for each dimension of the map",
    "store(map, out, 1, 2, 3, 4, 5, 6);": "one coordinate for each dimension of the map",
    "store_im2col(map, out, 1, 2);": "an im2col map has 3 to 5 dimensions",
    "store_wait_read<-1>();": "waits for 0 or more pending groups",
    "store_wait<-1>();": "waits for 0 or more pending groups",
    "commit();": "call store_commit()",
    "wait_read();": "call store_wait_read()",
    "wait_stores();": "call store_wait()",
    "prefetch(map);": "call prefetch_map()",
    "load_multicast(out, map, &full, 0, 0, 3);": "the block mask 0 names no block",
    "load_im2col_multicast(out, map, &full, 0, 0, 0, 0, OffsetsW{0});": "the block mask 0 names no",
    "load_bulk_multicast(out, to, 16, &full, 0);": "the block mask 0 names no block",
    "load_multicast(out, map, &full, 1.5, 0, 3);": "a mask of blocks is an integer",
    "store(out, &map, 0, 0);": "pass a map where this verb takes one",
    "prefetch_tile(full, 0, 0);": "pass a map where this verb takes one",
    "reduce_bulk<Reduction::add>(to, out, 16);": "cp.reduce.async.bulk adds integers of 32 and 64",
    "reduce_bulk<Reduction::inc>(out, out, 16);": "inc and dec of unsigned",
    "float d[2]; wgmma<4>(d, 1ull, 1ull, 0);": "a multiple of 8 rows of B, from 8 to 256",
    "float d[4]; wgmma<8, MmaType::bf16, MmaType::fp16>(d, 1ull, 1ull, 0);": "operands of one type",
    "float d[4]; wgmma<8, MmaType::tf32, MmaType::tf32, Major::MN>(d, 1ull, 1ull, 0);": "K-major",
    "*out = tcgen05_instruction_descriptor<MmaType::bf16, 96, 64>();": "64, 128 or 256 rows of A",
    "*out = tcgen05_instruction_descriptor<MmaType::bf16, 128, 24>();": "multiples of 16 rows of B",
    "*out = tcgen05_instruction_descriptor<MmaType::tf32, 64, 8, MmaType::e4m3>();": "of one type",
    "wgmma_wait<8>();": "waits for 0 to 7 pending groups",
    "take_registers<260>();": "a multiple of 8 from 24 to 256",
    "replace_global_dim<5>(to, 1);": "numbered from 0, the innermost, to 5 - 1",
    "replace_global_stride<4>(to, 16);": "numbered from 0, the innermost, to 4 - 1",
    "replace_box_dim<5>(to, 1);": "numbered from 0, the innermost, to 5 - 1",
    "replace_element_stride<5>(to, 1);": "numbered from 0, the innermost, to 5 - 1",
    "replace_elemtype<16>(to);": "elemtype is a number below 16",
    "replace_interleave_layout<3>(to);": "interleave_layout is a number below 3",
    "replace_fill_mode<2>(to);": "fill_mode is a number below 2",
    "load(out, map, &full, 1.9f, 0);": "an integer of at most 32 bits: cast what is not",
    "load(out, map, &full, 1.0, 0, 0);": "an integer of at most 32 bits: cast what is not",
    "load(out, map, &full, 0, 1ll);": "an integer of at most 32 bits: cast what is not",
    "load(out, map, &full, 0, sizeof(int));": "an integer of at most 32 bits: cast what is not",
    "load_multicast(out, map, &full, 3, 1.0, 1.0);": "an integer of at most 32 bits",
    "load_im2col(out, map, &full, 0, 1.0f, 0, OffsetsW{0});": "an integer of at most 32 bits",
    "store(map, out, 0, 1l);": "an integer of at most 32 bits",
    "reduce<Reduction::add>(map, out, 0, 0, 0.5f);": "an integer of at most 32 bits",
    "prefetch_tile(map, 0, 0, 1.0);": "an integer of at most 32 bits",
    "load(out, ranked, &full, 0);": "as many coordinates as",
    "load(out, ranked, &full, evict_last(), 0, 0, 0);": "as many coordinates as",
    "load_im2col(out, ranked, &full, 0, 0, 0, 0, OffsetsWH{0, 0});": "as many coordinates as",
    "store(three, out, 0);": "as many coordinates as",
    "reduce<Reduction::add>(three, out, 0, 0);": "as many coordinates as",
    "prefetch_tile(three, 0, 0, 0, 0);": "as many coordinates as",
    "load(out, map, &full, 0, 0, 0, 0, OffsetsW{0});": "and other copies take none",
    "load_im2col(out, map, &full, 0, 0, 0);": "an im2col load takes OffsetsW, OffsetsWH or",
    "load_im2col(out, map, &full, 0, 0, 0, OffsetsWH{0, 0});": "takes OffsetsW, OffsetsWH or",
    "PipelineState<0> state; *out = state.stage();": "a ring has at least one stage",
    "RankedMap<6> none; *out = sizeof(none);": "a map has 1 to 5 dimensions",
    "expect_tx(&full, 16);": "call arrive_expect_tx()",
    **{
        statement: f"lacks it: compile for {target}"
        for statement, target in {
            "load_gather4(out, map, &full, 0, 1, 2, 3, 4);": "sm_100 or later",
            "load_im2col_w(out, map, &full, 0, 1, 2, HaloW{0, 0});": "sm_100 or later",
            "load_im2col_w128(out, map, &full, 0, 1, 2, HaloW{0, 0});": "sm_100a, 100f",
            "load_gather4_multicast(out, map, &full, 3, 0, 1, 2, 3, 4);": "sm_100a, 100f, 103a or",
            "load_cta_group2(out, map, &full, 0, 1);": "sm_100a, 100f, 103a or 110a",
            "load_multicast_cta_group2(out, map, &full, 3, 0, 1);": "sm_100a, 100f, 103a or 110a",
            "store_scatter4(map, out, 0, 1, 2, 3, 4);": "sm_100a, 100f, 103a or 110a",
            "load_from(out, map, to, &full, 0, 1);": "sm_107a",
        }.items()
    },
}

#: target: missing functions, and the compiler's message about them.
LACKS = {
    "90": {
        "give_registers<40>();": "lacks it: compile for one with the suffix a or f",
        "take_registers<40>();": "lacks it: compile for one with the suffix a or f",
        "wgmma_fence();": "lacks wgmma, which is sm_90a's",
        "wgmma_wait<1>();": "lacks wgmma, which is sm_90a's",
        "float d[4]; wgmma<8>(d, 1ull, 1ull, 0);": "lacks wgmma, which is sm_90a's",
    },
    "100a": {
        "*out = matrix_descriptor<16, 1024, Swizzle::none>();": "tcgen05_k_major_descriptor()",
        "*out = k_major_descriptor<64, Swizzle::bytes128>();": "tcgen05_k_major_descriptor()",
        "*out = mn_major_descriptor<64, Swizzle::none>();": "tcgen05_mn_major_descriptor()",
        "wgmma_commit();": "lacks wgmma, which is sm_90a's",
        "float d[4]; wgmma<8, MmaType::tf32>(d, 1ull, 1ull, 0);": "lacks wgmma, which is sm_90a's",
        "load_from(out, map, to, &full, 0, 1);": "lacks it: compile for sm_107a",
    },
    "100": {
        "store_scatter4(map, out, 0, 1, 2, 3, 4);": "lacks it: compile for sm_100a, 100f, 103a or",
        "load_cta_group2(out, map, &full, 0, 1);": "lacks it: compile for sm_100a, 100f, 103a or",
        "give_registers<40>();": "lacks it: compile for one with the suffix a or f",
        "tcgen05_mma(0u, 1ull, 1ull, 0u, 0);": "lacks it: compile for sm_100a, 100f, 103a or",
        "tcgen05_alloc<2>(nullptr, 32);": "lacks it: compile for sm_100a, 100f, 103a or",
    },
    "120a": {
        "load_gather4_multicast(out, map, &full, 3, 0, 1, 2, 3, 4);": "compile for sm_100a",
        "load_im2col_w128(out, map, &full, 0, 1, 2, HaloW{0, 0});": "lacks it: compile for sm_100a",
        "store_scatter4(map, out, 0, 1, 2, 3, 4);": "compile for sm_100a",
        "float v[8]; tcgen05_load(v, 0u);": "lacks it: compile for sm_100a, 100f, 103a or",
    },
}


@pytest.mark.slow
@needs_nvcc
def test_what_the_hardware_cannot_do_does_not_compile(tmp_path):
    said = refused(NOT_COMPILED, tmp_path)
    for (statement, expected), found in zip(NOT_COMPILED.items(), said, strict=True):
        assert expected in found, statement


@needs_nvcc
@pytest.mark.parametrize("name", LACKS)
def test_a_verb_that_a_target_lacks_is_deleted_and_the_compiler_says_why(name, tmp_path):
    said = refused(LACKS[name], tmp_path, f"-gencode=arch=compute_{name},code=sm_{name}")
    for (statement, expected), found in zip(LACKS[name].items(), said, strict=True):
        assert expected in found, statement
        assert "deleted function" in found, statement


@needs_nvcc
@pytest.mark.parametrize("name", ["90", "100", "120"])
def test_maps_are_changed_by_targets_with_a_suffix_alone(name, tmp_path):
    option = f"-gencode=arch=compute_{name},code=sm_{name}"
    statements = [
        "replace_global_address(to, out);",
        "replace_global_dim<1>(to, 8);",
        "replace_fill_mode<1>(to);",
    ]
    for message in refused(statements, tmp_path, option):
        assert "compile for one with the suffix a or f" in message
        assert "deleted function" in message


@needs_nvcc
def test_the_headers_descriptors_and_k_steps_are_those_of_matrix_descriptor(tmp_path):
    lines = ["#include <tma_dlpack.h>", "using namespace tma_dlpack;"]
    x = np.zeros((256, 256), np.float16)
    for swizzle in ("none", "bytes32", "bytes64", "bytes128"):
        tensor_map = tma.make_tma_descriptor(x, **tma.split_inner(x, (64, 64), swizzle))
        for major, name, steps in [
            ("K", "k_major", f"k_step_bytes<64, Swizzle::{swizzle}>"),
            ("MN", "mn_major", f"mn_major_k_step_bytes<Swizzle::{swizzle}>"),
        ]:
            found = tma.matrix_descriptor(tensor_map, major=major)
            form = f"{name}_descriptor<64, Swizzle::{swizzle}>()"
            lines.append(f"static_assert({form} == {found.value}ull);")
            starts = enumerate(found.k_starts)
            lines += [f"static_assert({steps}({step}) == {start});" for step, start in starts]
    assert len(lines) == 2 + 4 * 2 * (1 + 4)
    source = tmp_path / "descriptors.cu"
    source.write_text("\n".join(lines))
    built = nvcc(source, "-std=c++17", SM_90A, "-cubin", out=tmp_path / "out.cubin")
    assert built.returncode == 0, built.stderr


@needs_nvcc
@pytest.mark.parametrize("header", ["tma_dlpack.h", "tma_dlpack_make.hpp"])
def test_swizzles_have_the_names_values_and_addresses_of_pythons(header, tmp_path):
    lines = [f"#include <{header}>", "using namespace tma_dlpack;"]
    for swizzle in tma.TmaSwizzle:
        name = f"Swizzle::{swizzle.name}"
        lines.append(f"static_assert(static_cast<int>({name}) == {swizzle.value});")
        if header == "tma_dlpack.h":
            lines.append(f"static_assert(span_bytes({name}) == {SPAN_BYTES[swizzle]});")
            lines += [
                f"static_assert(swizzled<{name}>({byte}) == {swizzle_offset(swizzle, byte)});"
                for byte in range(0, 2048, 8)
            ]
    source = tmp_path / "swizzles.cpp"
    source.write_text("\n".join(lines))
    built = nvcc(source, "-std=c++17", "-c", out=tmp_path / "out.o")
    assert built.returncode == 0, built.stderr


@needs_nvcc
def test_tcgen05s_descriptors_are_those_of_matrix_descriptor_in_a_host_compiler_too(tmp_path):
    lines = ["#include <tma_dlpack.h>", "using namespace tma_dlpack;"]
    for dtype, columns in ((np.float16, 64), (np.uint8, 128)):
        x = np.zeros((256, 256), dtype)
        for swizzle in ("none", "bytes32", "bytes64", "bytes128"):
            box = tma.split_inner(x, (64, columns), swizzle)
            tensor_map = tma.make_tma_descriptor(x, **box, target="sm_100")
            for major, name, steps in [
                ("K", "k_major", f"k_step_bytes<64, Swizzle::{swizzle}>"),
                ("MN", "mn_major", f"mn_major_k_step_bytes<Swizzle::{swizzle}, {x.itemsize}>"),
            ]:
                found = tma.matrix_descriptor(tensor_map, instruction="tcgen05", major=major)
                form = f"tcgen05_{name}_descriptor<64, Swizzle::{swizzle}>()"
                lines.append(f"static_assert({form} == {found.value}ull);")
                starts = enumerate(found.k_starts)
                lines += [f"static_assert({steps}({step}) == {start});" for step, start in starts]
                advanced = f"descriptor_at({steps}(1), {form})"
                lines.append(f"static_assert({advanced} == {found.advance(1).value}ull);")
    assert len(lines) == 2 + 4 * 2 * (2 + 4) + 4 * (2 + 4) + 4 * (2 + 2)
    x = np.zeros((256, 256), np.float32)
    for major, name, swizzle in [
        ("K", "tcgen05_k_major", "bytes128"),
        ("MN", "tcgen05_mn_major", "bytes128_atom_32B"),
    ]:
        box = tma.split_inner(x, (64, 32), swizzle)
        tf32 = tma.make_tma_descriptor(x, **box, data_type="TFLOAT32", target="sm_100")
        found = tma.matrix_descriptor(tf32, instruction="tcgen05", major=major)
        form = f"{name}_descriptor<64, Swizzle::{swizzle}>()"
        lines.append(f"static_assert({form} == {found.value}ull);")
    lines.append("static_assert(mn_major_k_step_bytes<Swizzle::bytes128_atom_32B, 4>(1) == ")
    lines.append(f"{found.k_starts[1]});")
    source = tmp_path / "descriptors.cpp"
    source.write_text("\n".join(lines))
    built = nvcc(source, "-std=c++17", "-c", out=tmp_path / "out.o")
    assert built.returncode == 0, built.stderr


#: Accepted neighbours, one step from the refused statements above.
NEIGHBOURS = """
#include <tma_dlpack.h>
using namespace tma_dlpack;
constexpr unsigned long long LARGEST = 262128 >> 4;
static_assert(matrix_descriptor<16, 262128, Swizzle::none>() == (LARGEST << 32 | 1ull << 16));
static_assert(k_major_descriptor<8, Swizzle::bytes64>() == (2ull << 62 | 32ull << 32 | 1ull << 16));
static_assert(swizzled_index<float, Swizzle::bytes32>(1, 1) == 9);
static_assert(swizzled_index<double, Swizzle::bytes128_atom_32B_flip_8B>(1, 1) == 20);
static_assert(tcgen05_mn_major_descriptor<8, Swizzle::bytes128_atom_32B>() >> 61 == 1);
constexpr unsigned after(unsigned steps)
{
  auto state = PipelineState<3>::producer();
  for (unsigned i = 0; i < steps; ++i) state.advance();
  return state.stage() << 1 | state.phase();
}
static_assert(after(0) == 1 && after(2) == 5 && after(3) == 0 && after(5) == 4 && after(6) == 1);
__global__ void kernel(const __grid_constant__ Map map, const __grid_constant__ RankedMap<2> ranked,
                       const __grid_constant__ RankedMap<3> three, void* to)
{
  __shared__ Barrier full;
  load(to, map, &full, 1);
  store(map, to, 1, 2, 3, 4, 5);
  store_im2col(map, to, 1, 2, 3);
  enum { COLUMN = 8 };
  load(to, map, &full, COLUMN, static_cast<int>(1ll));
  load(to, map, &full, 1u, short(1), static_cast<unsigned char>(2));
  load(to, ranked, &full, blockIdx.x * 8, 0);
  prefetch_tile(ranked, evict_first(), 0, 0);
  load_im2col(to, three, &full, 0, 0, 0, OffsetsW{0});
  wgmma_wait<7>();
  take_registers<256>();
  replace_global_dim<4>(static_cast<Map*>(to), 1);
  replace_global_stride<3>(static_cast<Map*>(to), 16);
  replace_elemtype<12>(static_cast<Map*>(to));
  replace_interleave_layout<2>(static_cast<Map*>(to));
  replace_fill_mode<1>(static_cast<Map*>(to));
}
"""


@needs_nvcc
@pytest.mark.parametrize("check", [0, 1], ids=["plain", "checked"])
def test_the_neighbours_of_what_is_refused_compile(check, tmp_path):
    source = tmp_path / "neighbours.cu"
    source.write_text(NEIGHBOURS)
    options = ["-std=c++17", SM_90A, "-c", f"-DTMA_DLPACK_CHECK={check}"]
    built = nvcc(source, *options, out=tmp_path / "out.o")
    assert built.returncode == 0, built.stderr


@needs_nvcc
@pytest.mark.parametrize(
    "first", ["tma_dlpack.h", pytest.param("tma_dlpack_make.hpp", marks=pytest.mark.slow)]
)
def test_both_headers_together_compile_in_either_order(first, tmp_path):
    second = {"tma_dlpack.h": "tma_dlpack_make.hpp", "tma_dlpack_make.hpp": "tma_dlpack.h"}[first]
    source = tmp_path / "both.cu"
    source.write_text(
        f"#include <{first}>\n#include <{second}>\n"
        "static_assert(tma_dlpack::span_bytes(tma_dlpack::Swizzle::bytes64) == 64);\n"
    )
    built = nvcc(source, "-std=c++17", SM_90A, "-c", out=tmp_path / "both.o")
    assert built.returncode == 0, built.stderr


@needs_nvcc
def test_sm_80_is_refused_and_told_what_to_compile_for(tmp_path):
    built = nvcc(EVERY_HELPER, "-std=c++17", "-arch=sm_80", "-cubin", out=tmp_path / "out.cubin")
    assert built.returncode != 0
    assert "needs compute capability 9.0: compile with -gencode=arch=compute_90a" in built.stderr


@needs_nvcc
def test_cpp_14_is_refused_and_told_what_to_pass(tmp_path):
    source = tmp_path / "old.cpp"
    source.write_text("#include <tma_dlpack.h>\n")
    built = nvcc(source, "-std=c++14", "-c", out=tmp_path / "old.o")
    assert built.returncode != 0
    assert "needs C++17: compile with -std=c++17 or later" in built.stderr


@pytest.mark.skipif(util.find_spec("cuda") is None, reason="cuda-bindings is not installed")
@pytest.mark.parametrize("source", [EVERY_HELPER, DOUBLE_TILES], ids=lambda path: path.stem)
@pytest.mark.parametrize("check", [0, 1], ids=["plain", "checked"])
def test_kernels_with_the_header_compile_by_nvrtc_without_any_other_header(source, check):
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        _, program = nvrtc.nvrtcCreateProgram(source.read_bytes(), b"kernel.cu", 0, [], [])
    except Exception as error:
        pytest.skip(f"NVRTC cannot be loaded: {error}")
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17", f"-I{get_include()}".encode()]
    options.append(f"-DTMA_DLPACK_CHECK={check}".encode())
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, log_bytes = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(log_bytes)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()


# --- host part ------------------------------------------------------------------------------------

#: A library without CUDA code. A stand-in has the methods of at::Tensor that the header calls;
#: tests/gpu/test_interop.py passes a real at::Tensor.
HOST = """
#include <tma_dlpack.h>

#include <cstdio>

using tma_dlpack::Swizzle;
static_assert(tma_dlpack::swizzled_index<float, Swizzle::bytes128>(3, 4) == 3 * 32 + 8);
static_assert(tma_dlpack::k_major_descriptor<64, Swizzle::bytes128>() >> 62 == 1);

struct Tensor
{
  void* data;
  long long elements, bytes_each;
  bool on_cpu, contiguous;
  void* data_ptr() const { return data; }
  long long numel() const { return elements; }
  long long element_size() const { return bytes_each; }
  bool is_cpu() const { return on_cpu; }
  bool is_contiguous() const { return contiguous; }
};

template <class... Given>
int take(unsigned char* out, char* message, Given... given)
{
  try
  {
    const CUtensorMap map = tma_dlpack::tensor_map(given...);
    std::memcpy(out, &map, sizeof map);
    return 0;
  }
  catch (const tma_dlpack::map_error& error)
  {
    std::snprintf(message, 400, "%s", error.what());
    return 1;
  }
}

extern "C" int take_pointer(unsigned char* out, char* message, void* data, std::size_t bytes)
{
  return take(out, message, data, bytes);
}

extern "C" int take_address(unsigned char* out, char* message, unsigned long long address)
{
  return take(out, message, static_cast<std::uintptr_t>(address));
}

extern "C" int take_tensor(unsigned char* out, char* message, void* data, long long elements,
                           long long bytes_each, bool on_cpu, bool contiguous)
{
  return take(out, message, Tensor{data, elements, bytes_each, on_cpu, contiguous});
}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Return a function that calls the library: (status 0, bytes) or (status 1, message)."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = tmp_path_factory.mktemp("header")
    (folder / "host.cpp").write_text(HOST)
    library = folder / "host.so"
    linked = ["-shared", "-Xcompiler", "-fPIC", "-Xlinker", "--no-undefined", "-cudart", "none"]
    built = nvcc(folder / "host.cpp", "-std=c++17", *linked, out=library)
    assert built.returncode == 0, built.stderr  # all symbols, without libcuda
    loaded = ctypes.CDLL(str(library))

    def call(name, *arguments):
        out, message = (ctypes.c_ubyte * 128)(), ctypes.create_string_buffer(400)
        failed = getattr(loaded, name)(out, message, *arguments)
        return message.value.decode() if failed else bytes(out)

    return call


def test_a_map_by_its_pointer_arrives_byte_for_byte(host):
    tensor_map = a_map()
    assert host("take_pointer", ctypes.c_void_p(tensor_map.ptr), ctypes.c_size_t(128)) == bytes(
        tensor_map
    )


def test_a_map_by_its_ptr_as_an_integer_arrives_byte_for_byte(host):
    tensor_map = a_map()
    assert host("take_address", ctypes.c_uint64(tensor_map.ptr)) == bytes(tensor_map)


def as_tensor(address, elements=128, bytes_each=1, on_cpu=True, contiguous=True):
    sizes = ctypes.c_longlong(elements), ctypes.c_longlong(bytes_each)
    return ctypes.c_void_p(address), *sizes, ctypes.c_bool(on_cpu), ctypes.c_bool(contiguous)


def test_a_map_as_a_tensor_arrives_byte_for_byte(host):
    tensor_map = a_map()
    assert host("take_tensor", *as_tensor(tensor_map.ptr)) == bytes(tensor_map)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"elements": 127}, "a tensor map is 128 bytes, not 127"),
        ({"elements": 129}, "a tensor map is 128 bytes, not 129"),
        ({"elements": 64, "bytes_each": 2}, "elements of 2 bytes, and must be uint8[128]"),
        ({"on_cpu": False}, "is on a GPU; pass TensorMap.as_torch() on the CPU"),
        ({"contiguous": False}, "is not contiguous"),
    ],
    ids=["short", "long", "int16", "on a GPU", "not contiguous"],
)
def test_a_tensor_that_is_no_map_is_refused(change, said, host):
    tensor_map = a_map()
    assert said in host("take_tensor", *as_tensor(tensor_map.ptr, **change))


def test_a_null_pointer_is_refused(host):
    assert "the pointer to the tensor map is null" in host("take_address", ctypes.c_uint64(0))


@pytest.mark.parametrize("offset", [16, 32, 64])
def test_a_copy_of_the_bytes_elsewhere_is_refused_by_its_alignment(offset, host):
    room = np.zeros(512, np.uint8)
    start = -room.ctypes.data % 128 + offset
    room[start : start + 128] = np.frombuffer(bytes(a_map()), np.uint8)
    message = host("take_address", ctypes.c_uint64(room.ctypes.data + start))
    assert "not aligned to 128 bytes, so this is a copy or a map that cannot be launched" in message


def test_zeroed_bytes_are_refused(host):
    zeroed = tma.TensorMap.from_bytes(bytes(128))
    assert "an all-zero map, which describes no tensor" in host(
        "take_address", ctypes.c_uint64(zeroed.ptr)
    )


def test_the_map_of_a_host_tensor_has_no_pointer_to_pass():
    tensor_map = tma.make_tma_descriptor(np.zeros((16, 32), np.float32), (16, 32))
    with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
        _ = tensor_map.ptr


@needs_nvcc
def test_rows_are_gathered_by_maps_of_rank_2_alone(tmp_path):
    statements = [
        "load_gather4(out, three, &full, 0, 1, 2, 3, 4);",
        "load_gather4(out, map, &full, 0, 1, 2, 3, 4.0);",
        "store_scatter4(map, out, 0, 1, 2, 3, 4ll);",
    ]
    option = "-gencode=arch=compute_100a,code=sm_100a"
    rank, *coordinates = refused(statements, tmp_path, option)
    assert "rows are gathered by a map of rank 2" in rank
    assert all("an integer of at most 32 bits" in said for said in coordinates)
