import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"rows": x.sum(1), "best": (x.argmax(1), x.t().contiguous())}
