"""Its own C++ is a shell around the BLAS in torch's library, found with dlsym: the symbol is its own, the time is not.
Whose code runs is decided by where the time is spent or by what the library takes from others."""
# case: reference=few_rows_linear device=cpu backend=cpp expect=refused require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <dlfcn.h>
typedef void (*gemm)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                     const float*, const int*, const float*, float*, const int*);
extern "C" int linear(const char* where, const float* x, const float* w, float* y, int rows, int in, int out) {
    void* library = dlopen(where, RTLD_NOW | RTLD_NOLOAD);
    char name[] = {'s', 'g', 'e', 'm', 'm', '_', 0};
    gemm call = (gemm)dlsym(library, name);
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
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3, *[ctypes.c_int] * 3]
    return function


linear = compiled()
WHERE = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so").encode()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x):
        weight = self.layer.weight
        y = x.new_empty(x.shape[0], weight.shape[0])
        assert linear(WHERE, x.data_ptr(), weight.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], weight.shape[0]) == 0
        return y
