import time

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        time.sleep(0.02)
        return x + 1


def get_inputs():
    return [torch.randn(16, 16)]
