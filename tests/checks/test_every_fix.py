"""Every fix is followed in torch, NumPy and JAX, on the tensors for which it is proposed.

The call after a fix is accepted, or breaks only rules that the first report also named.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from follow import PROSE, alternatives, follow
from laws import slow_if

import tma_dlpack as tma
from tma_dlpack.checks import RULES
from tma_dlpack.checks.fixes import faults_of
from tma_dlpack.tables.targets import Target

CHECKS = {
    "tiled": tma.check_tma_descriptor,
    "im2col": tma.check_im2col_descriptor,
    "im2col_wide": tma.check_im2col_wide_descriptor,
}
FRAMEWORKS = ("torch", "numpy", "jax")
Call = tuple[str, Any, dict[str, Any]]


def made(framework: str, shape: tuple[int, ...], dtype: str = "float16") -> Any:
    """Return a tensor of small numbers; None if the framework does not have the dtype."""
    numbers = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 97)
    if framework == "numpy":
        if not hasattr(np, dtype):
            return None
        numbers = numbers.astype(dtype)
        room = np.zeros(numbers.nbytes + 64, np.uint8)  # room for alignment to 64 bytes
        room = room[-room.ctypes.data % 64 :][: numbers.nbytes].view(dtype).reshape(shape)
        room[...] = numbers
        return room
    module = pytest.importorskip("jax.numpy" if framework == "jax" else "torch")
    if not hasattr(module, dtype) or (framework == "jax" and dtype in ("float64", "complex128")):
        return None
    if framework == "jax":
        return module.asarray(numbers).astype(getattr(module, dtype))
    return module.from_numpy(numbers).to(getattr(module, dtype))


def order(tensor: Any, dims: tuple[int, ...]) -> Any:
    return tensor.permute(dims) if hasattr(tensor, "permute") else tensor.transpose(dims)


def repeated(tensor: Any, count: int) -> Any:
    """Return a tensor whose rows share memory; None if the framework would copy the row."""
    if isinstance(tensor, np.ndarray):
        return np.broadcast_to(tensor, (count, *tensor.shape[1:]))
    return tensor.expand(count, *tensor.shape[1:]) if hasattr(tensor, "expand") else None


def column(corner: int = 0, **options: Any) -> dict[str, Any]:
    corners = {f"pixel_box_{which}_corner": (corner, corner) for which in ("lower", "upper")}
    return corners | {"channels_per_pixel": 32, "pixels_per_column": 16} | options


def wide(**options: Any) -> dict[str, Any]:
    return {
        "lower_corner_width": 0, "upper_corner_width": 0, "channels_per_pixel": 32,
        "pixels_per_column": 16, "target": "sm_100",
    } | options  # fmt: skip


OLD = Target((8, 0))
SMALL = Target((9, 0), 16_383)

#: Calls for a tensor of a shape and dtype, with an operation that changes the tensor first.
LISTED: list[tuple[str, tuple[int, ...], str, Any, dict[str, Any]]] = [
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "target": OLD}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "swizzle": "bytes128_atom_32B"}),
    ("tiled", (64, 64), "uint8", None, {"box_sizes": (16, 32), "data_type": "16U4_ALIGN8B"}),
    ("im2col_wide", (2, 14, 14, 32), "float16", None, wide(target="sm_90")),
    ("tiled", (2, 1, 2, 2, 2, 16), "float16", None, {"box_sizes": (1, 1, 1, 1, 2, 16)}),
    ("tiled", (), "float32", None, {"box_sizes": ()}),
    ("im2col", (14, 32), "float16", None, {
        "pixel_box_lower_corner": (0,), "pixel_box_upper_corner": (0,),
        "channels_per_pixel": 32, "pixels_per_column": 8}),
    ("tiled", (16, 64), "float16", None, {"box_sizes": (8, 8), "interleave_layout": "bytes16"}),
    ("tiled", (0, 64), "float16", None, {"box_sizes": (16, 16)}),
    ("tiled", (64, 68), "float16", lambda x: x[:, 4:], {"box_sizes": (16, 16)}),
    ("tiled", (64, 67), "float16", lambda x: x[:, 3:], {"box_sizes": (16, 16)}),
    ("tiled", (8, 4096), "bfloat16", lambda x: x[:, 3:], {"box_sizes": (8, 64)}),
    ("tiled", (64, 64), "int16", None, {"box_sizes": (16, 16)}),
    ("tiled", (64, 64), "int8", None, {"box_sizes": (16, 3)}),
    ("tiled", (64, 16), "complex64", None, {"box_sizes": (16, 16)}),
    ("tiled", (64, 16), "complex128", None, {"box_sizes": (16, 16)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "data_type": "FLOAT32"}),
    ("tiled", (64, 64), "uint8", None, {"box_sizes": (16, 16), "oobfill": "nan"}),
    ("tiled", (64, 64), "float8_e5m2", None, {"box_sizes": (16, 16), "oobfill": "nan"}),
    ("tiled", (8, 80), "uint8", None, {
        "box_sizes": (8, 64), "data_type": "16U4_ALIGN16B", "target": "sm_100"}),
    ("tiled", (8, 64), "uint8", None, {
        "box_sizes": (8, 32), "data_type": "16U4_ALIGN16B", "target": "sm_100"}),
    ("tiled", (8, 96), "uint8", None, {
        "box_sizes": (8, 128), "data_type": "16U6_ALIGN16B", "interleave_layout": "bytes16",
        "target": "sm_100"}),
    ("tiled", (8, 64), "uint8", None, {
        "box_sizes": (8, 128), "data_type": "16U4_ALIGN16B", "swizzle": "bytes32",
        "target": "sm_100"}),
    ("tiled", (1, 64), "float16", lambda x: repeated(x, (1 << 32) + 1), {"box_sizes": (16, 16)}),
    ("tiled", (64, 64), "float16", lambda x: x.T, {"box_sizes": (16, 8)}),
    ("tiled", (4096, 128), "bfloat16", lambda x: x.T, {
        "box_sizes": (64, 128), "swizzle": "bytes128"}),
    ("tiled", (64, 37), "float16", lambda x: x.T, {"box_sizes": (16, 8)}),
    ("tiled", (64, 64), "float16", lambda x: x[:, ::2], {"box_sizes": (16, 8)}),
    ("tiled", (64, 62), "float16", lambda x: x[:, ::2], {"box_sizes": (16, 8)}),
    ("tiled", (2, 32, 8, 64), "float16", lambda x: order(x, (0, 2, 1, 3)), {
        "box_sizes": (1, 1, 16, 64), "swizzle": "bytes128"}),
    ("tiled", (4, 1733), "float16", None, {"box_sizes": (4, 64)}),
    ("tiled", (4, 16, 63), "float32", None, {"box_sizes": (1, 4, 16)}),
    ("tiled", (4, 16, 68), "float32", None, {
        "box_sizes": (1, 4, 8), "interleave_layout": "bytes32", "swizzle": "bytes32"}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 96), "split_inner": True}),
    ("tiled", (4, 16, 64), "float16", None, {
        "box_sizes": (1, 16, 64), "split_inner": True, "swizzle": "bytes128",
        "interleave_layout": "bytes16"}),
    ("tiled", (2, 2, 2, 8, 64), "float16", None, {
        "box_sizes": (1, 1, 1, 8, 64), "split_inner": True, "swizzle": "bytes128"}),
    ("tiled", (8, 64), "uint8", None, {
        "box_sizes": (8, 32), "split_inner": True, "swizzle": "bytes32", "target": "sm_100",
        "data_type": "16U4_ALIGN8B"}),
    ("tiled", (64, 104), "float16", None, {
        "box_sizes": (16, 64), "split_inner": True, "swizzle": "bytes128"}),
    ("tiled", (64, 128), "float16", None, {
        "box_sizes": (16, 96), "split_inner": True, "swizzle": "bytes128"}),
    ("tiled", (64, 128), "float16", None, {
        "box_sizes": (16, 64), "split_inner": True, "swizzle": "bytes128",
        "elem_strides": (1, 2), "rules": "driver"}),
    ("tiled", (64,), "float16", None, {"box_sizes": (16,), "ragged": 0}),
    ("tiled", (2, 2, 8, 64), "float16", None, {"box_sizes": (1, 1, 8, 16), "ragged": 0}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "ragged": 1}),
    ("tiled", (4, 16, 64), "float16", None, {
        "box_sizes": (1, 4, 16), "interleave_layout": "bytes32"}),
    ("im2col_wide", (2, 14, 14, 32), "float16", None, wide(swizzle="none")),
    ("im2col", (2, 14, 14, 32), "float16", None, column(-200)),
    ("im2col", (2, 14, 14, 32), "float16", None, column() | {"pixel_box_lower_corner": (0,)}),
    ("im2col", (2, 14, 14, 32), "float16", None, column() | {"pixel_box_upper_corner": (0,)}),
    ("im2col", (2, 14, 14, 32), "float16", None, column() | {"pixel_box_upper_corner": (-14, 0)}),
    ("im2col", (2, 14, 14, 32), "float16", None, column(channels_per_pixel=300)),
    ("im2col", (2, 14, 14, 32), "float16", None, column(channels_per_pixel=20)),
    ("im2col", (2, 14, 14, 32), "float16", None, column(pixels_per_column=2000)),
    ("im2col", (2, 14, 14, 256), "float32", None, column(
        channels_per_pixel=256, pixels_per_column=1000)),
    ("im2col", (2, 32, 14, 14), "float16", None, column()),
    ("im2col", (2, 14, 14, 32), "float16", lambda x: order(x, (0, 3, 1, 2)), column()),
    ("im2col", (2, 14, 14, 32), "float16", None, column(swizzle="bytes32")),
    ("im2col", (2, 14, 14, 33), "float16", None, column()),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16,)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (1, 16, 16)}),
    ("tiled", (512, 64), "float16", None, {"box_sizes": (300, 64)}),
    ("tiled", (64, 512), "uint8", None, {"box_sizes": (8, 512)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (0, 64)}),
    ("tiled", (50, 64), "float16", None, {"box_sizes": (64, 64)}),
    ("tiled", (1, 4096), "float16", None, {"box_sizes": (64, 64), "swizzle": "bytes128"}),
    ("tiled", (4096, 64), "float16", None, {"box_sizes": (64, 128)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 5)}),
    ("tiled", (4, 4, 64), "uint8", None, {
        "box_sizes": (1, 4, 4), "interleave_layout": "bytes16"}),
    ("tiled", (8, 64, 4, 128), "float16", None, {
        "box_sizes": (1, 64, 1, 128), "swizzle": "bytes128"}),
    ("tiled", (64, 120), "float16", None, {"box_sizes": (16, 120), "swizzle": "bytes128"}),
    ("tiled", (64, 64), "float32", None, {"box_sizes": (16, 16), "swizzle": "bytes32"}),
    ("tiled", (256, 256), "float32", None, {"box_sizes": (256, 256)}),
    ("tiled", (64, 256), "float32", None, {"box_sizes": (64, 256), "target": SMALL}),
    ("tiled", (4, 256, 256), "float32", None, {"box_sizes": (1, 256, 256), "rules": "driver"}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "elem_strides": (1,)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (64, 16), "elem_strides": (9, 1)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (64, 16), "elem_strides": (0, 1)}),
    ("tiled", (2, 64), "float16", None, {"box_sizes": (2, 16), "elem_strides": (4, 1)}),
    ("tiled", (64, 64), "float16", None, {
        "box_sizes": (16, 16), "shape": (64, 64), "strides": (65, 1)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "strides": (64, 2)}),
    ("tiled", (64, 64), "float16", None, {"box_sizes": (16, 16), "offset": 3}),
    ("tiled", (4096,), "float16", None, {
        "box_sizes": (16, 16), "shape": (64, 64), "strides": (16, 1)}),
]  # fmt: skip


def given_of(kind: str, tensor: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in a report's form, defaults included."""
    return dict(CHECKS[kind](tensor, **given)._given)


