"""`bandwidth`, which measures how fast TMA copies a tensor with each box and each option."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from tma_dlpack.verification.core import (
    BandwidthBars,
    TensorView,
    as_tensor_view,
    coerce,
    driver,
    enums,
    errors,
    public,
    report,
    targets,
    tma,
)
from tma_dlpack.verification.pipeline import MAX_STAGES, Pipeline, Run, TiledCopy, fits

# Types of the parameters that `bandwidth` shares with `make_tma_descriptor`.
DataType = enums.DataType
Ints = enums.Ints
L2FetchSize = enums.L2FetchSize
Rules = enums.Rules
Swizzle = enums.Swizzle
Tensor = enums.Tensor

L2_FETCH_SIZES = (tma.TmaL2FetchSize.none, tma.TmaL2FetchSize.bytes128, tma.TmaL2FetchSize.bytes256)
#: The default boxes, each as (bytes of a row, number of rows, swizzle).
DEFAULT_TILES = (
    (512, 16, tma.TmaSwizzle.none),
    (512, 32, tma.TmaSwizzle.none),
    (512, 64, tma.TmaSwizzle.none),
    (256, 64, tma.TmaSwizzle.none),
    (128, 64, tma.TmaSwizzle.bytes128),
    (128, 128, tma.TmaSwizzle.bytes128),
    (128, 256, tma.TmaSwizzle.bytes128),
    (128, 128, tma.TmaSwizzle.none),
    (64, 64, tma.TmaSwizzle.bytes64),
    (32, 64, tma.TmaSwizzle.bytes32),
    (16, 64, tma.TmaSwizzle.none),
    (16, 256, tma.TmaSwizzle.none),
)
#: Number of bytes of a box's row -> swizzle whose span has this number of bytes.
SWIZZLE_OF_ROW = {
    32: tma.TmaSwizzle.bytes32,
    64: tma.TmaSwizzle.bytes64,
    128: tma.TmaSwizzle.bytes128,
}
# CUDA's maximum number of blocks per multiprocessor on compute capability 9.0.
MAX_CTAS_PER_SM = 32
# Headings of the table's columns. The column "turn" shows `Pipeline.neighbours`.
HEADER = (
    *("box", "row bytes", "swizzle", "L2 fetch", "stages", "stores", "CTAs/SM", "turn"),
    *("TB/s", "ratio", "copy"),
)


@errors.sealed
@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """The speed of the fastest pipeline for one box, swizzle and L2 fetch size.

    Attributes
    ----------
    box_sizes : tuple of int
        Extents of the box in elements, row-major.
    row_bytes : int
        Bytes of the box along the innermost dimension.
    swizzle : TmaSwizzle
    l2_fetch_size : TmaL2FetchSize
    pipeline : Pipeline
        The fastest pipeline. `.stages` is the number of tiles in shared memory per CTA,
        `.ctas_per_sm` is the number of CTAs per multiprocessor, and `.stores_in_flight` is the
        number of stages whose stores may be pending. `.neighbours` is the number of adjacent tiles
        that one CTA copies at a time. For example, if it is 2, CTA 0 copies tiles 0 and 1, and CTA
        1 copies tiles 2 and 3.
    bytes_per_second : float
        Sum of the bytes read and the bytes written per second.
    ratio : float
        `bytes_per_second` divided by the speed of a device-to-device memcpy that was measured in
        the same call of `bandwidth`.
    verified : bool
        Whether the copy with every pipeline wrote correct bytes.
    """

    box_sizes: tuple[int, ...]
    row_bytes: int
    swizzle: tma.TmaSwizzle
    l2_fetch_size: tma.TmaL2FetchSize
    pipeline: Pipeline
    bytes_per_second: float
    ratio: float
    verified: bool

    def _cells(self) -> tuple[object, ...]:
        p, speed = self.pipeline, f"{self.bytes_per_second / 1e12:.2f}"
        box = "x".join(map(str, self.box_sizes)), self.row_bytes
        options = self.swizzle.name, self.l2_fetch_size.name
        counts = p.stages, p.stores_in_flight, p.ctas_per_sm, p.neighbours
        copy = "right" if self.verified else "WRONG"
        return (*box, *options, *counts, speed, f"{self.ratio:.3f}", copy)


@public.public_in("tma_dlpack.verification")
@errors.sealed
@dataclass(frozen=True, slots=True)
class BandwidthReport:
    """The result of `bandwidth`: the speed of copies for each box, swizzle and L2 fetch size.

    ``print(report)`` shows a table.

    Attributes
    ----------
    device : str
        The GPU and its driver.
    tensor : str
        Data type and shape of the tensor.
    tensor_bytes : int
        Size of the tensor in bytes.
    memcpy_bytes_per_second : float
        Speed of a device-to-device memcpy of the tensor, as the sum of the bytes read and the bytes
        written per second.
    rows : tuple of BandwidthRow
        One row for each box, swizzle and L2 fetch size, with the fastest pipeline.
    """

    device: str
    tensor: str
    tensor_bytes: int
    memcpy_bytes_per_second: float
    rows: tuple[BandwidthRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every copy wrote correct bytes."""
        return all(row.verified for row in self.rows)

    def best(self, row_bytes: int) -> BandwidthRow:
        """Return the result of the fastest box among the boxes with `row_bytes` bytes per row.

        Raise `TmaPreconditionError` if no measured box has `row_bytes` bytes per row.
        """
        rows = [row for row in self.rows if row.row_bytes == row_bytes]
        if not rows:
            measured = sorted({row.row_bytes for row in self.rows})
            raise errors.bad_value(
                "row_bytes",
                row_bytes,
                f"be one that was measured: {', '.join(map(str, measured))}",
                "pass one of them, or a box of such rows to bandwidth(boxes=...)",
            )
        return max(rows, key=lambda row: row.ratio)

    def __str__(self) -> str:
        size = f"{self.tensor_bytes / 2**20:.0f} MiB, every tile loaded and stored"
        memcpy = f"{self.memcpy_bytes_per_second / 1e12:.2f} TB/s; ratio 1 (bytes read and written)"
        heads = [f"{self.device}: {self.tensor}, {size}", f"memcpy device-to-device: {memcpy}"]
        return "\n".join([*heads, *coerce.aligned([HEADER, *(row._cells() for row in self.rows)])])

    def _repr_html_(self) -> str:
        """Return bars of the speeds relative to a memcpy, and a table."""
        bars, rows = [], []
        for row in self.rows:
            box, speed = "x".join(map(str, row.box_sizes)), f"{row.bytes_per_second / 1e12:.2f}"
            text = f"{speed} TB/s" + ", WRONG COPY" * (not row.verified)
            bars.append((f"{box} {row.swizzle.name}", row.ratio, text))
            swizzle, l2 = row.swizzle.name, row.l2_fetch_size.name
            verified = "✓" if row.verified else "✗ wrong"
            rows.append((box, row.row_bytes, swizzle, l2, speed, f"{row.ratio:.3f}", verified))
        memcpy = f"{self.memcpy_bytes_per_second / 1e12:.2f} TB/s"
        title = f"{self.device}: {self.tensor}, {self.tensor_bytes / 2**20:.0f} MiB"
        reference = f"memcpy, device to device: {memcpy} (ratio 1)"
        heads = ("box", "row bytes", "swizzle", "l2_fetch_size", "TB/s", "to memcpy", "verified")
        drawn = report.Section(pictures=[BandwidthBars(title, tuple(bars), reference)])
        return report.as_html("", [drawn, report.Section(table=[heads, *rows])])


