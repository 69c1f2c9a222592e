"""Compare maps that a kernel changes on the device with maps of the driver.

The kernel starts from the driver's map with some fields overwritten, writes them back with
``tensormap.replace``, and loads a tile by the result: the fields and the tile must be those of the
driver's map. Half of the maps are changed in shared memory and published, half where they are used;
all lie at places where other maps lay before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tma_dlpack.copies import launch
from tma_dlpack.tables.dtypes import DATA_TYPES
from tma_dlpack.tables.enums import TensorMapDataType
from tma_dlpack.tables.fields import Field, fields_of
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.verification.arena import Arena, byte_difference
from tma_dlpack.verification.random_copies import Copy, random_copy

WARP = 32
KERNELS = "changes.cu"
#: Beside the tile the kernel keeps a map and a barrier.
ROOM_BYTES = 512
UNTOUCHED = 0xEE
#: Numbers of the PTX fields in changes.cu: one per dimension, or one per constant.
CONSTANTS = ("interleave_layout", "swizzle_mode", "fill_mode", "elemtype")
_BY_DIMENSION = (
    "global_address",
    "rank",
    "global_dim",
    "global_stride",
    "box_dim",
    "element_stride",
)
NUMBERS = {name: n for n, name in enumerate((*_BY_DIMENSION, *CONSTANTS))} | {"elemtype": 16}
TF32 = (TensorMapDataType.TFLOAT32, TensorMapDataType.TFLOAT32_FTZ)
#: Ends of what the bits of these can be.
_ENDS = {"interleave": 3, "element_type": 11}


@dataclass(frozen=True, slots=True)
class Change:
    """A load by a map of which the kernel first changes these fields."""

    copy: Copy
    fields: tuple[Field, ...]
    overwritten_by: tuple[int, ...]
    in_place: bool

    def __str__(self) -> str:
        names = ", ".join(field.label for field in self.fields)
        where = "in place" if self.in_place else "published"
        return f"{self.copy}\nchanged, {where}: {names}"


def random_change(rng: Random, max_smem_bytes: int) -> Change:
    """Return a tile load, and any number of fields of its map with wrong values."""
    copy = random_copy("load", "tiled", rng, max_smem_bytes - ROOM_BYTES)
    fields = [f for f in fields_of("tiled", copy.arguments.rank) if f.ptx is not None]
    if copy.arguments.data_type not in TF32:  # the instruction sets the bit, and never clears it
        fields = [field for field in fields if field.name != "tf32"]
    chosen = set(rng.sample(fields, rng.randint(1, len(fields))))
    ordered = tuple(field for field in fields if field in chosen)
    values = tuple(_legal(field, rng) for field in ordered)
    return Change(copy, ordered, values, rng.random() < 0.5)


def _legal(field: Field, rng: Random) -> int:
    raw = rng.randrange(min(field.raw.stop, _ENDS.get(field.name, field.raw.stop)))
    return (raw + field.bias) * field.unit


def compare_change(change: Change, arena: Arena) -> str | None:
    """Change the map on the device and load by it; return the first difference."""
    copy = change.copy
    tensor_map, on_host = arena.maps(copy.arguments, copy.start)
    expected = bytes(tensor_map)
    before = expected
    for field, value in zip(change.fields, change.overwritten_by, strict=True):
        before = field.write(before, value)
    tile = arena.simulated(on_host, copy).smem
    out = _run(change, before, expected, tensor_map.tx_bytes, len(tile), arena)
    changed = out[:MAP_BYTES].tobytes()
    if changed != expected:  # bytes 64..127 stay as they were, and those were the driver's
        return f"the map is   {changed.hex()}\nand should be {expected.hex()}"
    return byte_difference("the tile", tile, out[MAP_BYTES:])


def instructions(change: Change, expected: bytes) -> list[tuple[int, int]]:
    """Return what writes the fields back: their numbers in changes.cu, and operands."""
    found = {}
    for field in change.fields:
        assert field.ptx is not None
        value, number = field.read(expected), 8 * NUMBERS[field.ptx]
        if field.ptx == "elemtype":
            value = DATA_TYPES[change.copy.arguments.data_type].ptx_elemtype
        place = value if field.ptx in CONSTANTS else field.index or 0
        found[field.ptx, place] = number + place, value
    return [*found.values()]


def _run(
    change: Change, before: bytes, expected: bytes, tx_bytes: int, tile_bytes: int, arena: Arena
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    stream, copy = launch.LEGACY_DEFAULT_STREAM, change.copy
    changes = np.array(instructions(change, expected), np.uint64)
    out = np.full(MAP_BYTES + tile_bytes, UNTOUCHED, np.uint8)
    coords = struct.pack("<5i", *copy.coords[::-1], *(0,) * (5 - len(copy.coords)))
    numbers = len(copy.coords), int(change.in_place), len(changes), copy.smem_offset, tile_bytes
    kernel = arena.kernel(KERNELS, "change_and_load")
    with launch.scratch(out.nbytes + changes.nbytes + MAP_BYTES) as place:
        operands = place + -(-out.nbytes // MAP_BYTES) * MAP_BYTES
        launch.upload(place, out, stream)
        launch.upload(operands, changes, stream)
        values = [before, coords, *(struct.pack("<I", n) for n in (*numbers, tx_bytes))]
        values += [struct.pack("<Q", operands), struct.pack("<Q", place)]
        arguments = [launch.by_value(value) for value in values]
        launch.launch(kernel, 1, WARP, tile_bytes + ROOM_BYTES, stream, arguments)
        launch.download(out, place, stream)
        launch.synchronize(stream)
    return out
