"""The C code of the package: the extension module `_core`, a WebAssembly module, and `_inject`.

`_core` has the base class of `TensorMap`, and C versions of the functions that make and check maps.
The source of `_core` is `core.c`, which includes these headers: `storage.h` and `map.h` have the
base class, `options.h` and `tensors.h` read the arguments, `calls.h`, `bare.h` and `batch.h` make
maps, `judged.h` has the object of a refused call, `quick.h` has the public functions, and `state.h`
has the state of the module. The functions that describe, judge and encode a call are in
`include/tma_dlpack_make.h`, which needs no Python. C++ extensions compile this header, too.

`page.c` exports the functions of `include/tma_dlpack_make.h` to the explorer's page as WebAssembly.
.packaging/page_core.py compiles `page.c` to `page.wasm`, which is checked in.

`inject.c`, `lines.h` and `cupti.h` are the source of `debug/trace/_inject`, the library that
`trace` loads into a program. The library needs no Python.

`_core` and `_inject` are optional. If `_core` was not built, Python code replaces it. So import
`_core` only in `tensor_map/storage.py` and `make/extension.py`, which handle a missing `_core`.
"""
