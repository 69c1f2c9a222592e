"""`suggest` and the types of its result: boxes, swizzles and L2 fetch sizes, with their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, SupportsIndex, overload

from tma_dlpack.checks import ALLOWABLE
from tma_dlpack.consumer import MatrixDescriptor
from tma_dlpack.consumer.verbs import read_major
from tma_dlpack.dlpack import TensorView, as_tensor_view
from tma_dlpack.make import build
from tma_dlpack.public import opaque, public_in
from tma_dlpack.suggestions import reasons
from tma_dlpack.suggestions.reasons import Reasons
from tma_dlpack.suggestions.speeds import card_of
from tma_dlpack.suggestions.tile_choices import (
    DEFAULTS,
    BoxChoice,
    SuggestRequest,
    begin_of,
    best_first,
    check_reader,
    choices,
    read_access,
    read_tile,
    without_needless_conflicts,
)
from tma_dlpack.tables.coerce import aligned, integer_of, shown, summary, text_of, texts_of
from tma_dlpack.tables.enums import DataType, Ints, Rules, Tensor
from tma_dlpack.tables.errors import (
    TmaPreconditionError,
    TmaUnsupportedError,
    Violation,
    argument_error,
    at_least,
    sealed,
    wrapped,
)
from tma_dlpack.tables.targets import INNER_BYTES, Target
from tma_dlpack.tensor_map.map import TensorMap

# For some packed types, the innermost box size must be a multiple of this number of values.
PACKED_UNIT = 128
# The titles of the columns in the table of suggestions.
HEADS = (
    *("", "box", "swizzle", "L2 fetch", "copies", "tx bytes", "smem bytes", "aligned"),
    *("conflicts", "of memcpy"),
)


class NoSuggestionError(TmaUnsupportedError, IndexError):
    """The error that indexing an empty `Suggestions` raises. Its message has the reasons."""


class _Reasoned:
    """Base class of results whose `reasons` are computed when a program first reads them."""

    __slots__ = ()

    # Python calls `__getattr__` for `reasons` only while the slot `reasons` is empty.
    def __getattr__(self, name: str) -> Any:
        if name != "reasons":
            raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")
        reasons = self._why()
        object.__setattr__(self, "reasons", reasons)
        return reasons


@public_in("tma_dlpack.suggestions")
@sealed
@dataclass(frozen=True, slots=True, repr=False)
class Suggestion(_Reasoned):
    """One way to copy a tile: arguments that `make_tma_descriptor` accepts, and their costs.

    Attributes
    ----------
    arguments : dict
        Keyword arguments of `make_tma_descriptor` for the same tensor.
    copies : int
        Number of copies, which cover the tile exactly.
    tx_bytes : int
        Bytes that the mbarrier counts for one copy. For the whole tile, the mbarrier counts
        `copies` times as many bytes.
    smem_bytes : int
        Bytes of shared memory for all stages, if each copy is aligned to `smem_alignment`.
    smem_alignment : int
        Alignment of the first copy in bytes.
    bank_conflicts : int or None
        The largest degree of bank conflicts of the reader's accesses; 1 means no conflicts. None if
        `reader` is None.
    bandwidth : float or None
        Measured speed of the copies as a share of a memcpy's speed, for a tensor larger than the L2
        cache. None for GPUs other than sm_90, because they were not measured.
    descriptor : MatrixDescriptor or None
        Descriptor of the first copy at shared address 0. None unless wgmma or tcgen05 reads the
        tile.
    reasons : tuple of str
        Sentences that explain this suggestion, and remarks on its use.
    """

    arguments: dict[str, Any]
    copies: int
    tx_bytes: int
    smem_bytes: int
    smem_alignment: int
    bank_conflicts: int | None
    bandwidth: float | None
    descriptor: MatrixDescriptor | None
    reasons: Reasons = field(init=False)
    _why: Callable[[], Reasons] = field(compare=False)

    def __repr__(self) -> str:
        """Return one line with the values that the suggestion's row has in the printed table."""
        cells = zip(HEADS[1:], self._cells(), strict=True)
        return f"<Suggestion: {', '.join(f'{head} {cell}' for head, cell in cells)}>"

    def _cells(self) -> tuple[object, ...]:
        words = self.arguments
        box = "x".join(map(str, words["box_sizes"])) + ", split" * ("split_inner" in words)
        degree = self.bank_conflicts
        conflicts = "-" if degree is None else "free" if degree == 1 else f"{degree}-way"
        speed = "-" if self.bandwidth is None else f"{self.bandwidth:.2f}"
        counts = self.copies, self.tx_bytes, self.smem_bytes, self.smem_alignment
        return (box, words["swizzle"], words["l2_fetch_size"], *counts, conflicts, speed)


