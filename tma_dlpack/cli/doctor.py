"""``python -m tma_dlpack doctor``: what is installed, and which encoder is used."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.dlpack.frameworks import FRAMEWORKS
from tma_dlpack.make import extension
from tma_dlpack.tables.fields import PROVENANCE

#: Distributions that matter, and the version of DLPack that each exports; None for no tensors.
PEERS = {
    **{name: row.dlpack for row in FRAMEWORKS for name in row.distributions},
    **dict.fromkeys(("ml_dtypes", "cuda-bindings", "cuda-core", "triton", "ipywidgets")),
}


def facts() -> dict[str, Any]:
    """Return what is installed and which encoder is used; imports no framework."""
    found = driver.status()
    versions = {name: _version(name) for name in PEERS}
    return {
        "tma_dlpack": tma.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "numpy": np.__version__,
        "extension": _extension(),
        "packages": {
            name: {"version": version, "dlpack": PEERS[name]}
            for name, version in versions.items()
            if version is not None
        },
        "no_driver": found.reason,
        "gpus": [
            {
                "index": device.index,
                "name": str(device),
                "max_smem_bytes": device.target.max_smem_bytes,
                "has_model": device.target.has_model,
            }
            for device in found.devices
        ],
        "encoder": "driver" if found.reason is None else "model",
    }


def report(known: dict[str, Any] | None = None) -> str:
    """Return the facts as text.

    >>> report().startswith("tma_dlpack ")
    True
    """
    return "\n".join(_lines(facts() if known is None else known))


def _lines(known: dict[str, Any]) -> Iterator[str]:
    yield f"tma_dlpack {known['tma_dlpack']}, Python {known['python']}, {known['system']}"
    yield f"NumPy {known['numpy']}, DLPack 1.0 from 2.1 on, legacy before"
    yield f"C extension: {known['extension']}"
    for name, package in known["packages"].items():
        dlpack = f", DLPack {package['dlpack']}" if package["dlpack"] else ""
        yield f"{name} {package['version']}{dlpack}"
    if known["no_driver"] is not None:
        yield known["no_driver"]
        yield f"maps would be encoded by the model of sm_90, {PROVENANCE}"
        return
    for gpu in known["gpus"]:
        model = "has a model" if gpu["has_model"] else "no model: the driver encodes"
        size = f"{gpu['max_smem_bytes']} bytes of shared memory a block"
        yield f"GPU {gpu['index']}: {gpu['name']}, {size}, {model}"
    yield "maps of CUDA tensors would be encoded by the driver"


def _extension() -> str:
    """Return whether the C extension is used, and why not."""
    if extension.COMPILED:
        return "built"
    try:
        importlib.import_module("tma_dlpack.tensor_map._storage")
    except ImportError as error:
        return (
            f"none, because it cannot be imported ({error}); install a C compiler and run pip "
            "install again"
        )
    return "none"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
