"""Run the notebooks from top to bottom and store their outputs: ``python notebooks/execute.py``.

Every viewer shows the pictures of a stored notebook, even if the notebook is not trusted, because a
figure is HTML with SVG images. The script stores a still picture instead of each live widget. The
script also draws the figures of the README, with the command ``tma-dlpack draw``.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
SECONDS = 60
IMAGE = "data:image/svg+xml;base64,"
LIVE = "application/vnd.jupyter.widget-view+json"

#: Figures of the README: file name -> arguments of ``tma-dlpack draw``.
README_FIGURES = {
    "tensor.svg": (
        "--shape 60,104 --dtype float16 --box 16,64 --swizzle bytes128 --figure tensor "
        "--coords 48,64"
    ),
    "copy.svg": (
        "--shape 60,104 --dtype float16 --box 8,64 --swizzle bytes128 --figure copy --coords 48,64"
    ),
    "copy_narrow.svg": (
        "--shape 60,104 --dtype float16 --box 8,64 --swizzle bytes128 --figure copy --coords 48,64 "
        "--narrow"
    ),
    "swizzle.svg": "--shape 128,64 --dtype bfloat16 --box 8,64 --swizzle bytes128 --figure shared",
}


def execute(path: Path) -> nbformat.NotebookNode:
    """Run a notebook in a new Jupyter kernel, and return the notebook with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": HERE}}
    )
    client.execute()
    return notebook


def stored(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook without live widgets, host addresses and times of execution."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            shown = [o for o in cell.outputs if LIVE not in o.get("data", {})]
            cell.outputs = whole_streams(shown)
        for output in cell.get("outputs", []):
            if "transient" in output:  # the id of the display that shows the still picture
                del output["transient"]
            if "text" in output:
                output.text = without_addresses(output.text)
            for kind, content in output.get("data", {}).items():
                output.data[kind] = without_addresses(content)
            if "traceback" in output:
                output.traceback = [without_addresses(line) for line in output.traceback]
                output.evalue = without_addresses(output.evalue)
    return notebook


def whole_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join the pieces of a cell's printed text, because each run divides the text differently."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        is_stream = output.output_type == "stream"
        if is_stream and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def without_addresses(text: str) -> str:
    """Replace addresses of host memory in text and images, because they differ in each run."""

    def in_image(found: re.Match[str]) -> str:
        svg = without_addresses(base64.b64decode(found[1]).decode())
        return IMAGE + base64.b64encode(svg.encode()).decode()

    text = re.sub(f"{re.escape(IMAGE)}([A-Za-z0-9+/=]+)", in_image, text)
    return re.sub("0x[0-9a-f]{12}(?![0-9a-f])", "0x" + 12 * "·", text)


def draw_readme_figures() -> None:
    """Write the figures that the README shows."""
    FIGURES.mkdir(exist_ok=True)
    for name, arguments in README_FIGURES.items():
        command = [sys.executable, "-m", "tma_dlpack", "draw", *arguments.split()]
        subprocess.run([*command, "--out", str(FIGURES / name)], check=True)


def main() -> None:
    """Run the notebooks that the command line names, or all notebooks."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb"))
    for path in paths:
        nbformat.write(stored(execute(path)), path)
        print(f"{path.name} done")
    draw_readme_figures()


if __name__ == "__main__":
    main()
