"""The table of launchers in the guide, compared with the launchers' packages."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma

GUIDE = Path(__file__).parents[2] / "notebooks" / "guide" / "one_call.md"


def test_numba_cuda_mlir_takes_the_bindings_map_by_value():
    pytest.importorskip("numba_cuda_mlir.typing.cuda")
    from cuda.bindings import driver
    from numba_cuda_mlir import types
    from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

    assert typeof(driver.CUtensorMap()) is types.CUTensorMap
    assert types.grid_constant(types.CUTensorMap) == types.CUTensorMap
    (row,) = re.findall(r"^\| numba-cuda-mlir .*$", GUIDE.read_text("utf-8"), re.M)
    assert "the map itself" in row


def test_numba_cuda_mlir_gets_the_type_and_the_address_of_a_map():
    pytest.importorskip("numba_cuda_mlir.typing.cuda")
    from numba_cuda_mlir import types
    from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

    tensor_map = tma.make_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(32, 32))
    assert typeof(tensor_map) is types.CUTensorMap
    with pytest.raises(tma.TmaUnsupportedError, match="describes a host tensor"):
        tensor_map.__tma_descriptor_c_api__()
    dump = tma.TensorMap.from_bytes(bytes(tensor_map))
    assert dump.__tma_descriptor_c_api__() == dump.ptr


def test_a_map_has_no_numba_type_where_numba_cuda_mlir_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "numba_cuda_mlir", raising=False)
    tensor_map = tma.make_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(32, 32))
    assert getattr(tensor_map, "_numba_type_", None) is None


def test_a_compiler_that_makes_a_pointer_of_the_map_is_refused(monkeypatch):
    pytest.importorskip("numba_cuda_mlir.typing.cuda")
    from numba_cuda_mlir import cuda

    from tma_dlpack.tensor_map import text

    tensor_map = tma.make_tma_descriptor(np.zeros((64, 64), np.float32), box_sizes=(32, 32))
    for parameter in (".param .u64 k_param_0", ".param .align 128 .b8 k_param_0[128]"):
        text._passes_maps_by_value.cache_clear()
        monkeypatch.setattr(cuda, "compile_ptx", lambda *_, found=parameter: (found, None))
        if "u64" in parameter:
            with pytest.raises(tma.TmaUnsupportedError, match=r"m = tensor_map.as_torch\(\).cuda"):
                _ = tensor_map._numba_type_
        else:
            assert tensor_map._numba_type_ is not None
    text._passes_maps_by_value.cache_clear()


def test_every_method_in_the_table_is_one_of_a_tensor_map():
    table = GUIDE.read_text("utf-8").split("| launcher |")[1].split("\n\n")[0]
    names = set(re.findall(r"`tm\.(\w+)", table))
    assert names >= {"as_torch", "as_cuda_bindings", "as_ctypes", "numpy"}
    assert [name for name in names if not hasattr(tma.TensorMap, name)] == []
