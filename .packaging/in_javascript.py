"""Printer of explorer/tables.js, the tables of the explorer's page.

Each predicate and byte offset in `consumer/` is a Python function with a single expression. This
module parses the source of these functions, and translates it to JavaScript.
"""

# ruff: noqa: N802  # methods are named after ast's classes

from __future__ import annotations

import ast
import inspect
import json
from types import ModuleType
from typing import Any

from predicates import (
    CONSTANTS,
    SOURCE,
    InJavaScript,
    abi,
    names_in,
    reads_of,
)

from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.struct import RULE_SETS, STRUCT
from tma_dlpack.consumer import descriptor, operand, refusals
from tma_dlpack.copies.request import MAX_COPIED_DIM, MAX_OFFSET
from tma_dlpack.explorer import choice
from tma_dlpack.geometry.plan import SMEM_ALIGNMENT, SWIZZLES, W128_PIXELS
from tma_dlpack.tables import dtypes
from tma_dlpack.tables.arguments import FUNCTIONS, KINDS, OPTION_NAMES
from tma_dlpack.tables.bits import FIELDS
from tma_dlpack.tables.dtypes import DATA_TYPES, NAMED_DTYPES
from tma_dlpack.tables.enums import (
    TensorMapDataType,
    TensorMapIm2ColWideMode,
    TmaInterleaveLayout,
    TmaL2FetchSize,
    TmaOobFill,
    TmaSwizzle,
    c_name,
)
from tma_dlpack.tables.refusals import COPY_REFUSALS
from tma_dlpack.tables.rule import DOCUMENTS, LIBCUDACXX
from tma_dlpack.tables.targets import SWIZZLE_SPAN_BYTES, TARGETS

#: Argument of this package's functions -> its enum.
ENUMS = {
    "interleave_layout": TmaInterleaveLayout,
    "swizzle": TmaSwizzle,
    "l2_fetch_size": TmaL2FetchSize,
    "oobfill": TmaOobFill,
    "mode": TensorMapIm2ColWideMode,
    "data_type": TensorMapDataType,
}


def _static(text: object) -> str:
    return text if isinstance(text, str) else ""


def js_rows() -> list[dict[str, Any]]:
    """Return one dict for each rule, with the columns that the page uses."""
    rows = []
    for rule in RULES:
        columns = {
            "id": rule.id,
            "step": rule.step,
            "on": _static(rule.on) or ["box_sizes", "tensor.shape"],
            "kinds": rule.kinds,
            "sets": sorted(rule.sets),
            "each": rule.each,
            "outermost_first": rule.outermost_first,
            "after": rule.prerequisites,
            "prerequisites_at_entry": rule.prerequisites_at_entry,
            "reads": reads_of(rule),
            "fields": [name for name, *_ in STRUCT if name in names_in(rule.holds)],
            "why": rule.why,
            "must": rule.asks or _static(rule.must),
            "fix": _static(rule.fix),
            "unsupported": rule.unsupported,
            "libcudacxx": rule.libcudacxx,
            "documented": rule.documented,
            "source": rule.source,
            "differs": rule.differs,
        }
        assert columns["must"], f"{rule.id}: pass asks=, since `must` depends on the request"
        rows.append({name: value for name, value in columns.items() if value})
    return rows


def js_types() -> list[dict[str, Any]]:
    """Return one dict for each data type of maps.

    The entry "dtype" names a dtype of tensors that can have a map of the data type.
    """
    named = {name: t for name, t in NAMED_DTYPES.items() if t.lanes in (1, 2)}
    rows = []
    for r in DATA_TYPES:
        own = [n for n, t in named.items() if dtypes.data_type_of(t) is r.data_type]
        others = [n for n, t in named.items() if r.data_type in dtypes.overrides_of(t)]
        others.sort(key=lambda name: name != r.numpy)
        rows.append(
            {
                "name": r.data_type.name,
                "c_name": c_name(r.data_type),
                "dtype": next(iter((*own, *others))),
                "element_bits": r.element_bits,
                "packed_unit": r.packed_unit,
                "smem_chunk_bytes": r.smem_chunk_bytes,
            }
        )
    return rows