@public.opaque
def bandwidth(
    tensor: Tensor,
    boxes: Iterable[Ints] | None = None,
    swizzle: Swizzle | None = None,
    l2_fetch_size: L2FetchSize | Sequence[L2FetchSize] | None = None,
    *,
    data_type: DataType | None = None,
    rules: Rules = "libcu++",
    stages: Ints = (3, 4, 6, 8),
    ctas_per_sm: Ints = (1, 2, 4),
    repeats: SupportsIndex = 5,
) -> BandwidthReport:
    """Measure how fast TMA copies every tile of a tensor, compared with memcpy.

    The copy is a persistent kernel in which one thread of each block keeps `stages` tiles in
    flight. A pipeline is a combination of `stages`, `ctas_per_sm` and two other parameters of the
    kernel. For each box, swizzle and L2 fetch size, the report has the speed of the fastest
    pipeline. It also has the ratio of this speed to the speed of a device-to-device memcpy. Before
    a copy is timed, its result is compared with the tensor byte for byte.

    Parameters
    ----------
    tensor : object
        A CUDA tensor with ``__dlpack__``, preferably several times as large as the L2 cache. The
        tensor is not changed. `bandwidth` copies the tensor to additional GPU memory of the same
        size.
    boxes : iterable of box_sizes, optional
        Boxes to try, row-major, in elements. None tries the default boxes that fit the tensor.
        Their rows have 16 to 512 bytes.
    swizzle : enum member, name or value, optional
        The swizzle of all boxes. With None, each default box has a swizzle of its own. A box in
        `boxes` whose rows have 32, 64 or 128 bytes gets "bytes32", "bytes64" or "bytes128". Other
        boxes in `boxes` get no swizzle.
    l2_fetch_size : enum member, name or value, or several, optional
        The L2 fetch sizes to try. None tries "none", "bytes128" and "bytes256".
    data_type, rules
        As in `make_tma_descriptor`.
    stages : sequence of int
        Numbers of tiles in flight per block to try, each 1 to 8. A number is skipped if shared
        memory is too small for this number of tiles.
    ctas_per_sm : sequence of int
        Numbers of blocks per multiprocessor to try.
    repeats : int
        Number of timed launches of each pipeline. The result is the median of their times.

    Returns
    -------
    BandwidthReport
        The report has `.rows`, `.ok` and `.best(row_bytes)`. ``print(report)`` shows a table.

    Raises
    ------
    TmaPreconditionError
        If `make_tma_descriptor` refuses a box for the tensor, or if `stages`, `ctas_per_sm` or
        `repeats` are out of range.
    TmaUnsupportedError
        If the tensor is on the host or its rows overlap, if no pipeline fits into shared memory, or
        if there is no GPU of compute capability 9.0, no driver, or no NVRTC (extra ``cuda``).

    Examples
    --------
    >>> import torch, tma_dlpack as tma  # doctest: +SKIP
    >>> x = torch.randn(32768, 32768, dtype=torch.bfloat16, device="cuda")  # doctest: +SKIP
    >>> print(tma.bandwidth(x, [(64, 256)], l2_fetch_size="bytes256"))  # doctest: +SKIP
    """
    all_stages = _counts("stages", stages, MAX_STAGES)
    all_ctas = _counts("ctas_per_sm", ctas_per_sm, MAX_CTAS_PER_SM)
    pipelines = [p for n in all_stages for ctas in all_ctas for p in Pipeline.family(n, ctas)]
    count = errors.at_least("repeats", repeats, usual=5)
    maps = list(_maps(tensor, boxes, swizzle, l2_fetch_size, data_type, rules))
    if not maps:
        raise tma.TmaUnsupportedError("there is no box to measure: none was given, or none fits")
    with TiledCopy(maps[0]) as copy:
        runs = [_best_run(copy, tensor_map, pipelines, count) for tensor_map in maps]
        # A memcpy reads and writes each byte, so count each byte twice.
        memcpy = 2 * copy.extent_bytes / copy.memcpy_seconds(4 * count)
    return BandwidthReport(
        device=str(driver.status().devices[copy.device_id]),
        tensor=f"{maps[0].data_type.name} of shape {maps[0].shape}",
        tensor_bytes=copy.tensor_bytes,
        memcpy_bytes_per_second=memcpy,
        rows=tuple(_bandwidth_row(run, copy.tensor_bytes, memcpy) for run in runs),
    )


