"""All C of the package: one extension module, and the library that `trace` loads into programs.

`_core` (`core.c` and the headers that it includes) has the base class of `TensorMap` and the verbs
that make and check maps. `storage.h` and `map.h` have the object; `options.h` and `tensors.h` read
the arguments; `calls.h`, `bare.h` and `batch.h` make maps; `judged.h` has the object of a refused
call, `quick.h` the public functions, and `state.h` the state that all of them share. The functions
that describe, judge and encode a call are in `include/tma_dlpack_make.h`, which needs no Python;
C++ extensions and the page compile this header too.

`page.c` exports the same functions to the explorer's page as WebAssembly. `page.wasm` is checked
in; .packaging/page_core.py compiles it. `inject.c`, `lines.h` and `cupti.h` are the source of
`debug/trace/_inject`, which needs no Python.

Both libraries are optional: without a C compiler the package does the same in Python. So import
`_core` only in `tensor_map/storage.py` and `make/extension.py`.
"""
