"""What an explorer is set to, and what that gives: pure functions, no widgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tma_dlpack.checks.report import Report
from tma_dlpack.checks.request import RULE_SETS
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.draw.chunks import first_coords, request_of
from tma_dlpack.make.im2col import check_im2col_descriptor, make_im2col_descriptor
from tma_dlpack.make.tiled import check_tma_descriptor, make_tma_descriptor
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tensor_map.map import TensorMap

ROW_BYTES, ROWS = 128, 8  # of the first box
_SHOWN = ("coords", "im2col_offsets")  # of the tile, not of the map
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
    pixel_box_lower_corner: tuple[int, ...] = ()
    pixel_box_upper_corner: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    im2col_offsets: tuple[int, ...] = ()
    target: str | None = None

    @property
    def is_im2col(self) -> bool:
        """Whether it walks pixels instead of taking a box."""
        return bool(self.pixel_box_lower_corner)

    @property
    def rule_sets(self) -> tuple[str, ...]:
        """What `rules` may be; the first is the default."""
        return RULE_SETS["im2col" if self.is_im2col else "tiled"]

    def arguments(self) -> dict[str, Any]:
        """Give the keyword arguments of the verb."""
        left = (*_SHOWN, *(_TILED if self.is_im2col else _IM2COL))
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left}
        return given if given["target"] else {k: v for k, v in given.items() if k != "target"}

    def changed(self, arguments: Mapping[str, Any]) -> Choice:
        """Take over what a repair says, enum members by their names."""
        known = {
            name: getattr(value, "name", value)
            for name, value in arguments.items()
            if name in self.arguments() and name != "target" and value is not None
        }
        return replace(self, **known)

    def call(self) -> str:
        """Give the Python call, without the arguments that are as they would be anyway."""
        given, count = self.arguments(), len(self.elem_strides)
        plain = Choice(rules=self.rule_sets[0]).arguments()
        plain["elem_strides"] = (1,) * count
        needed = _IM2COL if self.is_im2col else ("box_sizes",)
        said = [f"{name}={given.pop(name)}" for name in needed]
        said += [f"{k}={v!r}" for k, v in given.items() if v != plain.get(k)]
        verb = "make_im2col_descriptor" if self.is_im2col else "make_tma_descriptor"
        taps = f", im2col_offsets={self.im2col_offsets}" if any(self.im2col_offsets) else ""
        return (
            f"tm = tma.{verb}(tensor, {', '.join(said)})\n"
            f"tile = tma.load_tile(tm, {self.coords}{taps})"
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What a choice gives.

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
        call = self.choice.call()
        return f"{call}\n\n{self.tensor_map.cpp()}" if self.tensor_map else call


def look(subject: object, choice: Choice) -> Look:
    """Give what a choice makes of a tensor; a refusal is part of the answer.

    A map in place of the tensor stays as it is: only the tile is chosen.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((64, 64), np.float16)
    >>> look(x, Choice((8, 63), (1, 1))).report.violations[0].rule
    'BOX_INNER_16B'
    """
    if isinstance(subject, TensorMap):
        return Look(choice, Report(()), subject, _refusal(subject, choice))
    is_im2col = choice.is_im2col
    check = check_im2col_descriptor if is_im2col else check_tma_descriptor
    report = check(subject, **choice.arguments())
    if not report.ok:
        return Look(choice, report, None, "")
    make = make_im2col_descriptor if is_im2col else make_tma_descriptor
    tensor_map = make(subject, **choice.arguments())
    return Look(choice, report, tensor_map, _refusal(tensor_map, choice))


def _refusal(tensor_map: TensorMap, choice: Choice) -> str:
    try:
        request_of(tensor_map, choice.coords or None, choice.im2col_offsets or None)
    except TmaError as error:
        return str(error)
    return ""


def shape_of(subject: object) -> tuple[int, ...]:
    """Give the row-major shape, in elements, of a tensor or of the tensor of a map."""
    return subject.shape if isinstance(subject, TensorMap) else as_tensor_view(subject).shape


def first_choice(tensor: object, target: str | None = None) -> Choice:
    """Give a request to begin with: rows of 128 bytes, 8 of them, swizzled where that fits.

    Where no box of the tensor is accepted, the choice is refused, and its report says why.

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


def choice_of(tensor_map: TensorMap) -> Choice:
    """Give the choice that a map was made by, as far as its arguments say.

    >>> import numpy as np, tma_dlpack as tma
    >>> tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (16, 64), swizzle="bytes128")
    >>> choice_of(tm).box_sizes, choice_of(tm).data_type
    ((16, 64), 'FLOAT16')
    """
    args = tensor_map.arguments
    kinds: dict[str, Any] = {"box_sizes": tensor_map.box_sizes} if args.kind == "tiled" else {}
    if args.kind == "im2col":
        kinds = {
            "pixel_box_lower_corner": args.pixel_box_lower_corner[::-1],
            "pixel_box_upper_corner": args.pixel_box_upper_corner[::-1],
            "channels_per_pixel": args.channels_per_pixel,
            "pixels_per_column": args.pixels_per_column,
            "im2col_offsets": (0,) * len(args.pixel_box_lower_corner),
        }
    if args.kind == "im2col_wide":
        kinds = {"im2col_offsets": (0,)}
    return Choice(
        elem_strides=tensor_map.elem_strides,
        interleave_layout=args.interleave.name,
        swizzle=args.swizzle.name,
        l2_fetch_size=args.l2_promotion.name,
        oobfill=args.oob_fill.name,
        data_type=args.data_type.name,
        rules="driver",
        coords=first_coords(args),
        target=tensor_map.target.name,
        **kinds,
    )
