"""torch.compile leaves its graph for this package's calls, unless they are in custom operators."""

import contextlib
import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tma_dlpack as tma
from tma_dlpack.public import opaque

# torch warns of Python 3.13.0
pytestmark = pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")


def quietly(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch and JAX deprecate parts of themselves
        return function()


@torch.library.custom_op("tma_dlpack_tests::first_tile", mutates_args=())
def first_tile(x: torch.Tensor) -> torch.Tensor:
    """Load the tile at (0, 0), 16 x 32."""
    tensor_map = tma.make_tma_descriptor(x, (16, 32), swizzle="bytes128")
    return torch.from_numpy(tma.load_tile(tensor_map, (0, 0)).array.copy())


@first_tile.register_fake
def _(x):
    return x.new_empty(16, 32)


def test_a_map_inside_a_custom_operator_works_in_one_compiled_graph():
    x = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64)
    compiled = torch.compile(lambda x: first_tile(x + 1) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), (x + 1)[:16, :32] * 2)
    moved = x.flip(0).contiguous()
    assert torch.equal(compiled(moved), (moved + 1)[:16, :32] * 2)


def test_a_map_of_a_fake_tensor_is_refused_and_the_custom_operator_named():
    with FakeTensorMode():
        fake = torch.empty(64, 64)
    with pytest.raises(tma.TmaPreconditionError, match=r"in a\s+torch.library.custom_op") as e:
        tma.make_tma_descriptor(fake, (16, 32))
    assert [violation.rule for violation in e.value.violations] == ["TENSOR_FAKE"]
    assert "is a fake tensor of torch's tracing" in e.value.violations[0].found


def test_a_fake_implementation_that_makes_a_map_gets_the_same_refusal():
    def run(x):
        return x.clone()

    def fake(x):
        tma.make_tma_descriptor(x, (16, 32))
        return torch.empty_like(x)

    operator = torch.library.custom_op(
        "tma_dlpack_tests::wrong_fake", run, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(fake)
    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="is a fake tensor of torch's tracing"):
        compiled(torch.zeros(64, 64))


def test_one_graph_without_an_operator_is_refused_in_torch_words():
    def outside_of_an_operator(x):
        return x + tma.make_tma_descriptor(x, (16, 32)).rank

    compiled = torch.compile(outside_of_an_operator, fullgraph=True, backend="aot_eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tma_dlpack\.torch_ops") as caught:
        compiled(torch.from_numpy(np.zeros((64, 64), np.float32)))
    assert "Quick" not in str(caught.value)


