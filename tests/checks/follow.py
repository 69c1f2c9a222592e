"""Follow a fix as a reader does: run its code, pass its arguments, and repeat the call.

A fix has alternatives ("; or "), and an alternative may have several steps (", and "). A number, as
in "use 64", replaces the value that the violation found.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

#: Fixes that a test cannot follow, such as another GPU or another program.
PROSE = (
    "an empty tensor has nothing to copy: skip it",
    "a single element needs no copy: pass it to the kernel as an argument",
    "make one map for each slice",
    "pass the address of device memory",
    "tma.make_conv_descriptor(",
    "use a convolution with a smaller",
    "use a Hopper or newer GPU",
    "use a Blackwell or newer GPU",
)
#: Steps that only explain how the kernel continues, or why.
REMARKS = (
    "several copies for",
    "copy in several steps",
    "split that",
    "this looks like",
)
_NAMES = (
    "box_sizes|elem_strides|interleave_layout|swizzle|l2_fetch_size|oobfill|data_type|rules|allow|"
    "shape|strides|offset|split_inner|ragged|target|channels_per_pixel|pixels_per_column|"
    "pixel_box_lower_corner|pixel_box_upper_corner|lower_corner_width|upper_corner_width|mode"
)
_VALUE = r"\([^()]*\)|'[^']*'|True|False|None|-?\d+"
_OPTION = re.compile(rf"\b({_NAMES})=({_VALUE})")
_NUMBER = re.compile(
    r"(?:use(?: at least| at most)?|narrow it to|use a multiple of \d+:) (-?\d+)(?= |,|$)"
)
_ENTRY = re.compile(r"^(\w+)(?:\[(\d+)\])? ")


def alternatives(fix: str) -> list[str]:
    """Split a fix into its alternatives. Each alternative alone should be enough."""
    parts = re.split(r"; or |(?<=\?) If not, ", fix)
    found: list[str] = []
    for part in parts:
        found.extend(
            re.split(r", or (?=copy it|pad the last|make the map|build for|copy it to)", part)
        )
    return [part for part in found if not part.startswith("start the view at")]


def follow(
    text: str, violation: Any, tensor: Any, name: str, given: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Return the tensor and the arguments after an alternative; None for prose."""
    if any(prose in text for prose in PROSE):
        return None
    text = re.sub(r" \(copies .*? bytes\)|, which [^,]*", "", text)
    steps = [step for step in re.split(r", and (?=[a-z])", text) if not step.startswith(REMARKS)]
    assert steps, text
    for step in steps:
        done = _step(step, violation, tensor, name, given)
        assert done is not None, f"nothing to do in {step!r}"
        tensor, given = done
    return tensor, given


def _step(
    text: str, violation: Any, tensor: Any, name: str, given: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    given, did = dict(given), False
    code = re.search(r"(?:^|: )((?:\w+) = .*)$", text)
    names = {"numpy": np, name: tensor, "n": 0} | _modules()
    if code is not None:
        exec(code[1], names)
        copied = names[code[1].partition(" = ")[0]]
        assert _begins_with(copied, tensor), text
        return copied, given
    for expression in _expressions(text, name):
        tensor, did = eval(expression, names), True
    for option, value in _OPTION.findall(text):
        given[option], did = ast.literal_eval(value), True
    for word, default in (("interleave_layout", "none"), ("split_inner", False), *_OMITTED):
        if f"omit {word}" in text or f"without {word}" in text:
            given[word], did = default, True
    for argument, index, value in re.findall(r"shrink (\w+)\[(\d+)\] from \d+ to (\d+)", text):
        given[argument], did = _with(given[argument], int(index), int(value)), True
    if meant := re.search(r"did you mean (\(.*?\))\?", text):
        given[violation.argument], did = ast.literal_eval(meant[1]), True
    number = _NUMBER.search(text)
    if number is not None and not did:
        given, did = _put(given, violation, int(number[1])), True
    return (tensor, given) if did else None


_OMITTED = tuple((word, None) for word in ("data_type", "elem_strides", "ragged"))


def _modules() -> dict[str, Any]:
    return {name: sys.modules[name] for name in ("torch", "jax") if name in sys.modules}


def _expressions(text: str, name: str) -> Iterator[str]:
    """Yield the longest parts of a text that are Python expressions about the tensor."""
    for start in (m.start() for m in re.finditer(rf"\b{name}\b(?=[.\[])|\w+\.\w+\({name}\b", text)):
        for end in range(len(text), start, -1):
            try:
                tree = ast.parse(text[start:end], mode="eval").body
            except SyntaxError:
                continue
            yield ast.unparse(_first_of(tree))
            return


def _first_of(tree: ast.expr) -> ast.expr:
    """Return the first expression of several, as in "x[:2], x[2:4] and so on"."""
    while isinstance(tree, (ast.Tuple, ast.BoolOp)):
        tree = tree.elts[0] if isinstance(tree, ast.Tuple) else tree.values[0]
    return tree


def _put(given: dict[str, Any], violation: Any, value: int) -> dict[str, Any]:
    """Replace the refused value, which the violation found, by a number."""
    argument, index = violation.argument, _ENTRY.match(violation.found)
    old = given[argument]
    if old is None:  # elem_strides, of 1
        old = (1,) * len(given["box_sizes"])
    if not isinstance(old, (tuple, list)):
        return given | {argument: value}
    has_index = index is not None and index[2] is not None
    place = int(index[2]) if has_index else len(old) - 1  # type: ignore[index]
    return given | {argument: _with(old, place, value)}


def _with(values: Any, place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _begins_with(copy: Any, original: Any) -> bool:
    """Whether a copy has the original's elements, perhaps with more columns."""
    raw = [_raw(tensor) for tensor in (copy, original)]
    if raw[0] is None or raw[1] is None:
        return True
    part = raw[0][tuple(slice(n) for n in raw[1].shape)]
    return part.shape == raw[1].shape and np.array_equal(part, raw[1])


def _raw(tensor: Any) -> Any:
    """Return a tensor's bits as a NumPy array; None if NumPy cannot represent the tensor."""
    if isinstance(tensor, np.ndarray):
        return tensor
    try:
        if type(tensor).__module__.startswith("torch"):
            import torch

            bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
            return tensor.contiguous().view(bits[tensor.element_size()]).numpy()
        return np.asarray(tensor)
    except Exception:  # types that NumPy lacks
        return None
