"""Generate code from the rules and tables of the package: ``python .packaging/generate.py``.

Run this script after a change of the rows in `checks/`, of `checks.struct.STRUCT`, or of
`tables/`. It writes

``tma_dlpack/checks/judge.py``               the judge in Python
``tma_dlpack/tables/abi.py``                 a checksum of the rules' rows, and the rare options
``tma_dlpack/include/tma_dlpack_tables.h``   the judge, limits, data types, targets, fields in C
``tma_dlpack/include/tma_dlpack_options.hpp``  the options in C++
``tma_dlpack/explorer/tables.js``            the tables in JavaScript, with names and messages

A rule is a row of `checks/`. Its predicate is an expression that is true for every accepted call. A
judge is a function that evaluates the predicates of all rules. All generated files are checked in.
tests/include/test_generated.py compares the files with the output of this script. `predicates.py`
translates the predicates, `rare_options.py` prints the options, and `in_javascript.py` prints the
tables of the page. This module prints the tables in C.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parent)
)  # tests load this file by its path, so its folder is not in sys.path

from in_javascript import js_tables
from predicates import (
    CONSTANTS,
    NUMBER,
    ROOT,
    SET_NAMES,
    SOURCE,
    OfCapability,
    abi,
    c_judge,
    python_judge,
)
from rare_options import FORMS, c_options, cpp_options, form_of, minor_release

from tma_dlpack import __version__
from tma_dlpack.checks import ALLOWABLE, RULES
from tma_dlpack.checks.struct import STRUCT
from tma_dlpack.tables import arguments
from tma_dlpack.tables.arguments import KINDS
from tma_dlpack.tables.bits import FIELDS, element_type_bits
from tma_dlpack.tables.dtypes import DATA_TYPES, FROM_DLPACK, LANES_OF_4_BITS
from tma_dlpack.tables.enums import DLDataTypeCode
from tma_dlpack.tables.targets import COLUMNS, TARGETS

MASK_BITS = 64  # width of the judge's mask in C, and of `allowed` in TmaDlpackOptions


def mask(ids: Iterable[str]) -> str:
    """Return the mask of these rules as a C constant; raise ValueError if a rule has no bit."""
    number = sum(1 << NUMBER[i] for i in ids)
    if number >> MASK_BITS:
        raise ValueError(
            f"{len(NUMBER)} rows, and the mask of the C judge has {MASK_BITS} bits: make it wider "
            "(uint64_t in c_judge, TmaDlpackOptions.allowed)"
        )
    return f"UINT64_C({number:#x})"


def c_rows() -> list[str]:
    """Return the C function that selects the rules for a kind of map and a set of rules."""
    lines = [
        "/* Return the mask of the rules in a set of rules that apply to a kind of map.",
        " * `is_driver_call` is 1 for a driver_encode_* call, which has no tensor. */",
        "static inline uint64_t tma_dlpack_rows(int kind, int rules, int is_driver_call) {",
        f"  static const uint64_t rows[{len(KINDS)}][{len(SET_NAMES)}] = {{",
    ]
    for kind in KINDS:
        of_kind = [
            mask(r.id for r in RULES if kind in r.kinds and rules in r.sets) for rules in SET_NAMES
        ]
        lines.append(f"      {{{', '.join(of_kind)}}}, /* {kind} */")
    return [
        *lines,
        "  };",
        f"  const uint64_t make_only = {mask(r.id for r in RULES if r.make_only)};",
        "  return rows[kind][rules] & ~(is_driver_call ? make_only : 0);",
        "}",
        "",
        "/* The mask of the rows that `allow` may switch off. */",
        f"#define TMA_DLPACK_ALLOWABLE {mask(ALLOWABLE)}",
    ]


def c_types() -> list[str]:
    """Return the C table of data types, and the C function from a DLPack type to a data type."""
    rows = []
    for r in DATA_TYPES:
        columns = (
            *(r.element_bits, r.is_packed, r.is_padded, r.is_float, r.packed_unit, r.interleaves),
            *(r.swizzles, *map(int, element_type_bits(r.data_type, derived=True))),
        )
        numbers = ", ".join(str(int(n)) for n in columns)
        rows.append(f"      {{{numbers}}}, /* {r.data_type.name} */")
    cases = []
    for (code, bits), data_type in FROM_DLPACK.items():
        lanes = LANES_OF_4_BITS.get(code, (1,)) if bits == 4 else (1,)
        tests = " || ".join(f"lanes == {n}" for n in lanes)
        cases.append(
            f"    case {int(code)} << 8 | {bits}: return {tests} ? {int(data_type)} : -1; "
            f"/* {code.name} */"
        )
    return [
        "/* A row for each CUtensorMapDataType. `element_type` and `tf32` are the values of",
        " * the fields of a map with these names. */",
        "typedef struct {",
        "  int element_bits, is_packed, is_padded, is_float, packed_unit, interleaves, swizzles;",
        "  int element_type, tf32;",
        "} TmaDlpackTypeRow;",
        "",
        f"enum {{ TMA_DLPACK_DATA_TYPES = {len(DATA_TYPES)} }};",
        "",
        "/* Return the row of a data type, or NULL for an unknown number. */",
        "static inline const TmaDlpackTypeRow *tma_dlpack_type_row(int data_type) {",
        "  static const TmaDlpackTypeRow rows[TMA_DLPACK_DATA_TYPES] = {",
        *rows,
        "  };",
        "  return data_type >= 0 && data_type < TMA_DLPACK_DATA_TYPES ? &rows[data_type] : NULL;",
        "}",
        "",
        f"enum {{ TMA_DLPACK_LAST_CODE = {max(DLDataTypeCode)} }}; /* of DLDataTypeCode */",
        "",
        "/* Return the CUtensorMapDataType of a DLPack type, or -1 if there is no such type. The",
        " * __get_tensor_map_data_type of libcu++ has the same cases. */",
        "static inline int tma_dlpack_own_type(int code, int bits, int lanes) {",
        "  switch (code << 8 | bits) {",
        *cases,
        "    default: return -1;",
        "  }",
        "}",
    ]


def c_targets() -> list[str]:
    """Return C functions that compute a target's features from its compute capability."""
    lines = ["/* The features of a GPU, from its compute capability. */"]
    for name, expression in COLUMNS.items():
        text = ast.parse(expression, mode="eval")
        body = OfCapability().visit(text)
        lines.append(
            f"static inline int tma_dlpack_target_{name}(int major, int minor) {{ (void)minor; "
            f"return {body}; }}"
        )
    presets = [
        f"      {{{major}, {minor}, {t.max_smem_bytes}}}, /* {name} */"
        for name, t in TARGETS.items()
        for major, minor in [t.compute_capability]
    ]
    return [
        *lines,
        "",
        "/* Return {major, minor, bytes of shared memory of a block} of a target, or NULL. */",
        f"enum {{ TMA_DLPACK_TARGETS = {len(TARGETS)} }};",
        "static inline const int *tma_dlpack_target(int number) {",
        "  static const int targets[TMA_DLPACK_TARGETS][3] = {",
        *presets,
        "  };",
        "  return number >= 0 && number < TMA_DLPACK_TARGETS ? targets[number] : NULL;",
        "}",
    ]