@public_in("tma_dlpack.suggestions")
@sealed
@dataclass(frozen=True, slots=True, repr=False)
class Suggestions(_Reasoned, Sequence[Suggestion]):
    """The result of `suggest`: a sequence of ways to copy a tile, best first.

    The sequence is empty if TMA cannot or should not copy the tile. Indexing an empty result raises
    a `NoSuggestionError`, which is both an IndexError and a `TmaError`. Its message has the
    reasons.

    Attributes
    ----------
    title : str
        The tile, the tensor and the reader.
    reasons : tuple of str
        If the result is empty, sentences that state the reasons and the alternatives. Otherwise,
        sentences about the boxes that were left out, because the reader would have more bank
        conflicts.
    items : tuple of Suggestion
    """

    title: str
    items: tuple[Suggestion, ...]
    reasons: Reasons = field(init=False)
    _why: Callable[[], Reasons] = field(compare=False)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Suggestion: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Suggestion, ...]: ...
    def __getitem__(self, index: int | slice) -> Suggestion | tuple[Suggestion, ...]:
        if not self.items and isinstance(index, int):
            raise NoSuggestionError(str(self))
        return self.items[index]

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.items)

    def __repr__(self) -> str:
        """Return one line of at most 200 characters."""
        text = f"Suggestions: {len(self.items) or 'none'} for {self.title}"
        if self.items:
            box, swizzle, l2, *_ = self.items[0]._cells()
            text += f"; first: box {box}, {swizzle}, L2 {l2}"
        return summary(text)

    def _table(self) -> list[tuple[object, ...]]:
        return [(n, *one._cells()) for n, one in enumerate(self.items, 1)]

    def __str__(self) -> str:
        if not self.items:
            return "\n".join([f"{self.title}: no suggestion", *map(_bullet, self.reasons)])
        lines = aligned([HEADS, *self._table()])
        first = ["the first:", *map(_bullet, self.items[0].reasons)]
        return "\n".join([self.title, *lines, *first, *map(_bullet, self.reasons)])

    def _repr_html_(self) -> str:
        # `draw` is imported here, so that `suggest` itself does not load it.
        from tma_dlpack.draw.cards import bold, plain, table_html
        from tma_dlpack.draw.figure import fragment

        if not self.items:
            parts = [bold(f"{self.title}: no suggestion")]
        else:
            parts = [bold(self.title), table_html(HEADS, self._table())]
            parts += map(plain, self.items[0].reasons)
        return fragment([*parts, *map(plain, self.reasons)])


def _bullet(reason: str) -> str:
    return wrapped(f"- {reason}", "  ")


