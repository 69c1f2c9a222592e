"""Handmade capsules: every field with a valid and with an invalid value. No value crashes."""

import contextlib
import ctypes
import gc
import mmap
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tma_dlpack.dlpack import Device, TensorView, as_tensor_view, host_bytes, read
from tma_dlpack.dlpack.layout import REFUSALS
from tma_dlpack.dlpack.producer import CAREFUL, DIRECT, parse_capsule, read_safely
from tma_dlpack.tables.dtypes import DLDataType
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError

new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))

FIELDS = ("data", "device_type", "device_id", "ndim", "code", "bits", "lanes")
FIELDS += ("shape_at", "strides_at", "byte_offset")
TENSOR = "=QiiiBBHQQQ"  # dlpack.h 1.3: DLTensor
VERSIONED = "=IIQQQ"  # major, minor, manager_ctx, deleter, flags


class Forger:
    """A producer whose capsules contain the test's values; it keeps their memory alive.

    `fields` replace fields of a valid float32 tensor of shape (4, 8) in host memory.
    """

    def __init__(self, versioned=True, name=None, version=(1, 3), flags=0, **fields):
        self.memory = np.zeros((4, 16), np.float32)
        self.shape = np.array(fields.pop("shape", (4, 8)), np.int64)
        self.strides = np.array(fields.pop("strides", (16, 1)), np.int64)
        good = {
            "data": self.memory.ctypes.data,
            "device_type": 1,
            "device_id": 0,
            "ndim": len(self.shape),
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "shape_at": self.shape.ctypes.data,
            "strides_at": self.strides.ctypes.data,
            "byte_offset": 0,
        }
        managed = struct.pack(TENSOR, *((good | fields)[name] for name in FIELDS))
        if versioned:
            managed = struct.pack(VERSIONED, *version, 0, 0, flags) + managed
        else:
            managed += bytes(16)
        self.managed = ctypes.create_string_buffer(managed, len(managed))
        usual = b"dltensor_versioned" if versioned else b"dltensor"
        self.name = ctypes.create_string_buffer(usual if name is None else name)
        self.exports = 0

    def __dlpack__(self, max_version=None):
        self.exports += 1
        return new_capsule(ctypes.addressof(self.managed), ctypes.addressof(self.name), None)


def look_at(producer):
    """Return (view, None), or (None, rule of the only violation)."""
    try:
        return as_tensor_view(producer), None
    except TmaPreconditionError as error:
        (violation,) = error.violations
        return None, violation.rule


def refused(producer):
    view, rule = look_at(producer)
    assert view is None
    return rule


both_structs = pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])


@both_structs
def test_good_capsule_is_read(versioned):
    producer = Forger(versioned)
    name = f"{Forger.__module__}.Forger"
    assert as_tensor_view(producer) == TensorView(
        producer.memory.ctypes.data,
        Device(1, 0),
        DLDataType(2, 32),
        (4, 8),
        (16, 1),
        False,
        name,
        producer,
    )


@both_structs
@pytest.mark.parametrize("device_type", [1, 2, 3, 13])
def test_device_comes_from_the_capsule(versioned, device_type):
    view = as_tensor_view(Forger(versioned, device_type=device_type, device_id=5))
    assert view.device == Device(device_type, 5)


@both_structs
def test_byte_offset_is_added(versioned):
    producer = Forger(versioned, byte_offset=32)
    assert as_tensor_view(producer).address == producer.memory.ctypes.data + 32


@both_structs
def test_null_strides_are_row_major(versioned):
    assert as_tensor_view(Forger(versioned, strides_at=0)).strides == (8, 1)


@both_structs
def test_rank_zero_needs_neither_shape_nor_strides(versioned):
    view = as_tensor_view(Forger(versioned, ndim=0, shape_at=0, strides_at=0))
    assert (view.shape, view.strides) == ((), ())


def test_shape_and_strides_side_by_side_are_told_apart():
    sizes = np.array([4, 8, 16, 1], np.int64)
    at = sizes.ctypes.data
    view = as_tensor_view(Forger(shape_at=at, strides_at=at + 16))
    assert (view.shape, view.strides) == ((4, 8), (16, 1))


@pytest.mark.parametrize(("flags", "read_only"), [(0, False), (1, True), (2, False), (3, True)])
def test_read_only_flag_is_told(flags, read_only):
    assert as_tensor_view(Forger(flags=flags)).read_only is read_only


