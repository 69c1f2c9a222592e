"""Build the operator: python setup.py build_ext --inplace, or pip install --no-build-isolation ."""

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
            extra_compile_args={"cxx": [], "nvcc": ["-gencode=arch=compute_90a,code=sm_90a"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
