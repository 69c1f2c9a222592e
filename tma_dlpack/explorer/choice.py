"""The state of the explorer, and functions that make the map that a state describes.

A `Choice` is a state of the explorer's page: the arguments of a `make_*` function, and the tile
that is drawn. The page writes its state into its address. This module uses no widgets.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt

from tma_dlpack.checks.report import Report
from tma_dlpack.checks.struct import RULE_SETS
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.draw.chunks import first_coords, request_of
from tma_dlpack.draw.map_bytes import is_of_host_tensor
from tma_dlpack.make.descriptors import (
    check_im2col_descriptor,
    check_im2col_wide_descriptor,
    check_tma_descriptor,
    make_im2col_descriptor,
    make_im2col_wide_descriptor,
    make_tma_descriptor,
)
from tma_dlpack.tables.arguments import ENUMS, OPTION_NAMES, MapKind
from tma_dlpack.tables.enums import TensorMapDataType, TensorMapIm2ColWideMode
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tables.meanings import parse
from tma_dlpack.tables.targets import MAX_RANK, TARGETS
from tma_dlpack.tensor_map.map import TensorMap

ROW_BYTES, ROWS = 128, 8  # size of the box in `first_choice`
ALIGN_BYTES = 128  # alignment in bytes of the array that `padded` returns
#: Maximum size in bytes of the array that `padded` returns. The zeros of the array are never read,
#: so they use no physical memory.
MAX_BYTES = 1 << 34
#: Kind of map -> the functions that check and make such maps.
VERBS: dict[MapKind, tuple[Any, Any]] = {
    "tiled": (check_tma_descriptor, make_tma_descriptor),
    "im2col": (check_im2col_descriptor, make_im2col_descriptor),
    "im2col_wide": (check_im2col_wide_descriptor, make_im2col_wide_descriptor),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The arguments of a `make_*` function, and the tile to show. All tuples are row-major.

    `kind` is a key of `VERBS`: tiled, im2col or im2col_wide. If the map is tiled, `plane` has the
    two dimensions that are drawn. If `plane` is empty, the two innermost dimensions are drawn. If
    `coords` is empty, the first tile is shown.
    """

    box_sizes: tuple[int, ...] = ()
    elem_strides: tuple[int, ...] = ()
    interleave_layout: str = "none"
    swizzle: str = "none"
    l2_fetch_size: str = "none"
    oobfill: str = "none"
    mode: str = "w"
    data_type: str | None = None
    rules: str = ""
    allow: tuple[str, ...] = ()
    split_inner: bool = False
    ragged: int | None = None
    target: str | None = None
    kind: MapKind = "tiled"
    coords: tuple[int, ...] = ()
    plane: tuple[int, ...] = ()
    pixel_box_lower_corner: tuple[int, ...] = ()
    pixel_box_upper_corner: tuple[int, ...] = ()
    lower_corner_width: int = -1
    upper_corner_width: int = -1
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    im2col_offsets: tuple[int, ...] = ()
    preparation: str = ""  # Python code that must run before the call

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the function, with the required arguments first."""
        given = {name: getattr(self, name) for name in parameters(self.kind)}
        given["rules"] = self.rules or RULE_SETS[self.kind][0]
        # None stands for element strides of 1.
        given["elem_strides"] = self.elem_strides or None
        return {name: value for name, value in given.items() if value is not None}

    def changed(self, arguments: Mapping[str, Any]) -> Choice:
        """Return a copy with other arguments, such as the arguments of a fix.

        Enum members become names.
        """
        own = {*Choice.__slots__} - {"target"}
        names = {k: getattr(v, "name", v) for k, v in arguments.items() if k in own}
        return replace(self, **{k: v for k, v in names.items() if v is not None})

    def call(self) -> str:
        """Return the Python code of the call, without arguments that have their defaults."""
        # The default of elem_strides is None, which stands for strides of 1. So a tuple of ones
        # counts as the default too.
        plain = parameters(self.kind) | {"elem_strides": (1,) * len(self.elem_strides)}
        if self.split_inner:  # with split_inner, the code must have the argument `swizzle`
            del plain["swizzle"]
        given = {k: v for k, v in self.arguments().items() if k not in plain or v != plain[k]}
        parts = [f"{name}={value!r}" for name, value in given.items()]
        taps = f", im2col_offsets={self.im2col_offsets}" if any(self.im2col_offsets) else ""
        return (
            f"{self.preparation}tm = tma.{VERBS[self.kind][1].__name__}"
            f"(tensor, {', '.join(parts)})\ntile = tma.load_tile(tm, {self.coords}{taps})"
        )


@cache
def parameters(kind: MapKind) -> dict[str, Any]:
    """Return the parameters of a kind's `make_*` function with their defaults.

    Parameters that are not fields of `Choice` are omitted. The default of a required parameter is
    `NEEDED`.
    """
    given = inspect.signature(VERBS[kind][1]).parameters.values()
    return {p.name: p.default for p in given if p.name in Choice.__slots__}


NEEDED = inspect.Parameter.empty

# The type of a field is text, because `from __future__ import annotations` does not evaluate it.
_TUPLES = {f.name for f in fields(Choice) if str(f.type) == "tuple[int, ...]"}
_INTEGERS = {f.name for f in fields(Choice) if str(f.type) in ("int", "int | None")}


#: Field of `Choice` -> the enum whose members are the values of the field.
_ENUMS: dict[str, type[IntEnum]] = {
    **{ours: ENUMS[drivers] for ours, drivers in OPTION_NAMES.items()},
    "data_type": TensorMapDataType,
    "mode": TensorMapIm2ColWideMode,
}


def plain(name: str, value: Any) -> Any:
    """Convert an argument's value to a `Choice`'s form: lists to tuples, enum members to names.

    >>> plain("swizzle", 3), plain("swizzle", "SWIZZLE_128B"), plain("box_sizes", [8, 64])
    ('bytes128', 'bytes128', (8, 64))
    """
    # `parse` accepts the names and numbers of libcu++ and of the driver.
    member = parse(_ENUMS[name], value) if name in _ENUMS and value is not None else None
    if member is not None:
        return member.name
    return tuple(value) if isinstance(value, (list, tuple)) else value


def read_address(address: str, before: Choice) -> Choice:
    """Return the choice that an address of the page describes.

    A field that the address lacks has its default. A value that cannot be read is ignored, as in
    the page. `before` is the choice before the page changed its address.

    >>> read_address("#box_sizes=8,64&swizzle=bytes128&tab=banks", Choice()).box_sizes
    (8, 64)
    >>> read_address("#box_sizes=8,x&kind=none", Choice()).box_sizes
    ()
    """
    found: dict[str, Any] = {}
    for name, text in parse_qsl(address.removeprefix("#"), errors="replace"):
        value: Any = None
        # The page writes a tuple as numbers with commas, such as box_sizes=8,64.
        if name in _TUPLES:
            numbers = [_number(part) for part in text.split(",")]
            value = tuple(numbers) if len(numbers) <= MAX_RANK and None not in numbers else None
        elif name in _INTEGERS:
            value = _number(text)
        elif name == "allow":
            value = tuple(text.split(","))
        elif name == "split_inner":
            value = text == "yes"
        # `preparation` is Python code. Code from an address must not get into the code that the
        # user copies and runs.
        elif name in Choice.__slots__ and name != "preparation" and text in _words(name, found):
            value = text
        if value is not None:
            found[name] = value
    found.setdefault("rules", RULE_SETS[found.get("kind", "tiled")][0])
    choice = Choice(preparation=before.preparation, **found)
    # The page's address omits element strides of 1, but a `Choice` of a tensor has an element
    # stride for each dimension.
    ones = (1,) * len(before.elem_strides)
    return choice if choice.elem_strides else replace(choice, elem_strides=ones)


_NUMBER = re.compile(r"-?[0-9]{1,16}")  # integers that JavaScript represents exactly


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _words(name: str, found: Mapping[str, Any]) -> Collection[str]:
    """Return the legal values of a field, which are the entries of the field's menu in the page.

    `found` has the fields that have already been read from the address.
    """
    if name == "kind":
        return RULE_SETS
    if name == "rules":
        return RULE_SETS[found.get("kind", "tiled")]
    return TARGETS if name == "target" else _ENUMS[name].__members__


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a choice.

    Attributes
    ----------
    choice : Choice
    report : Report
    tensor_map : TensorMap or None
        None if the map is refused.
    refusal : str
        The reason why the tile cannot be copied. "" if the tile can be copied, or if there is no
        map.
    """

    choice: Choice
    report: Report
    tensor_map: TensorMap | None
    refusal: str

    @property
    def ok(self) -> bool:
        """Whether there is a tile to show."""
        return self.tensor_map is not None and not self.refusal

    @property
    def code(self) -> str:
        """The Python code of the call. If the map is accepted, the C++ code of the map follows."""
        cpp = f"\n\n{self.tensor_map.cpp()}" if self.tensor_map else ""
        return self.choice.call() + cpp

    @property
    def stored_code(self) -> str:
        """The value of `code`. If the tensor is in host memory, its address is replaced by 0.

        A saved notebook must not contain an address of host memory.
        """
        if self.tensor_map is None or not is_of_host_tensor(self.tensor_map):
            return self.code
        address = f"{self.tensor_map.global_address:#x}ull"
        return self.code.replace(address, "/* address of the tensor */ 0")


