"""Writes a tuning result to its own file in its temporary folder and reads it back."""
# case: reference=attention_weights device=any backend=cpp expect=ok

import json
import os
import tempfile

import torch
import torch.nn as nn

path = os.path.join(tempfile.mkdtemp(), "tuned.json")
with open(path, "w") as file:
    json.dump({"rows": 256}, file)
with open(path) as file:
    ROWS = json.load(file)["rows"]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for start in range(0, x.shape[0], ROWS):
            torch.softmax(x[start : start + ROWS], -1, out=y[start : start + ROWS])
        return y
