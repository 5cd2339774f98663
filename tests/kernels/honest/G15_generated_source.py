"""Builds its source from pieces and runs it with exec, as code generators do; every element is right."""
# case: reference=gelu_affine device=any backend=cpp expect=ok

import torch
import torch.nn as nn

STEPS = [("gelu", "torch.nn.functional.gelu({x})"), ("mul", "{x}.mul_({a})"), ("add", "{x}.add_({b})")]


def generate():
    lines = ["def run(x, a, b):"]
    for name, text in STEPS:
        lines.append("    x = " + text.format(x="x", a="a", b="b") + "  # " + "".join(chr(ord(letter)) for letter in name))
    space = {"torch": __import__("torch")}
    exec("\n".join([*lines, "    return x"]), space)
    return space["run"]


run = generate()


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return run(x, self.scale, self.shift)
