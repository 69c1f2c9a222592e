"""Conflict degrees compared with a direct count of the simulated addresses of all elements read."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from draw_cases import numbered

import tma_dlpack as tma
from tma_dlpack.checks.advice import bank_conflict_degree
from tma_dlpack.draw import bank_conflicts
from tma_dlpack.tables.enums import TmaSwizzle


def made(box, swizzle="none", shape=(256, 256)):
    return tma.make_tma_descriptor(numbered(shape), box, swizzle=swizzle)


def degree_by_hand(tensor_map, elements):
    """Find each element's address in simulated shared memory, and count words per bank."""
    tile = tma.load_tile(tensor_map, (0,) * tensor_map.rank)
    at = {int(v): 4 * i for i, v in enumerate(tile.smem.view(np.int32)) if v}
    words = defaultdict(set)
    for element in elements:
        address = at[int(tile.array[element])]
        words[address // 4 % 32].add(address)
    return max(map(len, words.values()))


@pytest.mark.parametrize("swizzle", ["none", "bytes32", "bytes64", "bytes128"])
@pytest.mark.parametrize(
    "access",
    [
        lambda t: (t, 0),
        lambda t: (t // 4, t % 4),
        lambda t: (t % 8, 2 * (t // 8)),
        lambda t: (5, t % 8),
        lambda t: (3 * t % 64, t % 8),
    ],
    ids=["down a column", "4 columns", "8 rows", "along a row", "scattered"],
)
def test_a_users_function_gets_the_degree_that_a_count_by_hand_gives(access, swizzle):
    tm = made((64, 8), swizzle)
    elements = [access(t) for t in range(32)]
    assert bank_conflicts(tm, access).degree == degree_by_hand(tm, elements)


@pytest.mark.parametrize(
    ("inner", "degree"), [(4, 1), (8, 2), (16, 4), (32, 8), (64, 8), (12, 1), (20, 1), (24, 2)]
)
def test_a_column_without_swizzle_has_the_degree_that_the_advice_tells(inner, degree):
    figure = bank_conflicts(made((64, inner)))
    assert set(figure.swizzles[0].degrees) == {degree}
    if inner in (4, 8, 16, 32, 64):
        assert degree == bank_conflict_degree(4 * inner, 64)


@pytest.mark.parametrize(("inner", "swizzle"), [(8, "bytes32"), (16, "bytes64"), (32, "bytes128")])
def test_a_column_is_free_of_conflicts_with_the_swizzle_of_its_row(inner, swizzle):
    figure = bank_conflicts(made((64, inner), swizzle))
    assert figure.degree == 1
    assert figure.of(TmaSwizzle.none).worst > 1


def test_a_row_is_free_with_and_without_swizzle():
    figure = bank_conflicts(made((64, 32)), "row")
    assert [s.worst for s in figure.swizzles] == [1, 1]


def test_swizzles_that_the_row_does_not_fit_are_not_compared():
    names = [s.swizzle.name for s in bank_conflicts(made((64, 16))).swizzles]
    assert names == ["none", "bytes64", "bytes128"]


def test_atom_swizzles_are_compared_for_targets_that_have_them():
    tm = tma.make_tma_descriptor(numbered((64, 32)), (64, 32), target="sm_100")
    assert [s.swizzle.name for s in bank_conflicts(tm).swizzles][-1] == "bytes128_atom_64B"


def test_the_number_of_phases_is_that_of_the_reads():
    figure = bank_conflicts(made((64, 32)))
    assert len(figure.swizzles[0].degrees) == 64 * 32 * 4 // 128


def test_wide_reads_are_served_in_phases_of_128_bytes():
    figure = bank_conflicts(made((64, 32)), lambda t: (t, 0), bytes_per_thread=16)
    assert figure.swizzles[0].degrees == (8, 8, 8, 8)
    assert figure.of(TmaSwizzle.bytes128).degrees == (1, 1, 1, 1)


def test_threads_that_read_the_same_word_share_it():
    assert bank_conflicts(made((64, 32)), lambda t: (0, 0)).degree == 1


def test_idle_threads_read_nothing():
    figure = bank_conflicts(made((64, 32)), lambda t: (t, 0) if t % 2 else None)
    assert figure.degree == 16


def test_the_tiles_own_offset_counts():
    tm = made((64, 32), "bytes128")
    tile = tma.load_tile(tm, (0, 0), smem_offset=128)
    assert bank_conflicts(tile, lambda t: (t, 0)) == bank_conflicts(
        tm, lambda t: (t, 0), smem_offset=128
    )


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("num", [1, 2, 4])
@pytest.mark.parametrize(("swizzle", "inner"), [("none", 64), ("bytes64", 32), ("bytes128", 64)])
def test_the_addresses_of_ldmatrix_are_counted_as_they_are(swizzle, inner, num, transpose):
    x = numbered((64, 64), np.uint16)
    tm = tma.make_tma_descriptor(x, (64, inner), swizzle=swizzle)
    at = {"num": num, "transpose": transpose, "smem_address": 256}
    addresses = tma.ldmatrix_addresses(tm, 16, 16, **at)[: 8 * num]
    by_hand = []
    for phase in addresses.reshape(-1, 8):
        words = {int(a) // 4 + i for a in phase for i in range(4)}
        by_hand.append(max(sum(w % 32 == bank for w in words) for bank in range(32)))
    figure = bank_conflicts(tm, addresses, smem_offset=256)
    assert figure.swizzles[0].degrees == tuple(by_hand)
    assert figure.degree == (8 if swizzle == "none" else 1)
    assert figure.access == f"{8 * num} threads, 16 bytes each, by address"


def test_addresses_and_a_function_of_the_same_elements_agree():
    x = numbered((64, 64), np.uint16)
    tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
    addresses = tma.ldmatrix_addresses(tm, 0, 0)
    by_function = bank_conflicts(tm, lambda t: (t % 16, t // 16 * 8), bytes_per_thread=16)
    assert bank_conflicts(tm, addresses).swizzles == by_function.swizzles
    assert bank_conflicts(tm, tuple(addresses.tolist())).swizzles == by_function.swizzles


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        (np.arange(8) * 16 + 8, r"access\[0\] is 0x8; it must be a multiple of 16 within the tile"),
        (
            np.arange(8) * 16 + 8192,
            r"access\[0\] is 0x2000; it must .* within the tile, 0x0\.\.0x1fff",
        ),
        (np.arange(8) * 16 - 64, r"access\[0\] is -0x40; it must"),
        (np.arange(7) * 16, r"access is array.* it must be 'column'"),
        (np.arange(8) * 16.0, r"access is array.* it must be 'column'"),
        (np.zeros((8, 2), int), r"access is array.* it must be 'column'"),
    ],
)
def test_addresses_that_no_warp_can_read_are_refused(addresses, said):
    tm = tma.make_tma_descriptor(numbered((64, 64), np.uint16), (64, 64), swizzle="bytes128")
    with pytest.raises(tma.TmaPreconditionError, match=said):
        bank_conflicts(tm, addresses)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"access": "diagonal"},
            "'diagonal'; it must be 'column', 'row' or a function, or shared addresses",
        ),
        ({"access": "diag"}, "'diag'; it must be"),
        ({"access": np.array([16, 64])}, r"array\(\[16, 64\]\); it must be"),
        (
            {"access": lambda t: (64, 0)},
            r"access\(0\) returns \(64, 0\); it must .* shape \(64, 32\)",
        ),
        ({"access": lambda t: itertools.count()}, r"access\(0\) returns count\("),
        ({"access": lambda t: 3}, r"access\(0\) returns 3"),
        ({"access": lambda t: (t, 1 // 0)}, r"access\(0\) raises ZeroDivisionError"),
        ({"access": lambda t, more: (t, 0)}, r"access\(0\) raises TypeError"),
        ({"access": lambda t: (0, 1), "bytes_per_thread": 8}, "multiple of 8"),
        ({"access": lambda t: (0, 0), "bytes_per_thread": 3}, "is 3; it must be 1, 2, 4, 8 or 16"),
        ({"access": lambda t: (0, 0), "bytes_per_thread": 0}, "is 0; it must be 1, 2, 4, 8 or 16"),
        ({"access": lambda t: (0, 0), "threads": 0}, r"threads is 0; it must be 1\.\.65536"),
        ({"access": lambda t: (0, 0), "threads": 65537}, r"threads is 65537; it must"),
        ({"access": lambda t: (0, 0), "threads": "32"}, "threads is '32'; it must"),
    ],
    ids=[
        "no such access",
        "a word cut short",
        "an array",
        "outside the tile",
        "endless",
        "no index",
        "a function that raises",
        "a function of two",
        "misaligned",
        "no such size",
        "no bytes",
        "no thread",
        "too many threads",
        "threads in a word",
    ],
)
def test_an_access_that_no_warp_can_make_is_refused(arguments, said):
    with pytest.raises(tma.TmaPreconditionError, match=said):
        bank_conflicts(made((64, 32)), **arguments)


def test_what_a_function_raised_is_the_cause_of_its_refusal():
    with pytest.raises(tma.TmaPreconditionError) as refused:
        bank_conflicts(made((64, 32)), lambda t: (t, 1 // 0))
    assert type(refused.value.__cause__) is ZeroDivisionError


def test_as_many_threads_are_asked_as_are_looked_at():
    figure = bank_conflicts(made((64, 32)), lambda t: (0, 0), threads=65536)
    assert len(figure.swizzles[0].degrees) == 65536 // 32


def packed(name, swizzle, box):
    return tma.driver_encode_tiled(
        name, 2, 1 << 40, (256, 64), (192,), (box, 64), (1, 1), swizzle=swizzle, target="sm_100"
    )


@pytest.mark.parametrize(
    "tensor_map",
    [
        lambda: packed("16U4_ALIGN16B", "bytes128", 128),
        lambda: packed("16U6_ALIGN16B", "none", 128),
        lambda: packed("16U6_ALIGN16B", "bytes128_atom_32B", 128),
        lambda: packed("16U4_ALIGN8B", "none", 128),
        lambda: tma.driver_encode_tiled(
            "FLOAT16", 3, 1 << 40, (64, 4, 2), (2048, 8192), (64, 1, 1), (1, 1, 1), 2, 1
        ),
        lambda: tma.make_im2col_wide_descriptor(
            numbered((2, 3, 4, 16)), 0, -1, 16, 5, swizzle="bytes64", target="sm_100"
        ),
        lambda: made((64, 16)),
    ],
    ids=["16U4", "16U6", "16U6 atoms", "16U4 dense", "interleaved", "im2col wide", "matrix"],
)
def test_only_swizzles_that_the_rules_accept_are_compared(tensor_map):
    tm = tensor_map()
    a = tm.arguments
    compared = [s.swizzle for s in bank_conflicts(tm).swizzles]
    assert compared[0] is a.swizzle
    for swizzle in set(TmaSwizzle) - {a.swizzle}:
        head = (a.data_type, a.rank, 1 << 40, a.global_dim, a.global_strides)
        try:
            if a.kind == "tiled":
                tma.driver_encode_tiled(
                    *head, a.box_dim, a.element_strides, a.interleave, swizzle, target=tm.target
                )
            else:
                tma.driver_encode_im2col_wide(
                    *head, 0, -1, 16, 5, a.element_strides, 0, a.mode, swizzle, target=tm.target
                )
        except tma.TmaError:
            assert swizzle not in compared
        else:
            assert swizzle in compared
