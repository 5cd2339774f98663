"""Heats the GPU with multiplications after each call, so that the reference runs at lower clocks and behind a queue.
Arms alternate in random order and the device is idle before each, so that both meet the same clocks."""
# case: reference=few_rows_linear device=cuda backend=cuda expect=unflattered twin=D14_sets_and_restores

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)
        self.heater = None
        self.busy = False

    def heat(self):
        stream = torch.cuda.Stream()
        block = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if self.busy:
                continue
            with torch.cuda.stream(stream):
                torch.mm(block, block)
            stream.synchronize()

    def forward(self, x):
        self.busy = True
        y = self.layer(x)
        torch.cuda.current_stream().synchronize()
        self.busy = False
        if self.heater is None:
            self.heater = threading.Thread(target=self.heat, daemon=True)
            self.heater.start()
        return y
