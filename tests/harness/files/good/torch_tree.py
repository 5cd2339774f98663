import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"rows": x @ torch.ones(x.shape[1]), "best": (torch.max(x, 1).indices, x.transpose(0, 1))}
