"""TensorFlow's objects: imitations, and the real objects if TensorFlow is installed."""

from __future__ import annotations

import types

import numpy as np
import pytest

import tma_dlpack as tma

WAYS = {
    "SymbolicTensor": "make the map outside of the tf.function, of the tensor that it is given",
    "ResourceVariable": "pass x.value(), a tensor over the same memory",
    "RaggedTensor": "pass x.to_tensor(), or x.flat_values",
    "SparseTensor": "pass tensorflow.sparse.to_dense(x)",
}


def imitated(name, **members):
    return type(name, (), {"__module__": "tensorflow.python.framework.ops", **members})()


def violation_of(x, box=(16, 64)):
    (violation,) = tma.check_tma_descriptor(x, box).violations
    return violation


@pytest.mark.parametrize("name", WAYS)
def test_what_is_no_eager_tensor_is_refused_with_the_tensor_to_pass(name):
    violation = violation_of(imitated(name))
    assert violation.rule == "TENSOR_TYPE"
    assert violation.fix == WAYS[name]


def test_other_types_of_tensorflow_get_the_usual_fix():
    assert violation_of(imitated("Dataset")).fix.startswith("pass the tensor itself")


@pytest.mark.parametrize("dtype", ["string", "resource", "variant"])
def test_a_type_whose_export_would_end_the_process_is_not_exported(dtype):
    def never(self, **keywords):
        raise AssertionError("TensorFlow would have ended the process")

    dtype_of = types.SimpleNamespace(name=dtype)
    violation = violation_of(imitated("EagerTensor", __dlpack__=never, dtype=dtype_of))
    assert violation.rule == "TENSOR_EXPORT"
    assert violation.found == f"tensor is a TensorFlow tensor of dtype {dtype}"
    assert violation.fix == "pass a tensor of numbers"


def test_the_dtype_of_other_producers_is_not_asked():
    class WithoutDtype:
        def __init__(self):
            self.array = np.zeros((64, 64), np.float32)

        @property
        def dtype(self):
            raise RuntimeError("no dtype before the first use")

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

    assert tma.check_tma_descriptor(WithoutDtype(), (16, 32)).ok


# --- The real ones -------------------------------------------------------------------------------


@pytest.fixture
def tf():
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def test_real_tensors_are_read(tf):
    x = tf.reshape(tf.range(4096, dtype=tf.float32), (64, 64))
    tile = tma.load_tile(tma.make_tma_descriptor(x, (16, 64)), (16, 0))
    assert (tile.array == x.numpy()[16:32]).all()
    assert tma.make_tma_descriptors([x, x], (16, 64))[1].shape == (64, 64)


def test_what_the_fixes_of_real_objects_name_works(tf):
    x = tf.zeros((64, 64), tf.float16)
    fixed = [
        (tf.Variable(x), lambda v: v.value()),
        (tf.RaggedTensor.from_tensor(x), lambda r: r.to_tensor()),
        (tf.sparse.from_dense(x), tf.sparse.to_dense),
    ]
    for tensor, fix in fixed:
        assert violation_of(tensor).fix == WAYS[type(tensor).__name__]
        assert tma.make_tma_descriptor(fix(tensor), (16, 64)).shape == (64, 64)


def test_a_traced_function_is_refused_in_one_line(tf):
    found = []
    tf.function(lambda x: found.append(violation_of(x)) or x)(tf.zeros((64, 64)))
    assert found[0].fix == WAYS["SymbolicTensor"]


@pytest.mark.parametrize(
    "make",
    [
        lambda tf: tf.constant(["text"]),
        lambda tf: tf.Variable(1.0).handle,
        lambda tf: tf.raw_ops.EmptyTensorList(
            element_shape=[1], max_num_elements=1, element_dtype=tf.float32
        ),
    ],
    ids=["string", "resource", "variant"],
)
def test_a_tensor_of_no_numbers_is_refused(tf, make):
    assert violation_of(make(tf)).fix == "pass a tensor of numbers"
