"""`explore` shows the explorer's page in a notebook, with one of the notebook's tensors.

`Explorer` has the state of the page, and the map that results from the state. `Panel` shows the
page as a widget of anywidget. The widget's trait `state` has the page's state as an address, such
as "#shape=64,256&dtype=float16". Python and the page can both change the trait. Without anywidget,
and in a stored notebook, the output has still pictures. Below the pictures, the output has the page
in a folded HTML element.
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
#: Attributes of an `Explorer` that users can set: the arguments and the tile.
NAMES = tuple(n for n in Choice.__slots__ if n not in ("target", "preparation", "kind"))


@opaque
def explore(tensor: Tensor, *, target: Target | str | None = None) -> Explorer:
    """Explore the tensor maps of a tensor, in a notebook.

    A notebook shows the result as the page of ``tma-dlpack explore`` with your tensor. You can drag
    the box, or its lower right corner. The box snaps to legal values. The sliders shade refused
    values and show the reason. If you type a refused value, the page shows the last accepted
    picture in grey, and a button that corrects the request. Python can read and set the values of
    the page::

        explorer.map                        # the current map
        explorer.box_sizes = (16, 64)       # the page follows

    Parameters
    ----------
    tensor : object
        Any object with ``__dlpack__``, or a `TensorMap` of any kind. The tensor's data is not read.
        If a map has no reference to its tensor, only the tile can be changed.
    target : Target or str, optional
        As in `make_tma_descriptor`.

    Returns
    -------
    Explorer
        An object with the attributes `map`, `look` and `code`, and with one attribute per argument.
        Its method `save` writes an HTML file that needs no Python.

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
    # If the first choice is refused, no arguments satisfy the rules, so the tensor itself is
    # refused. The most common reason is that the rows are not padded to 16 bytes.
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
    # The map may be of a view of the tensor that `shape=` or `strides=` described. Then these
    # arguments make another map of the tensor, so the explorer shows the map without its tensor.
    if tensor is not None and look(tensor, choice).tensor_map == tensor_map:
        return Explorer(tensor, choice)
    return Explorer(tensor_map, choice, ONLY_TILE)


#: Attributes of an `Explorer` that are computed from its arguments, so that users cannot set them.
READ_ONLY = ("choice", "code", "map", "panel", "tensor_map")


class Explorer:
    """The arguments of a map, and the map that results. Users can change the arguments.

    Each argument is an attribute that can be set. An attribute has the same name as the argument of
    `make_tma_descriptor`. The attributes `coords`, `im2col_offsets` and `plane` can be set too.
    `plane` has the two drawn dimensions of the tensor.

    Attributes
    ----------
    look : Preview
        The result of the arguments: `report`, `tensor_map` and `refusal`.
    note : str
        A note about the tensor, for example that another tensor is shown because the user's tensor
        is refused; "" without a note.
    """

    __slots__ = ("_device_target", "_page_words", "_panel", "_subject", "look", "note")

    look: Preview

    def __init__(self, subject: object, choice: Choice, note: str = "") -> None:
        self._subject = subject
        self._panel: Panel | None = None
        self._page_words: dict[str, str] = {}  # parts of the page's address that Python ignores
        self.note: str = note
        self.look = look(subject, choice)
        tensor_map = self.look.tensor_map
        own = tensor_map.target.name if tensor_map else "sm_90"  # the target of the tensor's GPU
        self._device_target = own if choice.target is None else None

    @property
    def choice(self) -> Choice:
        """The current arguments and coordinates."""
        return self.look.choice

    @property
    def map(self) -> TensorMap | None:
        """The map of the current arguments.

        None if the map is refused, or if the explorer shows a padded tensor instead of the user's
        tensor.
        """
        return None if self.choice.preparation else self.look.tensor_map

    @property
    def tensor_map(self) -> TensorMap | None:
        """Another name for the attribute `map`."""
        return self.map

    @property
    def code(self) -> str:
        """The Python code of the call. If the map is accepted, the C++ code of the map follows."""
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
        """Change several attributes at once. Values are passed by name. Tuples are row-major.

        Raises
        ------
        TmaPreconditionError
            If a name is unknown, or if `plane` is not two dimensions in increasing order. If the
            map is refused, no error is raised, and `look.report` has the reason.
        """
        for name in values:
            if name in READ_ONLY:
                found, must = f"{name} is what the arguments result in", "be read only"
                fix = "set an argument, as in explorer.box_sizes = (8, 64)"
                raise argument_error(name, found, must, fix)
            if name not in NAMES:
                found, must = f"the explorer has no {shown(name)}", f"be one of {', '.join(NAMES)}"
                raise argument_error(name, found, must, "use one of these names")
        # () stands for the two innermost dimensions.
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
        """Set the arguments from a state of the page, such as "#box_sizes=8,64"."""
        choice = read_address(state, self.choice)
        name = choice.target or "sm_90"  # the page omits its default, sm_90
        target = None if name == self._device_target else name
        self.look = look(self._subject, replace(choice, target=target))
        self._page_words = page_words(state)

    def state(self, *, is_stored: bool = False) -> dict[str, Any]:
        """Return the state of the page.

        If `is_stored` is True, the state does not contain the address of host memory.
        """
        choice = replace(self.choice, target=self.choice.target or self._device_target)
        return {**state_of(self._subject, choice, is_stored=is_stored), **self._page_words}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explorer as one HTML file, which needs no Python, no kernel and no network.

        The page opens in the current state. In the page, users can change all arguments, and also
        the tensor's shape, strides and type. The page's address contains the state, so a link to
        the address opens the page in the same state.

        Parameters
        ----------
        path : str or os.PathLike

        Raises
        ------
        TmaUnsupportedError
            If the page cannot describe the tensor, such as a tensor of complex64.

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
        """The live widget of this explorer, which is made on first access.

        None if anywidget is not installed, or if the page cannot describe the tensor.
        """
        if self._panel is None:
            try:
                self._panel = Panel(self)
            except (ImportError, TmaError):
                return None
        return self._panel

    def still(self) -> str:
        """Return the state as HTML with still pictures, which need neither a kernel nor a widget.

        For viewers that run scripts, the HTML also has the page that `save` writes, in a folded
        element below the pictures.
        """
        parts = [still_html(self.look, self.note)]
        with contextlib.suppress(TmaError):  # raised if the page cannot describe the tensor
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
        """Return why `map` is None: the map is refused, or the explorer shows a padded tensor."""
        violations = self.look.report.violations
        if not violations:
            return "the tensor that is shown is not yours"
        return "it is refused: " + "; ".join(f"{v.rule}, {v.found}" for v in violations)

    _repr_html_ = still

    def _display_(self) -> Any:
        """Return the object that marimo shows: the live widget, or else still pictures."""
        panel = self.panel
        return panel.widget if panel else importlib.import_module("marimo").Html(self.still())

    def _ipython_display_(self) -> None:
        """Show the live widget, together with a still picture for a saved notebook."""
        from IPython.display import display

        panel = self.panel
        if panel is None:
            hint = f"<p>{html.escape(HINT)}</p>"
            display({"text/html": hint + self.still(), "text/plain": str(self)}, raw=True)
        else:
            panel.display()


