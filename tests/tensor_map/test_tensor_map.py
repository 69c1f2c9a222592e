"""`TensorMap`: a value with bytes, storage for launchers, another address, and a pickle."""

import copy
import gc
import math
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import tma_dlpack as tma

torch = pytest.importorskip("torch")

ADDRESS = 0x7F00_0000_0000


def bare_map(address=ADDRESS, **options):
    """A launchable map of a bare address: 64 x 64 float32, box 16 x 16."""
    options = {"encoder": "model"} | options
    return tma.driver_encode_tiled(
        "FLOAT32", 2, address, (64, 64), (256,), (16, 16), (1, 1), **options
    )


def host_map(x=None, **options):
    x = np.zeros((64, 64), np.float32) if x is None else x
    return tma.make_tma_descriptor(x, (16, 16), **options)


# -- value ---------------------------------------------------------------------------------------


def test_maps_of_equal_arguments_are_equal_and_hash_alike():
    assert bare_map() == bare_map()
    assert hash(bare_map()) == hash(bare_map())
    assert bare_map() != bare_map(ADDRESS + 16)
    assert bare_map() != bare_map(swizzle="bytes64")
    assert bare_map() != "a map"


def test_a_map_cannot_be_changed_or_made_by_its_class():
    tm = bare_map()
    for name in ("rank", "global_address", "ptr", "replace", "no_attribute"):
        with pytest.raises(AttributeError, match=name):
            setattr(tm, name, 3)
        with pytest.raises(AttributeError, match=name):
            delattr(tm, name)
    with pytest.raises(TypeError, match="make_tma_descriptor"):
        tma.TensorMap()


def test_attributes_in_both_orders():
    x = np.zeros((3, 5, 8), np.float32)
    tm = tma.make_tma_descriptor(x, (1, 2, 4), (2, 3, 1), swizzle="bytes32", oobfill="nan")
    assert (tm.shape, tm.strides) == ((3, 5, 8), (40, 8, 1))
    assert (tm.box_sizes, tm.elem_strides) == ((1, 2, 4), (2, 3, 1))
    assert (tm.global_dim, tm.global_strides) == ((8, 5, 3), (32, 160))
    assert (tm.box_dim, tm.element_strides) == ((4, 2, 1), (1, 3, 2))
    assert (tm.rank, tm.kind, tm.data_type.name) == (3, "tiled", "FLOAT32")
    assert (tm.swizzle, tm.oob_fill) == (tma.TmaSwizzle.bytes32, tma.TmaOobFill.nan)
    assert (tm.interleave, tm.l2_promotion) == (0, 0)
    assert tm.global_address == x.ctypes.data
    assert tm.tensor is x


def test_print_fits_100_columns_and_repr_names_the_map():
    tm = tma.make_tma_descriptor(np.zeros((1, 2, 3, 4, 16), np.float32), (1, 1, 1, 4, 4))
    assert max(map(len, str(tm).splitlines())) <= 100
    assert "global_strides (bytes)  (64, 256, 768, 1536)" in str(tm)
    huge = tma.driver_encode_tiled(
        "FLOAT16", 5, ADDRESS, [1 << 32] * 5, [(1 << 40) - 16] * 4, [64, 8, 8, 8, 1], [1] * 5,
        encoder="model",
    )  # fmt: skip
    assert max(map(len, [repr(huge), *str(huge).splitlines()])) <= 100
    assert repr(huge).endswith(", ...>")
    assert repr(bare_map()) == (
        "<TensorMap tiled FLOAT32 shape (64, 64), box (16, 16), at 0x7f0000000000, sm_90>"
    )


# -- storage -------------------------------------------------------------------------------------


def test_ptr_is_128_byte_aligned_and_holds_the_bytes():
    maps = [bare_map(ADDRESS + 16 * i) for i in range(50)]
    assert all(tm.ptr % 128 == 0 for tm in maps)
    assert len({tm.ptr for tm in maps}) == 50
    for tm in maps:
        array = tm.numpy()
        assert array.ctypes.data == tm.ptr == tm.ptr
        assert array.tobytes() == bytes(tm)
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_what_is_handed_out_shares_the_storage_and_keeps_it_alive():
    tm = bare_map()
    handed_out = [tm.as_torch(), tm.as_ctypes(), tm.numpy()]
    assert handed_out[0].data_ptr() == tm.ptr
    assert handed_out[0].dtype == torch.uint8
    assert handed_out[0].shape == (128,)
    want = bytes(tm)
    del tm
    gc.collect()
    _ = [np.full(256, 7, np.uint8) for _ in range(100)]  # would reuse freed storage
    assert [bytes(bytearray(h)) for h in (handed_out[0].numpy(), *handed_out[1:])] == [want] * 3


