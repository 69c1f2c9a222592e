"""`shape=`, `strides=` and `offset=`: another description of the tensor's memory."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import ADDRESS, check, rules_of, tiled, view

from tma_dlpack.checks.call import read_call
from tma_dlpack.tables.targets import TARGETS

X = view((64, 64))  # float32: rows of 256 bytes
PADDED = view((64, 60), strides=(64, 1))


def request_of(x, **options):
    return read_call(
        "tiled", x.at(0), x.address, tiled((1, 16), **options), TARGETS["sm_90"], False
    )


def layout(x, **options):
    """Address, extents and byte strides, innermost first."""
    request = request_of(x, **options)
    assert request.unreadable == ()
    a = request.arguments
    return request.address - ADDRESS, a.global_dim, a.global_strides


@pytest.mark.parametrize(
    ("x", "options", "address", "dims", "strides_bytes"),
    [
        (X, {}, 0, (64, 64), (256,)),
        (X, {"offset": 128}, 512, (64, 64), (256,)),
        (X, {"offset": -64}, -256, (64, 64), (256,)),
        (X, {"shape": (1 << 31, 64)}, 0, (64, 1 << 31), (256,)),
        (X, {"shape": (64, 32), "strides": (64, 1)}, 0, (32, 64), (256,)),
        (X, {"shape": (64, 32), "strides": (32, 1), "offset": 4}, 16, (32, 64), (128,)),
        (X, {"shape": (2, 64, 32), "strides": (32, 64, 1)}, 0, (32, 64, 2), (256, 128)),
        (X, {"shape": (4, 16, 64)}, 0, (64, 16, 4), (256, 4096)),
        (X, {"shape": (4096,)}, 0, (4096,), ()),
        (X, {"strides": (0, 1)}, 0, (64, 64), (0,)),
        (X, {"shape": [32, np.int64(64)], "strides": np.array([128, 1])}, 0, (64, 32), (512,)),
        (PADDED, {"shape": (32, 60)}, 0, (60, 32), (256,)),
        (PADDED, {"shape": (64, 64)}, 0, (64, 64), (256,)),
    ],
)
def test_memory_is_described_otherwise(x, options, address, dims, strides_bytes):
    assert layout(x, **options) == (address, dims, strides_bytes)


def test_extents_and_offset_of_packed_tensors_count_elements_of_the_tensor():
    pairs = view((64, 64), (17, 4, 2))  # two 4-bit values in each element
    options = {"shape": (32, 64), "offset": 128}
    assert layout(pairs, **options) == (128, (128, 32), (64,))
    single = view((64, 64), (17, 4, 1))
    assert layout(single, offset=64) == (32, (64, 64), (32,))


@pytest.mark.parametrize(
    ("x", "options", "argument", "found", "limit", "fix"),
    [
        (
            X, {"shape": (64, 32)}, "strides", "strides are ambiguous",
            "it must be given for the shape (64, 32)",
            "pass strides=(64, 1), which are the tensor's own, or (32, 1), row-major",
        ),
        (
            PADDED, {"shape": (4, 16, 60)}, "strides", "strides are ambiguous",
            "it must be given for the shape (4, 16, 60)",
            "pass strides=(960, 60, 1) for rows without gaps",
        ),
        (
            X, {"shape": (4, 16, 64), "strides": (64, 1)}, "strides", "strides has 2 entries",
            "it must have 3, one per dimension of the shape",
            "give one stride per dimension, in elements, for the shape (4, 16, 64)",
        ),
        (
            X, {"strides": (64,)}, "strides", "strides has 1 entry",
            "it must have 2, one per dimension of the shape",
            "give one stride per dimension, in elements, for the shape (64, 64)",
        ),
        (
            X, {"shape": 64}, "shape", "shape is 64",
            "it must be a sequence of ints, one per dimension",
            "pass a tuple of ints, such as (4096, 64)",
        ),
        (
            X, {"strides": (64.5, 1)}, "strides",
            "strides is (64.5, 1), where entry 0 has type float",
            "it must be a sequence of ints, one per dimension, in elements",
            "pass a tuple of ints, such as (64, 1)",
        ),
        (X, {"offset": 2.0}, "offset", "offset is 2.0", "it must be an int",
         "pass an int, such as 64"),
        (
            view((64, 64), (17, 4, 1)), {"offset": 3}, "offset", "offset is 3, 1.5 bytes",
            "it must be a whole number of bytes", "use a multiple of 2 elements",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_alone(x, options, argument, found, limit, fix):
    (violation,) = check("tiled", x, tiled((1, 999), **options)).violations
    assert (violation.rule, violation.argument) == ("ARGUMENT", argument)
    assert (violation.found, violation.limit, violation.fix) == (found, limit, fix)


@pytest.mark.parametrize(
    ("options", "rule", "argument", "found", "fix"),
    [
        (
            {"shape": (0, 64)}, "DIM_RANGE", "shape", "shape[0] is 0",
            "an empty tensor has nothing to copy: skip it",
        ),
        (
            {"strides": (65, 1)}, "STRIDE_ALIGNED", "strides",
            "strides[0] is 65 elements, 260 bytes",
            "use strides that are multiples of 4 elements, such as strides=(68, 1)",
        ),
        (
            {"strides": (64, 2)}, "STRIDE_INNERMOST", "strides", "strides[1] is 2 elements",
            "pass strides whose last entry is 1, such as strides=(64, 1)",
        ),
        (
            {"offset": 2}, "ADDRESS_ALIGNED", "offset",
            "the address is 0x7f0000000008",
            "use an offset whose address is a multiple of 16 bytes; the nearest before is offset=0",
        ),
        (
            {"shape": (2,) * 6}, "RANK", "shape", "the tensor has 6 dimensions",
            "merge dimensions that are contiguous with x.reshape(...), or index the outer ones and "
            "make one map per slice, with one entry of each argument per dimension",
        ),
    ],
)  # fmt: skip
def test_a_rule_names_the_arguments_that_describe_the_memory(options, rule, argument, found, fix):
    violation = check("tiled", X, tiled((1, 16), **options)).violations[0]
    assert (violation.rule, violation.argument) == (rule, argument)
    assert violation.found == found
    assert violation.fix == fix


def test_an_overlap_that_is_described_can_be_allowed():
    options = tiled((1, 16), shape=(64, 64), strides=(32, 1))
    (violation,) = check("tiled", X, options).violations
    assert violation.rule == "STRIDE_UNIQUE"
    assert violation.fix == (
        "pass allow=('STRIDE_UNIQUE',): the driver itself accepts this and copies the elements at "
        "these strides"
    )
    assert check("tiled", X, options | {"allow": ("STRIDE_UNIQUE",)}).ok


def test_an_empty_tensor_stays_empty_however_it_is_described():
    empty = view((0, 64), address=0)
    options = tiled((1, 16), shape=(64, 64), strides=(64, 1), offset=64)
    assert rules_of(check("tiled", empty, options)) == ["ADDRESS_NULL"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"shape": (65, 64)}, "256 bytes after the tensor's last element"),
        ({"offset": 64}, "256 bytes after the tensor's last element"),
        (
            {"shape": (66, 64), "offset": -64},
            "256 bytes before the tensor's first element and 256 bytes after the tensor's last "
            "element",
        ),
        ({"shape": (63, 64), "offset": 64}, None),
        ({"shape": (64, 32), "strides": (64, 1), "offset": 32}, None),
    ],
)
def test_what_reaches_beyond_the_tensor_is_accepted_with_advice(options, found):
    report = check("tiled", X, tiled((1, 16), **options))
    assert report.ok
    beyond = [a.found for a in report.advice if a.rule == "BEYOND_TENSOR"]
    assert beyond == ([] if found is None else [f"the map describes {found}"])
