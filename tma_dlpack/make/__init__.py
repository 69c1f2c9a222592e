"""From a tensor to a map: the public `make_*`, `check_*` and `driver_encode_*` functions.

If the optional C extension is built (`native/core.c`, set up by `extension.py`), each function is
tried in C first; a call that C accepts is complete. Everything else goes through `build.py`: view
the tensor (`dlpack`), parse the arguments into a `Request` and check it (`checks`), encode, make a
`TensorMap`. Both judge by the rows of `checks`. C must accept only calls that Python accepts, with
the same bytes; tests/make/test_extension.py checks this with random calls.

A new option of `make_tma_descriptor` is a row of `RARE_OPTIONS` in tables/arguments.py (its form
says how Python and C read and keep it), the parameter and its text in `descriptors.py`, and what it
does: a line of `tma_dlpack_describe` or `tma_dlpack_extend` in include/tma_dlpack_make.h, and one
of `describe` in checks/struct.py or of `Request.encode_arguments` in checks/request.py. `check_*`,
batches, `torch_ops`, C++ and `explain` follow. A rule of it is a row, and a field that the rule
reads another (`checks` says how). An option without such a form, such as `swizzle` and `allow`, has
its own function in `native/options.h`, and is read in `checks.call.read_call`. A new helper that
only computes arguments, such as `split_inner`, is a function of `recipes.py` that returns a dict of
keyword arguments.
"""
