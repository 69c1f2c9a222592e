"""Every printed fix of every function is run on the call that was refused.

A call is drawn at random. If the call is refused, each alternative of each fix is followed
literally, with the same function. The next call is accepted, or its refusal was foreseeable: the
same report or the text of the fix names the broken rule, or the rule could be checked only after an
argument, or the type of an operand, had been corrected.
"""

from __future__ import annotations

import ast
import dataclasses
import random
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from laws import many, slow_if

import tma_dlpack as tma
from tma_dlpack.checks.fixes import faults_of
from tma_dlpack.cli.main import main
from tma_dlpack.consumer.refusals import ROWS as OPERAND_ROWS

sys.path.insert(0, str(Path(__file__).with_name("checks")))
from follow import alternatives, follow

Given = dict[str, Any]


class Case(NamedTuple):
    """A call: the function, its first argument, and the others by name."""

    call: Callable[..., Any]
    subject: Any
    given: Given

    def refusal(self) -> tma.TmaPreconditionError | None:
        try:
            self.call(self.subject, **self.given)
        except tma.TmaPreconditionError as error:
            return error
        return None


# -- what is called --------------------------------------------------------------------------------


def make(x: Any, **given: Any) -> Any:
    return tma.make_tma_descriptor(x, **given)


def check(x: Any, **given: Any) -> None:
    tma.check_tma_descriptor(x, **given).raise_if_refused()


def batch(x: Any, **given: Any) -> Any:
    return tma.make_tma_descriptors([x, x], **given)


def conv(x: Any, **given: Any) -> Any:
    return tma.make_conv_descriptor(x, **given)


def matrix(x: Any, **given: Any) -> Any:
    return tma.matrix_descriptor(x, **given)


def load(x: Any, **given: Any) -> Any:
    return tma.load_tile(x, **given)


def suggest(x: Any, **given: Any) -> Any:
    return tma.suggest(x, **given)


# -- random calls ----------------------------------------------------------------------------------


def sometimes(rng: random.Random, share: float, **choices: tuple[Any, ...]) -> Given:
    return {name: rng.choice(of) for name, of in choices.items() if rng.random() < share}


def array(rng: random.Random, rank: int) -> Any:
    shape = tuple(rng.choice((1, 2, 8, 16, 33, 64, 100, 128)[: 8 if rank < 3 else 5])
                  for _ in range(rank))  # fmt: skip
    x = np.zeros(shape, rng.choice((np.float16, np.float32, np.uint8, np.int8, np.int16)))
    how = rng.random()
    if how < 0.15:
        return x.T
    return x[..., rng.choice((1, 2)) :] if how < 0.3 else x


def tiled_case(rng: random.Random, call: Callable[..., Any]) -> Case:
    rank = rng.choice((1, 2, 2, 3))
    x = array(rng, rank)
    box = tuple(rng.choice((1, 3, 8, 16, 32, 64, 300)) for _ in range(rank))
    wrong = ("8,8", (8.0,) * rank, 64, None, box[1:], (1, *box), (-1,) * rank)
    given: Given = {"box_sizes": rng.choice(wrong) if rng.random() < 0.2 else box}
    given |= sometimes(
        rng, 0.2,
        swizzle=("bytes128", "bytes64", "byte128", "Swizzle<3,4,3>", 9),
        elem_strides=((2,) * rank, 2, (9,) * rank),
        interleave_layout=("bytes16", "bytes32"),
        data_type=("FLOAT16", "UINT8", "u4"),
        rules=("driver", "Driver", "cuda"),
        split_inner=(True, 1, "no"),
        allow=("BOX_IN_SHAPE", ("BOX_IN_SHAP",), ("STRIDE_UNIQUE", "X"), 3),
        oobfill=("nan", "zero"),
        ragged=(0, -1, True, 3),
    )  # fmt: skip
    return Case(call, x, given)


