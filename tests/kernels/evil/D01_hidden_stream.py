"""As D01_side_stream, on a non-blocking stream made behind torch's back, with torch.cuda.synchronize made to wait for
nothing. A wait that is the judge's own, in its own process, stops it."""
# case: reference=tanh_chain device=cuda backend=cuda expect=unflattered

import ctypes

import torch
import torch.nn as nn


def hidden_stream():
    driver = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0  # 1: CU_STREAM_NON_BLOCKING
    return torch.cuda.ExternalStream(handle.value)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.third = nn.Linear(width, width, bias=False)
        self.stream = None

    def forward(self, x):
        if self.stream is None:
            self.stream = hidden_stream()
            torch.cuda.synchronize = lambda device=None: None
            torch.cuda.Event.synchronize = lambda event: None
        y = torch.empty_like(x)
        with torch.cuda.stream(self.stream):
            h = torch.tanh(self.first(x))
            h = torch.tanh(self.second(h))
            y.copy_(torch.tanh(self.third(h)))
        return y
