"""Questions about a picture. The reader clicks a cell, and reads whether this cell is correct."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tma_dlpack.draw.figure import TEXT_COLUMNS, Figure, panel_row, require, script_source
from tma_dlpack.draw.grid import Cell, Grid, Scene, lay_out, text_width
from tma_dlpack.tables.coerce import shown
from tma_dlpack.tables.errors import argument_error, bad_value

CHOICE_HEIGHT, LEAST_CHOICE = 26, 44  # px
#: Characters that may follow the letters of a key: the key ``c3.8`` ends with ``3.8``.
DIGITS = "-.0123456789"
OTHERWISE = "Not this one. Try another, or open the answer."
#: Text below a question. If scripts run, a script removes this text.
UNJUDGED = (
    "Clicks are not judged here: scripts run only in a trusted notebook. In JupyterLab, run all "
    "cells first (Run > Run All Cells). The answer can be opened."
)
SUMMARY = "What the library answers"
QUESTION = "font-weight:bold;margin-top:10px;max-width:62em"


@dataclass(frozen=True, slots=True, repr=False)
class Cells(Figure):
    """Rows of words, drawn as cells. All words differ. The key of a cell is its word.

    >>> print(Cells("two threads", (("T0 d0", "T0 d1"), ("T1 d0", "T1 d1"))))
    two threads
    T0 d0   T0 d1
    T1 d0   T1 d1
    """

    title: str
    rows: tuple[tuple[str, ...], ...]

    def scenes(self) -> tuple[Scene, ...]:
        """Return one panel with the cells."""
        widest = max(text_width(word) for row in self.rows for word in row)
        cells = [
            Cell(x, y, "cell", word, key=word)
            for y, row in enumerate(self.rows)
            for x, word in enumerate(row)
        ]
        unit = max(LEAST_CHOICE, widest + 16), CHOICE_HEIGHT
        return (lay_out(f"cells: {', '.join(self.keys)}", [Grid(tuple(cells), unit)]),)

    @property
    def keys(self) -> tuple[str, ...]:
        """All words, row by row."""
        return tuple(word for row in self.rows for word in row)

    def text(self) -> str:
        """Return the words, a line per row."""
        return "\n".join([self.title, *("   ".join(row) for row in self.rows)])


@dataclass(frozen=True, slots=True, repr=False)
class Question(Figure):
    """A question that the reader answers by a click on a cell of a figure.

    Attributes
    ----------
    figure : Figure
        The figure below the question. It is drawn without the titles of its cells, because a
        title may contain the answer.
    answers : tuple of str
        The keys of the correct cells.
    because : str
        Why the answer is correct. A click on a correct cell shows this text. The reader can also
        unfold the text below the picture.
    hints : dict
        Key of a wrong cell -> why this cell is wrong.
    is_blank : bool
        True to hide the words and the tint of every cell of the same kind as the correct cells,
        so that these cells look the same. The kind of a cell is the letters at the start of its
        key.
    """

    title: str
    figure: Figure
    answers: tuple[str, ...]
    because: str
    hints: Mapping[str, str] = field(default_factory=dict)
    is_blank: bool = False

    def scenes(self) -> tuple[Scene, ...]:
        """Return the panels of the figure, without the parts that would answer the question."""
        scenes = self.figure.scenes()
        asked = [[self._asked(c) for c in s.items if c.style != "focus"] for s in scenes]
        return tuple(replace(s, items=tuple(a)) for s, a in zip(scenes, asked, strict=True))

    def _asked(self, cell: Cell) -> Cell:
        # If the reader hovers over a cell, the title, the links or a key that names a state
        # ("is-...") could show the answer.
        key = "" if cell.key.startswith("is-") else cell.key
        cell = replace(cell, title="", to=(), key=key)
        is_hidden = self.is_blank and _kind(cell.key) in map(_kind, self.answers)
        return replace(cell, style="cell", text="", hatched=False) if is_hidden else cell

    def panels(self) -> str:
        """Return the HTML of question, picture, verdict and folded answer.

        If scripts run, a script judges each click. Without scripts, the reader can only unfold
        the answer.
        """
        # ask.js reads the following facts from the attribute `data-ask`.
        facts = {"right": self.answers, "because": self.because, "hints": dict(self.hints)}
        asked = html.escape(json.dumps({**facts, "otherwise": OTHERWISE}), quote=True)
        because = html.escape(self.because)
        return (
            f'<div class="tma-ask" data-ask="{asked}">'
            f'<div class="tma-title" style="{QUESTION}">'
            f"Predict, and click: {html.escape(self.title)}</div>"
            f"{panel_row(self)}"
            f'<p class="tma-unjudged"><small>{UNJUDGED}</small></p>'
            f"<details><summary>Answer</summary><p>{because}</p></details></div>"
            f"<script>(() => {{\n{script_source(Path(__file__).parent / 'ask.js')}\n}})();</script>"
        )

    def text(self) -> str:
        """Return the question and its answer."""
        question = textwrap.wrap(self.title, TEXT_COLUMNS)
        return "\n".join([*question, *textwrap.wrap(f"answer: {self.because}", TEXT_COLUMNS)])


def ask(
    figure: Figure | Sequence[Sequence[str]],
    question: str,
    answer: str | Collection[str],
    because: str,
    hints: Mapping[str, str] | None = None,
    *,
    blank: bool = False,
) -> Question:
    """Ask the reader of a notebook to click a cell of a figure, and judge the click.

    Parameters
    ----------
    figure : Figure, or rows of words
        Any figure whose cells have keys. In `tma_dlpack.draw.shared`, ``c3.8`` is the chunk that
        begins with element 8 of row 3, and ``bank5`` is banks 20 to 23. In `tma_dlpack.draw.walk`,
        ``row7`` is the pixel that becomes row 7 of the tile. Rows of words are drawn as cells to
        choose from.
    question : str
        At most 100 characters.
    answer : str or collection of str
        Keys of the correct cells. In rows of words, the key of a cell is its word.
    because : str
        Why the answer is correct. A click on a correct cell shows this text. The reader can also
        unfold the text below the picture.
    hints : dict, optional
        Key of a wrong cell -> the text to show after a click on this cell.
    blank : bool
        Draw all cells of the same kind as the correct cells (all chunks, or all banks) without
        words and tint.

    Returns
    -------
    Question
        If no script runs, as in an untrusted notebook, the reader can still unfold the answer.

    Raises
    ------
    TmaPreconditionError
        If an argument has a wrong type, the question is too long, or no cell of the figure has the
        key of an answer or a hint.

    Examples
    --------
    >>> print(ask([["512", "1024"]], "How many bytes are 8 x 64 float16?", "1024", "8 x 128."))
    How many bytes are 8 x 64 float16?
    answer: 8 x 128.
    """
    for name, value in (("question", question), ("because", because)):
        require(name, value, (str,), "pass a sentence")
    if not 0 < len(question) <= TEXT_COLUMNS:
        found = f"question has {len(question)} characters"
        fix = "shorten it, and explain in a cell above"
        raise argument_error("question", found, f"have 1..{TEXT_COLUMNS}", fix)
    if not isinstance(figure, Figure):
        figure = _choices(figure, question)
    answers = (answer,) if isinstance(answer, str) else tuple(answer)
    hints = dict(hints or {})
    # Refuse a key that no cell has, because no click could select this key.
    keys = {cell.key for scene in figure.scenes() for cell in scene.items} - {""}
    for name, named in (("answer", answers), ("hints", hints)):
        for key in named:
            if key not in keys:
                some = ", ".join(sorted(keys)[:6])
                must = f"name cells of the figure, such as {some}"
                raise argument_error(
                    name, f"{name} has {shown(key)}", must, "pass the key of a cell"
                )
    if not answers:
        raise argument_error("answer", "answer is empty", "name at least one cell", "pass its key")
    return Question(question, figure, answers, because, hints, bool(blank))


@contextmanager
def answer() -> Iterator[None]:
    """Fold the output of the ``with`` block until the reader tries the question above the block.

    JupyterLab unfolds the output of every cell that it runs, so the output itself must be foldable.
    """
    from IPython.display import display
    from IPython.utils.capture import capture_output

    with capture_output(stderr=False) as captured:
        yield
    display(folded(captured.stdout, [output.data for output in captured.outputs]), raw=True)


def folded(printed: str, shown: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return one folded output that contains the printed text and the displayed data.

    >>> folded("2 < 3", [])["text/html"].removeprefix('<details class="tma-answer">')
    '<summary>What the library answers</summary><pre>2 &lt; 3</pre></details>'
    """
    # A viewer without HTML shows `plain`, which is not folded.
    plain = [text for text in (printed.rstrip(), *(data["text/plain"] for data in shown)) if text]
    parts = [f"<pre>{html.escape(printed)}</pre>"] if printed else []
    parts += [
        data.get("text/html") or f"<pre>{html.escape(data['text/plain'])}</pre>" for data in shown
    ]
    details = f'<details class="tma-answer"><summary>{SUMMARY}</summary>{"".join(parts)}</details>'
    return {"text/html": details, "text/plain": "\n".join(plain)}


def _kind(key: str) -> str:
    """Return the letters that a key begins with."""
    return key.rstrip(DIGITS)


def _choices(rows: object, question: str) -> Cells:
    must = "be a Figure, or a list of rows of different words"
    fix = 'pass draw.shared(tensor_map), or [["yes", "no"]]'
    if isinstance(rows, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in rows):
        # A word is the key of its cell, so no word may occur twice.
        words = [word for row in rows for word in row]
        if words and all(isinstance(w, str) and w for w in words) and len({*words}) == len(words):
            return Cells(question, tuple(map(tuple, rows)))
    raise bad_value("figure", rows, must, fix)
