"""Every rule, tested by an accepted request and by a neighbour that only this rule refuses."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from strategies import DOORS, IM2COL_SPEC, TILED_SPEC, WIDE_SPEC, Door, Spec

import tma_dlpack as tma
from tma_dlpack.checks import RULES
from tma_dlpack.checks.judge import READS
from tma_dlpack.checks.report import find_violations
from tma_dlpack.geometry import SWIZZLES
from tma_dlpack.tables.arguments import NO_SWIZZLE
from tma_dlpack.tables.targets import SWIZZLE_SPAN_BYTES, Target

BASES = {"tiled": TILED_SPEC, "im2col": IM2COL_SPEC, "im2col_wide": WIDE_SPEC}
KINDS_OF_SETS = {
    "libcu++": ("tiled",),
    "driver": ("tiled",),
    "documented": ("tiled", "im2col", "im2col_wide"),
    "measured": ("tiled", "im2col", "im2col_wide"),
}


@dataclass(frozen=True)
class Neighbours:
    """Two changes of the base request, one step apart: the rule accepts one, refuses the other."""

    rule: str
    kind: str
    holds: dict[str, Any]
    breaks: dict[str, Any]
    make_only: bool = False
    not_in: tuple[str, ...] = ()  # sets of rules in which other rows decide
    same: dict[str, Any] = field(default_factory=dict)  # changes of both

    def doors(self) -> list[Door]:
        sets = next(r for r in RULES if r.id == self.rule).sets
        return [
            door
            for door in DOORS
            if door.kind == self.kind
            and door.rules in sets
            and door.rules not in self.not_in
            and not (self.make_only and door.mirror)
        ]

    def specs(self) -> tuple[Spec, Spec]:
        base = BASES[self.kind].but(**self.same)
        return base.but(**self.holds), base.but(**self.breaks)


FP4 = {"data_type": "16U4_ALIGN8B", "target": "sm_100"}
INTERLEAVED = {"dims": (64, 8, 8), "strides": (256, 2048), "box": (8, 2, 1)}
PADDED_TILED = {
    "dtype": (1, 8),
    "asked": "16U4_ALIGN16B",
    "data_type": "UINT8",
    "target": "sm_100",
    "dims": (256, 32, 8),
    "strides": (128, 4096),
    "box": (128, 8, 2),
    "swizzle": "bytes128",
}
U6_TILED = PADDED_TILED | {"asked": "16U6_ALIGN16B", "strides": (192, 6144)}
PADDED_COLUMN = PADDED_TILED | {"dims": (256, 14, 14, 2), "strides": (128, 1792, 25088), "box": ()}
PADDED_COLUMN |= {"channels": 128}
U6_COLUMN = PADDED_COLUMN | {"asked": "16U6_ALIGN16B", "strides": (192, 2688, 37632)}
WIDE_BOX = {"dims": (256, 256, 8), "strides": (1024, 262144), "swizzle": "none"}

NEIGHBOURS = (
    # device
    Neighbours(
        "CAPABILITY",
        "tiled",
        {"target": Target((9, 0))},
        {"target": Target((8, 9))},
        not_in=("measured",),
    ),
    Neighbours("CAPABILITY", "im2col", {}, {"target": Target((8, 9))}, not_in=("measured",)),
    Neighbours(
        "ATOM_SWIZZLE",
        "tiled",
        {"swizzle": "bytes128"},
        {"swizzle": "bytes128_atom_32B"},
        not_in=("documented",),
    ),
    Neighbours(
        "ATOM_SWIZZLE",
        "im2col",
        {"swizzle": "bytes128"},
        {"swizzle": "bytes128_atom_32B"},
        same={"target": "sm_90"},
    ),
    Neighbours(
        "PACKED_TYPE",
        "tiled",
        {"data_type": "UINT8"},
        {"data_type": "16U4_ALIGN8B", "dims": (512, 32, 8), "box": (64, 8, 2)},
        same={"dims": (256, 32, 8), "box": (32, 8, 2), "swizzle": "bytes32"},
        not_in=("documented",),
    ),
    Neighbours(
        "PACKED_TYPE",
        "im2col",
        {"data_type": "UINT8"},
        {"data_type": "16U4_ALIGN8B", "dims": (128, 14, 14, 2)},
        same={"dims": (64, 14, 14, 2), "target": "sm_90"},
    ),
    Neighbours(
        "WIDE_CAPABILITY",
        "im2col_wide",
        {"target": Target((10, 0))},
        {"target": Target((9, 9))},
        make_only=True,
    ),
    # rank
    Neighbours(
        "RANK",
        "tiled",
        {"dims": (64, 32, 8, 2, 2), "strides": (256, 8192, 65536, 131072)},
        {"dims": (64, 32, 8, 2, 2, 2), "strides": (256, 8192, 65536, 131072, 262144)},
        same={"box": (16, 1, 1, 1, 1), "elem_strides": (1,) * 5},
    ),
    Neighbours(
        "RANK",
        "im2col",
        {"dims": (32, 14, 2), "strides": (64, 896), "lower": (-1,), "upper": (-1,)},
        {"dims": (32, 14), "strides": (64,), "lower": (), "upper": ()},
        same={"elem_strides": (1,) * 3},
    ),
    Neighbours(
        "RANK_INTERLEAVED",
        "tiled",
        {"dims": (64, 8, 8), "strides": (256, 2048), "box": (8, 2, 1), "elem_strides": (1,) * 3},
        {"dims": (64, 8), "strides": (256,), "box": (8, 2), "elem_strides": (1,) * 2},
        same={"interleave": "bytes16"},
    ),
    # address
    Neighbours("ADDRESS_NULL", "tiled", {"address": 16}, {"address": 0}, make_only=True),
    Neighbours("ADDRESS_NULL", "im2col", {"address": 16}, {"address": 0}, make_only=True),
    Neighbours("ADDRESS_ALIGNED", "tiled", {"address": 48}, {"address": 40}),
    Neighbours("ADDRESS_ALIGNED", "im2col", {"address": 48}, {"address": 40}),
    Neighbours(
        "ADDRESS_ALIGNED",
        "tiled",
        {"address": 64},
        {"address": 48},
        same=INTERLEAVED | {"interleave": "bytes32", "swizzle": "bytes32"},
    ),
    Neighbours(
        "ADDRESS_ALIGNED",
        "tiled",
        {"address": 64},
        {"address": 48},
        same=PADDED_TILED,
        not_in=("measured",),
    ),
    Neighbours("ADDRESS_RANGE", "tiled", {"address": (1 << 57) - 16}, {"address": 1 << 57}),
    Neighbours("ADDRESS_RANGE", "im2col", {"address": (1 << 57) - 16}, {"address": 1 << 57}),
    # data type
    Neighbours(
        "DTYPE",
        "tiled",
        {"dtype": (1, 8)},
        {"dtype": (0, 8)},
        same={"data_type": "UINT8"},
        make_only=True,
    ),
    Neighbours("DTYPE", "im2col", {"dtype": (1, 16)}, {"dtype": (0, 16)}, make_only=True),
    Neighbours(
        "DATA_TYPE_OVERRIDE", "tiled", {"asked": "TFLOAT32"}, {"asked": "FLOAT16"}, make_only=True
    ),
    Neighbours(
        "DATA_TYPE_OVERRIDE", "im2col", {"asked": "BFLOAT16"}, {"asked": "FLOAT32"}, make_only=True
    ),
    Neighbours(
        "OOB_NAN", "tiled", {"data_type": "FLOAT32"}, {"data_type": "INT32"}, same={"oob": "nan"}
    ),
    Neighbours(
        "OOB_NAN", "im2col", {"data_type": "FLOAT16"}, {"data_type": "UINT16"}, same={"oob": "nan"}
    ),
    Neighbours(
        "OOB_NAN_FLOAT8",
        "tiled",
        {"oob": "none"},
        {"oob": "nan"},
        same={"dtype": (10, 8), "data_type": "UINT8"},
        make_only=True,
    ),
    # sizes
    Neighbours(
        "DIM_PACKED",
        "tiled",
        {"dims": (64, 32, 8)},
        {"dims": (63, 32, 8)},
        same=FP4 | {"box": (32, 8, 2), "dtype": (17, 4, 1)},
    ),
    Neighbours("DIM_PACKED", "tiled", {}, {"dims": (254, 32, 8)}, same=PADDED_TILED),
    Neighbours(
        "DIM_PACKED",
        "im2col",
        {"dims": (64, 14, 14, 2)},
        {"dims": (63, 14, 14, 2)},
        same=FP4 | {"dtype": (17, 4, 1)},
    ),
    Neighbours(
        "DIM_RANGE", "tiled", {"dims": (64, 32, 1 << 32)}, {"dims": (64, 32, (1 << 32) + 1)}
    ),
    Neighbours(
        "DIM_RANGE", "tiled", {"dims": (64, 32, 1)}, {"dims": (64, 32, 0)}, same={"box": (16, 8, 1)}
    ),
    Neighbours("DIM_RANGE", "im2col", {"dims": (32, 14, 14, 1)}, {"dims": (32, 14, 14, 0)}),
    # strides
    Neighbours("STRIDE_INNERMOST", "tiled", {}, {"innermost_stride": 2}, make_only=True),
    Neighbours("STRIDE_INNERMOST", "im2col", {}, {"innermost_stride": 2}, make_only=True),
    Neighbours("STRIDE_UNIQUE", "tiled", {}, {"strides": (256, 8176)}, make_only=True),
    Neighbours("STRIDE_UNIQUE", "im2col", {}, {"strides": (64, 896, 12528)}, make_only=True),
    Neighbours("STRIDE_ALIGNED", "tiled", {"strides": (272, 9216)}, {"strides": (264, 9216)}),
    Neighbours(
        "STRIDE_ALIGNED", "im2col", {"strides": (80, 1120, 15680)}, {"strides": (72, 1120, 15680)}
    ),
    Neighbours(
        "STRIDE_ALIGNED",
        "tiled",
        {"strides": (288, 2304)},
        {"strides": (272, 2304)},
        same=INTERLEAVED | {"interleave": "bytes32", "swizzle": "bytes32"},
    ),
    Neighbours(
        "STRIDE_RANGE", "tiled", {"strides": (256, (1 << 40) - 16)}, {"strides": (256, 1 << 40)}
    ),
    Neighbours(
        "STRIDE_RANGE",
        "im2col",
        {"strides": (64, 896, (1 << 40) - 16)},
        {"strides": (64, 896, 1 << 40)},
    ),
    # interleave and swizzle
    Neighbours(
        "INTERLEAVE_32B_SWIZZLE",
        "tiled",
        {"swizzle": "bytes32"},
        {"swizzle": "bytes64"},
        same=INTERLEAVED | {"interleave": "bytes32"},
    ),
    Neighbours(
        "INTERLEAVE_32B_SWIZZLE",
        "im2col",
        {"swizzle": "bytes32"},
        {"swizzle": "none"},
        same={"interleave": "bytes32"},
    ),
    Neighbours("PACKED_INTERLEAVE", "tiled", {}, {"interleave": "bytes16"}, same=U6_TILED),
    Neighbours("PACKED_INTERLEAVE", "im2col", {}, {"interleave": "bytes16"}, same=U6_COLUMN),
    Neighbours(
        "PACKED_SWIZZLE",
        "tiled",
        {"swizzle": "bytes128_atom_32B"},
        {"swizzle": "bytes128_atom_64B"},
        same=PADDED_TILED,
    ),
    Neighbours(
        "PACKED_SWIZZLE",
        "im2col",
        {"swizzle": "bytes128_atom_64B"},
        {"swizzle": "bytes128_atom_32B_flip_8B"},
        same=U6_COLUMN,
    ),
    Neighbours(
        "WIDE_SWIZZLE",
        "im2col_wide",
        {"swizzle": "bytes64"},
        {"swizzle": "bytes32"},
        same={"channels": 16},
    ),
    # box
    Neighbours("BOX_RANK", "tiled", {"box": (16, 8, 2)}, {"box": (16, 8)}, make_only=True),
    Neighbours(
        "BOX_RANGE",
        "tiled",
        {"box": (4, 256, 1)},
        {"box": (4, 257, 1)},
        same=WIDE_BOX | {"dims": (256, 512, 8), "strides": (1024, 524288)},
    ),
    Neighbours("BOX_RANGE", "tiled", {"box": (16, 1, 2)}, {"box": (16, 0, 2)}),
    Neighbours("BOX_IN_SHAPE", "tiled", {"box": (16, 8, 8)}, {"box": (16, 8, 9)}),
    Neighbours("BOX_INNER_16B", "tiled", {"box": (4, 8, 2)}, {"box": (3, 8, 2)}),
    Neighbours("BOX_INNER_16B", "tiled", {"box": (32, 8, 2)}, {"box": (31, 8, 2)}, same=FP4),
    Neighbours(
        "BOX_INNER_16B_INTERLEAVED",
        "tiled",
        {"box": (4, 2, 1)},
        {"box": (3, 2, 1)},
        same=INTERLEAVED | {"interleave": "bytes16"},
    ),
    Neighbours("BOX_PACKED", "tiled", {"box": (128, 8, 2)}, {"box": (96, 8, 2)}, same=PADDED_TILED),
    Neighbours("BOX_PACKED", "im2col", {"channels": 128}, {"channels": 96}, same=PADDED_COLUMN),
    Neighbours(
        "BOX_SWIZZLE_SPAN",
        "tiled",
        {"box": (8, 8, 2)},
        {"box": (12, 8, 2)},
        same={"swizzle": "bytes32"},
    ),
    Neighbours(
        "BOX_SWIZZLE_SPAN",
        "tiled",
        {"box": (32, 8, 2)},
        {"box": (36, 8, 2)},
        same={"swizzle": "bytes128"},
    ),
    Neighbours(
        "BOX_SWIZZLE_SPAN",
        "im2col",
        {"channels": 32},
        {"channels": 40},
        same={"swizzle": "bytes64"},
    ),
    Neighbours(
        "BOX_SMEM",
        "tiled",
        {"box": (256, 227, 1)},
        {"box": (256, 228, 1)},
        same=WIDE_BOX | {"target": Target((9, 0), 227 * 1024)},
    ),
    Neighbours(
        "BOX_BYTES",
        "tiled",
        {"box": (256, 228, 1)},
        {"box": (256, 229, 1)},
        same=WIDE_BOX | {"target": Target((9, 0), 1 << 20)},
    ),
    Neighbours(
        "BOX_BYTES",
        "tiled",
        {"box": (256, 228, 3), "elem_strides": (1, 1, 2)},
        {"box": (256, 228, 4), "elem_strides": (1, 1, 2)},
        same=WIDE_BOX | {"target": Target((9, 0), 1 << 20)},
    ),
    # element strides
    Neighbours("ELEM_STRIDES_RANK", "tiled", {}, {"elem_strides": (1, 1)}, make_only=True),
    Neighbours("ELEM_STRIDES_RANK", "im2col", {}, {"elem_strides": (1, 1)}, make_only=True),
    Neighbours(
        "ELEM_STRIDES_RANGE", "tiled", {"elem_strides": (1, 8, 1)}, {"elem_strides": (1, 9, 1)}
    ),
    Neighbours(
        "ELEM_STRIDES_RANGE", "tiled", {"elem_strides": (1, 1, 1)}, {"elem_strides": (1, 0, 1)}
    ),
    Neighbours(
        "ELEM_STRIDES_RANGE",
        "im2col",
        {"elem_strides": (1, 8, 1, 1)},
        {"elem_strides": (1, 9, 1, 1)},
    ),
    Neighbours(
        "ELEM_STRIDES_RANGE",
        "tiled",
        {"elem_strides": (8, 1, 1)},
        {"elem_strides": (9, 1, 1)},
        not_in=("libcu++",),
    ),
    Neighbours(
        "ELEM_STRIDES_IN_SHAPE",
        "tiled",
        {"elem_strides": (1, 1, 4)},
        {"elem_strides": (1, 1, 5)},
        same={"dims": (64, 32, 4)},
    ),
    # im2col
    Neighbours("LOWER_CORNER_COUNT", "im2col", {}, {"lower": (-1,)}, make_only=True),
    Neighbours("UPPER_CORNER_COUNT", "im2col", {}, {"upper": (-1, -1, -1)}, make_only=True),
    Neighbours("LOWER_CORNER", "im2col", {"lower": (-128, -1)}, {"lower": (-129, -1)}),
    Neighbours(
        "LOWER_CORNER",
        "im2col_wide",
        {"lower": (-128,)},
        {"lower": (-129,)},
        not_in=("documented",),
    ),
    Neighbours(
        "LOWER_CORNER",
        "im2col_wide",
        {"lower": (-32768,)},
        {"lower": (-32769,)},
        not_in=("measured",),
    ),
    Neighbours("UPPER_CORNER", "im2col", {"upper": (-1, 127)}, {"upper": (-1, 128)}),
    Neighbours(
        "UPPER_CORNER",
        "im2col",
        {"upper": (0, 0, 15)},
        {"upper": (0, 0, 16)},
        same={
            "dims": (32, 14, 14, 14, 2),
            "strides": (64, 896, 12544, 175616),
            "elem_strides": (1,) * 5,
            "lower": (0, 0, 0),
        },
    ),
    Neighbours(
        "UPPER_CORNER",
        "im2col",
        {"upper": (32767,)},
        {"upper": (32768,)},
        same={"dims": (32, 14, 2), "strides": (64, 896), "elem_strides": (1,) * 3, "lower": (0,)},
    ),
    Neighbours(
        "UPPER_CORNER", "im2col_wide", {"upper": (127,)}, {"upper": (128,)}, not_in=("documented",)
    ),
    Neighbours("BOUNDING_BOX", "im2col", {"upper": (-14, -1)}, {"upper": (-15, -1)}),
    Neighbours("BOUNDING_BOX", "im2col_wide", {"upper": (-14,)}, {"upper": (-15,)}),
    Neighbours(
        "WIDE_DIMS",
        "im2col_wide",
        {"dims": (64, 14, (1 << 31) - 1, 2)},
        {"dims": (64, 14, 1 << 31, 2)},
        same={"strides": (128, 1792, 0)},
    ),
    Neighbours("CHANNELS", "im2col", {"channels": 256}, {"channels": 257}),
    Neighbours("CHANNELS", "im2col", {"channels": 8}, {"channels": 0}),
    Neighbours(
        "CHANNELS_16B", "im2col", {"channels": 8}, {"channels": 9}, same={"target": "sm_90"}
    ),
    Neighbours(
        "CHANNELS_16B", "im2col_wide", {"channels": 8}, {"channels": 9}, not_in=("documented",)
    ),
    Neighbours("PIXELS", "im2col", {"pixels": 1024}, {"pixels": 1025}),
    Neighbours("PIXELS", "im2col", {"pixels": 1}, {"pixels": 0}),
    Neighbours(
        "COLUMN_BYTES",
        "im2col",
        {"pixels": 456},
        {"pixels": 457},
        same={"channels": 256, "target": "sm_90"},
    ),
    # split_inner and ragged
    Neighbours(
        "SPLIT_SWIZZLE",
        "tiled",
        {"swizzle": "none"},
        {"swizzle": NO_SWIZZLE},
        make_only=True,
        same={"split_inner": True},
    ),
    Neighbours(
        "SPLIT_INTERLEAVE",
        "tiled",
        {},
        {"split_inner": True},
        make_only=True,
        same=INTERLEAVED | {"interleave": "bytes16", "box": (16, 2, 1)},
    ),
    Neighbours(
        "SPLIT_RANK",
        "tiled",
        {
            "dims": (64, 32, 8, 2),
            "strides": (256, 8192, 65536),
            "box": (16, 1, 1, 1),
            "elem_strides": (1,) * 4,
        },
        {
            "dims": (64, 32, 8, 2, 2),
            "strides": (256, 8192, 65536, 131072),
            "box": (16, 1, 1, 1, 1),
            "elem_strides": (1,) * 5,
        },
        make_only=True,
        same={"split_inner": True},
    ),
    Neighbours(
        "SPLIT_RANK",
        "tiled",
        {"dims": (64, 32), "strides": (256,), "box": (16, 8), "elem_strides": (1, 1)},
        {},
        make_only=True,
        same={"split_inner": True, "ragged": 0},
    ),
    Neighbours(
        "SPLIT_DTYPE",
        "tiled",
        {},
        {"split_inner": True},
        make_only=True,
        same=FP4 | {"dims": (512, 32, 8), "box": (64, 8, 2), "swizzle": "bytes32"},
    ),
    Neighbours(
        "SPLIT_SPAN",
        "tiled",
        {},
        {"dims": (72, 32, 8)},
        make_only=True,
        same={"split_inner": True, "strides": (288, 9216)},
    ),
    Neighbours(
        "SPLIT_SPAN",
        "tiled",
        {"box": (32, 8, 2)},
        {"box": (24, 8, 2)},
        make_only=True,
        same={"split_inner": True},
    ),
    Neighbours(
        "SPLIT_STEP",
        "tiled",
        {"elem_strides": (1, 2, 1)},
        {"elem_strides": (2, 2, 1)},
        make_only=True,
        same={"split_inner": True},
    ),
    Neighbours(
        "RAGGED_RANK",
        "tiled",
        {},
        {
            "dims": (64, 32, 8, 2),
            "strides": (256, 8192, 65536),
            "box": (16, 8, 2, 1),
            "elem_strides": (1,) * 4,
        },
        make_only=True,
        same={"ragged": 0},
    ),
    Neighbours("RAGGED_DIM", "tiled", {"ragged": 1}, {"ragged": 2}, make_only=True),
    Neighbours("RAGGED_DIM", "tiled", {"ragged": -3}, {"ragged": -4}, make_only=True),
    Neighbours(
        "RAGGED_STRIDE",
        "tiled",
        {"strides": (256, (1 << 36) - 16)},
        {"strides": (256, 1 << 36)},
        make_only=True,
        same={"ragged": 0, "dims": (64, 2, 2), "box": (16, 2, 2)},
    ),
)

CASES = [
    pytest.param(n, door, id=f"{n.rule}-{door}-{number}")
    for number, n in enumerate(NEIGHBOURS)
    for door in n.doors()
]


@pytest.mark.parametrize(("neighbours", "door"), CASES)
def test_a_rule_accepts_one_neighbour_and_refuses_the_other_alone(neighbours, door):
    holds, breaks = (find_violations(s.through(door)) for s in neighbours.specs())
    assert [v.rule for v in holds] == []
    assert [v.rule for v in breaks] == [neighbours.rule]


def test_every_rule_has_neighbours_in_every_set_that_it_belongs_to():
    shown = {(n.rule, door.rules) for n in NEIGHBOURS for door in n.doors()}
    asked = {
        (rule.id, rules)
        for rule in RULES
        for rules in rule.sets
        if any(kind in rule.kinds for kind in KINDS_OF_SETS[rules])
    }
    assert shown == asked


def test_the_neighbours_are_of_all_rules_and_of_no_others():
    assert {n.rule for n in NEIGHBOURS} == {rule.id for rule in RULES}


# -- what a user reads -----------------------------------------------------------------------------

VERBS = {
    ("tiled", False): tma.make_tma_descriptor,
    ("im2col", False): tma.make_im2col_descriptor,
    ("im2col_wide", False): tma.make_im2col_wide_descriptor,
    ("tiled", True): tma.driver_encode_tiled,
    ("im2col", True): tma.driver_encode_im2col,
    ("im2col_wide", True): tma.driver_encode_im2col_wide,
}
UNFIT = re.compile(
    r"\bNone\b(?!\])|Fraction|<|  | 1 (entries|bytes|elements|values|dimensions|pixels)\b|^\s|\s$"
)


@pytest.mark.parametrize(("neighbours", "door"), CASES)
def test_a_violation_names_argument_found_limit_fix_and_source(neighbours, door):
    (violation,) = find_violations(neighbours.specs()[1].through(door))
    assert violation.argument in inspect.signature(VERBS[door.kind, door.mirror]).parameters
    assert violation.limit.startswith("it must ")
    for text in (violation.found, violation.limit, violation.fix, violation.source):
        assert text
        assert not UNFIT.search(text), text
    for text in (violation.found, violation.limit, violation.fix):
        assert not text.endswith((".", ";", ",", ":")), text


@pytest.mark.parametrize(("neighbours", "door"), CASES)
def test_a_violation_speaks_the_words_of_the_call(neighbours, door):
    (violation,) = find_violations(neighbours.specs()[1].through(door))
    said = f"{violation.found} {violation.limit} {violation.fix}"
    ours = r"box_sizes|elem_strides|oobfill|interleave_layout|tensor\.|x\."
    theirs = r"box_dim|element_strides|oob_fill|global_"
    assert not re.search(ours if door.mirror else theirs, said), said


def test_rows_need_only_rows_before_them_and_arguments():
    arguments = {"target"} | {p for v in VERBS.values() for p in inspect.signature(v).parameters}
    known: set[str] = set()
    for rule, reads in zip(RULES, READS, strict=True):
        assert {*rule.prerequisites, *rule.prerequisites_at_entry} <= known, rule.id
        assert set(reads) <= arguments, rule.id
        assert set(rule.reads) <= set(reads), rule.id
        known.add(rule.id)


def test_ids_are_unique_and_steps_ascend():
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert [rule.step for rule in RULES] == sorted(rule.step for rule in RULES)


def test_rules_and_geometry_agree_on_the_span_of_a_swizzle():
    spans = {swizzle: spec.span_bytes for swizzle, spec in SWIZZLES.items() if swizzle}
    assert spans == {swizzle: SWIZZLE_SPAN_BYTES[swizzle] for swizzle in spans}


@pytest.mark.parametrize("ragged", [-3, 1, 5])
def test_a_ragged_dimension_that_is_none_is_refused_beside_a_box_that_is_too_large(ragged):
    report = tma.check_tma_descriptor(
        np.zeros((512, 512)), (256, 256), ragged=ragged, rules="driver"
    )
    assert [v.rule for v in report.violations] == ["RAGGED_DIM", "BOX_BYTES"]
    assert report.violations[1].found == "the driver counts 524288 bytes for the box"
