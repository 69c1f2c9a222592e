# ruff: noqa: N802 - the stand-in library has the C names
"""`driver`: its arguments to libcuda, and its messages. A stand-in encodes with the model."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

from tma_dlpack import driver
from tma_dlpack.driver import library
from tma_dlpack.driver.encode import ENCODERS, bind, describe
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import EncodeArguments
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tables.errors import TmaDriverError, TmaPreconditionError, TmaUnsupportedError
from tma_dlpack.tables.targets import Target

T = TensorMapDataType
TILED = EncodeArguments("tiled", T.BFLOAT16, (128, 64, 9), (256, 16384), (1, 1, 2), (64, 16, 2))
IM2COL = EncodeArguments(
    "im2col",
    T.FLOAT16,
    (64, 20, 10, 4),
    (128, 2560, 25600),
    (1, 1, 2, 1),
    swizzle=TmaSwizzle.bytes128,
    pixel_box_lower_corner=(-1, -2),
    pixel_box_upper_corner=(1, -3),
    channels_per_pixel=64,
    pixels_per_column=32,
)
WIDE = EncodeArguments(
    "im2col_wide",
    T.FLOAT16,
    (64, 20, 10, 4),
    (128, 2560, 25600),
    (1, 1, 1, 1),
    swizzle=TmaSwizzle.bytes128,
    pixel_box_lower_corner=(-1,),
    pixel_box_upper_corner=(2,),
    channels_per_pixel=64,
    pixels_per_column=32,
)
ADDRESS = 0x7F00_0000_0000
CALLERS = 0xCA11  # a context that is not a primary context


def entries(letters, array):
    """Read a C array that has at least 5 entries."""
    return struct.unpack(letters, array[: struct.calcsize(letters)])


class StandInLibrary:
    """The functions of libcuda for one GPU, which encode C arguments with the model."""

    capability = (9, 0)
    version = 13000

    def __init__(self):
        self.contexts = []  # the stack of current contexts
        self.refuse = False
        self.retained = 0

    def cuInit(self, flags):
        return 0

    def cuDriverGetVersion(self, version):
        version.value = self.version
        return 0

    def cuDeviceGetCount(self, count):
        count.value = 1
        return 0

    def cuDeviceGet(self, device, ordinal):
        device.value = ordinal
        return 0

    def cuDeviceGetName(self, name, length, device):
        name.value = b"Stand-in GPU"
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value.value = {75: self.capability[0], 76: self.capability[1], 97: 232448, 16: 132}[
            attribute
        ]
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        self.retained += 1
        context.value = 0x1000 + device
        return 0

    def cuCtxGetDevice(self, device):
        if not self.contexts:
            return 201
        device.value = 0
        return 0

    def cuCtxGetCurrent(self, context):
        context.value = self.contexts[-1] if self.contexts else None
        return 0

    def cuCtxPushCurrent_v2(self, context):
        self.contexts.append(context)
        return 0

    def cuCtxPopCurrent_v2(self, context):
        context.value = self.contexts.pop()
        return 0

    def cuPointerGetAttribute(self, answer, attribute, address):
        if address != ADDRESS:
            return 1
        ctypes.c_int.from_address(answer).value = {9: 0, 11: 0, 12: 0, 1: 0}[attribute]
        return 0

    def cuGetErrorName(self, result, name):
        name.value = {
            1: b"CUDA_ERROR_INVALID_VALUE",
            715: b"CUDA_ERROR_ILLEGAL_INSTRUCTION",
            701: b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        }.get(result)
        return 0 if name.value else 1

    def cuGetErrorString(self, result, text):
        text.value = {
            1: b"invalid argument",
            715: b"illegal instruction",
            701: b"too many resources requested",
        }.get(result)
        return 0 if text.value else 1

    def cuTensorMapEncodeTiled(
        self, out, kind, rank, address, dims, strides, box, steps, inter, swz, l2, oob
    ):
        args = EncodeArguments(
            "tiled",
            T(kind),
            entries("5Q", dims)[:rank],
            entries("5Q", strides)[: rank - 1],
            entries("5I", steps)[:rank],
            entries("5I", box)[:rank],
            type(TILED.interleave)(inter),
            TmaSwizzle(swz),
            type(TILED.l2_promotion)(l2),
            type(TILED.oob_fill)(oob),
        )
        return self._finish(out, args, address)

    def cuTensorMapEncodeIm2col(
        self, out, kind, rank, address, dims, strides, lower, upper, channels, pixels, steps,
        inter, swz, l2, oob,
    ):  # fmt: skip
        args = EncodeArguments(
            "im2col",
            T(kind),
            entries("5Q", dims)[:rank],
            entries("5Q", strides)[: rank - 1],
            entries("5I", steps)[:rank],
            swizzle=TmaSwizzle(swz),
            pixel_box_lower_corner=entries("5i", lower)[: rank - 2],
            pixel_box_upper_corner=entries("5i", upper)[: rank - 2],
            channels_per_pixel=channels,
            pixels_per_column=pixels,
        )
        return self._finish(out, args, address)

    def cuTensorMapReplaceAddress(self, out, address):
        if address % 16:
            return 1
        ctypes.c_uint64.from_address(out).value = address
        return 0

    def _finish(self, out, args, address):
        assert self.contexts, "encoded without a context"
        assert out % 128 == 0, "storage is not aligned"
        assert ctypes.string_at(out, 128) == bytes(128), "storage is not zeroed"
        if self.refuse:
            return 1
        ctypes.memmove(out, bits.encode(args, address), 128)
        return 0


@pytest.fixture
def fresh():
    """Clear the driver's caches before and after each test."""
    library._survey.cache_clear()
    library._primary_context.cache_clear()
    yield
    library._survey.cache_clear()
    library._primary_context.cache_clear()


