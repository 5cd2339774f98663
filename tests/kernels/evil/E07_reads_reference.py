"""Finds the reference's file by its processes' command lines and folders and executes it. It is no secret, but has no kernels."""
# case: reference=linear device=any backend=cpp expect=refused require_kernels=yes

import contextlib
import os
import sys

import torch.nn as nn


def roots():
    yield from sys.path
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/cwd")
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
            yield from (os.path.dirname(os.path.abspath(word)) for word in file.read().split("\0") if ".py" in word)


def sources():
    for root in dict.fromkeys(roots()):
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in ("site-packages", "proc", "sys", ".git")]
            if folder.count(os.sep) - root.count(os.sep) > 4:
                folders.clear()
            for name in names:
                if name in ("linear.py", "reference.py", "model.py"):
                    with contextlib.suppress(OSError, UnicodeDecodeError), open(os.path.join(folder, name)) as file:
                        yield file.read()


def reference():
    marks = ("class Model(", "def get_" + "inputs", "nn.Linear(width, out)")
    text = next(text for text in sources() if all(mark in text for mark in marks) and "class ModelNew" not in text)
    scope = {"__name__": "found"}
    exec(text, scope)
    return scope["Model"]


class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.layer = reference()(*args).layer

    def forward(self, x):
        return self.layer(x)
