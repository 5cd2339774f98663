"""Example candidate files by back end: rules in a sentence or two, and a whole example that the judge accepts.

The examples answer one reference, `relu(x + bias)`:

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.bias = nn.Parameter(torch.randn(width))
        def forward(self, x):
            return torch.relu(x + self.bias)
"""

from __future__ import annotations

from collections.abc import Mapping

from dvk.records import BackendName

TITLES: Mapping[BackendName, str] = {"triton": "Triton", "cuda": "CUDA C++", "cpp": "C++"}

RULES: Mapping[BackendName, str] = {
    "triton": "Kernels are `@triton.jit` functions in the file; `ModelNew.forward` allocates outputs and launches them.",
    "cuda": "Kernels are CUDA C++ in a string, compiled by `torch.utils.cpp_extension.load_inline` when the file is imported, "
    "with C++ functions in `cuda_sources` that launch them.",
    "cpp": 'Kernels are `extern "C"` functions in a string, compiled with g++ when the file is imported and called through ctypes '
    "with `data_ptr()`; OpenMP and the machine's vector instructions are available.",
}

EXAMPLES: Mapping[BackendName, str] = {
    "triton": """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_relu(x, bias, y, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask) + tl.load(bias + i % width, mask=mask)
    tl.store(y + i, tl.maximum(v, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        bias_relu[(triton.cdiv(n, 1024),)](x, self.bias, y, n, self.bias.numel(), BLOCK=1024)
        return y
""",
    "cuda": '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>

__global__ void bias_relu_kernel(const float* x, const float* bias, float* y, long n, long width) {
    long i = blockIdx.x * (long) blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + bias[i % width], 0.f);
}

torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias) {
    auto y = torch::empty_like(x);
    long n = x.numel();
    bias_relu_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), n, bias.numel());
    return y;
}
"""

kernels = load_inline("bias_relu", cpp_sources="torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias);",
                      cuda_sources=CUDA, functions=["bias_relu"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return kernels.bias_relu(x.contiguous(), self.bias)
''',
    "cpp": '''\
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void bias_relu(const float* x, const float* bias, float* y, long rows, long width) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < width; c++) {
            float v = x[r * width + c] + bias[c];
            y[r * width + c] = v > 0 ? v : 0;
        }
}
"""


def compiled(source):
    folder = tempfile.mkdtemp()
    text, library = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
    with open(text, "w") as file:
        file.write(source)
    subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", text, "-o", library], check=True)
    return ctypes.CDLL(library)


bias_relu = compiled(SOURCE).bias_relu
bias_relu.argtypes, bias_relu.restype = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2, None


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        width = self.bias.numel()
        bias_relu(x.data_ptr(), self.bias.data_ptr(), y.data_ptr(), x.numel() // width, width)
        return y
''',
}
