"""The explorer in a real marimo: a cell with `e` shows it live, in the colours of marimo's page."""

from __future__ import annotations

import importlib.util

import harness
import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed")
NO_MARIMO = "" if importlib.util.find_spec("marimo") else "marimo is not installed"
pytestmark = pytest.mark.skipif(
    bool(harness.MISSING or NO_MARIMO), reason=harness.MISSING or NO_MARIMO
)

APP = """import marimo
app = marimo.App(width="full")
@app.cell
def _():
    import numpy as np, tma_dlpack as tma
    e = tma.explore(np.zeros((64, 128), np.float32))
    def heard(_):
        with open("heard.txt", "w") as file:
            file.write(str(e.box_sizes))
    e.panel.widget.observe(heard, "state")
    e
    return
"""


def marimo(folder):
    """Serve the app; yield its URL."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    return harness.served(folder, "marimo", "run", "app.py", "--headless", "--no-token")


def test_the_explorer_alone_is_live_and_as_light_as_the_page(chromium, tmp_path):
    with marimo(tmp_path) as url:
        seen = harness.Seen(chromium, 1280, "dark")  # the system is dark, marimo's page is light
        seen.page.goto(url)
        seen.page.wait_for_selector(".tmax-stage svg", timeout=60_000)
        paper = seen.page.locator(".tmax-stage .t-paper").first
        assert paper.evaluate("(e) => getComputedStyle(e).fill") == "rgb(255, 255, 255)"
        seen.page.locator('input[type=range][aria-label="box_sizes[1]"]').focus()
        seen.page.keyboard.press("ArrowLeft")
        seen.page.wait_for_selector(
            "text=tensor (64, 128), box (8, 28) at (0, 0)", state="attached"
        )
        heard = tmp_path / "heard.txt"
        for _ in range(100):
            if heard.exists() and heard.read_text(encoding="utf-8"):
                break
            seen.page.wait_for_timeout(50)
        assert heard.read_text(encoding="utf-8") == "(8, 28)"  # Python has it too
        seen.shot("marimo", full_page=False)
        seen.page.close()
