"""The generator's output equals the checked-in files, and is equivalent in Python and C."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from laws import SHARE, law
from make_header import NOT_GIVEN, OWN_TYPE, Options, asked, described, encoded, judged, library
from random_requests import request_at_random

import tma_dlpack
from tma_dlpack.checks import RULES
from tma_dlpack.checks.call import read_call
from tma_dlpack.checks.fixes import rows_of
from tma_dlpack.checks.judge import ABI, judge
from tma_dlpack.checks.struct import STRUCT, describe, mask_of
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.tables import arguments, bits
from tma_dlpack.tables.arguments import KINDS, Option
from tma_dlpack.tables.dtypes import DLDataType, overrides_of
from tma_dlpack.tables.enums import DLDataTypeCode, TensorMapDataType
from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.targets import Target

GENERATOR = Path(__file__).parents[2] / ".packaging" / "generate.py"
INSTALLED = Path(tma_dlpack.__file__).parents[1]
CUT = 1 << 60  # C cuts numbers there
#: A million calls need 15 minutes, so only a run with all examples makes them.
MANY = {1: 10**6, 4: 10**5}.get(SHARE, 15_000)
#: Options that only few calls pass.
DEFAULTS = {"allow": (), "shape": None, "strides": None, "offset": 0}


@pytest.fixture(scope="module")
def generator():
    if not GENERATOR.exists():
        pytest.skip("the generator is not part of the wheel")
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def predicates(generator):
    return sys.modules["predicates"]  # loaded already, because the generator imports it


def test_what_is_checked_in_is_what_the_generator_prints(generator):
    for name, text in generator.OUTPUTS.items():
        assert (INSTALLED / name).read_text() == text(), f"{name}: run .packaging/generate.py"


def test_a_predicate_outside_of_the_subset_is_refused(predicates):
    with pytest.raises(TypeError, match="Pow is not in the subset of predicates"):
        predicates.in_c("rank ** 2 < 5")
    with pytest.raises(AssertionError, match="nonsense is neither a field nor a constant"):
        predicates.in_c("nonsense == 0")


def test_a_remainder_by_a_power_of_two_is_a_mask_in_c(predicates):
    assert predicates.in_c("address % 16 == 0") == "((c->address & (16 - 1)) == 0)"


OPTIONS_PROGRAM = """
#include <cassert>
#include "tma_dlpack_options.hpp"
#include "tma_dlpack_tables.h"
int main() {
  TmaDlpackOptions o;
  tma_dlpack_start_options(&o, TMA_DLPACK_IM2COL);
  assert(o.kind == TMA_DLPACK_IM2COL && o.one == 1 && o.two == 4);
  assert(o.has_three == 0 && o.four_count == TMA_DLPACK_NOT_GIVEN);
  assert(!tma_dlpack_has_rare_options(&o));
  o.one = 0, assert(tma_dlpack_has_rare_options(&o)), o.one = 1;
  o.two = 0, assert(tma_dlpack_has_rare_options(&o)), o.two = 4;
  o.has_three = 1, assert(tma_dlpack_has_rare_options(&o)), o.has_three = 0;
  o.four_count = 0, assert(tma_dlpack_has_rare_options(&o));
  const tma_dlpack::MakeOptions more;
  assert(more.one && more.two == 4 && !more.three && !more.fours);
}
"""


def test_an_option_of_each_form_has_its_place_and_default(generator, monkeypatch, tmp_path):
    rows = (
        Option("one", "flag", True, "a flag"),
        Option("two", "integer", 4, "an integer"),
        Option("three", "integer", None, "an integer, or nothing"),
        Option("fours", "integers", None, "integers, or nothing"),
    )
    before = generator.abi()
    monkeypatch.setattr(arguments, "RARE_OPTIONS", rows)
    assert generator.abi() != before
    (tmp_path / "tma_dlpack_tables.h").write_text(generator.c_tables())
    (tmp_path / "tma_dlpack_options.hpp").write_text(generator.cpp_options())
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    source, program = tmp_path / "options.cpp", tmp_path / "options"
    source.write_text(OPTIONS_PROGRAM)
    subprocess.run([compiler, "-std=c++17", "-Wall", "-Werror", source, "-o", program], check=True)
    subprocess.run([program], check=True)
    printed: dict[str, Any] = {}
    exec(generator.python_abi(), printed)
    assert printed["RareOptions"]() == (True, 4, None, None)


def test_both_languages_have_the_same_number_of_the_tables():
    of = library().abi
    of.restype = ctypes.c_uint32
    assert of() == ABI


def random_call(rng):
    """Draw a kind, a tensor view, all options and a target; most values are nearly right."""
    while True:
        asked = request_at_random(rng, lambda _, member: int(member))
        if asked is None:
            continue
        try:
            tensor = as_tensor_view(asked.tensor)
        except TmaPreconditionError:  # such as a negative stride
            continue
        target = Target.of(asked.given.get("target") or "sm_90")
        given = DEFAULTS | {"swizzle": 0} | asked.given | {"target": target}
        if asked.kind == "tiled":
            given = {"split_inner": False, "ragged": None} | given
        return asked.kind, tensor, given, target


def c_options(kind, given):
    """Return the options in C's form; None for lists over 5 numbers or numbers over 64 bits."""
    o = Options()
    o.kind, o.driver_rules = KINDS.index(kind), given["rules"] == "driver"
    o.asked_type = OWN_TYPE if given["data_type"] is None else int(given["data_type"])
    o.interleave, o.swizzle = given["interleave_layout"], given["swizzle"]
    o.l2_promotion, o.oob_fill = given["l2_fetch_size"], given["oobfill"]
    o.mode, o.has_swizzle = given.get("mode", 0), True
    o.split_inner, o.has_ragged = given.get("split_inner", False), given.get("ragged") is not None
    o.ragged, o.offset = given.get("ragged") or 0, given["offset"]
    o.allowed = mask_of(frozenset(given["allow"]))
    o.channels = given.get("channels_per_pixel", 0)
    o.pixels = given.get("pixels_per_column", 0)

    def put(array, count, values):
        if values is None:
            setattr(o, count, NOT_GIVEN)
            return True
        setattr(o, count, len(values))
        for i, value in enumerate(values[:5]):
            getattr(o, array)[i] = value
        return len(values) <= 5 and all(abs(value) < 1 << 63 for value in values)

    corners = {"tiled": "", "im2col": "pixel_box_{}_corner", "im2col_wide": "{}_corner_width"}[kind]
    lower, upper = (given.get(corners.format(which), ()) for which in ("lower", "upper"))
    if kind == "im2col_wide":
        lower, upper = (lower,), (upper,)
    fits = (
        put("elem_strides", "elem_stride_count", given["elem_strides"]),
        put("shape", "shape_count", given["shape"]),
        put("strides", "stride_count", given["strides"]),
        put("box_sizes", "box_count", given.get("box_sizes", ())),
        put("lower", "lower_count", lower),
        put("upper", "upper_count", upper),
    )
    return o if all(fits) else None


