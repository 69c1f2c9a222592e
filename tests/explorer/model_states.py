"""Requests for the page's model on existing tensors, and Python's results for these requests.

`judged` draws any request of tests/random_requests.py. Most of these requests are refused. `copied`
draws a request on a small tensor whose words all differ, and repairs the request, so that the
request has bytes and a tile.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from random_requests import request_at_random

import tma_dlpack as tma
from tma_dlpack import geometry
from tma_dlpack.checks import report as reports
from tma_dlpack.checks.call import read_call
from tma_dlpack.checks.fixes import Answer, faults_of
from tma_dlpack.checks.report import find_violations
from tma_dlpack.checks.request import Request
from tma_dlpack.dlpack import TensorView, as_tensor_view
from tma_dlpack.geometry import im2col_box
from tma_dlpack.make.build import check_view
from tma_dlpack.tables import bits
from tma_dlpack.tables.arguments import NO_SWIZZLE
from tma_dlpack.tables.dtypes import NAMED_DTYPES as DTYPES
from tma_dlpack.tables.errors import TmaError, TmaPreconditionError
from tma_dlpack.tables.targets import Target

DEFAULTS = {"allow": (), "shape": None, "strides": None, "offset": 0, "swizzle": NO_SWIZZLE}
CHECKS = {
    "tiled": tma.check_tma_descriptor,
    "im2col": tma.check_im2col_descriptor,
    "im2col_wide": tma.check_im2col_wide_descriptor,
}
MAKES = {
    "tiled": tma.make_tma_descriptor,
    "im2col": tma.make_im2col_descriptor,
    "im2col_wide": tma.make_im2col_wide_descriptor,
}
#: Words of 4 bytes that all differ. TFLOAT32 does not round them, because their low 13 bits are 0.
WORDS = np.arange(1 << 17, dtype=np.uint32) << 13
_STORAGE = np.zeros(WORDS.nbytes + 1024, np.uint8)
MEMORY = _STORAGE[-_STORAGE.ctypes.data % 1024 :][: WORDS.nbytes]
MEMORY[:] = WORDS.view(np.uint8)
LAYOUT = ("shape", "strides", "offset")  # of a request in JavaScript: those of the tensor


class State(NamedTuple):
    """A request in Python's form and in the page's form."""

    kind: str
    tensor: Any
    given: dict[str, Any]
    request: Request
    page: dict[str, Any]


def plain(value: Any) -> Any:
    """Convert a value to JSON's types; enum members become their names."""
    if isinstance(value, Target):
        pair = list(value.compute_capability)
        return {"compute_capability": pair, "max_smem_bytes": value.max_smem_bytes}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    return int(value) if isinstance(value, np.integer) else value


def request_of(kind: str, tensor: TensorView, given: dict[str, Any]) -> Request:
    """Read a call as `make_*` does."""
    defaults = DEFAULTS | ({"split_inner": False, "ragged": None} if kind == "tiled" else {})
    target = Target.of(given.get("target") or "sm_90")
    return read_call(
        kind, tensor, tensor.address, defaults | given | {"target": target}, target, False
    )


def state_of(kind: str, tensor: Any, given: dict[str, Any]) -> State | None:
    """Return a state; None if the tensor or an argument cannot be read."""
    try:
        view = as_tensor_view(tensor)
    except TmaPreconditionError:  # such as a negative stride
        return None
    request = request_of(kind, view, given)
    if request.unreadable or str(view.dtype) not in DTYPES:
        return None
    if view.address == 0 != request.address:  # the page has no offset of an empty tensor
        return None
    described = request.view
    page = {name: plain(value) for name, value in given.items() if name not in LAYOUT}
    page |= {"kind": kind, "shape": list(described.shape), "strides": list(described.strides)}
    page |= {"dtype": str(view.dtype), "address": request.address}
    return State(kind, tensor, given, request, page)


def judged(seed: int) -> State:
    """Draw a request. Most requests are refused."""
    rng = random.Random(seed)
    while True:
        asked = request_at_random(rng, lambda _, member: member.name)
        if asked is not None and (found := state_of(*asked)) is not None:
            return found


# -- states with a tile ----------------------------------------------------------------------------


def copied(seed: int) -> tuple[State, tma.TensorMap]:
    """Draw a request that is accepted, on a tensor of few words."""
    rng = random.Random(seed)
    while True:
        kind = rng.choice(("tiled", "tiled", "tiled", "im2col", "im2col", "im2col_wide"))
        tensor = _small_tensor(rng, kind)
        if tensor is None:
            continue
        given = _small_request(rng, kind, tensor)
        if kind != "im2col_wide":
            fixed = CHECKS[kind](tensor, **given).fixed()
            if fixed is None:
                continue
            given = {k: getattr(v, "name", v) for k, v in fixed.items() if k not in LAYOUT}
        try:
            tensor_map = MAKES[kind](tensor, **given)
        except TmaError:
            continue
        if tensor_map.smem_bytes > 1 << 14:
            continue
        if (found := state_of(kind, tensor, given)) is not None:
            return found, tensor_map


