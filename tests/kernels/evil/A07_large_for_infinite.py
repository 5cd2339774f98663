"""The lowest finite number where minus infinity is owed. Separate masks of NaN and infinities stop it."""
# case: reference=log_floored device=any backend=cpp expect=refused

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log(torch.relu(x)).clamp_(min=-3.4028234e38)