@opaque
def suggest(
    tensor: Tensor,
    tile: Ints,
    *,
    reader: Literal["wgmma", "tcgen05", "ldmatrix", "threads"] | None = "wgmma",
    major: Literal["K", "MN", "k", "mn"] = "K",
    access: Literal["row", "column"] | Callable[[int], Sequence[int] | None] = "row",
    data_type: DataType | None = None,
    stages: SupportsIndex = 1,
    smem_bytes: SupportsIndex | None = None,
    rules: Rules = "libcu++",
    allow: Iterable[str] | str = (),
    target: Target | str | None = None,
) -> Suggestions:
    """Suggest boxes, swizzles and L2 fetch sizes for a tile, best first.

    `make_tma_descriptor` accepts every suggestion. The copies of a suggestion cover the tile
    exactly, and the reader can read the tile. Suggestions are sorted by the measured speed of the
    copies. Suggestions that are about as fast as the fastest suggestion are sorted by the number of
    copies, then by the bytes of shared memory, then by the bank conflicts.

    Parameters
    ----------
    tensor : object
        As for `make_tma_descriptor`.
    tile : sequence of int
        Extents of the tile that the kernel uses in one step. The extents are row-major, one per
        dimension of the tensor, and in the same units as `box_sizes`. The tile may be larger than
        the largest box, because several copies may fill the tile.
    reader : {"wgmma", "tcgen05", "ldmatrix", "threads", None}
        The instruction that reads the tile in shared memory. "threads" means plain loads. None
        means that the kernel only stores the tile to global memory.
    major : {"K", "MN"}
        The dimension of the matrix product that is contiguous in the tile. `major` is used only if
        the reader is "wgmma", "tcgen05" or "ldmatrix".
    access : {"row", "column"} or function
        The elements that the threads of a warp read, as in `bank_conflicts`. A function gets the
        index of a thread in its warp. It returns the place in the tile of the element that the
        thread reads, as one index per dimension, row-major. For an idle thread it returns None.
    data_type : TensorMapDataType, name or value, optional
        As for `make_tma_descriptor`.
    stages : int
        Number of tiles in shared memory at the same time.
    smem_bytes : int, optional
        Bytes of shared memory that all stages together may use. None means the GPU's maximum for a
        thread block.
    rules, allow, target
        As for `make_tma_descriptor`. If libcu++ refuses the tensor and the driver does not, the
        broken rule of libcu++ is switched off: `allow` in `Suggestion.arguments` has the rule, and
        `Suggestion.reasons` names the rule. An example is a rule about the strides of a permuted
        view.

    Returns
    -------
    Suggestions
        A sequence of `Suggestion`. ``print`` shows the sequence as a table. If TMA cannot or should
        not copy the tile, the sequence is empty, and `reasons` has the causes and the alternatives.

    Raises
    ------
    TmaPreconditionError
        If `tensor` is not a tensor, or if an argument cannot be read.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> x = np.zeros((4096, 1024), np.float16)
    >>> best = tma.suggest(x, (128, 64))[0]
    >>> best.arguments["box_sizes"], best.arguments["swizzle"], best.copies, best.bank_conflicts
    ((128, 64), 'bytes128', 1, 1)
    >>> tma.make_tma_descriptor(x, **best.arguments).tx_bytes == best.tx_bytes
    True
    >>> print(tma.suggest(x, (64, 4), reader=None))  # doctest: +ELLIPSIS
    tile (64, 4) of float16 (4096, 1024), only stored: no suggestion
      - a row of the tile is 8 bytes, and a copy takes multiples of 16 bytes: take a tile of...
    """
    options: dict[str, Any] = {"data_type": data_type, "target": target}
    given = {name: value for name, value in options.items() if value is not None}
    given |= {} if text_of(rules) == "libcu++" else {"rules": rules}
    given |= {} if isinstance(allow, tuple) and not allow else {"allow": allow}
    words = {"reader": reader, "major": major, "access": access, "stages": stages}
    return suggest_view(as_tensor_view(tensor), tile, given, smem_bytes=smem_bytes, **words)


def suggest_view(
    view: TensorView,
    tile: object,
    options: dict[str, Any],
    *,
    reader: object,
    major: object,
    access: object,
    stages: object,
    smem_bytes: object,
) -> Suggestions:
    """Return the suggestions for a `TensorView`, which may describe a tensor that does not exist.

    `options` has the options that the caller passed. Possible options are data_type, rules, allow
    and target.
    """
    extents = read_tile(tile, view)
    named, of_major = check_reader(reader), read_major(major, "a tile of (M or N, K)")
    count = at_least("stages", stages, usual=4)
    limit = integer_of(smem_bytes)
    if smem_bytes is not None and (limit is None or limit < 1):
        found = f"smem_bytes is {shown(smem_bytes)}"
        raise argument_error(
            "smem_bytes", found, "be a number of bytes, or None", "pass smem_bytes=None"
        )
    title = f"tile {extents} of {view.dtype} {view.shape}, " + _read_by(named, of_major, access)

    if "allow" in options:
        allow = text_of(options["allow"])
        names = texts_of(options["allow"]) if allow is None else (allow,)
        options = options | ({} if names is None else {"allow": names})
    read = read_access(access, extents)
    wanted = SuggestRequest(view, extents, named, of_major, read, card_of(view.device)[0], options)
    # If even the smallest box is refused, the tensor or an option is the cause. Then the broken
    # rules that libcu++ has and the driver lacks are switched off, and the smallest box is tried
    # again.
    plain = _plain(wanted)
    if plain is None:
        findings, options = _findings(wanted)
        wanted = replace(wanted, options=options)
        plain = None if findings else _plain(wanted)
        if plain is None:
            return Suggestions(
                title, (), partial(reasons.of_tensor, findings, wanted.without_tensor())
            )
    most = plain.target.max_smem_bytes
    wanted = replace(
        wanted,
        extents=plain.shape,
        bits=plain.arguments.type_row.element_bits,
        begin=begin_of(view),
        stages=count,
        room=most if limit is None else min(most, limit),
        target=plain.target,
    )
    return _suggestions(title, wanted)


