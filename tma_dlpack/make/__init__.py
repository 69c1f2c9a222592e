"""From a tensor to a map: the public `make_*`, `check_*` and `driver_encode_*` functions.

An ordinary call takes the short cut (`accept.py`, or `_accept.c` where it is compiled), which
returns a map or None. After None, and for every `check_*`, `build.py` takes the long road: look at
the tensor (`dlpack`), parse the arguments into a `Request` and check it (`rules`), encode
(`encode.py`), and make a `TensorMap`. The short cut must accept only what the rules accept, with
the same bytes: tests/make/test_shortcut.py holds it to that with random requests.

A new option of `make_tma_descriptor`: add the parameter in `tiled.py` (`check_tma_descriptor` has
the same ones), its name in `rules.parse.OPTIONS`, and its reading in `rules/parse.py`; in
`shortcut._EXTRAORDINARY` list it if the short cut should leave it to the rules. A new helper that
only computes arguments, such as `split_inner`, is a module of its own that returns a dict of
keyword arguments.
"""