def test_slots_are_never_given_twice():
    kept, pointers = [], []
    for i in range(200):
        tm = bare_map(ADDRESS + 16 * i)
        kept.append((tm.numpy(), bytes(tm)))  # the map itself is freed
        pointers.append(tm.ptr)
    assert len(set(pointers)) == 200
    assert all(array.tobytes() == want for array, want in kept)


def test_threads_that_ask_one_map_for_its_ptr_get_one_address():
    for _ in range(50):
        tm, found, start = bare_map(), [], threading.Barrier(4)

        def ask(tm=tm, found=found, start=start):
            start.wait()
            found.append(tm.ptr)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1


def test_cuda_bindings_get_the_same_bytes():
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    handle = bare_map().as_cuda_bindings()
    assert isinstance(handle, driver.CUtensorMap)
    assert b"".join(int(word).to_bytes(8, "little") for word in handle.opaque) == bytes(bare_map())


def test_a_map_without_bytes_is_refused_before_cuda_bindings_are_imported():
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100 has not been measured"):
        bare_map(encoder="auto", target="sm_100").as_cuda_bindings()


@pytest.mark.parametrize("hand_out", ["ptr", "as_ctypes", "as_torch", "as_cuda_bindings"])
def test_the_map_of_a_host_tensor_is_not_handed_to_launchers(hand_out):
    tm = host_map()
    assert not tm.launchable
    with pytest.raises(tma.TmaUnsupportedError, match="host tensor"):
        getattr(tm, hand_out) if hand_out == "ptr" else getattr(tm, hand_out)()


def test_bytes_and_numpy_of_a_host_map_are_there_to_read():
    tm = host_map()
    assert tm.numpy().tobytes() == bytes(tm)
    assert not tm.numpy().flags.writeable


def test_a_target_without_a_model_has_no_bytes_but_everything_else():
    tm = host_map(target="sm_100")
    assert tm.encoder is None
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100 has not been measured"):
        bytes(tm)
    assert tm.tx_bytes == 16 * 16 * 4
    assert tma.load_tile(tm, (0, 0)).array.shape == (16, 16)


# -- bytes ---------------------------------------------------------------------------------------


def test_from_bytes_keeps_the_very_bytes_also_stale_ones():
    data = bytearray(bytes(bare_map()))
    data[64:] = bytes(range(64))
    tm = tma.TensorMap.from_bytes(data)
    assert bytes(tm) == bytes(data)
    assert (tm.shape, tm.global_address, tm.tensor) == ((64, 64), ADDRESS, None)


@pytest.mark.parametrize("data", [b"", bytes(127), bytes(129), np.zeros(64, np.uint8)])
def test_from_bytes_refuses_other_sizes(data):
    with pytest.raises(tma.TmaPreconditionError, match="exactly 128 bytes"):
        tma.TensorMap.from_bytes(data)


@pytest.mark.parametrize("data", [None, 128, [0] * 128, np.zeros(16, "M8[s]")])
def test_from_bytes_refuses_what_has_no_buffer(data):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.TensorMap.from_bytes(data)
    (violation,) = refused.value.violations
    assert violation.found == f"data is a {type(data).__name__}"


def test_from_bytes_refuses_what_is_not_bytes_and_targets_without_a_model():
    with pytest.raises(tma.TmaPreconditionError, match="128 bytes"):
        tma.TensorMap.from_bytes("00" * 128)
    with pytest.raises(tma.TmaUnsupportedError, match="sm_101"):
        tma.TensorMap.from_bytes(bytes(128), target=tma.Target((10, 1)))


# -- another address -----------------------------------------------------------------------------


def test_with_address_equals_a_new_map():
    x, y = np.zeros((2, 64, 64), np.float32)
    moved = host_map(x).with_address(y)
    assert moved == host_map(y)
    assert moved.tensor is y
    assert bytes(moved) == bytes(host_map(y))


