import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

// One block a row. Each thread sums its elements, warps reduce by shuffles, one value a warp goes through shared memory.
__global__ void row_scale_kernel(const float* x, const float* weight, float* y, int width) {
    const float* row = x + (long) blockIdx.x * width;
    float* out = y + (long) blockIdx.x * width;
    float sum = 0.f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += fabsf(row[i]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    __shared__ float parts[32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.f;
    for (int w = 0; w < blockDim.x / 32; w++) total += parts[w];
    float scale = 1.f / (1.f + total / width);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = tanhf(row[i] * scale) * weight[i];
}

torch::Tensor row_scale(torch::Tensor x, torch::Tensor weight) {
    auto y = torch::empty_like(x);
    int width = x.size(-1);
    row_scale_kernel<<<x.numel() / width, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), width);
    return y;
}
"""

kernels = load_inline(
    "row_scale",
    cpp_sources="torch::Tensor row_scale(torch::Tensor x, torch::Tensor weight);",
    cuda_sources=CUDA,
    functions=["row_scale"],
)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return kernels.row_scale(x.contiguous(), self.weight)
