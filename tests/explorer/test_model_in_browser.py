"""The page's model in a real browser: JavaScript and Python agree on random states."""

from __future__ import annotations

import json
import random

import harness
import numpy as np
import pytest
from laws import many
from model_states import (
    DTYPES,
    MEMORY,
    bytes_of,
    copied,
    first_candidates,
    in_words,
    is_accepted,
    judged,
    on_its_own,
    place,
    plain,
    request_of,
    smem_of,
    violations_of,
)
from strategies import TILED_OPTIONS, WIDE_OPTIONS, view

import tma_dlpack as tma
from tma_dlpack import geometry
from tma_dlpack.checks import RULES
from tma_dlpack.checks.judge import ABI
from tma_dlpack.draw.chunks import first_coords, lines_positions
from tma_dlpack.explorer.page import model_source
from tma_dlpack.tables.arguments import NO_SWIZZLE
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tensor_map.text import _driver_cpp

pytestmark = pytest.mark.skipif(bool(harness.MISSING), reason=harness.MISSING)

#: Results for a state, in JSON, which the tests below compare.
ANSWER = """
window.answer = ({ page, place, lanes }) => {
  const checked = tmaModel.check(page);
  const found = { ok: checked.ok, fixed: checked.fixed, violations: checked.violations };
  const first = ([{ candidate } = {}]) => candidate && [candidate.change, candidate.isGuess,
    candidate.view && [candidate.view.shape, candidate.view.strides, candidate.view.address]];
  found.candidates = tmaFixes.violationsOf(page)
    .map(({ fault, answers, breaks = [] }) => [fault.rule.id, first(answers) ?? null, breaks]);
  found.changes = checked.ok ? {} : tmaFixes.changesOf(page);
  if (!checked.ok) return found;
  const bytes = tmaModel.encode(page);
  found.bytes = bytes && [...bytes].map((n) => n.toString(16).padStart(2, "0")).join("");
  const plan = tmaModel.plan(page);
  found.sizes = [plan.txBytes, plan.smemBytes, plan.smemAlignment];
  if (!place) return found;
  const { coords, offsets, smem_offset: smemOffset } = place;
  const tile = tmaModel.tile(page, coords, offsets, smemOffset);
  found.refusal = tile.refusal;
  found.first = tmaModel.firstCoords(page);
  if (tile.refusal) return found;
  const written = tile.chunks().filter((c) => c.row >= 0);
  found.chunks = written.map((c) => [c.address, c.row, c.first, c.last, c.globalOffset,
    ...c.inside, Number(c.swapped), c.dataBytes]);
  found.elements = written.map((c) => c.element);
  found.banks = {};
  for (const swizzle of tmaTables.ENUMS.swizzle)
    found.banks[swizzle] = ["column", "row"].map(
      (access) => tmaModel.banks(page, access, { swizzle, smemOffset }).degrees);
  found.operands = ["K", "MN"].map((major) => tmaModel.operand(page, major));
  found.lanes = tmaModel.ldmatrix(page, ...lanes);
  found.lanesDegrees = found.lanes && tmaModel.banks(page, found.lanes.slice(0, 8 * lanes[2].num), {
    smemOffset: lanes[2].smemAddress }).degrees;
  return found;
};
"""


@pytest.fixture(scope="module")
def page(chromium):
    seen = harness.Seen(chromium)
    seen.page.set_content("<!doctype html>")
    seen.page.add_script_tag(content=f"{model_source()}\n{ANSWER}")
    seen.page.evaluate("tmaCore.ready.then(() => null)")
    yield seen.page
    seen.close()


def answers(page, states):
    asked = "(states) => JSON.stringify(JSON.parse(states).map(window.answer))"
    return json.loads(page.evaluate(asked, json.dumps(states)))  # quicker than as objects


