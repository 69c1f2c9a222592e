"""The explorer in a real marimo: `e` alone is live, and as light as marimo's page."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import harness
import pytest
from screens import ARTEFACTS

import tma_dlpack

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
    e
    return
"""


@contextlib.contextmanager
def marimo(folder):
    """Serve the app; give its URL."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    package = str(Path(tma_dlpack.__file__).parent.parent)
    options = ["--headless", "--no-token", "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, "-m", "marimo", "run", "app.py", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen(url, timeout=2):
                    break
            except OSError:
                time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def test_the_explorer_alone_is_live_and_as_light_as_the_page(tmp_path):
    with harness.browser() as chromium, marimo(tmp_path) as url:
        seen = harness.Seen(chromium, 1280, "dark")  # the system is dark, marimo's page is light
        seen.page.goto(url)
        seen.page.wait_for_selector(".tmax-stage svg", timeout=60_000)
        paper = seen.page.locator(".tmax-stage .t-paper").first
        assert paper.evaluate("(e) => getComputedStyle(e).fill") == "rgb(255, 255, 255)"
        seen.page.locator('input[type=range][aria-label="box_sizes[1]"]').focus()
        seen.page.keyboard.press("ArrowLeft")
        seen.page.wait_for_selector(".tmax[aria-busy=false]")
        seen.page.wait_for_selector("text=tensor (64, 128) FLOAT32, box (8, 28)", state="attached")
        ARTEFACTS.mkdir(exist_ok=True)
        seen.page.screenshot(path=str(ARTEFACTS / "marimo.png"))
        seen.page.close()
