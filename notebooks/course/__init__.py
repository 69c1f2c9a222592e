"""What the notebooks of the course draw beside the package's own figures.

`ask` asks the reader to click a cell of a figure, `contrast` shows one load as threads and as TMA
do it, `sixteen_bytes` the rules of 16 bytes.
"""

from course.ask import Question, ask
from course.contrast import Contrast, contrast
from course.sixteen import SixteenBytes, sixteen_bytes

__all__ = ["Contrast", "Question", "SixteenBytes", "ask", "contrast", "sixteen_bytes"]
