"""The targets of `bench call`: ratios to a bare torch `__dlpack__` in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.peers import BARE, NEW, REPEATED, group_of

#: Group and label of a row -> the row's median in microseconds; None if it was not measured.
Median = Callable[[str, str], float | None]
Target = tuple[str, float, float, str]

OURS = "make_tma_descriptor"
OTHER_CALLS = "our other calls"

#: The options of calls with options, as code that follows the box in `MAKE`.
WITH_OPTIONS = {
    "target": "target='sm_90'",
    "allow": "allow=('BOX_IN_SHAPE',)",
    "rules": "rules='driver'",
    "data_type": "data_type='BFLOAT16'",
    "shape, strides, offset": "shape=(512, 256), strides=(512, 1), offset=256",
    "split_inner": "split_inner=True",
    "ragged": "ragged=0",
}

#: With the extension and without. A tensor's call over a bare torch `__dlpack__`, repeated and new.
CALL_LIMITS = {
    "compiled": {("torch", REPEATED): 0.15, ("torch", NEW): 0.18, ("numpy", REPEATED): 0.2,
                 ("numpy", NEW): 0.2},
    "Python": {("torch", REPEATED): 15, ("torch", NEW): 15, ("numpy", REPEATED): 15,
               ("numpy", NEW): 15},
}  # fmt: skip
#: Maximum additional time of other frameworks over their own bare `__dlpack__`, as a multiple of
#: torch's bare `__dlpack__`.
BEYOND_OWN_EXPORT = {"compiled": {REPEATED: 0.25, NEW: 0.4}}
#: Maximum time of other calls on a torch tensor, as a multiple of torch's bare `__dlpack__`. "make
#: with" means a call with any option.
OTHER_LIMITS = {
    "compiled": {"make_im2col_descriptor": 0.25, "make_tma_descriptors of 256, each": 0.1,
                 "check, accepted": 1, "make with": 0.3, "refused, raised": 3,
                 "refused, as text": 15, "refused, fixed()": 60,
                 "refused by two rules, fixed()": 60, "matrix_descriptor(map).value": 3,
                 "split_inner": 1, "ragged": 1, "im2col_corners": 1, "suggest": 600},
    "Python": {"check, accepted": 20, "make with": 20},
}  # fmt: skip
#: Maximum additional time of reading an attribute of a new map.
ADDED = {"compiled": {"make and bytes(map)": 0.05, "make and ptr": 0.05, "make and tx_bytes": 0.3}}
#: Minimum time of a peer's call as a multiple of this package's call, also with changing shapes.
PEERS = {"compiled": {"cuda.core view + as_tensor_map": 17, "cuda.bindings by hand": 6}}
IMPORT_MS = {"compiled": 25, "Python": 30}
PICTURE, PICTURE_MS = "_repr_html_ of a map", 10


def targets(median: Median, import_ms: Sequence[float], lane: str) -> Iterator[Target]:
    """Return name, measured value, limit and unit of each target that was measured."""
    for device in ("cpu", "cuda"):
        bare = median(group_of(REPEATED, f"torch {device}"), BARE)
        if bare is not None:
            yield from _calls(median, device, bare, lane)
            yield from _other_calls(median, device, bare, lane)
    if import_ms:
        yield "import tma_dlpack beyond NumPy", import_ms[0], IMPORT_MS[lane], "ms"


def _calls(median: Median, device: str, bare: float, lane: str) -> Iterator[Target]:
    for library in ("torch", "numpy", "jax", "cupy"):
        subject = library if library == "numpy" else f"{library} {device}"
        if library == "numpy" and device != "cpu":
            continue
        for calls in (REPEATED, NEW):
            group = group_of(calls, subject)
            ours, export = median(group, OURS), median(group, BARE)
            if ours is None or export is None:
                continue
            name = f"{subject}, {'repeated' if calls == REPEATED else 'new shapes'}"
            limit = CALL_LIMITS[lane].get((library, calls))
            if limit is not None:
                yield f"{name}, over torch's bare", ours / bare, limit, ""
            elif lane in BEYOND_OWN_EXPORT:
                more = (ours - export) / bare
                yield f"{name}, beyond its own bare", more, BEYOND_OWN_EXPORT[lane][calls], ""
            for peer, times in PEERS.get(lane, {}).items():
                theirs = median(group, peer)
                if theirs is not None:
                    short = peer.partition(" ")[0]
                    yield f"{name}, over {short}", ours / theirs, 1 / times, ""


def _other_calls(median: Median, device: str, bare: float, lane: str) -> Iterator[Target]:
    name = f"torch {device}"
    limits = dict(OTHER_LIMITS[lane])
    limits |= dict.fromkeys((f"make with {option}" for option in WITH_OPTIONS), limits["make with"])
    for label, limit in limits.items():
        found = median(OTHER_CALLS, f"{label}, {name}")
        if found is not None:
            yield f"{label}, {name}", found / bare, limit, ""
    ours = median(group_of(REPEATED, name), OURS)
    for label, limit in ADDED.get(lane, {}).items():
        found = median(OTHER_CALLS, f"{label}, {name}")
        if found is not None and ours is not None:
            yield f"{label}, {name}, more", (found - ours) / bare, limit, ""
    picture = median(OTHER_CALLS, f"{PICTURE}, {name}")
    if picture is not None:
        yield f"{PICTURE}, {name}", picture / 1e3, PICTURE_MS, "ms"
