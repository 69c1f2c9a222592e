"""From a tensor to a map: the public `make_*`, `check_*` and `driver_encode_*` functions.

Where the optional C extension is built (`native/core.c`, set up by `extension.py`), each function
is tried in C first. A call that C accepts is finished in C. Every other call goes through
`build.py`: view the tensor (`dlpack`), parse the arguments into a `Request` and check it
(`checks`), encode, make a `TensorMap`. Python and C judge by the same rows of `checks`. C must
accept only calls that Python accepts, and make the same bytes; tests/make/test_extension.py
compares the two with random calls.

A new option of `make_tma_descriptor` needs four additions:

- a row of `RARE_OPTIONS` in tables/arguments.py; the form in this row says how Python and C read
  and store the option;
- the parameter and its text in `tiled.py`;
- for its effect in C, a line of `tma_dlpack_describe` or `tma_dlpack_extend` in
  include/tma_dlpack_make.h;
- for its effect in Python, a line of `describe` in checks/columns.py or of
  `Request.encode_arguments` in checks/request.py.

`check_*`, batches, `torch_ops`, C++ and `explain` then have the option too. A rule for the option
is a new row in `checks`, and each new field that the rule reads is a row as well; the docstring of
`checks` says how. An option that no form describes, such as `swizzle` and `allow`, has its own
function in `native/options.h`, and `checks.parse.read_call` reads it. A new helper that only
computes arguments, such as `split_inner`, is a function of `recipes.py` that returns a dict of
keyword arguments.
"""
