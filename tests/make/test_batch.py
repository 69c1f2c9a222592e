"""`make_tma_descriptors`: many maps in one array, each equal to the map of its tensor."""

import copy
import ctypes
import gc
import pickle
import sys
import weakref

import numpy as np
import pytest

import tma_dlpack as tma

torch = pytest.importorskip("torch")

BOX = (16, 64)


def halves(*shapes):
    return [torch.zeros(*shape, dtype=torch.float16) for shape in shapes]


def launchable(count):
    """A batch of maps of bare addresses, which is launchable without a GPU."""
    return tma.TensorMapBatch(
        [
            tma.driver_encode_tiled(
                "FLOAT16", 2, 4096 * (i + 1), (64, 64), (128,), BOX[::-1], (1, 1), encoder="model"
            )
            for i in range(count)
        ]
    )


@pytest.mark.parametrize(
    "tensors",
    [
        pytest.param(halves(*[(128, 64)] * 9), id="torch tensors of one layout"),
        pytest.param(halves((128, 64), (16, 64), (128, 64), (64, 128)), id="several layouts"),
        pytest.param(
            [torch.zeros(64, 64, dtype=d) for d in (torch.half, torch.bfloat16)], id="types"
        ),
        pytest.param([np.zeros((32, 64), np.float16) for _ in range(3)], id="NumPy arrays"),
        pytest.param([*halves((32, 64)), np.zeros((32, 64), np.float16)], id="torch and NumPy"),
        pytest.param(
            [*halves((64, 64)), torch.nn.Parameter(halves((64, 64))[0])], id="a Parameter"
        ),
        pytest.param(
            [*halves((32, 64)), *(torch.zeros(2, 32, 64).half()[:1, 16:][0] for _ in range(2))],
            id="other extents",
        ),
        pytest.param(
            [torch.zeros(32, 64 + n, dtype=torch.float16)[:, :64] for n in (0, 64)], id="strides"
        ),
        pytest.param(
            [torch.zeros(128, dtype=torch.float16).as_strided((1, 64), (s, 1)) for s in (64, 7)],
            id="strides of an extent 1",
        ),
        pytest.param(halves((64, 64)), id="one tensor"),
    ],
)
def test_each_row_is_the_map_of_its_tensor(tensors):
    box = (1, BOX[1])
    batch = tma.make_tma_descriptors(tensors, box, swizzle="bytes128")
    alone = [tma.make_tma_descriptor(x, box, swizzle="bytes128") for x in tensors]
    assert [bytes(row) for row in batch.numpy()] == [bytes(tm) for tm in alone]
    assert list(batch) == alone
    assert [tm.view for tm in batch] == [tm.view for tm in alone]
    assert all(tm.tensor is x for tm, x in zip(batch, tensors, strict=True))


def test_the_array_is_aligned_contiguous_and_read_only():
    for n in (1, 2, 7, 100):
        rows = tma.make_tma_descriptors(halves(*[(64, 64)] * n), BOX).numpy()
        assert (rows.shape, rows.dtype, rows.ctypes.data % 128) == ((n, 128), np.uint8, 0)
        assert rows.flags.c_contiguous
        assert not rows.flags.writeable


def test_numpy_takes_a_batch_for_an_array():
    batch = tma.make_tma_descriptors(halves((64, 64), (32, 64)), BOX)
    assert np.array_equal(np.asarray(batch), batch.numpy())
    copy = np.array(batch)
    copy[:] = 0
    assert batch.numpy().any()
    assert np.asarray(batch, dtype=np.int32).dtype == np.int32


def test_a_batch_as_an_array_is_copied_only_if_allowed():
    batch = tma.make_tma_descriptors(halves((64, 64)), BOX)
    assert np.shares_memory(batch.__array__(copy=False), batch.numpy())
    assert not np.shares_memory(batch.__array__(copy=True), batch.numpy())
    with pytest.raises(ValueError, match=r"^the maps are uint8: as int32 they must be copied$"):
        batch.__array__(np.int32, copy=False)


def test_a_batch_is_a_sequence():
    tensors = halves((64, 64), (32, 64), (16, 64))
    batch = tma.make_tma_descriptors(iter(tensors), BOX)
    assert len(batch) == 3
    assert batch[-1].tensor is tensors[2]
    assert batch[1] in batch
    assert batch.tensors == tuple(tensors)
    assert repr(batch) == "<TensorMapBatch of 3 maps>"
    with pytest.raises(IndexError):
        batch[3]


