"""The compiled core of the page is built from the current sources, and is exact up to 2^63."""

from __future__ import annotations

import importlib.util
import json
import random
from importlib.metadata import version
from pathlib import Path

import harness
import pytest
from model_states import LAYOUT, bytes_of, plain, request_of, violations_of
from random_requests import described
from strategies import view

from tma_dlpack.checks.fixes import faults_of
from tma_dlpack.dlpack import TensorView
from tma_dlpack.explorer.page import CORE, model_source, page
from tma_dlpack.tables.dtypes import NAMED_DTYPES

PACKAGING = Path(__file__).parents[2] / ".packaging"

#: Numbers that a JavaScript number cannot represent exactly, and their neighbours.
LARGE = (
    *((1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 57) - 16, 1 << 57, (1 << 60) + 1),
    *((1 << 62) - 16, (1 << 62) - 1),
)
LARGEST = (*LARGE, (1 << 63) - 16, (1 << 63) - 1)

ANSWER = """
window.answer = (text) => {
  const ofText = (_, value) => (/^-?\\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value);
  return JSON.parse(text, ofText).map((request) => {
    const { violations, ok } = tmaModel.check(request);
    const hex = (bytes) => [...bytes].map((n) => n.toString(16).padStart(2, "0")).join("");
    const bytes = ok ? tmaModel.encode(request) : null;
    return [violations.map((v) => v.rule), bytes && hex(bytes)];
  });
};
"""


@pytest.fixture(scope="module")
def page_core():
    if not (PACKAGING.parent / "tma_dlpack" / "native" / "page.c").exists():
        pytest.skip("the package is installed without its sources")
    file = PACKAGING / "page_core.py"
    spec = importlib.util.spec_from_file_location("page_core", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_binary_was_built_from_the_sources_that_are_here(page_core):
    origin = json.loads(page_core.ORIGIN.read_text())
    assert origin["sources"] == page_core.sources_hash(), "run .packaging/page_core.py"
    assert len(page_core.WASM.read_bytes()) < 16_000


def test_the_compiler_builds_the_same_binary(page_core, tmp_path):
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    built_by = json.loads(page_core.ORIGIN.read_text())["ziglang"]
    if version("ziglang") != built_by:
        pytest.skip(f"another version built it: ziglang {built_by}")
    page_core.compile_to(tmp_path / "page.wasm")
    assert (tmp_path / "page.wasm").read_bytes() == CORE.read_bytes()


def test_the_page_needs_no_file_beside_it():
    text = page()
    assert "fetch(" not in text
    assert "TMA_CORE" in text


@pytest.fixture(scope="module")
def model(chromium):
    if harness.MISSING:
        pytest.skip(harness.MISSING)
    seen = harness.Seen(chromium)
    seen.page.set_content("<!doctype html>")
    seen.page.add_script_tag(content=f"{model_source()}\n{ANSWER}")
    seen.page.evaluate("tmaCore.ready.then(() => null)")
    yield seen.page
    seen.close()


def large(seed: int) -> tuple[str, TensorView, dict] | None:
    """Draw a call whose tensor has numbers of any size."""
    rng = random.Random(seed)
    kind, x, given = described(rng, lambda _, member: member.name)
    if str(x.dtype) not in NAMED_DTYPES or not x.shape:
        return None
    shape, strides, address = list(x.shape), [abs(n) for n in x.strides], x.address
    which = rng.randrange(4)
    if which == 0:
        address = rng.choice(LARGE)
    elif which == 1:
        shape[rng.randrange(len(shape))] = rng.choice(LARGEST)
    elif which == 2:
        strides[rng.randrange(len(strides))] = rng.choice(LARGEST)
    else:
        shape = [rng.choice((4, 16, 64)) for _ in range(rng.randint(6, 8))]
        strides = None
        if "box_sizes" in given:
            given["box_sizes"] = shape
    tensor = view(shape, (x.dtype.code, x.dtype.bits, x.dtype.lanes), strides, address)
    return kind, tensor, {k: v for k, v in given.items() if k not in LAYOUT}


def in_words(value):
    """Return integers beyond 2^53 as strings, which the page reads as BigInt."""
    if isinstance(value, list):
        return [in_words(entry) for entry in value]
    is_large = type(value) is int and abs(value) >= 1 << 53
    return f"{value}n" if is_large else value


def test_numbers_up_to_2_to_the_63_are_judged_and_encoded_as_in_python(model):
    asked, expected, broken, accepted = [], [], [], 0
    for seed in range(1500):
        call = large(seed)
        request = call and request_of(*call)
        if request is None or request.unreadable or f"{1 << 70}" in str(call[2]):
            continue  # the page cannot read a box of 2^70
        kind, tensor, given = call
        state = {name: plain(value) for name, value in given.items()}
        state |= {"kind": kind, "shape": list(tensor.shape), "strides": list(tensor.strides)}
        state |= {"dtype": str(tensor.dtype), "address": tensor.address}
        rules = [rule for rule, _ in violations_of(request)]
        broken.append({fault.rule.id for fault in faults_of(request)})
        asked.append({name: in_words(value) for name, value in state.items()})
        expected.append([rules, None if rules else bytes_of(request)])
        accepted += not rules
    found = model.evaluate("(text) => window.answer(text)", json.dumps(asked))
    exact = 0
    for request, of_page, of_python, rules in zip(asked, found, expected, broken, strict=True):
        bits = NAMED_DTYPES[request["dtype"]].itemsize_bits
        numbers = [int(str(n).strip("n")) for n in (*request["shape"], *request["strides"])]
        if max(numbers) * bits < 1 << 60:
            assert of_page == of_python, request
            exact += 1
        else:  # the core cuts at 2^60, which is beyond every limit: fewer rows may fail, never none
            assert of_page[0], request
            assert {*of_page[0]} <= rules, request
    assert exact > 400
    assert len(asked) > 800
    assert accepted > 10


@pytest.mark.parametrize(
    ("change", "found", "limit"),
    [
        ({"shape": [64, -1]}, "shape[1] is -1", "it must not be negative"),
        ({"strides": [-64, 1]}, "strides[0] is -64", "it must not be negative"),
        ({"shape": [64, 0.5]}, "shape[1] is 0.5", "it must be an integer"),
        ({"box_sizes": [64, f"{1 << 63}n"]}, f"box_sizes[1] is {1 << 63}", "it must be below 2^63"),
        ({"address": -16}, "address is -16", "it must be 0 or more, and below 2^62"),
        ({"box_sizes": None}, "box_sizes is null", "it must be a list of integers"),
    ],
)
def test_what_the_core_cannot_take_is_refused_by_name(model, change, found, limit):
    request = {"kind": "tiled", "shape": [64, 64], "box_sizes": [8, 8], "dtype": "float16"}
    text = json.dumps([request | {"address": 256} | change])
    script = ANSWER.replace("violations.map((v) => v.rule)", "violations")
    model.evaluate(f"() => {{ {script} }}")
    ((violation,), _) = model.evaluate("(text) => window.answer(text)", text)[0]
    assert (violation["rule"], violation["found"], violation["limit"]) == ("ARGUMENT", found, limit)
    model.evaluate(f"() => {{ {ANSWER} }}")


def test_without_webassembly_the_page_says_so(chromium):
    seen = harness.Seen(chromium)
    seen.page.set_content("<script>delete globalThis.WebAssembly</script>" + page())
    seen.page.wait_for_function("document.getElementById('explorer').textContent")
    text = seen.page.inner_text("#explorer")
    assert text.startswith("The explorer needs WebAssembly, which this viewer does not run"), text
    seen.close()
