"""Tests of jax_double.py: run ``python -m pytest test_jax.py`` on a GPU with TMA."""

import jax
import jax.numpy as jnp
import pytest
from jax_double import doubled


def matrix(rows, columns):
    return jnp.arange(rows * columns, dtype=jnp.float32).reshape(rows, columns)


@pytest.mark.parametrize("shape", [(1, 4), (16, 32), (1000, 100), (100_000, 8)])
def test_every_element_is_doubled(shape):
    assert jnp.array_equal(doubled(matrix(*shape)), 2 * matrix(*shape))


def test_it_is_one_step_of_a_larger_jitted_function():
    run = jax.jit(lambda x: doubled(x + 1) - 3)
    for x in (matrix(64, 64), matrix(64, 64)[::-1]):
        assert jnp.array_equal(run(x), 2 * (x + 1) - 3)


def test_what_tma_cannot_do_is_refused_with_the_rule():
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"broken: STRIDE_ALIGNED"):
        doubled(matrix(64, 33)).block_until_ready()