def js_dtypes() -> dict[str, dict[str, Any]]:
    """Return the dtypes of tensors by their names in NumPy, torch and JAX."""
    found = {}
    for name, dtype in NAMED_DTYPES.items():
        found[name] = {
            "bits": dtype.itemsize_bits,
            "dlpack": (dtype.code, dtype.bits, dtype.lanes),
            "overrides": [int(t) for t in dtypes.overrides_of(dtype)],
        }
    return found


def js_fields() -> list[dict[str, Any]]:
    """Return the fields of a map's 128 bytes, with their bits."""
    names = ("name", "index", "pieces", "bias", "unit", "signed", "kind", "rank")
    rows = [{name: getattr(field, name) for name in names} for field in FIELDS]
    return [{k: v for k, v in row.items() if v is not None and v is not False} for row in rows]


class OfOperand(InJavaScript):
    """Translator of a module's one-expression functions to JavaScript. It inlines their calls."""

    def __init__(self, module: ModuleType) -> None:
        self.tree, self.names = ast.parse(inspect.getsource(module)), vars(module)
        self.given = {"o": "o"}  # name of a parameter -> its value as JavaScript

    def row(self, call: ast.Call) -> tuple[str, str]:
        """Return the id and the JavaScript predicate of the rule that this call of `_row` makes."""
        columns = {keyword.arg: keyword.value for keyword in call.keywords}
        holds = columns["holds"]
        body = holds.body if isinstance(holds, ast.Lambda) else self.body(holds.id)
        return columns["id"].value, self.visit(body)

    def body(self, name: str) -> ast.expr:
        found = ast.parse(inspect.getsource(self.names[name])).body[0]
        return found.body[-1].value

    def visit_Call(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Attribute):  # the call is text.startswith((word, ...))
            (words,) = node.args
            found = f"{json.dumps(ast.literal_eval(words))}.some((w) => {{}}.startsWith(w))"
            return found.format(self.visit(node.func.value))
        function = self.names[node.func.id]
        before, values = self.given, [self.visit(argument) for argument in node.args]
        self.given = dict(zip(inspect.signature(function).parameters, values, strict=True))
        text = self.visit(self.body(node.func.id))
        self.given = before
        return text

    def visit_Attribute(self, node: ast.Attribute) -> str:
        if isinstance(node.value, ast.Name) and node.value.id not in self.given:
            return str(int(getattr(self.names[node.value.id], node.attr)))
        return f"{self.visit(node.value)}.{node.attr}"

    def visit_Name(self, node: ast.Name) -> str:
        if node.id in self.given:
            return self.given[node.id]
        value = self.names[node.id]
        return json.dumps([*value] if isinstance(value, dict) else value)

    def visit_Constant(self, node: ast.Constant) -> str:
        return json.dumps(node.value)

    def visit_Compare(self, node: ast.Compare) -> str:
        if isinstance(node.ops[0], ast.In):
            return f"{self.visit(node.comparators[0])}.includes({self.visit(node.left)})"
        return super().visit_Compare(node)


def js_operand_functions() -> list[str]:
    """Return JavaScript for the predicates and the two byte offsets of matrix descriptors."""
    rows, offsets = OfOperand(refusals), OfOperand(operand)
    calls = [n for n in ast.walk(rows.tree) if isinstance(n, ast.Call)]
    found = [rows.row(n) for n in calls if isinstance(n.func, ast.Name) and n.func.id == "_row"]
    return [
        "  // The predicates of matrix descriptors, and the functions of the two byte offsets.",
        "  OPERAND_HOLDS: {",
        *(f"    {name}: (o) => {text}," for name, text in found),
        "  },",
        *(
            f"  {name.upper()}: (o) => {offsets.visit(offsets.body(name))},"
            for name in ("leading_bytes", "stride_bytes")
        ),
    ]


