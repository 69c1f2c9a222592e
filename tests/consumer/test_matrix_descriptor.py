"""Matrix descriptors: the tensor core reads exactly the tile, or the tile is refused."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from operand_cases import SPANS, OperandCase, operand_cases

import tma_dlpack as tma
from tma_dlpack import matrix_descriptor

SETTINGS = examples(150)


def made(shape, box, dtype=np.float16, **options):
    return tma.make_tma_descriptor(np.zeros(shape, dtype), box, **options)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def loaded(case: OperandCase):
    matrix = case.matrix()
    tensor_map = case.tensor_map(matrix)
    tile = tma.load_tile(tensor_map, case.coords(), smem_offset=case.smem_address)
    descriptor = matrix_descriptor(
        tensor_map,
        instruction=case.instruction,
        major=case.major,
        smem_address=case.smem_address,
    )
    return tile, descriptor


# --- What is read -------------------------------------------------------------------------------


@SETTINGS
@given(operand_cases("wgmma"))
def test_wgmma_reads_the_tile_of_every_map_that_is_accepted(case):
    tile, descriptor = loaded(case)
    assert same_bits(descriptor.read(tile.smem), case.logical(tile.array))


@SETTINGS
@given(operand_cases("tcgen05"))
def test_tcgen05_reads_the_tile_of_every_map_that_is_accepted(case):
    tile, descriptor = loaded(case)
    assert same_bits(descriptor.read(tile.smem), case.logical(tile.array))


@SETTINGS
@given(operand_cases("wgmma"), st.data())
def test_advanced_descriptors_read_the_rest_of_the_tile(case, data):
    tile, descriptor = loaded(case)
    steps = data.draw(st.integers(0, descriptor.k_steps - 1))
    atom = 8 if case.major == "K" else SPANS[case.swizzle] // case.element_bytes
    skipped = atom * data.draw(st.integers(0, (descriptor.mn_elements - 1) // atom))
    rest = descriptor.advance(steps, mn_elements=skipped)
    logical, k = case.logical(tile.array), steps * descriptor.k_elements
    wanted = logical[skipped:, k:] if case.major == "K" else logical[k:, skipped:]
    assert same_bits(rest.read(tile.smem), np.ascontiguousarray(wanted))


def test_a_tile_of_an_im2col_map_is_pixels_by_channels():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 16, (2, 9, 9, 64), np.uint16)
    lower, upper = tma.im2col_corners((3, 3), 1)
    tm = tma.make_im2col_descriptor(
        x, lower, upper, 64, 64, swizzle="bytes128", data_type="BFLOAT16"
    )
    tile = tma.load_tile(tm, (0, -1, -1, 0), im2col_offsets=(1, 2))
    assert same_bits(matrix_descriptor(tm).read(tile.smem), tile.array)


def test_turned_tf32_of_tcgen05_takes_atoms_of_32_bytes():
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    options = {"swizzle": "bytes128_atom_32B", "data_type": "TFLOAT32", "target": "sm_100"}
    tm = tma.make_tma_descriptor(x, (24, 32), **options)
    tile = tma.load_tile(tm, (8, 32))
    descriptor = matrix_descriptor(tm, instruction="tcgen05", major="MN")
    assert descriptor.layout_type == 1
    assert descriptor.stride_byte_offset == 4 * 128
    assert same_bits(descriptor.read(tile.smem), tile.array)


def test_every_second_row_is_a_tile_like_any_other():
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    tm = tma.make_tma_descriptor(x, (32, 64), elem_strides=(2, 1), swizzle="bytes128")
    tile = tma.load_tile(tm, (16, 0))
    assert same_bits(matrix_descriptor(tm).read(tile.smem), x[16:48:2])
    assert tile.array.shape == (16, 64)


@pytest.mark.parametrize("wrong", ["stride", "layout", "start"])
def test_another_descriptor_reads_something_else(wrong):
    x = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128", data_type="BFLOAT16")
    tile, right = tma.load_tile(tm, (0, 0)), matrix_descriptor(tm)
    other = {
        "stride": lambda: replace(right, stride_byte_offset=512),
        "layout": lambda: replace(right, swizzle=tma.TmaSwizzle.bytes64),
        "start": lambda: replace(right, k_starts=tuple(s + 16 for s in right.k_starts[:3])),
    }[wrong]()
    assert not same_bits(other.read(tile.smem), tile.array)


# --- The 64 bits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "asked", "value", "next_value"),
    [
        # CUTLASS, fast.cu and DeepGEMM write this descriptor: SBO 1024, 128B, LBO field 1
        ({"swizzle": "bytes128"}, {}, 0x4000004000010000, 0x4000004000010002),
        ({"swizzle": "bytes128"}, {"instruction": "tcgen05"},
         2 << 61 | 1 << 46 | 64 << 32 | 1 << 16, 2 << 61 | 1 << 46 | 64 << 32 | 1 << 16 | 2),
        ({"swizzle": "bytes128"}, {"major": "MN"},
         1 << 62 | 64 << 32 | 512 << 16, 1 << 62 | 64 << 32 | 512 << 16 | 128),
        ({"swizzle": "bytes128"}, {"smem_address": 0x480},
         1 << 62 | 64 << 32 | 1 << 16 | 0x48, 1 << 62 | 64 << 32 | 1 << 16 | 0x4A),
    ],
    ids=["K-major", "tcgen05", "MN-major", "at 0x480: the base offset stays 0"],
)  # fmt: skip
def test_the_bits_of_a_64_by_64_tile(options, asked, value, next_value):
    tm = made((64, 64), (64, 64), **options)
    descriptor = matrix_descriptor(tm, **asked)
    assert descriptor.value == value
    assert descriptor.advance(1).value == next_value


@pytest.mark.parametrize(
    ("swizzle", "layout", "tcgen05_layout", "stride"),
    [("bytes32", 3, 6, 256), ("bytes64", 2, 4, 512), ("bytes128", 1, 2, 1024)],
)
def test_layout_type_and_stride_of_each_swizzle(swizzle, layout, tcgen05_layout, stride):
    tm = made((64, 64), (64, SPANS[swizzle] // 2), swizzle=swizzle)
    for instruction, number in (("wgmma", layout), ("tcgen05", tcgen05_layout)):
        descriptor = matrix_descriptor(tm, instruction=instruction)
        assert descriptor.layout_type == number
        assert descriptor.stride_byte_offset == stride
        assert descriptor.base_offset == 0


@pytest.mark.parametrize(("major", "leading", "stride"), [("K", 1024, 128), ("MN", 128, 1024)])
def test_without_a_swizzle_the_offsets_change_places_with_the_major(major, leading, stride):
    matrix = np.zeros((64, 64), np.float16)
    case = OperandCase("wgmma", major, "FLOAT16", "none", (64, 64), 64, 4, 16, (0, 0), 0)
    descriptor = matrix_descriptor(case.tensor_map(matrix), major=major)
    assert (descriptor.leading_byte_offset, descriptor.stride_byte_offset) == (leading, stride)
    assert descriptor.layout_type == 0


@pytest.mark.parametrize(
    ("dtype", "data_type", "k_elements"),
    [("f2", "FLOAT16", 16), ("u2", "BFLOAT16", 16), ("f4", "TFLOAT32", 8), ("u1", "UINT8", 32)],
)
def test_one_instruction_takes_32_bytes_of_k(dtype, data_type, k_elements):
    box = (8, 128 // np.dtype(dtype).itemsize)
    tm = made((64, 256), box, dtype, swizzle="bytes128", data_type=data_type)
    descriptor = matrix_descriptor(tm)
    assert descriptor.k_elements == k_elements
    assert descriptor.k_steps == 4
    assert [d.start_address for d in (descriptor.advance(n) for n in range(4))] == [0, 32, 64, 96]


#: (major, swizzle) -> LBO, SBO and the start of step s, for r rows and a span of w bytes: the table
#: that was measured with 1,536 products on the H200 (16-bit types).
MEASURED = {
    ("K", "swizzled"): lambda r, w: (16, 8 * w, lambda s: 32 * s // w * r * w + 32 * s % w),
    ("K", "none"): lambda r, w: (r * 16, 128, lambda s: 2 * s * r * 16),
    ("MN", "swizzled"): lambda r, w: (r * w, 8 * w, lambda s: s * 16 * w),
    ("MN", "none"): lambda r, w: (128, r * 16, lambda s: s * 16 * 16),
}


@pytest.mark.parametrize("rows", [16, 64, 192])
@pytest.mark.parametrize("swizzle", sorted(SPANS))
@pytest.mark.parametrize("major", ["K", "MN"])
def test_offsets_and_steps_are_those_that_were_measured(major, swizzle, rows):
    kind = "none" if swizzle == "none" else "swizzled"
    leading, stride, start = MEASURED[major, kind](rows, SPANS[swizzle])
    case = OperandCase(
        "wgmma", major, "FLOAT16", swizzle, (256, 256), rows, 4, SPANS[swizzle], (0, 0), 0
    )
    descriptor = matrix_descriptor(case.tensor_map(case.matrix()), major=major)
    assert (descriptor.leading_byte_offset, descriptor.stride_byte_offset) == (leading, stride)
    steps = rows // 16 if major == "MN" else 4 * SPANS[swizzle] // 32
    assert descriptor.k_starts == tuple(start(s) for s in range(steps))


def test_the_text_shows_every_field():
    tm = made((64, 64), (64, 64), swizzle="bytes128")
    for instruction in ("wgmma", "tcgen05"):
        descriptor = matrix_descriptor(tm, instruction=instruction, smem_address=0x800)
        text = str(descriptor)
        for field in descriptor._row.fields:
            assert f"bits {field.place:<7}{field.name}" in text
        assert f"{descriptor.value:#018x}" in text
        assert "0x800, 0x820, 0x840, 0x860" in text
    assert "documented, not measured" in text


def test_a_descriptor_is_a_value():
    tm = made((64, 64), (64, 64), swizzle="bytes128")
    assert matrix_descriptor(tm) == matrix_descriptor(tm)
    assert len({matrix_descriptor(tm), matrix_descriptor(tm, smem_address=1024)}) == 2
    with pytest.raises(AttributeError, match="immutable"):
        matrix_descriptor(tm).base_offset = 1


# --- Refusals -----------------------------------------------------------------------------------

F16 = np.float16
#: id -> tensor, keyword arguments of the map, of the descriptor, and what is found
REFUSED = {
    "MATRIX_TARGET": (((64, 64), F16), {"box_sizes": (64, 64), "swizzle": "bytes128",
        "target": "sm_100"}, {}, "the map is for sm_100, which has no wgmma"),
    "MATRIX_TYPE": (((64, 64), np.float32), {"box_sizes": (64, 32), "swizzle": "bytes128"}, {},
        "the map's data type is FLOAT32"),
    "MATRIX_TYPE, words": (((64, 64), np.uint16), {"box_sizes": (64, 64), "swizzle": "bytes128"},
        {}, "the map's data type is UINT16"),
    "MATRIX_MAJOR": (((64, 64), np.uint8), {"box_sizes": (64, 64), "swizzle": "bytes64"},
        {"major": "MN"}, "major is MN with elements of 8 bits"),
    "MATRIX_INTERLEAVE": (((2, 4, 64, 8), F16), {"box_sizes": (1, 1, 64, 8),
        "interleave_layout": "bytes16"}, {}, "interleave_layout is bytes16"),
    "MATRIX_FILL": (((64, 64), F16), {"box_sizes": (64, 64), "swizzle": "bytes128",
        "oobfill": "nan"}, {}, "oobfill is nan"),
    "MATRIX_SWIZZLE": (((64, 64), np.float32), {"box_sizes": (64, 32), "swizzle": "bytes128",
        "data_type": "TFLOAT32", "target": "sm_100"}, {"instruction": "tcgen05", "major": "MN"},
        "swizzle is bytes128, MN-major with elements of 32 bits"),
    "MATRIX_RANK": (((4096,), F16), {"box_sizes": (64,)}, {}, "the box (64,) has one dimension"),
    "MATRIX_RANK, batch": (((4, 64, 64), F16), {"box_sizes": (2, 64, 64), "swizzle": "bytes128"},
        {}, "the box (2, 64, 64) has 3 dimensions"),
    "MATRIX_WIDTH": (((64, 256), F16), {"box_sizes": (64, 64)}, {},
        "a row of the box is 128 bytes, with swizzle none"),
    "MATRIX_WIDTH, wide": (((64, 256), F16), {"box_sizes": (64, 128)}, {},
        "a row of the box is 256 bytes, with swizzle none"),
    "MATRIX_WIDTH, wide and ragged": (((64, 136), F16), {"box_sizes": (64, 128)}, {},
        "a row of the box is 256 bytes, with swizzle none"),
    "MATRIX_WIDTH, half a step": (((64, 256), F16), {"box_sizes": (64, 24), "swizzle": "bytes64"},
        {}, "a row of the box is 48 bytes, with swizzle bytes64"),
    "MATRIX_WIDTH, turned": (((64, 256), F16), {"box_sizes": (64, 200)}, {"major": "MN"},
        "a row of the box is 400 bytes, with swizzle none"),
    "MATRIX_ROWS": (((64, 64), F16), {"box_sizes": (60, 64), "swizzle": "bytes128"}, {},
        "the tile has 60 rows (M or N)"),
    "MATRIX_ROWS, few": (((4, 64), F16), {"box_sizes": (4, 64), "swizzle": "bytes128"}, {},
        "the tile has 4 rows (M or N)"),
    "MATRIX_ROWS, turned": (((64, 64), F16), {"box_sizes": (40, 64), "swizzle": "bytes128"},
        {"major": "MN"}, "the tile has 40 rows (K)"),
    "MATRIX_ADDRESS": (((64, 64), F16), {"box_sizes": (64, 64), "swizzle": "bytes128"},
        {"smem_address": 64}, "smem_address is 0x40"),
    "MATRIX_ADDRESS, high": (((64, 64), F16), {"box_sizes": (64, 64), "swizzle": "bytes128"},
        {"smem_address": 0x3FF80}, "smem_address is 0x3ff80"),
    "MATRIX_ADDRESS, of tcgen05": (((64, 64), F16), {"box_sizes": (64, 64), "swizzle": "bytes128"},
        {"smem_address": 0x480, "instruction": "tcgen05"}, "smem_address is 0x480"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_a_call_that_works(name):
    (shape, dtype), options, asked, found = REFUSED[name]
    x = np.zeros(shape, dtype)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        matrix_descriptor(tma.make_tma_descriptor(x, **options), **asked)
    (violation,) = refused.value.violations
    assert violation.rule == name.partition(",")[0]
    assert violation.found == found
    (listed,) = tma.rules(violation.rule)
    assert violation.source in listed.source  # the target has both instructions
    mended(x, options, asked, violation)


def test_every_row_is_among_them():
    rows = {rule.id for rule in tma.rules("operand") if rule.id.startswith("MATRIX_")}
    assert {name.partition(",")[0] for name in REFUSED} == rows


def mended(x, options, asked, violation):
    """Follow the fix, and check that the tile can then be read."""
    x, options, asked = changed(x, options, asked, violation)
    matrix_descriptor(tma.make_tma_descriptor(x, **options), **asked)


def changed(x, options, asked, violation):
    """Follow the fix: return the tensor, and the arguments of the map and the descriptor."""
    fix = violation.fix.partition("; or, to do without a swizzle")[0]
    if "reshape" in fix:  # says so in words
        x, options = x.reshape(64, 64), {"box_sizes": (64, 64), "swizzle": "bytes128"}
    elif "transpose" in fix or "N, H, W, C" in fix:
        x, options = np.zeros((64, 64), x.dtype), {"box_sizes": (64, 64), "swizzle": "bytes128"}
        options["box_sizes"] = (64, 128 // x.itemsize) if x.itemsize > 1 else (64, 64)
        asked = asked | {"major": "K"}
    elif "data_type='BFLOAT16' or" in fix:
        options = options | {"data_type": "BFLOAT16"}
    elif "box row of 128 bytes" in fix:
        options = options | keywords(fix.partition(" and ")[0])
    elif "of the matrix itself" in fix:
        options = options | {"split_inner": False} | keywords(fix)
    elif "instruction=" in fix or "smem_address=" in fix:
        asked = asked | keywords(fix)
    else:
        options = options | keywords(fix)
    return x, options, asked


def keywords(text: str) -> dict:
    found = re.findall(r"(\w+)=(\([\d, ]+\)|'\w+'|True|False|0x[0-9a-f]+|\d+)", text)
    assert found, text
    return {name: eval(value) for name, value in found}


WITHOUT = "; or, to do without a swizzle, with split_inner=True, swizzle='none'"


@pytest.mark.parametrize(
    ("shape", "box", "major", "is_remedy"),
    [
        ((64, 256), (64, 64), "K", True),
        ((64, 256), (64, 128), "K", True),
        ((64, 256), (64, 24), "K", False),  # 48 bytes: one and a half K steps
        ((64, 256), (64, 24), "MN", True),
        ((64, 252), (64, 64), "K", False),  # 504 bytes, which are not whole columns of 16 bytes
        ((1, 1, 1, 64, 64), (1, 1, 1, 64, 64), "K", False),  # no dimension to spare
        ((1, 1, 64, 64), (1, 1, 64, 64), "K", True),
    ],
)
def test_a_map_without_a_swizzle_is_split_where_that_would_do(shape, box, major, is_remedy):
    x = np.zeros((*shape[:-1], 256), np.float16)[..., : shape[-1]]
    with pytest.raises(tma.TmaPreconditionError) as refused:
        matrix_descriptor(tma.make_tma_descriptor(x, box), major=major)
    (violation,) = refused.value.violations
    assert violation.rule == "MATRIX_WIDTH"
    assert violation.fix.endswith(WITHOUT) is is_remedy
    if is_remedy:
        tm = tma.make_tma_descriptor(x, box, split_inner=True, swizzle="none")
        assert matrix_descriptor(tm, major=major).swizzle is tma.TmaSwizzle.none


@examples(400)
@given(
    st.tuples(st.integers(1, 100), st.integers(1, 40)),
    st.tuples(st.integers(1, 80), st.integers(1, 40)),
    st.sampled_from(["f2", "f4", "u1"]),
    st.sampled_from(sorted(SPANS)),
    st.sampled_from(["K", "MN"]),
)
def test_boxes_of_any_width_and_height_are_mended(shape, box, dtype, swizzle, major):
    """Widths are in units of 16 bytes. Several fixes in a row lead to a readable tile."""
    size = np.dtype(dtype).itemsize
    wide = min(box[1] * 16, SPANS[swizzle] if swizzle != "none" else 256 * size) // size
    x = np.zeros((shape[0], shape[1] * 16 // size), dtype)
    options = {"box_sizes": (box[0], wide), "swizzle": swizzle, "rules": "driver"}
    if dtype == "f4":
        options["data_type"] = "TFLOAT32"
    asked = {"major": major if dtype == "f2" else "K"}
    for _ in range(4):
        try:
            descriptor = matrix_descriptor(tma.make_tma_descriptor(x, **options), **asked)
        except tma.TmaPreconditionError as error:
            violation = error.violations[0]
        else:
            break
        x, changes, asked = changed(x, options, asked, violation)
        options = options | changes
    assert descriptor.k_steps > 0


def test_every_reason_is_given_at_once():
    tm = made((64, 64), (60, 64), np.float32, oobfill="nan")
    with pytest.raises(tma.TmaPreconditionError) as refused:
        matrix_descriptor(tm, smem_address=100)
    rules = [v.rule for v in refused.value.violations]
    assert rules == ["MATRIX_TYPE", "MATRIX_FILL", "MATRIX_ADDRESS"]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_tensors_are_operands(dtype):
    torch = pytest.importorskip("torch")
    x = torch.zeros((64, 128), dtype=torch.uint8).view(getattr(torch, dtype))
    tm = tma.make_tma_descriptor(x, (64, 128), swizzle="bytes128")
    assert matrix_descriptor(tm).k_elements == 32


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"])
def test_float8_types_that_tensor_cores_have_not_are_refused(dtype):
    torch = pytest.importorskip("torch")
    x = torch.zeros((64, 128), dtype=torch.uint8).view(getattr(torch, dtype))
    tm = tma.make_tma_descriptor(x, (64, 128), swizzle="bytes128")
    with pytest.raises(tma.TmaPreconditionError, match=f"type is {dtype}, which the map copies"):
        matrix_descriptor(tm)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"instruction": "mma"}, "instruction is 'mma'; it must be 'wgmma' or 'tcgen05'"),
        ({"instruction": None}, "instruction is None; it must be"),
        ({"major": "M"}, "major is 'M'; it must be 'K' or 'MN'"),
        ({"smem_address": 1.5}, "smem_address is 1.5; it must be an integer"),
        ({"smem_address": True}, "smem_address is True; it must be an integer"),
    ],
)
def test_other_arguments_are_refused(asked, said):
    tm = made((64, 64), (64, 64), swizzle="bytes128")
    with pytest.raises(tma.TmaPreconditionError, match=re.escape(said)):
        matrix_descriptor(tm, **asked)


@pytest.mark.parametrize(
    ("channels", "pixels", "swizzle", "rule"),
    [
        (64, 64, "none", "MATRIX_WIDTH"),
        (256, 64, "none", "MATRIX_WIDTH"),
        (24, 64, "bytes64", "MATRIX_WIDTH"),
        (64, 60, "bytes128", "MATRIX_ROWS"),
    ],
)
def test_an_im2col_map_is_mended_by_its_own_arguments(channels, pixels, swizzle, rule):
    x = np.zeros((2, 9, 9, 256), np.float16)
    given = {"channels_per_pixel": channels, "pixels_per_column": pixels, "swizzle": swizzle}
    corners = tma.im2col_corners((3, 3), 1)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        matrix_descriptor(tma.make_im2col_descriptor(x, *corners, **given))
    (violation,) = refused.value.violations
    assert violation.rule == rule
    mended_map = tma.make_im2col_descriptor(x, *corners, **given | keywords(violation.fix))
    assert matrix_descriptor(mended_map).k_steps >= 1


def test_an_instruction_of_another_gpu_is_unsupported_too():
    tm = made((64, 64), (64, 64), swizzle="bytes128", target="sm_120")
    for instruction in ("wgmma", "tcgen05"):
        with pytest.raises(tma.TmaTargetError, match=f"for sm_120, which has no {instruction}"):
            matrix_descriptor(tm, instruction=instruction)


ODD = [lambda: np.zeros((64, 64)), lambda: None, lambda: 3, lambda: tma.TensorMap]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_map_is_refused(odd):
    with pytest.raises(tma.TmaPreconditionError, match="it must be a TensorMap"):
        matrix_descriptor(odd())
    with pytest.raises(tma.TmaPreconditionError, match="it must be a TensorMap"):
        tma.ldmatrix_addresses(odd(), 0, 0)


@pytest.mark.parametrize("steps", [4, -1, 1.0, "1", True])
def test_a_step_beyond_the_tile_is_refused(steps):
    descriptor = matrix_descriptor(made((64, 64), (64, 64), swizzle="bytes128"))
    assert descriptor.advance(3).k_steps == 1
    with pytest.raises(tma.TmaPreconditionError, match=r"it must be 0\.\.3"):
        descriptor.advance(steps)


@pytest.mark.parametrize("mn_elements", [4, 64, -8, "8"])
def test_rows_inside_of_an_atom_are_refused(mn_elements):
    descriptor = matrix_descriptor(made((64, 64), (64, 64), swizzle="bytes128"))
    assert descriptor.advance(0, mn_elements=56).mn_elements == 8
    with pytest.raises(tma.TmaPreconditionError, match="it must be a multiple of 8, less than"):
        descriptor.advance(0, mn_elements=mn_elements)


def test_shared_memory_that_ends_too_early_is_refused():
    tm = made((64, 64), (64, 64), swizzle="bytes128")
    descriptor, smem = matrix_descriptor(tm), tma.load_tile(tm, (0, 0)).smem
    assert descriptor.read(smem).shape == (64, 64)
    with pytest.raises(tma.TmaPreconditionError, match="smem has 0x1fff bytes; it must hold"):
        descriptor.read(smem[:-1])
    for other in (bytes(smem), smem.view(np.int8), smem[None], None):
        with pytest.raises(tma.TmaPreconditionError, match="one-dimensional uint8 array"):
            descriptor.read(other)


def test_a_descriptor_survives_pickling():
    descriptor = matrix_descriptor(made((64, 64), (64, 64), swizzle="bytes128"), smem_address=1024)
    again = pickle.loads(pickle.dumps(descriptor))
    assert again == descriptor
    assert again.value == descriptor.value
    assert type(descriptor).__module__ == "tma_dlpack"


#: Tensors and tiles of split maps with few rows: the tile's rows, and whether a fix leads to 8.
FEW_ROWS = {
    "a vector": ((4096,), (4096,), 1),
    "rows, one of which is copied": ((4, 4096), (1, 4096), 1),
    "one row": ((1, 4096), (1, 4096), 1),
    "a batch of one row each": ((4, 1, 4096), (1, 1, 4096), 1),
    "a batch of one row each, of which three are copied": ((4, 1, 4096), (3, 1, 256), 3),
    "one span": ((4, 1, 4096), (1, 1, 64), 1),
    "one span of one row": ((1, 64), (1, 64), 1),
}


@pytest.mark.parametrize(
    ("by", "name"),
    [
        (by, name)
        for name, (shape, *_) in FEW_ROWS.items()
        for by in ("option", "function", "ragged")
        # a vector that is described as a matrix needs one more dimension; with ragged= there is
        # room for two
        if not (by == "function" and len(shape) == 1) and (by != "ragged" or len(shape) == 2)
    ],
)
def test_columns_of_spans_are_not_rows_of_a_matrix(name, by):
    shape, box, rows = FEW_ROWS[name]
    x = np.zeros(shape, np.float16)
    options = {"box_sizes": box, "swizzle": "bytes128", "split_inner": True}
    if by == "function":
        options = tma.split_inner(x, box)
    elif by == "ragged":
        options |= {"ragged": 0, "rules": "driver"}
    tm = tma.make_tma_descriptor(x, **options)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        matrix_descriptor(tm)
    (violation,) = refused.value.violations
    assert violation.rule == "MATRIX_ROWS"
    assert violation.found == f"the tile has {rows} rows (M or N)"
    with pytest.raises(tma.TmaPreconditionError, match="LDMATRIX_OUTSIDE"):
        tma.ldmatrix_addresses(tm, 0, 0, num=1)
    if by == "option" and "x.reshape" not in violation.fix:
        mended(x, {"swizzle": "bytes128"}, {}, violation)


def test_a_dense_matrix_with_a_dimension_of_one_is_a_matrix():
    x = np.arange(64 * 64, dtype=np.uint16).reshape(64, 1, 64).view(np.float16)
    for tm in (
        tma.make_tma_descriptor(x, (64, 1, 64), swizzle="bytes128"),
        tma.make_tma_descriptor(x.reshape(-1), (64, 64), shape=(64, 64), swizzle="bytes128"),
    ):
        read = matrix_descriptor(tm).read(tma.load_tile(tm, (0,) * tm.rank).smem)
        assert read.tobytes() == x.tobytes()


@pytest.mark.parametrize("reader", ["wgmma", "ldmatrix"])
def test_no_box_is_suggested_for_a_tile_of_too_few_rows(reader):
    for shape in ((4, 1, 4096), (4, 4096), (1, 4096)):
        x = np.zeros(shape, np.float16)
        assert len(tma.suggest(x, shape, reader=reader)) == 0
