"""torch.compile: a map built and used inside a custom operator, in one graph."""

from __future__ import annotations

import pytest
from user_kernel import double, map_of

# torch's inductor warns when it is imported, and warns about its empty first graph.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]


@pytest.fixture(scope="module")
def doubled():
    """An operator that copies its argument and doubles the copy through TMA."""
    torch = pytest.importorskip("torch")

    def run(x):
        out = x.clone()
        double(map_of(out), torch.cuda.current_stream().cuda_stream)
        return out

    operator = torch.library.custom_op(
        "tma_dlpack_gpu_tests::doubled", run, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(torch.empty_like)
    return operator


@pytest.mark.slow
def test_a_map_inside_a_custom_operator_works_in_one_compiled_graph(doubled, torch):
    x = torch.arange(64 * 64, dtype=torch.float32, device="cuda").reshape(64, 64)
    compiled = torch.compile(lambda x: doubled(x + 1) - 3, fullgraph=True)
    assert torch.equal(compiled(x), (x + 1) * 2 - 3)
    moved = x.flip(0).contiguous()
    assert torch.equal(compiled(moved), (moved + 1) * 2 - 3)


@pytest.mark.slow
def test_the_same_operator_works_in_reduce_overhead_mode_whose_graphs_replay(doubled, torch):
    x = torch.arange(64 * 64, dtype=torch.float32, device="cuda").reshape(64, 64)
    compiled = torch.compile(lambda x: doubled(x + 1) - 3, fullgraph=True, mode="reduce-overhead")
    for step in range(5):
        given = x + step
        assert torch.equal(compiled(given), (given + 1) * 2 - 3), step
