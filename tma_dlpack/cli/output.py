"""What a command prints: text, or with ``--json`` the same as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tma_dlpack.tensor_map import text
from tma_dlpack.tensor_map.map import TensorMap


def add_json(verb: argparse.ArgumentParser) -> None:
    """Add ``--json``, which `show` obeys."""
    verb.add_argument("--json", action="store_true", help="print the result as JSON, not as text")


def show(options: argparse.Namespace, result: object, words: object = None) -> None:
    """Print a result as JSON where ``--json`` is given; else `words`, which may be the result."""
    if options.json:
        print(json.dumps(plain(result), indent=2))
    else:
        print(result if words is None else words)


def plain(value: object) -> object:
    """Return a value as JSON has it: a dict for an object, the name of a member, hex of bytes.

    An object with a method ``as_dict`` says itself what it holds; a dataclass holds its public
    fields.

    >>> from tma_dlpack import TmaSwizzle
    >>> plain(TmaSwizzle.bytes128), plain((1, b"ab"))
    ('bytes128', [1, '6162'])
    """
    if hasattr(type(value), "as_dict"):
        return plain(value.as_dict())  # type: ignore[attr-defined]
    if isinstance(value, IntEnum):
        return value.name
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return {name: plain(entry) for name, entry in vars_of(value).items()}
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(entry) for name, entry in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [plain(entry) for entry in value]
    return str(value)


def vars_of(value: Any) -> dict[str, object]:
    """Return the public fields of a dataclass, after `ok` where it has that."""
    names = [field.name for field in dataclasses.fields(value) if field.name[0] != "_"]
    names = ["ok"] * hasattr(value, "ok") + names
    return {name: getattr(value, name) for name in names}


def attributes(tensor_map: TensorMap) -> dict[str, object]:
    """Return what a map holds: the driver's words innermost first, ours row-major, its bytes."""
    return {
        "target": tensor_map.target.name,
        "global_address": tensor_map.global_address,
        **vars_of(tensor_map.arguments),
        "shape": tensor_map.shape,
        "box_sizes": tensor_map.box_sizes,
        "elem_strides": tensor_map.elem_strides,
        "tile": text.tile_line(tensor_map),
        "remarks": text.remarks(tensor_map, tensor_map.advice),
        "bytes": bytes(tensor_map),
    }
