"""Every instruction of the table has the same results as on an H100; unknown forms are refused."""

from pathlib import Path

import numpy as np
import pytest
from instruction_cases import KEPT, LANES, bits, cases, kernel, operands

from tma_dlpack import TmaUnsupportedError
from tma_dlpack.kernel.machine import simulate
from tma_dlpack.kernel.memory import Region

GOLDEN = Path(__file__).parents[1] / "golden" / "ptx_h100.npz"
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "tf32": np.float32}


def is_approximate(name):
    return "approx" in name or name.startswith("div.full")


@pytest.fixture(scope="module")
def h100():
    with np.load(GOLDEN) as golden:
        return dict(zip(golden["names"].tolist(), golden["results"], strict=True))


def simulated(ptx, memory):
    raw = memory.reshape(-1).view(np.uint8)
    pointer = raw.ctypes.data.to_bytes(8, "little")
    region = Region(raw.ctypes.data, raw, "x", True)
    machine = simulate(ptx, "k", (1, 1, 1), (LANES, 1, 1), pointer, [region], order=False)
    assert machine.findings.all() == ()
    return memory[0]


def numbers(words, kind):
    """Return results as floats, packed ones in two columns; integers unchanged."""
    if kind.endswith("x2"):
        size = np.uint64(bits(kind[:-2]))
        low = words & np.uint64((1 << int(size)) - 1)
        return np.stack([numbers(low, kind[:-2]), numbers(words >> size, kind[:-2])])
    if kind == "bf16":
        return (words.astype(np.uint32) << 16).view(np.float32)
    if kind in FLOATS:
        return words.astype(f"u{bits(kind) // 8}").view(FLOATS[kind])
    return words


@pytest.mark.parametrize(
    ("name", "sources", "result"),
    [pytest.param(*case, id=case[0]) for case in cases() if not is_approximate(case[0])],
)
def test_an_instruction_computes_the_bits_of_an_h100(name, sources, result, h100):
    found = simulated(kernel(name, sources, result), operands(name, sources))[:KEPT]
    packed = name.split(".")[-2] if result == "b32" and "16x2." in name else result
    kind = packed if packed.endswith("x2") else result
    mine, expected = numbers(found, kind), numbers(h100[name], kind)
    if mine.dtype.kind == "f":  # the bits of a NaN are not compared, the sign of 0 is
        same = np.isnan(mine) & np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(mine[~same]), np.signbit(expected[~same]))
    np.testing.assert_array_equal(mine, expected)


#: PTX ISA 9.0, 9.7.3: relative error, absolute error (of sin, cos and lg2 near 0; rounded up).
BOUNDS = {"f32": (2.0**-21, 2.0**-20), "f64": (2.0**-20, 0), "f16": (2.0**-9, 2.0**-24),
          "bf16": (2.0**-6, 0)}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sources", "result"),
    [pytest.param(*case, id=case[0]) for case in cases() if is_approximate(case[0])],
)
def test_an_approximation_is_as_near_as_ptx_says(name, sources, result, h100):
    memory = operands(name, sources)
    found, expected = simulated(kernel(name, sources, result), memory)[:KEPT], h100[name]
    relative, absolute = BOUNDS[result.removesuffix("x2")]
    if name[:3] in ("sin", "cos"):  # PTX limits the error only for small arguments
        small = np.abs(numbers(memory[1, :KEPT], "f32")) < 100
        found, expected, absolute = found[small], expected[small], 2.0**-17
    if name.startswith("tanh.approx.f32"):
        relative = 2.0**-10
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(
            numbers(found, result).astype(np.float64),
            numbers(expected, result).astype(np.float64),
            rtol=relative,
            atol=absolute,
        )


@pytest.mark.parametrize(
    ("name", "sources", "result"),
    [
        ("add.rz.f64", ["f64", "f64"], "f64"),
        ("cvt.rs.f16x2.f32", ["f32", "f32"], "b32"),
        ("min.magic.s32", ["s32", "s32"], "s32"),
        ("frobnicate.u32", ["u32"], "u32"),
    ],
)
def test_an_unknown_form_is_refused_by_its_name(name, sources, result):
    with pytest.raises(TmaUnsupportedError, match=rf"instruction {name} \(line 11|line 10"):
        simulated(kernel(name, sources, result), np.zeros((3, LANES), np.uint64))
