"""The short cut, compiled or in Python: what it accepts the rules accept, with the same bytes.

It says None, "not sure", to everything else. The whole file runs on both lanes: see python_lane.py.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import pydoc
import random
import re
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from random_requests import request_at_random

import tma_dlpack as tma
from tma_dlpack.make import build, shortcut
from tma_dlpack.tables import limits
from tma_dlpack.tables.enums import TensorMapDataType, TmaSwizzle
from tma_dlpack.tensor_map.map import TensorMap

ACCEPT = {
    "tiled": shortcut.accept_tiled,
    "im2col": shortcut.accept_im2col,
    "im2col_wide": shortcut.accept_im2col_wide,
}
compiled = pytest.mark.skipif(not shortcut.COMPILED, reason="the short cut is not compiled here")

OPTIONS = (None, "none", "bytes128", "none", "none", None, "libcu++", None)
BOX = (16, 64)


def tensor(rows: int = 128, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(rows, 64, dtype=torch.float32).to(dtype)


def accepted(x: object, box: object = BOX, *, changed: dict[int, object] | None = None):
    """Take the short cut with options of which some are changed, by place."""
    options = [(changed or {}).get(i, option) for i, option in enumerate(OPTIONS)]
    return shortcut.accept_tiled(x, box, *options)


# ---- against the rules ---------------------------------------------------------------------------


def explained(kind, x, options):
    """Give the map that the rules make, or None where they refuse."""
    try:
        return build.make(kind, x, options)
    except tma.TmaError:
        return None


def hold_against_rules(seed: int, count: int) -> None:
    rng = random.Random(seed)
    plain = missed = maps = 0
    while count:
        asked = request_at_random(rng)
        if asked is None:
            continue
        count -= 1
        kind, x, options, is_plain = asked
        short = ACCEPT[kind](x, *options)
        by_rules = explained(kind, x, options)
        if short is None:
            if by_rules is not None and (is_plain or shortcut.COMPILED):
                missed += 1
        else:
            maps += 1
            assert by_rules is not None, (kind, x.shape, x.dtype, options)
            assert bytes(short) == bytes(by_rules), (kind, x.shape, x.dtype, options)
            assert short == by_rules
            assert short.description == by_rules.description
            assert short.advice == by_rules.advice
            assert short.tensor is x
        plain += by_rules is not None and (is_plain or shortcut.COMPILED)
    assert maps > plain / 2
    assert missed <= 0.05 * plain, f"{missed} of {plain} that the rules accept"


def test_random_requests_agree_with_the_rules():
    hold_against_rules(seed=20261121, count=2000)


@pytest.mark.slow
def test_100_000_random_requests_agree_with_the_rules():
    for seed in range(20):
        hold_against_rules(seed, count=5000)


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {2: TmaSwizzle.bytes128},
        {2: 3},
        {2: "CU_TENSOR_MAP_SWIZZLE_128B"},
        {2: "".join(["bytes", "128"])},
        {0: (1, 1)},
        {0: [1, 1]},
        {5: "FLOAT16"},
        {5: TensorMapDataType.FLOAT16},
        {5: 6},
        {6: "driver"},
    ],
    ids=str,
)
def test_options_as_members_names_and_values_give_the_same_bytes(changed):
    x = tensor()
    assert bytes(accepted(x, changed=changed)) == bytes(accepted(x))


@pytest.mark.parametrize("box", [(16, 64), [16, 64]], ids=str)
def test_boxes_are_tuples_or_lists(box):
    assert accepted(tensor(), box).box_sizes == (16, 64)


@compiled
def test_numpy_integers_are_integers():
    assert accepted(tensor(), (np.int64(16), np.uint8(64))).box_sizes == (16, 64)
    assert accepted(tensor(), changed={2: np.int32(3)}).swizzle is TmaSwizzle.bytes128


@pytest.mark.parametrize(
    ("box", "changed"),
    [
        (None, {}),
        ((), {}),
        ((16,), {}),
        ((16, 64, 1), {}),
        ((16, True), {}),
        ((16, 64.0), {}),
        ((16, "64"), {}),
        ((16, 1 << 70), {}),
        ((16, TmaSwizzle.bytes32), {}),
        pytest.param(iter((16, 64)), {}, id="iterator"),
        ("ab", {}),
        ((16, 65), {}),
        ((129, 64), {}),
        (BOX, {0: ()}),
        (BOX, {0: (1,)}),
        (BOX, {0: (9, 1)}),
        (BOX, {1: "none "}),
        (BOX, {1: "bytes16"}),
        (BOX, {2: None}),
        (BOX, {2: -1}),
        (BOX, {2: 7}),
        (BOX, {2: True}),
        (BOX, {2: 3.0}),
        (BOX, {2: "bytes128_atom_32B"}),
        (BOX, {2: tma.TmaInterleaveLayout.none}),
        (BOX, {3: 4}),
        (BOX, {4: 2}),
        (BOX, {5: "FLOAT32"}),
        (BOX, {5: "16U4_ALIGN8B"}),
        (BOX, {6: "cuda"}),
        (BOX, {6: None}),
        (BOX, {7: "sm_90"}),
        (BOX, {7: "sm_100"}),
    ],
    ids=str,
)
def test_what_is_not_plainly_in_order_is_left_to_the_rules(box, changed):
    assert accepted(tensor(), box, changed=changed) is None


# ---- tensors -------------------------------------------------------------------------------------


class Subclass(torch.Tensor):
    pass


class Producer:
    """A producer that nobody knows."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def odd_tensors():
    half = tensor()
    yield "lazily negated", torch.zeros(128, 64, dtype=torch.complex64).conj().imag
    yield "negative view", torch._neg_view(half)
    yield "conjugated", torch.zeros(128, 64, dtype=torch.complex64).conj()
    yield "subclass", half.as_subclass(Subclass)
    yield "meta", torch.zeros(128, 64, dtype=torch.float16, device="meta")
    yield "sparse", torch.zeros(128, 64).to_sparse()
    yield "int4", torch.zeros(128, 64, dtype=torch.uint8).view(torch.uint4)
    yield "float4", torch.zeros(128, 64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    yield "empty", torch.zeros(0, 64, dtype=torch.float16)
    yield "misaligned", torch.zeros(128, 65, dtype=torch.float16)[:, 1:]
    yield "unknown producer", Producer(np.zeros((128, 64), np.float16))
    yield "masked array", np.ma.zeros((128, 64), np.float16)
    yield "record array", np.zeros((128, 64), np.float16).view(np.recarray)
    yield "big-endian", np.zeros((128, 64), ">f2")
    yield "structured", np.zeros((128, 64), [("a", "f2")])
    yield "scalar", np.zeros((), np.float16)
    yield "six dimensions", np.zeros((1,) * 4 + (128, 64), np.float16)
    yield "list", [[1.0] * 64] * 128
    yield "none", None
    yield "class", torch.Tensor
    yield "capsule", np.zeros((128, 64), np.float16).__dlpack__()
    with torch._subclasses.fake_tensor.FakeTensorMode():
        yield "fake", torch.zeros(128, 64, dtype=torch.float16)


@pytest.mark.parametrize(
    ("name", "x"), [pytest.param(name, x, id=name) for name, x in odd_tensors()]
)
def test_odd_tensors_are_left_to_the_rules(name, x):
    assert accepted(x) is None


def test_functorch_wrappers_are_left_to_the_rules():
    maps = []

    def look(x):
        maps.append(accepted(x))
        return x

    torch.vmap(look)(torch.zeros(3, 128, 64, dtype=torch.float16))
    torch.func.grad(lambda x: look(x).sum())(torch.zeros(128, 64))
    assert maps == [None, None]


def test_parameters_and_tensors_with_a_gradient_are_taken():
    x = torch.nn.Parameter(torch.zeros(128, 64))
    y = torch.zeros(128, 64, requires_grad=True)
    for one in (x, y):
        made = accepted(one, (16, 32))
        assert (made.tensor is one, made.global_address) == (True, one.data_ptr())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float8_e4m3fn], ids=str)