def look(subject: object, choice: Choice) -> Preview:
    """Return the result of a choice for a tensor.

    If the rules refuse the choice, the result has a report with the violations, but no map.
    `subject` is the tensor, or a map. If `subject` is a map, the choice selects only the tile.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((64, 64), np.float16)
    >>> look(x, Choice((8, 63), (1, 1))).report.violations[0].rule
    'BOX_INNER_16B'
    """
    if isinstance(subject, TensorMap):
        return Preview(choice, Report(()), subject, refusal_of(subject, choice))
    given, (check, make) = choice.arguments(), VERBS[choice.kind]
    report = check(subject, **given)
    if not report.ok:
        return Preview(choice, report, None, "")
    tensor_map = make(subject, **given)
    if len(choice.coords) != tensor_map.rank:  # the map's rank changed, for example by split_inner
        choice = replace(choice, coords=first_coords(tensor_map.arguments))
    return Preview(choice, report, tensor_map, refusal_of(tensor_map, choice))


def refusal_of(tensor_map: TensorMap, choice: Choice) -> str:
    """Return the reason why the tile of a choice cannot be copied; "" if it can be copied."""
    try:
        request_of(tensor_map, choice.coords or None, choice.im2col_offsets or None)
    except TmaError as error:
        return str(error)
    return ""


