"""The kernel of double_tiles.cu for jax.jit. The module builds and registers jax_handler.cpp."""

import ctypes
import subprocess
from pathlib import Path

import jax

import tma_dlpack

HERE = Path(__file__).parent
LIBRARY = HERE / "libtma_example_jax.so"

if not LIBRARY.exists():
    flags = ["-shared", "-std=c++17", "-Xcompiler=-fPIC", "-gencode=arch=compute_90a,code=sm_90a"]
    include = [f"-I{tma_dlpack.get_include()}", f"-I{jax.ffi.include_dir()}"]
    sources = [HERE / "double_tiles.cu", HERE / "jax_handler.cpp"]
    subprocess.run(["nvcc", *flags, *include, *sources, "-o", LIBRARY], check=True)

# `Doubled` is the symbol that XLA_FFI_DEFINE_HANDLER_SYMBOL defines in jax_handler.cpp.
handler = jax.ffi.pycapsule(ctypes.CDLL(str(LIBRARY)).Doubled)
jax.ffi.register_ffi_target("tma_example_doubled", handler, platform="CUDA")


@jax.jit
def doubled(x: jax.Array) -> jax.Array:
    """Return 2 * x for a float32 matrix on a GPU with TMA."""
    return jax.ffi.ffi_call("tma_example_doubled", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
