"""Commands that make and show a map of a tensor, which is described by its shape and dtype."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tma_dlpack.cli import common, output
from tma_dlpack.cli.output import JSON, show, status_of
from tma_dlpack.cli.table import (
    EXIT_OK,
    EXIT_REFUSED,
    MAPS,
    PRINTED,
    Option,
    UsageError,
    command,
    did_you_mean,
    option,
)

_COORDS = option(
    "--coords",
    "coordinates of the tile, row-major, such as -4,0; default: the first tile",
    type=common.integers,
)
_TENSOR = "--shape 4096,4096 --dtype bfloat16"


@command(
    "check the arguments for a tensor given by shape and dtype",
    *common.tensor(),
    *common.REQUEST,
    output.html("report"),
    JSON,
    heading=MAPS,
    examples=(
        f"check {_TENSOR} --box 128,64 --swizzle bytes128",
        "check --shape 64,1733 --dtype float16 --box 64,64",
        "check --shape 8,56,56,64 --dtype fp16 --lower -1,-1 --upper -1,-1 --channels 64 "
        "--pixels 128",
        f"check {_TENSOR} --box 128,100 --json",
    ),
)
def _check(options: argparse.Namespace) -> int:
    from tma_dlpack import draw
    from tma_dlpack.cli.main import program
    from tma_dlpack.make import build
    from tma_dlpack.tensor_map.text import tile_line

    # A broken rule is a result here, not an error: `check_view` returns it, `make_view` raises.
    kind, request = common.request(options)
    report = build.check_view(kind, common.view(options), request)
    words, fixed = str(report), report.fixed()
    if report.ok:
        words += f"\n{tile_line(build.make_view(kind, common.view(options), request))}"
    elif fixed is not None:
        words += f"\n\nthis would be accepted:\n  {program()} check "
        words += common.as_flags(options, fixed)
    found = {**output.vars_of(report), "fixed": fixed}
    show(options, found, words, lambda: draw.report_html(report))
    return status_of(report.violations)


@command(
    "suggest boxes and swizzles for a tile and its reader, best first",
    *common.tensor(),
    option("--tile", "row-major, such as 128,64", required=True, type=common.integers),
    option(
        "--reader",
        "who reads the tile, none if it is only stored; default wgmma",
        default="wgmma",
        values=("wgmma", "tcgen05", "ldmatrix", "threads", "none"),
        closed=True,
    ),
    option("--major", "K or MN; default K", default="K", values=("K", "MN")),
    option("--access", "of threads", default="row", values=("row", "column"), closed=True),
    option("--stages", "tiles at a time; default 1", type=common.integer, default=1),
    option("--smem-bytes", "default: all that a block can have", type=common.integer),
    *common.RULES,
    JSON,
    heading=MAPS,
    examples=(
        f"suggest {_TENSOR} --tile 128,64",
        "suggest --shape 1024,512 --dtype fp32 --tile 64,32 --reader threads --access column",
    ),
    status="0 suggestions printed; 1 no suggestion, with reasons; 2 wrong use",
)
def _suggest(options: argparse.Namespace) -> int:
    from tma_dlpack.suggestions.tile_suggestions import suggest_view

    # `suggest_view` has defaults of its own for arguments that are not given.
    names = ("data_type", "rules", "allow", "target")
    given = {name: getattr(options, name) for name in names}
    found = suggest_view(
        common.view(options),
        options.tile,
        {name: value for name, value in given.items() if value is not None},
        reader=None if options.reader == "none" else options.reader,
        major=options.major,
        access=options.access,
        stages=options.stages,
        smem_bytes=options.smem_bytes,
    )
    show(options, found)
    return EXIT_OK if found else EXIT_REFUSED


def _figures() -> Iterator[Option]:
    from tma_dlpack.draw import FIGURES

    about = "; ".join(f"{name}: {about}" for name, (about, *_) in FIGURES.items())
    yield option("--figure", f"{about}; default shared", default="shared", values=FIGURES)


@command(
    "draw the map or a tile, as text, SVG or a page of HTML",
    *common.tensor(),
    *common.REQUEST,
    _figures,
    _COORDS,
    output.out("write SVG, or a page if FILE ends in .html, instead of printing text"),
    option("--narrow", "draw the SVG for a phone", action="store_true"),
    heading=MAPS,
    examples=(
        f"draw {_TENSOR} --box 16,64 --swizzle bytes128",
        f"draw {_TENSOR} --box 16,64 --figure tensor --coords 4088,0 -o tensor.svg",
        f"draw {_TENSOR} --box 16,64 --swizzle bytes128 --figure banks -o -",
    ),
)
def _draw(options: argparse.Namespace) -> int:
    from tma_dlpack import draw
    from tma_dlpack.draw.grid import NARROW
    from tma_dlpack.make import build

    target: Path | None = options.out
    if target is not None and target.suffix not in ("", ".html", ".svg"):
        raise UsageError(f"--out is {target}: write .svg or .html, and convert it")
    if options.figure not in draw.FIGURES:
        near = did_you_mean(options.figure, draw.FIGURES)
        raise UsageError(f"there is no figure {options.figure}{near}")
    kind, request = common.request(options)
    tensor_map = build.make_view(kind, common.view(options), request)
    figure = draw.figure(tensor_map, options.figure, options.coords)
    if target is None:
        output.write(output.STDOUT, f"{figure}\n")
    elif target.suffix == ".html":
        output.write(target, draw.page(figure.title, [figure]))
    else:
        output.write(target, figure.svg(NARROW) if options.narrow else figure.svg())
    return EXIT_OK


@command(
    "open the explorer in the browser, or write it to a file",
    *common.tensor(required=False),
    *common.REQUEST,
    _COORDS,
    output.out("write the page to FILE and open nothing"),
    heading=MAPS,
    examples=(
        "explore",
        f"explore {_TENSOR} --box 64,64 --swizzle bytes128 -o explorer.html",
    ),
    status=PRINTED,
    more="Write the explorer as one HTML file, which needs no Python and no network, and open it "
    "in the browser. Without options it shows an example; everything can be changed in the page.",
)
def _explore(options: argparse.Namespace) -> int:
    from tma_dlpack.explorer.page import page

    # The page opens with the state of the command line.
    html = page(common.page_state(options))
    if options.out:
        output.write(options.out, html)
        return EXIT_OK
    import tempfile
    import webbrowser

    # The browser reads the file after this program has ended, so the folder is not removed.
    path = Path(tempfile.mkdtemp(prefix="tma_dlpack-")) / "explorer.html"
    path.write_text(html, encoding="utf-8")
    print(path)
    if not webbrowser.open(path.as_uri()):
        print("no browser was found here; open the file yourself", file=sys.stderr)
    return EXIT_OK