def compare_judged(page, seeds):
    """Compare reports, bytes, sizes and fixes; return the numbers accepted and repaired."""
    states = [judged(seed) for seed in seeds]
    accepted = fixed = 0
    for seed, state, found in zip(
        seeds, states, answers(page, [{"page": s.page} for s in states]), strict=True
    ):
        request, changes = on_its_own(state)
        expected = violations_of(request)
        assert [v["rule"] for v in found["violations"]] == [rule for rule, _ in expected], seed
        for violation, (_, index) in zip(found["violations"], expected, strict=True):
            assert index is None or violation["index"] == index, (seed, violation)
        assert found["ok"] is not bool(expected), seed
        for violation in found["violations"]:
            texts = (violation[name] for name in ("argument", "found", "limit", "fix", "source"))
            assert all(texts), (seed, violation)
        assert found["candidates"] == first_candidates(request), seed
        for violation, (*_, broken) in zip(found["violations"], found["candidates"], strict=True):
            assert all(rule in violation["fix"] for rule in broken), (seed, violation)
        assert found["changes"] == (None if changes is None else in_words(changes)), seed
        if found["fixed"] is not None and found["fixed"]["shape"] == state.page["shape"]:
            if found["fixed"]["strides"] == state.page["strides"]:
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
    """Draw a state with a tile, the tile's coordinates, and lanes of ldmatrix."""
    rng = random.Random(seed)
    state, tensor_map = copied(seed)
    where = place(rng, tensor_map)
    num = rng.choice((1, 2, 4))
    options = {"num": num, "transpose": rng.random() < 0.3, "smemAddress": rng.choice((0, 256))}
    columns = (0, 0, 8, 16, 3)
    lanes = [rng.choice((0, 0, 1, 8)), rng.choice(columns), options]
    return state, tensor_map, where, lanes


def compare_copied(page, seeds):
    """Compare map bytes, tile bytes, filled elements and banks with those of load_tile."""
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
        assert tuple(found["first"]) == first_coords(tensor_map.arguments), seed
        options = {"im2col_offsets": where["offsets"], "smem_offset": where["smem_offset"]}
        options["memory"] = MEMORY  # interleaved units may reach beyond the tensor
        try:
            tile = tma.load_tile(tensor_map, where["coords"], **options)
        except TmaError as error:
            violations = getattr(error, "violations", ())
            rule = violations[0].rule if violations else "UNSUPPORTED"
            assert (found["refusal"] or {}).get("rule") == rule, seed
            continue
        assert found["refusal"] is None, (seed, found["refusal"])
        loaded += 1
        compare_tile(seed, state, tensor_map, tile, found)
        compare_banks(seed, tensor_map, tile, where["smem_offset"], found["banks"])
        compare_ldmatrix(seed, tensor_map, lanes, found)
        compare_operands(seed, tensor_map, found["operands"])
    return loaded


def compare_tile(seed, state, tensor_map, tile, found):
    chunks, rank = found["chunks"], tensor_map.rank
    smem, written, filled = smem_of(state, tensor_map, chunks, len(tile.smem))
    assert (written == tile.written).all(), seed
    assert (filled == tile.filled).all(), seed
    is_zero = ~written | (state.request.arguments.oob_fill == 0)
    same = (smem == tile.smem) | (~is_zero & (smem == 0))
    assert same.all(), seed
    table = np.array(chunks)
    positions = lines_positions(tile._request)[table[:, 1]]
    positions[:, 0] += 0 if tensor_map.interleave else table[:, 2]
    assert (positions[:, ::-1] == np.array(found["elements"]).reshape(-1, rank)).all(), seed


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


def compare_operands(seed, tensor_map, operands):
    """Compare refusals, the 64 bits, K steps and atoms with those of matrix_descriptor."""
    major, _ = tensor_map.target.compute_capability
    name = "tcgen05" if major in (10, 11) else "wgmma"
    for found in operands:
        assert found["instruction"] == name
        try:
            d = tma.matrix_descriptor(tensor_map, instruction=name, major=found["major"])
        except TmaError as error:
            rules = [v.rule for v in error.violations]
            assert [r["rule"] for r in found["refusals"]] == rules, (seed, found)
            continue
        assert found["refusals"] == [], seed
        assert int(found["value"], 16) == d.value, seed
        assert tuple(found["starts"]) == d.k_starts, seed
        sizes = found["mnElements"], found["kElements"], found["leading"], found["stride"]
        own = d.mn_elements, d.k_elements, d.leading_byte_offset, d.stride_byte_offset
        assert sizes == own, seed
        drawn = tma.draw.matrix(d)
        assert (len(found["atoms"]), len(found["atoms"][0])) == (drawn.down, drawn.across)
        atoms = [(a["address"], tuple(a["steps"])) for line in found["atoms"] for a in line]
        assert atoms == [(a.address, a.steps) for a in drawn.atoms], seed


def test_the_tables_of_the_page_are_those_of_the_package(page):
    assert page.evaluate("tmaTables.ABI") == ABI


def test_every_rule_that_has_candidates_has_them_on_the_page(page):
    assert set(page.evaluate("tmaCandidates.rules")) == {
        rule.id for rule in RULES if rule.candidates
    }


def test_random_requests_have_the_same_report_in_javascript(page):
    accepted, fixed = compare_judged(page, range(250))
    assert accepted > 5
    assert fixed > 20


