"""`tma.suggest`: known answers, what it refuses to suggest, and laws of whatever it suggests."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import examples

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.suggestions.tile_choices import AS_FAST, MEASURED

A = np.zeros((4096, 4096), np.uint16)
BF16 = {"data_type": "BFLOAT16"}


def first(x, tile, **words):
    return tma.suggest(x, tile, **words)[0]


# --- Known answers ------------------------------------------------------------------------------


def test_a_gemm_operand_of_128_bytes_a_row_is_one_copy_with_the_128_byte_swizzle():
    best = first(A, (128, 64), **BF16)
    assert best.arguments == {
        "box_sizes": (128, 64),
        "swizzle": "bytes128",
        "l2_fetch_size": best.arguments["l2_fetch_size"],
        "data_type": "BFLOAT16",
    }
    assert (best.copies, best.tx_bytes, best.smem_bytes, best.smem_alignment) == (
        1, 16384, 16384, 1024,
    )  # fmt: skip
    assert (best.bank_conflicts, best.bandwidth) == (
        1,
        pytest.approx(max(MEASURED[32, False][128]), abs=0.002),
    )
    assert best.descriptor == tma.matrix_descriptor(tma.make_tma_descriptor(A, **best.arguments))


def test_a_gemm_operand_of_256_bytes_a_row_is_one_copy_of_two_spans():
    best = first(A, (128, 128), stages=3, **BF16)
    assert best.arguments["box_sizes"] == (128, 128)
    assert best.arguments["split_inner"] is True
    assert tma.make_tma_descriptor(A, **best.arguments).box_sizes == (2, 128, 64)
    assert (best.copies, best.tx_bytes, best.smem_bytes) == (1, 32768, 3 * 32768)


def test_without_a_dimension_to_spare_the_same_tile_takes_two_copies():
    x = np.zeros((2, 2, 2, 256, 128), np.float16)
    best = first(x, (1, 1, 1, 128, 128))
    assert (best.arguments["box_sizes"], best.copies) == ((1, 1, 1, 128, 64), 2)


@pytest.mark.parametrize(
    ("columns", "swizzle"), [(16, "bytes32"), (32, "bytes64"), (64, "bytes128")]
)
def test_a_narrow_operand_takes_the_swizzle_of_its_row(columns, swizzle):
    best = first(A, (128, columns), **BF16)
    assert (best.arguments["box_sizes"], best.arguments["swizzle"]) == ((128, columns), swizzle)


def test_rows_beyond_256_are_cut_into_equal_copies():
    best = first(A, (384, 64), **BF16)
    assert (best.arguments["box_sizes"], best.copies) == ((192, 64), 2)


def test_an_mn_major_operand_is_rows_of_k():
    best = first(A, (64, 128), major="MN", **BF16)
    assert (best.arguments["box_sizes"], best.copies) == ((64, 128), 1)
    assert best.descriptor.major == "MN"


def test_a_tile_that_threads_read_by_row_is_widest_without_a_swizzle():
    best = first(A, (64, 128), reader="threads")
    assert (best.arguments["box_sizes"], best.arguments["swizzle"]) == ((64, 128), "none")


def test_a_tile_that_threads_read_by_column_is_swizzled_and_the_conflicts_are_shown():
    found = tma.suggest(A, (64, 128), reader="threads", access="column")
    assert found[0].arguments["swizzle"] == "bytes128"
    assert {one.bank_conflicts for one in found} == {1}
    (left_out,) = found.reasons
    assert left_out == (
        "left out: box (64, 128) with swizzle none, which threads read 8-way"
    )  # fmt: skip


def test_a_function_of_a_thread_counts_in_the_tile_however_it_is_cut():
    """One element of each of 32 rows: 8 banks of a swizzle of 128 bytes, one bank without."""
    found = tma.suggest(A, (64, 128), reader="threads", access=lambda t: (t, 127))
    assert {one.bank_conflicts for one in found} == {4}
    assert "which threads read 32-way" in found.reasons[0]
    along = tma.suggest(A, (64, 128), reader="threads", access=lambda t: (0, 2 * t))
    assert along[0].bank_conflicts == 1


def test_idle_threads_read_without_conflicts():
    assert first(A, (64, 64), reader="threads", access=lambda t: None).bank_conflicts == 1


def test_a_tile_that_is_only_stored_has_no_reader():
    best = first(A, (64, 128), reader=None)
    assert (best.bank_conflicts, best.descriptor) == (None, None)
    assert best.arguments["box_sizes"] == (64, 128)


def test_tcgen05_of_sm_100_has_no_measured_speed():
    best = first(A, (128, 64), reader="tcgen05", target="sm_100", **BF16)
    assert best.bandwidth is None
    assert best.descriptor.instruction == "tcgen05"
    assert best.arguments["target"] == "sm_100"


def test_a_tile_larger_than_the_tensor_is_filled_with_zeros():
    x = np.zeros((16, 4096), np.float16)
    best = first(x, (64, 64))
    assert best.arguments["allow"] == ("BOX_IN_SHAPE",)
    assert any("what is outside is filled with zeros" in reason for reason in best.reasons)
    assert tma.make_tma_descriptor(x, **best.arguments).tx_bytes == best.tx_bytes


def test_a_tile_of_several_matrices_takes_a_copy_for_each():
    x = np.zeros((4, 256, 64), np.float16)
    best = first(x, (3, 128, 64))
    assert (best.arguments["box_sizes"], best.copies) == ((1, 128, 64), 3)
    thin = np.zeros((3, 1, 16), np.float16)  # its matrices look like spans side by side
    assert first(thin, (2, 8, 16)).arguments["box_sizes"] == (1, 8, 16)


def test_boxes_that_do_not_fit_as_often_as_asked_are_left_out():
    assert first(A, (256, 128), stages=3, **BF16).smem_bytes == 3 * 65536
    none = tma.suggest(A, (256, 128), stages=4, **BF16)
    assert not none
    assert none.reasons == (
        "4 stages of 65536 bytes of shared memory do not fit into 232448: pass stages=3",
    )
    none = tma.suggest(A, (256, 128), smem_bytes=65535, **BF16)
    assert none.reasons == (
        "1 stage of 65536 bytes of shared memory do not fit into 65535: take a smaller tile",
    )
    assert tma.suggest(A, (256, 128), smem_bytes=65536, **BF16)


# --- Nothing to suggest -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "tile", "words", "reason"),
    [
        (np.zeros((100, 132), np.float16), (64, 64), {},
         "tensor.strides[0] is 132 elements, 264 bytes; it must be a multiple of 16 bytes. pad the "
         "last dimension from 132 to 136 elements: y = numpy.empty((100, 136), x.dtype)[..., :132]"
         "; y[...] = x"),
        (A[:, ::2], (64, 64), {},
         "tensor.strides[1] is 2 elements; it must be 1: the last dimension must be contiguous"),
        (A, (1, 256), {},
         "the tile is one contiguous row of 512 bytes: cp.async.bulk copies it without a tensor "
         "map"),
        (A, (8, 16), {},
         "the tile has 256 bytes: a warp loads 512 in one instruction"),
        (A, (64, 4), {},
         "a row of the tile is 8 bytes, and a copy takes multiples of 16 bytes: take a tile of "
         "(64, 8), or copy it with plain loads"),
        (np.zeros((64, 64), np.float32), (64, 32), {},
         "wgmma cannot read it, in whatever boxes"),
        (A, (60, 64), {"reader": "ldmatrix"},
         "ldmatrix cannot read it, in whatever boxes"),
        (A, (128, 64), {"target": "sm_120", "data_type": "BFLOAT16"},
         "wgmma cannot read it, in whatever boxes"),
    ],
    ids=["stride", "inner stride", "a row", "few bytes", "8 bytes", "type", "60 rows", "no wgmma"],
)  # fmt: skip
def test_where_tma_is_no_help_the_reasons_say_what_to_do(x, tile, words, reason):
    found = tma.suggest(x, tile, **words)
    assert len(found) == 0
    assert found.reasons[0].startswith(reason)
    assert "no suggestion" in str(found)
    assert reason.split(":")[0].split("'")[0] in " ".join(str(found).split())


@pytest.mark.parametrize(
    ("tile", "words"), [((2, 256), {"reader": None}), ((8, 32), BF16), ((64, 8), {"reader": None})]
)
def test_a_step_further_there_is_a_suggestion(tile, words):
    assert tma.suggest(A, tile, **words)


def test_a_stride_that_no_copy_takes_is_answered_with_loads_and_a_wrong_type_is_not():
    assert "plain loads" in tma.suggest(A[:, ::2], (64, 64)).reasons[-1]
    of_int8 = tma.suggest(np.zeros((64, 64), np.int8), (64, 64))
    assert of_int8.reasons == (
        "tensor.dtype is int8; it must be one that tensor maps have: uint8/16/32/64, int32/64, "
        "float16/32/64, bfloat16, bool, a float8, or 4-bit values of 16 lanes (or float4_e2m1fn). "
        "pass data_type='UINT8': copies do not change the bits",
    )


def test_narrow_rows_are_called_slow():
    narrow = first(A, (64, 8), reader=None)
    assert any(reason.startswith("slow: narrow lines") for reason in narrow.reasons)
    assert not any("slow" in reason for reason in first(A, (64, 64), reader=None).reasons)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"tile": (128,)}, "tile is (128,); it must be 2 positive integers"),
        ({"tile": (128, 0)}, "tile is (128, 0); it must be 2 positive integers"),
        ({"tile": 64}, "tile is 64; it must be"),
        ({"reader": "mma"}, "reader is 'mma'; it must be one of 'wgmma', 'tcgen05', 'ldmatrix'"),
        ({"major": "M"}, "major is 'M'; it must be 'K' or 'MN'"),
        ({"access": "diagonal"}, "access is 'diagonal'; it must be 'row', 'column' or a function"),
        ({"stages": 0}, "stages is 0; it must be an integer of at least 1"),
        ({"stages": 2.0}, "stages is 2.0; it must be an integer of at least 1"),
        ({"smem_bytes": 0}, "smem_bytes is 0; it must be a number of bytes, or None"),
        ({"smem_bytes": "1 KB"}, "smem_bytes is '1 KB'; it must be a number of bytes, or None"),
        ({"data_type": "BF17"}, "data_type is 'BF17'"),
        ({"target": "sm_9"}, "target='sm_9'; it must be sm_90"),
        ({"reader": "threads", "access": lambda t: (t, 64)},
         "access(0) returns (0, 64); it must return an index into the tile, which has shape"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_read_are_refused(words, said):
    with pytest.raises(tma.TmaPreconditionError, match=re.escape(said)):
        tma.suggest(A, **{"tile": (128, 64)} | words)


def test_another_reader_is_refused_with_what_to_name():
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.suggest(A, (128, 64), reader="mma")
    fix = "choose who reads the tile in shared memory; None if it is only stored"
    assert refused.value.violations[0].fix == fix


def test_what_is_no_tensor_is_refused():
    with pytest.raises(tma.TmaPreconditionError, match="TENSOR_TYPE"):
        tma.suggest(3, (64, 64))


# --- Laws ---------------------------------------------------------------------------------------

DTYPES = {"f2": "FLOAT16", "u2": "BFLOAT16", "f4": "TFLOAT32", "u1": "UINT8"}


@st.composite
def questions(draw):
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    size = np.dtype(dtype).itemsize
    rank = draw(st.sampled_from((2, 2, 2, 3)))
    rows = draw(st.sampled_from((2, 8, 24, 64, 100, 128, 320)))
    width = draw(st.sampled_from((16, 32, 48, 64, 128, 160, 256, 384))) // size
    outer = (draw(st.sampled_from((1, 2))),) if rank == 3 else ()
    shape = (*(n + 1 for n in outer), draw(st.integers(1, 400)), width * draw(st.integers(1, 3)))
    words = {
        "reader": draw(st.sampled_from(("wgmma", "tcgen05", "ldmatrix", "threads", None))),
        "major": draw(st.sampled_from(("K", "MN"))),
        "access": draw(st.sampled_from(("row", "column"))),
        "stages": draw(st.sampled_from((1, 2, 4))),
        "data_type": DTYPES[dtype],
    }
    rng = np.random.default_rng(rows * width)
    x = rng.integers(0, 99, shape).astype(dtype)
    return x, (*outer, rows, width), words


def places(suggestion, tile, tensor_map):
    """The coordinates of the suggestion's copies of the tile at the tensor's start."""
    box = tensor_map.box_sizes
    is_split = len(box) > len(tile)
    whole = (*box[1:-1], box[0] * box[-1]) if is_split else box
    steps = [range(0, n, step) for n, step in zip(tile, whole, strict=True)]
    for at in np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(tile)):
        start = tuple(int(i) for i in at)
        coords = (start[-1] // box[-1], *start[:-1], 0) if is_split else start
        yield tuple(slice(i, i + n) for i, n in zip(start, whole, strict=True)), coords


def in_tile(array, tile):
    """What a copy brought, in the tensor's own dimensions."""
    if array.ndim == len(tile):
        return array
    moved = np.moveaxis(array, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)


