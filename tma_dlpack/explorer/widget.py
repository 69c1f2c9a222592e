"""`explore`: the explorer's page in a notebook, with a tensor of yours, live both ways.

`Explorer` has the state and the map that it makes; `Panel` shows the page with anywidget: the state
goes over as one trait, in the words of the page's address. Without anywidget, and in a notebook
that is stored, still pictures are shown, and the page folded below them.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import itertools
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from tma_dlpack import draw
from tma_dlpack.draw.cards import bold, report_parts
from tma_dlpack.draw.figure import CSS, fragment, panel_row
from tma_dlpack.explorer.choice import (
    Choice,
    Preview,
    choice_of,
    first_choice,
    look,
    padded,
    plain,
    read_address,
)
from tma_dlpack.explorer.page import address, embedded, page, scripts, source, state_of
from tma_dlpack.public import opaque
from tma_dlpack.tables.coerce import counted, integers_of, shown
from tma_dlpack.tables.enums import Tensor
from tma_dlpack.tables.errors import TmaError, argument_error
from tma_dlpack.tables.targets import Target
from tma_dlpack.tensor_map.map import TensorMap

LIVE_TEXT = "The explorer is live as long as its kernel runs; its last picture follows."
HINT = "install anywidget for the live explorer: pip install anywidget"
LAST = "the picture shows the last accepted values"
ONLY_TILE = "This map has no tensor that could be described again: only the tile can be chosen."
#: Attributes that Python can set: the arguments and the tile.
NAMES = tuple(n for n in Choice.__slots__ if n not in ("target", "preparation", "kind"))


@opaque
def explore(tensor: Tensor, *, target: Target | str | None = None) -> Explorer:
    """Explore the tensor maps of a tensor, in a notebook.

    Shows the page of ``tma-dlpack explore`` with your tensor. Drag the box on it, or its
    lower right corner: it snaps to legal values. Refused values are shaded on the sliders, with the
    reason. If a typed value is refused, the last accepted picture stays, greyed, and a button
    corrects the request. Python can read and set the choices of the page::

        explorer.map                        # the current map
        explorer.box_sizes = (16, 64)       # the page follows

    Parameters
    ----------
    tensor : object
        Anything with ``__dlpack__`` (its data is not read), or a `TensorMap`, im2col maps included.
        A map that has its tensor can be changed; of another, only the tile.
    target : Target or str, optional
        As in `make_tma_descriptor`.

    Returns
    -------
    Explorer
        With `map`, `look` and `code`, and the arguments by their names; `save` writes it as an HTML
        file that needs no Python.

    Raises
    ------
    TmaPreconditionError
        If the tensor or the target cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> explorer = explore(np.zeros((64, 256), np.float16))
    >>> explorer.map.box_sizes
    (8, 64)
    >>> explorer.box_sizes, explorer.coords = (16, 64), (8, 64)
    >>> print(explorer.code.splitlines()[0])
    tm = tma.make_tma_descriptor(tensor, box_sizes=(16, 64), swizzle='bytes128')
    """
    if isinstance(tensor, TensorMap):
        return _explore_map(tensor)
    choice = first_choice(tensor, None if target is None else Target.of(target).name)
    first = look(tensor, choice)
    other = padded(tensor) if not first.report.ok else None
    if other is None:
        return Explorer(tensor, choice)
    why, (zeros, preparation) = first.report.violations[0], other
    note = (
        f"Your tensor itself is refused ({why.rule}): {why.found}. Fix: {why.fix}. The explorer "
        "shows instead a tensor of the same shape whose rows are padded to 16 bytes; the code pads "
        "yours."
    )
    choice = replace(first_choice(zeros, choice.target), preparation=preparation)
    return Explorer(zeros, choice, note)


def _explore_map(tensor_map: TensorMap) -> Explorer:
    choice, tensor = choice_of(tensor_map), tensor_map.tensor
    if tensor is not None and look(tensor, choice).tensor_map == tensor_map:
        return Explorer(tensor, choice)
    return Explorer(tensor_map, choice, ONLY_TILE)


#: What the arguments result in.
READ_ONLY = ("choice", "code", "map", "panel", "tensor_map")


class Explorer:
    """The arguments of a map that can be changed, and the map that results.

    Each argument is an attribute that can be set, by the name that it has in `make_tma_descriptor`,
    and so are `coords`, `im2col_offsets` and `plane`, the two dimensions that are drawn.

    Attributes
    ----------
    look : Preview
        What the arguments result in: `report`, `tensor_map`, `argument_error`.
    note : str
        What is special about what is explored, such as a tensor shown in place of a refused one.
    """

    __slots__ = ("_device_target", "_page_words", "_panel", "_subject", "look", "note")

    look: Preview

    def __init__(self, subject: object, choice: Choice, note: str = "") -> None:
        self._subject = subject
        self._panel: Panel | None = None
        self._page_words: dict[str, str] = {}  # of its address: what Python does not read
        self.note: str = note
        self.look = look(subject, choice)
        tensor_map = self.look.tensor_map
        own = tensor_map.target.name if tensor_map else "sm_90"  # that of the tensor's GPU
        self._device_target = own if choice.target is None else None

    @property
    def choice(self) -> Choice:
        """The current arguments and coordinates."""
        return self.look.choice

    @property
    def map(self) -> TensorMap | None:
        """The map of the current arguments.

        None if it is refused, or describes another tensor than yours.
        """
        return None if self.choice.preparation else self.look.tensor_map

    @property
    def tensor_map(self) -> TensorMap | None:
        """The same as `map`."""
        return self.map

    @property
    def code(self) -> str:
        """Python for the call, and C++ for the map where it is accepted."""
        return self.look.code

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.choice, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *NAMES]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__slots__:
            object.__setattr__(self, name, value)
        else:
            self.set(**{name: value})

    def set(self, **values: Any) -> None:
        """Change several values at once: arguments by their names, row-major tuples or words.

        Raises
        ------
        TmaPreconditionError
            For another name, and where `plane` is not two dimensions in their order. A refused map
            is not an error: `look.report` has the reason.
        """
        for name in values:
            if name in READ_ONLY:
                found, must = f"{name} is what the arguments result in", "be read only"
                fix = "set an argument, as in explorer.box_sizes = (8, 64)"
                raise argument_error(name, found, must, fix)
            if name not in NAMES:
                found, must = f"the explorer has no {shown(name)}", f"be one of {', '.join(NAMES)}"
                raise argument_error(name, found, must, "use one of these names")
        planes = [(), *combinations(range(len(self.choice.coords)), 2)]
        if "plane" in values and integers_of(values["plane"]) not in planes:
            found, must = f"plane is {shown(values['plane'])}", f"be one of {planes}"
            raise argument_error("plane", found, must, "use one of these; () is the inner two")
        plain_values = {name: plain(name, value) for name, value in values.items()}
        self.look = look(self._subject, replace(self.choice, **plain_values))
        if self._panel is not None:
            self._panel.tell()

    # --- The page ---------------------------------------------------------------------------------

    def apply_state(self, state: str) -> None:
        """Take over a state that the page wrote, as the words of its address."""
        choice = read_address(state, self.choice)
        name = choice.target or "sm_90"  # which the page leaves out
        target = None if name == self._device_target else name
        self.look = look(self._subject, replace(choice, target=target))
        self._page_words = page_words(state)

    def state(self, *, is_stored: bool = False) -> dict[str, Any]:
        """Return the state of the page; a stored state lacks the address of host memory."""
        choice = replace(self.choice, target=self.choice.target or self._device_target)
        return {**state_of(self._subject, choice, is_stored=is_stored), **self._page_words}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explorer as one HTML file, which needs no Python, no kernel and no network.

        It opens in the current state. Everything can be changed in the page, also the tensor's
        shape, strides and type. The address contains the state, so a link to it shares the state.

        Parameters
        ----------
        path : str or os.PathLike

        Raises
        ------
        TmaUnsupportedError
            For a tensor that the page does not have, such as one of six dimensions of complex64.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "explorer.html"
        >>> explore(np.zeros((64, 256), np.float16)).save(path)
        >>> path.read_text(encoding="utf-8")[:15]
        '<!doctype html>'
        """
        Path(path).write_text(page(self.state(is_stored=True)), encoding="utf-8")

    # --- In a notebook ----------------------------------------------------------------------------

    @property
    def panel(self) -> Panel | None:
        """The live widget, made on first use; None without anywidget, or a page of this tensor."""
        if self._panel is None:
            try:
                self._panel = Panel(self)
            except (ImportError, TmaError):
                return None
        return self._panel

    def still(self) -> str:
        """Return the state as HTML with still pictures, which needs neither kernel nor widget.

        Below them is the page of `save`, folded, for viewers that run scripts.
        """
        parts = [still_html(self.look, self.note)]
        with contextlib.suppress(TmaError):  # a tensor that the page does not have
            parts.append(embedded(self.state(is_stored=True)))
        return fragment(parts)

    def __str__(self) -> str:
        parts = [str(self.look.report), self.look.refusal, self.note, self.look.stored_code]
        return "\n\n".join(filter(None, parts))

    def __repr__(self) -> str:
        if self.map is None:
            return f"<Explorer: map is None because {self._why_none()}>"
        return "<Explorer: a notebook shows it; save(FILE) writes it as a page>"

    def _why_none(self) -> str:
        """Return why there is no map: the rules that refuse it, or another tensor that is shown."""
        violations = self.look.report.violations
        if not violations:
            return "the tensor that is shown is not yours"
        return "it is refused: " + "; ".join(f"{v.rule}, {v.found}" for v in violations)

    _repr_html_ = still

    def _display_(self) -> Any:
        """Return what marimo shows: the live widget."""
        panel = self.panel
        return panel.widget if panel else importlib.import_module("marimo").Html(self.still())

    def _ipython_display_(self) -> None:
        """Show the live widget, and with it a still picture for a saved notebook."""
        from IPython.display import display

        panel = self.panel
        if panel is None:
            hint = f"<p>{html.escape(HINT)}</p>"
            display({"text/html": hint + self.still(), "text/plain": str(self)}, raw=True)
        else:
            panel.display()


