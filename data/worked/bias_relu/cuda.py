import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void bias_relu_kernel(const float* x, const float* bias, float* y, long n, long width) {
    long i = blockIdx.x * (long) blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + bias[i % width], 0.f);
}

torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias) {
    auto y = torch::empty_like(x);
    long n = x.numel();
    bias_relu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), n, bias.numel());
    return y;
}
"""

kernels = load_inline(
    "bias_relu",
    cpp_sources="torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=CUDA,
    functions=["bias_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return kernels.bias_relu(x.contiguous(), self.bias)
