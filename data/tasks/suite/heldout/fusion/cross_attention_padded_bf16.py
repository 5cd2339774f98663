"""Cross attention written out in bfloat16: scores, padding masked, softmax in float32, values, an output gate."""

import torch
import torch.nn as nn

BATCH = 8  # small: 2
HEADS = 12  # small: 2
QUERIES = 380  # small: 7
KEYS = 450  # small: 9
DEPTH = 64  # small: 8


class Model(nn.Module):
    def forward(self, q, k, v, padding, gate):
        scores = torch.matmul(q, k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        scores = scores.masked_fill(padding[:, None, None, :], -1e4)
        return torch.matmul(torch.softmax(scores, dim=-1).to(v.dtype), v) * torch.sigmoid(gate)


def get_inputs():
    half = {"dtype": torch.bfloat16}
    q = torch.randn(BATCH, HEADS, QUERIES, DEPTH, **half)
    k, v = torch.randn(BATCH, HEADS, KEYS, DEPTH, **half), torch.randn(BATCH, HEADS, KEYS, DEPTH, **half)
    padding = torch.arange(KEYS) >= torch.randint(KEYS // 2, KEYS, (BATCH, 1))
    return [q, k, v, padding, torch.randn(BATCH, HEADS, QUERIES, DEPTH, **half)]


def get_init_inputs():
    return []