def page_words(state: str) -> dict[str, str]:
    """Return the parts of an address that select the tab of the page and the tab's options.

    >>> page_words("#shape=64,64&tab=banks&access=row")
    {'tab': 'banks', 'access': 'row'}
    """
    pairs = (part.partition("=") for part in state.removeprefix("#").split("&"))
    return {name: word for name, _, word in pairs if name in ("tab", "access", "major")}


def still_html(look: Preview, note: str) -> str:
    """Return the state as still pictures, which a saved notebook shows without a kernel."""
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
    with contextlib.suppress(TmaError):  # raised if the tile cannot be drawn (rows of 12 bytes)
        parts += [bold(figure.title) + panel_row(figure) for figure in _figures(look)]
    code = html.escape(look.stored_code)
    parts.append(f"<details><summary>code</summary><pre>{code}</pre></details>")
    return "".join(parts)


def _figures(look: Preview) -> tuple[draw.Figure, ...]:
    """Return the figures of a tile: its box or its pixels in the tensor, and its shared memory."""
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
    """Return the JavaScript module of the widget: the page's scripts and `notebook.js`."""
    return f"{scripts()}\n{source('notebook.js')}"


def style_sheet() -> str:
    """Return the CSS of the figures, of the findings and of the explorer."""
    return CSS + source("explorer.css")


@cache
def _widget_class() -> Any:
    """Return the class of the widget, or raise ImportError if anywidget is not installed.

    Only this function of the package imports anywidget.
    """
    anywidget = importlib.import_module("anywidget")
    traitlets = importlib.import_module("traitlets")
    about = "The live widget of an `Explorer`."
    body = {"_esm": front_end(), "_css": style_sheet(), "__doc__": about}
    body |= {"state": traitlets.Unicode().tag(sync=True), "about": traitlets.Dict().tag(sync=True)}
    return type("ExplorerWidget", (anywidget.AnyWidget,), body)


_NUMBERS = itertools.count(1)


class Panel:
    """The live widget of an explorer, and the still pictures for a saved notebook.

    `still_class` is the CSS class of the still pictures. The live widget hides the elements of this
    class. The name of the class is the same in every run of a notebook. The constructor raises
    ImportError if anywidget is not installed.
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
        """Apply the state that the page sends when the user pauses."""
        if change["new"] != address(self._explorer.state()):
            self._explorer.apply_state(change["new"])
            self._store()

    def _ask(self, _: object, asked: Any, buffers: object) -> None:
        if isinstance(asked, dict) and asked.get("do") == "page":
            self.widget.send({"page": page(self._explorer.state(is_stored=True))})

    def tell(self) -> None:
        """Send the current state, which Python has changed, to every view of the widget."""
        self.widget.state = address(self._explorer.state())
        self._store()

    def _store(self) -> None:
        if self._still is not None:
            self._still.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        # Without the kernel, JupyterLab shows a text instead of the widget, in an output element
        # without child elements. This CSS rule hides the output element.
        own = f".jp-OutputArea-child:has(+ * .{self.still_class})"
        lost = f"{own} .jupyter-widgets:not(:has(*))"
        style = f"<style>{lost}{{display:none}}</style>"
        html = f'<div class="{self.still_class}">{style}{self._explorer.still()}</div>'
        return {"text/html": html, "text/plain": str(self._explorer)}

    def display(self) -> None:
        """Show the widget and the still pictures. The live widget hides the still pictures."""
        from IPython.display import display

        bundle = self.widget._repr_mimebundle_()
        live = bundle[0] if isinstance(bundle, tuple) else bundle
        if live:
            display({**live, "text/plain": LIVE_TEXT}, raw=True)
        self._still = display(self._bundle(), raw=True, display_id=True)


def about(explorer: Explorer, stored: str) -> dict[str, Any]:
    """Return the facts about the tensor that the page gets in addition to its state.

    The constructor of `Host` in host.js lists these facts.
    """
    only_tile = isinstance(explorer._subject, TensorMap)
    said = {"isOwn": True, "onlyTile": only_tile, "note": explorer.note, "stored": stored}
    return {**said, "preparation": explorer.choice.preparation}
