"""Files import only from the folders that are listed below; few folders use a device or ctypes."""

from __future__ import annotations

import ast
import contextlib
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import tma_dlpack

PACKAGE = Path(tma_dlpack.__file__).parent

#: The folders (rooms), from the top down. A file imports from its own room and from rooms above.
ROOMS = (
    "public", "tables", "include",  # 1
    "dlpack", "native",  # 2
    "geometry", "driver", "checks",  # 3
    "tensor_map", "consumer",  # 4
    "make", "copies",  # 5
    "draw", "report", "suggestions", "explorer",  # 6
    "__init__",
    "cli", "torch_ops", "__main__",  # 7
    "ptx", "kernel",  # they read and run PTX
    "verification", "debug", "course",  # the wing
)  # fmt: skip

#: Rooms without which the rest of the package works. The core never imports these rooms at the top
#: of a file, but only when a user calls a name of `tma_dlpack` that needs them.
WING = {"debug", "verification", "course"}

#: Files that import names on first use; their imports at the top are only for type checkers.
NAMES_LATER = {PACKAGE.name, f"{PACKAGE.name}.draw"}

#: Room of tools -> the other rooms from which its files may import. Its files import names of the
#: core only through the `core.py` of this room.
TOOLS = {"course": set(), "debug": {"ptx"}, "kernel": {"ptx"}, "verification": set()}

MOST_NAMES = 30  # most names of the core in one `core.py`

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
    """Return every module that a file imports: at its top, in functions, and for types."""
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
    """Return the modules that a file imports at its top."""
    tree = ast.parse(MODULES[module].read_text())
    return _named(tree.body)


def test_the_architecture_page_has_every_room_in_this_order():
    page = PACKAGE.parent / "notebooks" / "guide" / "architecture.md"
    if not page.exists():
        pytest.skip("the package is installed without its guides")
    rows = re.findall(r"^\| (\d) \| `(\w+)/` \|", page.read_text("utf-8"), flags=re.MULTILINE)
    floors = [int(floor) for floor, _ in rows]
    assert floors == sorted(floors)
    files = {"__init__", "torch_ops", "__main__"}
    assert {room for _, room in rows} == set(ROOMS) - files
    order = [ROOMS.index(room) for _, room in rows]
    by_floor = sorted(zip(floors, order, strict=True))
    assert [floor for floor, _ in by_floor] == [
        floor for _, floor in sorted(zip(order, floors, strict=True))
    ]
    assert {room for floor, room in rows if floor == "9"} == WING


def test_every_file_has_its_room():
    assert {room_of(module) for module in MODULES} <= set(ROOMS)


def test_the_top_of_the_package_holds_rooms_and_nothing_else():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files - {"torch_ops.py"} == {"__init__.py", "__main__.py", "py.typed"}


@pytest.mark.parametrize("module", MODULES)
def test_a_file_imports_only_from_its_room_and_those_above(module):
    floor = ROOMS.index(room_of(module))
    named = at_top(module) if module in NAMES_LATER else imported(module)
    below = {other for other in named & set(MODULES) if ROOMS.index(room_of(other)) > floor}
    assert not below


