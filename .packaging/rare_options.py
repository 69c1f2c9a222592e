"""Printer of a call's options: the struct in C, and MakeOptions in C++."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from predicates import SOURCE

from tma_dlpack import __version__
from tma_dlpack.tables import arguments
from tma_dlpack.tables.arguments import Option
from tma_dlpack.tables.enums import TmaInterleaveLayout, TmaL2FetchSize, TmaOobFill, TmaSwizzle


class Form(NamedTuple):
    """Templates for one form (a type of option). `is_given` is true if a call has the option."""

    python: str
    cpp: str
    c: str
    is_given: str


#: Name of a form in TMA_DLPACK_RARE_OPTIONS -> its templates.
FORMS = {
    "FLAG": Form("bool", "bool", "int {name}; /* {about} */", "o->{name} != {default}"),
    "INTEGER": Form(
        "int", "std::int64_t", "int64_t {name}; /* {about} */", "o->{name} != {default}"
    ),
    "OPTIONAL_INTEGER": Form(
        "int | None",
        "std::optional<int>",
        "int has_{name}; int64_t {name}; /* {about} */",
        "o->has_{name}",
    ),
    "INTEGERS": Form(
        "tuple[int, ...] | None",
        "std::optional<std::vector<std::int64_t>>",
        "int {count}; /* number of entries of `{name}`, or TMA_DLPACK_NOT_GIVEN */",
        "o->{count} != TMA_DLPACK_NOT_GIVEN",
    ),
}


def form_of(option: Option) -> str:
    """Return the key of an option's form in `FORMS`."""
    is_optional = option.form == "integer" and option.default is None
    return "OPTIONAL_INTEGER" if is_optional else option.form.upper()


def _printed(option: Option, template: str) -> str:
    count = f"{option.name.removesuffix('s')}_count"
    default = int(option.default or 0)
    return template.format(name=option.name, about=option.about, count=count, default=default)


def c_options() -> list[str]:
    """Return the C struct of a call's options, and the functions and macros for this struct."""
    numbers, arrays, start, listed, given = [], [], [], [], []
    for option in arguments.RARE_OPTIONS:
        form = form_of(option)
        numbers.append(_printed(option, f"  {FORMS[form].c}"))
        given.append(_printed(option, FORMS[form].is_given))
        listed.append(_printed(option, f"{form}({{name}})"))
        if form == "INTEGERS":
            listed[-1] = _printed(option, "INTEGERS({name}, {count})")
            array = "  int64_t {name}[TMA_DLPACK_MAX_RANK]; /* {about} */"
            arrays.append(_printed(option, array))
            start.append(_printed(option, "  options->{count} = TMA_DLPACK_NOT_GIVEN;"))
        elif option.default:
            start.append(_printed(option, "  options->{name} = {default};"))
    return [
        "enum { TMA_DLPACK_OWN_TYPE = -1 };  /* use the map type of the tensor's dtype */",
        "enum { TMA_DLPACK_NOT_GIVEN = -1 }; /* the count of an array that was omitted */",
        "",
        "/* The options of a make_* call. Arrays are row-major, enums are the driver's values.",
        " * Initialize the struct with tma_dlpack_start_options. Entries of an array past its",
        " * count are not read. */",
        "typedef struct {",
        "  int kind;         /* TMA_DLPACK_TILED, ..._IM2COL or ..._IM2COL_WIDE */",
        '  int driver_rules; /* 1: rules="driver"; 0: the default of `rules=` */',
        "  int asked_type;   /* CUtensorMapDataType, or TMA_DLPACK_OWN_TYPE */",
        "  int interleave, swizzle, l2_promotion, oob_fill, mode, has_swizzle;",
        "  int box_count, elem_stride_count; /* elem_stride_count = TMA_DLPACK_NOT_GIVEN: all 1 */",
        "  int lower_count, upper_count;",
        "  uint64_t allowed; /* rows of TMA_DLPACK_ALLOWABLE that are switched off */",
        "  int64_t channels, pixels;",
        *numbers,
        "  int64_t box_sizes[TMA_DLPACK_MAX_RANK], elem_strides[TMA_DLPACK_MAX_RANK];",
        "  int64_t lower[TMA_DLPACK_MAX_RANK], upper[TMA_DLPACK_MAX_RANK];",
        *arrays,
        "} TmaDlpackOptions;",
        "",
        "static inline void tma_dlpack_start_options(TmaDlpackOptions *options, int kind) {",
        "  memset(options, 0, sizeof *options);",
        "  options->kind = kind;",
        "  options->asked_type = TMA_DLPACK_OWN_TYPE;",
        "  options->elem_stride_count = TMA_DLPACK_NOT_GIVEN;",
        *start,
        "}",
        "",
        "/* Apply to each rare option the macro for its form. */",
        "#define TMA_DLPACK_RARE_OPTIONS(FLAG, INTEGER, OPTIONAL_INTEGER, INTEGERS) \\",
        f"  {' '.join(listed)}",
        "/* Return 1 if a call has a rare option, else 0. */",
        "static inline int tma_dlpack_has_rare_options(const TmaDlpackOptions *o) {",
        f"  return {' || '.join(given)};",
        "}",
    ]