@pytest.mark.parametrize("name", ["make_im2col_descriptor", "driver_encode_tiled"])
def test_every_function_that_is_tried_in_c_names_the_operators(name):
    verb = getattr(tma, name)
    compiled = torch.compile(lambda x: x + verb(x, 2).rank, fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tma_dlpack\.torch_ops"):
        compiled(torch.zeros(64, 64))


def test_the_pointer_of_a_host_map_is_refused_in_a_compiled_function_as_outside():
    def caught(x):
        try:
            return x * 2, MAP.ptr
        except tma.TmaError as error:
            return x * 2, str(error)

    doubled, text = torch.compile(caught, backend="eager")(X)
    assert (text, torch.equal(doubled, X * 2)) == (caught(X)[1], True)
    in_one_graph = torch.compile(lambda x: x + MAP.ptr, fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tma_dlpack\.torch_ops"):
        in_one_graph(X)


def test_one_graph_that_asks_a_map_is_refused_and_the_way_named():
    tm = tma.make_tma_descriptor(torch.zeros(64, 64), (16, 32))
    compiled = torch.compile(lambda x: x * tm.tx_bytes, fullgraph=True, backend="aot_eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tma_dlpack\.torch_ops"):
        compiled(torch.zeros(64, 64))


X = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64)
HALF = torch.zeros(64, 64, dtype=torch.float16)
IMAGES = torch.zeros(2, 14, 14, 64)
MAP = tma.make_tma_descriptor(X, (16, 32))
STORE_MAP = tma.make_tma_descriptor(torch.zeros(64, 64), (16, 32))
MATRIX_MAP = tma.make_tma_descriptor(HALF, (64, 64), swizzle="bytes128")
TILE = np.zeros((16, 32), np.float32)
REFUSED = tma.check_tma_descriptor(X, (16, 3))


def attributes_of(tensor_map):
    """Return the public attributes that a host tensor's map has."""
    names = (name for name in dir(tensor_map) if not name.startswith("_"))
    return [name for name in names if name != "ptr" and not callable(getattr(tensor_map, name))]


def compiled_and_plain(function):
    """Return the results of a function of X, compiled (with the other code in graphs) and plain."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def around(x):
        y = x + 1
        result = function(y)
        return y * 2, result

    doubled, compiled = torch.compile(around, backend=backend)(X)
    assert torch.equal(doubled, (X + 1) * 2)
    assert len(graphs) <= 2  # before and after the call
    _, plain = around(X)
    return compiled, plain


#: By default, the attributes for launches are tested; pytest -m slow tests the others.
LAUNCHED_WITH = {"tx_bytes", "smem_bytes", "strides", "rank", "shape", "description"}


@pytest.mark.parametrize(
    "name",
    [
        name if name in LAUNCHED_WITH else pytest.param(name, marks=pytest.mark.slow)
        for name in attributes_of(MAP)
    ],
)
def test_attributes_of_a_map_are_read_between_two_graphs(name):
    compiled, plain = compiled_and_plain(lambda x: getattr(MAP, name))
    assert repr(compiled) == repr(plain)


VERBS = {
    "make": lambda x: tma.make_tma_descriptor(x, (16, 32)).tx_bytes,
    "make, refused": lambda x: (
        tma.make_tma_descriptor(
            x, (16, 32), interleave_layout="none", rules="driver", target="sm_90"
        ).strides
    ),
    "make, described otherwise": lambda x: (
        tma.make_tma_descriptor(x, (16, 32), shape=(32, 64), strides=(128, 1)).shape
    ),
    "im2col": lambda x: tma.make_im2col_descriptor(IMAGES, (-1, -1), (-1, -1), 64, 32).smem_bytes,
    "check": lambda x: str(tma.check_tma_descriptor(x, (16, 3))),
    "fixed": lambda x: REFUSED.fixed(),
    "batch": lambda x: tma.make_tma_descriptors([x, x], (16, 32)).numpy().shape,
    "with_address": lambda x: MAP.with_address(x).rank,
    "replace": lambda x: MAP.replace(rank=1).rank,
    "from_bytes": lambda x: tma.TensorMap.from_bytes(bytes(MAP)).shape,
    "driver's words": lambda x: (
        tma.driver_encode_tiled("FLOAT32", 2, 4096, (64, 64), (256,), (32, 16), (1, 1)).ptr % 128
    ),
    "load_tile": lambda x: tma.load_tile(MAP, (0, 0)).array,
    "load_tiles": lambda x: tma.load_tiles(MAP, [(0, 0), (16, 32)]).filled,
    "store_tile": lambda x: tma.store_tile(STORE_MAP, (0, 0), TILE),
    "tile_coords": lambda x: tma.tile_coords(MAP),
    "split_inner": lambda x: tma.split_inner(x, (16, 64)),
    "matrix_descriptor": lambda x: tma.matrix_descriptor(MATRIX_MAP).value,
    "ldmatrix_addresses": lambda x: tma.ldmatrix_addresses(MATRIX_MAP, 0, 0),
    "draw": lambda x: str(tma.draw.tensor(MAP, (0, 0))),
    "cpp": lambda x: MAP.cpp(),
    "hash and equality": lambda x: (hash(MAP) == hash(MAP), MAP == MATRIX_MAP),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_run_between_two_graphs(verb):
    compiled, plain = compiled_and_plain(VERBS[verb])
    np.testing.assert_equal(compiled, plain)


def test_a_refusal_is_raised_and_caught_in_a_compiled_function():
    def caught(x):
        try:
            tma.make_tma_descriptor(x + 1, (16, 3))
        except tma.TmaPreconditionError as error:
            return x * 2, error.violations[0].rule

    doubled, rule = torch.compile(caught, backend="eager")(X)
    assert (rule, torch.equal(doubled, X * 2)) == ("BOX_INNER_16B", True)


@pytest.mark.parametrize("refused", [False, True], ids=["returns", "raises"])
def test_nothing_is_compiled_inside_of_a_verb_and_everything_after_it(refused):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @opaque
    def verb(x):
        if (x + 1).sum() == 0 or refused:
            raise ValueError
        return x

    def run(x):
        with contextlib.suppress(ValueError):
            verb(x)
        return after(x)

    def after(x):
        return x + 1

    torch._dynamo.reset()
    torch.compile(run, backend=backend)(X)
    assert [len(graph.graph.nodes) for graph in graphs] == [3]  # x, x + 1, output


#: The functions of draw that return HTML for our own objects.
HELPERS = {"page", "render_traceback", *(n for n in tma.draw.__all__ if n.endswith("_html"))}


def test_every_public_verb_is_opaque():
    def is_opaque(verb):
        return hasattr(verb, "_torchdynamo_disable")

    verbs = [getattr(tma, name) for name in tma.__all__]
    verbs += [getattr(tma.draw, name) for name in tma.draw.__all__ if name not in HELPERS]
    traced = [v for v in verbs if inspect.isroutine(v) and not is_opaque(v)]
    assert traced == []


class Multiplied(torch.nn.Module):
    def forward(self, x):
        return x * tma.make_tma_descriptor(x, (16, 32)).rank


def test_jit_trace_keeps_the_numbers_of_the_map():
    traced = quietly(lambda: torch.jit.trace(Multiplied(), (X,)))
    assert torch.equal(traced(X), X * 2)


TRACED = {
    "torch.export": (lambda: torch.export.export(Multiplied(), (X,)), "torch_ops"),
    "torch.fx": (lambda: torch.fx.symbolic_trace(Multiplied()), "torch_ops"),
    "torch.vmap": (lambda: torch.vmap(Multiplied())(X[None]), "outside of torch.vmap"),
    "torch.func.grad": (
        lambda: torch.func.grad(lambda x: Multiplied()(x).sum())(X),
        "outside of torch.vmap, torch.func.grad",
    ),
    "torch.func.functionalize": (
        lambda: torch.func.functionalize(Multiplied())(X),
        "outside of torch.vmap",
    ),
    "jax.jit": (lambda: jax.jit(Multiplied().forward)(jnp.zeros((64, 64))), "outside of the funct"),
    "jax.vmap": (
        lambda: jax.vmap(Multiplied().forward)(jnp.zeros((2, 64, 64))),
        "outside of the function",
    ),
    "jax.grad": (
        lambda: jax.grad(lambda x: Multiplied().forward(x).sum())(jnp.zeros((64, 64))),
        "outside of the function",
    ),
    "tf.function": (lambda: Multiplied()(SymbolicTensor()), "outside of the tf.function"),
}


class SymbolicTensor:
    """A stand-in for the tensors that tf.function passes; the tests do not install TensorFlow."""

    __module__ = "tensorflow.python.framework.ops"


@pytest.mark.parametrize("transform", TRACED)
def test_what_traces_is_refused_with_the_way_in_one_line(transform):
    trace, way = TRACED[transform]
    with pytest.raises(tma.TmaPreconditionError) as caught:
        quietly(trace)
    (violation,) = caught.value.violations
    assert way in violation.fix


def test_behind_compiler_disable_a_map_is_made_between_two_graphs():
    make = torch.compiler.disable(tma.make_tma_descriptor)

    def in_two_graphs(x):
        y = x + 1
        return y * make(y, (16, 32)).box_sizes[1]

    x = torch.zeros(64, 64)
    assert torch.equal(torch.compile(in_two_graphs, backend="aot_eager")(x), torch.full_like(x, 32))
