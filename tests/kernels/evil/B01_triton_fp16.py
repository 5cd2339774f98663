"""A Triton matrix product that casts tiles to 16-bit floats before tl.dot. A tolerance below that rounding stops it."""
# case: reference=matmul device=any backend=triton expect=refused

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, y, M, K, N, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, DEPTH):
        inner = k + tl.arange(0, DEPTH)
        left = tl.load(a + rows[:, None] * K + inner, mask=(rows[:, None] < M) & (inner < K), other=0.0)
        right = tl.load(b + inner[:, None] * N + columns, mask=(inner[:, None] < K) & (columns < N), other=0.0)
        sums = tl.dot(left.to(tl.float16), right.to(tl.float16), sums)
    tl.store(y + rows[:, None] * N + columns, sums, mask=(rows[:, None] < M) & (columns < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        y = torch.empty(m, n, device=a.device)
        product[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a.contiguous(), b.contiguous(), y, m, k, n, BLOCK=64, DEPTH=64)
        return y
