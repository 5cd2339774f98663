import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        best = x.argmax(1)
        best[-1] += 1
        return {"rows": x.sum(1), "best": (best, x.t())}
