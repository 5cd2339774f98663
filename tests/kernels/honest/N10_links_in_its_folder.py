"""Makes folders and symbolic links in its own temporary folder and removes them."""
# case: reference=rows_softmax device=any backend=cpp expect=ok

import os
import shutil
import tempfile

import torch
import torch.nn as nn

folder = tempfile.mkdtemp()
os.makedirs(os.path.join(folder, "a", "b"))
os.symlink(os.path.join(folder, "a"), os.path.join(folder, "link"))
os.rename(os.path.join(folder, "link"), os.path.join(folder, "a", "link"))
shutil.rmtree(folder)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
