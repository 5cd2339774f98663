"""Selective state-space block: projections, causal depthwise convolution, data-dependent steps, a scan over time, gate."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4  # small: 2
TIME = 48  # small: 7
WIDTH = 256  # small: 8
INNER = 512  # small: 10
STATE = 16  # small: 4


class Model(nn.Module):
    def __init__(self, width, inner, state):
        super().__init__()
        self.enter = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.select = nn.Linear(inner, 2 * state + 1, bias=False)
        self.step_bias = nn.Parameter(torch.randn(inner) * 0.5 - 1)
        self.rates = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1))
        self.pass_through = nn.Parameter(torch.randn(inner) * 0.5 + 1)
        self.leave = nn.Linear(inner, width, bias=False)
        self.state = state

    def forward(self, x):
        time = x.shape[1]
        inner, gate = self.enter(x).chunk(2, dim=-1)
        inner = F.silu(self.conv(inner.transpose(1, 2))[..., :time]).transpose(1, 2)
        step, into, out = self.select(inner).split([1, self.state, self.state], dim=-1)
        step = F.softplus(step + self.step_bias)
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.rates))
        driven = (step * inner).unsqueeze(-1) * into.unsqueeze(2)
        state, outputs = torch.zeros_like(driven[:, 0]), []
        for t in range(time):
            state = decay[:, t] * state + driven[:, t]
            outputs.append((state * out[:, t].unsqueeze(1)).sum(dim=-1))
        y = torch.stack(outputs, dim=1) + self.pass_through * inner
        return self.leave(y * F.silu(gate))


def get_inputs():
    return [torch.randn(BATCH, TIME, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER, STATE]
