"""Configuration of Sphinx for the site.

The command ``sphinx-build -W notebooks build/site`` builds the site. With
``-D nb_execution_mode=force`` it also runs all notebooks. A line
``<!-- generated: NAME -->`` of a page is replaced by the text that `GENERATED[NAME]` returns. The
code blocks of a guide are run, and the output of each block is shown below the block.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli.main import main
from tma_dlpack.cli.table import commands
from tma_dlpack.debug.explain.failures import RESULTS
from tma_dlpack.explorer.page import page
from tma_dlpack.tables.rule import CCCL_COMMIT

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "tma_dlpack"
copyright = "the tma_dlpack developers"
version = release = tma.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
default_role = "py:obj"  # a `name` in a docstring links to the entry of a public name
nitpicky = False
autodoc_typehints = "none"  # because docstrings have the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
nb_execution_mode = "off"  # the pages show the stored outputs
nb_execution_raise_on_error = True
nb_execution_timeout = 300
suppress_warnings = [
    "mystnb.unknown_mime_type",  # live widgets: the site shows their pictures
    "ref.python",  # `.ok` in a docstring is ambiguous, because several classes have it
]

html_theme = "pydata_sphinx_theme"
html_title = f"tma_dlpack {release}"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "show_prev_next": True}
html_show_sourcelink = False
html_show_search_summary = False  # because a summary makes the browser load each found page
html_sidebars = {"explorer": [], "guide/changes": []}  # each page is the only page of its section
html_static_path = ["site"]
html_css_files = ["site.css"]

#: Chapters of the Python reference: title -> public names. A test compares all names with
#: `tma.__all__`.
CHAPTERS = {
    "Make a map, or check the call": (
        "make_tma_descriptor check_tma_descriptor make_tma_descriptors TensorMapBatch "
        "make_im2col_descriptor check_im2col_descriptor make_im2col_wide_descriptor "
        "check_im2col_wide_descriptor make_conv_descriptor check_conv_descriptor im2col_corners"
    ),
    "Wide tiles and slices": "split_inner split_inner_coords ragged ragged_coords",
    "The map": "TensorMap",
    "The driver's calls": (
        "driver_encode_tiled driver_encode_im2col driver_encode_im2col_wide driver_replace_address"
    ),
    "Options and targets": (
        "TmaInterleaveLayout TmaSwizzle TmaL2FetchSize TmaOobFill TensorMapDataType "
        "TensorMapIm2ColWideMode Target TARGETS"
    ),
    "Reports, rules and errors": (
        "Report Violation Advice rules TmaError TmaPreconditionError "
        "TmaTargetError TmaUnsupportedError TmaDriverError"
    ),
    "Copy tiles": "load_tile load_tiles store_tile reduce_tile tile_coords Tile backend Backend",
    "Choose a box, and read it": (
        "suggest bank_conflicts matrix_descriptor MatrixDescriptor ldmatrix_addresses"
    ),
    "Run a kernel": "run_kernel",
    "Explain and trace": "explain trace",
    "Dead kernels": "postmortem",
    "Lint": "lint",
    "Look": "draw explore",
    "Measure on a GPU": "bandwidth verify",
    "Extensions in C++": "get_include",
}

#: Subpackage -> the classes of results that users import from it.
RESULT_CLASSES = {
    "tma_dlpack.debug": (
        "Explanation PrintedArguments Trace TracedMap PostMortem Fault DeadBarrier DeadKernel "
        "FoundMap LintReport LintFinding"
    ),
    "tma_dlpack.kernel": "KernelRun",
    "tma_dlpack.report": "RuleList RuleInfo Finding",
    "tma_dlpack.suggestions": "Suggestions Suggestion",
    "tma_dlpack.verification": "VerifyReport BandwidthReport",
}

#: The functions of `draw` that the reference shows with a picture of one map.
PICTURED = (
    "tensor",
    "shared",
    "bank_conflicts",
    "copy_motion",
    "barrier",
    "fields_of",
    "access_steps",
    "swizzle_bits",
)

#: Group of `tma.rules()` -> the heading of the group in the reference.
RULE_GROUPS = {
    "rule": "Preconditions of a map, in libcu++'s order",
    "advice": "Remarks on accepted calls",
    "copy": "Preconditions of a copy",
    "operand": "What matrix descriptors and ldmatrix require",
    "tensor": "Tensors that cannot be used at all",
    "call": "What an argument must be",
    "file": "What a file or text from elsewhere must be",
}


def entry(module: str, name: str, value: object) -> str:
    """Return the reStructuredText that documents one public name."""
    if inspect.ismodule(value):
        return f".. py:data:: {module}.{name}\n\n   A module: see :doc:`draw`.\n"
    if inspect.isclass(value):
        return f".. autoclass:: {module}.{name}\n   :members:\n"
    if callable(value):
        return f".. autofunction:: {module}.{name}\n"
    return f".. autodata:: {module}.{name}\n   :no-value:\n"


def entries(module: str, names: list[str], values: object) -> str:
    """Return the entries of several names, as a block of a MyST page."""
    listed = "\n".join(entry(module, name, getattr(values, name)) for name in names)
    return f"```{{eval-rst}}\n{listed}```\n"


def python_reference() -> str:
    """Return the reference of `tma_dlpack`."""
    parts = [
        f"## {title}\n\n{entries('tma_dlpack', names.split(), tma)}"
        for title, names in CHAPTERS.items()
    ]
    for room, names in RESULT_CLASSES.items():
        title = f"Results: `from {room} import ...`"
        parts.append(f"## {title}\n\n{entries(room, names.split(), importlib.import_module(room))}")
    return "\n".join(parts)


def draw_reference() -> str:
    """Return the reference of `tma_dlpack.draw`: functions, some with a picture, and classes."""
    functions = [name for name in draw.__all__ if inspect.isfunction(getattr(draw, name))]
    functions.sort(key=lambda name: (*PICTURED, name).index(name) + name.endswith("_html"))
    others = [name for name in draw.__all__ if name not in functions and name != "FIGURES"]
    x = np.zeros((30, 104), dtype=np.float16)
    tensor_map = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")
    parts = ["## Functions\n"]
    for name in functions:
        parts.append(entries("tma_dlpack.draw", [name], draw))
        if name in PICTURED:
            parts.append(raw(getattr(draw, name)(tensor_map).html()))
    parts += ["## Figures and what they hold\n", entries("tma_dlpack.draw", others, draw)]
    parts += ["## Names for the command line\n", entries("tma_dlpack.draw", ["FIGURES"], draw)]
    return "\n".join(parts)


def rule_reference() -> str:
    """Return the reference of all rules. Each rule has an anchor, such as rule-BOX_RANGE."""
    lines: list[str] = []
    for group, title in RULE_GROUPS.items():
        lines += [f"## {title}", ""]
        for rule in tma.rules():
            if rule.group != group:
                continue
            who = f"refused by {', '.join(rule.refused_by)}" if rule.refused_by else "advice"
            details = [
                who,
                *(kind.replace("_", "-") for kind in rule.kinds),
                *(["`allow=` switches it off"] if rule.allowable else []),
            ]
            subject = f"`{rule.argument}`: " if rule.argument else ""
            lines += [
                f"(rule-{rule.id})=",
                f"### {rule.id}",
                "",
                f'<span id="rule-{rule.id}"></span>{subject}{plain(rule.asks)} '
                f"({'; '.join(details)}).",
                "",
            ]
            lines += [f"Why: {plain(rule.why)}.", ""] if rule.why else []
            lines += [f"Source: {plain(rule.source)}.", ""]
    return "\n".join(lines)


def error_reference() -> str:
    """Return the reference of the error numbers that `tma.explain` explains.

    Each number is a heading, because the search of the site finds headings.
    """
    parts = []
    for result in sorted(RESULTS, key=lambda result: result.code):
        answer = str(tma.explain(f"{result.name} {result.code}"))
        parts.append(
            f"(error-{result.code})=\n## {result.code}\n\n"
            f"`{result.name}`: {plain(result.words)}.\n\n"
            f"````{{code-block}} text\n:class: printed\n{answer}\n````\n"
        )
    return "\n".join(parts)


def plain(text: str) -> str:
    """Return Markdown that shows the text of a rule unchanged."""
    for character in "\\`*_<>[]#":
        text = text.replace(character, "\\" + character)
    return text


def help_of(*arguments: str) -> str:
    """Return the text that the command prints for ``--help``, wrapped at 100 columns."""
    printed = io.StringIO()
    columns, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"
    with contextlib.redirect_stdout(printed):
        main([*arguments, "--help"])
    if columns is None:
        del os.environ["COLUMNS"]
    else:
        os.environ["COLUMNS"] = columns
    return printed.getvalue()


def command_reference() -> str:
    """Return the help texts of the command `tma-dlpack` and of its subcommands."""
    parts = [f"```text\n{help_of()}```\n"]
    parts += [f"## {name}\n\n```text\n{help_of(name)}```\n" for name in commands()]
    return "\n".join(parts)


def docstring(package: str) -> str:
    """Return the docstring of a package, which explains how to extend the package."""
    module = importlib.import_module(f"tma_dlpack.{package}")
    return f"```text\n{inspect.getdoc(module)}\n```\n"


def home() -> str:
    """Return the picture of the home page: an animation of one copy."""
    x = np.zeros((32, 96), dtype=np.float16)
    tensor_map = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")
    return raw(draw.copy_motion(tensor_map, (8, 0)).html())


def race() -> str:
    """Return the picture of the lint guide: a store and a copy, without a fence between them."""
    store, copy = "st.shared.u32", "cp.async.bulk.global.shared::cta"
    return raw(draw.missing_fence(store, copy, title="PROXY_FENCE: a missing fence").html())


def hang() -> str:
    """Return the picture of the postmortem guide: warps that wait for missing bytes."""
    links = [
        ("264 warps", "barrier 0x400", "parity 0"),
        ("barrier 0x400", "its copies", "12,288 bytes", True),
    ]
    return raw(draw.chain(links, title="HANG_BYTES: 12,288 of 24,576 bytes came").html())


#: HTML that shows the explorer in the theme of the site. The system's theme may differ.
FRAME = """\
<p><a href="explore.html">Open the explorer alone</a>: its address then contains its state.</p>
<iframe class="explorer" title="the explorer" height="1100"></iframe>
<script>
{
  const frame = document.querySelector("iframe.explorer"), root = document.documentElement;
  const show = () => {
    let state = "";  // the state of the shown page, which a file:// page may not read
    try { state = frame.contentWindow.location.hash; } catch { /* keep the empty state */ }
    frame.src = `explore.html?${root.dataset.theme || "light"}${state}`;
  };
  new MutationObserver(show).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  show();
}
</script>"""
#: A script of the explorer's page. It sets the theme before the browser paints the page.
FRAME_THEME = """<script>
const themes = { "?dark": "dark", "?light": "light" };
document.documentElement.style.colorScheme = themes[location.search] || "";
</script>"""


def raw(html: str) -> str:
    """Return HTML as a block of a MyST page."""
    return f'````{{raw}} html\n<div class="shown">{html}</div>\n````\n'


#: Name of a marker -> the function that returns the text for this marker.
GENERATED = {
    "home": home,
    "race": race,
    "hang": hang,
    "explorer": lambda: raw(FRAME),
    "python": python_reference,
    "draw": draw_reference,
    "rules": rule_reference,
    "command": command_reference,
    "errors": error_reference,
    "cccl": lambda: CCCL_COMMIT,
    "checks": lambda: docstring("checks"),
    "tables": lambda: docstring("tables"),
    "dlpack": lambda: docstring("dlpack"),
    "make": lambda: docstring("make"),
    "drawing": lambda: docstring("draw"),
    "teaching": lambda: docstring("course"),
    "commands": lambda: docstring("cli"),
}


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the markers of a page by generated texts. In a guide, also run the code blocks."""
    for name, generate in GENERATED.items():
        marker = f"<!-- generated: {name} -->"
        if marker in source[0] and not docname[:1].isdigit():
            source[0] = source[0].replace(marker, generate())
    if docname.startswith("guide/"):
        source[0] = with_outputs(source[0])


