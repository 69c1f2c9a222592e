"""Tensor maps among the parameters of a kernel."""

from __future__ import annotations

from functools import lru_cache

from tma_dlpack.debug.postmortem.dump import Dump, Grid
from tma_dlpack.debug.postmortem.results import FoundMap, readable
from tma_dlpack.tables.errors import TmaError
from tma_dlpack.tables.limits import MAP_BYTES
from tma_dlpack.tensor_map.map import TensorMap

_ALIGNMENT = 64  # of a map in memory
_ADDRESS_BITS, _ADDRESS_UNIT = 57, 16


def read_map(data: bytes, target: str) -> tuple[TensorMap | None, str]:
    """Return the map in 128 bytes, or why they are none."""
    try:
        return TensorMap.from_bytes(data, target), ""
    except TmaError as error:
        return None, " ".join(str(error).split("\n")[0].split())


def maps_of(dump: Dump, grid: Grid) -> tuple[FoundMap, ...]:
    """Return the maps among a kernel's parameters."""
    function = dump.function_at(int(grid.row["entry"]))
    name = readable(function.name) if function else "unknown code"
    return _maps(name, grid.parameters, int(grid.row["parameters"]), dump.target)


@lru_cache(maxsize=256)
def _maps(kernel: str, parameters: bytes, first: int, target: str) -> tuple[FoundMap, ...]:
    found = []
    start = -first % _ALIGNMENT
    while start + MAP_BYTES <= len(parameters):
        data = parameters[start : start + MAP_BYTES]
        tensor_map = read_map(data, target)[0] if any(data) else None
        if tensor_map is not None and _is_plausible(tensor_map):
            found.append(FoundMap(tensor_map, kernel, start))
            start += MAP_BYTES
        else:
            start += _ALIGNMENT
    return tuple(found)


def _is_plausible(found: TensorMap) -> bool:
    """Return whether what reads as a map is one: bytes by chance seldom say all of this."""
    address = found.global_address
    return bool(
        address
        and address % _ADDRESS_UNIT == 0
        and address >> _ADDRESS_BITS == 0
        and found.tx_bytes
    )
