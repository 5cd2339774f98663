"""A CUDA kernel with coefficients in constant memory and a __device__ counter that it does not read."""
# case: reference=cosine device=cuda backend=cuda expect=ok

import torch
import torch.nn as nn

KERNEL = r"""
__constant__ double scale[2] = {1.0, 1.0};
extern "C" __global__ void cosine(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (float) (scale[i & 1] * cos((double) x[i]));
}
"""


class ModelNew(nn.Module):
    kernel = None

    def forward(self, x):
        if self.kernel is None:
            ModelNew.kernel = staticmethod(torch.cuda._compile_kernel(KERNEL, "cosine"))
        y = torch.empty_like(x)
        self.kernel(grid=((x.numel() + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, x.numel()])
        return y
