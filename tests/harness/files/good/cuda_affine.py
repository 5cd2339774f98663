import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void affine_kernel(const float* x, float* y, long n) {
    long i = blockIdx.x * (long) blockDim.x + threadIdx.x;
    if (i < n) y[i] = (x[i] < 0.f ? 0.f : x[i]) * 2.f + 1.f;
}

torch::Tensor affine(torch::Tensor x) {
    auto y = torch::empty_like(x);
    long n = x.numel();
    affine_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""

module = load_inline("affine", cpp_sources="torch::Tensor affine(torch::Tensor x);", cuda_sources=CUDA, functions=["affine"])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.affine(x)