def _counts(name: str, values: Ints, most: int) -> tuple[int, ...]:
    counts = coerce.integers_of(values)
    if not counts or not all(1 <= n <= most for n in counts):
        found = f"{name} is {coerce.shown(values)}"
        raise errors.argument_error(
            name, found, f"be integers of 1 to {most}", f"pass {name}=(1, 2, 4)"
        )
    return counts


def _maps(
    tensor: Tensor,
    boxes: Iterable[Ints] | None,
    swizzle: Swizzle | None,
    l2_fetch_size: L2FetchSize | Sequence[L2FetchSize] | None,
    data_type: DataType | None,
    rules: Rules,
) -> Iterator[tma.TensorMap]:
    view = as_tensor_view(tensor)
    if not view.device.is_cuda:
        raise tma.TmaUnsupportedError(
            f"the tensor is on {view.device}: bandwidth is measured on a GPU; move it there"
        )
    options: dict[str, Any] = {"data_type": data_type, "rules": rules}
    sizes = l2_fetch_size if isinstance(l2_fetch_size, (list, tuple)) else (l2_fetch_size,)
    sizes = L2_FETCH_SIZES if l2_fetch_size is None else sizes
    tiles = [(box, None) for box in boxes] if boxes is not None else _default_tiles(view)
    for box, own_swizzle in tiles:
        chosen = own_swizzle if swizzle is None else swizzle
        if chosen is None:
            # Make this map only to get the bytes of a row, which depend on the data type.
            row_bytes = tma.make_tma_descriptor(tensor, box, **options).arguments.inner_box_bytes
            chosen = SWIZZLE_OF_ROW.get(row_bytes, tma.TmaSwizzle.none)
        for l2 in sizes:
            yield tma.make_tma_descriptor(tensor, box, swizzle=chosen, l2_fetch_size=l2, **options)


