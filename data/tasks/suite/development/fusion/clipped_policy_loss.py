"""Clipped policy objective of every token: chosen log-probability, ratio to the old policy, the smaller surrogate."""

import torch
import torch.nn as nn

TOKENS = 2048  # small: 13
VOCABULARY = 32000  # small: 45


class Model(nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, logits, chosen, old, advantage):
        now = torch.log_softmax(logits, dim=-1).gather(1, chosen[:, None]).squeeze(1)
        ratio = torch.exp(now - old)
        return -torch.minimum(ratio * advantage, ratio.clamp(1 - self.clip, 1 + self.clip) * advantage)


def get_inputs():
    logits = torch.randn(TOKENS, VOCABULARY)
    chosen = torch.randint(0, VOCABULARY, (TOKENS,))
    old = torch.log_softmax(logits + 0.3 * torch.randn(TOKENS, 1), -1).gather(1, chosen[:, None])[:, 0]
    return [logits, chosen, old + 0.3 * torch.randn(TOKENS), torch.randn(TOKENS)]


def get_init_inputs():
    return [0.2]
