"""A CUDA softmax with sums in shared memory that every block writes before it reads."""
# case: reference=attention_weights device=cuda backend=cuda expect=ok

import torch
import torch.nn as nn

KERNEL = r"""
__device__ float over(float v, float* part, bool largest) {
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) {
            float other = part[threadIdx.x + half];
            part[threadIdx.x] = largest ? fmaxf(part[threadIdx.x], other) : part[threadIdx.x] + other;
        }
        __syncthreads();
    }
    v = part[0];
    __syncthreads();
    return v;
}
extern "C" __global__ void rows(const float* x, float* y, int width) {
    __shared__ float part[256];
    const float* in = x + (long long) blockIdx.x * width;
    float* out = y + (long long) blockIdx.x * width;
    float top = in[0], sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, in[i]);
    top = over(top, part, true);
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += expf(in[i] - top);
    sum = over(sum, part, false);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = expf(in[i] - top) / sum;
}
"""


class ModelNew(nn.Module):
    kernel = None

    def forward(self, x):
        if self.kernel is None:
            ModelNew.kernel = staticmethod(torch.cuda._compile_kernel(KERNEL, "rows"))
        y = torch.empty_like(x)
        width = x.shape[-1]
        self.kernel(grid=(x.numel() // width, 1, 1), block=(256, 1, 1), args=[x, y, width])
        return y
