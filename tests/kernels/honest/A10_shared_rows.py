"""Stages whole rows in shared memory and reads what it staged."""
# case: reference=affine device=cuda backend=cuda expect=ok

import torch
import torch.nn as nn

KERNEL = r"""
extern "C" __global__ void rows(const float* x, float* y, int width) {
    extern __shared__ float tile[];
    const float* row = x + (long long) blockIdx.x * width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) tile[i] = row[i];
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        y[(long long) blockIdx.x * width + i] = (tile[i] < 0.f ? 0.f : tile[i]) * 2.f + 1.f;
}
"""


class ModelNew(nn.Module):
    kernel = None

    def forward(self, x):
        if self.kernel is None:
            ModelNew.kernel = staticmethod(torch.cuda._compile_kernel(KERNEL, "rows"))
        y = torch.empty_like(x)
        width = x.shape[-1]
        self.kernel(grid=(x.numel() // width, 1, 1), block=(256, 1, 1), args=[x, y, width], shared_mem=4 * width)
        return y