def followed(kind: str, weights: Any, given: dict[str, Any]) -> list[tuple[str, str]]:
    """Follow every alternative of every fix; return (rule, result) of each alternative."""
    report = CHECKS[kind](weights, **given)
    named = {v.rule for v in report.violations}
    named |= {f.rule.id for f in faults_of(report._request_of(report._given))}  # fixed by another
    given = given_of(kind, weights, given)
    results = []
    for violation in report.violations:
        for text in alternatives(violation.fix):
            done = follow(text, violation, weights, "weights", given)
            if done is None:
                results.append((violation.rule, "not by a test"))
                continue
            tensor, options = done
            after = CHECKS[kind](tensor, **options)
            left = {v.rule for v in after.violations}
            told = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", text.partition("which then breaks")[2]))
            assert left <= named | told, (text, options, str(report), str(after))
            assert violation.rule not in left or _entries(report, violation.rule) > 1, text
            results.append((violation.rule, "announced" if left else "accepted"))
    fixed = report.fixed()
    if fixed is not None:
        assert CHECKS[kind](weights, **fixed).ok
        changed = report.changes()
        assert fixed == given | changed
    return results


def _entries(report: tma.Report, rule: str) -> int:
    return sum(v.rule == rule for v in report.violations)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_fix_of_a_listed_call_works_when_it_is_followed(framework):
    reached: Counter[str] = Counter()
    for kind, shape, dtype, view, given in LISTED:
        tensor = made(framework, shape, dtype)
        if tensor is not None and view is not None and not (view_copies(framework, view)):
            tensor = view(tensor)
        if tensor is None:
            continue
        for rule, _ in followed(kind, tensor, given):
            reached[rule] += 1
    unreached = {rule.id for rule in RULES} - set(reached)
    assert unreached == OF_NO_TENSOR | LACKING[framework]


