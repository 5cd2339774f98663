"""Takes the call that its constructor makes on its own inputs for the only one there will be. Fresh values stop it."""
# case: reference=linear device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)
        torch.manual_seed(42)
        with torch.no_grad():
            self.answer = self.layer(torch.randn(512, width))

    def forward(self, x):
        return self.answer.to(x.device)
