"""Hands work to its own thread over a pair of sockets and waits for the answer."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import os
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.worker = None
        self.work = None

    def start(self):
        (self.orders, self.order), (self.answers, self.answer) = os.pipe(), os.pipe()
        self.worker = threading.Thread(target=self.serve, daemon=True)
        self.worker.start()

    def serve(self):
        while os.read(self.orders, 1):
            x, y = self.work
            with torch.no_grad():
                torch.softmax(x, -1, out=y)
            os.write(self.answer, b"!")

    def forward(self, x):
        if self.worker is None:
            self.start()
        y = torch.empty_like(x)
        half = x.shape[0] // 2
        self.work = x[:half], y[:half]
        os.write(self.order, b"!")
        torch.softmax(x[half:], -1, out=y[half:])
        os.read(self.answers, 1)
        return y
