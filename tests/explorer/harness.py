"""The explorer's front end in a real browser, with its `Explorer` in this process.

The page gets a model with anywidget's interface (`get`, `set`, `save_changes`, `on`). A state that
the page saves in the model is passed to `Explorer.apply_state`, as the widget does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import screens
from screens import MISSING  # noqa: F401

import tma_dlpack
from tma_dlpack.explorer.page import address
from tma_dlpack.explorer.widget import Explorer, about, front_end, style_sheet

PAGE = """<!doctype html><html><head><meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<style>body{margin:16px;background:Canvas;color:CanvasText;font-family:system-ui}%s</style></head>
<body><div id="root"></div><script>%s</script><script type="module">
%s
</script></body></html>"""
#: Counts the requests that the page waits for, and shortens its pauses.
COUNT_PAUSES = """
window.pauses = new Set();
window.asking = 0;
const { setTimeout: later, clearTimeout: never } = window;
window.setTimeout = (act, ms) => {
  const isPause = ms >= 100 && ms <= 200;
  const id = later(() => { pauses.delete(id); act(); }, isPause ? 20 : ms);
  if (isPause) pauses.add(id);
  return id;
};
window.clearTimeout = (id) => { pauses.delete(id); never(id); };
"""
START = """
window.shownAfter = [];
const traits = %s, model = window.model = {
  heard: {},
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; },
  on: (name, act) => { model.heard[name] = act; },
  save_changes: async () => {
    window.asking += 1;
    await window.tmaHear(traits.state);
    window.asking -= 1;
  },
};
document.addEventListener("tmax-shown", (e) => window.shownAfter.push(e.detail));
widget.render({ model, el: document.getElementById("root") });
"""


#: Counts the moments at which no picture is on the stage.
WATCH_BLANK = """() => {
  window.blankFrames = 0;
  const host = document.querySelector(".tmax-stage");
  const look = () => {
    if (!host.hidden && !host.shadowRoot.querySelector("svg rect")) window.blankFrames += 1;
    requestAnimationFrame(look);
  };
  look();
}"""

#: Whether two frames pass without a request; then the page has handled the pointer's events.
QUIET = """async () => {
  const busy = () => window.pauses?.size || window.asking;
  for (let frame = 0; frame < 2; ++frame) {
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    if (busy()) return false;
  }
  return true;
}"""

#: Returns the controls that have no name for a screen reader.
NAMELESS = """() => [...document.querySelectorAll("button, input, select, [role=tab]")]
  .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label")))
  .map((e) => e.outerHTML)"""


#: Returns the elements that handle keys and would also pass them to JupyterLab.
WITHOUT_SHORTCUTS_OF_JUPYTER = """() => {
  const stage = document.querySelector(".tmax-stage").shadowRoot;
  const keys = ".tmax :is(button, input, select, summary, [tabindex])";
  const drawn = stage.querySelectorAll("[tabindex]");
  const all = [...document.querySelectorAll(keys), ...drawn, ...(drawn.length ? [stage.host] : [])];
  return all.filter((e) => e.dataset.lmSuppressShortcuts !== "true").map((e) => e.outerHTML);
}"""


EXPLORERS = {}  # that answer, by their pages


class Seen:
    """A page, and the messages of its console."""

    script = ""  # runs before those of the page

    def __init__(self, browser, width=1366, scheme="light", height=900):
        self.page = screens.open_page(browser, width, scheme, height, self.script)
        self.errors = []
        self.listeners = []
        self.on("pageerror", lambda error: self.errors.append(str(error)))
        self.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type == "error" else None,
        )

    def on(self, event, listener):
        self.page.on(event, listener)
        self.listeners.append((event, listener))

    def show(self, explorer: Explorer):
        """Open the front end of an explorer."""
        module = front_end().replace("export default {", "const widget = {")
        traits = {"state": address(explorer.state()), "about": about(explorer, "stored")}
        script = module + START % json.dumps(traits)
        if self.page not in EXPLORERS:
            self.page.expose_function(
                "tmaHear", lambda state: EXPLORERS[self.page].apply_state(state)
            )
        EXPLORERS[self.page] = explorer
        self.page.set_content(PAGE % (style_sheet(), COUNT_PAUSES, script))
        self.page.wait_for_selector(".tmax-stage svg")  # its shadow is searched too
        self.settle()
        return self

    def reveal(self, selector):
        """Open the section of a control; return the control."""
        one = self.page.locator(selector).first
        one.evaluate("(e) => e.closest('details')?.setAttribute('open', '')")
        return one

    def tell(self, explorer):
        """Show what Python has set, as the widget's trait does."""
        self.page.evaluate(
            "(state) => { model.set('state', state); model.heard['change:state'](); }",
            address(explorer.state()),
        )
        self.settle()

    def settle(self):
        """Wait until the page makes no more requests."""
        if not self.page.evaluate("Boolean(window.pauses)"):  # in JupyterLab
            self.page.wait_for_timeout(250)  # longer than the front end waits for the pointer
        deadline = time.monotonic() + 30
        while not self.page.evaluate(QUIET):  # wait_for_function does not await it
            assert time.monotonic() < deadline, "the page is still busy"

    def shot(self, name, full_page=True):
        screens.shot(self.page, name, full_page)

    def close(self):
        assert self.errors == []
        for event, listener in self.listeners:
            self.page.remove_listener(event, listener)
        screens.leave_page(self.page, self.script)

    def pictures(self):
        """Return the number of panels and of parts drawn in them."""
        return self.page.evaluate(
            "() => { const s = document.querySelector('.tmax-stage').shadowRoot;"
            "return [s.querySelectorAll('svg').length, s.querySelectorAll('rect').length]; }"
        )

    def state(self):
        return self.page.inner_text(".tmax-state")

    def plot(self):
        """Return a function from tensor positions (row, column) to the page, in pixels."""
        found = self.page.evaluate(
            "() => { const stage = document.querySelector('.tmax-stage').shadowRoot;"
            "const v = stage.querySelector('svg'), b = v.getBoundingClientRect();"
            "const scale = b.width / v.viewBox.baseVal.width;"
            "return [v.dataset.x, v.dataset.y || '', b.left, b.top, scale]; }"
        )
        x, y = ([float(n) for n in text.split()] for text in found[:2])
        left, top, scale = found[2:]

        def at(row, column):
            def place(axis, position):
                _, offset, length, first, last = axis
                return offset + (position - first) / (last - first) * length

            down = place(y, row) if y else 28 + 48
            return left + scale * place(x, column), top + scale * down

        return at

    def drag(self, start, end, steps=8):
        """Drag from one position of the tensor to another."""
        at = self.plot()
        mouse = self.page.mouse
        mouse.move(*at(*start))
        mouse.down()
        mouse.move(*at(*end), steps=steps)
        self.page.evaluate(
            "() => { window.isUp = false;"
            "addEventListener('pointerup', () => { window.isUp = true; }, { once: true }); }"
        )
        mouse.up()
        self.page.wait_for_function("window.isUp")
        self.settle()


@contextlib.contextmanager
def served(folder, module, *options, status="", **environment):
    """Serve a folder by a module of this Python, which can import this package; yield the URL."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    package = str(Path(tma_dlpack.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with open(folder / "log.txt", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", module, *options, f"--port={port}"],
            cwd=folder,
            env={**os.environ, **environment, "PYTHONPATH": paths},
            stdout=log,
            stderr=log,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(120):
                try:
                    with urllib.request.urlopen(f"{url}{status}", timeout=2):
                        break
                except OSError:
                    time.sleep(0.5)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:  # JupyterLab waits for kernels, at times in vain
                server.kill()
                server.wait()


def jupyterlab(home):
    """Serve a folder with JupyterLab and kernels of this Python; yield the URL."""
    places = {f"JUPYTER_{n}_DIR": str(home / n.lower()) for n in ("CONFIG", "DATA", "RUNTIME")}
    options = ["--no-browser", "--allow-root", "--ServerApp.token=", "--LabApp.news_url="]
    return served(home, "jupyterlab", *options, status="/api/status", **places)


NO_LAB = "" if importlib.util.find_spec("jupyterlab") else "jupyterlab is not installed"
