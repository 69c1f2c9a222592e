"""Each rule of arguments, files and ldmatrix refuses a call, and accepts its neighbour.

`conftest.py` checks all other tests: a finding whose id `rules()` does not list fails its test. The
rows of tensors, maps, copies and matrix descriptors have such pairs in the tests of their rooms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.consumer.verbs import LDMATRIX_RULES
from tma_dlpack.debug import Trace, foreign
from tma_dlpack.debug.foreign import map_bytes
from tma_dlpack.driver.encode import ENCODERS, bind
from tma_dlpack.tables.errors import Finding
from tma_dlpack.tables.refusals import REFUSALS
from tma_dlpack.verification.learning import Findings

X = np.zeros((64, 64), np.float16)
TM = tma.make_tma_descriptor(X, (64, 64), swizzle="bytes128")
MAP = bytes(TM)
GOLDEN = Path(__file__).parents[1]
DUMP = GOLDEN / "postmortem/golden/gemm_coordinate.core.xz"
RAW = json.loads((GOLDEN.parent / "notebooks/09_trace.json").read_text())
MADE = next(m for m in RAW["maps"] if m["result"] == 0)


def ldmatrix(row: int = 0, column: int = 0, **options: Any) -> object:
    return tma.ldmatrix_addresses(options.pop("of", TM), row, column, **options)


def of(dtype: str, *box: int) -> tma.TensorMap:
    return tma.make_tma_descriptor(np.zeros((4, 64, 64), dtype), box)


def bound(address: int) -> object:
    return bind(ENCODERS["tiled"], TM.arguments, address)


def explained(text: str) -> object:
    (report,) = tma.explain(text).reports
    report.raise_if_refused()
    return report


def traced(**fields: Any) -> object:
    text = json.dumps({**RAW, "tma_dlpack_trace": 1, "maps": [{**MADE, **fields}]})
    (found,) = Trace.from_json(text).maps
    found.report.raise_if_refused()
    return found


def verified(text: str, folder: Path) -> object:
    path = folder / "findings.json"
    path.write_text(text)
    return Findings.read(path)


def log(size_bytes: int, folder: Path) -> object:
    (folder / "a.log").write_bytes(b"x" * size_bytes)
    return foreign.content(str(folder / "a.log"), 4, "FILE_LOG")


def dumped(content: bytes, folder: Path) -> object:
    path = folder / "some.core"
    path.write_bytes(content)
    return tma.postmortem(path)


def whole_dump(folder: Path) -> object:
    lzma = pytest.importorskip("lzma")
    return dumped(lzma.decompress(DUMP.read_bytes()), folder)


FINDINGS = json.dumps(
    {
        "format": "tma_dlpack verify, 1",
        "version": "0.4.0",
        "device": "none",
        "target": {"compute_capability": [9, 0], "max_smem_bytes": 232448},
        "seed": 0,
        "cases": [],
    }
)
PTX = ".version 8.0\n.target sm_90\n"
CHECKED = "tma_dlpack check: k.cu:12, block (0, 0, 0), thread (32, 0, 0), load_2d: "
GATHER = "AssertionError: TILE_GATHER4 requires a rank-2 tensor map with tile_shape[1] == 1, got "
PTXAS = "ptxas error: Feature '.tile::{}' not supported on .target 'sm_{}'"

#: Rule -> a call that breaks the rule, and a neighbour that does not break it. Some need a folder
#: for a file.
PAIRS: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "ARGUMENT": (lambda: ldmatrix(num=3), lambda: ldmatrix(num=2)),
    "C_TYPE": (lambda: bound(1 << 64), lambda: bound((1 << 64) - 1)),
    "MAP_BYTES": (lambda: tma.TensorMap.from_bytes(MAP[1:]), lambda: tma.TensorMap.from_bytes(MAP)),
    "REPLACE_VALUE": (lambda: TM.replace(box_dim={0: 257}), lambda: TM.replace(box_dim={0: 256})),
    "ADDRESS_LAYOUT": (lambda: TM.with_address(X[1:]), lambda: TM.with_address(X.copy())),
    "DEVICE_CHECK": (
        lambda: explained(f"{CHECKED}the tile is at shared address 0x440; align it\n"),
        lambda: tma.explain("load_2d: the tile is at shared address 0x400\n"),
    ),
    "GATHER4": (lambda: explained(f"{GATHER}(7, 2)"), lambda: tma.explain("TILE_GATHER4")),
    "SCATTER4": (
        lambda: explained(PTXAS.format("scatter4", "121a")),
        lambda: tma.explain("tile::scatter4"),
    ),
    "GATHER4_TARGET": (
        lambda: explained(PTXAS.format("gather4", "90a")),
        lambda: tma.explain("tile::gather4"),
    ),
    "UNREADABLE": (lambda: traced(box_dim={"unreadable": 8}, result=1), lambda: traced(result=0)),
    "DRIVER_RESULT": (lambda: traced(result=201), lambda: traced(result=0)),
    "FILE_CORE_DUMP": (lambda folder: dumped(b"", folder), whole_dump),
    "FILE_LOG": (lambda folder: log(5, folder), lambda folder: log(4, folder)),
    "FILE_MAP": (lambda: map_bytes(MAP[1:].hex()), lambda: map_bytes(MAP.hex())),
    "FILE_PTX": (lambda: tma.lint(".versio 8.0\n.targe\n"), lambda: tma.lint(PTX)),
    "FILE_TRACE": (
        lambda: Trace.from_json('{"tma_dlpack_trace": 2}'),
        lambda: Trace.from_json(json.dumps(RAW)),
    ),
    "FILE_VERIFY": (
        lambda folder: verified(FINDINGS.replace("verify, 1", "verify, 2"), folder),
        lambda folder: verified(FINDINGS, folder),
    ),
    "LDMATRIX_RANK": (
        lambda: ldmatrix(of=of("f2", 2, 64, 64)),
        lambda: ldmatrix(of=of("f2", 1, 64, 64)),
    ),
    "LDMATRIX_COLUMN": (lambda: ldmatrix(column=9), lambda: ldmatrix(column=8)),
    "LDMATRIX_TRANSPOSE": (
        lambda: ldmatrix(of=of("f4", 1, 64, 64), transpose=True),
        lambda: ldmatrix(of=of("f2", 1, 64, 64), transpose=True),
    ),
    "LDMATRIX_OUTSIDE": (lambda: ldmatrix(row=49), lambda: ldmatrix(row=48)),
    "LDMATRIX_ADDRESS": (
        lambda: ldmatrix(smem_address=129),
        lambda: ldmatrix(smem_address=128),
    ),
}
ROWS = {**REFUSALS, **{row.id: row for row in LDMATRIX_RULES}}


def call(function: Callable[..., object], folder: Path) -> object:
    return function(*([folder] if function.__code__.co_argcount else []))


def test_every_row_has_a_pair():
    assert set(PAIRS) == set(ROWS)
    assert set(ROWS) == {
        rule.id
        for group in ("call", "file", "operand")
        for rule in tma.rules(group)
        if not rule.id.startswith("MATRIX_")  # these are in test_matrix_descriptor.py
    }


@pytest.mark.parametrize("rule", PAIRS)
def test_a_call_is_refused_by_its_row_and_its_neighbour_is_not(rule, tmp_path):
    breaks, holds = PAIRS[rule]
    with pytest.raises(tma.TmaPreconditionError) as refused:
        call(breaks, tmp_path)
    (violation,) = refused.value.violations
    assert violation.rule == rule
    row, (listed,) = ROWS[rule], tma.rules(rule)
    printed = "'s own check, "  # by another program, which `explain` then cites
    assert violation.source == listed.source or printed in violation.source
    assert violation.fix
    if not row.asks:  # then the list has the same text
        assert violation.limit == listed.asks
    if isinstance(row.on, str) and row.on and row.group != "operand":
        assert violation.argument.endswith(row.on)
    assert call(holds, tmp_path) is not None


def _findings(finding: type[Finding]) -> Iterator[type[Finding]]:
    for kind in finding.__subclasses__():
        yield kind
        yield from _findings(kind)


def test_a_finding_that_is_not_listed_fails_the_test_in_which_it_is_made():
    kinds = list(_findings(Finding))
    assert {kind.__name__ for kind in kinds} == {"Violation", "Advice"}
    for kind in kinds:
        with pytest.raises(AssertionError, match=r"NO_SUCH_RULE is not in tma\.rules\(\)"):
            kind("NO_SUCH_RULE", "x", "x is 1", "it must be 2", "pass 2", "a test")
