"""The pictures and exercises of the course's notebooks, in addition to the package's figures.

`ask` asks the reader to click a cell of a figure, and `answer` folds what answers the question;
`contrast` shows one load as threads and as TMA do it, `sixteen_bytes` the rules of 16 bytes, `bars`
what was measured; `source` reads a kernel's file function by function. `judged` has what the judges
of exercises share, `puzzles` the kernels to write and their judge.
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