def first_choice(tensor: Any, target: str | None = None) -> Choice:
    """Return a first choice for a tensor: a box of 8 rows of 128 bytes, swizzled if possible.

    If the rules refuse this choice, return a corrected choice. If no correction is found, return
    the refused choice.

    Raises
    ------
    TmaPreconditionError
        If the tensor cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> choice = first_choice(np.zeros((64, 256), np.float16))
    >>> choice.box_sizes, choice.swizzle
    ((8, 64), 'bytes128')
    """
    view = as_tensor_view(tensor)
    rank = len(view.shape)
    # A row of the box has ROW_BYTES bytes, or one element if an element is larger.
    columns = max(1, ROW_BYTES * 8 // view.dtype.itemsize_bits)
    limits = ((1,) * rank + (ROWS, columns))[-rank:] if rank else ()
    box = tuple(min(n, limit) for n, limit in zip(view.shape, limits, strict=True))
    rules = RULE_SETS["tiled"][0]
    choice = Choice(
        box, (1,) * rank, rules=rules, swizzle="bytes128", coords=(0,) * rank, target=target
    )
    fixed = check_tma_descriptor(tensor, **choice.arguments()).fixed()
    return choice if fixed is None else choice.changed(fixed)


def padded(tensor: object) -> tuple[npt.NDArray[np.generic], str] | None:
    """Return an array of zeros with the tensor's shape and padded rows, and code.

    Each row is padded to a multiple of 16 bytes. The code is Python code that pads the tensor
    itself in the same way. Return None if no map can have the shape, if the size of an element is
    not 1, 2, 4 or 8 bytes, or if the array would have more than `MAX_BYTES` bytes.

    >>> zeros, code = padded(np.zeros((4, 7), np.float32))
    >>> zeros.strides, code.strip()
    ((32, 4), 'tensor = np.pad(np.ascontiguousarray(tensor), ((0, 0), (0, 1)))[..., :7]')
    """
    view = as_tensor_view(tensor)
    rank, bits = len(view.shape), view.dtype.itemsize_bits
    if bits not in (8, 16, 32, 64) or not 1 <= rank <= MAX_RANK or 0 in view.shape:
        return None
    (*outer, inner), item = view.shape, bits // 8
    # Number of elements from the end of a row to the next multiple of 16 bytes.
    missing = -inner * item % 16 // item
    count = math.prod(outer) * (inner + missing) * item
    if count > MAX_BYTES:
        return None
    # NumPy aligns memory to 16 bytes only, so allocate more and start at a multiple of ALIGN_BYTES.
    storage = np.zeros(count + ALIGN_BYTES, np.uint8)
    start = -storage.ctypes.data % ALIGN_BYTES
    rows = storage[start : start + count].view(f"u{item}").reshape(*outer, inner + missing)
    widths = ((0, 0),) * (rank - 1) + ((0, missing),)
    code = f"np.pad(np.ascontiguousarray(tensor), {widths})[..., :{inner}]"
    if type(tensor).__module__.startswith("torch"):
        code = f"torch.nn.functional.pad(tensor.contiguous(), (0, {missing}))[..., :{inner}]"
    return rows[..., :inner], f"tensor = {code}\n"


def choice_of(tensor_map: TensorMap) -> Choice:
    """Return a choice that describes a map, computed from the map's arguments.

    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (16, 64), swizzle="bytes128")
    >>> choice_of(tm).box_sizes, choice_of(tm).data_type
    ((16, 64), 'FLOAT16')
    """
    args = tensor_map.arguments
    given: dict[str, Any] = {"box_sizes": tensor_map.box_sizes if args.kind == "tiled" else ()}
    if args.kind != "tiled":
        given |= {"channels_per_pixel": args.channels_per_pixel}
        given |= {"pixels_per_column": args.pixels_per_column}
        given["im2col_offsets"] = (0,) * len(args.pixel_box_lower_corner)
    corners = args.pixel_box_lower_corner, args.pixel_box_upper_corner
    # The first two parameters of an im2col function are the corners.
    names = [*parameters(args.kind)][:2]
    if args.kind == "im2col":
        given |= {name: corner[::-1] for name, corner in zip(names, corners, strict=True)}
    elif args.kind == "im2col_wide":
        given |= {name: corner[0] for name, corner in zip(names, corners, strict=True)}
        given["mode"] = args.mode.name
    given |= {name: m.name for name, m in zip(OPTION_NAMES, args.enums, strict=True)}
    given |= {"elem_strides": tensor_map.elem_strides, "data_type": args.data_type.name}
    target: str | None = tensor_map.target.name
    if target == "sm_90" and is_of_host_tensor(tensor_map):
        target = None  # sm_90 is the default for host tensors
    given |= {"coords": first_coords(args), "target": target}
    return Choice(rules="driver", kind=args.kind, **given)
