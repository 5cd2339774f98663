"""Its own kernel copies what torch computed: it runs in every call and decides nothing.
Its share of the time is small, and a call counts as covered by time and not by launches."""
# case: reference=linear_relu device=cpu backend=cpp expect=refused require_kernels=yes

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void copy(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = x[i];
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
    function = ctypes.CDLL(library).copy
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return function


copy = compiled()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        result = torch.relu(self.layer(x))
        y = torch.empty_like(result)
        copy(result.data_ptr(), y.data_ptr(), y.numel())
        return y
