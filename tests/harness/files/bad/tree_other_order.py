import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"rows": x.sum(1), "best": (x.t(), x.argmax(1))}