def minor_release() -> str:
    """Return the namespace of this minor release, such as v0_4."""
    return "v" + "_".join(__version__.split(".")[:2])


def cpp_options() -> str:
    """Return include/tma_dlpack_options.hpp."""
    release = minor_release()
    rare = []
    for option in arguments.RARE_OPTIONS:
        form = FORMS[form_of(option)]
        default = "std::nullopt" if option.default is None else str(option.default).lower()
        rare.append(f"  {form.cpp} {option.name} = {default}; // {option.about}")
    return "\n".join(
        [
            f"// {SOURCE}.",
            "",
            "#ifndef TMA_DLPACK_OPTIONS_HPP",
            "#define TMA_DLPACK_OPTIONS_HPP",
            "",
            "#include <cstdint>",
            "#include <optional>",
            "#include <string>",
            "#include <vector>",
            "",
            "namespace tma_dlpack",
            "{",
            f"inline namespace {release}",
            "{",
            "",
            "// These enums have the names and values of libcu++ and cuda.h.",
            cpp_enum("Interleave", TmaInterleaveLayout),
            "#ifndef TMA_DLPACK_SWIZZLE // not defined if tma_dlpack.h has defined Swizzle",
            "#define TMA_DLPACK_SWIZZLE",
            cpp_enum("Swizzle", TmaSwizzle),
            "#endif",
            cpp_enum("L2Fetch", TmaL2FetchSize),
            cpp_enum("OobFill", TmaOobFill),
            "",
            "// The optional arguments, as in Python.",
            "struct MakeOptions",
            "{",
            "  std::vector<std::int64_t> elem_strides = {}; // empty: 1 in each dimension",
            "  Interleave interleave_layout = Interleave::none;",
            "  L2Fetch l2_fetch_size = L2Fetch::none;",
            "  OobFill oobfill = OobFill::none;",
            "  std::optional<int> data_type = std::nullopt; // a CUtensorMapDataType",
            "  bool driver_rules = false; // true: check only what the driver requires",
            "  std::vector<std::string> allow = {}; // ids of libcu++'s rules to switch off",
            *rare,
            "};",
            "",
            f"}} // namespace {release}",
            "} // namespace tma_dlpack",
            "",
            "#endif // TMA_DLPACK_OPTIONS_HPP",
            "",
        ]
    )


def cpp_enum(name: str, enum: type[IntEnum]) -> str:
    """Return an enum whose members count from 0."""
    assert [int(member) for member in enum] == list(range(len(enum)))
    return f"enum class {name} : int {{ {', '.join(member.name for member in enum)} }};"
