"""What the generator prints: checked in as it prints it today, and equal in Python and C."""

from __future__ import annotations

import ctypes
import importlib.util
import random
from pathlib import Path

import pytest
from laws import SHARE
from make_header import (
    NOT_GIVEN,
    OWN_TYPE,
    Options,
    asked,
    described,
    encoded,
    judged,
    library,
)
from strategies import view

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.check import mask_of, rows_of
from tma_dlpack.checks.judge import ABI, judge
from tma_dlpack.checks.parse import OPTIONS, read_call
from tma_dlpack.checks.request import describe
from tma_dlpack.checks.rule import STRUCT
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import KINDS
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.targets import TARGETS, Target

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / ".packaging" / "generate.py"
CUT = 1 << 60  # C cuts numbers there

DTYPES = (
    (0, 8), (0, 32), (0, 64), (1, 4, 16), (1, 8), (1, 16), (1, 32), (1, 64), (2, 16), (2, 16),
    (2, 32), (2, 64), (4, 16), (4, 16), (5, 64), (6, 8), (10, 8), (14, 8), (17, 4, 1), (17, 4, 2),
)  # fmt: skip
EXTENTS = (1, 1, 2, 3, 7, 8, 14, 16, 32, 56, 64, 100, 128, 256, 512, 1000, 1024, 4096)
WILD_EXTENTS = (0, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 32) + 1)
WILD_STRIDES = (0, 1, 2, 8, 24, 1 << 34, 1 << 38, 1 << 39, 1 << 40)
BOXES = (1, 1, 2, 4, 8, 16, 32, 64, 64, 128, 256)
WILD_BOXES = (0, -1, 255, 257, 1 << 40, 1 << 70)
CORNERS = (0, -1, -2, -3, 1)
WILD_CORNERS = (15, -16, 16, -17, 127, 128, -128, -129, 32767, 32768, -32768, -32769, -(1 << 33))
FOREIGN = tuple(Target((major, minor), 100_000) for major, minor in ((8, 0), (9, 1), (13, 0)))


@pytest.fixture(scope="module")
def generator():
    if not GENERATOR.exists():
        pytest.skip("the generator is not part of the wheel")
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_checked_in_is_what_the_generator_prints(generator):
    for name, text in generator.OUTPUTS.items():
        assert (ROOT / name).read_text() == text(), f"{name}: run python .packaging/generate.py"


def test_a_predicate_outside_of_the_subset_is_refused(generator):
    with pytest.raises(TypeError, match="Pow is not in the subset of predicates"):
        generator.in_c("rank ** 2 < 5")
    with pytest.raises(AssertionError, match="nonsense is neither a field nor a constant"):
        generator.in_c("nonsense == 0")


def test_both_languages_have_the_same_number_of_the_tables():
    of = library().abi
    of.restype = ctypes.c_uint32
    assert of() == ABI


