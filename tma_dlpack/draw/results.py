"""Results as HTML: batches of maps, what `verify` and `bandwidth` found, and an error's violations.

Verification and benchmarks stand in rooms beside this one; their reports are read by their
attributes and known by their names.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from tma_dlpack.draw.cards import finding_html, table_html
from tma_dlpack.draw.door import require
from tma_dlpack.draw.figure import Figure, fragment
from tma_dlpack.draw.scene import Box, Item, Line, Scene, Text
from tma_dlpack.make.batch import TensorMapBatch
from tma_dlpack.tables.coerce import counted, type_name
from tma_dlpack.tables.errors import TmaPreconditionError, refusal

MOST_ROWS = 12  # of a batch


def batch_html(batch: TensorMapBatch) -> str:
    """Give a batch as HTML: how many maps, how many layouts, and the first 12 maps.

    Parameters
    ----------
    batch : TensorMapBatch
        As `make_tma_descriptors` gives it.

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> tensors = [np.zeros((n, 64), np.float16) for n in (64, 32)]
    >>> batch = tma.make_tma_descriptors(tensors, (16, 64))
    >>> "2 maps of 128 bytes, 2 layouts" in batch_html(batch)
    True
    """
    require("batch", batch, (TensorMapBatch,), "make one: make_tma_descriptors(tensors, ...)")
    maps = [batch[n] for n in range(min(len(batch), MOST_ROWS))]
    layouts = len({tm.arguments for tm in batch})
    head = f"{counted(len(batch), 'map')} of 128 bytes, {counted(layouts, 'layout')}, " + (
        "launchable" if batch.launchable else "not launchable: host memory is among them"
    )
    rows = [
        (
            str(n),
            tm.data_type.name,
            str(tm.shape),
            str(tm.box_sizes),
            tm.swizzle.name,
            f"{tm.global_address:#x}",
        )
        for n, tm in enumerate(maps)
    ]
    parts = [f"<div><b>{html.escape(head)}</b></div>"]
    heads = ("", "data_type", "shape", "box_sizes", "swizzle", "address")
    parts.append(table_html(heads, rows))
    if len(batch) > MOST_ROWS:
        parts.append(f"<div>and {len(batch) - MOST_ROWS} further ones</div>")
    return fragment(parts)


def verify_html(report: Any) -> str:
    """Give what `verify` found as HTML: one row per check, disagreements in full.

    Parameters
    ----------
    report : VerifyReport

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> from tma_dlpack.verification import VerifyReport, VerifyRow
    >>> report = VerifyReport("a GPU", 0, (VerifyRow("tile loads", 1000, 990, 0),))
    >>> "all agree" in verify_html(report)
    True
    """
    _known(report, "VerifyReport", "pass the result of verify()")
    verdict = "✓ all agree" if report.ok else "✗ there are disagreements"
    parts = [
        f"<div><b>{verdict}</b></div>",
        f"<div>{html.escape(f'{report.device}; seed {report.seed}')}</div>",
        table_html(
            ("", "check", "cases", "accepted", "disagreements", "note"),
            (
                (
                    "✗" if r.disagreements else "✓",
                    r.name,
                    str(r.cases),
                    str(r.accepted),
                    str(r.disagreements),
                    r.note,
                )
                for r in report.rows
            ),
        ),
    ]
    parts += [
        f"<div><b>{html.escape(r.name)}, first disagreement</b></div>"
        f"<pre>{html.escape(r.first)}</pre>"
        for r in report.rows
        if r.first
    ]
    return fragment(parts)


def bandwidth_html(report: Any) -> str:
    """Give what `bandwidth` measured as HTML: bars against a memcpy, and the table.

    Parameters
    ----------
    report : BandwidthReport

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> from tma_dlpack.verification.tile_bandwidth import BandwidthReport
    >>> report = BandwidthReport("a GPU", "FLOAT16 of shape (8192, 8192)", 1 << 27, 4.0e12, ())
    >>> "a GPU: FLOAT16 of shape (8192, 8192), 128 MiB" in bandwidth_html(report)
    True
    """
    _known(report, "BandwidthReport", "pass the result of bandwidth(x)")
    bars = tuple(
        Bar(
            f"{'x'.join(map(str, row.box_sizes))} {row.swizzle.name}",
            row.ratio,
            f"{row.bytes_per_second / 1e12:.2f} TB/s" + ("" if row.verified else ", WRONG COPY"),
        )
        for row in report.rows
    )
    memcpy = f"{report.memcpy_bytes_per_second / 1e12:.2f} TB/s"
    title = f"{report.device}: {report.tensor}, {report.tensor_bytes / 2**20:.0f} MiB"
    figure = BandwidthBars(title, bars, f"memcpy, device to device: {memcpy} (ratio 1)")
    rows = (
        (
            "x".join(map(str, row.box_sizes)),
            str(row.row_bytes),
            row.swizzle.name,
            row.l2_fetch_size.name,
            f"{row.bytes_per_second / 1e12:.2f}",
            f"{row.ratio:.3f}",
            "✓" if row.verified else "✗ wrong",
        )
        for row in report.rows
    )
    heads = ("box", "row bytes", "swizzle", "l2_fetch_size", "TB/s", "to memcpy", "verified")
    return fragment([figure, table_html(heads, rows)])


@dataclass(frozen=True, slots=True)
class Bar:
    """One measurement: its name, its ratio to the reference, and the rest in words."""

    name: str
    ratio: float
    said: str


@dataclass(frozen=True, slots=True, repr=False)
class BandwidthBars(Figure):
    """Bandwidths as bars, against a reference of ratio 1."""

    title: str
    bars: tuple[Bar, ...]
    reference: str

    def scenes(self) -> tuple[Scene, ...]:
        """Lower to one panel."""
        left, width, row = 170.0, 260.0, 20.0
        scale = width / max([1.0, *(bar.ratio for bar in self.bars)])
        items: list[Item] = [Text(10, 19, self.reference, "muted")]
        for n, bar in enumerate(self.bars):
            y = 30 + row * n
            items += [
                Text(10, y + 11, bar.name[:26]),
                Box(left, y, round(bar.ratio * scale, 2), 14, "hit", title=bar.said),
                Text(left + width + 10, y + 11, f"{bar.ratio:.2f}: {bar.said}"[:21]),
            ]
        below = 30 + row * len(self.bars)
        items.append(Line(((left + scale, 28), (left + scale, below)), "axis"))
        return (Scene(left + width + 142, below + 10, self.title, tuple(items)),)

    def text(self) -> str:
        """Give one line per bar."""
        rows = [f"{bar.name:<28} {bar.ratio:.3f}  {bar.said}"[:100] for bar in self.bars]
        return "\n".join([self.title[:100], self.reference[:100], *rows])


def error_html(error: TmaPreconditionError) -> str:
    """Give a refusal as HTML: every violation with its limit, fix and source.

    Parameters
    ----------
    error : TmaPreconditionError

    Returns
    -------
    str
        A fragment with its own style sheet.

    Examples
    --------
    >>> import numpy as np, tma_dlpack as tma
    >>> try:
    ...     tma.make_tma_descriptor(np.zeros((64, 64), np.float32), (16, 3))
    ... except tma.TmaPreconditionError as error:
    ...     print("BOX_INNER_16B" in error_html(error))
    True
    """
    require("error", error, (TmaPreconditionError,), "pass the error that was raised")
    count = counted(len(error.violations), "violation")
    return fragment([f"<div><b>✗ refused: {count}</b></div>", *map(finding_html, error.violations)])


def _known(report: object, name: str, fix: str) -> None:
    kind = type(report)
    if (kind.__name__, kind.__module__) != (name, "tma_dlpack"):
        raise refusal("report", f"report is of type {type_name(kind)}", f"be a {name}", fix)
