"""The lines that ``tma_dlpack_make.hpp`` throws: they show the tensor and the options too.

So the whole call is checked, as `check_tma_descriptor` does, under its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tma_dlpack.checks.report import Report
from tma_dlpack.checks.words import OF_DRIVER
from tma_dlpack.debug.explain.judge import COLUMN, PrintedArguments, arguments_of, check_printed
from tma_dlpack.debug.explain.words import ARRAYS, meaning_of, member_of
from tma_dlpack.dlpack import Layout, TensorView, check_layout
from tma_dlpack.make.build import check_view
from tma_dlpack.tables.arguments import CORNERS, ENUMS, KIND_OF, RARE_OPTIONS
from tma_dlpack.tables.coerce import rows
from tma_dlpack.tables.dtypes import data_type_of
from tma_dlpack.tables.errors import ARGUMENT, TmaPreconditionError, Violation
from tma_dlpack.tables.targets import Target

BEGINS = "tma_dlpack: refused: "
#: The line of a call: at most as far as the next one begins.
REFUSED_CALL: Final = re.compile(
    rf"{BEGINS}(?P<parts>(?:cuTensorMapEncode|rules=)(?:(?!{BEGINS})[^\n]){{0,8000}}?)"
    r"; python -m tma_dlpack explain says why"
)
_CALL = re.compile(r"(cuTensorMapEncode\w{1,20})\((.*)\)")
_PAIR = re.compile(
    r"(\w{1,40})=(?:\{([^{}\n]{0,999})\}|(0x[\da-f]{1,16}|-?(?:0|[1-9]\d{0,23})|True)(?!\w))"
)
_NUMBER = re.compile(r"-?\d{1,24}")
_RARE = {option.name: option.form for option in RARE_OPTIONS}
_LISTS = ("dtype", "device", "box_sizes", *(n for n, form in _RARE.items() if form == "integers"))
_OPTIONS = ("elem_strides", "interleave_layout", "swizzle", "l2_fetch_size", "oobfill")
#: Other lines | the argument | what must be | what to do.
_SAYS: Final = rows(r"""
(\w+)=\S[^\n;]{0,300} has \d+ entries, and a tensor map has 1 to 5 dimensions | \1 |
    a tensor map has 1 to 5 dimensions | pass one entry for each dimension of the tensor
split_inner and ragged are options of tiled maps | split_inner | a map for im2col has neither |
    omit both, or make a tiled map
the tensor is lazily negated or conjugated | tensor | a map shows memory as it is |
    pass x.resolve_neg().resolve_conj()
""")
_LINE: Final = re.compile(rf"{BEGINS}(?!cuTensorMap|rules=)([^\n]{{1,400}})")


class RefusedCall:
    """The parts of a line: the call of the driver, if it could be described, and what is beside."""

    def __init__(self, parts: str) -> None:
        self.function, self.rules, self.why = "", "", ""
        self.call: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.tensor: dict[str, Any] = {}
        for part in parts.split("; "):
            name, _, rest = part.partition(": ")
            if call := _CALL.fullmatch(part):
                self.function, self.call = call[1], _pairs(call[2])
            elif part.startswith("rules="):
                self.rules = part.removeprefix("rules=")
            elif name in ("options", "tensor"):
                setattr(self, name, _pairs(rest))
            elif not part.startswith(("broken: ", "allow names ")):  # which the report says itself
                self.why = f"{self.why}; {part}" if self.why else part


def says_in(text: str) -> Iterator[tuple[int, Violation]]:
    """Return the place of each line that shows no call, and the violation."""
    for line in _LINE.finditer(text):
        for pattern, argument, limit, fix in _SAYS:
            if found := re.match(pattern, line[1]):
                name, what = found.expand(argument), found[0].partition(", and ")[0]
                words = {"limit": limit, "fix": fix, "source": "tma_dlpack_make.hpp"}
                yield line.start(), ARGUMENT.violation(name, what, **words)


def read_call(line: RefusedCall, number: int) -> PrintedArguments:
    """Return the driver's arguments of a refused call; none where it could not be described."""
    where: dict[str, Any] = {"printed_by": "tma_dlpack.h", "lines": (number, number)}
    shown: dict[str, Any] = {}
    for name, value in line.call.items():
        meaning = meaning_of(name)
        if meaning is not None:
            shown[meaning[0]] = member_of(meaning[0], value) if meaning[0] in ENUMS else value
    for corner in CORNERS:
        if f"{corner}_width" in shown:
            shown[corner] = (shown.pop(f"{corner}_width"),)
    kind = KIND_OF.get(line.function, "tiled")
    known = {name: shown[name] for name in arguments_of(kind) if name in shown}
    return PrintedArguments(kind=kind, **where, **known)


def check_call(line: RefusedCall, read: PrintedArguments, target: Target) -> Report:
    """Check a refused call as `check_tma_descriptor` would."""
    tensor, options = line.tensor, line.options
    dtype, device = tensor.get("dtype", ()), tensor.get("device", ())
    shape, strides = tensor.get("shape", ()), tensor.get("strides")
    one_each = strides is None or len(strides) == len(shape)
    if len(dtype) != 3 or len(device) != 2 or not one_each:
        return check_printed(read, target)
    (code, bits, lanes), (device_type, device_id) = dtype, device
    address = (read.global_address or 0) - options.get("offset", 0) * bits * lanes // 8
    try:
        layout = Layout(device_type, device_id, code, bits, lanes, 0, shape, strides)
        view = TensorView(address, *check_layout(layout), "DLTensor")
    except TmaPreconditionError as error:
        return Report(error.violations)
    given: dict[str, Any] = {"rules": line.rules, "target": target}
    for name in _OPTIONS + (("box_sizes",) if read.kind == "tiled" else COLUMN):
        value = getattr(read, OF_DRIVER.get(name, name))
        given[name] = value[::-1] if isinstance(value, tuple) else value
    given["data_type"] = None if read.data_type == data_type_of(view.dtype) else read.data_type
    if read.kind == "tiled":
        given |= {"allow": (), "shape": None, "strides": None, "offset": 0}
        given |= {name: value for name, value in options.items() if name in (*given, *_RARE)}
    if read.rank not in (None, len(given.get("shape") or shape)):  # with what options added
        return check_printed(read, target)
    if not line.call:
        given |= dict.fromkeys(_OPTIONS[1:], 0)
    return check_view(read.kind, view, given)


def _pairs(text: str) -> dict[str, Any]:
    """Return the values of ``name=value``, of those names whose value has the right type."""
    pairs: dict[str, Any] = {}
    for name, listed, single in _PAIR.findall(text):
        items = [item for item in listed.split(", ") if item]
        meaning = meaning_of(name)
        is_list = name in _LISTS or (meaning is not None and meaning[0] in ARRAYS)
        if name == "allow" and not single:
            pairs[name] = tuple(items)
        elif is_list and not single and all(_NUMBER.fullmatch(item) for item in items):
            pairs[name] = tuple(map(int, items))
        elif single and not is_list and (single == "True") == (_RARE.get(name) == "flag"):
            pairs[name] = single == "True" or int(single, 0)
    return pairs
