"""Maps as torch.library operators: in graphs, in exported programs, and their refusals."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import tma_dlpack as tma  # noqa: E402
from tma_dlpack import torch_ops  # noqa: E402

# torch warns about Python 3.13.0, and torch's inductor about itself
pytestmark = [
    pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]

CORNERS = ((-1, -1), (-1, -1), 64, 32)


def tensor():
    return torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64)


def bytes_of(data):
    assert (data.dtype, data.shape, data.device.type) == (torch.uint8, (128,), "cpu")
    return bytes(data.numpy())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"swizzle": "bytes128"},
        {"elem_strides": (2, 1), "oobfill": "nan", "l2_fetch_size": "bytes256"},
        {"data_type": "TFLOAT32", "rules": "driver"},
        {"allow": ["BOX_IN_SHAPE"], "shape": [8, 64]},
        {"shape": [64, 32], "strides": [64, 1], "offset": 32},
        {"swizzle": "none", "split_inner": True},
        {"swizzle": "bytes128", "split_inner": True, "ragged": 0, "target": "sm_90"},
    ],
    ids=lambda options: ", ".join(options) or "none",
)
def test_the_operator_gives_the_bytes_of_the_map(options):
    x = tensor()
    expected = bytes(tma.make_tma_descriptor(x, (16, 32), **options))
    assert bytes_of(torch_ops.make_tma_descriptor(x, (16, 32), **options)) == expected
    assert bytes_of(torch.ops.tma_dlpack.make_tma_descriptor(x, [16, 32], **options)) == expected


@pytest.mark.parametrize("name", ["make_tma_descriptor", "make_im2col_descriptor"])
def test_the_operators_take_every_option(name):
    schema = getattr(torch.ops.tma_dlpack, name).default._schema
    options = [argument.name for argument in schema.arguments]
    assert options == list(inspect.signature(getattr(tma, name)).parameters)


def test_a_split_asks_for_an_explicit_swizzle_here_too():
    with pytest.raises(tma.TmaPreconditionError) as caught:
        torch_ops.make_tma_descriptor(tensor(), [16, 32], split_inner=True)
    assert [violation.rule for violation in caught.value.violations] == ["SPLIT_SWIZZLE"]


def test_the_im2col_operator_gives_the_bytes_of_the_map():
    x = torch.zeros(2, 14, 14, 64)
    for options in ({}, {"target": "sm_90", "shape": [1, 14, 14, 64]}, {"offset": 64, "allow": []}):
        expected = bytes(tma.make_im2col_descriptor(x, *CORNERS, **options))
        assert bytes_of(torch_ops.make_im2col_descriptor(x, *CORNERS, **options)) == expected


def run_in_one_graph(x):
    y = x + 1
    return y, torch.ops.tma_dlpack.make_tma_descriptor(y, [16, 32], swizzle="bytes128")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_map_is_made_in_one_compiled_graph_each_time_it_runs(backend):
    compiled = torch.compile(run_in_one_graph, fullgraph=True, backend=backend)
    kept = []
    for _ in range(3):
        y, data = compiled(tensor())
        kept.append(y)  # so that the next tensor has another address
        assert bytes_of(data) == bytes(tma.make_tma_descriptor(y, (16, 32), swizzle="bytes128"))
    assert len({y.data_ptr() for y in kept}) == 3


class Exported(torch.nn.Module):
    def forward(self, x):
        return torch.ops.tma_dlpack.make_tma_descriptor(x, [16, 32])


def test_an_exported_program_makes_the_map_of_what_it_is_given():
    program = torch.export.export(Exported(), (tensor(),))
    targets = [node.target for node in program.graph.nodes]
    assert torch.ops.tma_dlpack.make_tma_descriptor.default in targets
    x = tensor()
    assert bytes_of(program.module()(x)) == bytes(tma.make_tma_descriptor(x, (16, 32)))


def test_torch_finds_nothing_wrong_with_the_operator():
    # Omit torch's test of the operator on two copies of a tensor, because their addresses differ.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch_ops.make_tma_descriptor, (tensor(), [16, 32]), test_utils=checks)
    images = torch.zeros(2, 14, 14, 64)
    torch.library.opcheck(torch_ops.make_im2col_descriptor, (images, *CORNERS), test_utils=checks)


def test_a_tensor_that_requires_a_gradient_gives_a_map_that_does_not():
    assert not torch_ops.make_tma_descriptor(tensor().requires_grad_(), [16, 32]).requires_grad


def test_a_refusal_comes_through_when_the_graph_runs():
    compiled = torch.compile(
        lambda x: torch_ops.make_tma_descriptor(x, [16, 3]), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(tma.TmaPreconditionError) as caught:
        compiled(tensor())
    assert [violation.rule for violation in caught.value.violations] == ["BOX_INNER_16B"]


def test_importing_the_package_neither_imports_torch_nor_registers_operators():
    code = "import sys, tma_dlpack; print({'torch', 'tma_dlpack.torch_ops'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
