"""NaN where minus infinity is owed, so that differences are NaN on either side. Separate masks of NaN and infinities stop it."""
# case: reference=log_floored device=any backend=cpp expect=refused

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.log()