@pytest.mark.parametrize("shapes", [[(64, 64)] * 4, [(64, 64), (32, 64), (16, 64), (64, 64)]])
def test_a_slice_is_a_batch_of_its_own(shapes):
    batch = tma.make_tma_descriptors(halves(*shapes), BOX)
    for part in (slice(1, 3), slice(None, None, -2), slice(4, 9)):
        assert list(batch[part]) == list(batch)[part]
        assert batch[part].tensors == batch.tensors[part]
        assert np.array_equal(batch[part].numpy(), batch.numpy()[part])
    assert batch[1:3].numpy().ctypes.data % 128 == 0


@pytest.mark.parametrize("name", ["tensors", "launchable", "more"])
def test_a_batch_is_immutable(name):
    batch = tma.make_tma_descriptors(halves((64, 64)), BOX)
    with pytest.raises(AttributeError):
        setattr(batch, name, ())


def test_a_pickled_batch_is_not_launchable_and_a_copy_is_the_batch():
    batch = launchable(2)
    assert copy.copy(batch) is copy.deepcopy(batch) is batch
    again = pickle.loads(pickle.dumps(batch))
    assert (batch.launchable, again.launchable, again.tensors) == (True, False, (None, None))
    assert list(again) == list(batch)
    assert np.array_equal(again.numpy(), batch.numpy())
    assert again.numpy().ctypes.data % 128 == 0
    with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
        _ = again.ptr


def test_an_iterator_that_fails_is_refused_with_its_error():
    def tensors():
        yield torch.zeros(64, 64)
        raise KeyError("no more")

    with pytest.raises(tma.TmaPreconditionError, match="ends in an error") as refused:
        tma.make_tma_descriptors(tensors(), BOX)
    assert isinstance(refused.value.__cause__, KeyError)


def test_options_that_can_be_read_but_once_serve_all_tensors():
    tensors = halves((64, 64), (32, 64))
    batch = tma.make_tma_descriptors(tensors, iter(BOX))
    assert list(batch) == list(tma.make_tma_descriptors(tensors, BOX))


def test_no_tensors_make_an_empty_array():
    batch = tma.make_tma_descriptors([], BOX)
    assert len(batch) == 0
    assert batch.numpy().shape == (0, 128)


def test_a_batch_keeps_its_tensors_alive_and_lets_them_go():
    tensors = halves((64, 64), (64, 64))
    alive = [weakref.ref(x) for x in tensors]
    batch = tma.make_tma_descriptors(tensors, BOX)
    del tensors
    gc.collect()
    assert all(ref() is not None for ref in alive)
    del batch
    gc.collect()
    assert all(ref() is None for ref in alive)


def test_the_maps_of_a_batch_are_made_once():
    batch = tma.make_tma_descriptors(halves((64, 64), (32, 64)), BOX)
    assert batch[1] is batch[-1] is list(batch)[1] is batch[1:][0]
    assert batch[0] is not batch[1]


def test_a_batch_gives_its_tensors_back_with_and_without_maps():
    tensors = halves((64, 64), (32, 64))
    before = [sys.getrefcount(x) for x in tensors]
    batch = tma.make_tma_descriptors(tensors, BOX)
    assert [sys.getrefcount(x) for x in tensors] == [count + 1 for count in before]
    assert [tm.tensor is x for tm, x in zip(batch, tensors, strict=True)] == [True, True]
    kept = batch[0]
    del batch
    gc.collect()
    assert [sys.getrefcount(x) for x in tensors] == [before[0] + 1, before[1]]
    assert kept.tensor is tensors[0]


@pytest.mark.parametrize("are_maps_made", [False, True])
def test_a_tensor_that_holds_its_own_batch_is_collected(are_maps_made):
    (x,) = halves((64, 64))
    x.batch = tma.make_tma_descriptors([x], BOX)
    if are_maps_made:
        x.map = x.batch[0]
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_the_layout_of_a_map_is_that_of_the_call():
    (x,) = halves((64, 64))
    batch = tma.make_tma_descriptors([x], BOX)
    x.resize_(128, 128)
    assert (batch[0].shape, batch[0].box_sizes) == ((64, 64), BOX)
    assert bytes(batch[0]) == batch.numpy().tobytes()


