"""A KernelBench-style extension that launches on the caller's stream."""
# case: reference=rows_softmax device=cuda backend=cuda expect=ok

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void rows(const float* x, float* y, int n) {
    const float* from = x + (long long)blockIdx.x * n;
    float* to = y + (long long)blockIdx.x * n;
    __shared__ float shared[256];
    float top = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) top = fmaxf(top, from[i]);
    shared[threadIdx.x] = top;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    top = shared[0];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) sum += expf(from[i] - top);
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    sum = shared[0];
    for (int i = threadIdx.x; i < n; i += 256) to[i] = expf(from[i] - top) / sum;
}
torch::Tensor softmax(torch::Tensor x) {
    auto y = torch::empty_like(x);
    rows<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1));
    return y;
}
"""

extension = load_inline(
    "d20_current_stream", cpp_sources="torch::Tensor softmax(torch::Tensor x);", cuda_sources=CUDA, functions=["softmax"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
