"""The report of `verify`, and the file of all cases, which a user can send to the maintainers.

The file is JSON, and it is compressed if its name ends with .gz. It has the name of the GPU, and
for every case the arguments, the verdict and the bytes. `Findings.against` compares the encodings
in the file with the rules and the layout of a target, without a GPU. The layout of a target is the
place of each field in the 128 bytes of a map. `FieldStatistics` is for a target whose layout has
not been measured. For each field of the layout of sm_90, it counts the driver's maps that agree in
this field.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tma_dlpack.verification.checks import CHECKS, Outcome
from tma_dlpack.verification.core import (
    EncodeArguments,
    bits,
    coerce,
    errors,
    find_violations,
    public,
    read_driver_call,
    refusals,
    report,
    tma,
)

#: Exceptions that the content of a file can cause if `Findings.write` did not write the file. They
#: become the error `FILE_VERIFY`.
_NOT_OURS = (
    *(OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)
# The first bytes of a gzip file (RFC 1952).
_GZIP = b"\x1f\x8b"
# Attributes of `Outcome` and of `Target` that the file contains.
_OF_OUTCOME = ("call", "accepted", "difference")
_OF_TARGET = ("compute_capability", "max_smem_bytes", "driver_version", "multiprocessors")


@errors.sealed
@dataclass(frozen=True, slots=True)
class VerifyRow:
    """The result of one check.

    Attributes
    ----------
    name : str
    cases : int
        Number of cases that were run.
    accepted : int
        Number of cases that this package and the GPU accepted. The results of these cases were
        compared byte for byte.
    disagreements : int
        Number of cases in which the results of this package and of the GPU differ.
    first : str or None
        The first disagreement: a Python call that repeats the case, then the difference.
    note : str
        A remark. For example, if the layout of the GPU's maps has not been measured, the remark
        lists the fields that agree with the layout of sm_90.
    """

    name: str
    cases: int
    accepted: int
    disagreements: int
    first: str | None = None
    note: str = ""

    @classmethod
    def of(cls, name: str, results: Iterable[tuple[bool, str | None]]) -> VerifyRow:
        """Return the row that counts the results of a check.

        A result is (whether the case was accepted, difference or None).
        """
        cases = list(results)
        differing = [text for _, text in cases if text is not None]
        first = differing[0] if differing else None
        return cls(name, len(cases), sum(ok for ok, _ in cases), len(differing), first)


@public.public_in("tma_dlpack.verification")
@errors.sealed
@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport:
    """The result of `verify`, with one row for each check; ``print(report)`` shows a table.

    Attributes
    ----------
    device : str
        The GPU, its compute capability and the driver's version.
    seed : int
        Seed of the random cases.
    rows : tuple of VerifyRow
        One row for each check, with `name`, `cases`, `accepted`, `disagreements`, `first` (a call
        that repeats the first disagreement) and `note`.
    """

    device: str
    seed: int
    rows: tuple[VerifyRow, ...]

    @property
    def ok(self) -> bool:
        """Whether this package and the GPU agree in all cases."""
        return not any(row.disagreements for row in self.rows)

    def __repr__(self) -> str:
        verdict = "all agree" if self.ok else "THERE ARE DISAGREEMENTS"
        cases = sum(row.cases for row in self.rows)
        checks = f"{coerce.counted(len(self.rows), 'check')} of {coerce.counted(cases, 'case')}"
        return coerce.summary(
            f"VerifyReport: {verdict} in {checks}; {self.device}; seed {self.seed}"
        )

    def __str__(self) -> str:
        heads = ("check", "cases", "accepted", "disagreements")
        rows = [(r.name, r.cases, r.accepted, r.disagreements) for r in self.rows]
        lines = [f"{self.device}; seed {self.seed}", *coerce.aligned([heads, *rows], left=1)]
        for row in self.rows:
            if row.note:
                lines.append(f"{row.name}: {row.note}")
            if row.first:
                lines.append(f"{row.name}, first disagreement:\n{row.first}")
        lines.append("all agree" if self.ok else "THERE ARE DISAGREEMENTS")
        return "\n".join(lines)

    @property
    def findings(self) -> tuple[report.Finding, ...]:
        """A finding for each check with disagreements; its evidence is the first disagreement."""
        return tuple(
            report.Finding(
                "VERIFY",
                report.ERROR,
                f"{row.name}: {row.disagreements} of {coerce.counted(row.cases, 'case')} disagree",
                "send the file that verify(out='findings.json.gz') writes",
                evidence=tuple((row.first or "").splitlines()),
            )
            for row in self.rows
            if row.disagreements
        )

    def _repr_html_(self) -> str:
        heads = ("", "check", "cases", "accepted", "disagreements", "note")
        rows = [
            ("✗" if r.disagreements else "✓", r.name, r.cases, r.accepted, r.disagreements, r.note)
            for r in self.rows
        ]
        checks = report.Section(lines=[f"{self.device}; seed {self.seed}"], table=[heads, *rows])
        verdict = "✓ all agree" if self.ok else "✗ there are disagreements"
        return report.as_html(verdict, [checks, *self.findings])


@dataclass
class Findings:
    """The cases that `verify` ran on a GPU. The cases can be written to a file and read again.

    Attributes
    ----------
    device : str
        The GPU and its driver.
    target : Target
    seed : int
    version : str
        Version of this package.
    cases : list of dict
        A case has `check`, `number`, `call`, `accepted`, `difference`, and the entries of
        `Outcome.evidence`. For an encoding, the evidence is the arguments, the driver's verdict and
        the driver's bytes. For a copy, the evidence is the hardware's verdict. If the bytes of the
        hardware and of the simulator differ, the evidence also has `xor`: the XOR of these bytes,
        compressed by zlib and in base 64.
    """

    device: str
    target: tma.Target
    seed: int
    version: str = field(default_factory=lambda: str(sys.modules["tma_dlpack"].__version__))
    cases: list[dict[str, Any]] = field(default_factory=list)

    def add(self, check: str, number: int, outcome: Outcome) -> None:
        """Add the outcome of case `number` of a check."""
        result = {name: getattr(outcome, name) for name in _OF_OUTCOME}
        self.cases.append({"check": check, "number": number} | result | outcome.evidence)

    def write(self, path: str | Path) -> None:
        """Write all cases to a file."""
        content = {
            "format": refusals.VERIFY_FORMAT,
            "version": self.version,
            "device": self.device,
            "target": {name: getattr(self.target, name) for name in _OF_TARGET},
            "seed": self.seed,
            "cases": self.cases,
        }
        data = json.dumps(content).encode()
        Path(path).write_bytes(gzip.compress(data) if str(path).endswith(".gz") else data)

    @classmethod
    def read(cls, path: str | Path) -> Findings:
        """Read the findings from a file that `write` wrote.

        Raises
        ------
        TmaPreconditionError
            If the file cannot be read, or if `write` did not write it.
        """
        try:
            content = json.loads(_content(Path(path)))
            if content["format"] != refusals.VERIFY_FORMAT:
                raise ValueError(f"the format is {content['format']!r:.99}")
            facts = dict(content["target"])
            facts["compute_capability"] = tuple(facts["compute_capability"])
            cases = [dict(case) for case in content["cases"]]
            if not all({"check", "number", *_OF_OUTCOME} <= {*case} for case in cases):
                raise ValueError("a case lacks fields")
            return cls(
                content["device"], tma.Target(**facts), content["seed"], content["version"], cases
            )
        except _NOT_OURS as error:
            raise _not_ours(str(path), error) from error

    def against(self, target: tma.Target | str | None = None) -> VerifyReport:
        """Compare the driver's verdicts and bytes with the rules and the layout of a target.

        Only the encodings are compared again. For all other checks, such as copies, the report
        repeats the results of the run on the GPU. The default of `target` is the target of the GPU
        on which `verify` ran.
        """
        column = self.target if target is None else tma.Target.of(target)
        try:
            return VerifyReport(
                f"{self.device}, against the column of {column}", self.seed, self._rows(column)
            )
        except _NOT_OURS as error:
            raise _not_ours("a case", error) from error

    def _rows(self, column: tma.Target) -> tuple[VerifyRow, ...]:
        rows = []
        for check in CHECKS:
            cases = [case for case in self.cases if case["check"] == check.name]
            if not cases:
                continue
            encodes = check.op == "encode"
            # Compare encodings with the rules of `column` now. For all other checks, use the
            # differences that the run on the GPU recorded.
            texts = [_difference(c, column) if encodes else c["difference"] for c in cases]
            calls = [text and f"{c['call']}\n{text}" for c, text in zip(cases, texts, strict=True)]
            accepted = [case["accepted"] for case in cases]
            row = VerifyRow.of(check.name, zip(accepted, calls, strict=True))
            rows.append(replace(row, note=self.fields(check.name)) if encodes else row)
        return tuple(rows)

    def fields(self, check: str) -> str:
        """Return a text about the fields of sm_90's layout that agree with the driver's maps.

        The text is "" if the layout of the target has been measured.
        """
        if self.target.has_model:
            return ""
        statistics = FieldStatistics()
        for case in self.cases:
            if case["check"] == check and case["bytes"]:
                call = read_driver_call(case["kind"], case["arguments"], self.target)
                made = bytes.fromhex(case["bytes"])
                statistics.add(call.encode_arguments(), call.address, made)
        return f"no model for {self.target}: {statistics}"


def _content(path: Path) -> bytes:
    """Return the decompressed bytes of a file; refuse more than `MAX_VERIFY_BYTES` bytes."""
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP)) == _GZIP
    with gzip.open(path) if is_gzip else path.open("rb") as file:
        # Read one byte more than the limit, so that a file above the limit is detected.
        data = file.read(refusals.MAX_VERIFY_BYTES + 1)
    if len(data) > refusals.MAX_VERIFY_BYTES:
        raise ValueError(f"it holds more than {refusals.MAX_VERIFY_BYTES >> 20} MiB")
    return bytes(data)


def _not_ours(what: str, error: BaseException) -> tma.TmaError:
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, RecursionError):
        why = "it is nested too deeply"
    if isinstance(error, MemoryError):
        why = "it needs more memory than there is"
    return refusals.REFUSALS["FILE_VERIFY"].error("path", f"{what} cannot be read: {why}")


def _difference(case: dict[str, Any], target: tma.Target) -> str | None:
    """Compare a recorded encoding with a target's rules and layout.

    Return the difference as a text, or None.
    """
    request = read_driver_call(case["kind"], case["arguments"], target)
    violations = find_violations(request)
    ours = ", ".join(violation.rule for violation in violations) or "accepted"
    # If the driver refused the call, the rules must refuse the call, too.
    if case["bytes"] is None:
        return None if violations else f"driver: {case['driver']}\nrules of {target}: accepted"
    if violations:
        return f"driver: accepted\nrules of {target}: {ours}"
    data, arguments = bytes.fromhex(case["bytes"]), request.encode_arguments()
    if target.has_model:
        mine = bits.encode(arguments, request.address)
        return None if mine == data else f"driver: {data.hex()}\nmodel:  {mine.hex()}"
    if not target.has_derived_layout or arguments.kind != "tiled":
        return None
    try:
        decoded, address = bits.decode(data, derived=True)
    except tma.TmaError as error:
        return f"driver: {data.hex()}\nderived layout: {error}"
    # The derived layout comes from the compiler's code for tensormap.replace. This instruction
    # cannot change the L2 promotion, so the L2 promotion is unknown and is not compared.
    derived = decoded._replace(l2_promotion=arguments.l2_promotion)
    if (derived, address) == (arguments, request.address):
        return None
    return f"driver: {data.hex()}\nderived layout: {decoded}, address {address:#x}"


class FieldStatistics:
    """For each field of sm_90's layout, the number of the driver's maps that agree in this field.

    For each field, `seen` counts the maps that have the field, and `same` counts the maps in which
    the value of the field agrees. `stray` has the bits that are outside of all fields and are set
    in at least one map.
    """

    maps: int
    stray: int

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.same: Counter[str] = Counter()
        self.maps = 0
        self.stray = 0

    def add(self, arguments: EncodeArguments, address: int, made_by_driver: bytes) -> None:
        """Count one map of the driver.

        Skip the map if sm_90 cannot encode it, for example because sm_90 lacks its data type.
        """
        try:
            modelled = bits.encode(arguments, address)
        except OverflowError:
            return
        self.maps += 1
        word = int.from_bytes(made_by_driver, "little")
        for one in bits.fields_of(arguments.kind, arguments.rank):
            self.seen[one.label] += 1
            self.same[one.label] += one.read(made_by_driver) == one.read(modelled)
            word &= ~one.mask  # After the loop, `word` has only bits outside of all fields.
        self.stray |= word

    def __str__(self) -> str:
        """Return a text with the number of fields that agree in all maps.

        For each of the remaining fields, the text has the number of maps in which the field agrees.
        """
        labels = dict.fromkeys(f.label for f in bits.FIELDS if self.seen[f.label])
        differing = [
            f"{label} ({self.same[label]} of {self.seen[label]})"
            for label in labels
            if self.same[label] < self.seen[label]
        ]
        stray = [str(bit) for bit in range(1024) if self.stray >> bit & 1]
        text = (
            f"of {len(labels)} fields of sm_90's layout, {len(labels) - len(differing)} agree in "
        )
        text += f"all {self.maps} maps"
        if differing:
            text += f"; these do not: {', '.join(differing)}"
        if stray:
            text += f"; bits outside all fields are set: {', '.join(stray)}"
        return text
