"""Targets are values: presets with names, or targets that a user makes."""

import pytest

from tma_dlpack.tables.errors import TmaPreconditionError
from tma_dlpack.tables.targets import TARGETS, Target


def test_presets_have_the_shared_memory_that_is_documented():
    found = {name: (t.compute_capability, t.max_smem_bytes) for name, t in TARGETS.items()}
    assert found == {
        "sm_90": ((9, 0), 227 * 1024),
        "sm_100": ((10, 0), 227 * 1024),
        "sm_103": ((10, 3), 227 * 1024),
        "sm_107": ((10, 7), 327 * 1024),
        "sm_110": ((11, 0), 227 * 1024),
        "sm_120": ((12, 0), 99 * 1024),
        "sm_121": ((12, 1), 99 * 1024),
    }
    assert all(target.name == str(target) == name for name, target in TARGETS.items())


@pytest.mark.parametrize("name", ["sm_90", "sm_90a", "sm_100f", "sm_120a"])
def test_a_name_may_have_the_suffix_of_an_architecture(name):
    assert Target.of(name) is TARGETS[name.rstrip("af")]


def test_a_target_is_taken_as_it_is():
    target = Target((10, 1), 100_000)
    assert Target.of(target) is target


@pytest.mark.parametrize(
    "target", ["sm_80", "sm_9", "sm_90f", "sm_90aa", "", "hopper", None, 90, (9, 0)]
)
def test_what_is_no_target_is_refused(target):
    with pytest.raises(TmaPreconditionError, match="sm_90, sm_100, sm_103, sm_107") as caught:
        Target.of(target)
    assert caught.value.violations[0].argument == "target"


@pytest.mark.parametrize("capability", [(9,), (9, 0, 0), [9, 0], "90", (9.0, 0), (9, -1), (100, 0)])
def test_a_compute_capability_is_a_pair_of_small_integers(capability):
    with pytest.raises(TmaPreconditionError, match="compute_capability"):
        Target(capability)


@pytest.mark.parametrize("name", ["driver_version", "multiprocessors"])
def test_what_is_not_known_of_a_target_is_none(name):
    assert getattr(Target((9, 0), **{name: None}), name) is None
    for value in (-1, "13.0", 1.5, True):
        with pytest.raises(TmaPreconditionError, match=f"{name} is "):
            Target((9, 0), **{name: value})


@pytest.mark.parametrize("size", [0, -1, 1.5, None, 1 << 31])
def test_shared_memory_is_a_positive_number_of_bytes(size):
    with pytest.raises(TmaPreconditionError, match="max_smem_bytes"):
        Target((9, 0), size)


@pytest.mark.parametrize(
    ("capability", "has_tma", "is_sm_9x", "has_model", "has_derived_layout", "has_scatter4"),
    [
        ((8, 9), False, False, False, False, False),
        ((9, 0), True, True, True, False, False),
        ((9, 1), True, True, False, False, False),
        ((10, 0), True, False, False, True, True),
        ((10, 1), True, False, False, False, True),
        ((10, 7), True, False, False, True, True),
        ((11, 0), True, False, False, True, True),
        ((12, 0), True, False, False, True, False),
        ((12, 1), True, False, False, True, False),
    ],
)
def test_what_a_compute_capability_means(
    capability, has_tma, is_sm_9x, has_model, has_derived_layout, has_scatter4
):
    target = Target(capability)
    assert (target.has_tma, target.is_sm_9x, target.has_model) == (has_tma, is_sm_9x, has_model)
    assert target.has_derived_layout == has_derived_layout
    assert target.has_scatter4 == has_scatter4
