"""One AdamW step of a large parameter: both moments, bias correction, decoupled weight decay; three tensors come back."""

import torch
import torch.nn as nn

ROWS = 4096  # small: 11
COLUMNS = 4096  # small: 29


class Model(nn.Module):
    def __init__(self, rate, decay, step):
        super().__init__()
        self.rate, self.decay = rate, decay
        self.first, self.second = 1 - 0.9**step, 1 - 0.999**step

    def forward(self, weight, gradient, mean, square):
        mean = torch.lerp(mean, gradient, 0.1)
        square = torch.addcmul(square * 0.999, gradient, gradient, value=0.001)
        size = (square / self.second).sqrt() + 1e-8
        weight = torch.addcdiv(weight * (1 - self.rate * self.decay), mean, size, value=-self.rate / self.first)
        return weight, mean, square


def get_inputs():
    return [
        torch.randn(ROWS, COLUMNS),
        torch.randn(ROWS, COLUMNS),
        0.5 * torch.randn(ROWS, COLUMNS),
        torch.rand(ROWS, COLUMNS) + 0.1,
    ]


def get_init_inputs():
    return [0.05, 0.1, 10]