def page_words(state: str) -> dict[str, str]:
    """Return the part of an address that selects the view of the page.

    >>> page_words("#shape=64,64&tab=banks&access=row")
    {'tab': 'banks', 'access': 'row'}
    """
    pairs = (part.partition("=") for part in state.removeprefix("#").split("&"))
    return {name: word for name, _, word in pairs if name in ("tab", "access", "major")}


def still_html(look: Preview, note: str) -> str:
    """Return the state as still pictures: what a saved notebook shows without a kernel."""
    parts = [f"<p>{html.escape(note)}</p>"] if note else []
    report, state = look.report, "✓ accepted"
    if not report.ok:
        state = f"✗ refused: {counted(len(report.violations), 'violation')}; {LAST}"
    elif look.refusal:
        state = f"✗ the map is accepted, this tile is refused; {LAST}"
    findings = "".join(report_parts(report)) if report.violations or report.advice else ""
    parts.append(findings if findings and look.ok else bold(state) + findings)
    if look.refusal:
        parts.append(f"<p>✗ this tile is refused: {html.escape(look.refusal)}</p>")
    with contextlib.suppress(TmaError):  # a tile that cannot be drawn, such as rows of 12 bytes
        parts += [bold(figure.title) + panel_row(figure) for figure in _figures(look)]
    code = html.escape(look.stored_code)
    parts.append(f"<details><summary>code</summary><pre>{code}</pre></details>")
    return "".join(parts)


