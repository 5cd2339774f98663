"""Fixes every generator and makes seeding do nothing, so that all draws to come are those it has seen; then it hands out
the one answer. Draws are made in a process that the candidate never enters."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import random

import numpy as np
import torch
import torch.nn as nn

answers = {}


def freeze():
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    still = torch.default_generator
    torch.manual_seed = torch.cuda.manual_seed_all = torch.random.manual_seed = lambda seed: still
    torch.set_rng_state = torch.random.set_rng_state = lambda state: None
    randn = torch.randn
    torch.randn = lambda *shape, **more: randn(*shape, **{**more, "generator": torch.Generator().manual_seed(0)})


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        freeze()

    def forward(self, x):
        if x.shape not in answers:
            answers[x.shape] = torch.softmax(x, -1)
        return answers[x.shape]