def test_with_address_of_an_integer_changes_only_the_address():
    moved = bare_map().with_address(ADDRESS + 4096)
    assert bytes(moved) == bytes(bare_map(ADDRESS + 4096))
    assert bytes(moved)[8:] == bytes(bare_map())[8:]
    assert moved == bare_map().with_address(np.uint64(ADDRESS + 4096))


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        (ADDRESS + 8, "ADDRESS_ALIGNED"),
        (1 << 57, "ADDRESS_RANGE"),
        (0, "ADDRESS_RANGE"),
        (-16, "ADDRESS_RANGE"),
    ],
)
def test_with_address_refuses_addresses_that_the_driver_refuses(address, rule):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        bare_map().with_address(address)
    assert [v.rule for v in refused.value.violations] == [rule]


def test_with_address_asks_32_bytes_of_a_32_byte_interleaved_map():
    tm = tma.driver_encode_tiled(
        "FLOAT16", 3, ADDRESS, (64, 8, 4), (1024, 8192), (8, 8, 1), (1, 1, 1), 2, 1,
        encoder="model",
    )  # fmt: skip
    assert tm.with_address(ADDRESS + 32).global_address == ADDRESS + 32
    with pytest.raises(tma.TmaPreconditionError, match="32 bytes"):
        tm.with_address(ADDRESS + 16)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (np.zeros((64, 68), np.float32), "shape"),
        (np.zeros((64, 128), np.float32)[:, :64], "strides"),
        (np.zeros((64, 64), np.int32), "dtype"),
    ],
)
def test_with_address_says_in_what_a_tensor_differs(other, what):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        host_map().with_address(other)
    assert any(f"the tensor has {what} " in v.found for v in refused.value.violations)


def aligned_zeros(*shape):
    """Return an array of float32 whose address is a multiple of 256."""
    room = np.zeros(4 * math.prod(shape) + 256, np.uint8)
    start = -room.ctypes.data % 256
    return room[start : start + 4 * math.prod(shape)].view(np.float32).reshape(shape)


def test_with_address_takes_another_kind_of_tensor_of_the_same_layout():
    x, y = torch.zeros(64, 64), np.zeros((64, 64), np.float32)
    y.flags.writeable = False
    moved = host_map(x).with_address(y)
    assert moved == host_map(y)
    assert moved.view == host_map(y).view
    assert moved.view.read_only


def test_with_address_of_a_bare_map_asks_the_layout_that_was_encoded():
    x = np.zeros((64, 64), np.float32)
    moved = bare_map().with_address(x)
    assert (moved.global_address, moved.launchable, moved.tensor) == (x.ctypes.data, False, x)
    with pytest.raises(tma.TmaPreconditionError, match="FLOAT32"):
        bare_map().with_address(x.astype(np.float64)[:, :64])


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (np.zeros((64, 68), np.float32)[:, :64], "the tensor has strides in bytes (272,)"),
        (np.zeros((65, 64), np.float32), "the tensor has shape (64, 65)"),
        (
            np.lib.stride_tricks.as_strided(np.zeros(2080), (64, 64), (256, 8)),
            "the tensor has dtype FLOAT64",
        ),
    ],
)
def test_a_decoded_map_refuses_a_tensor_that_differs_in_one_thing(other, found):
    decoded = tma.TensorMap.from_bytes(bytes(bare_map()))
    assert decoded.with_address(np.zeros((64, 64), np.float32)).shape == (64, 64)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        decoded.with_address(other)
    assert [(v.rule, v.found) for v in refused.value.violations] == [("ADDRESS_LAYOUT", found)]


def test_a_decoded_map_takes_a_tensor_whose_type_may_be_carried_as_its_own():
    tm = tma.driver_encode_tiled(
        "TFLOAT32", 2, ADDRESS, (64, 64), (256,), (16, 16), (1, 1), encoder="model"
    )
    moved = tma.TensorMap.from_bytes(bytes(tm)).with_address(np.zeros((64, 64), np.float32))
    assert moved.data_type.name == "TFLOAT32"


@pytest.mark.parametrize("last_stride", [0, 16, 1 << 20])
def test_the_stride_of_a_dimension_with_one_element_is_not_compared(last_stride):
    x = aligned_zeros(1, 64, 64)
    described = (64, 64, 1), (256, last_stride), (16, 16, 1), (1, 1, 1)
    tm = tma.driver_encode_tiled("FLOAT32", 3, ADDRESS, *described, encoder="model")
    assert tm.with_address(x).global_address == x.ctypes.data
    with pytest.raises(tma.TmaPreconditionError, match=r"strides in bytes \(512, "):
        tm.with_address(aligned_zeros(1, 64, 128)[:, :, :64])


