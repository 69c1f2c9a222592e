"""Objects that were compiled with the headers of two releases work in one program."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import tma_dlpack as tma

#: The released headers of 0.3.0, in which names do not contain the release.
OLD = Path(__file__).parents[1] / "golden" / "headers_0_3_0.tar.xz"
COMPILER = shutil.which("c++") or shutil.which("g++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

#: The message of each release for one call. The structs of the call have grown since 0.3.0.
SOURCE = """
#include <tma_dlpack_make.hpp>
std::string NAME()
{
  std::int64_t shape[] = {64, 128};
  TmaDlpackTensor tensor = {(void*)0x7f0000000000, {1, 0}, 2, {4, 16, 1}, shape, nullptr, 0};
  tma_dlpack::MakeOptions options;
  options.allow = {"BOX_IN_SHAPE"};
  const auto swizzle = tma_dlpack::Swizzle::bytes128;
  return tma_dlpack::try_make_tma_descriptor(tensor, {64, 100}, swizzle, options).refusal;
}
"""
MAIN = """
#include <cstdio>
#include <string>
std::string of_0_3();
std::string of_today();
int main() { std::printf("%s\\n%s\\n", of_0_3().c_str(), of_today().c_str()); }
"""
OURS = re.compile(r"\b[WVu] (\w*(?:tma_dlpack|TmaDlpack)\w*)$", re.M)


def run(*command) -> str:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a folder with both releases' objects, without and with optimisation."""
    folder = tmp_path_factory.mktemp("abi")
    with tarfile.open(OLD) as archive:
        archive.extractall(folder / "old", filter="data")
    (folder / "main.cpp").write_text(MAIN)
    run(COMPILER, "-c", folder / "main.cpp", "-o", folder / "main.o")
    for name, include in (("of_0_3", folder / "old"), ("of_today", tma.get_include())):
        (folder / f"{name}.cpp").write_text(SOURCE.replace("NAME", name))
        for level in ("-O0", "-O2"):
            command = [COMPILER, "-std=c++17", level, "-fPIC", f"-I{include}", "-c"]
            run(*command, folder / f"{name}.cpp", "-o", folder / f"{name}{level}.o")
    return folder


def said(folder: Path, *linked) -> list[str]:
    """Return what a program of main.o and these files prints: 0.3's line, today's line."""
    program = folder / "program"
    run(COMPILER, folder / "main.o", *linked, f"-Wl,-rpath,{folder}", "-ldl", "-o", program)
    return run(program).splitlines()


def is_right(lines: list[str]) -> bool:
    """Return whether both lines have the requested box."""
    return len(lines) == 2 and all(
        "boxDim={100, 64}" in line and "BOX_INNER_16B" in line for line in lines
    )


@pytest.mark.parametrize("levels", [("-O0", "-O0"), ("-O2", "-O2"), ("-O0", "-O2"), ("-O2", "-O0")])
def test_two_releases_answer_rightly_in_one_program_in_either_order(levels, built):
    old, new = built / f"of_0_3{levels[0]}.o", built / f"of_today{levels[1]}.o"
    assert is_right(said(built, old, new))
    assert is_right(said(built, new, old))


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_two_releases_answer_rightly_as_shared_libraries(level, built):
    for name in ("of_0_3", "of_today"):
        library = built / f"lib{name}{level}.so"
        run(COMPILER, "-shared", built / f"{name}{level}.o", "-ldl", "-o", library)
    old, new = built / f"libof_0_3{level}.so", built / f"libof_today{level}.so"
    assert is_right(said(built, old, new))
    assert is_right(said(built, new, old))


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_no_weak_symbol_of_ours_has_one_name_in_both_releases(level, built):
    old, new = (
        set(OURS.findall(run("nm", built / f"{name}{level}.o"))) for name in ("of_0_3", "of_today")
    )
    assert old
    assert new
    assert old & new == set()


def test_a_release_without_its_number_in_its_names_would_be_found(built, tmp_path):
    """Without the inline namespaces, today's objects have the names of 0.3, as in 0.4.0.dev0."""
    for header in Path(tma.get_include()).glob("tma_dlpack*.h*"):
        text = re.sub(r"inline namespace v\d+_\d+\n\{", "", header.read_text())
        text = re.sub(r"^\} +// namespace v\d+_\d+$", "", text, flags=re.M)
        text = re.sub(r"^(#define TMA_DLPACK_(?:BEGIN|END)) .*", r"\1", text, flags=re.M)
        (tmp_path / header.name).write_text(text)
    source, found = built / "of_today.cpp", tmp_path / "of_today.o"
    run(COMPILER, "-std=c++17", "-O0", "-fPIC", f"-I{tmp_path}", "-c", source, "-o", found)
    assert set(OURS.findall(run("nm", built / "of_0_3-O0.o"))) & set(OURS.findall(run("nm", found)))


def test_the_headers_say_of_which_release_they_are():
    major, minor, patch = map(int, re.match(r"(\d+)\.(\d+)\.(\d+)", tma.__version__).groups())
    version = major * 10000 + minor * 100 + patch
    include = Path(tma.get_include())
    for name in ("tma_dlpack.h", "tma_dlpack_tables.h"):
        text = (include / name).read_text()
        assert f"#define TMA_DLPACK_VERSION {version}\n" in text
        assert f"#elif TMA_DLPACK_VERSION != {version}\n" in text
    for header in include.glob("tma_dlpack*.h*"):
        text = header.read_text()
        opened = re.findall(r"^namespace tma_dlpack\n\{\n(?:inline namespace (\w+)\n)?", text, re.M)
        assert set(opened) <= {f"v{major}_{minor}"}, header.name


def test_headers_of_two_releases_in_one_file_are_refused(tmp_path):
    source = tmp_path / "both.cpp"
    source.write_text("#define TMA_DLPACK_VERSION 300\n#include <tma_dlpack_make.hpp>\n")
    command = [COMPILER, "-std=c++17", f"-I{tma.get_include()}", "-fsyntax-only", str(source)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "two releases of tma_dlpack in one file" in refused.stderr
