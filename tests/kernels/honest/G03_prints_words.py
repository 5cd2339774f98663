"""Prints a word such as PASSED and a line of JSON, for people, and computes what it should."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import json

import torch
import torch.nn as nn

print("PASSED my own tests yesterday")
print(json.dumps({"status": "ok", "speedup": 1.0}))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
