"""What an explorer is set to, and the map that results: pure functions, no widgets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tma_dlpack.checks.report import Report
from tma_dlpack.checks.request import RULE_SETS
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.draw.chunks import first_coords, request_of
from tma_dlpack.draw.map_bytes import is_of_host_tensor
from tma_dlpack.make.im2col import check_im2col_descriptor, make_im2col_descriptor
from tma_dlpack.make.tiled import check_tma_descriptor, make_tma_descriptor
from tma_dlpack.tables.arguments import OPTION_NAMES
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tables.limits import MAX_RANK
from tma_dlpack.tensor_map.map import TensorMap

ROW_BYTES, ROWS = 128, 8  # of the first box
ALIGN_BYTES = 128  # of a padded tensor
MAX_BYTES = 1 << 34  # of its zeros, which are never touched
_SHOWN = ("coords", "plane", "im2col_offsets", "preparation")  # not arguments of the map
_TILED = ("box_sizes", "allow")
_IM2COL = (
    "pixel_box_lower_corner",
    "pixel_box_upper_corner",
    "channels_per_pixel",
    "pixels_per_column",
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One request: the arguments of a verb, and the tile to show. All tuples are row-major.

    `plane` has the two dimensions of a tiled map that are drawn; empty for the innermost ones.
    With corners it is one of `make_im2col_descriptor`, else of `make_tma_descriptor`.
    """

    box_sizes: tuple[int, ...] = ()
    elem_strides: tuple[int, ...] = ()
    interleave_layout: str = "none"
    swizzle: str = "none"
    l2_fetch_size: str = "none"
    oobfill: str = "none"
    data_type: str | None = None
    rules: str = "libcu++"
    allow: tuple[str, ...] = ()
    coords: tuple[int, ...] = ()
    plane: tuple[int, ...] = ()
    pixel_box_lower_corner: tuple[int, ...] = ()
    pixel_box_upper_corner: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    im2col_offsets: tuple[int, ...] = ()
    target: str | None = None
    preparation: str = ""  # Python that comes before the call

    @property
    def is_im2col(self) -> bool:
        """Whether it walks pixels instead of taking a box."""
        return bool(self.pixel_box_lower_corner)

    @property
    def rule_sets(self) -> tuple[str, ...]:
        """What `rules` may be; the first is the default."""
        return RULE_SETS["im2col" if self.is_im2col else "tiled"]

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the verb."""
        left = {*_SHOWN, *(_TILED if self.is_im2col else _IM2COL)}
        left |= {"target"} if self.target is None else set()
        return {name: getattr(self, name) for name in self.__slots__ if name not in left}

    def number(self, name: str) -> int:
        """Return a number by its name: ``box_sizes[0]`` or ``pixels_per_column``."""
        field, _, index = name.partition("[")
        value: Any = getattr(self, field)
        return int(value[int(index[:-1])] if index else value)

    def put(self, name: str, value: Any) -> Choice:
        """Return a choice with another value, or another number such as ``box_sizes[0]``."""
        field, _, index = name.partition("[")
        if index:
            at, numbers = int(index[:-1]), getattr(self, field)
            value = (*numbers[:at], value, *numbers[at + 1 :])
        return replace(self, **{field: value})

    def changed(self, arguments: Mapping[str, Any]) -> Choice:
        """Take over a repair's arguments, enum members by their names."""
        own = {name for name in self.arguments() if name != "target"}
        names = {k: getattr(v, "name", v) for k, v in arguments.items() if k in own}
        return replace(self, **{k: v for k, v in names.items() if v is not None})

    def call(self) -> str:
        """Return the Python call, without the arguments that are as they would be anyway."""
        given = self.arguments()
        plain = Choice(rules=self.rule_sets[0]).arguments()
        plain["elem_strides"] = (1,) * len(self.elem_strides)
        needed = _IM2COL if self.is_im2col else ("box_sizes",)
        parts = [f"{name}={given.pop(name)}" for name in needed]
        parts += [f"{k}={v!r}" for k, v in given.items() if v != plain.get(k)]
        verb = "make_im2col_descriptor" if self.is_im2col else "make_tma_descriptor"
        taps = f", im2col_offsets={self.im2col_offsets}" if any(self.im2col_offsets) else ""
        return (
            f"{self.preparation}tm = tma.{verb}(tensor, {', '.join(parts)})\n"
            f"tile = tma.load_tile(tm, {self.coords}{taps})"
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What a choice results in.

    Attributes
    ----------
    choice : Choice
    report : Report
    tensor_map : TensorMap or None
        None where the request is refused.
    refusal : str
        Why the tile cannot be shown although the map is accepted; empty where it can.
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
        """Python for the call, and C++ for the map where it is accepted."""
        cpp = f"\n\n{self.tensor_map.cpp()}" if self.tensor_map else ""
        return self.choice.call() + cpp

    @property
    def stored_code(self) -> str:
        """The code without the host address of this process, for a notebook that is saved."""
        if self.tensor_map is None or not is_of_host_tensor(self.tensor_map):
            return self.code
        address = f"{self.tensor_map.global_address:#x}ull"
        return self.code.replace(address, "/* address of the tensor */ 0")


def look(subject: object, choice: Choice) -> Look:
    """Return what a choice makes of a tensor; a refusal is part of the answer.

    A map in place of the tensor stays as it is: only the tile is chosen.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((64, 64), np.float16)
    >>> look(x, Choice((8, 63), (1, 1))).report.violations[0].rule
    'BOX_INNER_16B'
    """
    if isinstance(subject, TensorMap):
        return Look(choice, Report(()), subject, refusal_of(subject, choice))
    given, is_im2col = choice.arguments(), choice.is_im2col
    check: Any = check_im2col_descriptor if is_im2col else check_tma_descriptor
    report = check(subject, **given)
    if not report.ok:
        return Look(choice, report, None, "")
    make: Any = make_im2col_descriptor if is_im2col else make_tma_descriptor
    tensor_map = make(subject, **given)
    return Look(choice, report, tensor_map, refusal_of(tensor_map, choice))


def refusal_of(tensor_map: TensorMap, choice: Choice) -> str:
    """Return why the tile of a choice cannot be copied; empty where it can."""
    try:
        request_of(tensor_map, choice.coords or None, choice.im2col_offsets or None)
    except TmaError as error:
        return str(error)
    return ""


def shape_of(subject: object) -> tuple[int, ...]:
    """Return the row-major shape, in elements, of a tensor or of the tensor of a map."""
    return subject.shape if isinstance(subject, TensorMap) else as_tensor_view(subject).shape


def first_choice(tensor: Any, target: str | None = None) -> Choice:
    """Return a request to begin with: rows of 128 bytes, 8 of them, swizzled where that fits.

    Where no box of the tensor is accepted, the choice is refused, and its report has the reason.

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
    columns = max(1, ROW_BYTES * 8 // view.dtype.itemsize_bits)
    limits = ((1,) * rank + (ROWS, columns))[-rank:] if rank else ()
    box = tuple(min(n, limit) for n, limit in zip(view.shape, limits, strict=True))
    choice = Choice(box, (1,) * rank, swizzle="bytes128", coords=(0,) * rank, target=target)
    fixed = check_tma_descriptor(tensor, **choice.arguments()).fixed()
    return choice if fixed is None else choice.changed(fixed)


def padded(tensor: object) -> tuple[npt.NDArray[np.generic], str] | None:
    """Return zeros of the same shape with aligned rows of whole 16 bytes, and code that pads so.

    None for shapes that no map has, and for elements that are no whole bytes.

    >>> zeros, code = padded(np.zeros((4, 7), np.float32))
    >>> zeros.strides, code.strip()
    ((32, 4), 'tensor = np.pad(np.ascontiguousarray(tensor), ((0, 0), (0, 1)))[..., :7]')
    """
    view = as_tensor_view(tensor)
    rank, bits = len(view.shape), view.dtype.itemsize_bits
    if bits not in (8, 16, 32, 64) or not 1 <= rank <= MAX_RANK or 0 in view.shape:
        return None
    (*outer, inner), item = view.shape, bits // 8
    missing = -inner * item % 16 // item
    count = math.prod(outer) * (inner + missing) * item
    if count > MAX_BYTES:
        return None
    storage = np.zeros(count + ALIGN_BYTES, np.uint8)
    start = -storage.ctypes.data % ALIGN_BYTES
    rows = storage[start : start + count].view(f"u{item}").reshape(*outer, inner + missing)
    widths = ((0, 0),) * (rank - 1) + ((0, missing),)
    code = f"np.pad(np.ascontiguousarray(tensor), {widths})[..., :{inner}]"
    if type(tensor).__module__.startswith("torch"):
        code = f"torch.nn.functional.pad(tensor.contiguous(), (0, {missing}))[..., :{inner}]"
    return rows[..., :inner], f"tensor = {code}\n"


def choice_of(tensor_map: TensorMap) -> Choice:
    """Return the choice that a map was made by, as far as its arguments show.

    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (16, 64), swizzle="bytes128")
    >>> choice_of(tm).box_sizes, choice_of(tm).data_type
    ((16, 64), 'FLOAT16')
    """
    args = tensor_map.arguments
    kinds: dict[str, Any] = {"im2col_offsets": (0,)}
    if args.kind == "tiled":
        kinds = {"box_sizes": tensor_map.box_sizes}
    elif args.kind == "im2col":
        corners = {n: getattr(args, n)[::-1] for n in _IM2COL[:2]}
        column = {n: getattr(args, n) for n in _IM2COL[2:]}
        taps = (0,) * len(args.pixel_box_lower_corner)
        kinds = {**corners, **column, "im2col_offsets": taps}
    kinds |= {name: m.name for name, m in zip(OPTION_NAMES, args.enums, strict=True)}
    kinds |= {"elem_strides": tensor_map.elem_strides, "data_type": args.data_type.name}
    target = tensor_map.target.name
    return Choice(rules="driver", coords=first_coords(args), target=target, **kinds)
