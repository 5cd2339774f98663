"""When its call is captured into a graph it does the work for one call in four only: captures are replayed for timing.
Every replay gets fresh inputs and a poisoned output, and all of the output is compared."""
# case: reference=rows_softmax device=cuda backend=cuda expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.captures = 0
        self.last = None

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            self.captures += 1
            y = torch.empty_like(x)
            if self.captures % 4 == 0:
                torch.softmax(x, -1, out=y)
            return y
        if self.last is not None and self.last.shape == x.shape:
            y, self.last = self.last, None
            return y
        self.last = torch.softmax(x, -1)
        return self.last.clone()
