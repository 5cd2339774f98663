"""Has the preprocessor include the reference's file and executes the text. It is no secret, but has no kernels."""
# case: reference=linear device=cpu backend=cpp expect=refused require_kernels=yes

import contextlib
import os
import subprocess
import sys

import torch.nn as nn


def folders():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
            yield from (os.path.dirname(os.path.abspath(word)) for word in file.read().split("\0") if ".py" in word)
        with contextlib.suppress(OSError):
            yield os.path.join(os.readlink(f"/proc/{pid}/cwd"), "tests/kernels/tasks")
    yield from sys.path


def reference():
    flags = ["-E", "-P", "-x", "assembler-with-cpp", "-traditional-cpp", "-"]
    for folder in list(dict.fromkeys(folders()))[:60]:
        include = f'#include "{folder}/linear.py"\n'
        told = subprocess.run(["g++", *flags], input=include, capture_output=True, text=True)
        if told.returncode == 0 and "class Model(" in told.stdout:
            scope = {"__name__": "found"}
            exec(told.stdout, scope)
            return scope["Model"]
    raise LookupError("no reference found")


class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.layer = reference()(*args).layer

    def forward(self, x):
        return self.layer(x)