def js_operand() -> dict[str, Any]:
    """Return the instructions that read a matrix descriptor, and the rules of the descriptor."""
    instructions = [
        {
            "name": row.name,
            "capabilities": row.capabilities,
            "fields": [[f.name, f.first_bit, f.bits, f.about] for f in row.fields],
            "layout_types": [*row.layout_types],
            "layout_numbers": row.layout_types,
            "fixed": row.fixed,
            "mn_bits": row.mn_bits,
            "sure": row.sure,
        }
        for row in operand.INSTRUCTIONS.values()
    ]
    return {
        "K_STEP_BYTES": operand.K_STEP_BYTES,
        "UNITS": operand.UNITS,
        "SPAN_BYTES": operand.SPAN_BYTES,
        "MEANINGS": {
            f"{major} {'swizzled' if swizzled else 'none'}": words
            for (major, swizzled), words in descriptor.OFFSET_MEANINGS.items()
        },
        "ATOM_ROWS": [operand.atom_rows(s) for s in TmaSwizzle],
        "INSTRUCTIONS": instructions,
        "RULES": [
            {"id": row.id, "must": row.asks or _static(row.must), "after": row.prerequisites}
            for row in refusals.ROWS
        ],
    }


def js_verbs() -> dict[str, Any]:
    """Return one dict for each kind of map.

    A dict contains the name of this package's function that makes such a map, the name of the
    driver's function, and the parameters of this package's function with their defaults.
    """
    rows = {}
    for kind, (_, make) in choice.VERBS.items():
        given = choice.parameters(kind)
        rows[kind] = {
            "name": make.__name__,
            "driver_name": FUNCTIONS[kind],
            "needs": [name for name, default in given.items() if default is choice.NEEDED],
            "defaults": {n: value for n, value in given.items() if value is not choice.NEEDED},
        }
    return rows


def js_tables() -> str:
    """Return explorer/tables.js."""
    targets = {
        name: {"compute_capability": t.compute_capability, "max_smem_bytes": t.max_smem_bytes}
        for name, t in TARGETS.items()
    }
    copies = {name: {"limit": r.limit, "fix": r.fix} for name, r in COPY_REFUSALS.items()}
    tables: dict[str, Any] = {
        "VERBS": js_verbs(),
        "STRUCT": [(name, count) for name, count, *_ in STRUCT],
        "CAPABILITIES": (
            "has_tma",
            "is_sm_9x",
            "has_wide",
            "has_model",
        ),  # in the order of native/page.c
        "OPTION_NAMES": OPTION_NAMES,
        "RULE_SETS": RULE_SETS,
        "ALLOWABLE": ALLOWABLE,
        "ENUMS": {name: [m.name for m in enum] for name, enum in ENUMS.items()},
        "C_NAMES": {name: [c_name(m) for m in enum] for name, enum in ENUMS.items()},
        "SWIZZLES": [SWIZZLES[s]._asdict() for s in TmaSwizzle],
        "SWIZZLE_SPAN_BYTES": SWIZZLE_SPAN_BYTES,
        "SMEM_ALIGNMENT": SMEM_ALIGNMENT,
        "W128_PIXELS": W128_PIXELS,
        "MAX_OFFSET": MAX_OFFSET,
        "MAX_COPIED_DIM": MAX_COPIED_DIM,
        "DOCUMENTS": DOCUMENTS,
        "LIBCUDACXX": LIBCUDACXX,
        "TARGETS": targets,
        "RULES": js_rows(),
        "COPY_RULES": copies,
        "OPERAND": js_operand(),
        "DATA_TYPES": js_types(),
        "DTYPES": js_dtypes(),
        "FIELDS": js_fields(),
    }
    return "\n".join(
        [
            f"// {SOURCE}.",
            "",
            "const tmaTables = (() => {",
            "const K = {",
            *(f"  {name}: {_js_constant(name)}," for name in CONSTANTS),
            "};",
            "",
            "return {",
            f"  ABI: {abi():#010x},",
            "  K,",
            *js_operand_functions(),
            *(f"  {name}: {_js_value(value)}," for name, value in tables.items()),
            "};",
            "})();",
            "",
        ]
    )


def _js_constant(name: str) -> str:
    """Return a constant as JavaScript: the name of a kind of map, or a number."""
    return json.dumps(name.lower() if name.lower() in KINDS else CONSTANTS[name])


def _js_value(value: object) -> str:
    """Return a value as JSON; long lists and dicts have one entry on each line."""
    text = json.dumps(value)
    if len(text) < 100:
        return text
    if isinstance(value, dict):
        entries = [f"    {json.dumps(str(k))}: {json.dumps(v)}," for k, v in value.items()]
        return "\n".join(["{", *entries, "  }"])
    assert isinstance(value, (list, tuple))
    return "\n".join(["[", *(f"    {json.dumps(v)}," for v in value), "  ]"])
