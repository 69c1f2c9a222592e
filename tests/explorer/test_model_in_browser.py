"""The page's model in a real browser: what JavaScript says of random states, Python says too."""

from __future__ import annotations

import random
import warnings
from importlib.resources import files

import harness
import numpy as np
import pytest
from model_states import (
    MEMORY,
    bytes_of,
    copied,
    is_accepted,
    judged,
    place,
    smem_of,
    violations_of,
)

import tma_dlpack as tma
from tma_dlpack import geometry
from tma_dlpack.checks.judge import ABI
from tma_dlpack.tables.errors import TmaError

pytestmark = pytest.mark.skipif(bool(harness.MISSING), reason=harness.MISSING)

SCRIPTS = ("tables.js", "request.js", "geometry.js", "check.js", "model.js")
#: Answers for a state, in JSON: what the tests below compare.
ANSWER = """
window.answer = ({ page, place, lanes }) => {
  const checked = tmaModel.check(page);
  const found = { ok: checked.ok, fixed: checked.fixed, violations: checked.violations };
  if (!checked.ok) return found;
  const bytes = tmaModel.encode(page);
  found.bytes = bytes && [...bytes].map((n) => n.toString(16).padStart(2, "0")).join("");
  found.sizes = [tmaModel.txBytes(page), tmaModel.smemBytes(page), tmaModel.smemAlignment(page)];
  if (!place) return found;
  const { coords, offsets, smem_offset: smemOffset } = place;
  const tile = tmaModel.tile(page, coords, offsets, smemOffset);
  found.refusal = tile.refusal;
  found.first = tmaModel.firstCoords(page);
  found.covering = tmaModel.tileCoords(page, 500);
  if (tile.refusal) return found;
  found.chunks = tile.chunks().filter((c) => c.row >= 0).map((c) => [
    c.address, c.row, c.first, c.last, c.globalOffset, ...c.inside, Number(c.swapped), c.dataBytes]);
  found.elements = [tile.chunk(smemOffset).element, tile.line(tile.lines - 1).position];
  found.banks = {};
  for (const swizzle of tmaTables.ENUMS.swizzle)
    found.banks[swizzle] = ["column", "row"].map(
      (access) => tmaModel.banks(page, access, { swizzle, smemOffset }).degrees);
  found.lanes = tmaModel.ldmatrix(page, ...lanes);
  found.lanesDegrees = found.lanes && tmaModel.banks(page, found.lanes.slice(0, 8 * lanes[2].num), {
    smemOffset: lanes[2].smemAddress }).degrees;
  return found;
};
"""


@pytest.fixture(scope="module")
def page():
    with harness.browser() as started:
        seen = harness.Seen(started)
        seen.page.set_content("<!doctype html>")
        folder = files("tma_dlpack.explorer")
        scripts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
        seen.page.add_script_tag(content="\n".join([*scripts, ANSWER]))
        yield seen.page
        assert seen.errors == []


def answers(page, states):
    return page.evaluate("(states) => states.map(window.answer)", states)


def compare_judged(page, seeds):
    """Hold verdicts, violations, bytes, sizes and repairs equal; return how many are accepted."""
    states = [judged(seed) for seed in seeds]
    accepted = fixed = 0
    for seed, state, found in zip(
        seeds, states, answers(page, [{"page": s.page} for s in states]), strict=True
    ):
        expected = violations_of(state.request)
        rules = [v["rule"] for v in found["violations"]]
        assert rules == expected, (seed, rules, expected)
        assert found["ok"] is not bool(expected), seed
        for violation in found["violations"]:
            texts = (violation[name] for name in ("argument", "found", "limit", "fix", "source"))
            assert all(texts), (seed, violation)
        if found["fixed"] is not None:
            assert is_accepted(state, found["fixed"]), (seed, found["fixed"])
            fixed += not found["ok"]
        if found["ok"]:
            assert found["bytes"] == bytes_of(state.request), seed
            a = state.request.encode_arguments()
            sizes = geometry.tx_bytes(a), geometry.smem_bytes(a), geometry.smem_alignment(a)
            assert tuple(found["sizes"]) == sizes, seed
            accepted += 1
    return accepted, fixed


