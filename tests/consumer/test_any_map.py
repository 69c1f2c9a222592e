"""For any map that the driver accepts, the tile is read exactly or refused."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.consumer.operand import tile_matrix
from tma_dlpack.tables import bits
from tma_dlpack.verification.random_copies import ARENA_BYTES, random_copy

MAX_SMEM_BYTES = 232_448
TYPES = {
    8: tma.TensorMapDataType.UINT8,
    16: tma.TensorMapDataType.BFLOAT16,
    32: tma.TensorMapDataType.TFLOAT32,
}


@pytest.fixture(scope="module")
def arena():
    room = np.random.default_rng(0).integers(0, 256, ARENA_BYTES + 256, np.uint8)
    return room[-room.ctypes.data % 256 :][:ARENA_BYTES]


def maps(kind, count, arena):
    for number in range(count):
        copy = random_copy("load", kind, Random(number), MAX_SMEM_BYTES)
        address, arguments = arena.ctypes.data + copy.start, copy.arguments
        if number % 4:  # mostly a type that tensor cores have
            data_type = TYPES.get(arguments.type_row.element_bits, arguments.data_type)
            arguments = arguments._replace(data_type=data_type, oob_fill=tma.TmaOobFill.none)
        yield copy, tma.TensorMap.from_bytes(bits.encode(arguments, address))


def said(verb, *arguments, **options):
    """Return the result of a verb, or the violations of its refusal."""
    try:
        return verb(*arguments, **options)
    except tma.TmaPreconditionError as error:
        return error.violations


def lines_of(tile: tma.Tile) -> np.ndarray:
    """The tile row by row, columns of spans side by side."""
    found = tile_matrix(tile.tensor_map)
    array = tile.array.reshape(found.columns, found.rows, -1)
    return array.transpose(1, 0, 2).reshape(found.rows, -1)


@pytest.mark.parametrize("kind", ["tiled", "im2col"])
def test_a_descriptor_is_refused_by_its_rules_or_reads_the_tile(kind, arena):
    verdicts: Counter[str] = Counter()
    for copy, tensor_map in maps(kind, 3000, arena):
        major = Random(copy.data_seed).choice(("K", "MN"))
        address = copy.smem_offset
        descriptor = said(tma.matrix_descriptor, tensor_map, major=major, smem_address=address)
        if isinstance(descriptor, tuple):
            verdicts.update(v.rule for v in descriptor)
            assert all(v.found and v.fix and v.limit.startswith("it must") for v in descriptor)
            continue
        tile = tma.load_tile(
            tensor_map, copy.coords, im2col_offsets=copy.im2col_offsets, memory=arena,
            smem_offset=copy.smem_offset,
        )  # fmt: skip
        assert descriptor.read(tile.smem).tobytes() == lines_of(tile).tobytes()
        verdicts["accepted"] += 1
    assert verdicts["accepted"] >= 10
    wanted = {"MATRIX_TYPE", "MATRIX_INTERLEAVE", "MATRIX_FILL", "MATRIX_MAJOR", "MATRIX_WIDTH"}
    assert wanted | {"MATRIX_ROWS"} <= set(verdicts)


@pytest.mark.parametrize("kind", ["tiled", "im2col"])
def test_ldmatrix_points_to_the_tiles_rows_or_is_refused(kind, arena):
    read = 0
    for copy, tensor_map in maps(kind, 600, arena):
        address = copy.smem_offset
        at = said(tma.ldmatrix_addresses, tensor_map, 0, 0, num=1, smem_address=address)
        if isinstance(at, tuple):
            assert at[0].rule in ("LDMATRIX_RANK", "LDMATRIX_OUTSIDE")
            continue
        tile = tma.load_tile(
            tensor_map, copy.coords, im2col_offsets=copy.im2col_offsets, memory=arena,
            smem_offset=copy.smem_offset,
        )  # fmt: skip
        rows = np.ascontiguousarray(lines_of(tile)).view(np.uint8)
        for lane in range(8):
            assert np.array_equal(tile.smem[at[lane] : at[lane] + 16], rows[lane, :16])
        read += 1
    assert read > 50
