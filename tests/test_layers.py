"""Files import only from the rooms above theirs; few rooms touch a device or ctypes."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import tma_dlpack

PACKAGE = Path(tma_dlpack.__file__).parent

#: The rooms, from the top down: a file imports from its own room and from those above it.
ROOMS = (
    "tables", "public", "include",  # 1
    "dlpack",  # 2
    "geometry", "driver", "checks",  # 3
    "tensor_map", "consumer",  # 4
    "make", "copies",  # 5
    "draw", "report", "suggestions", "explorer", "verification",  # 6
    "ptx", "kernel",  # what reads and runs PTX
    "debug",  # 7
    "__init__",
    "cli", "torch_ops", "__main__",  # 8
)  # fmt: skip

#: Rooms that may touch ctypes, a device or the environment.
AT_THE_EDGE = {
    "dlpack", "driver", "copies", "suggestions", "verification", "kernel", "debug", "cli",
}  # fmt: skip


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(module: str) -> str:
    return (*module.split("."), "__init__")[1]


@functools.cache
def imported(module: str) -> set[str]:
    """Every module that a file imports: at its top, in functions, and for types."""
    return _named(ast.walk(ast.parse(MODULES[module].read_text())))


def _named(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else str(node.module))
    return found


@functools.cache
def at_top(module: str) -> set[str]:
    """Those of them that a file imports when it is imported itself."""
    tree = ast.parse(MODULES[module].read_text())
    return _named(tree.body)


def test_every_file_has_its_room():
    assert {room_of(module) for module in MODULES} <= set(ROOMS)


def test_the_top_of_the_package_holds_rooms_and_nothing_else():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files - {"torch_ops.py"} == {"__init__.py", "__main__.py", "py.typed"}


@pytest.mark.parametrize("module", MODULES)
def test_a_file_imports_only_from_its_room_and_those_above(module):
    floor = ROOMS.index(room_of(module))
    # the package itself names for type checkers what it imports when first asked for
    named = at_top(module) if module == PACKAGE.name else imported(module)
    below = {other for other in named & set(MODULES) if ROOMS.index(room_of(other)) > floor}
    assert not below


def test_files_of_one_room_do_not_import_in_circles_not_even_types():
    graph = {
        module: {
            other
            for other in imported(module)
            if other in MODULES and room_of(other) == room_of(module) and other != module
        }
        for module in MODULES
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_only_the_rooms_at_the_edge_import_ctypes_or_ask_the_environment():
    touching = {
        room_of(module)
        for module in MODULES
        if imported(module) & {"ctypes", "ctypes.util"}
        or "os.environ" in MODULES[module].read_text()
    }
    assert touching <= AT_THE_EDGE


FRESH = """
import sys
import numpy
before = {name.partition(".")[0] for name in sys.modules}
import tma_dlpack
after = {name.partition(".")[0] for name in sys.modules}
print(*sorted(after - before - set(sys.stdlib_module_names)))
late = ("tma_dlpack.draw", "tma_dlpack.suggestions", "tma_dlpack.verification")
print(*sorted(m for m in sys.modules if m.startswith(late)))
print("libcuda" in open("/proc/self/maps").read() if sys.platform == "linux" else False)
"""


def test_importing_the_package_needs_numpy_alone_and_starts_no_driver():
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", FRESH], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == ["tma_dlpack", "", "False"]