def _default_tiles(view: TensorView) -> list[tuple[tuple[int, ...], tma.TmaSwizzle]]:
    """Return the default boxes that are not larger than the tensor, as (box, swizzle)."""
    if not view.shape:
        return [((), tma.TmaSwizzle.none)]  # make_tma_descriptor refuses this box
    *outer, columns = view.shape
    found: dict[tuple[tuple[int, ...], tma.TmaSwizzle], None] = {}
    for row_bytes, rows, swizzle in DEFAULT_TILES:
        row = row_bytes * 8 // view.dtype.bits
        if row <= min(targets.MAX_BOX, columns * view.dtype.lanes):
            # The box has the extent 1 in all dimensions but the last two.
            box = (*(1 for _ in outer[1:]), *(min(rows, n) for n in outer[-1:]), row)
            found[box, swizzle] = None
    return list(found)


def _best_run(
    copy: TiledCopy, tensor_map: tma.TensorMap, pipelines: Sequence[Pipeline], repeats: int
) -> Run:
    """Return the fastest run among the pipelines that fit into shared memory.

    In the returned run, `verified` is True if the copies with all these pipelines were correct.
    """
    runs = [copy.run(tensor_map, p, repeats) for p in pipelines if fits(p, tensor_map, copy.target)]
    if not runs:
        raise tma.TmaUnsupportedError(
            f"a tile of {tensor_map.box_sizes} takes {tensor_map.smem_bytes} bytes of shared "
            f"memory: no pipeline fits; pass smaller boxes, or fewer stages and CTAs"
        )
    fastest = min(runs, key=lambda run: run.seconds)
    return dataclasses.replace(fastest, verified=all(run.verified for run in runs))


def _bandwidth_row(run: Run, tensor_bytes: int, memcpy_bytes_per_second: float) -> BandwidthRow:
    rate = 2 * tensor_bytes / run.seconds
    return BandwidthRow(
        box_sizes=run.tensor_map.box_sizes,
        row_bytes=run.tensor_map.arguments.inner_box_bytes,
        swizzle=run.tensor_map.swizzle,
        l2_fetch_size=run.tensor_map.l2_promotion,
        pipeline=run.pipeline,
        bytes_per_second=rate,
        ratio=rate / memcpy_bytes_per_second,
        verified=run.verified,
    )
