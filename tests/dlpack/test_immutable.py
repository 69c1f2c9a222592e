"""Views of immutable tensors are read-only. `__dlpack__` of known producers is called again."""

from __future__ import annotations

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.dlpack import as_tensor_view


class Wrapping:
    """An object with only DLPack's methods, which export another array."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def imitation(module: str, name: str):
    """Return a class whose module is that of another framework."""
    return type(name, (Wrapping,), {"__module__": module})


def codes(call) -> list[str]:
    with pytest.raises(tma.TmaPreconditionError) as caught:
        call()
    return [violation.rule for violation in caught.value.violations]


@pytest.mark.parametrize(
    ("module", "name", "read_only"),
    [
        ("tensorflow.python.framework.ops", "EagerTensor", True),
        ("tensorflow.python.framework.tensor", "Tensor", True),
        ("tensorflow.python.ops.resource_variable_ops", "ResourceVariable", False),
        ("pyarrow.lib", "FloatArray", True),
        ("jaxlib._jax", "ArrayImpl", True),
        ("paddle", "Tensor", False),
        ("somebody.else", "Tensor", False),
    ],
)
def test_what_never_changes_is_read_only(module, name, read_only):
    x = imitation(module, name)(np.zeros((8, 16), np.float32))
    assert as_tensor_view(x).read_only == read_only
    tm = tma.make_tma_descriptor(x, (8, 16))
    ones = np.ones((8, 16), np.float32)
    if read_only:
        assert codes(lambda: tma.store_tile(tm, (0, 0), ones)) == ["COPY_READ_ONLY"]
        assert not x.array.any()
    else:
        tma.store_tile(tm, (0, 0), ones)
        assert x.array.all()


def test_a_paddle_tensor_that_is_reshaped_in_place_has_moved():
    x = imitation("paddle", "Tensor")(np.zeros((8, 16), np.float32))
    tm = tma.make_tma_descriptor(x, (8, 16))
    tma.load_tile(tm, (0, 0))
    x.array = x.array.reshape(16, 8)  # as paddle's reshape_ does, with the same memory
    assert codes(lambda: tma.load_tile(tm, (0, 0))) == ["COPY_MOVED"]


def test_a_wrapper_that_has_only_dlpacks_methods_is_read_through_them():
    """A wrapper such as torch 2.15's torch.utils.dlpack.ReadOnlyTensorWrapper."""
    torch = pytest.importorskip("torch")
    array = np.arange(128, dtype=np.float32).reshape(8, 16)
    array.flags.writeable = False
    kind = imitation("torch.utils.dlpack", "ReadOnlyTensorWrapper")
    view = as_tensor_view(kind(array))
    assert (view.shape, view.read_only, view.capsule) == ((8, 16), True, None)
    assert not as_tensor_view(kind(torch.zeros(8, 16))).read_only
    tm = tma.make_tma_descriptor(kind(array), (8, 16))
    assert np.array_equal(tma.load_tile(tm, (0, 0)).array, array)
    assert codes(lambda: tma.store_tile(tm, (0, 0), array + 1)) == ["COPY_READ_ONLY"]