def test_writing_to_the_rows_does_not_change_the_maps():
    batch = tma.make_tma_descriptors(halves((64, 64), (32, 64)), BOX)
    before = batch.numpy().tobytes()
    ctypes.memset(batch.numpy().ctypes.data, 7, 256)
    assert b"".join(map(bytes, batch)) == before


# -- for launchers -------------------------------------------------------------------------------


def test_host_maps_are_not_handed_to_launchers():
    batch = tma.make_tma_descriptors(halves((64, 64), (64, 64)), BOX)
    assert not batch.launchable
    with pytest.raises(tma.TmaUnsupportedError, match="host tensor"):
        _ = batch.ptr
    with pytest.raises(tma.TmaUnsupportedError, match="host tensor"):
        batch.as_torch()


def test_ptr_and_torch_share_the_rows():
    batch = launchable(5)
    assert batch.launchable
    assert batch.ptr == batch.numpy().ctypes.data == batch.as_torch().data_ptr()
    assert batch.as_torch().shape == (5, 128)
    want, rows = batch.numpy().tobytes(), batch.as_torch()
    del batch
    gc.collect()
    assert rows.numpy().tobytes() == want


def test_a_target_without_a_model_has_maps_but_no_bytes():
    batch = tma.make_tma_descriptors(halves((64, 64), (32, 64)), BOX, target="sm_100")
    assert [tm.shape for tm in batch] == [(64, 64), (32, 64)]
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100 has not been measured"):
        batch.numpy()


def test_maps_of_bytes_and_maps_without_are_a_batch_that_names_the_missing_bytes():
    made = tma.make_tma_descriptor(halves((64, 64))[0], BOX)
    without = tma.make_tma_descriptor(halves((64, 64))[0], BOX, target="sm_100")
    batch = tma.TensorMapBatch([tma.TensorMap.from_bytes(bytes(made)), without])
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100 has not been measured"):
        batch.numpy()


# -- refusals ------------------------------------------------------------------------------------


def refused(tensors, *arguments, **options):
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptors(tensors, *arguments, **options)
    return caught.value.violations[0]


@pytest.mark.parametrize(
    ("odd", "rule"),
    [
        pytest.param(torch.zeros(64, 60, dtype=torch.float16), "STRIDE_ALIGNED", id="strides"),
        pytest.param(
            torch.zeros(64 * 64 + 1).half()[1:].view(64, 64), "ADDRESS_ALIGNED", id="address"
        ),
        pytest.param(
            torch.zeros(64, 64, dtype=torch.cfloat).conj().imag, "TENSOR_NEG", id="neg bit"
        ),
        pytest.param(torch.zeros(64, 64, device="meta").half(), "TENSOR_META", id="meta"),
        pytest.param("a string", "TENSOR_TYPE", id="no tensor"),
    ],
)
@pytest.mark.parametrize("index", [0, 2])
def test_the_refused_tensor_is_named(odd, rule, index):
    tensors = halves((64, 64), (64, 64), (64, 64))
    tma.make_tma_descriptors(tensors, BOX)  # known types, so that only the unusual type is new
    tensors[index] = odd
    violation = refused(tensors, BOX)
    assert violation.rule == rule
    assert violation.found.startswith(f"tensors[{index}]: ")


def test_bad_options_are_refused_at_the_first_tensor():
    violation = refused(halves((64, 64), (64, 64)), (16, 6))
    assert (violation.rule, violation.argument) == ("BOX_INNER_16B", "box_sizes")
    assert violation.found.startswith("tensors[0]: ")


@pytest.mark.parametrize("not_many", [torch.zeros(4, 64, 64), np.zeros((4, 64)), None, 3])
def test_one_tensor_or_none_is_no_sequence_of_tensors(not_many):
    violation = refused(not_many, BOX)
    assert (violation.rule, violation.argument) == ("ARGUMENT", "tensors")


def test_the_error_of_a_refused_batch_has_no_context() -> None:
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptors([np.zeros((8, 64), np.float16)], box_sizes=(8, 512))
    assert caught.value.__context__ is None
    assert "tensors[0]" in str(caught.value)
