"""The public functions that make maps: `make_*`, `check_*` and `driver_encode_*`.

If the optional C extension is built (`native/core.c`, set up by `extension.py`), each function
calls C first. If C accepts the call, the function returns C's result. Otherwise `build.py` executes
the call in Python: it views the tensor (`dlpack`), parses the arguments into a `Request` and checks
the request (`checks`), encodes the bytes, and makes a `TensorMap`. The rules of a call are rows of
tables in the package `checks`. C and Python both check these rules. C must accept only calls that
Python accepts, and must make the same bytes; tests/make/test_extension.py verifies this with random
calls.

To add an option of `make_tma_descriptor`:

- add an `Option` to `RARE_OPTIONS` in tables/arguments.py; its field `form` is the type of the
  values (flag, integer or integers), and determines how Python and C read them;
- add the parameter and its description to `descriptors.py`;
- implement the option in C, in `tma_dlpack_describe` or `tma_dlpack_extend` of
  include/tma_dlpack_make.h;
- implement the option in Python, in `describe` of checks/struct.py or in
  `Request.encode_arguments` of checks/request.py;
- if the option has a rule, add a row for the rule to a table of `checks`, and add each new number
  that the rule reads to `STRUCT` in checks/struct.py; the docstring of `checks` lists the steps.

The functions `check_*`, batches, `torch_ops`, C++ and `explain` then have the option too. Some
options, such as `swizzle` and `allow`, have values that fit no `form`. Read such an option in a
function of its own in `native/options.h`, and in `checks.call.read_call`. A helper that only
computes arguments, such as `split_inner`, is a function of `recipes.py` that returns a dict of
keyword arguments.
"""
