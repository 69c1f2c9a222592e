"""tma_dlpack_check.h compiles wherever tma_dlpack.h does; without its macro, code is unchanged."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from laws import by_cost

import tma_dlpack
from tma_dlpack.include import get_include
from tma_dlpack.tables.bits import DERIVED_FIELDS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(tma_dlpack.__file__).parent
KERNELS = [
    "tests/gpu/changed_maps.cu",
    "tests/every_helper.cu",
    "tests/gpu/header_kernels.cu",
    "tma_dlpack/copies/kernels/copies.cu",
    "tma_dlpack/verification/kernels/bandwidth.cu",
    "tma_dlpack/verification/kernels/changes.cu",
    "notebooks/hopper_conv.cu",  # includes hopper_gemm.cu
    "notebooks/grouped_gemm.cu",
]
CHECKED_LINES = re.compile(r"^#if TMA_DLPACK_CHECK$.*?^#endif$\n", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
fast_for_one_and_slow_for_the_others = pytest.mark.parametrize(
    "kernel", by_cost(KERNELS, fast=KERNELS[:1], slow=["tests/every_helper.cu"])
)


def cubin(kernel: str, include: str, out: Path, *options: str, arch: str = "90a") -> bytes:
    target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    own = "tma_dlpack/"  # a file of the package, which may be installed elsewhere
    source = PACKAGE / kernel.removeprefix(own) if kernel.startswith(own) else ROOT / kernel
    command = ["nvcc", "-std=c++17", target, "-cubin", f"-I{include}", *options]
    built = subprocess.run(
        [*command, "-o", str(out), str(source)], capture_output=True, text=True, check=False
    )
    if "Unsupported gpu architecture" in built.stderr:
        pytest.skip(f"this nvcc does not know sm_{arch}")
    assert built.returncode == 0, built.stderr
    return out.read_bytes()


def instructions(elf: bytes) -> dict[str, bytes]:
    """Return the machine code of every kernel: the sections .text.* of an ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names_at = struct.unpack_from("<3H", elf, 58)
    heads = [struct.unpack_from("<2I4Q", elf, table + i * size) for i in range(count)]
    names = elf[heads[names_at][4] :]
    sections = {
        names[name : names.index(b"\0", name)].decode(): elf[offset : offset + length]
        for name, _, _, _, offset, length in heads
    }
    return {name: code for name, code in sections.items() if name.startswith(".text.")}


@fast_for_one_and_slow_for_the_others
def test_without_the_macro_not_one_instruction_is_different_and_with_it_some_are(kernel, tmp_path):
    header = (Path(get_include()) / "tma_dlpack.h").read_text()
    never_checked, removed = CHECKED_LINES.subn("", header)
    assert removed == 3
    assert '#include "tma_dlpack_check.h"' not in never_checked
    (tmp_path / "tma_dlpack.h").write_text(never_checked)
    mma = (Path(get_include()) / "tma_dlpack_mma.h").read_text()
    (tmp_path / "tma_dlpack_mma.h").write_text(CHECKED_LINES.sub("", mma))
    expected = instructions(cubin(kernel, str(tmp_path), tmp_path / "a.cubin"))
    assert expected
    assert instructions(cubin(kernel, get_include(), tmp_path / "b.cubin")) == expected
    if kernel == KERNELS[0]:
        zero = cubin(kernel, get_include(), tmp_path / "c.cubin", "-DTMA_DLPACK_CHECK=0")
        assert instructions(zero) == expected
    warnings = "-Werror=all-warnings", "-DTMA_DLPACK_CHECK=1"
    checked = instructions(cubin(kernel, get_include(), tmp_path / "d.cubin", *warnings))
    assert checked.keys() >= expected.keys()
    assert any(code != checked[name] for name, code in expected.items())


@pytest.mark.parametrize(
    "arch",
    by_cost(
        ["90", "100a", "100f", "103a", "107a", "110a", "120a", "120f", "121a"],
        slow=["90", "100a", "120f"],
    ),
)
def test_the_checked_build_compiles_for_every_architecture(arch, tmp_path):
    kernel = KERNELS[1 if arch == "90" else 0]  # without "a" no kernel can change a map
    code = cubin(kernel, get_include(), tmp_path / "a.cubin", "-DTMA_DLPACK_CHECK=1", arch=arch)
    assert instructions(code)


def test_the_field_numbers_are_those_of_the_package():
    header = (Path(get_include()) / "tma_dlpack_check.h").read_text()
    numbers = dict(re.findall(r"\b([A-Z0-9_]+) = (\d+)[,;]", header))
    first = {f.name: f.bit for f in reversed(DERIVED_FIELDS)}
    second = {f.name: f.bit for f in DERIVED_FIELDS if f.index == 1}
    names = {
        "IM2COL": "im2col",
        "RANK": "rank",
        "ELEMENT_TYPE": "element_type",
        "INTERLEAVE": "interleave",
        "SWIZZLE": "swizzle",
        "SWIZZLE_ATOMICITY": "swizzle_atomicity",
        "GLOBAL_DIM": "global_dim",
        "ELEMENT_STRIDE": "element_strides",
        "BOX_DIM": "box_dim",
        "CHANNELS": "channels_per_pixel",
        "PIXELS": "pixels_per_column",
        "LOWER_CORNER": "pixel_box_lower_corner",
        "UPPER_CORNER": "pixel_box_upper_corner",
    }
    expected = {name: first[field] for name, field in names.items()}
    for name in ("GLOBAL_DIM", "ELEMENT_STRIDE", "BOX_DIM"):
        expected[f"{name}_STEP"] = second[names[name]] - first[names[name]]
    assert {name: int(numbers[name]) for name in expected} == expected


def strings(ptx: str) -> set[str]:
    """Return the texts of the constants of a module."""
    rows = re.findall(r"\.b8 \S+\[\d+\] = \{([^}]*)\}", ptx)
    return {bytes(int(n) & 255 for n in row.split(",")).rstrip(b"\0").decode() for row in rows}


@pytest.mark.parametrize(
    ("source", "arch"),
    [
        ("tests/gpu/misuses.cu", "90a"),
        ("tests/gpu/header_kernels.cu", "90a"),
        ("notebooks/hopper_gemm.cu", "90a"),
        ("notebooks/blackwell_gemm.cu", "100a"),
    ],
)
def test_the_place_of_every_call_is_in_the_file_that_calls(source, arch, tmp_path):
    """No verb reports a line of the header, as nvcc does if a parameter's type is dependent."""
    out, path = tmp_path / "a.ptx", ROOT / source
    command = ["nvcc", "-std=c++17", f"-arch=sm_{arch}", "-ptx", f"-I{get_include()}"]
    command += ["-DTMA_DLPACK_CHECK=1", "-o", str(out), str(path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    places = {Path(text).name for text in strings(out.read_text()) if text.endswith((".h", ".cu"))}
    assert path.name in places
    assert places <= {path.name, *re.findall(r'#include "(\w+\.cu)"', path.read_text())}