def c_fields() -> list[str]:
    """Return C constants for each field of a map: first bit and width of the field's entry 0."""
    lines = [
        "/* First bit and width (in bits) of each field's entry 0; entry i is i widths later. */"
    ]
    seen: set[str] = set()
    for field in FIELDS:
        if field.name in seen:
            continue
        seen.add(field.name)
        for piece, (bit, width) in enumerate(field.pieces):
            name = f"{field.name.upper()}{'_HIGH' if piece else ''}"
            lines.append(
                f"enum {{ TMA_DLPACK_BIT_{name} = {bit}, TMA_DLPACK_WIDTH_{name} = {width} }};"
            )
    return lines


def fields_of(is_array: bool) -> str:
    """Return ``FIELD(name)`` for each array of the struct if `is_array`, else for each number."""
    return " ".join(f"FIELD({name})" for name, count, *_ in STRUCT if bool(count) is is_array)


def header_version() -> list[str]:
    """Return the lines that define a header's release number and its C++ namespace."""
    major, minor, patch = re.match(r"(\d+)\.(\d+)\.(\d+)", __version__).groups()
    version = int(major) * 10000 + int(minor) * 100 + int(patch)
    return [
        "/* The number of this release: major * 10000 + minor * 100 + patch. */",
        "#ifndef TMA_DLPACK_VERSION",
        f"#define TMA_DLPACK_VERSION {version}",
        f"#elif TMA_DLPACK_VERSION != {version}",
        '#error "two releases of tma_dlpack in one file: pass one include path"',
        "#endif",
        "",
        "/* In C++ the minor release is a namespace, so a program may contain several releases. */",
        "#ifdef __cplusplus",
        f"#define TMA_DLPACK_BEGIN inline namespace tma_dlpack_{minor_release()} {{",
        "#define TMA_DLPACK_END }",
        "#else",
        "#define TMA_DLPACK_BEGIN",
        "#define TMA_DLPACK_END",
        "#endif",
    ]