def test_a_decoded_map_of_padded_strides_takes_its_own_tensor():
    x = aligned_zeros(2, 4, 12)[:, :1]
    tm = tma.make_tma_descriptor(x, (1, 1, 4), interleave_layout="bytes32", swizzle="bytes32")
    assert tm.global_strides != x.strides[1::-1]
    assert tma.TensorMap.from_bytes(bytes(tm)).with_address(x).tensor is x


def test_the_value_of_a_tensor_is_not_an_address():
    x, y = torch.zeros(1, dtype=torch.int64), torch.full((1,), ADDRESS)
    made = tma.make_tma_descriptor(x, (2,), rules="driver")
    for tm in (made, tma.TensorMap.from_bytes(bytes(made)), pickle.loads(pickle.dumps(made))):
        moved = tm.with_address(y)
        assert (moved.global_address, moved.launchable) == (y.data_ptr(), False)
        assert moved.tensor is y
        with pytest.raises(tma.TmaPreconditionError, match="global_address is tensor"):
            tma.driver_replace_address(tm, y)


def test_driver_replace_address_changes_the_first_eight_bytes():
    moved = tma.driver_replace_address(bare_map(), ADDRESS + 256)
    assert bytes(moved) == bytes(bare_map(ADDRESS + 256))
    zeroed = tma.TensorMap.from_bytes(bytes(128))
    assert bytes(tma.driver_replace_address(zeroed, 4096)) == (4096).to_bytes(128, "little")
    with pytest.raises(tma.TmaPreconditionError, match="multiple of 16"):
        tma.driver_replace_address(bare_map(), ADDRESS + 8)
    assert tma.driver_replace_address(bare_map(), np.uint64(4096)).global_address == 4096


@pytest.mark.parametrize("address", [4096.0, "0x1000", None, True])
def test_driver_replace_address_refuses_what_is_no_integer(address):
    with pytest.raises(tma.TmaPreconditionError, match="be an integer"):
        tma.driver_replace_address(bare_map(), address)


# -- lifetime and pickle -------------------------------------------------------------------------


def test_a_map_keeps_its_tensor_alive_and_lets_it_go():
    x = torch.zeros(64, 64)
    alive = weakref.ref(x)
    tm = host_map(x)
    del x
    gc.collect()
    assert alive() is not None
    del tm
    gc.collect()
    assert alive() is None


def test_a_pickled_map_is_equal_without_its_tensor_and_not_launchable():
    for tm in (host_map(), bare_map()):
        back = pickle.loads(pickle.dumps(tm))
        assert back == tm
        assert bytes(back) == bytes(tm)
        assert back.tensor is None
        assert not back.launchable
        with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
            _ = back.ptr


def test_a_pickled_bare_map_is_launchable_with_a_live_address():
    back = pickle.loads(pickle.dumps(bare_map()))
    assert back.with_address(ADDRESS).launchable
    assert back.with_address(ADDRESS).ptr % 128 == 0


def test_a_pickled_host_map_takes_its_tensor_again_and_stays_not_launchable():
    x = np.zeros((64, 64), np.float32)
    back = pickle.loads(pickle.dumps(host_map(x))).with_address(x)
    assert back == host_map(x)
    assert back.tensor is x
    assert not back.launchable


def test_copies_of_an_immutable_map_are_the_map():
    tm = host_map()
    assert copy.copy(tm) is tm
    assert copy.deepcopy(tm) is tm


# -- read-only and host tensors ---------------------------------------------------------------


def aligned(shape=(64, 64)):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("first_writeable", [True, False])
def test_whether_a_tensor_is_read_only_is_asked_of_that_tensor(first_writeable):
    first, second, third = aligned(), aligned(), aligned()
    first.flags.writeable = first_writeable
    second.flags.writeable = not first_writeable
    third.flags.writeable = first_writeable
    moved = tma.make_tma_descriptor(first, (16, 16)).with_address(second)
    for x, tensor_map in ((second, moved), (third, moved.with_address(third))):
        assert tensor_map.view.read_only is not x.flags.writeable
        if x.flags.writeable:
            tma.store_tile(tensor_map, (0, 0), np.ones((16, 16), np.float32))
        else:
            with pytest.raises(tma.TmaPreconditionError, match="is read-only"):
                tma.store_tile(tensor_map, (0, 0), np.ones((16, 16), np.float32))
        assert x.sum() == (256 if x.flags.writeable else 0)


