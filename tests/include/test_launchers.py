"""The table of launchers in the guide, held against the launchers' own packages."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "notebooks" / "guide" / "one_call.md"


def test_numba_cuda_mlir_takes_the_bindings_map_by_value():
    pytest.importorskip("numba_cuda_mlir.typing.cuda")
    from cuda.bindings import driver
    from numba_cuda_mlir import types
    from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

    assert typeof(driver.CUtensorMap()) is types.CUTensorMap
    assert types.grid_constant(types.CUTensorMap) == types.CUTensorMap
    (row,) = re.findall(r"^\| numba-cuda-mlir .*$", GUIDE.read_text("utf-8"), re.M)
    assert "`tm.as_cuda_bindings()`" in row
    assert "grid_constant(CUTensorMap)" in row


def test_every_method_in_the_table_is_one_of_a_tensor_map():
    import tma_dlpack as tma

    table = GUIDE.read_text("utf-8").split("| launcher |")[1].split("\n\n")[0]
    names = set(re.findall(r"`tm\.(\w+)", table))
    assert names >= {"as_torch", "as_cuda_bindings", "as_ctypes", "numpy"}
    assert [name for name in names if not hasattr(tma.TensorMap, name)] == []
