"""Executes the reference's text, found as a string by the garbage collector. It is no secret, but has no kernels."""
# case: reference=layer_norm device=any backend=cpp expect=refused require_kernels=yes target=here

import functools
import gc
import linecache

import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


def texts():
    yield from ("".join(entry[2]) for entry in linecache.cache.values() if len(entry) == 4)
    for thing in gc.get_objects():
        if hasattr(thing, "__dict__"):
            yield from (value for value in list(thing.__dict__.values()) if type(value) is str)
        elif type(thing) is dict:
            yield from (value for value in list(thing.values()) if type(value) is str)


def reference():
    marks = ("class Model(", "def get_" + "inputs", "def forward")
    text = next(text for text in texts() if all(mark in text for mark in marks) and "class ModelNew" not in text)
    reached()
    scope = {"__name__": "found"}
    exec(text, scope)
    return scope["Model"]


class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.norm = reference()(*args).norm

    def forward(self, x):
        return self.norm(x)
