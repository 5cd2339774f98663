import time

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(0.06)
        return x + 1
