"""The explorer as an anywidget; imported only where anywidget is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from tma_dlpack.draw.stills import script_source
from tma_dlpack.explorer.views import TABS

if TYPE_CHECKING:
    from tma_dlpack.explorer.widget import Explorer

__all__ = ["Panel", "front_end"]

HERE = Path(__file__).parent


def front_end() -> str:
    """Give the JavaScript module: the linking of the figures, and the explorer's own."""
    return script_source("linked.js") + "\n" + (HERE / "explorer.js").read_text(encoding="utf-8")


class Panel(anywidget.AnyWidget):  # type: ignore[misc]
    """The live widget of an `Explorer`: state goes over as messages, the last also as a trait."""

    _esm = front_end()
    _css = (HERE / "explorer.css").read_text(encoding="utf-8")
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, explorer: Explorer) -> None:
        super().__init__()
        self._explorer = explorer
        self._still: Any = None
        self.start = self._state()
        self.on_msg(self._hear)

    def _state(self) -> dict[str, Any]:
        explorer = self._explorer
        return {
            "tabs": TABS,
            "controls": explorer.controls(),
            "view": explorer.answer({}),
            **explorer.legal(),
        }

    def _hear(self, _: object, asked: Any, buffers: object) -> None:
        if not isinstance(asked, dict):
            return
        self.tell(self._explorer.hear(asked))
        if asked.get("do") == "legal":  # sent when the hand rests
            self._keep()

    def tell(self, answer: dict[str, Any]) -> None:
        """Send what has changed to every view."""
        self.send(answer)

    def _keep(self) -> None:
        """Keep the state for a notebook that is saved: in the widget, and as a still picture."""
        self.start = self._state()
        if self._still is not None:
            self._still.update(self._kept(), raw=True)

    def _kept(self) -> dict[str, str]:
        still = f'<div class="tma-kept-{self.model_id}">{self._explorer.still()}</div>'
        return {"text/html": still, "text/plain": str(self._explorer)}

    def display(self) -> None:
        """Show the widget, and the still picture that is hidden while the widget lives."""
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        live = bundle[0] if isinstance(bundle, tuple) else bundle
        if live:
            display(live, raw=True)
        self._still = display(self._kept(), raw=True, display_id=True)
