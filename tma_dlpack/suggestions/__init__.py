"""Which box, swizzle and L2 fetch size: `suggest`, and `bandwidth`, which measures them.

`tile_suggestions.py` has `suggest` and its result, `reasons.py` the sentences of the result,
`tile_choices.py` the boxes and swizzles that can serve a reader, `speeds.py` the measured tables
that rank them, one per card (``python tests/bench tiles`` prints one). `tile_bandwidth.py` has
`bandwidth`, `pipeline.py` the kernel that both measure with.
"""
