"""The figures that teach: an mbarrier that is played, and the address bits of a swizzle.

Users call them as `tma_dlpack.draw.barrier` and `tma_dlpack.draw.swizzle_bits`; `draw/` finds them
by their names. The notebooks of the course are in notebooks/, and their own code is another module,
notebooks/course.

`barrier_model.py` is a model of the mbarrier that plays programs. `barrier_scenes.py` has the
kernels and their mistakes, and `barrier_play.py` draws a kernel that was played.
`swizzle_bits.py` draws the bits of an address, and 64 chunks before and after the swizzle.
`play.js` has the controls of both figures. `core.py` lists what this folder uses of the core.

A new mistake: a row of `barrier_scenes.MISTAKES`, the kernels that can make it in
`Setup.possible`, and its outcome in tests/course/test_played_figures.py.
"""

from pathlib import Path

from tma_dlpack.course.core import PLAYERS

# The pages that show such a figure contain its script.
PLAYERS["barrier"] = PLAYERS["bits"] = Path(__file__).parent / "play.js"
