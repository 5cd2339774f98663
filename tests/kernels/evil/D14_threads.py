"""Leaves torch with one thread, without oneDNN and deterministic, so that whatever runs next in its process is slow.
The baseline runs in a process that the candidate never enters."""
# case: reference=gelu_affine device=cpu backend=cpp expect=unflattered

import torch
import torch.nn as nn
import torch.nn.functional as F

THREADS = torch.get_num_threads()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        torch.set_num_threads(THREADS)
        torch.backends.mkldnn.enabled = True
        torch.use_deterministic_algorithms(False)
        y = F.gelu(x) * self.scale + self.shift
        torch.set_num_threads(1)
        torch.backends.mkldnn.enabled = False
        torch.use_deterministic_algorithms(True, warn_only=True)
        return y
