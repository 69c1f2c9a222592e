"""`rules`: every rule of the package as data, collected from the tables of rules and refusals.

A new row of one of these tables appears in the list without a change to this module.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.advice import ADVICE, MAP_ADVICE
from tma_dlpack.consumer.refusals import ROWS as OPERAND_RULES
from tma_dlpack.consumer.verbs import LDMATRIX_RULES
from tma_dlpack.dlpack.layout import REFUSALS as TENSOR_REFUSALS
from tma_dlpack.public import Drawn, opaque, public_in
from tma_dlpack.tables.arguments import KINDS
from tma_dlpack.tables.coerce import text_of
from tma_dlpack.tables.errors import TmaPreconditionError, bad_value, wrapped
from tma_dlpack.tables.refusals import CALL_RULES, COPY_REFUSALS, FILE_RULES
from tma_dlpack.tables.rule import Rule

#: The groups of rules, in the order of the list; `RuleInfo.group` explains them.
GROUPS = ("tensor", "rule", "advice", "copy", "call", "operand", "file")


@public_in("tma_dlpack.report")
@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule of the list that `rules` returns: its requirement, the reason, and who refuses.

    Attributes
    ----------
    id : str
        The stable id, as in `Violation.rule`.
    group : {"tensor", "rule", "advice", "copy", "call", "operand", "file"}
        ``"tensor"``: a tensor that cannot be used at all. ``"rule"``: a precondition of a map.
        ``"advice"``: a remark on an accepted call. ``"copy"``: a precondition of a copy.
        ``"call"``: the form of an argument. ``"operand"``: a tile that a tensor core or ldmatrix
        reads. ``"file"``: the form of a file or of foreign text.
    argument : str
        The argument that the rule is about; "" if it depends on the call.
    asks : str
        The requirement; for an advice, the warning.
    why : str
        The reason for the rule; "" if `asks` includes it.
    source : str
        A document, a header, or a measurement; brackets show where sources disagree.
    refused_by : tuple of str
        Who refuses a call that breaks the rule: ``"libcu++"``, ``"driver"``, ``"hardware"`` (the
        GPU lacks the feature, or the copy is an illegal instruction), ``"tma_dlpack"``. Empty for
        advice.
    kinds : tuple of str
        The kinds of map that have this rule; empty for all kinds.
    allowable : bool
        Whether `allow=` of make_tma_descriptor can switch the rule off.
    """

    id: str
    group: str
    argument: str
    asks: str
    why: str
    source: str
    refused_by: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    allowable: bool = False

    def __str__(self) -> str:
        who = "refused by " + ", ".join(self.refused_by) if self.refused_by else "advice"
        details = [who, *self.kinds, *(["allow= switches it off"] if self.allowable else [])]
        subject = f"{self.argument}: " if self.argument else ""
        head = wrapped(f"{self.id} ({'; '.join(details)})")
        lines = [f"{subject}{self.asks}", *([f"why: {self.why}"] if self.why else [])]
        return "\n".join(
            [head, *(wrapped(line, "  ") for line in (*lines, f"source: {self.source}"))]
        )


@public_in("tma_dlpack.report")
class RuleList(Sequence[RuleInfo], Drawn):
    """The rules, in the order in which they are checked; ``print`` shows them as text.

    A sequence of `RuleInfo`; notebooks show it as a table.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> [rule.id for rule in tma.rules() if rule.allowable][:2]
    ['STRIDE_UNIQUE', 'BOX_IN_SHAPE']
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: Sequence[RuleInfo]) -> None:
        self._rules = tuple(rules)

    @overload
    def __getitem__(self, index: int) -> RuleInfo: ...

    @overload
    def __getitem__(self, index: slice) -> RuleList: ...

    def __getitem__(self, index: int | slice) -> RuleInfo | RuleList:
        found = self._rules[index]
        return RuleList(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self._rules)

    def table(self) -> list[tuple[str, ...]]:
        """Return the cells of a table: the names of the columns, then a row for each rule."""
        names = tuple(field.name for field in dataclasses.fields(RuleInfo))
        return [names, *(tuple(_cell(getattr(rule, name)) for name in names) for rule in self)]

    def __repr__(self) -> str:
        return f"<RuleList of {len(self)} rules>"

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._rules))


@opaque
def rules(group: str | None = None) -> RuleList:
    """Return all rules that this package checks, the rules of one group, or one rule by its id.

    Parameters
    ----------
    group : str, optional
        A group (see `RuleInfo.group`), or the id of a rule as messages show it. None returns all
        rules.

    Returns
    -------
    RuleList
        A sequence of `RuleInfo`.

    Raises
    ------
    TmaPreconditionError
        If `group` is neither a group nor an id.

    Examples
    --------
    >>> import tma_dlpack as tma
    >>> print(tma.rules("BOX_RANGE"))
    BOX_RANGE (refused by libcu++, driver; tiled)
      box_sizes: it must be 1..256
      why: the map stores size - 1 in 8 bits
      source: libcu++ make_tma_descriptor.h at 571f2fc3bc, __get_box_sizes; CUDA driver API,
        cuTensorMapEncodeTiled
    """
    # In the order of `GROUPS`.
    rows = (
        *TENSOR_REFUSALS.values(), *RULES, *ADVICE, *MAP_ADVICE, *COPY_REFUSALS.values(),
        *CALL_RULES, *OPERAND_RULES, *LDMATRIX_RULES, *FILE_RULES,
    )  # fmt: skip
    everything = [_info(row) for row in rows]
    chosen = [rule for rule in everything if group in (None, rule.group, rule.id)]
    if not chosen:
        raise _unknown(group, [rule.id for rule in everything])
    return RuleList(chosen)


def _unknown(group: object, ids: list[str]) -> TmaPreconditionError:
    # Ids are in upper case; the nearest id is suggested also for a word in lower case.
    near = difflib.get_close_matches(str(text_of(group)).upper(), ids, n=1)
    return bad_value(
        "group",
        group,
        f"be one of {', '.join(map(repr, GROUPS))}, or the id of a rule",
        f"did you mean {near[0]!r}?" if near else "omit it: tma.rules() lists all",
    )


def _info(rule: Rule) -> RuleInfo:
    return RuleInfo(
        id=rule.id,
        group=rule.group,
        argument=rule.on if isinstance(rule.on, str) else "",
        asks=f"it must {rule.asks}" if rule.asks else rule.limit or f"it must {rule.must}",
        why=rule.why,
        source=rule.sources(rule.kinds[0]),
        refused_by=tuple(_refusing(rule)),
        kinds=() if rule.kinds == KINDS else rule.kinds,
        allowable=rule.id in ALLOWABLE,
    )


def _refusing(rule: Rule) -> Iterator[str]:
    """Return who refuses a call that breaks a rule; see `RuleInfo.refused_by`."""
    # The driver checks neither the rules that `allow=` can switch off, nor the rules that only
    # `make_*` checks.
    by_driver = rule.documented or "measured" in rule.sets or "driver" in rule.sets
    is_rule = rule.group == "rule"
    if rule.libcudacxx:
        yield "libcu++"
    if is_rule and by_driver and not rule.make_only and rule.id not in ALLOWABLE:
        yield "driver"
    if rule.unsupported:
        yield "hardware"
    # `ours` is true if only this package checks the rule: a rule of maps that only `make_*` checks,
    # or a rule about tensors, copies, calls, operands or files.
    ours = rule.make_only and not rule.libcudacxx if is_rule else rule.group != "advice"
    if ours and not rule.unsupported:
        yield "tma_dlpack"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return ", ".join(value) if isinstance(value, tuple) else str(value)
