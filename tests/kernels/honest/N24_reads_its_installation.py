"""Reads what programs read: its interpreter's files, the system's libraries and settings, facts about the processor, its own folder."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import os
import ssl
import sysconfig

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for path in (os.__file__, torch.__file__, "/etc/passwd", "/etc/ld.so.cache", "/proc/cpuinfo", "/proc/self/maps"):
            with open(path, "rb") as file:
                file.read(1)
        os.listdir(sysconfig.get_path("purelib"))
        os.listdir("/sys/devices/system/cpu")
        os.listdir(os.environ["TMPDIR"])
        ssl.create_default_context()

    def forward(self, x):
        return torch.softmax(x, -1)
