"""Recorded copies of an H200 as test cases, their maps, memory, and comparisons of results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tma_dlpack as tma

GOLDEN = Path(__file__).with_name("golden")
LOADS = {"load": 2400, "im2col": 1200, "im2col_interleave": 500}
STORES = {"store": 1179, "im2col_store": 500, "reduce": 99}
OPS = ("store", "add", "min", "max", "inc", "dec", "and", "or", "xor")
UNTOUCHED = 0xA5
GLOBAL_BYTES = np.random.default_rng(20261120).integers(0, 256, 1 << 20, dtype=np.uint8)


class HostMemory:
    """The recorded global memory as a NumPy array at an address that is aligned like the GPU's."""

    def __init__(self, contents: np.ndarray = GLOBAL_BYTES, align: int = 4096) -> None:
        room = np.zeros(len(contents) + align, np.uint8)
        start = -room.__array_interface__["data"][0] % align
        self.array = room[start : start + len(contents)]  # for memory=
        self.address = self.array.__array_interface__["data"][0]
        self._contents = contents
        self.write_all()

    def write_all(self) -> None:
        self.array[:] = self._contents

    def read_all(self) -> np.ndarray:
        return self.array


def grow_until_moved(array: np.ndarray) -> None:
    """Resize an array until none of its memory contains the old address.

    One resize is not enough, because realloc() extends the memory in place if the memory behind it
    is free.
    """
    address = array.ctypes.data
    while array.ctypes.data <= address < array.ctypes.data + array.nbytes:
        array.resize((2 * len(array), *array.shape[1:]), refcheck=False)


def cases_of(name: str) -> list[dict]:
    """Return cases; `answer` is shared memory after a load, or the stored (indices, bytes)."""
    with np.load(GOLDEN / f"copies_{name}.npz") as golden:
        cases = json.loads(bytes(golden["cases"]))
        ends = np.cumsum(golden["lens"], dtype=np.int64)[:-1]
        if name in LOADS:
            answers = np.split(golden["blob"], ends)
        else:
            index = np.cumsum(golden["idx_step"], dtype=np.int64)
            answers = zip(np.split(index, ends), np.split(golden["val"], ends), strict=True)
    return [case | {"answer": answer} for case, answer in zip(cases, answers, strict=True)]


def map_of(case: dict, address: int) -> tma.TensorMap:
    common = (case["dt"], case["rank"], address + case["goff"], case["dims"], case["strides"])
    options = (case["estr"], case["inter"], case["swz"], 0, case["oob"])
    if case["kind"] == 0:
        return tma.driver_encode_tiled(*common, case["box"], *options, encoder="model")
    corners = (case["lo"], case["hi"], case["cpp"], case["ppc"])
    return tma.driver_encode_im2col(*common, *corners, *options, encoder="model")


def wrong_loads(name: str, backend: object, memory: HostMemory) -> list[dict]:
    """Return the cases whose shared memory or byte count differs from the hardware's."""
    memory.write_all()
    wrong = []
    for case in cases_of(name):
        tile = tma.load_tile(
            map_of(case, memory.address),
            case["coords"][::-1],
            im2col_offsets=case["offs"][::-1] or None,
            memory=memory.array,
            smem_offset=case["smem_off"],
            backend=backend,
        )
        smem = np.full(len(case["answer"]), UNTOUCHED, np.uint8)
        smem[: len(tile.smem)][tile.written] = tile.smem[tile.written]
        same = np.array_equal(smem, case["answer"]) and tile.tx_bytes == case["tx"]
        if not same or tile.smem[~tile.written].any():
            wrong.append(case)
    return wrong


def wrong_stores(name: str, backend: object, memory: HostMemory) -> list[dict]:
    """Return the cases whose global memory differs from the recorded part of the hardware's."""
    recorded = len(GLOBAL_BYTES) if name == "im2col_store" else 256 << 10
    wrong = []
    for case in cases_of(name):
        memory.write_all()
        tensor_map, coords = map_of(case, memory.address), case["coords"][::-1]
        rng = np.random.default_rng(case["seed"])
        data = rng.integers(0, 256, case["foot"], dtype=np.uint8).tobytes()
        where = {
            "memory": memory.array,
            "smem_offset": case["smem_off"],
            "backend": backend,
        }
        if case["op"]:
            tma.reduce_tile(tensor_map, coords, data, OPS[case["op"]], **where)
        else:
            tma.store_tile(tensor_map, coords, data, **where)
        expected = GLOBAL_BYTES[:recorded].copy()
        index, value = case["answer"]
        expected[index] = value
        if not np.array_equal(memory.read_all()[:recorded], expected):
            wrong.append(case)
    return wrong