def test_types_of_one_byte_are_carried_as_bytes(dtype):
    made = accepted(torch.zeros(128, 64, dtype=torch.uint8).view(dtype))
    assert made.data_type is TensorMapDataType.UINT8


def test_read_only_arrays_say_so_in_their_view():
    x = np.zeros((128, 64), np.float16)
    x.flags.writeable = False
    assert accepted(x).view.read_only
    jax = pytest.importorskip("jax")
    y = jax.numpy.zeros((128, 64), "float16")
    made = accepted(y)
    by_rules = explained("tiled", y, (BOX, *OPTIONS))
    assert (made.view.read_only, bytes(made)) == (True, bytes(by_rules))


# ---- objects -------------------------------------------------------------------------------------


def test_references_come_and_go():
    x, box = tensor(), (16, 64)
    accepted(x, box)
    before = sys.getrefcount(x), sys.getrefcount(box), sys.getrefcount(TensorMap)
    for _ in range(1000):
        accepted(x, box)
        accepted(x, (16, 63))
    assert (sys.getrefcount(x), sys.getrefcount(box), sys.getrefcount(TensorMap)) == before
    made = accepted(x, box)
    assert sys.getrefcount(x) == before[0] + 1
    del made
    assert sys.getrefcount(x) == before[0]


@pytest.mark.slow
def test_memory_is_flat_over_a_million_calls():
    resource = pytest.importorskip("resource")
    x, n, image = tensor(), np.zeros((128, 64), np.float16), np.zeros((2, 14, 14, 64), np.float16)
    column = ((-1, -1), (-1, -1), 64, 64, None, "none", "bytes128", "none", "none", None)

    def calls(count):
        for _ in range(count):
            bytes(accepted(x))
            accepted(n)
            accepted(x, (16, 63))
            shortcut.accept_im2col(image, *column, "documented", None)
            list(tma.make_tma_descriptors((x, n), BOX))

    calls(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(250_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048  # KiB


def test_a_tensor_that_holds_its_own_map_is_collected():
    x = tensor()
    x.map = accepted(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_maps_can_be_referred_to_weakly():
    made = accepted(tensor())
    gone = weakref.ref(made)
    assert gone() is made
    del made
    assert gone() is None


def test_bytes_lie_aligned_and_stay_what_they_were():
    maps = [accepted(tensor(rows)) for rows in range(64, 96)]
    for rows, made in zip(range(64, 96), maps, strict=True):
        assert int.from_bytes(bytes(made)[36:40], "little") == rows - 1
    bare = [
        tma.driver_encode_tiled("UINT8", 1, 4096 * i, (64,), (), (64,), (1,), encoder="model")
        for i in range(1, 20)
    ]
    assert {one.ptr % 128 for one in bare} == {0}
    assert len({one.ptr for one in bare}) == len(bare)


def test_writing_through_a_launchers_view_does_not_change_the_map():
    made = tma.driver_encode_tiled("UINT8", 1, 4096, (64,), (), (64,), (1,), encoder="model")
    before, number = bytes(made), hash(made)
    made.as_ctypes()[0] = b"\x07" if isinstance(made.as_ctypes()[0], bytes) else 7
    assert (bytes(made), hash(made)) == (before, number)


def test_threads_make_maps_at_once():
    wrong = []

    def make(rows):
        x = tensor(rows)
        for _ in range(300):
            made = accepted(x)
            if made is None or made.shape != (rows, 64):
                wrong.append(rows)

    threads = [threading.Thread(target=make, args=(rows,)) for rows in range(64, 72)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


_FORK = """
import os, threading
import numpy as np
import tma_dlpack as tma

x = np.zeros((128, 64), np.float16)
expected = bytes(tma.make_tma_descriptor(x, (16, 64)))
done = False

def busy():
    while not done:
        tma.make_tma_descriptor(x, (16, 64))

thread = threading.Thread(target=busy)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        good = bytes(tma.make_tma_descriptor(x, (16, 64))) == expected
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
done = True
thread.join()
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_child_forked_in_the_middle_of_a_call_makes_maps():
    blocked = "" if shortcut.COMPILED else "import tests.python_lane\n"
    source = "import warnings; warnings.simplefilter('ignore')\n" + blocked + _FORK
    subprocess.run([sys.executable, "-c", source], check=True, timeout=120)


# ---- the compiled short cut ----------------------------------------------------------------------


@compiled
def test_limits_of_the_header_are_those_of_the_rules():
    header = (Path(tma.get_include()) / "tma_dlpack_make.h").read_text()
    defined = dict(re.findall(r"^#define TMA_DLPACK_(\w+) (.+?) *(?:/\*.*)?$", header, re.M))
    found = {name: _number(value) for name, value in defined.items() if hasattr(limits, name)}
    assert found == {name: getattr(limits, name) for name in found}
    assert set(found) == {
        "MAX_RANK", "MIN_RANK_IM2COL", "MIN_RANK_INTERLEAVED", "ADDRESS_END", "STRIDE_BYTES_END",
        "MAX_DIM", "MAX_BOX", "MAX_PIXELS", "MAX_ELEM_STRIDE", "MAX_BOX_BYTES", "INNER_BYTES",
        "MAP_BYTES",
    }  # fmt: skip
    assert _number(defined["SM_90_SMEM_BYTES"]) == tma.TARGETS["sm_90"].max_smem_bytes
    assert _number(defined["MAP_ALIGNMENT"]) == limits.ALIGNMENT_BYTES


def _number(value: str) -> int:
    shifted = re.fullmatch(r"\(INT64_C\(1\) << (\d+)\)", value)
    return 1 << int(shifted[1]) if shifted else int(value)


@compiled
def test_verbs_keep_signature_and_text():
    shown = inspect.signature(tma.make_tma_descriptor)
    assert list(shown.parameters)[:3] == ["tensor", "box_sizes", "elem_strides"]
    assert shown.parameters["swizzle"].default == "none"
    assert tma.make_tma_descriptor.__doc__.startswith("Make the tensor map of a tensor")
    assert tma.make_tma_descriptor.__name__ == "make_tma_descriptor"


def test_help_and_ipython_show_a_function_with_its_signature():
    text = pydoc.render_doc(tma.make_tma_descriptor, renderer=pydoc.plaintext)
    title, _, call, first, *_ = text.splitlines()
    assert re.fullmatch(
        r"Python Library Documentation: function (\w+ )?in module tma_dlpack\.make\.tiled", title
    )
    assert call.startswith("make_tma_descriptor(tensor: 'object', box_sizes: ")
    assert first.strip().startswith("Make the tensor map of a tensor")
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shown = shell.inspector.info(tma.make_tma_descriptor, oname="make")
    assert (shown["type_name"], shown["call_def"]) == ("function", None)
    assert shown["definition"].startswith("make(")
    assert shown["docstring"].startswith("Make the tensor map of a tensor")
    assert "make_tma_descriptor" in inspect.getsource(tma.make_tma_descriptor)


def test_wrong_calls_raise_pythons_own_errors():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'box_sizes'"):
        tma.make_tma_descriptor(tensor())
    with pytest.raises(TypeError, match="unexpected keyword argument 'box'"):
        tma.make_tma_descriptor(tensor(), box=BOX)
    with pytest.raises(TypeError, match="multiple values for argument 'box_sizes'"):
        tma.make_tma_descriptor(tensor(), BOX, box_sizes=BOX)
    with pytest.raises(TypeError, match="positional argument"):
        tma.make_tma_descriptor(tensor(), BOX, None, "none", "none", "none", "none", None)


VERBS = {
    "tiled": tma.make_tma_descriptor,
    "im2col": tma.make_im2col_descriptor,
    "im2col_wide": tma.make_im2col_wide_descriptor,
}


def test_arguments_by_position_or_keyword_or_left_out_make_the_same_map():
    rng = random.Random(8)
    left_out = made_maps = 0
    while made_maps < 300:
        asked = request_at_random(rng)
        if asked is None or (expected := explained(*asked[:3])) is None:
            continue
        verb = VERBS[asked.kind]
        taken = [
            p
            for p in inspect.signature(verb).parameters.values()
            if p.name not in ("allow", "shape", "strides", "offset")
        ]
        values = (asked.tensor, *asked.options)
        by_position = rng.randint(0, sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in taken))
        named = list(zip(taken, values, strict=True))[by_position:]
        keywords = {p.name: value for p, value in named if value is not p.default}
        left_out += len(named) - len(keywords)
        shuffled = dict(rng.sample(list(keywords.items()), len(keywords)))
        made = verb(*values[:by_position], **shuffled)
        assert (bytes(made), made) == (bytes(expected), expected)
        assert made.description == expected.description
        made_maps += 1
    assert left_out > 300


@compiled
def test_a_map_in_the_memory_of_another_has_nothing_of_it():
    image, x = torch.zeros(2, 14, 14, 64, dtype=torch.float16), tensor()
    corner = ((-1, -1), (-1, -1), 64, 128)
    other = tma.make_im2col_descriptor(image, *corner, (1, 2, 2, 1), rules="driver")
    assert other.description is not None
    other._keep_data()
    gone, place = weakref.ref(other), id(other)
    del other
    assert gone() is None
    made = accepted(x)
    assert id(made) == place  # the memory of the map that was freed last
    assert (made._description, made._capsule, weakref.getweakrefcount(made)) == (None, None, 0)
    fresh = [accepted(x) for _ in range(3)]  # at most one of them has used memory
    assert [(one._asked, one) for one in fresh] == [(made._asked, made)] * 3
    assert {
        one.ptr % 128 for one in (made.at_bare_address(4096), fresh[2].at_bare_address(4096))
    } == {0}


@compiled
def test_a_map_whose_tensor_holds_maps_is_freed_with_them():
    for _ in range(3):
        tensors = [tensor() for _ in range(5)]
        for x, y in itertools.pairwise(tensors):
            x.maps = accepted(y), accepted(y)
        made = accepted(tensors[0])
        gone = [weakref.ref(x) for x in tensors]
        del tensors, x, y, made
        assert [one() for one in gone] == [None] * 5
        again = [accepted(tensor()) for _ in range(5)]
        assert len({id(one) for one in again}) == 5
        assert len({bytes(one)[8:] for one in again}) == 1


def test_keywords_made_at_run_time_are_understood():
    options = {"".join(["swiz", "zle"]): "bytes128", "".join(["box_", "sizes"]): BOX}
    assert tma.make_tma_descriptor(tensor(), **options).swizzle is TmaSwizzle.bytes128


@compiled
def test_a_batch_in_one_call_has_the_bytes_of_single_calls():
    from tma_dlpack.tensor_map.storage import aligned_bytes

    tensors = tuple(tensor(rows) for rows in range(64, 96))
    rows, address = aligned_bytes(128 * (len(tensors) + 1))
    maps = shortcut.accept_many(tensors, address, BOX, *OPTIONS).maps
    assert [bytes(one) for one in maps] == [bytes(accepted(x)) for x in tensors]
    assert rows[:-128].tobytes() == b"".join(map(bytes, maps))
    assert shortcut.accept_many((*tensors, None), address, BOX, *OPTIONS) is None


@compiled
def test_with_address_moves_a_map_to_a_tensor_of_the_same_layout():
    from tma_dlpack.make import _accept

    x, y = tensor(), tensor()
    made = accepted(x)
    moved = _accept.accept_address(made, y)
    assert (moved == accepted(y), moved.tensor is y) == (True, True)
    assert made.with_address(y) == moved
    assert _accept.accept_address(made, 4096).global_address == 4096
    for other in (tensor(127), tensor().to(torch.bfloat16), 4097, 0, 1 << 57, -16, None, True):
        assert _accept.accept_address(made, other) is None


@compiled
def test_nothing_is_made_before_setup_or_of_another_class():
    source = """
        import importlib.machinery, importlib.util, sys
        from tma_dlpack.make import _accept
        loader = importlib.machinery.ExtensionFileLoader("_accept", _accept.__file__)
        fresh = importlib.util.module_from_spec(importlib.util.spec_from_loader("_accept", loader))
        loader.exec_module(fresh)
        import numpy
        x = numpy.zeros((64, 64), numpy.float16)
        arguments = (64, 64), None, "none", "none", "none", "none", None, "libcu++", None
        assert fresh.accept_tiled(x, *arguments) is None
        assert fresh.accept_address(x, 4096) is None
        assert fresh.accept_many((x,), 4096, *arguments) is None
        from tma_dlpack.tensor_map.map import TensorMap
        class Larger(TensorMap):
            pass
        for other in (int, Larger):
            try:
                enums, exports = ((int,) * 6, ({},) * 6), (len,) * 3
                fresh.setup(other, object, *enums, exports, numpy.integer, numpy.ndarray)
            except TypeError as error:
                assert "MapStorage" in str(error)
            else:
                raise AssertionError(f"{other} was taken for the class of maps")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(source)], check=True, timeout=120)


@compiled
def test_maps_outlive_the_module_that_made_them():
    source = """
        import gc, importlib.machinery, importlib.util, numpy
        from tma_dlpack.make import _accept, shortcut
        from tma_dlpack.tensor_map.map import TensorMap
        from tma_dlpack.tables import enums
        x = numpy.zeros((64, 64), numpy.float16)
        arguments = (64, 64), None, "none", "none", "none", "none", None, "libcu++", None
        for kept in (0, 1, 3):
            loader = importlib.machinery.ExtensionFileLoader("_accept", _accept.__file__)
            spec = importlib.util.spec_from_loader("_accept", loader)
            fresh = importlib.util.module_from_spec(spec)
            loader.exec_module(fresh)
            fresh.setup(
                TensorMap, object,
                shortcut._ENUMS, tuple(enums.NAMES[enum] for enum in shortcut._ENUMS),
                (shortcut._export,) * 3, numpy.integer, numpy.ndarray,
            )
            maps = [fresh.accept_tiled(x, *arguments) for _ in range(kept)]
            del fresh, loader
            gc.collect()
            expected = shortcut.accept_tiled(x, *arguments)
            assert [(one, bytes(one)) for one in maps] == [(expected, bytes(expected))] * kept
            del maps
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(source)], check=True, timeout=120)


@compiled
def test_torch_without_the_exchange_api_is_read_by_its_attributes():
    source = """
        import torch
        del torch.Tensor.__dlpack_c_exchange_api__
        import tests.make.test_shortcut as t
        for dtype in (torch.float16, torch.bfloat16, torch.uint8, torch.float8_e4m3fn):
            x = torch.zeros(128, 64).to(dtype)
            made = t.accepted(x[1:, ::1])
            by_rules = t.explained("tiled", x[1:, ::1], (t.BOX, *t.OPTIONS))
            assert made is not None
            assert (bytes(made), made) == (bytes(by_rules), by_rules)
        assert t.accepted(torch.nn.Parameter(torch.zeros(128, 64)), (16, 32)) is not None
        for name, x in t.odd_tensors():
            assert t.accepted(x) is None, name
    """
    path = str(Path(__file__).parent)
    program = f"import sys; sys.path.insert(0, {path!r})\n" + textwrap.dedent(source)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