def values_of(struct):
    def plain(value):
        return [int(v) for v in value] if hasattr(value, "__len__") else int(value)

    return {name: plain(getattr(struct, name)) for name, *_ in STRUCT}


def is_small(values):
    numbers = (n for v in values.values() for n in (v if isinstance(v, list) else [v]))
    return all(abs(number) < CUT for number in numbers)


def compare(seed):
    """Compare C with Python for one random call; return whether the call was accepted."""
    rng = random.Random(seed)
    kind, tensor, given, target = random_call(rng)
    request = read_call(kind, tensor, tensor.address, given, target, False)
    options = c_options(kind, given)
    c, flaw = (None, b"too long") if options is None else described(tensor, options, target)
    if request.unreadable:
        assert flaw is not None, seed
        return False
    rows = rows_of(request.kind, request.rules) & ~mask_of(request.allowed)
    mine = describe(request)
    failed = judge(mine, rows)
    mask = 0
    for row, _ in failed:
        mask |= 1 << row
    if flaw is not None:
        assert failed or flaw == b"too long", (seed, flaw)
        return False
    assert asked(options, target) == rows, seed
    theirs = judged(c, rows)
    assert (mask == 0) == (theirs == 0), (seed, [RULES[row].id for row, _ in failed], hex(theirs))
    expected = values_of(mine)
    if is_small(expected):
        assert values_of(c) == expected, seed
        assert theirs == mask, (seed, [RULES[row].id for row, _ in failed], hex(theirs))
    if not mask and target.has_model:
        made = bits.encode(request.encode_arguments(), request.address)
        assert encoded(c) == made, seed
    return not mask


@law
def test_random_calls_have_one_verdict_and_the_same_bytes_in_both_languages():
    accepted = sum(map(compare, range(8000 // SHARE)))
    assert accepted > 800 // SHARE


@pytest.mark.slow
def test_many_random_calls_have_one_verdict_in_both_languages():
    assert sum(map(compare, range(10**6, 10**6 + MANY))) > MANY // 100


def test_more_rows_than_the_mask_has_bits_are_refused(generator, monkeypatch):
    numbers = {f"ROW_{n}": n for n in range(65)}
    monkeypatch.setattr(generator, "NUMBER", numbers)
    assert generator.mask(["ROW_0", "ROW_63"]) == "UINT64_C(0x8000000000000001)"
    with pytest.raises(ValueError, match="65 rows, and the mask of the C judge has 64 bits"):
        generator.mask(["ROW_64"])


def test_every_dlpack_code_may_be_carried_by_another_type_in_c_as_in_python():
    """If DLPack adds a code, DLDataTypeCode gets a member, and the generated header contains it."""
    carried = library().carried
    codes = range(256)
    for code, (size, lanes) in itertools.product(codes, ((8, 1), (16, 1), (4, 2), (32, 1))):
        dtype = DLDataType(code, size, lanes)
        for data_type in TensorMapDataType:
            expected = int(data_type) if data_type in overrides_of(dtype) else -1
            assert carried(code, size, lanes, int(data_type)) == expected, (dtype, data_type)
    assert carried(max(DLDataTypeCode), 16, 1, 1) == 1
    assert carried(max(DLDataTypeCode) + 1, 16, 1, 1) == -1
