"""torch.compile: maps belong inside a custom operator; here it copies on the simulator."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tma_dlpack as tma

# torch warns of Python 3.13.0
pytestmark = pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")


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
    with pytest.raises(
        tma.TmaPreconditionError, match=r"inside of a\s+torch.library.custom_op"
    ) as e:
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


def test_a_map_made_in_the_compiled_function_itself_is_refused_not_made_of_nothing():
    def outside_of_an_operator(x):
        return x + tma.make_tma_descriptor(x, (16, 32)).rank

    compiled = torch.compile(outside_of_an_operator, fullgraph=True, backend="aot_eager")
    refused = (tma.TmaError, torch._dynamo.exc.TorchDynamoException)
    with pytest.raises(refused, match=r"make_tma_descriptor|fake tensor of torch's tracing"):
        compiled(torch.from_numpy(np.zeros((64, 64), np.float32)))


def test_behind_compiler_disable_a_map_is_made_between_two_graphs():
    make = torch.compiler.disable(tma.make_tma_descriptor)

    def in_two_graphs(x):
        y = x + 1
        return y * make(y, (16, 32)).box_sizes[1]

    x = torch.zeros(64, 64)
    assert torch.equal(torch.compile(in_two_graphs, backend="aot_eager")(x), torch.full_like(x, 32))
