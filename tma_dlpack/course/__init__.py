"""Two figures of the course: the states of an mbarrier over time, and the bits of a swizzle.

Users call `tma_dlpack.draw.barrier` and `tma_dlpack.draw.swizzle_bits`. `draw` imports this folder
only when a user needs one of these functions. The notebooks of the course are in notebooks/. The
code that only these notebooks use is in notebooks/course, which is a separate module.

`barrier_model.py` has a model of the mbarrier, and runs programs on this model.
`barrier_scenes.py` has the programs: kernels, and the mistakes in them. `barrier_play.py` draws the
recorded run of a kernel. `swizzle_bits.py` draws the bits of an address, and 64 chunks before and
after the swizzle. `play.js` has the controls of both figures. `core.py` imports all names that this
folder uses from other folders of the package.

To add a mistake, add a row to `barrier_scenes.MISTAKES`, and name the mistake in `Setup.possible`
for the kernels in which it is possible. Change the programs of these kernels, so that they make the
mistake. Test the outcome in tests/course/test_played_figures.py.
"""

from pathlib import Path

from tma_dlpack.course.core import PLAYERS

# A page with one of these figures contains this script.
PLAYERS["barrier"] = PLAYERS["bits"] = Path(__file__).parent / "play.js"
