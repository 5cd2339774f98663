"""A state-space layer in chunks: products within a chunk, states carried from chunk to chunk."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
CHUNKS = 32  # small: 3
LENGTH = 64  # small: 5
HEADS = 16  # small: 2
WIDTH = 64  # small: 4
STATE = 64  # small: 3


class Model(nn.Module):
    def forward(self, x, decay, b, c):
        total = torch.cumsum(decay, -1)
        within = torch.exp(total[..., :, None] - total[..., None, :]).tril()
        scores = torch.einsum("bcln,bcsn->bcls", c, b)
        inside = torch.einsum("bcls,bchls,bcshp->bclhp", scores, within, x)
        left = torch.exp(total[..., -1:] - total)
        states = torch.einsum("bcln,bchl,bclhp->bchpn", b, left, x)
        carried, state = [], torch.zeros_like(states[:, 0])
        for chunk in range(states.shape[1]):
            carried.append(state)
            state = state * torch.exp(total[:, chunk, :, -1])[..., None, None] + states[:, chunk]
        across = torch.einsum("bcln,bchpn,bchl->bclhp", c, torch.stack(carried, 1), torch.exp(total))
        return inside + across, state


def get_inputs():
    x = torch.randn(BATCH, CHUNKS, LENGTH, HEADS, WIDTH)
    decay = -torch.rand(BATCH, CHUNKS, HEADS, LENGTH) * 0.1
    b, c = torch.randn(BATCH, CHUNKS, LENGTH, STATE), torch.randn(BATCH, CHUNKS, LENGTH, STATE)
    return [x, decay, b, c]


def get_init_inputs():
    return []