def draw(seed):
    """Draw a state with a tile, where it is, and lanes of ldmatrix."""
    rng = random.Random(seed)
    state, tensor_map = copied(seed)
    where = place(rng, tensor_map)
    num = rng.choice((1, 2, 4))
    options = {"num": num, "transpose": rng.random() < 0.3, "smemAddress": rng.choice((0, 256))}
    columns = (0, 0, 8, 16, 3)
    lanes = [rng.choice((0, 0, 1, 8)), rng.choice(columns), options]
    return state, tensor_map, where, lanes


def compare_copied(page, seeds):
    """Hold bytes, every byte of a tile, its filled elements and its banks equal to load_tile's."""
    drawn = [draw(seed) for seed in seeds]
    asked = [{"page": s.page, "place": where, "lanes": lanes} for s, _, where, lanes in drawn]
    loaded = 0
    for seed, (state, tensor_map, where, lanes), found in zip(
        seeds, drawn, answers(page, asked), strict=True
    ):
        assert found["ok"], (seed, found["violations"])
        assert found["bytes"] == bytes_of(state.request), seed
        sizes = tensor_map.tx_bytes, tensor_map.smem_bytes, tensor_map.smem_alignment
        assert tuple(found["sizes"]) == sizes, seed
        if state.request.ragged is None:
            covering = tma.tile_coords(tensor_map)[:500].tolist()
            assert found["covering"] == covering, seed
        options = {"im2col_offsets": where["offsets"], "smem_offset": where["smem_offset"]}
        options["memory"] = MEMORY  # interleaved units may reach beyond the tensor
        try:
            tile = tma.load_tile(tensor_map, where["coords"], **options)
        except TmaError as error:
            violations = getattr(error, "violations", ())
            rule = violations[0].rule if violations else "UNSUPPORTED"
            assert found["refusal"] and found["refusal"]["rule"] == rule, (seed, rule)
            continue
        assert found["refusal"] is None, (seed, found["refusal"])
        loaded += 1
        compare_tile(seed, state, tensor_map, tile, found["chunks"])
        compare_banks(seed, tensor_map, tile, where["smem_offset"], found["banks"])
        compare_ldmatrix(seed, tensor_map, lanes, found)
    return loaded


def compare_tile(seed, state, tensor_map, tile, chunks):
    smem, written, filled = smem_of(state, tensor_map, chunks, len(tile.smem))
    assert (written == tile.written).all(), seed
    assert (filled == tile.filled).all(), seed
    is_zero = ~written | (state.request.arguments.oob_fill == 0)
    same = (smem == tile.smem) | (~is_zero & (smem == 0))
    assert same.all(), seed


def compare_banks(seed, tensor_map, tile, smem_offset, banks):
    for number, access in enumerate(("column", "row")):
        conflicts = tma.draw.bank_conflicts(tile, access, smem_offset=smem_offset)
        for of in conflicts.swizzles:
            assert tuple(banks[of.swizzle.name][number]) == of.degrees, (seed, of.swizzle)


def compare_ldmatrix(seed, tensor_map, lanes, found):
    row, column, options = lanes
    given = {"num": options["num"], "transpose": options["transpose"]}
    offset = options["smemAddress"]
    try:
        lanes = tma.ldmatrix_addresses(tensor_map, row, column, **given, smem_address=offset)
    except TmaError:
        assert found["lanes"] is None, seed
        return
    assert found["lanes"] == lanes.tolist(), seed
    access = lanes[: 8 * given["num"]]
    if "flip" in tensor_map.swizzle.name:  # whose chunks are not at multiples of 16 bytes
        return
    conflicts = tma.draw.bank_conflicts(tensor_map, access, smem_offset=offset)
    assert tuple(found["lanesDegrees"]) == conflicts.swizzles[0].degrees, seed


def test_the_tables_of_the_page_are_those_of_the_package(page):
    assert page.evaluate("tmaTables.ABI") == ABI


def test_random_requests_have_one_verdict_and_the_same_violations_in_javascript(page):
    accepted, fixed = compare_judged(page, range(250))
    assert accepted > 5
    assert fixed > 20


def test_random_tiles_have_the_same_bytes_places_and_banks_in_javascript(page):
    assert compare_copied(page, range(250)) > 150


@pytest.mark.slow
def test_ten_thousand_states_are_the_same_in_javascript(page):
    for start in range(1000, 6000, 500):
        compare_judged(page, range(start, start + 500))
        assert compare_copied(page, range(start, start + 500)) > 300
