"""Does the arithmetic on the host and only copies, so that a sum over kernels finds next to nothing.
The time that counts passes on a clock on the wall, from before the call until its output is there."""
# case: reference=rows_softmax device=cuda backend=cuda expect=unflattered

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.cpu(), -1).to(x.device)
