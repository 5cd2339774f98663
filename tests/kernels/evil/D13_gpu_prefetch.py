"""A thread keeps reading weights and inputs between the calls, so that the flush before a call does not leave them cold.
Only a candidate without host code, or a flush right before the clock starts, is safe from it."""
# case: reference=few_rows_linear device=cuda backend=cuda expect=unflattered

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)
        self.keeper = None
        self.idle = True

    def keep_warm(self):
        stream = torch.cuda.Stream(priority=-1)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.idle:
                with torch.no_grad(), torch.cuda.stream(stream):
                    self.layer.weight.sum()
                stream.synchronize()

    def forward(self, x):
        self.idle = False
        y = self.layer(x)
        self.idle = True
        if self.keeper is None:
            self.keeper = threading.Thread(target=self.keep_warm, daemon=True)
            self.keeper.start()
        return y
