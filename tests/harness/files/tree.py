import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {"rows": x.sum(1), "best": (x.argmax(1), x.t())}


def get_inputs():
    return [torch.randn(24, 40)]