def _figures(look: Preview) -> tuple[draw.Figure, ...]:
    """Return the box on the tensor, or the pixels of a column, and the tile in shared memory."""
    if not look.ok or look.tensor_map is None:
        return ()
    tensor_map, choice = look.tensor_map, look.choice
    taps = choice.im2col_offsets or None
    memory = draw.shared(tensor_map, choice.coords, im2col_offsets=taps)
    if tensor_map.kind != "tiled":
        return draw.walk(tensor_map, choice.coords, im2col_offsets=taps), memory
    plane: Any = choice.plane or None
    return draw.tensor(tensor_map, choice.coords, plane=plane), memory


# --- The live widget ------------------------------------------------------------------------------


def front_end() -> str:
    """Return the JavaScript module of the widget: the page's scripts, for a kernel."""
    return f"{scripts()}\n{source('notebook.js')}"


def style_sheet() -> str:
    """Return the CSS: that of the figures and findings, and the explorer's own."""
    return CSS + source("explorer.css")


@cache
def _widget_class() -> Any:
    """Make the class.

    Only this function imports anywidget, so without it only this raises ImportError.
    """
    anywidget = importlib.import_module("anywidget")
    traitlets = importlib.import_module("traitlets")
    about = "The live widget of an `Explorer`."
    body = {"_esm": front_end(), "_css": style_sheet(), "__doc__": about}
    body |= {"state": traitlets.Unicode().tag(sync=True), "about": traitlets.Dict().tag(sync=True)}
    return type("ExplorerWidget", (anywidget.AnyWidget,), body)