@both_structs
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        pytest.param({"data": 0}, "TENSOR_NULL", id="null data"),
        pytest.param({"device_type": 10}, "TENSOR_DEVICE", id="ROCm"),
        pytest.param({"device_type": 8}, "TENSOR_DEVICE", id="Metal"),
        pytest.param({"device_type": 2, "device_id": -1}, "TENSOR_DEVICE_ID", id="device -1"),
        pytest.param({"ndim": -1}, "TENSOR_NDIM", id="ndim -1"),
        pytest.param({"ndim": 65}, "TENSOR_NDIM", id="ndim 65"),
        pytest.param({"ndim": 2**31 - 1}, "TENSOR_NDIM", id="ndim absurd"),
        pytest.param({"bits": 0}, "TENSOR_DTYPE", id="bits 0"),
        pytest.param({"lanes": 0}, "TENSOR_DTYPE", id="lanes 0"),
        pytest.param({"code": 3}, "TENSOR_OPAQUE", id="opaque"),
        pytest.param({"shape_at": 0}, "TENSOR_SHAPE_NULL", id="null shape"),
        pytest.param({"shape_at": 8}, "TENSOR_POINTER", id="shape in the first page"),
        pytest.param({"shape_at": 0x1000}, "TENSOR_POINTER", id="shape where nothing is"),
        pytest.param({"shape_at": 2**64 - 8}, "TENSOR_POINTER", id="shape at the end of memory"),
        pytest.param({"strides_at": 0xDEAD_BEEF_0000}, "TENSOR_POINTER", id="strides astray"),
        pytest.param({"strides_at": id(None) | 1}, "TENSOR_POINTER", id="strides misaligned"),
        pytest.param({"shape": (4, -8)}, "TENSOR_EXTENT", id="negative extent"),
        pytest.param({"strides": (-16, 1)}, "TENSOR_STRIDE_NEGATIVE", id="negative stride"),
        pytest.param({"byte_offset": 2**64 - 1}, "TENSOR_ADDRESS_WRAPS", id="address wraps"),
    ],
)
def test_bad_field_is_refused_with_its_own_message(versioned, fields, rule):
    assert refused(Forger(versioned, **fields)) == rule


def test_address_may_reach_the_last_byte_but_not_wrap():
    top = Forger(device_type=2, data=2**64 - 2, byte_offset=1)
    assert as_tensor_view(top).address == 2**64 - 1
    assert refused(Forger(device_type=2, data=2**64 - 2, byte_offset=2)) == "TENSOR_ADDRESS_WRAPS"


def test_null_address_is_refused_before_any_cache_could_answer():
    producer = Forger()
    assert read(producer)[0] == producer.memory.ctypes.data
    with pytest.raises(TmaPreconditionError, match="null address"):
        read(Forger(data=0))


def test_sub_byte_values_padded_to_bytes_are_refused():
    assert refused(Forger(flags=4, code=17, bits=4)) == "TENSOR_PADDED"
    assert as_tensor_view(Forger(flags=0, code=17, bits=4)).dtype == DLDataType(17, 4)


@pytest.mark.parametrize("major", [0, 2, 2**32 - 1])
def test_unknown_major_version_is_refused(major):
    assert refused(Forger(version=(major, 0), ndim=-5, shape_at=8)) == "TENSOR_DLPACK_VERSION"


def test_unknown_minor_version_is_fine():
    assert as_tensor_view(Forger(version=(1, 4_000_000_000))).shape == (4, 8)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (b"used_dltensor", "TENSOR_CAPSULE_USED"),
        (b"used_dltensor_versioned", "TENSOR_CAPSULE_USED"),
        (b"", "TENSOR_CAPSULE"),
        (b"dltensor_", "TENSOR_CAPSULE"),
        (b"DLTENSOR", "TENSOR_CAPSULE"),
        (b"dltensor_versioned2", "TENSOR_CAPSULE"),
        (b"\xff\xfe", "TENSOR_CAPSULE"),
        (b"x" * 5000, "TENSOR_CAPSULE"),
    ],
)
def test_capsule_of_another_name_is_refused(name, rule):
    assert refused(Forger(name=name)) == rule


