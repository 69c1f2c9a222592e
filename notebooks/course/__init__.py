"""Figures, questions and exercises of the course's notebooks.

`ask` asks the reader to click a cell of a figure, and `answer` folds the output that answers the
question. `contrast` shows one load by threads and by TMA. `sixteen_bytes` shows which sizes of a
tensor and a box are multiples of 16 bytes. `bars` shows measured numbers. `source` reads the file
of a kernel, so that a chapter can print single functions of the file. The module `judged` has
helpers for the cells that judge an exercise. The module `puzzles` has twelve tasks to write a
kernel, and a function that judges an answer.
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