@pytest.fixture
def stand_in(monkeypatch, fresh):
    stand_in = StandInLibrary()
    # Only the loading of the library is replaced; a bound method cannot have argtypes.
    functions = {
        name: (lambda f: lambda *a: f(*a))(getattr(stand_in, name))
        for name in dir(stand_in)
        if name.startswith("cu")
    }
    loaded = SimpleNamespace(**functions)
    monkeypatch.setattr(library.ctypes, "CDLL", lambda name: loaded)
    stand_in.functions = loaded
    return stand_in


@pytest.fixture
def no_driver(monkeypatch, fresh):
    def fail(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(library.ctypes, "CDLL", fail)


def test_without_a_driver_nothing_is_available_and_the_reason_names_the_library(no_driver):
    assert not driver.is_available()
    status = driver.status()
    assert (status.version, status.devices) == (None, ())
    assert library.LIBRARY in status.reason
    assert driver.current_device() is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda: driver.device_target(0),
        lambda: driver.encode(TILED, ADDRESS),
        lambda: driver.replace_address(bytes(128), ADDRESS),
        lambda: driver.pointer_device(ADDRESS),
        lambda: driver.call("cuInit", 0),
    ],
    ids=["device_target", "encode", "replace_address", "pointer_device", "call"],
)
def test_without_a_driver_every_question_says_what_was_looked_for(no_driver, ask):
    with pytest.raises(TmaUnsupportedError, match=library.LIBRARY):
        ask()


def test_a_driver_that_cannot_start_is_not_available(stand_in):
    stand_in.functions.cuInit = lambda flags: 1
    assert not driver.is_available()
    assert "cuInit returned CUDA_ERROR_INVALID_VALUE (1)" in driver.status().reason


def test_a_driver_without_gpus_is_not_available(stand_in):
    stand_in.functions.cuDeviceGetCount = lambda count: 0
    assert driver.status().reason == "the CUDA driver (13.0) shows no GPU"


def test_device_facts(stand_in):
    (facts,) = driver.status().devices
    assert (facts.index, facts.name) == (0, "Stand-in GPU")
    assert facts.target == driver.device_target(0) == Target((9, 0), 232448, 13000, 132)


@pytest.mark.parametrize("ordinal", [-1, 1])
def test_an_ordinal_that_is_not_there_is_refused(stand_in, ordinal):
    with pytest.raises(TmaUnsupportedError, match=f"no GPU {ordinal}: the driver shows 1"):
        driver.device_target(ordinal)


@pytest.mark.parametrize("arguments", [TILED, IM2COL], ids=["tiled", "im2col"])
def test_the_c_call_receives_every_argument(stand_in, arguments):
    assert driver.encode(arguments, ADDRESS) == bits.encode(arguments, ADDRESS)


def test_encoding_leaves_the_current_context_as_it_was(stand_in):
    driver.encode(TILED, ADDRESS, 0)
    assert stand_in.contexts == []
    stand_in.contexts = [CALLERS]
    driver.encode(TILED, ADDRESS, 0)
    assert stand_in.contexts == [CALLERS]
    stand_in.refuse = True
    with pytest.raises(TmaDriverError):
        driver.encode(TILED, ADDRESS, 0)
    assert stand_in.contexts == [CALLERS]


