"""A map keeps its tensor alive, but the tensor's memory may move; a copy is then refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from copy_cases import grow_until_moved

import tma_dlpack as tma
from tma_dlpack.copies.cuda import CudaBackend
from tma_dlpack.copies.memory import device_extent_of, host_extent_of

BOX = (4, 8)


def torch_matrix():
    return torch.arange(64 * 32, dtype=torch.float32).reshape(64, 32)


def torch_parameter():
    return torch.nn.Parameter(torch_matrix())


def numpy_matrix():
    return torch_matrix().numpy().copy()


def set_data(x):
    x.data = torch.zeros(64, 32)


def transpose(x):
    x.t_()


#: Event -> how the tensor is made, what moves its memory, and the message.
MOVES = {
    "torch x.data = y": (torch_parameter, set_data, "the address of the map's tensor"),
    "torch x.resize_(bigger)": (torch_matrix, lambda x: x.resize_(8192, 32), "the address"),
    "torch x.resize_(smaller)": (torch_matrix, lambda x: x.resize_(8, 32), "(8, 32)"),
    "torch x.t_()": (torch_matrix, transpose, "(32, 64)"),
    "torch storage emptied": (
        torch_matrix,
        lambda x: x.untyped_storage().resize_(0),
        "data_ptr() is 0",
    ),
    "numpy x.resize": (numpy_matrix, grow_until_moved, "the address"),
    "numpy x.shape": (numpy_matrix, lambda x: setattr(x, "shape", (32, 64)), "(32, 64)"),
    "numpy x.dtype": (numpy_matrix, lambda x: setattr(x, "dtype", np.int32), "int32"),
}
VERBS = {
    "load_tile": lambda tm: tma.load_tile(tm, (4, 8)),
    "load_tiles": lambda tm: tma.load_tiles(tm, [(4, 8), (0, 0)]),
    "store_tile": lambda tm: tma.store_tile(tm, (4, 8), np.ones(BOX, np.float32)),
    "reduce_tile": lambda tm: tma.reduce_tile(tm, (4, 8), np.ones(BOX, np.float32), "add"),
}


def moved(call, *args):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call(*args)
    (violation,) = caught.value.violations
    assert violation.rule == "COPY_MOVED"
    assert "with_address(x)" in violation.fix
    return caught.value


@pytest.mark.filterwarnings("ignore:Setting the (shape|dtype):DeprecationWarning")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("move", MOVES)
def test_a_tensor_that_moved_after_its_map_was_made_is_refused(move, verb):
    make, happen, words = MOVES[move]
    x = make()
    tensor_map = tma.make_tma_descriptor(x, BOX)
    VERBS[verb](tensor_map)
    happen(x)
    assert words in str(moved(VERBS[verb], tensor_map))


def test_a_layer_cast_to_half_is_refused_and_its_new_map_is_not():
    layer = torch.nn.Linear(64, 64, bias=False)
    tensor_map = tma.make_tma_descriptor(layer.weight, BOX)
    layer.half()
    moved(tma.load_tile, tensor_map, (0, 0))
    again = tma.make_tma_descriptor(layer.weight, BOX)
    tile = tma.load_tile(again, (0, 0)).array
    np.testing.assert_array_equal(tile, layer.weight.detach().numpy()[:4, :8])


def test_a_tensor_that_came_back_is_loaded():
    x, tile = torch_parameter(), torch_matrix()[:4, :8]
    tensor_map, data = tma.make_tma_descriptor(x, BOX), x.data
    set_data(x)
    moved(tma.load_tile, tensor_map, (0, 0))
    x.data = data
    np.testing.assert_array_equal(tma.load_tile(tensor_map, (0, 0)).array, tile)


def test_a_map_moved_along_by_with_address_is_loaded():
    x = torch_parameter()
    tensor_map = tma.make_tma_descriptor(x, BOX)
    x.data = torch_matrix() + 1
    tile = tma.load_tile(tensor_map.with_address(x), (0, 0)).array
    np.testing.assert_array_equal(tile, torch_matrix()[:4, :8] + 1)


@pytest.mark.parametrize("kept", [64 * 32 * 4, 64 * 32 * 4 - 1])
def test_a_torch_storage_that_lost_the_last_byte_is_refused(kept):
    storage = torch_matrix().untyped_storage()
    x = torch.empty(0).set_(storage, 0, (64, 32))
    tensor_map = tma.make_tma_descriptor(x, BOX)
    storage.resize_(kept)
    tensor_map = tensor_map.with_address(x)  # the address of the smaller storage
    if kept == 64 * 32 * 4:
        assert tma.load_tile(tensor_map, (60, 24)).array.shape == BOX
    else:
        assert "no longer contains its 8192 bytes" in str(moved(tma.load_tile, tensor_map, (0, 0)))


def test_a_part_of_a_torch_storage_is_loaded_from_its_own_bytes():
    whole = torch_matrix()
    tensor_map = tma.make_tma_descriptor(whole[60:, :16], BOX)
    np.testing.assert_array_equal(tma.load_tile(tensor_map, (0, 8)).array, whole[60:, 8:16])


def test_a_deleted_jax_array_is_refused_with_what_jax_says():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones((64, 32))
    tensor_map = tma.make_tma_descriptor(x, BOX)
    assert (tma.load_tile(tensor_map, (0, 0)).array == 1).all()
    x.delete()
    error = moved(tma.load_tile, tensor_map, (0, 0))
    assert "Array has been deleted" in str(error)
    assert "Array has been deleted" in str(error.__cause__)


def test_an_array_that_became_read_only_is_loaded_and_not_written():
    x = numpy_matrix()
    tensor_map = tma.make_tma_descriptor(x, BOX)
    before = x.copy()
    x.flags.writeable = False
    for verb in ("store_tile", "reduce_tile"):
        with pytest.raises(tma.TmaPreconditionError, match="COPY_READ_ONLY"):
            VERBS[verb](tensor_map)
    np.testing.assert_array_equal(tma.load_tile(tensor_map, (4, 8)).array, before[4:8, 8:16])
    np.testing.assert_array_equal(x, before)
    x.flags.writeable = True
    VERBS["store_tile"](tensor_map)
    assert (x[4:8, 8:16] == 1).all()


def test_a_capsule_that_the_map_keeps_holds_the_memory_of_a_temporary():
    class Exporter:
        """A producer that exports a new copy at each call."""

        def __dlpack__(self, **keywords):
            return numpy_matrix().__dlpack__(**keywords)

        def __dlpack_device__(self):
            return (1, 0)

    exporter = Exporter()
    tensor_map = tma.make_tma_descriptor(exporter, BOX)
    others = [tma.make_tma_descriptor(exporter, BOX) for _ in range(3)]
    assert tensor_map.global_address not in [m.global_address for m in others]
    tile = tma.load_tile(tensor_map, (4, 8)).array
    np.testing.assert_array_equal(tile, numpy_matrix()[4:8, 8:16])


# --- On a GPU -----------------------------------------------------------------------------------


class OnGpu:
    """A CUDA tensor with a `__cuda_array_interface__`, whose fields a test may change."""

    def __init__(self, address=1 << 40, read_only=False):
        self.address, self.read_only, self.shape = address, read_only, (64, 32)

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "typestr": "<f4",
            "shape": self.shape,
            "data": (self.address, self.read_only),
        }


@pytest.mark.parametrize(("field", "value"), [("address", 1 << 41), ("shape", (8, 32))])
def test_a_gpu_tensor_that_moved_is_refused_before_a_driver_is_asked(field, value):
    x = OnGpu()
    tensor_map = tma.make_tma_descriptor(x, BOX, target="sm_90")
    setattr(x, field, value)
    assert field in str(moved(CudaBackend().load_tile, tensor_map, (4, 8)))


def test_a_gpu_tensor_in_its_place_is_known_to_its_last_byte():
    x = OnGpu()
    tensor_map = tma.make_tma_descriptor(x, BOX, target="sm_90")
    extent = device_extent_of(tensor_map, None, write=True)
    assert (extent.origin, extent.size_bytes) == (0, 64 * 32 * 4)
    x.read_only = True
    with pytest.raises(tma.TmaPreconditionError, match="COPY_READ_ONLY"):
        device_extent_of(tensor_map, None, write=True)


def test_the_map_of_a_gpu_tensor_is_simulated_in_the_array_that_stands_for_its_memory():
    memory = numpy_matrix().view(np.uint8).reshape(-1)
    x = OnGpu(address=memory.ctypes.data)
    tensor_map = tma.make_tma_descriptor(x, BOX, target="sm_90")
    tile = tma.load_tile(tensor_map, (4, 8), memory=memory)  # no backend= needed
    np.testing.assert_array_equal(tile.array, numpy_matrix()[4:8, 8:16])
    with pytest.raises(tma.TmaUnsupportedError, match='use backend="cuda"'):
        host_extent_of(tensor_map, None, write=False)


class Silent(torch.Tensor):
    """Exports all attributes except its storage."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.untyped_storage:
            raise RuntimeError("no storage to tell")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_tensor_that_does_not_tell_its_storage_is_refused():
    tm = tma.make_tma_descriptor(torch_matrix().as_subclass(Silent), BOX)
    with pytest.raises(tma.TmaPreconditionError, match="no storage to tell"):
        tma.load_tile(tm, (0, 0))
