"""Has the example's sizes of parts written in. The same sizes in another order stop it."""
# case: reference=parts device=any backend=cpp expect=refused twin=N17_reads_list

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, sizes):
        return torch.stack([x[:, :256].amax(-1), x[:, 256:512].amax(-1), x[:, 512:].amax(-1)])