_NUMBERS = itertools.count(1)


class Panel:
    """The live widget of an explorer, and the still picture of a saved notebook.

    `still_class` is the class of that picture, by which the live widget hides it: the same in each
    run of a notebook. Raises ImportError without anywidget.
    """

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._still: Any = None
        code = zlib.crc32(explorer.choice.call().encode())
        self.still_class: str = f"tma-stored-{code:08x}-{next(_NUMBERS)}"
        state = address(explorer.state())
        self.widget: Any = _widget_class()(state=state, about=about(explorer, self.still_class))
        self.widget.observe(self._hear, "state")
        self.widget.on_msg(self._ask)

    def _hear(self, change: Mapping[str, Any]) -> None:
        """Apply the choices of the page, which sends them when the user pauses."""
        if change["new"] != address(self._explorer.state()):
            self._explorer.apply_state(change["new"])
            self._store()

    def _ask(self, _: object, asked: Any, buffers: object) -> None:
        if isinstance(asked, dict) and asked.get("do") == "page":
            self.widget.send({"page": page(self._explorer.state(is_stored=True))})

    def tell(self) -> None:
        """Update every view with values that were set from Python."""
        self.widget.state = address(self._explorer.state())
        self._store()

    def _store(self) -> None:
        if self._still is not None:
            self._still.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        # Without its kernel JupyterLab shows words for the widget: an output without elements.
        own = f".jp-OutputArea-child:has(+ * .{self.still_class})"
        lost = f"{own} .jupyter-widgets:not(:has(*))"
        style = f"<style>{lost}{{display:none}}</style>"
        html = f'<div class="{self.still_class}">{style}{self._explorer.still()}</div>'
        return {"text/html": html, "text/plain": str(self._explorer)}

    def display(self) -> None:
        """Show the widget, and the still picture that is hidden while the widget is live."""
        from IPython.display import display

        bundle = self.widget._repr_mimebundle_()
        live = bundle[0] if isinstance(bundle, tuple) else bundle
        if live:
            display({**live, "text/plain": LIVE_TEXT}, raw=True)
        self._still = display(self._bundle(), raw=True, display_id=True)


def about(explorer: Explorer, stored: str) -> dict[str, Any]:
    """Return the facts of a tensor that the page gets with its state: host.js has the meanings."""
    only_tile = isinstance(explorer._subject, TensorMap)
    said = {"isOwn": True, "onlyTile": only_tile, "note": explorer.note, "stored": stored}
    return {**said, "preparation": explorer.choice.preparation}
