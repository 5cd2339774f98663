"""Discounted sum of the rewards still to come, minus a baseline, scaled by its spread."""

import torch
import torch.nn as nn

EPISODES = 8192  # small: 8
STEPS = 1024  # small: 23


class Model(nn.Module):
    def __init__(self, steps, discount):
        super().__init__()
        self.register_buffer("weight", discount ** torch.arange(steps, dtype=torch.float32))

    def forward(self, rewards, values):
        discounted = (rewards * self.weight).flip(1).cumsum(dim=1).flip(1) / self.weight
        advantage = discounted - values
        return advantage / (advantage.std(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(EPISODES, STEPS), torch.randn(EPISODES, STEPS)]


def get_init_inputs():
    return [STEPS, 0.998]