def near(rng, number):
    return rng.choice((number, number, number, number + 1, number - 1, number // 2, 2 * number))


def random_call(rng):
    """Draw a kind, a tensor view, the options of a call and a target, most of them nearly right."""
    kind = rng.choice(("tiled", "tiled", "tiled", "im2col", "im2col_wide"))
    wild = rng.random() < 0.15
    rank = rng.randint(1 if kind == "tiled" or wild else 3, 5)
    dtype = rng.choice(DTYPES)
    shape = [rng.choice(EXTENTS + (WILD_EXTENTS if wild else ())) for _ in range(rank)]
    shape[-1] = rng.choice((shape[-1], 8, 16, 64, 128, 256, 512))
    strides, span = [], 1
    for extent in reversed(shape):
        strides.insert(0, rng.choice(WILD_STRIDES) if wild and rng.random() < 0.2 else span)
        span = -(-span * max(extent, 1) // 16) * 16 if rng.random() < 0.7 else span * max(extent, 1)
    address = rng.randrange(1 << 20) * 128 + rng.choice((0, 0, 0, 0, 0, 16, 8, 32))
    tensor = view(shape, dtype, strides, 0x7F00_0000_0000 + address if address else 0)
    target = rng.choice((*[TARGETS["sm_90"]] * 7, *TARGETS.values(), *(FOREIGN if wild else ())))
    given = {
        "elem_strides": None,
        "interleave_layout": rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 2)),
        "swizzle": rng.choice((0, 0, 1, 2, 3, 3, 3, *((4, 5, 6) if wild else ()))),
        "l2_fetch_size": rng.randrange(4),
        "oobfill": rng.choice((*[0] * 7, 1)),
        "data_type": rng.choice((*[None] * 7, TensorMapDataType(rng.randrange(16)))),
        "rules": rng.choice(("libcu++" if kind == "tiled" else "documented", "driver")),
        "allow": tuple(rule for rule in ALLOWABLE if rng.random() < 0.1),
        "shape": None,
        "strides": None,
        "offset": rng.choice((*[0] * 9, 16, -32, 3)),
        "target": target,
    }
    if rng.random() < 0.2:
        given["shape"] = tuple(shape[rng.randrange(2) :]) or (8,)
        given["strides"] = rng.choice((None, tuple(strides[-len(given["shape"]) :])))
        rank = len(given["shape"])
    if rng.random() < 0.3:
        count = rank if rng.random() < 0.95 else rng.randint(1, 5)
        given["elem_strides"] = tuple(
            rng.choice((1, 1, 2, 3, 8, *((0, 9, -1) if wild else ()))) for _ in range(count)
        )
    if kind == "tiled":
        box = [rng.choice(BOXES + (WILD_BOXES if wild else ())) for _ in range(rank)]
        extents = given["shape"] or shape
        box = [b if rng.random() < 0.3 else min(b, max(e, 1)) for b, e in zip(box, extents)]  # noqa: B905
        box = box if rng.random() < 0.97 else box[1:] or [1, 1]
        given["box_sizes"] = tuple(box)
        given["split_inner"] = rng.random() < 0.2
        given["ragged"] = rng.choice((None, None, None, None, 0, 1, -1, -2, 5))
        if given["split_inner"] and rng.random() < 0.7:
            given["box_sizes"] = (*box[:-1], 64 * rng.choice((1, 2, 3)))
    else:
        entries = CORNERS + (WILD_CORNERS if wild else ())
        count = max(0, rank - 2) if rng.random() < 0.95 else rng.randint(0, 4)
        corners = [tuple(rng.choice(entries) for _ in range(count)) for _ in range(2)]
        if kind == "im2col":
            given["pixel_box_lower_corner"], given["pixel_box_upper_corner"] = corners
        else:
            given["lower_corner_width"] = rng.choice(entries)
            given["upper_corner_width"] = rng.choice(entries)
            given["mode"] = rng.randrange(2)
        wild_counts = (0, -3, 255, 256, 257, 1023, 1024, 1025) if wild else ()
        given["channels_per_pixel"] = rng.choice((8, 16, 32, 64, 12, *wild_counts))
        given["pixels_per_column"] = rng.choice((1, 8, 64, 128, *wild_counts))
    assert set(given) == set(OPTIONS[kind])
    return kind, tensor, given, target


def c_options(kind, given):
    """Return the options as C's; None for numbers of more than 64 bits."""
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
        return all(abs(value) < 1 << 63 for value in values)

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
    """Hold C against Python for one random call; say whether it was accepted."""
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


def test_random_calls_have_one_verdict_and_the_same_bytes_in_both_languages():
    accepted = sum(map(compare, range(8000 // SHARE)))
    assert accepted > 200


@pytest.mark.slow
def test_a_million_random_calls_have_one_verdict_in_both_languages():
    assert sum(map(compare, range(10**6, 2 * 10**6))) > 10_000