@pytest.mark.parametrize("name_at", [None, 8, 0xDEAD_BEEF_0001, 2**64 - 1])
def test_capsule_whose_name_is_no_string_is_refused(name_at):
    class Nameless(Forger):
        def __dlpack__(self, max_version=None):
            return new_capsule(ctypes.addressof(self.managed), name_at, None)

    assert refused(Nameless()) == ("TENSOR_CAPSULE" if name_at is None else "TENSOR_POINTER")


@pytest.mark.parametrize("pointer", [1, 8, 4096, 0xDEAD_BEEF_0000, 2**63, 2**64 - 8])
@both_structs
def test_capsule_that_leads_nowhere_is_refused(versioned, pointer):
    class Astray(Forger):
        def __dlpack__(self, max_version=None):
            return new_capsule(pointer, ctypes.addressof(self.name), None)

    assert refused(Astray(versioned)) == "TENSOR_POINTER"


@pytest.mark.parametrize("returned", [None, 7, "dltensor", [], np.zeros(2)])
def test_what_is_no_capsule_is_refused(returned):
    class Odd:
        def __dlpack__(self, **_):
            return returned

    assert refused(Odd()) == "TENSOR_CAPSULE"


def test_both_kinds_of_capsule_are_read_directly():
    versioned, legacy = Forger(True), Forger(False)
    assert parse_capsule(versioned.__dlpack__(), DIRECT)[1][6] == (4, 8)
    assert parse_capsule(legacy.__dlpack__(), DIRECT)[1][6] == (4, 8)


uint64 = st.integers(0, 2**64 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


def garbage(strategy, *likely):
    return st.one_of(st.sampled_from(likely), strategy)


@given(
    versioned=st.booleans(),
    kept=st.sets(
        st.sampled_from(["data", "ndim", "shape_at", "strides_at", "device_type", "bits"])
    ),
    fields=st.fixed_dictionaries(
        {
            "data": garbage(uint64, 0, 4096, 2**64 - 1),
            "device_type": garbage(int32, 1, 2, 3, 13),
            "device_id": garbage(int32, 0, 1),
            "ndim": garbage(int32, 0, 1, 2, 64, 65),
            "code": st.integers(0, 255),
            "bits": st.integers(0, 255),
            "lanes": garbage(st.integers(0, 2**16 - 1), 1),
            "shape_at": garbage(uint64, 0, 8, 4096, id(None), id(int)),
            "strides_at": garbage(uint64, 0, 8, 4096, id(None), id(int)),
            "byte_offset": garbage(uint64, 0, 2**64 - 1),
        }
    ),
    version=st.tuples(garbage(st.integers(0, 2**32 - 1), 1), st.integers(0, 2**32 - 1)),
    flags=uint64,
)
@example(True, set(), dict.fromkeys(FIELDS, 0), (0, 0), 0)
def test_random_capsule_gives_a_view_or_our_error(versioned, kept, fields, version, flags):
    fields = {name: value for name, value in fields.items() if name not in kept}
    producer = Forger(versioned, version=version, flags=flags, **fields)
    view, rule = look_at(producer)
    if view is None:
        assert rule in REFUSALS
        return
    assert 0 <= view.address < 2**64
    assert view.address or 0 in view.shape
    assert len(view.shape) == len(view.strides) <= 64
    assert min((0, *view.shape, *view.strides)) == 0
    with contextlib.suppress(TmaError):
        assert host_bytes(view).ndim == 1


@given(st.binary(min_size=80, max_size=80), st.booleans())
def test_random_bytes_in_a_capsule_give_a_view_or_our_error(bytes_80, versioned):
    producer = Forger(versioned)
    ctypes.memmove(producer.managed, bytes_80, len(producer.managed))
    view, rule = look_at(producer)
    assert (view is None) == (rule in REFUSALS)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=6), st.integers(0, 3))
def test_random_shapes_and_strides_give_a_view_or_our_error(numbers, ndim):
    shape, strides = numbers[:ndim], numbers[3 : 3 + ndim]
    view, rule = look_at(Forger(shape=shape, strides=strides, device_type=2))
    if any(extent < 0 for extent in shape):
        assert rule == "TENSOR_EXTENT"
    elif 0 not in shape and any(s < 0 < n - 1 for n, s in zip(shape, strides, strict=True)):
        assert rule == "TENSOR_STRIDE_NEGATIVE"
    else:
        assert view.shape == tuple(shape)


