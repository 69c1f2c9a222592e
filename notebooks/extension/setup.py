"""Build the operator with setuptools, for the installed versions of Python and torch (with CUDA).

Run ``python setup.py build_ext --inplace``, or ``python setup.py bdist_wheel`` for a wheel. The
wheel that pyproject.toml builds uses torch's stable ABI instead. One such wheel works with every
version of Python, and with torch 2.10 and later.
"""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

import tma_dlpack

setup(
    name="tma_example",
    py_modules=["tma_example"],
    ext_modules=[
        CUDAExtension(
            "_tma_example",
            ["double_tiles.cu", "torch_operator.cpp"],
            include_dirs=[tma_dlpack.get_include()],
            # Hopper only. Add a -gencode for each other architecture.
            extra_compile_args={"cxx": [], "nvcc": ["-gencode=arch=compute_90a,code=sm_90a"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