def with_outputs(page: str) -> str:
    """Return a page with the output of each code block below the block.

    If the last statement of a block is an expression whose value is a figure, the page shows the
    figure too. Exceptions are not caught.

    >>> print(with_outputs("```python\\nx = 2\\nprint(x + 1)\\n```"))
    ```python
    x = 2
    print(x + 1)
    ```
    <BLANKLINE>
    ````{code-block} text
    :class: printed
    3
    ````
    <BLANKLINE>
    """
    names: dict[str, object] = {"__name__": "page"}

    def run(block: re.Match[str]) -> str:
        statements = ast.parse(block[1]).body
        last = statements[-1] if isinstance(statements[-1], ast.Expr) else None
        printed, shown = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            before = ast.Module(statements[: len(statements) - (last is not None)], [])
            exec(compile(before, "page", "exec"), names)
            if last is not None:
                shown = eval(compile(ast.Expression(last.value), "page", "eval"), names)
        text = printed.getvalue().rstrip()
        found = f"\n\n````{{code-block}} text\n:class: printed\n{text}\n````\n" if text else ""
        if isinstance(shown, draw.Figure):
            found += "\n\n" + raw(shown.html())
        return block[0] + found

    return re.sub(r"```python\n(.*?)```", run, page, flags=re.DOTALL)


def write_explorer(app: Sphinx, error: Exception | None) -> None:
    """Write the page that explorer.md shows."""
    if error is None:
        themed = page().replace("<head>", f"<head>{FRAME_THEME}", 1)
        (Path(app.outdir) / "explore.html").write_text(themed, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect `fill` and `write_explorer` to the events of Sphinx."""
    app.connect("source-read", fill)
    app.connect("build-finished", write_explorer)