def test_random_tiles_have_the_same_bytes_places_and_banks_in_javascript(page):
    assert compare_copied(page, range(250)) > 150


@pytest.mark.slow
def test_many_states_are_the_same_in_javascript(page):
    for start in range(1000, 1000 + many(5000), 250):
        compare_judged(page, range(start, start + 250))
        assert compare_copied(page, range(start, start + 250)) > 150


# -- what random states seldom meet ----------------------------------------------------------------

ROWS = {"shape": [64, 256], "dtype": "float16", "box_sizes": [64, 64], "address": 4096}
FLOAT8 = ROWS | {"dtype": "float8_e4m3fn", "oobfill": "nan"}
STEPS = {
    **{"shape": [256, 256, 256], "dtype": "uint8", "address": 4096, "rules": "driver"},
    **{"box_sizes": [15, 255, 256], "elem_strides": [2, 2, 1]},
}
WIDE = {
    **{"kind": "im2col_wide", "shape": [2, 7, 900, 64], "dtype": "float16", "address": 4096},
    **{"lower_corner_width": -200, "upper_corner_width": 0, "target": "sm_100"},
    **{"channels_per_pixel": 64, "pixels_per_column": 64},
}


@pytest.mark.parametrize(
    ("request_", "rules"),
    [
        (FLOAT8, ["OOB_NAN_FLOAT8"]),
        (FLOAT8 | {"rules": "driver"}, ["OOB_NAN"]),
        (FLOAT8 | {"oobfill": "none"}, []),
        (STEPS, []),
        (STEPS | {"box_sizes": [16, 255, 256]}, ["BOX_BYTES"]),
        (WIDE, []),
        (WIDE | {"rules": "driver"}, []),
        (WIDE | {"rules": "driver", "target": "sm_90"}, ["LOWER_CORNER"]),
        (ROWS | {"split_inner": True}, ["SPLIT_SWIZZLE"]),
        (ROWS | {"split_inner": True, "swizzle": "none"}, []),
        (ROWS | {"target": "sm_90a"}, []),
        ({name: n for name, n in ROWS.items() if name != "address"}, ["ADDRESS_NULL"]),
    ],
)
def test_rare_requests_break_these_rules_in_javascript_and_python(page, request_, rules):
    found = page.evaluate("(r) => tmaModel.check(r).violations.map((v) => v.rule)", request_)
    assert found == rules
    given = {name: n for name, n in request_.items() if name not in ("kind", "shape", "dtype")}
    kind, address = request_.get("kind", "tiled"), given.pop("address", 0)
    tensor = view(request_["shape"], DTYPES[request_["dtype"]], address=address)
    defaults = WIDE_OPTIONS if kind == "im2col_wide" else TILED_OPTIONS
    given = defaults | {"swizzle": NO_SWIZZLE if kind == "tiled" else "bytes128"} | given
    assert [rule for rule, _ in violations_of(request_of(kind, tensor, given))] == rules


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_every_operand_of_a_tensor_core_is_the_same_in_javascript(page, target):
    memory = MEMORY[: 128 * 256 * 4].view(np.float32).reshape(128, 256)
    tensors = (memory[:, :128].view(np.float16), memory[:, :64].view(np.uint8), memory)
    read = 0
    for tensor in tensors:
        for swizzle in tma.TmaSwizzle:
            for rows, spans in ((8, 1), (64, 1), (64, 2), (12, 1)):
                span = (16, 32, 64, 128, 128, 128, 128)[swizzle] // tensor.itemsize
                given = {"box_sizes": (rows, spans * span), "swizzle": swizzle.name}
                given |= {"split_inner": True} if spans > 1 else {}
                given |= {"data_type": "TFLOAT32"} if tensor.itemsize == 4 else {}
                asked = {"dtype": str(tensor.dtype), "target": target, "address": 4096, **given}
                strides = [s // tensor.itemsize for s in tensor.strides]
                asked |= {"shape": list(tensor.shape), "strides": strides}
                if not page.evaluate("tmaModel.accepts", asked):
                    continue
                made = tma.make_tma_descriptor(tensor, target=target, **given)
                majors = "(r) => ['K', 'MN'].map((major) => tmaModel.operand(r, major))"
                operands = page.evaluate(majors, asked)
                compare_operands((swizzle, given), made, operands)
                read += sum(not found["refusals"] for found in operands)
    assert read > 20


def test_threads_that_read_the_same_words_do_not_conflict_and_those_of_one_bank_do(page):
    degrees = "([r, addresses]) => tmaModel.banks(r, addresses).degrees"
    assert page.evaluate(degrees, [ROWS, [0] * 8]) == [1]
    assert page.evaluate(degrees, [ROWS, [128 * n for n in range(8)]]) == [8]


def test_ldmatrix_reads_the_next_column_of_spans_of_a_split_tile(page):
    tensor = MEMORY[: 64 * 256 * 2].view(np.float16).reshape(64, 256)
    given = {"box_sizes": (64, 128), "swizzle": "bytes128", "split_inner": True}
    tensor_map = tma.make_tma_descriptor(tensor, **given)
    asked = ROWS | given
    for column in (0, 48, 64, 112):
        lanes = page.evaluate("([r, c]) => tmaModel.ldmatrix(r, 16, c)", [asked, column])
        assert lanes == tma.ldmatrix_addresses(tensor_map, 16, column).tolist(), column


# -- controls, words and code ----------------------------------------------------------------------


def is_legal(reach, value):
    refused = any(run["first"] <= value <= run["last"] for run in reach["refused"])
    inside = reach["least"] <= value <= reach["most"]
    return inside and value % reach["step"] == 0 and not refused


def with_value(state, name, value):
    """Return the arguments of a state with one number changed, such as ``box_sizes[0]``."""
    field, _, index = name.partition("[")
    if not index:
        return state.given | {field: value}
    values = list(state.given[field])
    values[int(index[:-1])] = value
    return state.given | {field: values}


def numbers_of(state):
    """Return the names of the numbers that a state's controls set."""
    lists = ("box_sizes", "elem_strides", "pixel_box_lower_corner", "pixel_box_upper_corner")
    for name in lists:
        yield from (f"{name}[{i}]" for i in range(len(state.given.get(name) or ())))
    yield from (n for n in ("channels_per_pixel", "pixels_per_column") if n in state.given)


def test_legal_values_of_each_control_are_those_that_python_accepts(page):
    rng = random.Random(27)
    for seed in range(12):
        state, _ = copied(seed)
        for name in numbers_of(state):
            reach = page.evaluate("([r, name]) => tmaModel.legal(r, name)", [state.page, name])
            least, most = reach["least"], reach["most"]
            values = range(least, most + 1)
            if len(values) > 64:
                near = [n for run in reach["refused"] for n in (run["first"] - 1, run["last"] + 1)]
                near = [n for n in near if n in values]
                values = [*rng.sample(values, 30), *near, least, most]
            for value in values:
                accepted = is_accepted(state, with_value(state, name, value))
                assert is_legal(reach, value) == accepted, (seed, name, value, reach)


def test_legal_options_of_each_menu_are_those_that_python_accepts(page):
    asked = "([r, name, options]) => options.map((option) => tmaModel.reason(r, name, option))"
    for seed in range(20):
        state, _ = copied(seed)
        for menu, members in page.evaluate("tmaTables.ENUMS").items():
            if menu == "mode":
                continue
            options = ["", *members] if menu == "data_type" else members
            reasons = page.evaluate(asked, [state.page, menu, options])
            for option, reason in zip(options, reasons, strict=True):
                given = state.given | {menu: option or None}
                assert (reason == "") == is_accepted(state, given), (seed, menu, option)


def test_a_split_row_goes_as_far_as_the_tensor(page):
    rows = ROWS | {"box_sizes": [64, 128], "swizzle": "bytes128", "split_inner": True}
    row = page.evaluate("(r) => tmaModel.legal(r, 'box_sizes[1]')", rows)
    assert (row["least"], row["most"], row["step"], row["refused"]) == (1, 256, 64, [])


def test_a_coordinate_steps_by_16_bytes_and_an_im2col_column_starts_in_its_box(page):
    rows = {"shape": [64, 64], "dtype": "float16", "box_sizes": [8, 64], "address": 4096}
    column = page.evaluate("(r) => tmaModel.legal(r, 'coords[1]')", rows)
    assert (column["least"], column["most"], column["step"]) == (-64, 128, 8)
    assert column["reason"].startswith("COPY_INNER_16B")
    images = {
        **{"kind": "im2col", "shape": [2, 7, 9, 32], "dtype": "float16", "address": 4096},
        **{"pixel_box_lower_corner": [-1, -1], "pixel_box_upper_corner": [-1, -1]},
        **{"channels_per_pixel": 32, "pixels_per_column": 40},
    }
    width = page.evaluate("(r) => tmaModel.legal(r, 'coords[2]')", images)
    assert (width["least"], width["most"], width["step"]) == (-1, 7, 1)
    tap = page.evaluate("(r) => tmaModel.legal(r, 'im2col_offsets[0]')", images)
    assert (tap["least"], tap["most"]) == (0, 2)


def test_a_refusal_names_the_values_that_the_rule_read_and_the_nearest_legal_one(page):
    rows = {"shape": [64, 64], "dtype": "float16", "box_sizes": [300, 63], "address": 4096}
    checked = page.evaluate("(r) => tmaModel.check(r)", rows | {"swizzle": "bytes128"})
    tall, narrow = checked["violations"]
    assert (tall["rule"], tall["argument"], tall["index"]) == ("BOX_RANGE", "box_sizes", 0)
    assert tall["found"].startswith("box_sizes[0] is 300")
    assert tall["limit"] == "it must be 1..256"
    assert tall["fix"] == "use box_sizes[0] = 64"
    assert narrow["found"] == "box_sizes[1] is 63, a row of the box is 126 bytes"
    assert narrow["change"] == {"box_sizes": [300, 64]}
    assert checked["fixed"]["box_sizes"] == [64, 64]


@pytest.mark.parametrize(
    ("shape", "box", "change", "fix"),
    [
        ((64, 128), (8, 128), {"split_inner": True}, "split_inner = True"),  # paged keys
        ((50, 64), (64, 64), {"allow": ["BOX_IN_SHAPE"]}, "allow = ('BOX_IN_SHAPE',)"),  # M = 50
    ],
)
def test_a_tile_that_options_can_keep_is_not_made_smaller(page, shape, box, change, fix):
    rows = {"shape": shape, "dtype": "float16", "box_sizes": box, "address": 4096}
    rows = {name: plain(value) for name, value in rows.items()} | {"swizzle": "bytes128"}
    checked = page.evaluate("(r) => tmaModel.check(r)", rows)
    (violation,) = checked["violations"]
    assert violation["change"] == change
    assert violation["fix"].startswith(f"use {fix}; or use box_sizes[")
    assert checked["fixed"] == rows | change
    changes = tma.check_tma_descriptor(np.zeros(shape, np.float16), box, swizzle="bytes128")
    assert plain(changes.changes()) == change


def test_no_repair_gives_the_values_another_meaning(page):
    words = ROWS | {"dtype": "uint16", "oobfill": "nan"}
    (violation,) = page.evaluate("(r) => tmaModel.check(r).violations", words)
    assert (violation["rule"], violation["fix"]) == ("OOB_NAN", "use oobfill = 'none'")
    (violation,) = page.evaluate("(r) => tmaModel.check(r).violations", ROWS | {"dtype": "int8"})
    assert (violation["rule"], violation["fix"]) == ("DTYPE", "use data_type = 'UINT8'")


def test_a_word_that_no_menu_has_is_refused_with_the_words_that_it_has(page):
    rows = {"shape": [64, 64], "dtype": "float16", "box_sizes": [8, 64], "swizzle": "bytes23"}
    (violation,) = page.evaluate("(r) => tmaModel.check(r)", rows)["violations"]
    assert violation["found"] == "swizzle is bytes23"
    assert violation["limit"].startswith("it must be one of none, bytes32, bytes64, bytes128,")


def test_a_data_type_without_a_dtype_is_that_of_a_tensor_that_has_it(page):
    for number, data_type in enumerate(TensorMapDataType.__members__.values()):
        request = {"shape": [4, 128], "data_type": data_type.name, "box_sizes": [1, 1]}
        assert page.evaluate("(r) => tmaModel.describe(r).data_type", request) == data_type, number


def test_the_code_makes_the_same_map_in_python_and_has_the_same_arguments_in_cpp(page):
    for seed in range(40):
        state, tensor_map = copied(seed)
        code = page.evaluate("(r) => tmaModel.code(r, [0])", state.page)
        call, _, load = code["python"].partition("\n")
        assert load == "tile = tma.load_tile(tm, (0,))"
        names = {"tma": tma, "tensor": state.tensor}
        exec(call, names)
        assert names["tm"] == tensor_map, (seed, call)
        driver = _driver_cpp(tensor_map.arguments)
        for line in code["cpp"].splitlines():
            assert line.strip().removesuffix(";").removesuffix(")") in driver or "CU" in line, line
        arguments = code["cpp"].split("&map,")[1].removesuffix(");").split(",")
        expected = driver.split("&map,")[1].split(");")[0].split(",")
        assert [a.strip() for a in arguments] == [a.strip() for a in expected], seed
