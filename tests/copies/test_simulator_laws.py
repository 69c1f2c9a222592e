"""Laws of copies, tested by hypothesis against oracles that share no code with the simulator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from copy_cases import GLOBAL_BYTES, HostMemory
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack.tables.dtypes import DATA_TYPES

T = tma.TensorMapDataType
PLAIN_TYPES = [T(i) for i in range(11)]  # bit copies; TFLOAT32 loads round
MEMORY = HostMemory(GLOBAL_BYTES[: 64 << 10].copy())
START = 8192  # offset of the tensors in MEMORY, so that bytes exist before them


def words_of(data_type) -> str:
    return f"u{DATA_TYPES[data_type].element_bytes}"


@st.composite
def tiled_maps(draw, types=tuple(PLAIN_TYPES), overlapping=True):
    """Return an accepted map into MEMORY, not interleaved, and its driver arguments."""
    data_type = draw(st.sampled_from(types))
    es = DATA_TYPES[data_type].element_bytes
    rank = draw(st.integers(1, 5))
    dims = [draw(st.integers(1, 70))] + [draw(st.integers(1, 6)) for _ in range(rank - 1)]
    strides, least = [], -(-dims[0] * es // 16) * 16
    for dim in dims[1:]:
        stride = least + 16 * draw(st.integers(0, 2))
        if overlapping and draw(st.integers(0, 9)) == 0:
            stride = draw(st.sampled_from([0, 16, 32]))
        strides.append(stride)
        least = max(least, stride * dim)
    assume(sum((d - 1) * s for d, s in zip(dims[1:], strides, strict=True)) < 40_000)
    swizzle = draw(st.sampled_from(list(tma.TmaSwizzle)[:4]))
    chunk = 16 // es
    most = (256, 32, 64, 128)[swizzle] // (es if swizzle else 1)
    box = [chunk * draw(st.integers(1, max(1, min(most, 64) // chunk)))]
    box += [draw(st.integers(1, 7)) for _ in dims[1:]]
    assume(es * np.prod(box) <= 100_000)
    fill = draw(st.integers(0, 1)) if DATA_TYPES[data_type].is_float else 0
    arguments = {
        "tensor_data_type": data_type,
        "tensor_rank": rank,
        "global_address": MEMORY.address + START,
        "global_dim": dims,
        "global_strides": strides,
        "box_dim": box,
        "element_strides": [draw(st.integers(1, 3)) for _ in dims],
        "swizzle": swizzle,
        "oob_fill": fill,
    }
    return tma.driver_encode_tiled(**arguments, encoder="model")


@st.composite
def coords_of(draw, tensor_map, least=-9):
    """Return row-major coordinates near the tensor."""
    chunk = 16 // DATA_TYPES[tensor_map.data_type].element_bytes
    inner = tensor_map.global_dim[0] // chunk + 2
    coords = [chunk * draw(st.integers(max(least, -4), inner))]
    coords += [draw(st.integers(least, dim + 3)) for dim in tensor_map.global_dim[1:]]
    return tuple(coords[::-1])


smem_offsets = st.sampled_from([0, 128, 384, 896])


def tensor_of(tensor_map, raw=None) -> np.ndarray:
    """Return the tensor of a tiled map as a strided NumPy array of words."""
    raw = MEMORY.array if raw is None else raw
    words = words_of(tensor_map.data_type)
    strides = (*tensor_map.global_strides[::-1], int(words[1:]))
    shape = tensor_map.global_dim[::-1]
    return np.ndarray(shape, words, raw[START:], strides=strides)


def sliced(tensor_map, coords) -> np.ndarray:
    """Oracle: return a slice of the tensor, padded with the fill value on all sides."""
    words = words_of(tensor_map.data_type)
    fill = int.from_bytes(b"\xf7\x7f" * 4, "little") if tensor_map.oob_fill else 0
    fill &= (1 << 8 * int(words[1:])) - 1
    shape, box = tensor_map.global_dim[::-1], tensor_map.box_dim[::-1]
    steps = (*tensor_map.element_strides[:0:-1], 1)
    # A box that is wholly out of bounds has the same result at any distance.
    coords = [min(max(c, -b), dim) for c, b, dim in zip(coords, box, shape, strict=True)]
    margins = [
        (max(-c, 0), max(c + b - dim, 0)) for c, b, dim in zip(coords, box, shape, strict=True)
    ]
    padded = np.pad(tensor_of(tensor_map), margins, constant_values=fill)
    starts = [c + before for c, (before, _) in zip(coords, margins, strict=True)]
    return padded[
        tuple(slice(s, s + b, step) for s, b, step in zip(starts, box, steps, strict=True))
    ]


# --- Tiled --------------------------------------------------------------------------------------


@examples(300)
@given(st.data())
def test_logical_tile_is_a_slice_of_the_padded_tensor(data):
    tensor_map = data.draw(tiled_maps())
    coords = data.draw(coords_of(tensor_map))
    smem_offset = data.draw(smem_offsets)
    tile = tma.load_tile(tensor_map, coords, memory=MEMORY.array, smem_offset=smem_offset)
    expected = sliced(tensor_map, coords)
    np.testing.assert_array_equal(tile.array.view(expected.dtype), expected)
    assert tile.tx_bytes == expected.nbytes
    assert tile.written.sum() == expected.nbytes


@examples(150)
@given(st.data())
def test_filled_says_which_elements_are_out_of_bounds(data):
    tensor_map = data.draw(tiled_maps())
    coords = data.draw(coords_of(tensor_map))
    tile = tma.load_tile(tensor_map, coords, memory=MEMORY.array)
    steps = (*tensor_map.element_strides[:0:-1], 1)
    inside = np.ones((), bool)
    for c, b, s, dim in zip(
        coords, tensor_map.box_dim[::-1], steps, tensor_map.global_dim[::-1], strict=True
    ):
        taken = np.arange(c, c + b, s)
        inside = np.logical_and.outer(inside, (taken >= 0) & (taken < dim))
    np.testing.assert_array_equal(tile.filled, ~inside)


@examples(100)
@given(st.data())
def test_tf32_loads_round_what_a_bit_copy_loads(data):
    tensor_map = data.draw(tiled_maps(types=(T.TFLOAT32, T.TFLOAT32_FTZ)))
    coords = data.draw(coords_of(tensor_map))
    tile = tma.load_tile(tensor_map, coords, memory=MEMORY.array)
    exact = sliced(tensor_map, coords).view(np.float32)
    with np.errstate(all="ignore"):
        scaled = exact.astype(np.float64)
        _, exponent = np.frexp(scaled)
        unit = np.ldexp(1.0, np.maximum(exponent - 11, -136))
        rounded = (np.rint(scaled / unit) * unit).astype(np.float32)
    inside = ~tile.filled
    number = inside & ~np.isnan(exact)
    np.testing.assert_array_equal(
        tile.array[number].view(np.uint32),
        np.where(np.isfinite(exact), rounded, exact)[number].view(np.uint32),
    )
    assert (tile.array[inside & np.isnan(exact)].view(np.uint32) == 0x7FFFE000).all()
    np.testing.assert_array_equal(
        tile.array[tile.filled].view(np.uint32), exact[tile.filled].view(np.uint32)
    )


@examples(150)
@given(st.data())
def test_store_after_load_restores_the_tile(data):
    tensor_map = data.draw(tiled_maps(overlapping=False))
    coords = data.draw(coords_of(tensor_map, least=0))
    smem_offset = data.draw(smem_offsets)
    tile = tma.load_tile(tensor_map, coords, memory=MEMORY.array, smem_offset=smem_offset)
    # A swizzled line of bytes has the same shape as its shared memory, and is read as shared
    # memory.
    ambiguous = tile.array.ndim == 1 and tile.array.dtype == np.uint8
    kept = tile.smem if ambiguous or data.draw(st.booleans()) else tile.array
    memory = HostMemory(np.zeros_like(MEMORY.array))
    elsewhere = tensor_map.with_address(memory.address + START)
    tma.store_tile(elsewhere, coords, kept, memory=memory.array, smem_offset=smem_offset)
    again = tma.load_tile(elsewhere, coords, memory=memory.array, smem_offset=smem_offset)
    np.testing.assert_array_equal(again.smem, tile.smem)
    stored = np.zeros(tensor_map.global_dim[::-1], bool)
    steps = (*tensor_map.element_strides[:0:-1], 1)
    stored[
        tuple(
            slice(c, c + b, s)
            for c, b, s in zip(coords, tensor_map.box_dim[::-1], steps, strict=True)
        )
    ] = True
    assert not tensor_of(tensor_map, memory.array)[~stored].any()


@examples(100)
@given(st.data())
def test_many_tiles_are_the_stack_of_single_ones(data):
    tensor_map = data.draw(tiled_maps(types=tuple(T(i) for i in range(13))))
    coords = data.draw(st.lists(coords_of(tensor_map), min_size=1, max_size=12))
    smem_offset = data.draw(smem_offsets)
    options = {"memory": MEMORY.array, "smem_offset": smem_offset}
    many = tma.load_tiles(tensor_map, coords, **options)
    single = [tma.load_tile(tensor_map, c, **options) for c in coords]
    for name in ("smem", "written", "filled"):
        stacked = np.stack([getattr(tile, name) for tile in single])
        np.testing.assert_array_equal(getattr(many, name), stacked)
    arrays = np.stack([tile.array for tile in single])
    assert many.array.tobytes() == arrays.tobytes()


def test_many_tiles_span_blocks_and_clip_at_the_edges():
    """Several blocks of tiles: in bounds, clipped, and wholly out of bounds."""
    x = np.random.default_rng(4).integers(0, 1 << 16, (700, 1000), dtype=np.uint16)[:, :996]
    tensor_map = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
    grid = np.array(list(itertools.product(range(-64, 768, 32), range(-64, 1088, 32))))
    tile = tma.load_tiles(tensor_map, grid)
    padded = np.pad(x, ((64, 200), (64, 200)))
    for (r, c), array in zip(grid + 64, tile.array, strict=True):
        np.testing.assert_array_equal(array, padded[r : r + 64, c : c + 64])


# --- Im2col -------------------------------------------------------------------------------------


@st.composite
def im2col_maps(draw):
    interleave = draw(st.sampled_from([0, 0, 1, 2]))
    data_type = draw(st.sampled_from(PLAIN_TYPES))
    es = DATA_TYPES[data_type].element_bytes
    unit = (es, 16, 32)[interleave]
    rank = draw(st.integers(3, 5))
    dims = [draw(st.integers(1, 5)) for _ in range(rank)]
    if not interleave:
        dims[0] = draw(st.integers(1, 60))
    stride = -(-dims[0] * unit // 32) * 32
    strides = []
    for dim in dims[1:]:
        strides.append(stride)
        stride *= dim
    assume(stride < 40_000)
    first = 0 if interleave else 1
    lower = [draw(st.integers(-3, 2)) for _ in range(rank - 2)]
    upper = [
        draw(st.integers(max(-3, lo - dim + 1), 3))
        for lo, dim in zip(lower, dims[first:], strict=False)
    ]
    swizzle = 1 if interleave == 2 else draw(st.integers(0, 3))
    channels = 16 // es * draw(st.integers(1, max(1, (256, 32, 64, 128)[swizzle] // 16 // 2)))
    return tma.driver_encode_im2col(
        data_type, rank, MEMORY.address + START, dims, strides, lower, upper, channels,
        draw(st.integers(1, 40)), [draw(st.integers(1, 3)) for _ in dims], interleave, swizzle, 0,
        draw(st.integers(0, 1)) if DATA_TYPES[data_type].is_float else 0, encoder="model",
    )  # fmt: skip


def walked(tensor_map, coords, offsets) -> np.ndarray:
    """Oracle: the measured im2col walk, pixel by pixel and byte by byte, in plain Python."""
    dims, steps = tensor_map.global_dim, tensor_map.element_strides
    es = DATA_TYPES[tensor_map.data_type].element_bytes
    unit = (es, 16, 32)[tensor_map.interleave]
    first = 0 if tensor_map.interleave else 1
    strides = (unit, *tensor_map.global_strides)
    spatial = range(first, first + len(dims) - 2)
    cur = {d: coords[d] for d in range(len(dims))}
    fill = b"\xf7\x7f" if tensor_map.oob_fill else b"\0\0"
    row_bytes = unit if tensor_map.interleave else tensor_map.channels_per_pixel * es
    out = []
    for _ in range(tensor_map.pixels_per_column):
        at = dict(cur)
        for d, offset in zip(spatial, offsets, strict=True):
            at[d] += offset
        outer = [d for d in at if d or tensor_map.interleave]
        inside = all(0 <= at[d] < dims[d] for d in outer)
        start = START + sum(at[d] * strides[d] for d in outer)
        for byte in range(row_bytes):
            element = coords[0] + byte // es
            if inside and (tensor_map.interleave or 0 <= element < dims[0]):
                inner = 0 if tensor_map.interleave else coords[0] * es
                out.append(int(MEMORY.array[start + inner + byte]))
            else:
                out.append(fill[byte % 2])
        for d, lo, up in zip(
            spatial,
            tensor_map.pixel_box_lower_corner,
            tensor_map.pixel_box_upper_corner,
            strict=True,
        ):
            cur[d] += steps[d]
            if cur[d] <= dims[d] - 1 + up:
                break
            cur[d] = lo
        else:
            cur[len(dims) - 1] += steps[-1]
    return np.array(out, np.uint8)


@examples(200)
@given(st.data())
def test_im2col_tile_is_the_walk_pixel_by_pixel(data):
    tensor_map = data.draw(im2col_maps())
    dims, es = tensor_map.global_dim, DATA_TYPES[tensor_map.data_type].element_bytes
    first = 0 if tensor_map.interleave else 1
    coords = [
        data.draw(st.integers(lo, dim - 1 + up))
        for lo, up, dim in zip(
            tensor_map.pixel_box_lower_corner,
            tensor_map.pixel_box_upper_corner,
            dims[first:],
            strict=False,
        )
    ]
    if tensor_map.interleave:
        coords.append(data.draw(st.integers(-1, dims[-2])))
    else:
        coords.insert(0, 16 // es * data.draw(st.integers(-2, dims[0] * es // 16 + 1)))
    coords.append(data.draw(st.integers(-2, dims[-1])))
    offsets = [data.draw(st.integers(0, 3)) for _ in range(tensor_map.rank - 2)]
    tile = tma.load_tile(
        tensor_map, coords[::-1], im2col_offsets=offsets[::-1], memory=MEMORY.array
    )
    assert tile.array.tobytes() == walked(tensor_map, coords, offsets).tobytes()


def convolved(x, w, stride, padding, dilation):
    """Oracle: a direct convolution; x is (N, *spatial, C), w is (*taps, C, K)."""
    spatial = range(len(stride))
    padded = np.pad(x, [(0, 0), *((p, p) for p in padding), (0, 0)])
    outputs = [
        (padded.shape[1 + d] - dilation[d] * (w.shape[d] - 1) - 1) // stride[d] + 1 for d in spatial
    ]
    y = np.zeros((x.shape[0], *outputs, w.shape[-1]), x.dtype)
    for tap in np.ndindex(w.shape[:-2]):
        window = [
            slice(t * d, t * d + s * (o - 1) + 1, s)
            for t, d, s, o in zip(tap, dilation, stride, outputs, strict=True)
        ]
        y += padded[(slice(None), *window)] @ w[tap]
    return y


@pytest.mark.parametrize("spatial", [(13,), (7, 9), (5, 4, 6)], ids=["1-D", "2-D", "3-D"])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (1, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("swizzle", ["none", "bytes32"])
def test_convolution_through_im2col_tiles_equals_a_direct_one(
    spatial, stride, padding, dilation, swizzle
):
    rng, rank = np.random.default_rng(6), len(spatial)
    x = rng.integers(-9, 9, (3, *spatial, 16), dtype=np.int32)
    w = rng.integers(-9, 9, (*(3, 2, 3)[-rank:], 16, 5), dtype=np.int32)
    of = (stride,) * rank, (padding,) * rank, (dilation,) * rank
    expected = convolved(x, w, *of)

    lower, upper = tma.im2col_corners(w.shape[:rank], padding=of[1], dilation=of[2])
    tensor_map = tma.make_im2col_descriptor(
        x, lower, upper, 8, 16, elem_strides=(1, *of[0], 1), swizzle=swizzle
    )
    coords = tma.tile_coords(tensor_map)
    y = 0
    for tap in np.ndindex(w.shape[:rank]):
        tiles = tma.load_tiles(
            tensor_map, coords, im2col_offsets=[t * dilation for t in tap]
        ).array  # (columns x 2 halves of the channels, 16 pixels, 8 channels)
        rows = tiles.reshape(-1, 2, 16, 8).transpose(0, 2, 1, 3).reshape(-1, 16)
        y = y + rows @ w[tap]
    pixels = expected.size // 5
    np.testing.assert_array_equal(y[:pixels], expected.reshape(pixels, 5))


# --- Our error or a right answer, never a crash -------------------------------------------------

numbers = st.one_of(
    st.integers(-70, 70),
    st.integers(-(1 << 33), 1 << 33),
    st.sampled_from([None, 0.5, True, "0", 1 << 70, np.int32(3), np.uint64(1 << 63)]),
)


@examples(300)
@given(st.data())
def test_any_request_gives_our_error_or_the_padded_slice(data):
    tensor_map = data.draw(st.one_of(tiled_maps(), im2col_maps()))
    coords = data.draw(
        st.one_of(
            coords_of(tensor_map),
            st.lists(numbers, min_size=tensor_map.rank, max_size=tensor_map.rank),
            st.lists(numbers, max_size=6),
            numbers,
        )
    )
    begin = data.draw(st.integers(0, START + 64))
    end = data.draw(st.integers(begin, len(MEMORY.array)))
    part = MEMORY.array[begin:end]
    try:
        tile = tma.load_tile(
            tensor_map,
            coords,
            memory=part,
            smem_offset=data.draw(st.one_of(smem_offsets, numbers)),
            im2col_offsets=data.draw(st.one_of(st.none(), st.lists(numbers, max_size=3))),
        )
    except tma.TmaPreconditionError:
        return
    if tensor_map.kind == "tiled":
        expected = sliced(tensor_map, [int(c) for c in coords])
        np.testing.assert_array_equal(tile.array.view(expected.dtype), expected)
    else:
        assert tile.array.shape[0] == tensor_map.pixels_per_column


@examples(200)
@given(st.data())
def test_any_store_gives_our_error_or_changes_known_bytes_only(data):
    tensor_map = data.draw(tiled_maps())
    coords = data.draw(
        st.one_of(coords_of(tensor_map, least=0), st.lists(numbers, min_size=1, max_size=5))
    )
    begin = data.draw(st.integers(START - 64, START + 64))
    end = data.draw(st.integers(begin, begin + 20_000))
    memory = HostMemory(MEMORY.array)
    array = data.draw(
        st.sampled_from(
            [
                np.zeros(tensor_map.smem_bytes, np.uint8),
                np.zeros(tensor_map.smem_bytes, np.float32),
                np.zeros(tensor_map.box_dim[::-1], DATA_TYPES[tensor_map.data_type].numpy),
                None,
            ]
        )
    )
    op = data.draw(st.sampled_from(["store", "add", "max", "xor", "inc", "sub"]))
    elsewhere = tensor_map.with_address(memory.address + START)
    verb = (tma.store_tile,) if op == "store" else (tma.reduce_tile, op)
    try:
        verb[0](elsewhere, coords, array, *verb[1:], memory=memory.array[begin:end])
    except tma.TmaPreconditionError:
        np.testing.assert_array_equal(memory.array, MEMORY.array)
        return
    np.testing.assert_array_equal(memory.array[:begin], MEMORY.array[:begin])
    np.testing.assert_array_equal(memory.array[end:], MEMORY.array[end:])
    if op == "store":
        inside = [c < dim for c, dim in zip(coords, elsewhere.global_dim[::-1], strict=True)]
        if all(inside):
            assert tensor_of(elsewhere, memory.array)[tuple(int(c) for c in coords)] == 0
