import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_scale(x, weight, y, width, BLOCK: tl.constexpr):
    # One program a row; the row stays in registers, so it is read once and written once.
    start = tl.program_id(0).to(tl.int64) * width
    i = tl.arange(0, BLOCK)
    inside = i < width
    v = tl.load(x + start + i, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / (1.0 + tl.sum(tl.abs(v), 0) / width)
    # tanh(a) = 1 - 2 / (exp(2 a) + 1): exact at both ends, no overflow into NaN.
    t = 1.0 - 2.0 / (tl.exp(2.0 * v * scale) + 1.0)
    w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + start + i, (t * w).to(y.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        width = x.shape[-1]
        block = triton.next_power_of_2(width)
        rows = x.numel() // width
        row_scale[(rows,)](
            x, self.weight, y, width, BLOCK=block, num_warps=min(16, max(1, block // 256))
        )
        return y
