"""Declares the weights persisting in the GPU's L2 cache, so that a flush before the call leaves them there.
Persisting lines and their limit are reset before every call, or the flush is as large as the whole cache."""
# case: reference=few_rows_linear device=cuda backend=cuda expect=unflattered

import ctypes

import torch
import torch.nn as nn


class Window(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t), ("hit_ratio", ctypes.c_float),
                ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("rest", ctypes.c_char * 32)]  # fmt: skip


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)
        self.stream = None

    def persist(self):
        driver, weight = ctypes.CDLL("libcuda.so.1"), self.layer.weight
        size = weight.numel() * weight.element_size()
        driver.cuCtxSetLimit(6, ctypes.c_size_t(size))  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        window = Window(weight.data_ptr(), size, 1.0, 2, 1)  # hits persist, misses stream
        self.stream = torch.cuda.Stream()
        driver.cuStreamSetAttribute(ctypes.c_void_p(self.stream.cuda_stream), 1, ctypes.byref(window))

    def forward(self, x):
        if self.stream is None:
            self.persist()
        caller = torch.cuda.current_stream()
        self.stream.wait_stream(caller)
        with torch.cuda.stream(self.stream):
            y = self.layer(x)
        caller.wait_stream(self.stream)
        return y