def padded(x, tile):
    """The tile at the start of x, zeros outside, as copies fill it."""
    out = np.zeros(tile, x.dtype)
    inside = tuple(slice(0, min(n, m)) for n, m in zip(x.shape, tile, strict=True))
    out[inside] = x[inside]
    return out


@examples(120)
@given(questions())
def test_every_suggestion_is_accepted_covers_the_tile_and_is_read(question):
    x, tile, words = question
    found = tma.suggest(x, tile, **words)
    assert bool(found) is (len(found) > 0)
    assert found or found.reasons
    wanted = padded(x, tile)
    for one in found:
        tm = tma.make_tma_descriptor(x, **one.arguments)
        assert one.copies * one.tx_bytes == math.prod(tile) * x.itemsize
        assert (one.tx_bytes, one.smem_alignment) == (tm.tx_bytes, tm.smem_alignment)
        assert one.smem_bytes % one.smem_alignment == 0
        assert one.smem_bytes >= words["stages"] * one.copies * tm.smem_bytes
        assert one.smem_bytes <= 232_448
        reached = np.zeros(tile, int)
        for n, (where, coords) in enumerate(places(one, tile, tm)):
            reached[where] += 1
            if n in (0, one.copies - 1):
                loaded = tma.load_tile(tm, coords)
                assert in_tile(loaded.array, tile).tobytes() == wanted[where].tobytes()
                if one.descriptor is not None:
                    seen = one.descriptor.read(loaded.smem)
                    assert seen.tobytes() == wanted[where].tobytes()
        assert (reached == 1).all()