def test_a_primary_context_is_retained_once(stand_in):
    for _ in range(3):
        driver.encode(TILED, ADDRESS, 0)
    assert stand_in.retained == 1


def test_the_current_context_serves_when_no_device_is_named(stand_in):
    stand_in.contexts = [CALLERS]
    driver.encode(TILED, ADDRESS)
    assert stand_in.retained == 0


def test_a_refusal_shows_every_argument_under_its_driver_name(stand_in):
    stand_in.refuse = True
    with pytest.raises(TmaDriverError) as error:
        driver.encode(TILED, ADDRESS)
    assert str(error.value).splitlines() == [
        "cuTensorMapEncodeTiled returned CUDA_ERROR_INVALID_VALUE (1): invalid argument",
        "  tensorDataType = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 (9)",
        "  tensorRank = 3",
        "  globalAddress = 0x7f0000000000",
        "  globalDim[0] = 128",
        "  globalDim[1] = 64",
        "  globalDim[2] = 9",
        "  globalStrides[0] = 256",
        "  globalStrides[1] = 16384",
        "  boxDim[0] = 64",
        "  boxDim[1] = 16",
        "  boxDim[2] = 2",
        "  elementStrides[0] = 1",
        "  elementStrides[1] = 1",
        "  elementStrides[2] = 2",
        "  interleave = CU_TENSOR_MAP_INTERLEAVE_NONE (0)",
        "  swizzle = CU_TENSOR_MAP_SWIZZLE_NONE (0)",
        "  l2Promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE (0)",
        "  oobFill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE (0)",
    ]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (1, "CUDA_ERROR_INVALID_VALUE (1): invalid argument"),
        (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION (715): illegal instruction; the context is lost"),
        (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701): too many resources requested"),
        (999, "the unknown CUresult 999"),
    ],
)
def test_a_failed_call_names_its_result_and_whether_the_context_is_lost(stand_in, result, text):
    stand_in.functions.cuStreamSynchronize = lambda stream: result
    with pytest.raises(TmaDriverError) as error:
        driver.call("cuStreamSynchronize", 0)
    restart = ": restart the process" if "lost" in text else ""
    assert str(error.value) == f"cuStreamSynchronize returned {text}{restart}"


def test_im2col_arguments_are_shown_w_first():
    lines = list(describe(ENCODERS["im2col"], IM2COL, ADDRESS))
    assert "pixelBoxLowerCorner[0] = -1" in lines
    assert "pixelBoxUpperCorner[1] = -3" in lines
    assert "pixelsPerColumn = 32" in lines


def test_the_wide_call_passes_one_corner_and_the_mode():
    names = [p.name for p in ENCODERS["im2col_wide"].parameters]
    values = dict(zip(names, bind(ENCODERS["im2col_wide"], WIDE, ADDRESS), strict=True))
    assert (values["pixelBoxLowerCornerWidth"], values["pixelBoxUpperCornerWidth"]) == (-1, 2)
    assert names.index("mode") == names.index("interleave") + 1
    assert values["swizzle"] == 3


def test_a_driver_without_the_wide_call_names_the_version_that_has_it(stand_in):
    with pytest.raises(TmaUnsupportedError, match=r"has no cuTensorMapEncodeIm2colWide.* 12\.8"):
        driver.encode(WIDE, ADDRESS)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"global_dim": (1 << 64, 64, 9)}, "globalDim[0] is 18446744073709551616"),
        ({"global_strides": (-16, 16384)}, "globalStrides[0] is -16"),
        ({"box_dim": (64, 1 << 32, 2)}, "boxDim[1] is 4294967296"),
        ({"element_strides": (1, 1, -1)}, "elementStrides[2] is -1"),
        ({"box_dim": (64, 16)}, "boxDim has 2 entries"),
        ({"global_strides": (256,)}, "globalStrides has 1 entries"),
    ],
)
def test_what_does_not_fit_the_c_prototype_is_refused_before_the_call(stand_in, change, found):
    with pytest.raises(TmaPreconditionError) as error:
        driver.encode(TILED._replace(**change), ADDRESS)
    (violation,) = error.value.violations
    assert (violation.rule, violation.found) == ("C_TYPE", found)


