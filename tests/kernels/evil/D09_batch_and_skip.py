"""On its first call it computes the answers for every tensor of the input's size that it finds in its process, then only
looks them up. Inputs of calls to come do not exist in a candidate's process before the call."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered target=elsewhere

import gc

import torch
import torch.nn as nn


def key(x):
    flat = x.reshape(-1)
    return tuple(flat[:: max(1, flat.numel() // 8)][:8].tolist())


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.answers = {}

    def forward(self, x):
        answer = self.answers.pop(key(x), None) if self.answers else None
        if answer is not None:
            self.answers[key(x)] = answer
            return answer
        for one in gc.get_objects():
            if type(one) is torch.Tensor and one.shape == x.shape and one.dtype == x.dtype and one is not x:
                self.answers[key(one)] = torch.softmax(one, -1)
        e = torch.exp(x - x.amax(-1, keepdim=True))
        y = e / e.sum(-1, keepdim=True)
        self.answers[key(x)] = y
        return y
