"""The picture of a matrix descriptor has each atom at the address of the simulated elements."""

from __future__ import annotations

import re

import numpy as np
import pytest
from operand_cases import OperandCase

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.geometry import swizzle_offset

CASES = {
    "K-major, two spans": ("wgmma", "K", "FLOAT16", "bytes128", 32, 2, 128, 0x400),
    "K-major, half a span": ("wgmma", "K", "FLOAT16", "bytes128", 32, 1, 64, 0x480),
    "K-major without swizzle": ("wgmma", "K", "UINT8", "none", 24, 4, 16, 0),
    "MN-major": ("wgmma", "MN", "BFLOAT16", "bytes64", 32, 3, 64, 0),
    "MN-major without swizzle": ("wgmma", "MN", "FLOAT16", "none", 32, 5, 16, 0x80),
    "tcgen05, bytes MN-major": ("tcgen05", "MN", "UINT8", "bytes32", 64, 2, 32, 0x800),
}


def case_of(name):
    instruction, major, data_type, swizzle, rows, columns, row_bytes, address = CASES[name]
    size = {"UINT8": 1}.get(data_type, 2)
    shape = (96, columns * row_bytes // size)
    return OperandCase(
        instruction, major, data_type, swizzle, shape, rows, columns, row_bytes, (0, 0), address
    )


def figure_of(case, matrix):
    return draw.matrix(
        case.tensor_map(matrix),
        instruction=case.instruction,
        major=case.major,
        smem_address=case.smem_address,
    )


@pytest.mark.parametrize("name", CASES)
def test_every_atom_stands_where_the_simulator_puts_its_first_element(name):
    case = case_of(name)
    matrix = case.matrix()
    tensor_map = case.tensor_map(matrix)
    tile = tma.load_tile(tensor_map, case.coords(), smem_offset=case.smem_address)
    logical = np.ascontiguousarray(case.logical(tile.array)).view(np.uint8).reshape(case.rows, -1)
    figure = figure_of(case, matrix)
    assert len(figure.atoms) == case.rows // 8 * case.columns
    for atom in figure.atoms:
        for row in range(8):
            address = swizzle_offset(tensor_map.swizzle, atom.address + row * figure.span_bytes)
            inner = atom.across * case.row_bytes
            wanted = logical[8 * atom.down + row, inner : inner + 16]
            assert np.array_equal(tile.smem[address : address + 16], wanted)


@pytest.mark.parametrize("name", CASES)
def test_the_offsets_lead_to_the_atoms_below_and_to_the_right(name):
    case = case_of(name)
    figure = figure_of(case, case.matrix())
    at = {(a.down, a.across): a.address for a in figure.atoms}
    (below, below_bytes), (right, right_bytes) = figure.offsets
    assert at[1, 0] - at[0, 0] == below_bytes
    assert below in ("stride byte offset", "leading byte offset")
    if right and (0, 1) in at:
        assert at[0, 1] - at[0, 0] == right_bytes
    assert bool(right) is not (case.major == "K" and case.swizzle != "none")
    assert f"{below}: {below_bytes} bytes to the atom below" in figure.text()


@pytest.mark.parametrize("name", CASES)
def test_every_k_step_is_drawn_and_named(name):
    case = case_of(name)
    figure = figure_of(case, case.matrix())
    steps = range(figure.descriptor.k_steps)
    assert {step for atom in figure.atoms for step in atom.steps} == set(steps)
    svg = figure.svg()
    assert all(f">step {step}<" in svg for step in steps)
    offsets = zip("↓→", figure.offsets, strict=True)
    short = [f"{arrow} {name[0].upper()}BO {n}" for arrow, (name, n) in offsets if name]
    assert all(f">{text}<" in svg for text in short)


def test_a_large_tile_is_cut_short_and_says_so():
    x = np.zeros((256, 64), np.float16)
    figure = draw.matrix(tma.make_tma_descriptor(x, (256, 64), swizzle="bytes128"))
    assert figure.down == 32
    assert "⋮ 24 more rows of atoms" in figure.text()
    assert "⋮ 24 more rows of atoms" in figure.svg()
    assert max(map(len, figure.text().splitlines())) <= 100


def test_a_descriptor_shows_itself_in_a_notebook():
    x = np.zeros((64, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
    descriptor = tma.matrix_descriptor(tm, smem_address=0x400)
    html = descriptor._repr_html_()
    assert f"{descriptor.value:#018x}" in html
    assert "stride byte offset" in html
    assert html == draw.matrix_html(descriptor)
    assert draw.matrix(descriptor) == draw.matrix(tm, smem_address=0x400)


def test_an_advanced_descriptor_draws_what_is_left():
    x = np.zeros((64, 64), np.float16)
    tm = tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")
    figure = draw.matrix(tma.matrix_descriptor(tm).advance(3, mn_elements=32))
    assert [a.steps for a in figure.atoms] == [(0,)] * 4
    assert figure.atoms[0].address == 4 * 1024


def test_what_is_neither_is_refused():
    with pytest.raises(tma.TmaPreconditionError, match="be a MatrixDescriptor or a TensorMap"):
        draw.matrix(np.zeros(3))
    tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (64, 64))
    with pytest.raises(tma.TmaPreconditionError, match=re.escape("with swizzle none")):
        draw.matrix(tm)