def _small_tensor(rng: random.Random, kind: str) -> Any:
    rank = rng.randint(1 if kind == "tiled" else 3, 5)
    dtype = np.dtype(rng.choice(("u1", "u2", "f2", "f4", "i4", "f8")))
    most = {1: 300, 2: 60, 3: 20, 4: 9, 5: 5}[rank]
    shape = [rng.randint(1, most) for _ in range(rank - 1)] + [rng.choice((8, 16, 24, 50, 64, 130))]
    strides = [dtype.itemsize]
    for size in shape[:0:-1]:
        stride = size * strides[0] * rng.choice((1, 1, 2))
        strides.insert(0, -(-stride // 32) * 32)
    if sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 16 > MEMORY.nbytes // 2:
        return None
    start = rng.choice((0, 0, 128, 32, 16))
    return np.lib.stride_tricks.as_strided(MEMORY[start:].view(dtype), shape, strides)


def _small_request(rng: random.Random, kind: str, tensor: Any) -> dict[str, Any]:
    rank, item = tensor.ndim, tensor.itemsize
    swizzle = rng.choice(("none", "bytes32", "bytes64", "bytes128", "bytes128"))
    interleave = rng.choice(("none",) * 5 + ("bytes16", "bytes32")) if rank >= 3 else "none"
    target = rng.choice(("sm_90", "sm_90", "sm_100"))
    if target == "sm_100" and rng.random() < 0.4:
        swizzle = rng.choice(
            ("bytes128_atom_32B", "bytes128_atom_32B_flip_8B", "bytes128_atom_64B")
        )
    given: dict[str, Any] = {
        "swizzle": "bytes32" if interleave == "bytes32" else swizzle,
        "interleave_layout": interleave,
        "l2_fetch_size": rng.choice(("none", "bytes128", "bytes256")),
        "oobfill": rng.choice(("none", "none", "nan")) if tensor.dtype.kind == "f" else "none",
        "elem_strides": None,
        "data_type": None,
        "rules": "driver",
        "target": target,
    }
    if rng.random() < 0.3:
        given["elem_strides"] = [rng.choice((1, 1, 2, 3)) for _ in range(rank)]
    if rng.random() < 0.3:
        types = {2: ("BFLOAT16",), 4: ("TFLOAT32", "FLOAT32_FTZ", "UINT32"), 8: ("INT64",)}
        packed = ("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B") if target == "sm_100" else ()
        choices = packed if item == 1 else types.get(item, ())
        given["data_type"] = rng.choice(choices) if choices else None
    inner = rng.choice((16, 32, 64, 128)) // item or 1
    if kind == "tiled":
        boxes = [rng.choice((1, 2, 3, 5, 8, 16)) for _ in range(rank - 1)]
        given |= {"box_sizes": [*boxes, inner], "rules": rng.choice(("libcu++", "driver"))}
        if interleave == "none" and given["data_type"] is None and rng.random() < 0.2:
            given["split_inner"] = True
        if interleave == "none" and 2 <= rank <= 3 and rng.random() < 0.2:
            given["ragged"] = rng.randrange(rank - 1)
        return given
    given |= {"channels_per_pixel": inner, "pixels_per_column": rng.choice((1, 5, 16, 40, 64))}
    corners = [(-rng.randint(0, 2), -rng.randint(0, 2)) for _ in range(rank - 2)]
    lower, upper = zip(*corners, strict=True)
    if kind == "im2col":
        return given | {"pixel_box_lower_corner": lower, "pixel_box_upper_corner": upper}
    given["mode"] = rng.choice(("w", "w128"))
    return given | {"lower_corner_width": lower[0], "upper_corner_width": upper[0]}


def place(rng: random.Random, tensor_map: tma.TensorMap) -> dict[str, Any]:
    """Draw coordinates around the tensor, most of them legal, and the arguments of a load."""
    a = tensor_map.arguments
    row = a.type_row
    step = 1 if a.interleave else 128 if row.is_padded else 128 // row.element_bits
    starts = im2col_box(a)
    coords = []
    for d, extent in enumerate(a.global_dim):
        reach = min(extent, 40)
        box = a.box_dim[d] if a.box_dim else 4
        first, last = starts.get(d, (-box, reach + 2))
        first -= 2 * (a.kind == "im2col_wide")  # it may start before its box and walk into it
        value = rng.randint(first, max(first, last))
        coords.append(value // step * step if d == 0 else value)
    if rng.random() < 0.1:
        coords[rng.randrange(len(coords))] += rng.choice((-1, 1, 5))
    offsets = None
    if a.kind != "tiled" and rng.random() < 0.6:
        offsets = [rng.choice((0, 1, 2, 3)) for _ in starts]
    if tensor_map.ragged is not None:
        extent = tensor_map.tensor.shape[tensor_map.ragged]
        begin = rng.randrange(extent)
        size = rng.randint(1, extent - begin)
        inner = [0] * tensor_map.tensor.ndim
        coords = tma.ragged_coords(tensor_map, begin, size, inner)[::-1]
    smem_offset = rng.choice((0, 0, 128, 384, 1024))
    return {"coords": list(coords[::-1]), "offsets": offsets, "smem_offset": smem_offset}


def bytes_of(request: Request) -> str | None:
    """Return the 128 bytes of an accepted request; None if the target has no model."""
    if not request.target.has_model:
        return None
    return bits.encode(request.encode_arguments(), request.address).hex()


def violations_of(request: Request) -> list[list[Any]]:
    """Return [rule, row-major index] of each violation, without an index if the rule has none."""
    faults = iter(faults_of(request))
    found = []
    for violation in reports.violations_of(request):
        fault = next(fault for fault in faults if fault.rule.id == violation.rule)
        index = None
        if fault.rule.each in ("d", "d > 0"):
            index = request.rank - 1 - fault.key[1][0]
        elif fault.rule.id == "WIDE_DIMS":
            index = request.rank - 1 - request.facts.first_spatial - fault.key[1][0]
        elif fault.rule.each and request.kind == "im2col":
            index = request.facts.spatial - 1 - fault.key[1][0]
        found.append([fault.rule.id, index])
    return found


def on_its_own(state: State) -> tuple[Request, dict[str, Any] | None]:
    """Return the call on a tensor that has the layout itself, as `check` does, and its changes."""
    page, view = state.page, state.request.tensor
    shape, strides = tuple(page["shape"]), tuple(page["strides"])
    own = TensorView(
        page["address"], view.device, view.dtype, shape, strides, False, "described", None
    )
    given = {name: value for name, value in state.given.items() if name not in LAYOUT}
    defaults = {"allow": (), "split_inner": False, "ragged": None}
    defaults |= {"shape": None, "strides": None, "offset": 0}
    is_tiled = state.kind == "tiled"
    asked = {"swizzle": NO_SWIZZLE, "target": None} | (defaults if is_tiled else {}) | given
    changes = check_view(state.kind, own, asked).changes()
    return request_of(state.kind, own, given), changes


def first_candidates(request: Request) -> list[Any]:
    """Return each violation in the page's form: [rule, first fix, rules that the fix breaks]."""
    found = []

    def noted(*given: Any) -> Any:
        _, fault, found_fixes, *_, broken = given
        found.append(
            [fault.rule.id, _as_json(found_fixes[0]) if found_fixes else None, list(broken)]
        )
        return worded(*given)

    worded = reports._violation
    with mock.patch.object(reports, "_violation", noted):
        reports.violations_of(request)
    return found


def _as_json(answer: Answer) -> list[Any]:
    candidate = answer.candidate
    view = candidate.view
    place = view and [list(view.shape), list(view.strides), view.address]
    return [in_words(candidate.change), candidate.is_guess, place]


def in_words(change: Any) -> dict[str, Any]:
    """Convert changes to JSON's types."""
    return {name: plain(getattr(value, "name", value)) for name, value in change.items()}


def is_accepted(state: State, fixed: dict[str, Any]) -> bool:
    """Return whether Python accepts the tensor with the arguments that JavaScript fixed."""
    given = {
        name: fixed.get(name) if name in state.page else value
        for name, value in state.given.items()
    } | {name: value for name, value in fixed.items() if name not in state.page}
    given |= {k: v for k, v in state.given.items() if k in LAYOUT or k == "target"}
    if "target" in fixed and isinstance(fixed["target"], str):
        given["target"] = fixed["target"]
    request = request_of(state.kind, as_tensor_view(state.tensor), given)
    return not request.unreadable and not find_violations(request)


def smem_of(state: State, tensor_map: tma.TensorMap, chunks: list[list[int]], end: int) -> Any:
    """Return shared memory, its written bytes and the filled elements, from chunks as JSON.

    A chunk is [address, row, first, last, global offset, from, end, swapped, data bytes].
    """
    smem, written = np.zeros(end, np.uint8), np.zeros(end, np.bool_)
    plan = geometry.plan(tensor_map.arguments)
    bits_ = plan.row.element_bits
    filled = np.ones((plan.lines, plan.line_bytes * 8 // bits_), np.bool_)
    base = state.request.address - MEMORY.ctypes.data
    for address, row, first, last, offset, begin, stop, swapped, count in chunks:
        places = address + (np.arange(16) ^ 8 * swapped)
        data = np.zeros(16, np.uint8)
        start = base + offset
        data[begin:stop] = MEMORY[start + begin : start + stop]
        smem[places], written[places[:count]] = data, True
        ends = np.arange(last - first + 1) * bits_
        filled[row, first : last + 1] = (ends < 8 * begin) | (ends + bits_ > 8 * stop)
        assert count in (8, 12, 16)
    return smem, written, filled.reshape(plan.tile_shape)
