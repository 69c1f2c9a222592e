"""Figures, questions and exercises of the course's notebooks.

`ask` asks the reader to click a cell of a figure, and `answer` folds the output that answers the
question. `contrast` shows one load by threads and by TMA, `sixteen_bytes` shows the rules of 16
bytes, and `bars` shows measured numbers. `source` reads a kernel's file and returns single
functions of it. The module `judged` has helpers for the judges of the exercises. The module
`puzzles` has the kernels to write, and their judge.
"""

from course.ask import Cells, Question, answer, ask, folded
from course.bars import LADDER, Bars, bars, ladder
from course.contrast import Contrast, contrast
from course.judged import counted_copies, without_traceback
from course.sixteen import SixteenBytes, sixteen_bytes
from course.source import Source, difference, source

__all__ = [
    "LADDER",
    "Bars",
    "Cells",
    "Contrast",
    "Question",
    "SixteenBytes",
    "Source",
    "answer",
    "ask",
    "bars",
    "contrast",
    "counted_copies",
    "difference",
    "folded",
    "ladder",
    "sixteen_bytes",
    "source",
    "without_traceback",
]
