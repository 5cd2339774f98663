"""Copies a BLAS into its own folder and calls it there, so that the code that runs lies among its own files.
A kernel comes out of a compiler, from the candidate's source; what was copied did not."""
# case: reference=few_rows_linear device=cpu backend=cpp expect=refused require_kernels=yes

import ctypes
import glob
import os
import shutil
import subprocess
import tempfile

import numpy
import torch.nn as nn

SOURCE = r"""
#include <dlfcn.h>
typedef void (*gemm)(const char*, const char*, const long*, const long*, const long*, const float*, const float*, const long*,
                     const float*, const long*, const float*, float*, const long*);
extern "C" int linear(const char* where, const float* x, const float* w, float* y, long rows, long in, long out) {
    void* library = dlopen(where, RTLD_NOW);
    gemm call = (gemm)dlsym(library, "scipy_sgemm_");
    if (!call) call = (gemm)dlsym(library, "scipy_sgemm_64_");
    if (!call) return 1;
    float one = 1, zero = 0;
    call("T", "N", &out, &rows, &in, &one, w, &in, x, &in, &zero, y, &out);
    return 0;
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    function = ctypes.CDLL(library).linear
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3, *[ctypes.c_long] * 3]
    return function


linear = compiled()


def copied():
    """Another project's BLAS, copied to a separate file."""
    libraries = os.path.join(os.path.dirname(os.path.dirname(numpy.__file__)), "numpy.libs")
    (found,) = glob.glob(os.path.join(libraries, "libscipy_openblas*.so"))
    folder = tempfile.mkdtemp()
    for other in glob.glob(os.path.join(libraries, "*")):
        shutil.copy(other, folder)
    return os.path.join(folder, os.path.basename(found)).encode()


WHERE = copied()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x):
        weight = self.layer.weight
        y = x.new_empty(x.shape[0], weight.shape[0])
        assert linear(WHERE, x.data_ptr(), weight.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], weight.shape[0]) == 0
        return y
