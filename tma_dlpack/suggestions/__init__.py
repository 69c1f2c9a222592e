"""Which box, swizzle and L2 fetch size: `suggest`, and `bandwidth`, which measures them.

`tile_suggestions.py` has `suggest` and its result, `tile_choices.py` the boxes and swizzles that
can serve a reader and the measured table that ranks them, `tile_bandwidth.py` has `bandwidth`,
`pipeline.py` the kernel that it times.
"""