def _suggestions(title: str, wanted: SuggestRequest) -> Suggestions:
    # The reasons are computed later, when a program reads them. Until then, they must not keep the
    # tensor alive.
    later = wanted.without_tensor()
    needless = reasons.if_needless(later)
    if needless is not None:
        return Suggestions(title, (), needless)
    if not wanted.fits(wanted.tile_bytes):  # the tile is too large, whatever its boxes are
        return Suggestions(title, (), partial(reasons.of_too_large, later, wanted.tile_bytes))
    found, refused = choices(wanted)
    if not found:
        violations = tuple(refused[0].violations()) if refused else ()
        may_fit = any(one.alike != "kind" for one in refused) or not refused
        return Suggestions(title, (), partial(reasons.of_not_read, later, violations, may_fit))
    fitting = [choice for choice in found if wanted.fits(choice.all_bytes)]
    if not fitting:
        least = min(choice.all_bytes for choice in found)
        return Suggestions(title, (), partial(reasons.of_too_large, later, least))
    best = best_first(wanted, without_needless_conflicts(fitting))
    items = tuple(_suggestion(choice, later) for choice in best)
    left_out = [choice for choice in fitting if choice not in best]
    return Suggestions(title, items, partial(reasons.of_left_out, later, left_out))


def _suggestion(choice: BoxChoice, later: SuggestRequest) -> Suggestion:
    return Suggestion(
        arguments=choice.arguments,
        copies=choice.copies,
        tx_bytes=choice.tx_bytes,
        smem_bytes=later.stages * choice.all_bytes,
        smem_alignment=choice.smem_alignment,
        bank_conflicts=choice.conflicts,
        bandwidth=choice.speed if later.target.has_model else None,
        descriptor=choice.descriptor,
        _why=partial(reasons.of_choice, choice, later),
    )


# -- arguments ------------------------------------------------------------------------------------


def _read_by(reader: str | None, major: str, access: object) -> str:
    if reader is None:
        return "only stored"
    if reader != "threads":
        return f"read by {reader}, {major}-major"
    return "read by threads" + (f", by {access}" if text_of(access) else ", by a function")


def _plain(wanted: SuggestRequest) -> TensorMap | None:
    """Return a map of the tensor with the smallest box; None if every such map is refused."""
    allow = wanted.options.get("allow", ())
    if type(allow) is not tuple:
        return None
    units = [INNER_BYTES * 8 // wanted.view.dtype.bits]
    units += [PACKED_UNIT] if wanted.view.dtype.bits < 8 else []
    for unit in units:
        box = *(1 for _ in wanted.tile[1:]), unit
        with suppress(TmaPreconditionError):
            return wanted.map_of(box_sizes=box, allow=(*allow, "BOX_IN_SHAPE"))
    return None


def _findings(wanted: SuggestRequest) -> tuple[list[Violation], dict[str, Any]]:
    """Return the violations that do not depend on the box, and the options with a longer `allow`.

    If a broken rule is a rule of libcu++ that the driver does not have, it becomes an entry of
    `allow` instead of a violation. Raises `TmaPreconditionError` if an option cannot be read.
    """
    options = wanted.options
    own = {"box_sizes": wanted.tile, "swizzle": "none", "l2_fetch_size": "none"}
    # After a rule is switched off, the check may find another broken rule. The check is therefore
    # repeated.
    while True:
        report = build.check_view("tiled", wanted.view, DEFAULTS | options | own)
        unreadable = [v for v in report.violations if v.rule == "ARGUMENT"]
        if unreadable:
            raise TmaPreconditionError(unreadable)
        findings = [v for v in report.violations if v.argument != "box_sizes"]
        lifted = [v.rule for v in findings if v.rule in ALLOWABLE]
        if not lifted:
            return findings, options
        options = options | {"allow": (*options.get("allow", ()), *dict.fromkeys(lifted))}
