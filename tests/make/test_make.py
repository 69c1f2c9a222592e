"""make_tma_descriptor, end to end, on tensors of every installed framework."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.dlpack import as_tensor_view

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tvm_ffi = pytest.importorskip("tvm_ffi")

jax.config.update("jax_enable_x64", True)

NO_DRIVER = pytest.mark.skipif(driver.is_available(), reason="here a driver answers for the GPU")


def mirrored(data_type, x, box, **options):
    """Return the bytes of the map from `driver_encode_tiled`, which golden files test."""
    view = as_tensor_view(x)
    size = view.dtype.itemsize_bits // 8
    return bytes(
        tma.driver_encode_tiled(
            data_type,
            len(view.shape),
            view.address,
            view.shape[::-1],
            tuple(stride * size for stride in view.strides[-2::-1]),
            box[::-1],
            (1,) * len(view.shape),
            encoder="model",
            **options,
        )
    )


TORCH = {
    torch.uint8: "UINT8", torch.uint16: "UINT16", torch.uint32: "UINT32", torch.uint64: "UINT64",
    torch.int32: "INT32", torch.int64: "INT64", torch.float16: "FLOAT16", torch.float32: "FLOAT32",
    torch.float64: "FLOAT64", torch.bfloat16: "BFLOAT16", torch.bool: "UINT8",
    torch.float8_e4m3fn: "UINT8", torch.float8_e5m2: "UINT8", torch.float8_e4m3fnuz: "UINT8",
    torch.float8_e5m2fnuz: "UINT8", torch.float8_e8m0fnu: "UINT8",
}  # fmt: skip
NUMPY = {
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int32": "INT32",
    "int64": "INT64", "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64",
    "bool": "UINT8",
}  # fmt: skip
JAX = NUMPY | {"bfloat16": "BFLOAT16", "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8"}
SHAPE = (4, 64, 128)
BOX = (1, 8, 16)

TENSORS = [
    *(
        pytest.param(lambda d=d: torch.zeros(SHAPE, dtype=d), t, id=str(d))
        for d, t in TORCH.items()
    ),
    *(pytest.param(lambda d=d: np.zeros(SHAPE, d), t, id=f"numpy.{d}") for d, t in NUMPY.items()),
    *(
        pytest.param(lambda d=d: jax.numpy.zeros(SHAPE, d), t, id=f"jax.{d}")
        for d, t in JAX.items()
    ),
    *(
        pytest.param(lambda d=d: tvm_ffi.from_dlpack(torch.zeros(SHAPE, dtype=d)), t, id=f"tvm {d}")
        for d, t in TORCH.items()
        if d in (torch.float32, torch.bfloat16, torch.uint8, torch.int64)
    ),
]


@pytest.mark.parametrize(("make", "data_type"), TENSORS)
def test_a_tensor_of_any_framework_becomes_the_map_that_the_driver_makes(make, data_type):
    x = make()
    tm = tma.make_tma_descriptor(x, BOX)
    assert tm.data_type is tma.TensorMapDataType[data_type]
    assert (tm.shape, tm.box_sizes, tm.elem_strides) == (SHAPE, BOX, (1, 1, 1))
    assert tm.global_address == as_tensor_view(x).address
    assert tm.tensor is x
    assert bytes(tm) == mirrored(data_type, x, BOX)


@pytest.mark.parametrize(
    ("options", "mirror"),
    [
        ({"swizzle": "bytes64"}, {"swizzle": 2}),
        ({"swizzle": tma.TmaSwizzle.bytes128, "oobfill": "nan"}, {"swizzle": 3, "oob_fill": 1}),
        ({"l2_fetch_size": "bytes256"}, {"l2_promotion": 3}),
        ({"l2_fetch_size": 2, "oobfill": tma.TmaOobFill.nan}, {"l2_promotion": 2, "oob_fill": 1}),
    ],
    ids=str,
)
def test_options_arrive_in_the_bytes(options, mirror):
    x = torch.zeros(64, 64, dtype=torch.bfloat16)
    tm = tma.make_tma_descriptor(x, (32, 16), **options)
    assert bytes(tm) == mirrored("BFLOAT16", x, (32, 16), **mirror)


def test_the_bytes_of_one_map_written_out():
    room = np.zeros(128 * 64 * 2 + 256, np.uint8)
    start = -room.ctypes.data % 256
    x = torch.from_numpy(room[start : start + 128 * 64 * 2]).view(torch.bfloat16).view(128, 64)
    tm = tma.make_tma_descriptor(x, (16, 64), swizzle="bytes128", l2_fetch_size="bytes128")
    pieces = {
        0: x.data_ptr().to_bytes(8, "little"),
        8: bytes.fromhex("10650400"),  # rank 2, bf16, swizzle 128B, L2 128B
        12: (128 // 16).to_bytes(4, "little"),  # global_strides[0]
        32: (64 - 1).to_bytes(4, "little") + (128 - 1).to_bytes(4, "little"),  # global_dim
        55: bytes([64 - 1, 16 - 1]),  # box_dim
        64: (64 * 16 * 2).to_bytes(4, "little"),
        72: (1024).to_bytes(4, "little"),  # the pattern of 128B repeats
    }
    expected = bytearray(128)
    for offset, piece in pieces.items():
        expected[offset : offset + len(piece)] = piece
    assert bytes(tm) == bytes(expected)


@pytest.mark.parametrize(
    ("dtype", "data_type"),
    [
        (torch.float32, "FLOAT32_FTZ"),
        (torch.float32, "TFLOAT32"),
        (torch.float32, "TFLOAT32_FTZ"),
        (torch.int8, "UINT8"),
        (torch.int16, "UINT16"),
        (torch.complex64, "UINT64"),
        (torch.float16, "UINT16"),
    ],
)
def test_a_map_type_of_the_same_size_may_be_named(dtype, data_type):
    x = torch.zeros(SHAPE, dtype=dtype)
    tm = tma.make_tma_descriptor(x, BOX, data_type=data_type)
    assert tm.data_type.name == data_type
    assert bytes(tm) == mirrored(data_type, x, BOX)


@pytest.mark.parametrize(("dtype", "named"), [(torch.int8, "UINT8"), (torch.int16, "UINT16")])
def test_the_refusal_of_small_integers_names_the_way(dtype, named):
    with pytest.raises(tma.TmaPreconditionError, match=f"data_type='{named}'"):
        tma.make_tma_descriptor(torch.zeros(SHAPE, dtype=dtype), BOX)


# -- packed types ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_100", "sm_103", "sm_120"])
@pytest.mark.parametrize(
    ("make", "lanes"),
    [
        pytest.param(lambda: torch.zeros(8, 64, dtype=torch.float4_e2m1fn_x2), 2, id="torch"),
        pytest.param(lambda: jax.numpy.zeros((8, 64), ml_dtypes.float4_e2m1fn), 1, id="jax"),
    ],
)
def test_float4_counts_in_values(make, lanes, target):
    tm = tma.make_tma_descriptor(make(), (4, 32), target=target)
    assert tm.data_type is tma.TensorMapDataType["16U4_ALIGN8B"]
    assert tm.shape == (8, 64 * lanes)
    assert tm.global_strides == (64 * lanes // 2,)
    assert tm.box_sizes == (4, 32)
    with pytest.raises(tma.TmaUnsupportedError, match="has not been measured"):
        bytes(tm)


def test_float4_on_sm_90_is_what_the_target_lacks():
    x = torch.zeros(8, 64, dtype=torch.float4_e2m1fn_x2)
    with pytest.raises(tma.TmaTargetError, match="data_type='UINT8'"):
        tma.make_tma_descriptor(x, (4, 32))
    as_bytes = tma.make_tma_descriptor(x, (4, 32), data_type="UINT8")
    assert (as_bytes.shape, as_bytes.box_sizes) == ((8, 64), (4, 32))


@pytest.mark.parametrize(
    ("data_type", "columns", "values"),
    [("16U4_ALIGN8B", 64, 128), ("16U4_ALIGN16B", 64, 128), ("16U6_ALIGN16B", 96, 128)],
)
def test_bytes_may_be_storage_of_packed_values(data_type, columns, values):
    room = np.zeros(8 * columns + 64, np.uint8)
    start = -room.ctypes.data % 32
    x = room[start : start + 8 * columns].reshape(8, columns)
    box = (4, 128)
    tm = tma.make_tma_descriptor(x, box, data_type=data_type, target="sm_100")
    assert (tm.shape, tm.global_strides) == ((8, values), (columns,))
    with pytest.raises(tma.TmaTargetError):
        tma.make_tma_descriptor(x, box, data_type=data_type)


# -- where libcu++ and the driver part ways ------------------------------------------------------


def test_the_innermost_elem_stride_is_ignored_and_encoded_as_1():
    x = torch.zeros(64, 64)
    for innermost in (0, 1, 5, 99, -1):
        tm = tma.make_tma_descriptor(x, (16, 16), (2, innermost))
        assert tm.elem_strides == (2, 1)
        assert tm == tma.make_tma_descriptor(x, (16, 16), (2, 1))


def test_the_driver_takes_the_innermost_elem_stride_as_it_is():
    x = torch.zeros(64, 64)
    assert tma.make_tma_descriptor(x, (16, 16), (2, 5), rules="driver").elem_strides == (2, 5)
    with pytest.raises(tma.TmaPreconditionError, match=r"elem_strides\[1\] is 9"):
        tma.make_tma_descriptor(x, (16, 16), (2, 9), rules="driver")


def test_broadcast_tensors_are_described():
    x = torch.zeros(1, 64).expand(32, 64)
    tm = tma.make_tma_descriptor(x, (16, 16))
    assert (tm.strides, tm.shape) == ((0, 1), (32, 64))


def test_overlapping_windows_are_the_drivers_business():
    windows = torch.zeros(1024).unfold(0, 64, 16)
    with pytest.raises(tma.TmaPreconditionError, match=r"allow=\('STRIDE_UNIQUE',\): the driver"):
        tma.make_tma_descriptor(windows, (16, 16))
    assert tma.make_tma_descriptor(windows, (16, 16), rules="driver").strides == (16, 1)


def test_a_slice_starts_where_its_first_element_is():
    x = torch.zeros(64, 128)
    tm = tma.make_tma_descriptor(x[8:, 32:64], (16, 16))
    assert tm.global_address == x.data_ptr() + (8 * 128 + 32) * 4
    assert (tm.shape, tm.strides) == ((56, 32), (128, 1))


def test_rank_one_and_rank_five():
    assert tma.make_tma_descriptor(torch.zeros(64), (16,)).rank == 1
    five = tma.make_tma_descriptor(torch.zeros(2, 3, 4, 5, 8), (1, 1, 1, 1, 8))
    assert five.global_dim == (8, 5, 4, 3, 2)
    for shape in ((), (1, 2, 3, 4, 5, 8)):
        with pytest.raises(tma.TmaPreconditionError, match=r"it must have 1\.\.5"):
            tma.make_tma_descriptor(torch.zeros(shape), (1,) * len(shape))


def test_an_empty_tensor_is_refused():
    for x in (torch.zeros(0, 64), np.zeros((0, 64), np.float32)):
        with pytest.raises(tma.TmaPreconditionError, match="nothing to copy"):
            tma.make_tma_descriptor(x, (1, 16))


def test_parameters_and_tensors_with_gradients_are_fine():
    weight = torch.nn.Parameter(torch.zeros(64, 64))
    assert tma.make_tma_descriptor(weight, (16, 16)).tensor is weight


# -- host and GPU ----------------------------------------------------------------------------------


def test_the_map_of_a_host_tensor_never_reaches_a_kernel():
    tm = tma.make_tma_descriptor(torch.zeros(64, 64), (16, 16))
    assert not tm.launchable
    assert tm.target.name == "sm_90"
    assert tm.encoder == "model"
    with pytest.raises(tma.TmaUnsupportedError, match="not launchable"):
        _ = tm.ptr


class OnGpu:
    """A tensor that reports CUDA memory, at an address that no allocation has."""

    def __init__(self, shape=(64, 64), typestr="<f4", address=0x7F00_0000_0000):
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
            "strides": None,
        }


@NO_DRIVER
def test_a_gpu_tensor_without_a_driver_is_described_for_sm_90_and_says_so():
    tm = tma.make_tma_descriptor(OnGpu(), (16, 16), swizzle="bytes64")
    assert tm.launchable
    assert tm.target.name == "sm_90"
    assert tm.ptr % 128 == 0
    assert [a.rule for a in tm.advice] == ["TARGET_ASSUMED"]
    assert [a.rule for a in tma.check_tma_descriptor(OnGpu(), (16, 16), swizzle=2).advice] == [
        "TARGET_ASSUMED"
    ]
    named = tma.make_tma_descriptor(OnGpu(), (16, 16), swizzle="bytes64", target="sm_90")
    assert named.advice == ()
    assert bytes(named) == bytes(tm)


@NO_DRIVER
def test_other_targets_have_no_bytes_without_their_driver():
    tm = tma.make_tma_descriptor(OnGpu(), (16, 16), target="sm_100")
    assert tm.encoder is None
    with pytest.raises(tma.TmaUnsupportedError, match="sm_100 has not been measured"):
        bytes(tm)


def test_a_map_keeps_its_tensor_alive_and_no_longer():
    x = torch.zeros(64, 64)
    alive = weakref.ref(x)
    tm = tma.make_tma_descriptor(x, (16, 16))
    del x
    gc.collect()
    assert alive() is tm.tensor
    del tm
    gc.collect()
    assert alive() is None


def test_ten_thousand_calls_leave_no_reference_behind():
    x = torch.zeros(64, 64)
    before = sys.getrefcount(x)
    for n in range(10_000):
        tma.make_tma_descriptor(x, (16, 16 if n % 2 else 32))
    assert sys.getrefcount(x) == before


# -- check says what make does -------------------------------------------------------------------


def test_check_and_make_agree_and_carry_the_same_violations():
    x = np.zeros((4, 1733), np.float16)
    report = tma.check_tma_descriptor(x, (8, 20), (1, 1), oobfill="nan", swizzle="bytes32")
    with pytest.raises(tma.TmaPreconditionError) as caught:
        tma.make_tma_descriptor(x, (8, 20), (1, 1), oobfill="nan", swizzle="bytes32")
    assert caught.value.violations == report.violations
    assert [v.rule for v in report.violations] == [
        "STRIDE_ALIGNED",
        "BOX_IN_SHAPE",
        "BOX_INNER_16B",
        "BOX_SWIZZLE_SPAN",
    ]


def test_a_fixed_request_makes_a_map():
    x = torch.zeros(64, 64, dtype=torch.int8)
    fixed = tma.check_tma_descriptor(x, (300, 17), swizzle="byte32").fixed()
    tm = tma.make_tma_descriptor(x, **fixed)
    assert (tm.box_sizes, tm.swizzle.name, tm.data_type.name) == ((64, 16), "bytes32", "UINT8")


@pytest.mark.parametrize("thing", [3, None, "map", object()], ids=["int", "None", "str", "object"])
def test_only_a_map_gets_another_address(thing):
    with pytest.raises(tma.TmaPreconditionError, match=r"tensor_map is .*must be a TensorMap"):
        tma.driver_replace_address(thing, 4096)


def test_every_public_name_is_found_by_completion():
    script = "import tma_dlpack as tma; assert set(tma.__all__) <= set(dir(tma))"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("x", [np.zeros((64, 64), np.float32), "no tensor"], ids=["box", "tensor"])
def test_a_refusal_shows_nothing_of_the_look_up_before(x):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.make_tma_descriptor(x, (16, 3))
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_a_refusal_while_another_error_is_handled_shows_both():
    x = np.zeros((64, 64), np.float32)
    try:
        raise KeyError("of the caller")
    except KeyError:
        with pytest.raises(tma.TmaPreconditionError) as refused:
            tma.make_tma_descriptor(x, (16, 3))
    assert isinstance(refused.value.__context__, KeyError)
    assert not refused.value.__suppress_context__