def test_memory_is_read_up_to_the_end_of_a_mapping_and_no_further():
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as pages:
        anchor = ctypes.c_char.from_buffer(pages)
        start = ctypes.addressof(anchor)
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert libc.mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
        end = start + mmap.PAGESIZE
        assert read_safely(end - 16, 16) == bytes(16)
        with pytest.raises(TmaPreconditionError):
            read_safely(end - 16, 24)
        with pytest.raises(TmaPreconditionError):
            read_safely(end, 1)
        view = as_tensor_view(Forger(data=end - 16, strides=(8, 1)))
        with pytest.raises(TmaPreconditionError):
            host_bytes(view)
        ctypes.memmove(end - 9, b"dltensor", 9)

        class AtTheEnd(Forger):
            def __dlpack__(self, max_version=None):
                return new_capsule(ctypes.addressof(self.managed), end - 9, None)

        assert as_tensor_view(AtTheEnd(versioned=False)).shape == (4, 8)
        assert libc.mprotect(end, mmap.PAGESIZE, 3) == 0
        del anchor


def test_capsule_name_may_cross_into_the_next_page():
    pages = ctypes.create_string_buffer(3 * mmap.PAGESIZE)
    boundary = (ctypes.addressof(pages) // mmap.PAGESIZE + 1) * mmap.PAGESIZE
    name = b"dltensor_versioned"
    ctypes.memmove(boundary - 5, name, len(name) + 1)

    class Crossing(Forger):
        def __dlpack__(self, max_version=None):
            return new_capsule(ctypes.addressof(self.managed), boundary - 5, None)

    assert as_tensor_view(Crossing()).shape == (4, 8)


def test_extent_that_wraps_around_onto_real_memory_is_refused():
    wrapping = Forger(shape=(5, 2), strides=(2**62, 1), bits=8)
    assert as_tensor_view(wrapping).strides == (2**62, 1)  # the last byte is at data + 2**64 + 1
    with pytest.raises(TmaPreconditionError):
        host_bytes(as_tensor_view(wrapping))


# How producers are called


class Asked(Forger):
    """Remembers the keywords of each call."""

    device = (1, 0)
    calls: list

    def __init__(self, **fields):
        super().__init__(**fields)
        self.calls = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        return Forger.__dlpack__(self)


def test_host_producer_gets_max_version_and_no_stream():
    producer = Asked()
    as_tensor_view(producer)
    as_tensor_view(producer)
    assert producer.calls == [{"max_version": (1, 3)}] * 2


@pytest.mark.parametrize("device", [(2, 0), (13, 0)])
def test_cuda_producer_gets_stream_minus_one(device):
    kind = type("OnCuda", (Asked,), {"device": device})
    producer = kind(device_type=device[0])
    as_tensor_view(producer)
    as_tensor_view(producer)
    assert producer.calls == [{"max_version": (1, 3), "stream": -1}] * 2


def test_jax_cuda_producer_gets_stream_one():
    kind = type("Array", (Asked,), {"device": (2, 0), "__module__": "jaxlib.imitation"})
    producer = kind(versioned=False, device_type=2)
    as_tensor_view(producer)
    as_tensor_view(producer)
    assert producer.calls == [{"max_version": (1, 3), "stream": 1}] * 2


def test_producer_before_dlpack_1_is_asked_again_without_max_version():
    class Old(Asked):
        def __dlpack__(self, **keywords):
            self.calls.append(keywords)
            if keywords:
                raise TypeError("unexpected keyword argument 'max_version'")
            return Forger.__dlpack__(self)

    producer = Old(versioned=False)
    assert as_tensor_view(producer).shape == (4, 8)
    assert producer.calls == [{"max_version": (1, 3)}, {}]


def test_type_error_of_a_modern_producer_is_not_taken_for_an_old_signature():
    class Moody(Asked):
        fails = False

        def __dlpack__(self, **keywords):
            if self.fails:
                raise TypeError("not today")
            return Asked.__dlpack__(self, **keywords)

    producer = Moody()
    as_tensor_view(producer)
    producer.fails = True
    with pytest.raises(TmaPreconditionError, match="TypeError: not today"):
        as_tensor_view(producer)
    assert len(producer.calls) == 1


@pytest.mark.parametrize("device", [(10, 2), (8, 0), (99, 0)])
def test_other_device_is_refused_before_it_exports(device):
    kind = type("Elsewhere", (Asked,), {"device": device})
    producer = kind()
    assert refused(producer) == "TENSOR_DEVICE"
    assert producer.calls == []


@pytest.mark.parametrize("device", [None, (1,), ("cpu", 0), 3, (None, None)])
def test_odd_answer_about_the_device_is_not_trusted(device):
    kind = type("Confused", (Asked,), {"device": device})
    assert as_tensor_view(kind()).device == Device(1, 0)


@pytest.mark.parametrize(
    "error",
    [
        BufferError,
        RuntimeError,
        AssertionError,
        TypeError,
        ValueError,
        AttributeError,
        KeyError,
        MemoryError,
    ],
)
def test_what_a_producer_raises_is_repeated_and_chained(error):
    class Refusing:
        def __dlpack__(self, **_):
            raise error("the tensor is on holiday")

    with pytest.raises(TmaPreconditionError, match="on holiday") as caught:
        as_tensor_view(Refusing())
    assert caught.value.violations[0].rule == "TENSOR_EXPORT"
    assert type(caught.value.__cause__) is error


def test_numpy_read_only_on_the_legacy_route_is_named():
    """NumPy before 2.1 has no max_version. The test imitates such a NumPy."""

    class OldArray(np.ndarray):
        def __dlpack__(self, *, stream=None):
            return super().__dlpack__()

    x = np.zeros(8).view(OldArray)
    x.flags.writeable = False
    with pytest.raises(TmaPreconditionError, match="readonly") as caught:
        as_tensor_view(x)
    assert caught.value.violations[0].rule == "TENSOR_NUMPY_READ_ONLY"
    assert as_tensor_view(x.copy()).read_only is False


def test_attribute_that_raises_is_an_export_error():
    class Broken:
        @property
        def __dlpack__(self):
            raise RuntimeError("half built")

    with pytest.raises(TmaPreconditionError, match="half built"):
        as_tensor_view(Broken())


def test_keyboard_interrupt_passes():
    class Interrupted:
        def __dlpack__(self, **_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        as_tensor_view(Interrupted())


# Ownership


@both_structs
def test_ten_thousand_capsules_are_each_released_unconsumed(versioned):
    """The destructor must find the capsule's original name, and must run once per capsule."""
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )
    released = []
    destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(
        lambda capsule: released.append(get_name(capsule))
    )

    class Counting(Forger):
        def __dlpack__(self, max_version=None):
            self.exports += 1
            return new_capsule(
                ctypes.addressof(self.managed),
                ctypes.addressof(self.name),
                ctypes.cast(destructor, ctypes.c_void_p).value,
            )

    producer = Counting(versioned)
    held = as_tensor_view(producer)
    assert released == []
    del held
    references = sys.getrefcount(producer)
    for _ in range(10_000):
        as_tensor_view(producer)
    assert producer.exports == len(released) == 10_001
    assert set(released) == {producer.name.value}
    assert sys.getrefcount(producer) == references


def test_refused_capsules_are_released_too():
    producer = Forger(ndim=-1)
    gc.collect()
    references = sys.getrefcount(producer)
    for _ in range(1000):
        assert refused(producer) == "TENSOR_NDIM"
    gc.collect()
    assert sys.getrefcount(producer) == references


def test_careful_access_gives_what_the_quick_one_gives():
    capsule = np.zeros((3, 4, 8))[:, ::2].__dlpack__()
    assert parse_capsule(capsule, CAREFUL) == parse_capsule(capsule, DIRECT)


EXHAUSTED = """
import os, resource
import numpy as np, tma_dlpack as tma

class Producer:
    x = np.zeros((64, 64), np.float32)
    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

str(tma.check_tma_descriptor([], (16, 32)))  # so that all is imported
tma.make_tma_descriptor(Producer.x, (16, 32)).tx_bytes
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(os.dup(0))
except OSError:
    pass
(violation,) = tma.check_tma_descriptor(Producer(), (16, 32)).violations
print(violation.rule == "TENSOR_FILES", "Too many open files" in violation.found)
print(tma.make_tma_descriptor(Producer.x, (16, 32)).tx_bytes)
os.close(files.pop())
os.close(files.pop())
print(tma.check_tma_descriptor(Producer(), (16, 32)).ok)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX's resource")
def test_without_a_free_file_descriptor_an_unknown_producer_is_refused():
    done = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n2048\nTrue\n", "")
