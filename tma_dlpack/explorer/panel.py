"""The explorer as an anywidget: state goes over as messages, the last also as a trait."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tma_dlpack.draw.figure import CSS, script_source
from tma_dlpack.explorer.views import ACCESSES, TABS

HERE = Path(__file__).parent
LIVE_TEXT = "The explorer lives as long as its kernel; its last picture follows."


def front_end() -> str:
    """Give the JavaScript module: the linking of the figures, and the explorer's own."""
    return script_source("linked.js") + "\n" + (HERE / "explorer.js").read_text(encoding="utf-8")


def style_sheet() -> str:
    """Give the CSS: that of the figures and findings, and the explorer's own."""
    return CSS + (HERE / "explorer.css").read_text(encoding="utf-8")


class Shown(Protocol):
    """What a panel asks of the explorer that it shows."""

    def controls(self) -> Any: ...

    def answer(self, changes: dict[str, Any]) -> dict[str, Any]: ...

    def legal(self) -> dict[str, Any]: ...

    def hear(self, message: dict[str, Any]) -> dict[str, Any]: ...

    def still(self) -> str: ...


def start_state(explorer: Shown) -> dict[str, Any]:
    """Give what the front end begins with."""
    return {
        "tabs": TABS,
        "accesses": ACCESSES,
        "controls": explorer.controls(),
        "view": explorer.answer({}),
        **explorer.legal(),
    }


@cache
def _widget_class() -> Any:
    """Make the class; anywidget is imported here alone, with an ImportError where it is missing."""
    anywidget = importlib.import_module("anywidget")
    traitlets = importlib.import_module("traitlets")
    body = {
        "_esm": front_end(),
        "_css": style_sheet(),
        "start": traitlets.Dict().tag(sync=True),
        "__doc__": "The live widget of an `Explorer`.",
    }
    return type("ExplorerWidget", (anywidget.AnyWidget,), body)


class Panel:
    """The live widget of an explorer, and the still picture that a saved notebook keeps.

    Raises ImportError without anywidget.
    """

    def __init__(self, explorer: Shown) -> None:
        self._explorer = explorer
        self._still: Any = None
        self.widget: Any = _widget_class()()
        self.widget.start = self._start()
        self.widget.on_msg(self._hear)

    @property
    def kept_class(self) -> str:
        """The class of the still picture, by which the live widget hides it."""
        return f"tma-kept-{self.widget.model_id}"

    def _start(self) -> dict[str, Any]:
        return {**start_state(self._explorer), "kept": self.kept_class}

    def _hear(self, _: object, asked: Any, buffers: object) -> None:
        if not isinstance(asked, dict):
            return
        self.tell(self._explorer.hear(asked))
        if asked.get("do") == "legal":  # sent when the user pauses
            self._keep()

    def tell(self, answer: dict[str, Any]) -> None:
        """Send what has changed to every view."""
        self.widget.send(answer)

    def _keep(self) -> None:
        """Keep the state for a notebook that is saved: in the widget, and as a still picture."""
        self.widget.start = self._start()
        if self._still is not None:
            self._still.update(self._kept(), raw=True)

    def _kept(self) -> dict[str, str]:
        html = f'<div class="{self.kept_class}">{self._explorer.still()}</div>'
        return {"text/html": html, "text/plain": str(self._explorer)}

    def display(self) -> None:
        """Show the widget, and the still picture that is hidden while the widget lives."""
        from IPython.display import display

        bundle = self.widget._repr_mimebundle_()
        live = bundle[0] if isinstance(bundle, tuple) else bundle
        if live:
            display({**live, "text/plain": LIVE_TEXT}, raw=True)
        self._still = display(self._kept(), raw=True, display_id=True)
