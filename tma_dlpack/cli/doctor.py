"""``python -m tma_dlpack doctor``: what is installed, and which encoder is used."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Iterator

import numpy as np

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.dlpack.frameworks import FRAMEWORKS
from tma_dlpack.make import shortcut
from tma_dlpack.tables import bits

#: Distributions that matter, and the version of DLPack that each exports, if it has tensors.
PEERS = (
    *((name, row.dlpack) for row in FRAMEWORKS for name in row.distributions),
    *((name, "") for name in ("ml_dtypes", "cuda-bindings", "cuda-core", "triton", "ipywidgets")),
)


def report() -> str:
    """Give the report as text; imports no framework.

    >>> report().startswith("tma_dlpack ")
    True
    """
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"tma_dlpack {tma.__version__}, Python {platform.python_version()}, {platform.system()}"
    yield f"NumPy {np.__version__}, DLPack 1.0 from 2.1 on, legacy before"
    yield _short_cut()
    for distribution, dlpack in PEERS:
        version = _version(distribution)
        if version is not None:
            yield f"{distribution} {version}" + (f", DLPack {dlpack}" if dlpack else "")
    found = driver.status()
    if found.reason is not None:
        yield found.reason
        yield f"maps would be encoded by the model of sm_90, {bits.PROVENANCE}"
        return
    for device in found.devices:
        known = "has a model" if device.target.has_model else "no model: the driver encodes"
        yield (
            f"GPU {device.index}: {device}, "
            f"{device.target.max_smem_bytes} bytes of shared memory a block, {known}"
        )
    yield "maps of CUDA tensors would be encoded by the driver"


def _short_cut() -> str:
    """Say which short cut is taken, and why not the compiled one."""
    if shortcut.COMPILED:
        return "short cut: compiled"
    try:
        importlib.import_module("tma_dlpack.tensor_map._storage")
    except ImportError as error:
        return (
            f"short cut: Python, because the compiled one cannot be imported ({error}); install a "
            "C compiler and run pip install again"
        )
    return "short cut: Python"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
