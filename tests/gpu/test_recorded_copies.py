"""This GPU still copies the bytes that were recorded."""

from __future__ import annotations

import pytest
from copy_cases import LOADS, STORES, wrong_loads, wrong_stores


@pytest.mark.parametrize("name", LOADS)
def test_every_recorded_load_is_repeated(name, device_memory):
    assert wrong_loads(name, "cuda", device_memory) == []


@pytest.mark.parametrize("name", STORES)
def test_every_recorded_store_is_repeated(name, device_memory):
    assert wrong_stores(name, "cuda", device_memory) == []
