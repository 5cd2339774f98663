"""A task, and answers of a model to it."""

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
RIGHT = """I fuse it.
```python
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0) * 2 + 1
```
"""
WRONG = RIGHT.replace("* 2", "* 3")
