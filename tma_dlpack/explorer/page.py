"""The explorer as one HTML file that needs no Python, no kernel and no network.

The front end, `explorer.js`, calls the back end, `host.js`. The back end calls the functions of
`model.js`. `tables.js` has the tables of the model, which are generated from the rows of `checks`
and `tables`. The C core (native/page.c, compiled to WebAssembly) checks the rules. The page's
address contains the page's state. The widget in a notebook runs the same scripts, but its state is
a trait that Python reads and sets.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from tma_dlpack.checks.struct import RULE_SETS
from tma_dlpack.dlpack import as_tensor_view
from tma_dlpack.draw import barrier
from tma_dlpack.draw.boxes import tensor
from tma_dlpack.draw.figure import CSS, Figure, fragment, panel_row, script_source, style_sheet
from tma_dlpack.draw.grid import STYLES
from tma_dlpack.draw.map_bytes import GROUPS, is_of_host_tensor
from tma_dlpack.draw.memory import shared
from tma_dlpack.explorer.choice import Choice, parameters
from tma_dlpack.make.descriptors import make_tma_descriptor
from tma_dlpack.tables.arguments import KINDS
from tma_dlpack.tables.dtypes import DATA_TYPES, NAMED_DTYPES
from tma_dlpack.tables.errors import TmaUnsupportedError
from tma_dlpack.tensor_map.map import TensorMap

HERE = Path(__file__).parent
# The scripts are joined to one script, so a file comes after the files that it uses at load time.
MODEL = (
    *("tables.js", "core.js", "geometry.js", "operand.js"),
    *("candidates.js", "fixes.js", "check.js", "model.js"),
)
CORE = HERE.parent / "native" / "page.wasm"
PICTURES = (
    "pictures.js",
    "memory.js",
    "scenes.js",
    "refused.js",
    "tasks.js",
    "state.js",
    "places.js",
    "host.js",
    "controls.js",
    "explorer.js",
)
TITLE = "Tensor maps, explored"
ABOUT = (
    "NVIDIA's Tensor Memory Accelerator (TMA) copies a box of a tensor to shared memory with one "
    "instruction; a tensor map, 128 bytes, describes both. Drag the box and see where every 16 "
    "bytes go."
)
WAITING = "When is the tile there?"
ABOUT_WAITING = (
    "The copy runs while the threads do. They wait at a barrier in shared memory, an mbarrier, "
    "which counts arrivals and bytes. Choose a mistake and step through it: a kernel that "
    "reads too early, or waits forever, nearly always makes one of these."
)
#: The message that the page shows instead of the explorer if the viewer does not run WebAssembly.
WITHOUT_CORE = "The explorer needs WebAssembly, which this viewer does not run"
START = """
const first = globalThis.tmaState || FIRST_STATE;
const Place = ["about:", "data:"].includes(location.protocol) ? Nowhere : AddressBar;
const there = document.getElementById("explorer");
tmaCore.ready.then(
  () => {
    new Explorer(new Host(new Place(first)), there);
    document.body.classList.add("tmax-ready");
  },
  (error) => { there.textContent = `WITHOUT_CORE (${error.message})`; },
);
"""
ADDRESS = 1 << 32  # replaces the address of a host tensor in a stored state
MOST_RANK = 8  # maximum number of dimensions, as in state.js


def page(state: Mapping[str, Any] | None = None, *, with_barriers: bool = True) -> str:
    """Return the page as HTML.

    The page opens with `state`, unless the page's address contains another state. `state` has names
    and values as in the address, such as ``{"shape": (96, 256)}``.

    >>> "shape=96,256" in page({"shape": (96, 256)})
    True
    """
    # The page reads FIRST_STATE if its address has no state.
    first = f"const FIRST_STATE = {json.dumps(address(state or {}))};"
    script = "\n".join([first, scripts(), START.replace("WITHOUT_CORE", WITHOUT_CORE)])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{TITLE}</title><style>{CSS}{source('explorer.css')}</style></head>"
        f'<body class="tmax-page"><header><h1>{TITLE}</h1><p>{html.escape(ABOUT)}</p></header>'
        f'<main id="explorer" class="tma"></main>'
        f"{_without_scripts() if with_barriers else ''}"
        f'<script type="module">{_closed(script)}</script>'
        f"{_barriers() if with_barriers else ''}</body></html>\n"
    )


@cache
def scripts() -> str:
    """Return the joined scripts of the model, of the pictures, and of the front and back end."""
    constants = {
        "STYLE_SHEET": style_sheet(),
        "FIELD_GROUPS": GROUPS,
        "STYLE_ATTRIBUTES": {name: s.attributes for name, s in STYLES.items() if s.attributes},
    }
    return "\n".join(
        [
            *(f"const {name} = {json.dumps(value)};" for name, value in constants.items()),
            model_source(),
            script_source("linked.js"),
            source(*PICTURES),
        ]
    )


@cache
def model_source() -> str:
    """Return the model's scripts with the compiled C core.

    Scripts that use the model must first await `tmaCore.ready`.
    """
    core = base64.b64encode(CORE.read_bytes()).decode()
    return f'const TMA_CORE = "{core}";\n{source(*MODEL)}'


@cache
def _barriers() -> str:
    """Return the page's section about waiting for a copy.

    The section has figures of the course. If the folder `tma_dlpack/course` is missing, return "".
    """
    try:
        tile, ring, cluster = barrier(), barrier(stages=4), barrier(blocks=2)
    except ModuleNotFoundError:
        return ""
    parts: list[Figure | str] = [f"<h2>{WAITING}</h2><p>{html.escape(ABOUT_WAITING)}</p>", tile]
    for title, figure in (
        ("A ring of four stages, as in a GEMM", ring),
        ("Multicast: two blocks of a cluster", cluster),
    ):
        parts += [f"<details><summary>{title}</summary>", figure, "</details>"]
    return f'<section class="tmax-waiting" aria-label="{WAITING}">{fragment(parts)}</section>'


@cache
def _without_scripts() -> str:
    """Return the part of the page for viewers without scripts: a note, and pictures of one tile."""
    tensor_map = make_tma_descriptor(np.zeros((32, 256), np.float16), (8, 64), swizzle="bytes128")
    pictures = "".join(panel_row(figure) for figure in (tensor(tensor_map), shared(tensor_map)))
    return (
        "<noscript><style>body .tmax-waiting{display:block!important}</style>"
        f"<p>Without scripts the box cannot be dragged: this is one tile, still.</p>{pictures}"
        "</noscript>"
    )


def address(state: Mapping[str, Any]) -> str:
    """Return a state as the fragment of an address, which begins with ``#``.

    >>> address({"shape": (96, 256), "dtype": "float16", "ragged": None})
    '#shape=96,256&dtype=float16'
    """
    words = {
        name: ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
        for name, value in state.items()
        if value is not None and value != () and value != []
    }
    return "#" + "&".join(f"{name}={quote(word, safe=',')}" for name, word in words.items())


def state_of(subject: object, choice: Choice, *, is_stored: bool = False) -> dict[str, Any]:
    """Return the state of the page for a subject and a choice. The subject is a tensor or a map.

    The address of a tensor in host memory differs in every run. If `is_stored` is True, the state
    therefore does not have this address, but `ADDRESS` plus the remainder of this address modulo
    the required alignment.

    Raises
    ------
    TmaUnsupportedError
        If the page cannot describe the tensor, because the tensor has no dimensions, more than 8
        dimensions, or a data type that the page does not have.
    """
    given = {name: getattr(choice, name) for name in Choice.__slots__ if name != "preparation"}
    # Arguments of other kinds of map have no meaning here, so they are not in the address.
    other = set().union(*map(parameters, KINDS)) - set(parameters(choice.kind))
    given = {name: None if name in other else value for name, value in given.items()}
    alignment = 32 if choice.interleave_layout == "bytes32" else 16
    state = _map_state(subject) if isinstance(subject, TensorMap) else _tensor_state(subject)
    if is_stored and state.pop("is_of_host"):
        state["address"] = ADDRESS + state["address"] % alignment
    state.pop("is_of_host", None)
    if choice.rules == RULE_SETS[choice.kind][0]:
        given["rules"] = None
    return {**given, **state, "split_inner": "yes" if choice.split_inner else None}


def _tensor_state(tensor: object) -> dict[str, Any]:
    view, dtypes = as_tensor_view(tensor), NAMED_DTYPES
    dtype, rank = str(view.dtype), len(view.shape)
    if dtype not in dtypes or not 0 < rank <= MOST_RANK:
        raise TmaUnsupportedError(f"the page has no tensor of {rank} dimensions of {dtype}")
    tensor_state = {"shape": view.shape, "strides": view.strides, "dtype": dtype}
    return {**tensor_state, "address": view.address, "is_of_host": not view.device.is_cuda}


def _map_state(tensor_map: TensorMap) -> dict[str, Any]:
    """Return a description of a map's tensor, computed from the map.

    A packed type becomes uint8.
    """
    # The page has no dtype of 4 or 6 bits, so it shows a packed tensor as its bytes.
    row, args = DATA_TYPES[tensor_map.data_type], tensor_map.arguments
    bits = 8 if row.is_packed else row.element_bits
    shape = (*tensor_map.shape[:-1], args.global_dim[0] * row.element_bits // bits)
    # The map's strides are in bytes, and the page's strides are in elements.
    strides = (*(n * 8 // bits for n in args.global_strides[::-1]), 1)
    return {
        "shape": tensor_map.shape if args.interleave else shape,
        "strides": strides,
        "dtype": "uint8" if row.is_packed else row.numpy,
        "address": tensor_map.global_address,
        "is_of_host": is_of_host_tensor(tensor_map),
    }


def embedded(state: Mapping[str, Any]) -> str:
    """Return a ``<details>`` element for a stored notebook, with the page in a frame.

    The element contains the compressed page, about 100 kB. The page opens when the reader unfolds
    the element. Some viewers drop frames and scripts, for example from untrusted notebooks. Such
    viewers show only the summary line of the element.
    """
    unpack = (
        f"<script>tmaState={json.dumps(address(state))};"
        f'fetch("data:application/gzip;base64,{_packed()}")'
        '.then((r)=>new Response(r.body.pipeThrough(new DecompressionStream("gzip"))).text())'
        ".then((t)=>{document.open();document.write(t);document.close()})</script>"
    )
    return (
        '<details class="tma-page"><summary>explore it here, without Python and without a kernel'
        f'</summary><iframe loading="lazy" title="{TITLE}" srcdoc="{html.escape(unpack)}" '
        'style="width:100%;height:900px;border:1px solid #8c959f66"></iframe></details>'
    )


@cache
def _packed() -> str:
    # mtime=0 keeps the time out of the bytes, so the same page gives the same notebook.
    return base64.b64encode(gzip.compress(page(with_barriers=False).encode(), mtime=0)).decode()


def source(*names: str) -> str:
    """Return the joined text of files of this folder, without comments and indentation."""
    return script_source(*(HERE / name for name in names))


def _closed(script: str) -> str:
    """Escape ``</`` in a script, so that a string such as ``</script>`` does not end the script."""
    return script.replace("</", "<\\/")