def _names_of_core(room: str) -> list[str]:
    """Return `__all__` of the room's `core.py`."""
    for node in ast.parse(MODULES[f"tma_dlpack.{room}.core"].read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError("no __all__")


@pytest.mark.parametrize("room", TOOLS)
def test_a_tool_imports_the_core_through_its_own_module_alone(room):
    core = f"tma_dlpack.{room}.core"
    others = {
        (module, other)
        for module in MODULES
        if room_of(module) == room and module != core
        for other in imported(module)
        if other.split(".")[0] == PACKAGE.name and room_of(other) not in TOOLS[room] | {room}
    }
    assert not others


@pytest.mark.parametrize("room", TOOLS)
def test_a_tool_uses_at_most_thirty_names_of_the_core_and_each_that_it_lists(room):
    core, used = f"tma_dlpack.{room}.core", set()
    for module in MODULES:
        if room_of(module) == room and module != core:
            for node in ast.walk(ast.parse(MODULES[module].read_text())):
                if isinstance(node, ast.ImportFrom) and node.module == core:
                    assert all(alias.asname is None for alias in node.names), module
                    used |= {alias.name for alias in node.names}
    names = _names_of_core(room)
    assert set(names) == used
    assert len(names) == len(used) <= MOST_NAMES


@pytest.mark.parametrize("room", TOOLS)
def test_every_name_of_the_core_that_a_tool_lists_is_there(room):
    core = importlib.import_module(f"tma_dlpack.{room}.core")
    for name in _names_of_core(room):
        assert getattr(core, name) is not None
    with pytest.raises(AttributeError):
        core.no_such_name  # noqa: B018


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


CORE_ALONE = """
import contextlib, io, sys
import numpy as np
import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.cli.table import commands

x = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
tm = tma.make_tma_descriptor(x, (8, 64), swizzle="bytes128")
assert (tma.load_tile(tm, (8, 0)).array == x[8:16]).all()
assert tma.TensorMap.from_bytes(bytes(tm)).box_sizes == (8, 64)
report = tma.check_tma_descriptor(x, (8, 300))
assert not report.ok and report.fixed() and str(report) and report._repr_html_()
assert tm._repr_html_() and tm.cpp() and tma.rules() and tma.suggest(x, (32, 64))
assert tma.matrix_descriptor(tma.make_tma_descriptor(x, (64, 64), swizzle="bytes128")).value
from tma_dlpack.explorer.page import page
assert page() and "tma-play" not in page()
assert len(tma.draw.barrier([("copy 0", 0, 3, "copy"), ("warp 0", 1, 3, "wait")]).rows) == 2
for name in tma.draw.FIGURES.keys() - {"walk", "barrier", "bits"}:
    assert tma.draw.figure(tm, name).html()
for call in (tma.draw.barrier, lambda: tma.draw.swizzle_bits, lambda: tma.draw.figure(tm, "bits")):
    try:
        call()
    except ModuleNotFoundError as error:
        assert error.name == "tma_dlpack.course", error
    else:
        raise AssertionError(call)
assert not {"explain", "trace", "lint", "postmortem", "verify", "decode"} & commands().keys()
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    assert main("check --shape 64,64 --dtype float16 --box 8,8".split()) == 0
    assert main(["demo"]) == main(["rules"]) == main(["doctor"]) == main(["--help"]) == 0
    assert main(["explain", "error 1"]) == 2
calls = {
    "debug": lambda: tma.explain("error 1"),
    "verification": lambda: tma.verify(),
    "kernel": lambda: tma.run_kernel(".version 9.0", grid=1, block=1),
}
for room, call in calls.items():
    try:
        call()
    except ModuleNotFoundError as error:
        assert error.name.startswith(f"tma_dlpack.{room}"), error
    else:
        raise AssertionError(room)
assert not {"debug", "kernel", "ptx", "verification"} & {n.split(".")[1] for n in sys.modules
    if n.startswith("tma_dlpack.")}
print(tma.__file__)
"""


def test_the_core_works_without_the_folders_of_the_tools(tmp_path):
    removed = WING | {"ptx", "kernel"}
    for path in PACKAGE.rglob("*"):
        to = tmp_path / "tma_dlpack" / path.relative_to(PACKAGE)
        if path.is_file() and to.relative_to(tmp_path / "tma_dlpack").parts[0] not in removed:
            to.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".pyc":
                to.write_bytes(path.read_bytes())
    command = [sys.executable, "-W", "error", "-c", CORE_ALONE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"{tmp_path}/tma_dlpack/__init__.py\n", "")


#: The only file that calls rooms below its own, as architecture.md says: it has the decorators, the
#: attributes that are computed on first use, and `PICTURES`.
CALLS_DOWN = "public/__init__.py"


def ordinary_calls(tmp_path: Path) -> dict[str, Callable[[], object]]:
    """Return calls that users make, mostly with one array and its map."""
    tma, box = tma_dlpack, (64, 64)
    x = np.zeros((256, 128), np.float16)
    image = np.zeros((2, 14, 14, 64), np.float16)
    tm = tma.make_tma_descriptor(x, box, swizzle="bytes128")
    report = tma.check_tma_descriptor(x, (64, 100), swizzle="bytes128")

    def refused() -> None:
        with contextlib.suppress(tma.TmaError):
            tma.make_tma_descriptor(x, (64, 100), swizzle="bytes128")

    def text_of(call: Callable[[], object]) -> str:
        with pytest.raises(tma.TmaError) as caught:
            call()
        return str(caught.value)

    convolution = {"kernel_size": 3, "channels_per_pixel": 64, "pixels_per_column": 2000}
    return {
        "make": lambda: tma.make_tma_descriptor(x, box),
        "a convolution": lambda: tma.make_conv_descriptor(
            image, 3, channels_per_pixel=64, pixels_per_column=32
        ),
        "a batch": lambda: tma.make_tma_descriptors([x, x], box)._repr_html_(),
        "refused": refused,
        "text of an error": lambda: text_of(lambda: tma.make_tma_descriptor(x, (64, 300))),
        "text of a batch's error": lambda: text_of(
            lambda: tma.make_tma_descriptors([x, x], (64, 300))
        ),
        "text of a convolution's error": lambda: text_of(
            lambda: tma.make_conv_descriptor(image, **convolution)
        ),
        "text of a recipe's error": lambda: text_of(lambda: tma.ragged(x, (64, 300))),
        "text of a matrix that cannot be read": lambda: text_of(
            lambda: tma.matrix_descriptor(tma.make_tma_descriptor(x, (64, 8)))
        ),
        "text of a copy's error": lambda: text_of(lambda: tma.load_tile(tm, (0,))),
        "text of a tensor's error": lambda: text_of(lambda: tma.make_tma_descriptor([x], box)),
        "checked": lambda: tma.check_tma_descriptor(x, (64, 100)),
        "accepted": lambda: str(tma.check_tma_descriptor(x, box)),
        "checked convolution": lambda: tma.check_conv_descriptor(image, **convolution).fixed(),
        "a mirror": lambda: text_of(
            lambda: tma.driver_encode_tiled(
                "UINT8", 2, 4096, (64, 64), (64,), (64, 300), (1, 1), target="sm_90"
            )
        ),
        "text": lambda: str(tma.check_tma_descriptor(x, (64, 100), swizzle="bytes128")),
        "fixed": lambda: tma.check_tma_descriptor(x, (64, 100), swizzle="bytes128").fixed(),
        "HTML of a report": lambda: report._repr_html_(),
        "attributes": lambda: (tm.shape, tm.tx_bytes, tm.advice, tm.key(), tm.view),
        "text of a map": lambda: (repr(tm), str(tm)),
        "HTML of a map": lambda: tm._repr_html_(),
        "load": lambda: tma.load_tile(tm, (0, 0)).array,
        "HTML of a tile": lambda: tma.load_tile(tm, (0, 0))._repr_html_(),
        "store": lambda: tma.store_tile(tm, (0, 0), np.zeros(box, np.float16)),
        "suggest": lambda: str(tma.suggest(x, box)),
        "matrix descriptor": lambda: str(tma.matrix_descriptor(tm)),
        "banks": lambda: str(tma.bank_conflicts(tm, "column")),
        "rules": lambda: str(tma.rules()),
        "explain": lambda: str(tma.explain("CUDA error 715")),
        "lint": lambda: str(tma.lint(".version 9.0 .target sm_90a .address_size 64")),
        "C++": lambda: tm.cpp(),
        "replace": lambda: tm.replace(box_dim={0: 32}),
        "from bytes": lambda: tma.TensorMap.from_bytes(bytes(tm)),
    }


def test_only_the_room_public_calls_rooms_below_it(tmp_path):
    calls = ordinary_calls(tmp_path)
    for call in calls.values():  # imports on first use happen here
        call()
    down: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        path, caller = Path(frame.f_code.co_filename), frame.f_back
        if event != "call" or PACKAGE not in path.parents:
            return
        while caller is not None and PACKAGE not in Path(caller.f_code.co_filename).parents:
            caller = caller.f_back
        if caller is None:
            return
        above = Path(caller.f_code.co_filename)
        rooms = [room_of(name_of(p)) for p in (above, path)]
        if ROOMS.index(rooms[0]) < ROOMS.index(rooms[1]):
            down.add((above.relative_to(PACKAGE).as_posix(), rooms[1]))

    sys.setprofile(watch)
    try:
        for call in calls.values():
            call()
    finally:
        sys.setprofile(None)
    assert {caller for caller, _ in down} == {CALLS_DOWN}
