"""Tests of tma_example.py: run ``python -m pytest test_torch.py`` on a GPU with TMA."""

import pytest
import torch
from tma_example import doubled


def matrix(rows, columns):
    return torch.arange(rows * columns, dtype=torch.float32, device="cuda").reshape(rows, columns)


@pytest.mark.parametrize("shape", [(1, 4), (16, 32), (1000, 100), (100_000, 8)])
def test_every_element_is_doubled(shape):
    x = matrix(*shape)
    assert torch.equal(doubled(x), 2 * x)


def test_rows_may_be_further_apart_than_they_are_long():
    x = matrix(64, 128)[::2, 32:96]
    assert torch.equal(doubled(x), 2 * x)


def test_an_empty_matrix_stays_empty():
    assert doubled(matrix(0, 8)).shape == (0, 8)


def test_the_schema_the_fake_kernel_and_the_gradient_are_as_torch_wants_them():
    torch.library.opcheck(doubled, (matrix(40, 64).requires_grad_(),))


def test_the_kernel_runs_on_the_current_stream():
    x, stream = matrix(512, 512), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Sleep about 50 ms, so that a kernel on another stream would read x before x.add_ has run.
        torch.cuda._sleep(100_000_000)
        x.add_(1)
        y = doubled(x)
    stream.synchronize()
    assert torch.equal(y, 2 * (matrix(512, 512) + 1))


def test_it_is_one_graph_in_torch_compile():
    compiled = torch.compile(lambda x: doubled(x + 1) - 3, fullgraph=True)
    for x in (matrix(64, 64), matrix(64, 64).flip(0), matrix(48, 32)):
        assert torch.equal(compiled(x), 2 * (x + 1) - 3)


def test_a_captured_graph_replays_it():
    x, graph = matrix(64, 64), torch.cuda.CUDAGraph()
    # The first launch loads the CUDA module. A capture does not allow this, so launch once before.
    doubled(x)
    with torch.cuda.graph(graph):
        y = doubled(x)
    x.add_(1)
    graph.replay()
    assert torch.equal(y, 2 * (matrix(64, 64) + 1))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_tensor_of_another_gpu_than_the_current_one():
    x = matrix(64, 64).to("cuda:1")
    assert torch.equal(doubled(x), 2 * x)


def test_what_tma_cannot_do_is_refused_with_the_rule():
    with pytest.raises((RuntimeError, ValueError), match=r"broken: STRIDE_ALIGNED"):
        doubled(matrix(64, 33))  # rows of 132 bytes
    with pytest.raises((RuntimeError, ValueError), match=r"broken: STRIDE_INNER"):
        doubled(matrix(64, 64).T)
    with pytest.raises(ValueError, match=r"takes a float32 matrix, not 1 dimensions of Float"):
        doubled(matrix(1, 4)[0])
    with pytest.raises(NotImplementedError, match=r"'tma_example::doubled'.*'CPU' backend"):
        doubled(torch.zeros(16, 32))