@examples(60)
@given(questions())
def test_no_suggestion_is_faster_than_one_before_it_beyond_the_noise(question):
    x, tile, words = question
    found = tma.suggest(x, tile, **words)
    for before, after in itertools.pairwise(found):
        assert after.bandwidth <= before.bandwidth / AS_FAST
        if after.bandwidth == before.bandwidth:
            assert after.copies >= before.copies


# --- As a value, as text, on the command line ---------------------------------------------------


def test_suggestions_are_a_sequence_that_does_not_change():
    found = tma.suggest(A, (128, 64), **BF16)
    assert found[0] == next(iter(found)) == found[:1][0]
    assert list(reversed(found))[-1] is found[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.items = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].copies = 2


def test_the_text_is_a_table_with_the_reasons_of_the_first():
    title, head, row, *rest = str(tma.suggest(A, (128, 128), stages=4, **BF16)).splitlines()
    assert title == "tile (128, 128) of uint16 (4096, 4096), read by wgmma, K-major"
    assert head.split() == [
        *("box", "swizzle", "L2", "fetch", "copies", "tx", "bytes", "smem", "bytes", "aligned"),
        *("conflicts", "of", "memcpy"),
    ]
    assert row.split()[:4] == ["1", "128x128,", "split", "bytes128"]
    assert row.split()[5:10] == ["1", "32768", "131072", "1024", "free"]
    text = " ".join(" ".join(rest).split())
    assert "one copy fills the tile: box (128, 128) with swizzle bytes128" in text
    assert (
        "in a box (2, 128, 64); the coordinates of a tile at (.., m, k) are (k / 64, .., m, 0)"
        in text
    )
    assert "wgmma reads a copy in 8 steps of K: 0x4000004000010000 at shared address 0" in text


def test_the_html_has_the_table_and_escapes_what_users_write():
    def access(thread):
        return (thread, 0)

    page = tma.suggest(A, (64, 64), reader="threads", access=access)._repr_html_()
    assert "<td>64x64</td><td>bytes128</td>" in page
    empty = tma.suggest(A, (1, 64))._repr_html_()
    assert "no suggestion" in empty
    assert "cp.async.bulk copies it" in empty


def test_the_command_prints_the_table_and_exits_1_where_there_is_none(capsys):
    words = ["suggest", "--shape", "4096,4096", "--dtype", "bfloat16", "--tile", "128,64"]
    assert main(words) == 0
    assert "128x64  bytes128" in capsys.readouterr().out
    assert main([*words, "--stages", "15"]) == 1
    assert "pass stages=14" in capsys.readouterr().out
    assert main([*words, "--reader", "none"]) == 0
    assert "only stored" in capsys.readouterr().out
    assert main([*words, "--strides", "4098,1"]) == 1
    assert "tensor.strides[0] is 4098 elements, 8196 bytes" in capsys.readouterr().out
