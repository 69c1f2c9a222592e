"""CUDA graphs: a captured launch contains the map's 128 bytes, including the tensor's address."""

from __future__ import annotations

import gc

import pytest
from user_kernel import double, kernel, map_of


@pytest.fixture
def x(torch):
    return torch.arange(64 * 64, dtype=torch.float32, device="cuda").reshape(64, 64)


def captured(torch, tensor_map):
    """Capture one launch of the doubling kernel. Capturing does not run the kernel."""
    kernel()  # load the kernel before, because loading cannot be captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        double(tensor_map, torch.cuda.current_stream().cuda_stream)
    return graph


def test_each_replay_copies_through_the_captured_map(torch, x):
    before = x.clone()
    graph = captured(torch, map_of(x))
    assert torch.equal(x, before)
    graph.replay()
    assert torch.equal(x, before * 2)
    graph.replay()
    assert torch.equal(x, before * 4)


def test_a_graph_needs_the_tensor_but_not_the_map_after_capture(torch, x):
    before = x.clone()
    graph = captured(torch, map_of(x))  # the map is gone
    gc.collect()
    graph.replay()
    assert torch.equal(x, before * 2)


def test_a_tensor_that_moved_needs_with_address_and_a_new_capture(torch, x):
    tensor_map, before = map_of(x), x.clone()
    graph = captured(torch, tensor_map)
    moved = x.clone()

    graph.replay()  # still the old address
    assert torch.equal(x, before * 2)
    assert torch.equal(moved, before)

    graph = captured(torch, tensor_map.with_address(moved))
    graph.replay()
    assert torch.equal(x, before * 2)
    assert torch.equal(moved, before * 2)


def test_a_map_can_be_made_while_a_graph_is_captured(torch, x):
    before = x.clone()
    kernel()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor_map = map_of(x)
        double(tensor_map, torch.cuda.current_stream().cuda_stream)
    assert tensor_map.encoder == "driver"
    graph.replay()
    assert torch.equal(x, before * 2)