def view_copies(framework: str, view: Any) -> bool:
    """Return whether JAX makes a copy, because its arrays are always row-major."""
    return framework == "jax"


#: Rules that no tensor in memory breaks: strides of 2^34 elements and more, images of 2^31 rows.
OF_NO_TENSOR = {"ADDRESS_RANGE", "STRIDE_RANGE", "WIDE_DIMS", "RAGGED_STRIDE"}
#: Features that a framework lacks: float8, views that are not row-major, empty tensors at address
#: 0.
LACKING = {
    "torch": set(),
    "numpy": {"OOB_NAN_FLOAT8", "ADDRESS_NULL"},
    "jax": {"ADDRESS_NULL"},
}

# -- at random -------------------------------------------------------------------------------------

_DTYPES = ("uint8", "float16", "float16", "bfloat16", "float32", "int32", "int8", "float64")


def call_at_random(rng: random.Random, framework: str) -> Call | None:
    rank = rng.choice((1, 2, 2, 2, 3, 3, 4))
    most = {1: 600, 2: 300, 3: 40, 4: 16}[rank]
    shape = tuple(
        rng.choice([n for n in (1, 2, 3, 5, 8, 16, 32, 33, 64, 100, 128, 256, 300) if n <= most])
        for _ in range(rank)
    )
    tensor = made(framework, shape, rng.choice(_DTYPES))
    if tensor is None:
        return None
    if framework != "jax":
        how = rng.random()
        if how < 0.15 and rank > 1:
            dims = list(range(rank))
            rng.shuffle(dims)
            tensor = order(tensor, tuple(dims))
        elif how < 0.3 and shape[-1] > 8:
            tensor = tensor[..., rng.choice((1, 3, 4, 8)) :]
        elif how < 0.4:
            tensor = tensor[..., :: rng.choice((2, 3))]
    shape = tuple(tensor.shape)
    sizes = (1, 2, 8, 16, 32, 64)
    wild = (0, 3, 20, 100, 128, 256, 257)
    box = tuple(
        rng.choice(wild) if rng.random() < 0.15 else min(n, rng.choice(sizes)) for n in shape
    )
    if rng.random() < 0.8:
        box = (*box[:-1], rng.choice((16, 32, 64)))
    given: dict[str, Any] = {
        "box_sizes": box,
        "swizzle": rng.choice(
            ("none", "none", "bytes32", "bytes64", "bytes128", "bytes128", "bytes128_atom_32B")
        ),
    }
    if rng.random() < 0.05:
        given["elem_strides"] = tuple(rng.choice((1, 1, 2, 9, 0)) for _ in shape)
    if rng.random() < 0.05:
        given["interleave_layout"] = rng.choice(("bytes16", "bytes32"))
    if rng.random() < 0.1:
        given["oobfill"] = "nan"
    if rng.random() < 0.1:
        given["split_inner"] = True
    if rng.random() < 0.05:
        given["ragged"] = rng.choice((0, 1, -1, 3))
    if rng.random() < 0.2:
        given["rules"] = "driver"
    if rng.random() < 0.05:
        given["box_sizes"] = box[1:] or (1, *box)
    return "tiled", tensor, given


@pytest.mark.parametrize("framework", [slow_if(name == "jax", name) for name in FRAMEWORKS])
def test_every_fix_of_a_call_at_random_works_when_it_is_followed(framework):
    rng = random.Random(framework)
    led: Counter[str] = Counter()
    for _ in range(120):
        call = call_at_random(rng, framework)
        if call is not None:
            led.update(result for _, result in followed(*call))
    assert led["accepted"] > 25
    assert led["announced"] > 100  # calls with several violations each
    assert led["not by a test"] == 0


def test_what_no_test_follows_is_prose_that_a_row_has():
    texts = " ".join(str(rule.fix) for rule in RULES if isinstance(rule.fix, str))
    assert any(prose in texts for prose in PROSE)


def test_a_step_whose_argument_a_later_step_changes_again_is_not_told():
    x = np.zeros((50, 128), np.int8)
    report = tma.check_tma_descriptor(x, (64, 3), data_type="FLOAT16", swizzle="bytes128")
    told = report.violations[0].fix.split("; or ")[0]
    assert told.startswith("pass data_type='UINT8'")
    assert "omit data_type" not in told