def test_a_host_tensor_stays_one_on_the_way_over_a_bare_address():
    x = aligned()
    tm = tma.make_tma_descriptor(x, (16, 16))
    bare = tma.driver_replace_address(tm, ADDRESS)
    assert bare.launchable
    back = bare.with_address(x)
    assert (back.launchable, back.view, back) == (False, tm.view, tm)
    with pytest.raises(tma.TmaUnsupportedError, match="describes a host tensor"):
        _ = back.ptr


# -- `ptr` ---------------------------------------------------------------------------------------


def test_a_finalizer_may_ask_for_ptr_at_any_time():
    script = """
import faulthandler, gc
import tma_dlpack as tma
tm = tma.driver_encode_tiled("FLOAT32", 2, 4096, (64, 64), (256,), (16, 16), (1, 1))
class Keeper:
    def __init__(self):
        self.itself, self.tm = self, tm.with_address(8192)
    def __del__(self):
        pointers.append(self.tm.ptr)
pointers = []
faulthandler.dump_traceback_later(60, exit=True)  # a deadlock
gc.collect(); gc.freeze(); gc.set_threshold(1)
for _ in range(500):
    Keeper(); pointers.append(tm.with_address(12288).ptr)
gc.set_threshold(0); gc.collect()
assert len(pointers) == 1000 and all(p % 128 == 0 for p in pointers)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


class Named(np.ndarray):
    """A user's subclass, whose `__dlpack__` is NumPy's."""


class Forwarding:
    """A user's producer, which exports an array."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize(
    "kind", [lambda x: x.view(Named), Forwarding], ids=["subclass", "producer"]
)
def test_an_object_that_holds_its_own_map_is_collected(kind):
    x = kind(np.zeros((64, 64), np.float32))
    x.map = tma.make_tma_descriptor(x, (16, 32))
    assert x.map.tensor is x
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_the_capsule_of_a_producer_that_exports_temporaries_is_kept():
    class Temporary(Forwarding):
        def __dlpack__(self, **keywords):
            return np.full((64, 64), 7, np.float32).__dlpack__(**keywords)

    tm = tma.make_tma_descriptor(Temporary(np.zeros(1)), (16, 32))
    gc.collect()
    assert tma.load_tile(tm, (0, 0)).array.min() == 7


def test_attributes_have_the_names_of_the_arguments_too():
    tm = tma.make_tma_descriptor(
        np.zeros((2, 4, 64, 8), np.float16), (1, 1, 64, 8), interleave_layout="bytes16",
        l2_fetch_size="bytes128", oobfill="nan",
    )  # fmt: skip
    assert tm.interleave_layout is tm.interleave is tma.TmaInterleaveLayout.bytes16
    assert tm.l2_fetch_size is tm.l2_promotion is tma.TmaL2FetchSize.bytes128
    assert tm.oobfill is tm.oob_fill is tma.TmaOobFill.nan


def test_attributes_are_those_of_the_call_after_somebody_wrote_to_the_bytes():
    encoded = (tma.TensorMapDataType.FLOAT16, 2, 1 << 32, (128, 64), (256,), (64, 16), (1, 1))
    made, other = (tma.driver_encode_tiled(*encoded, swizzle=3) for _ in range(2))
    shared = made.as_ctypes()
    shared[:] = bytes(128)
    assert not any(shared)
    assert (made.box_dim, made.global_strides, made.swizzle) == ((64, 16), (256,), 3)
    assert (made.tx_bytes, made) == (2048, other)


@pytest.mark.parametrize("target", ["sm_90", "sm_100", "sm_120"])
def test_attributes_do_not_depend_on_whether_the_layout_of_the_bytes_is_known(target):
    x = np.zeros((4, 20, 20, 64), np.float16)
    made = tma.make_im2col_descriptor(
        x, (-1, -2), (3, 4), 64, 100, elem_strides=(1, 2, 1, 1), swizzle="bytes128",
        oobfill="nan", l2_fetch_size="bytes256", target=target,
    )  # fmt: skip
    assert made.pixel_box_lower_corner == (-2, -1)
    assert made.pixel_box_upper_corner == (4, 3)
    assert (made.channels_per_pixel, made.pixels_per_column, made.tx_bytes) == (64, 100, 12800)
    assert (made.global_dim, made.element_strides) == ((64, 20, 20, 4), (1, 1, 2, 1))
    assert (made.oob_fill.name, made.l2_promotion.name) == ("nan", "bytes256")
    assert (made.box_dim, made.mode.name, made.rank) == ((), "w", 4)