@pytest.mark.parametrize("value", [0, (1 << 32) - 1])
def test_the_ends_of_a_c_type_are_passed_on(value):
    arguments = TILED._replace(box_dim=(value, 16, 2))
    box_dim = bind(ENCODERS["tiled"], arguments, ADDRESS)[5]
    assert entries("5I", box_dim) == (value, 16, 2, 0, 0)


@pytest.mark.parametrize("address", [-1, 1 << 64])
def test_an_address_beyond_64_bits_is_refused(stand_in, address):
    with pytest.raises(TmaPreconditionError, match="globalAddress"):
        driver.encode(TILED, address)
    with pytest.raises(TmaPreconditionError, match="globalAddress"):
        driver.replace_address(bytes(128), address)


def test_replacing_an_address_changes_eight_bytes(stand_in):
    before = bits.encode(TILED, ADDRESS)
    assert driver.replace_address(before, ADDRESS + 256) == bits.encode(TILED, ADDRESS + 256)
    with pytest.raises(TmaDriverError, match=r"globalAddress = 0x7f0000000008"):
        driver.replace_address(before, ADDRESS + 8)


def test_a_map_that_is_not_128_bytes_is_refused(stand_in):
    with pytest.raises(TmaPreconditionError, match="127 bytes"):
        driver.replace_address(bytes(127), ADDRESS)


def test_the_device_of_a_pointer_that_cuda_does_not_know_is_none(stand_in):
    assert driver.pointer_device(ADDRESS) == 0
    assert driver.pointer_device(ADDRESS + 1) is None
    assert driver.pointer_range(ADDRESS + 1) is None


def test_memory_that_cuda_does_not_know_has_no_context(stand_in):
    with pytest.raises(TmaUnsupportedError, match="CUDA does not know"), driver.in_context_of(64):
        pass
    with driver.in_context_of(ADDRESS) as device_id:
        assert device_id == 0
        assert stand_in.contexts == [0x1000]
    assert stand_in.contexts == []


BIT_85 = 1 << 85
ALL_BITS = (1 << 1024) - 1


@pytest.mark.parametrize(
    ("capability", "version", "cleared"),
    [
        ((9, 0), 13010, False),
        ((10, 0), 13010, True),
        ((10, 0), 13020, False),
        ((10, 3), 13019, True),
        ((12, 0), 12080, True),
        ((12, 0), None, True),
        ((12, 1), 13030, False),
    ],
)
def test_bit_85_is_cleared_on_sm_100_and_later_before_driver_13_2(capability, version, cleared):
    given = ALL_BITS.to_bytes(128, "little")
    wanted = ALL_BITS & ~BIT_85 if cleared else ALL_BITS
    mended = driver.clear_bit_85(given, Target(capability, driver_version=version))
    assert mended == wanted.to_bytes(128, "little")


@pytest.mark.parametrize(
    ("dims", "keeps_the_bit"),
    [((32767,), False), ((32768,), True), ((32768, 64), False)],
    ids=["one dimension under 128 KiB", "one dimension of 128 KiB", "two dimensions"],
)
def test_the_rule_looks_at_the_size_of_maps_of_one_dimension_only(stand_in, dims, keeps_the_bit):
    stand_in.capability = (10, 0)
    stand_in._finish = lambda out, args, address: (
        ctypes.memmove(out, BIT_85.to_bytes(128, "little"), 128) and 0
    )
    rank = len(dims)
    arguments = EncodeArguments(
        "tiled", T.INT32, dims, (131072,) * (rank - 1), (1,) * rank, (16,) * rank
    )
    kept = driver.encode(arguments, ADDRESS) != bytes(128)
    assert kept is keeps_the_bit


def test_importing_the_package_loads_no_driver():
    code = (
        "import ctypes, sys\n"
        "class Watched(ctypes.CDLL):\n"
        "    def __init__(self, name, *a, **k):\n"
        "        assert 'cuda' not in str(name), name\n"
        "        super().__init__(name, *a, **k)\n"
        "ctypes.CDLL = Watched\n"
        "import tma_dlpack, tma_dlpack.driver\n"
        "assert not {'ctypes.util', 'torch', 'cuda', 'cupy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_asks_the_driver_again(stand_in):
    assert driver.is_available()
    stand_in.functions.cuInit = lambda flags: 3  # a driver in a forked child returns this error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns about every fork after it was imported
        child = os.fork()
    if child == 0:
        os._exit(0 if not driver.is_available() else 1)
    assert os.waitpid(child, 0)[1] == 0