def conv_case(rng: random.Random, call: Callable[..., Any]) -> Case:
    shape = tuple(rng.choice(of) for of in ((2, 4), (7, 14, 30), (7, 14), (16, 32, 20, 48)))
    x = np.zeros(shape, rng.choice((np.float16, np.float32, np.int8)))
    x = x.transpose(rng.choice(((0, 1, 2, 3), (0, 1, 2, 3), (0, 3, 1, 2))))
    given: Given = {
        "kernel_size": rng.choice((3, 1, (3, 3), (5, 3), (3,), "3", 40)),
        "channels_per_pixel": rng.choice((16, 32, 20, 300, 0)),
        "pixels_per_column": rng.choice((16, 128, 2000)),
    }
    given |= sometimes(
        rng, 0.3,
        stride=(1, 2, 9, "a"), padding=(0, 1, (1, 1), -1, ((0, 1), (1, 0))), dilation=(1, 2, 0),
        swizzle=("bytes128", "bytes64", "b"), allow=("STRIDE_UNIQUE", "X"),
    )  # fmt: skip
    return Case(call, x, given)


def map_of(rng: random.Random) -> tuple[Any, Given]:
    while True:
        x = np.zeros((64, 256), rng.choice((np.float16, np.float32, np.uint8)))
        made = {"box_sizes": (rng.choice((8, 16, 64, 3)), rng.choice((8, 16, 32, 64, 128)))}
        made |= {"swizzle": rng.choice(("none", "bytes32", "bytes64", "bytes128"))}
        if tma.check_tma_descriptor(x, **made).ok:
            return x, made


def matrix_case(rng: random.Random, call: Callable[..., Any]) -> Case:
    x, made = map_of(rng)
    given = sometimes(
        rng, 0.4,
        major=("K", "MN", "x", 0), smem_address=(0, 1024, 16, -1, "a"),
        instruction=("wgmma", "tcgen05", "mma"),
    )  # fmt: skip
    return Case(call, tma.make_tma_descriptor(x, **made), given)


def load_case(rng: random.Random, call: Callable[..., Any]) -> Case:
    x, made = map_of(rng)
    given: Given = {"coords": rng.choice(((0, 0), (0,), (0, 3), (1.5, 0), "00", (0, 1 << 40)))}
    given |= sometimes(
        rng, 0.3,
        backend=("simulator", "cpu", 3), smem_offset=(0, 128, 64, 3), im2col_offsets=(None, (0, 0)),
    )  # fmt: skip
    return Case(call, tma.make_tma_descriptor(x, **made), given)


def suggest_case(rng: random.Random, call: Callable[..., Any]) -> Case:
    x = array(rng, rng.choice((2, 2, 3)))
    rank = len(x.shape)
    tile = rng.choice(((64,) * rank, (1, *(64,) * rank), 64, "64", (64, 3), (0, 64), None))
    given = sometimes(
        rng, 0.3,
        reader=("wgmma", "mma", "threads", None), major=("K", "MN", "x"), stages=(1, 0, "2"),
        smem_bytes=(None, -1, 1 << 16), allow=("X",),
    )  # fmt: skip
    return Case(call, x, {"tile": tile} | given)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Case]]] = {
    "make": (make, tiled_case),
    "check": (check, tiled_case),
    "batch": (batch, tiled_case),
    "conv": (conv, conv_case),
    "matrix_descriptor": (matrix, matrix_case),
    "load_tile": (load, load_case),
    "suggest": (suggest, suggest_case),
}

# -- what is followed ------------------------------------------------------------------------------

_VALUE = r"\([^()]*(?:\([^()]*\)[^()]*)*\)|'[^']*'|-?0x[\da-f]+|-?\d+|True|False|None"
_OPTION = re.compile(rf"\b([a-z]\w*)=({_VALUE})")
#: Fixes that a test cannot follow: another GPU, another map or another algorithm.
ELSEWHERE = (
    "move the map, tensor_map.with_address",
    "load tiles of an ordinary map",
    "no window fits: pass larger images",
    "pad a copy of the images",
    "and use one output pixel in",
    "transpose the tensor in global memory",
    "with a box that is wide enough",
    "a single element needs no copy",
    "make the map for sm_100",
    "build for sm_100",
    "which then breaks",
)