def c_tables() -> str:
    """Return include/tma_dlpack_tables.h."""
    struct = [
        f"  int64_t {name}{f'[{count}]' if count else ''}; /* {what} */"
        for name, count, _, what in STRUCT
    ]
    constants = [
        f"#define TMA_DLPACK_{name} {f'INT64_C({value})' if value >= 1 << 31 else value}"
        for name, value in CONSTANTS.items()
    ]
    rules = [f"  TMA_DLPACK_RULE_{rule.id}," for rule in RULES]
    ids = [f'      "{rule.id}",' for rule in RULES]
    sets = ", ".join(f"TMA_DLPACK_RULES_{name}" for name in SET_NAMES.values())
    return "\n".join(
        [
            f"/* {SOURCE}. */",
            "",
            "#ifndef TMA_DLPACK_TABLES_H",
            "#define TMA_DLPACK_TABLES_H",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "#include <string.h>",
            "",
            *header_version(),
            "",
            "/* A checksum of TmaDlpackDescribed, the rules and the options. */",
            f"#define TMA_DLPACK_TABLES_ABI {abi():#010x}u",
            "",
            *constants,
            "",
            f"enum {{ {sets} }}; /* sets of rules */",
            "",
            "/* TmaDlpackDescribed is a call as plain numbers, which tma_dlpack_describe fills in.",
            " * Index 0 of an array is the innermost dimension. */",
            "TMA_DLPACK_BEGIN",
            "",
            "typedef struct {",
            *struct,
            "} TmaDlpackDescribed;",
            "",
            "/* Apply the macro FIELD to each field of TmaDlpackDescribed that is a number",
            " * (NUMBERS) or an array (ARRAYS). */",
            "#define TMA_DLPACK_NUMBERS(FIELD) " + fields_of(is_array=False),
            "#define TMA_DLPACK_ARRAYS(FIELD) " + fields_of(is_array=True),
            "",
            *c_options(),
            "",
            "/* The rules, in the order of libcu++'s checks. Bit i of a mask is rule i. */",
            "enum {",
            *rules,
            "  TMA_DLPACK_RULE_COUNT",
            "};",
            "",
            "static inline const char *tma_dlpack_rule_id(int rule) {",
            "  static const char *const ids[TMA_DLPACK_RULE_COUNT] = {",
            *ids,
            "  };",
            '  return rule >= 0 && rule < TMA_DLPACK_RULE_COUNT ? ids[rule] : "";',
            "}",
            "",
            *c_rows(),
            "",
            *c_types(),
            "",
            *c_targets(),
            "",
            *c_fields(),
            "",
            "/* Return a number wrapped to signed 32 bits, as the driver's sums are [measured]. */",
            "static inline int64_t tma_dlpack_int32(int64_t n) {",
            "  return ((n + (INT64_C(1) << 31)) & INT64_C(0xffffffff)) - (INT64_C(1) << 31);",
            "}",
            "",
            *c_judge(),
            "",
            "TMA_DLPACK_END",
            "",
            "#endif /* TMA_DLPACK_TABLES_H */",
            "",
        ]
    )


def python_abi() -> str:
    """Return tables/abi.py, which has the checksum and imports no rules.

    `import tma_dlpack` compares this checksum with the checksum of the C extension.
    """
    rows = {rule_id: NUMBER[rule_id] for rule_id in ALLOWABLE}
    return "\n".join(
        [
            f'"""{SOURCE}."""',
            "",
            "from __future__ import annotations",
            "",
            "from typing import NamedTuple",
            "",
            f"ABI = {abi():#010x}  # checksum of the described struct, the rules and the options",
            "",
            "#: Id of a row that `allow=` may switch off -> the number of the row.",
            f"ALLOWABLE_ROWS = {rows!r}".replace("'", '"'),
            "",
            "",
            "class RareOptions(NamedTuple):",
            '    """The rare options of a call (`arguments.RARE_OPTIONS`), in parameter order."""',
            "",
            *(
                f"    {o.name}: {FORMS[form_of(o)].python} = {o.default}"
                for o in arguments.RARE_OPTIONS
            ),
            "",
        ]
    )


OUTPUTS = {
    "tma_dlpack/checks/judge.py": python_judge,
    "tma_dlpack/tables/abi.py": python_abi,
    "tma_dlpack/include/tma_dlpack_tables.h": c_tables,
    "tma_dlpack/include/tma_dlpack_options.hpp": cpp_options,
    "tma_dlpack/explorer/tables.js": js_tables,
}

if __name__ == "__main__":
    for name, text in OUTPUTS.items():
        (ROOT / name).write_text(text())
        print(f"wrote {name}")
