"""All tests in this folder need a GPU of compute capability 9.0 or later, its driver, and NVRTC."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# For copy_cases and the simulator's tests, also when only this folder is run.
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "copies")]

from on_device import DeviceMemory  # noqa: E402

from tma_dlpack import driver  # noqa: E402


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)


@functools.cache
def what_is_missing() -> str | None:
    status = driver.status()
    if status.reason is not None:
        return status.reason
    target = status.devices[0].target
    if not target.has_tma:
        return f"the GPU is {target}; tensor maps need compute capability 9.0"
    try:
        importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        return f"{error}: the extra cuda is not installed"
    return None


@pytest.fixture(autouse=True, scope="session")
def _needs_a_gpu():
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)


@pytest.fixture(scope="module")
def device_memory(_needs_a_gpu):
    with DeviceMemory() as memory:
        yield memory


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    return torch


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX sees no GPU")
    return jax