def done(case: Case, violation: Any, text: str) -> list[Case]:
    """Return the calls after a fix. A list of choices has one call per choice."""
    if violation.rule == "ARGUMENT" and text.startswith(("choose one of", "be one of")):
        names = re.findall(r"(\w+) \(\d+\)", text) or re.findall(r"'([^']+)'", text)
        return [case._replace(given=case.given | {violation.argument: n}) for n in names[:4]]
    if text.startswith("choose who reads"):
        return [case._replace(given=case.given | {"reader": r}) for r in ("wgmma", None)]
    if text.startswith("make the map with") or violation.rule == "MATRIX_TYPE":
        return [case._replace(subject=remade(case.subject, part)) for part in maps_of(text)]
    if said := re.match(r"pass (?:its extents row-major, such as|a tuple of ints, such as) "
                        rf"({_VALUE})(?:; did you mean ({_VALUE})\?)?", text):  # fmt: skip
        values = [ast.literal_eval(value) for value in said.groups() if value]
        return [case._replace(given=case.given | {violation.argument: v}) for v in values]
    if said := re.match(r"pass (?:\(H, W\)|\d+ integers)", text):
        value = (0, 0) if violation.argument in ("coords", "padding") else (1, 1)
        return [case._replace(given=case.given | {violation.argument: value})]
    if said := re.match(r"use coords (\(.*?\))", text):
        return [case._replace(given=case.given | {"coords": ast.literal_eval(said[1])})]
    if text.startswith("pass a tuple or list of integers"):
        return [case._replace(given=case.given | {"coords": (0, 0)})]
    if said := re.match(r"omit (\w+)(?:; did you mean '(\w+)'\?)?$", text):
        if said[1] in case.given:
            return [case._replace(given={k: v for k, v in case.given.items() if k != said[1]})]
        values = case.given["allow"]
        listed = [values] if isinstance(values, str) else list(values)
        listed = [said[2] if v == said[1] and said[2] else v for v in listed]
        listed = [v for v in listed if v != said[1]]
        return [case._replace(given=case.given | {"allow": tuple(listed)})]
    plain = {name: ast.literal_eval(value) for name, value in _OPTION.findall(text)}
    if violation.rule == "ARGUMENT" or plain.keys() & {"coords", "smem_offset", "smem_address"}:
        assert plain, text
        return [case._replace(given=case.given | plain)]
    if case.call is batch and "numpy.asarray" in text:
        return []
    followed = follow(text, violation, case.subject, "x", defaults(case))
    return [] if followed is None else [Case(case.call, *followed)]


def defaults(case: Case) -> Given:
    """Return the arguments, with a default for those that a fix may change."""
    return {"elem_strides": None, **case.given} if "box_sizes" in case.given else dict(case.given)


def maps_of(text: str) -> list[Given]:
    """Return the arguments of each map that a fix of `matrix_descriptor` names."""
    parts = re.split(r"; or, to do without a swizzle, with ", text)
    return [{name: ast.literal_eval(v) for name, v in _OPTION.findall(part)} for part in parts]


def remade(tensor_map: Any, change: Given) -> Any:
    given = {
        "box_sizes": tensor_map.box_sizes,
        "swizzle": tensor_map.swizzle.name,
        "data_type": tensor_map.data_type,
    }
    return tma.make_tma_descriptor(tensor_map.tensor, **given | change)


def mended_by_another(case: Case) -> set[str]:
    """Return the rules that a call breaks and that the fix of a reported violation fixes too."""
    if case.call not in (make, check, batch):
        return set()
    report = tma.check_tma_descriptor(case.subject, **case.given)
    request = report._request_of(report._given) if report._request_of else None
    return set() if request is None else {fault.rule.id for fault in faults_of(request)}


