"""Writes a module into its own folder, imports it from there and registers it under its own name."""
# case: reference=gelu_affine device=any backend=cpp expect=ok

import importlib.util
import os
import sys
import tempfile

import torch
import torch.nn as nn

NAME = "my_affine_of_g07"
path = os.path.join(tempfile.mkdtemp(), NAME + ".py")
with open(path, "w") as file:
    file.write("import torch\n\n\ndef affine(x, scale, shift):\n    return torch.addcmul(shift, x, scale)\n")
spec = importlib.util.spec_from_file_location(NAME, path)
module = importlib.util.module_from_spec(spec)
sys.modules[NAME] = module
spec.loader.exec_module(module)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return module.affine(torch.nn.functional.gelu(x), self.scale, self.shift)
