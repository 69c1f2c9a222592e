"""tma_dlpack_make.hpp accepts the tensor types of common packages, with their real headers."""

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import tma_dlpack as tma

COMPILER = shutil.which("c++") or shutil.which("g++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

#: Type of the tensor -> (package, header folders of the package, header that declares the type).
TYPES = {
    "at::Tensor": ("torch", ["include"], "ATen/core/Tensor.h"),
    "torch::stable::Tensor": ("torch", ["include"], "torch/csrc/stable/tensor.h"),
    "tvm::ffi::Tensor": ("tvm_ffi", ["include"], "tvm/ffi/container/tensor.h"),
    "tvm::ffi::TensorView": ("tvm_ffi", ["include"], "tvm/ffi/container/tensor.h"),
    "DLTensor": ("tvm_ffi", ["include"], "dlpack/dlpack.h"),
    "nanobind::ndarray<>": ("nanobind", ["include"], "nanobind/ndarray.h"),
    "nanobind::ndarray<const float, nanobind::ndim<2>>": (
        "nanobind",
        ["include"],
        "nanobind/ndarray.h",
    ),
}
SOURCE = """
#include <{first}>
#include <{second}>
tma_dlpack::TriedMap tried(const {type}& tensor)
{{
  return tma_dlpack::try_make_tma_descriptor(tensor, {{16, 32}});
}}
tma_dlpack::MadeMap made(const {type}& tensor)
{{
  return tma_dlpack::make_im2col_descriptor(tensor, {{0, 0}}, {{0, 0}}, 32, 16);
}}
"""


def folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    return Path(found.submodule_search_locations[0])


def compiled(source: Path, *options) -> str:
    """Compile a file; return the compiler's messages, which are empty if the file compiles."""
    include = f"-I{tma.get_include()}"
    command = [COMPILER, "-std=c++20", include, *map(str, options), str(source)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def options_for(package: str, folders: list[str]) -> list[str]:
    found = [f"-isystem{folder_of(package) / folder}" for folder in folders]
    return [*found, f"-isystem{sysconfig.get_path('include')}"]


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours_first", "theirs_first"])
@pytest.mark.parametrize("tensor", TYPES)
def test_a_tensor_of_each_package_is_taken_whichever_header_comes_first(
    tensor, ours_first, tmp_path
):
    package, folders, header = TYPES[tensor]
    names = ["tma_dlpack_make.hpp", header]
    first, second = names if ours_first else names[::-1]
    source = tmp_path / "takes.cpp"
    source.write_text(SOURCE.format(first=first, second=second, type=tensor))
    options = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", *options_for(package, folders)]
    assert compiled(source, *options) == ""


@pytest.mark.parametrize(
    ("tensor", "header"),
    [("pybind11::array", "pybind11/numpy.h"), ("std::vector<float>", "vector"), ("int", "vector")],
)
def test_another_type_is_refused_in_one_sentence_that_lists_what_is_taken(tensor, header, tmp_path):
    options = options_for("pybind11", ["include"]) if "pybind11" in header else []
    source = tmp_path / "refuses.cpp"
    source.write_text(
        f"#include <tma_dlpack_make.hpp>\n#include <{header}>\n"
        f"auto made(const {tensor}& x) {{ return tma_dlpack::make_tma_descriptor(x, {{16, 32}}); }}"
    )
    said = compiled(source, "-fsyntax-only", *options)
    assert said.count("error: ") == 1
    assert "tma_dlpack takes an at::Tensor, a torch::stable::Tensor, a DLTensor" in said


#: A TensorView of DLPack's struct, with an offset: its address is data and the offset.
VIEWS = """
#include <tma_dlpack_make.hpp>
#include <tvm/ffi/container/tensor.h>
#include <cstdio>
int main()
{
  std::int64_t shape[] = {64, 128}, strides[] = {128, 1};
  DLTensor tensor{(void*)0x7f0000000000, {kDLCUDA, 99}, 2, {kDLBfloat, 16, 1}, shape, strides, 256};
  const auto of = [](const auto& any)
  { return tma_dlpack::try_make_tma_descriptor(any, {16, 64}).refusal; };
  std::puts(of(tensor).c_str());
  std::puts(of(tvm::ffi::TensorView(&tensor)).c_str());
}
"""


def test_a_view_of_tvm_ffi_is_the_tensor_that_it_views(tmp_path):
    import_tvm = pytest.importorskip("tvm_ffi.libinfo")
    library = Path(import_tvm.find_libtvm_ffi())
    source, program = tmp_path / "views.cpp", tmp_path / "views"
    source.write_text(VIEWS)
    options = options_for("tvm_ffi", ["include"])
    linked = [library, f"-Wl,-rpath,{library.parent}", "-ldl", "-o", program]
    command = [COMPILER, "-std=c++20", f"-I{tma.get_include()}", *options, source, *linked]
    subprocess.run([*map(str, command)], check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")
    assert "globalAddress=0x7f0000000100" in lines[0]
    assert "globalDim={128, 64}, globalStrides={256}, boxDim={64, 16}" in lines[0]
    assert lines[1] == lines[0]


#: The program reads torch's type numbers from stand-ins with torch's methods.
OF_TORCH = """
#include <tma_dlpack_make.hpp>
#include <cstdio>
#include <cstdlib>
struct Sizes
{
  const std::int64_t* numbers;
  const std::int64_t* data() const { return numbers; }
};
struct Tensor  // the methods of torch::stable::Tensor
{
  int type;
  std::int64_t shape[2] = {64, 64}, steps[2] = {64, 1};
  int scalar_type() const { return type; }
  bool is_cuda() const { return true; }
  int get_device() const { return 99; }
  std::int64_t dim() const { return 2; }
  Sizes sizes() const { return {shape}; }
  Sizes strides() const { return {steps}; }
  void* data_ptr() const { return reinterpret_cast<void*>(0x7f0000000000); }
};
int main(int, char** arguments)
{
  const Tensor tensor{std::atoi(arguments[1])};
  std::puts(tma_dlpack::try_make_tma_descriptor(tensor, {16, 64}).refusal.c_str());
}
"""


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("of_torch")
    (folder / "of_torch.cpp").write_text(OF_TORCH)
    program = folder / "of_torch"
    command = [COMPILER, "-std=c++17", f"-I{tma.get_include()}", folder / "of_torch.cpp", "-ldl"]
    subprocess.run([*map(str, command), "-o", str(program)], check=True)

    def of(number: int) -> str:
        command = [program, str(number)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return of


def test_an_element_of_torchs_fp4_is_two_values_as_in_python(of_torch):
    line = of_torch(45)
    assert "tensorDataType=13, tensorRank=2, " in line  # 16U4_ALIGN8B
    assert "globalDim={128, 64}, globalStrides={64}, boxDim={64, 16}" in line
    assert "broken: PACKED_TYPE; " in line  # a rule of sm_90, the target without a GPU
    torch = pytest.importorskip("torch")
    x = torch.zeros(64, 64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    rules = [v.rule for v in tma.check_tma_descriptor(x, (16, 64), target="sm_90").violations]
    assert rules == ["PACKED_TYPE"]
    on_sm_100 = tma.make_tma_descriptor(x, (16, 64), target="sm_100")
    assert (int(on_sm_100.data_type), on_sm_100.global_dim) == (13, (128, 64))


def test_types_that_no_map_has_are_refused_by_the_rule_or_by_torchs_number(of_torch):
    assert "broken: DTYPE" in of_torch(9)  # complex64
    assert "no tensor map has elements of torch's ScalarType 12; pass" in of_torch(12)  # quantized
    assert "no such GPU" in of_torch(15)
    assert "broken" not in of_torch(15)  # bfloat16
