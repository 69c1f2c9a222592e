"""grouped_gemm.cu: exact products for all kinds of groups, and no other byte written."""

from __future__ import annotations

import random

import pytest
from bench import grouped, hopper

#: Rows of each group, n, k.
CASES = {
    "one group of one tile": ((128,), 256, 64),
    "one row": ((1,), 8, 8),
    "all groups empty": ((0, 0, 0), 256, 64),
    "empty groups first, between and last": ((0, 130, 0, 0, 65, 0), 264, 72),
    "groups of one row": ((1,) * 9, 512, 128),
    "ends one before, on and after a tile's": (
        (127, 128, 129, 255, 256, 257, 63, 64, 65),
        520,
        200,
    ),
    "one left-over row of tiles, an odd number of columns": ((300,), 768, 96),
    "many groups": (tuple(range(70)), 328, 64),
    "more tiles than multiprocessors": ((1000, 17, 2100, 640), 2048, 192),
    "one group takes all": ((0, 3000, 0), 1024, 256),
}
RANDOM = random.Random(23)
for i in range(8):
    sizes = tuple(
        RANDOM.choice((0, 1, RANDOM.randint(0, 400))) for _ in range(RANDOM.randint(1, 40))
    )
    CASES[f"random {i}"] = (sizes, 8 * RANDOM.randint(1, 120), 8 * RANDOM.randint(1, 60))


@pytest.fixture
def library(torch):
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        pytest.skip(f"wgmma needs compute capability 9.0; the GPU has {capability}")
    return hopper.compile_file(hopper.NOTEBOOKS / "grouped_gemm.cu")


def integers(torch, *shape):
    """Integers whose products and sums are exact in float32."""
    return torch.randint(-3, 4, shape, device="cuda").to(torch.bfloat16)


@pytest.mark.parametrize("name", CASES)
def test_every_groups_product_is_exact_and_nothing_else_is_written(name, torch, library):
    rows, n, k = CASES[name]
    after = 77  # rows of A and C that belong to no group
    m = sum(rows) + after
    a, weights = integers(torch, m, k), [integers(torch, n, k) for _ in rows]
    c = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
    ends = torch.tensor(rows).cumsum(0).to(torch.int32).cuda()
    launch = hopper.grouped_launcher(library, a, weights, c, ends)
    launch()
    begin = 0
    for size, expert in zip(rows, weights, strict=True):
        part = slice(begin, begin + size)
        expected = (a[part].double() @ expert.double().T).to(torch.bfloat16)
        assert torch.equal(c[part], expected)
        begin += size
    assert c[begin:].isnan().all()


def test_the_sizes_may_change_between_launches(torch, library):
    n, k, m = 512, 128, 700
    a, weights = integers(torch, m, k), [integers(torch, n, k) for _ in range(5)]
    c, ends = torch.empty((m, n), dtype=a.dtype, device="cuda"), grouped.random_ends(torch, 5, m)
    launch = hopper.grouped_launcher(library, a, weights, c, ends)
    for seed in range(20):
        ends.copy_(grouped.random_ends(torch, 5, m, seed))
        launch()
        group = torch.searchsorted(ends, torch.arange(m, device="cuda"), right=True)
        products = torch.stack([(a.double() @ w.double().T).to(a.dtype) for w in weights])
        assert torch.equal(c, products[group, torch.arange(m, device="cuda")])


def test_the_bench_prints_each_size_as_right(torch, library, capsys, monkeypatch):
    monkeypatch.setattr(grouped, "SIZES", ((3, 512, 512, 256), (8, 64, 256, 128)))
    monkeypatch.setattr(grouped, "ROUND_FLOP", 1e9)
    assert grouped.main(["--rounds", "1"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2
    assert all(row.endswith("right") for row in rows)