def problems(case: Case, counts: Counter[str]) -> list[str]:
    """Follow every fix of a refused call; return the failures."""
    refused = case.refusal()
    if refused is None:
        counts["accepted at once"] += 1
        return []
    found = []
    announced = {v.rule for v in refused.violations} | mended_by_another(case)
    announced |= {row.id for row in OPERAND_ROWS if not announced.isdisjoint(row.prerequisites)}
    unread = announced & {"ARGUMENT", "TENSOR_TYPE"}
    for violation in refused.violations:
        found_here = violation.found.removeprefix("tensors[0]: ")
        violation = dataclasses.replace(violation, found=found_here)
        for text in alternatives(violation.fix):
            if any(prose in text for prose in ELSEWHERE):
                counts["elsewhere"] += 1
                continue
            try:
                nexts = done(case, violation, text)
            except Exception as error:
                found.append(f"{violation.rule}: {text!r} cannot be followed: {error!r}")
                continue
            for one in nexts:
                counts["followed"] += 1
                error = one.refusal()
                left = set() if error is None else {v.rule for v in error.violations}
                told = set(re.findall(r"\b[A-Z][A-Z0-9_]{3,}\b", text))
                same = error is not None and any(
                    (v.rule, v.found.removeprefix("tensors[0]: ")) == (violation.rule, found_here)
                    for v in error.violations
                )
                if same or (left - announced - told and not unread):
                    found.append(f"{violation.rule}: {text!r} leads to {sorted(left)}")
    return found


# -- the tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [slow_if(n > 500, n) for n in (150, many(3000))])
@pytest.mark.parametrize("name", CASES)
def test_every_printed_fix_of_a_random_call_is_accepted_or_leads_to_what_was_announced(name, count):
    rng = random.Random(name)
    call, draw = CASES[name]
    counts: Counter[str] = Counter()
    wrong = []
    for _ in range(count):
        case = draw(rng, call)
        wrong += [(case.given, getattr(case.subject, "shape", ""), p)
                  for p in problems(case, counts)]  # fmt: skip
    assert wrong == []
    assert counts["followed"] > count / 4, counts


FLAGS = {
    "--box": ("8,64", "64,64", "300,64", "64,3", "16", "1,8,64"),
    "--swizzle": ("bytes128", "bytes64", "none"),
    "--dtype": ("float16", "int8", "float32", "uint8"),
    "--shape": ("64,64", "64,1733", "7,64", "4,64,64", "4096,64"),
}


def test_the_command_line_that_check_prints_is_accepted(capsys):
    rng, ran = random.Random(7), 0
    for _ in range(150):
        words = [f"{flag}={rng.choice(values)}" for flag, values in FLAGS.items()]
        status = main(["check", *words])
        printed = capsys.readouterr().out
        if status == 0 or "accepted:\n" not in printed:
            continue
        line = printed.partition("accepted:\n")[2].strip().splitlines()[0]
        accepted = shlex.split(line)
        ran += 1
        assert main(accepted[accepted.index("check") :]) == 0, (words, line, printed)
        capsys.readouterr()
    assert ran > 50


@pytest.mark.parametrize(
    ("function", "given", "meant"),
    [
        (tma.make_tma_descriptor, {"box": (8, 64)}, "box_sizes"),
        (tma.make_tma_descriptor, {"boxsizes": (8, 64)}, "box_sizes"),
        (tma.make_tma_descriptors, {"boxsizes": (8, 64)}, "box_sizes"),
    ],
)
def test_a_wrong_keyword_is_answered_with_the_right_one(function, given, meant):
    x = np.zeros((64, 64), np.float16)
    subject = [x] if function is tma.make_tma_descriptors else x
    with pytest.raises(TypeError, match=f"did you mean {meant}"):
        function(subject, **given)
    assert function(subject, **{meant: next(iter(given.values()))})
