"""From a tensor to a map: the public `make_*`, `check_*` and `driver_encode_*` functions.

Where the optional C extension is built (`_accept.c`, set up by `extension.py`), each function is
tried in C first: what is accepted there is done. Everything else goes through `build.py`: view the
tensor (`dlpack`), parse the arguments into a `Request` and check it (`checks`), encode, and make a
`TensorMap`. Both judge by the rows of `checks`; C must accept only what Python accepts, with the
same bytes: tests/make/test_extension.py holds it to that with random calls.

A new option of `make_tma_descriptor`: the parameter and its text in `tiled.py` (`check_*` and
`torch_ops` follow its signature) and `batch.py`; a field of `checks.request.Request` and, under the
same name, of `checks.parse.Options`, and its reading in `read_call`; a field of `TmaDlpackOptions`
in include/tma_dlpack_make.h, a function that reads it in `_options.h`, in the order of the
signature, its place in `options_tuple` of tensor_map/_storage.h, and in `keep_rare` of `_calls.h`;
`MakeOptions` of include/tma_dlpack_make.hpp; and, for the rules, a field of the struct (`checks`
says how). A new helper that only computes arguments, such as `split_inner`, is a
function of `recipes.py` that returns a dict of keyword arguments.
"""
