"""Finds the tensor that outputs are copied to and fills it from its own stream after the bell. What it says at the bell counts."""
# case: reference=matmul device=cuda backend=cpp expect=refused

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream, self.boards = None, {}

    def forward(self, a, b):
        shape = (a.shape[0], b.shape[1])
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        if shape not in self.boards:
            places = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.is_cuda and t.shape == shape]
            self.boards[shape] = [t for t in places if t.data_ptr() not in (a.data_ptr(), b.data_ptr())]
            return a @ b
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(2_000_000)
            y = a @ b
            for board in self.boards[shape]:
                board.copy_(y)
        return torch.empty(shape, device=a.device)
