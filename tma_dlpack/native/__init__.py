"""All C of the package: one extension module, and the library that `trace` loads into programs.

`_core` (`core.c` and the headers that it includes) has the base class of `TensorMap` and the verbs
that make and check maps: `storage.h` and `map.h` the object, `options.h` and `tensors.h` read the
arguments, `calls.h`, `bare.h` and `batch.h` make maps, `judged.h` is a refused call, `quick.h` the
public functions, `state.h` what they share. What it describes, judges and encodes is
`include/tma_dlpack_make.h`, without Python, which C++ extensions and the page compile too.

`page.c` is the same core for the explorer's page, compiled to WebAssembly: `page.wasm` is checked
in, and .packaging/page_core.py compiles it. `inject.c`, `lines.h` and `cupti.h` are
`debug/trace/_inject`, which has no Python.

Both are optional: without a C compiler the package does the same in Python, so import `_core` where
`tensor_map/storage.py` and `make/extension.py` do, and nowhere else.
"""
