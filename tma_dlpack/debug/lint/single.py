"""Rules that need no path: where a map stands, what a cluster or an architecture must offer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tma_dlpack.debug.lint.events import Events
from tma_dlpack.debug.lint.rules import Mistake

#: What ptxas accepts for architectures with a letter alone.
_NEEDS_LETTER = re.compile(r"wgmma\.|tcgen05\.|setmaxnreg|tensormap\.replace")
_PLAIN_TARGET = re.compile(r"sm_(9\d|1[0-2]\d)$")
_KNOWS_CLUSTERS = re.compile(r"%cluster|%nclusterid|%is_explicit_cluster")
_DECLARES_CLUSTER = re.compile(r"\.(explicitcluster|reqnctapercluster|maxclusterrank)\b")


def mistakes(events: Events) -> Iterator[Mistake]:
    """Return what single instructions of a function show."""
    yield from _spaces(events)
    yield from _clusters(events)


def _spaces(events: Events) -> Iterator[Mistake]:
    """Return the maps whose address comes from local or shared memory."""
    for access in events.accesses:
        if access.what != "map_use":
            continue
        spaces = {origin.partition(":")[0] for origin in access.origins}
        for space in ("local", "shared"):
            if space in spaces:
                why, fix = _WRONG_SPACES[space]
                yield Mistake("MAP_SPACE", len(spaces) == 1, access.first, None, why, fix)


_WRONG_SPACES = {
    "local": (
        "the tensor map is copied from local memory, where TMA cannot read it: a parameter by "
        "value that is not __grid_constant__, or a local variable; the copy ends in error 700",
        "declare the parameter const __grid_constant__ CUtensorMap and pass its address",
    ),
    "shared": (
        "the tensor map stands in shared memory, where TMA cannot read it; the copy ends in "
        "error 700",
        "publish it in global memory (tensormap.cp_fenceproxy), or pass it as a "
        "__grid_constant__ parameter",
    ),
}


def _clusters(events: Events) -> Iterator[Mistake]:
    """Return multicast without a cluster, and instructions that a plain architecture lacks."""
    function, target = events.flow.values.function, events.flow.values.module.target
    plain = bool(_PLAIN_TARGET.match(target))
    knows = not function.is_entry or bool(_DECLARES_CLUSTER.search(function.header))
    multicast = []
    for code in function.code:
        if plain and _NEEDS_LETTER.match(code.opcode):
            yield Mistake(
                "CLUSTER", True, code, None,
                f"{code.opcode.split('.')[0]} does not exist on {target}: the code is refused by "
                f"ptxas",
                f"compile for {target}a (-arch={target}a)",
            )  # fmt: skip
        knows |= bool(_KNOWS_CLUSTERS.search(code.operands)) or "barrier.cluster" in code.opcode
        if ".multicast::cluster" in code.opcode or code.opcode.startswith("mapa"):
            multicast.append(code)
    if not knows:
        for code in multicast:
            yield Mistake(
                "CLUSTER", False, code, None,
                "the kernel reaches other blocks of a cluster, and nothing in it says that it is "
                "launched as one: a copy to a block that is not there ends in error 715",
                "declare __cluster_dims__, or launch with cudaLaunchAttributeClusterDimension",
            )  # fmt: skip
