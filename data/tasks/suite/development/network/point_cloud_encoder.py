"""Point cloud classifier: shared layers over points, maximum over the cloud, a small head with log-softmax, in eval mode."""

import torch
import torch.nn as nn

CLOUDS = 16  # small: 3
POINTS = 1024  # small: 13
CLASSES = 40  # small: 5
WIDTH = 64  # small: 4


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        sizes = [3, width, 2 * width, 16 * width]
        self.shared = nn.ModuleList([nn.Conv1d(a, b, 1) for a, b in zip(sizes, sizes[1:])])
        self.norms = nn.ModuleList([nn.BatchNorm1d(b) for b in sizes[1:]])
        for norm in self.norms:
            nn.init.uniform_(norm.weight, 0.6, 1.4)
            nn.init.normal_(norm.bias, 0.0, 0.3)
            norm.running_mean.normal_(0.0, 0.2)
            norm.running_var.uniform_(0.2, 0.8)
        self.head = nn.Sequential(nn.Linear(16 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, classes))
        self.eval()

    def forward(self, points):
        x = points.transpose(1, 2)
        for layer, norm in zip(self.shared, self.norms):
            x = torch.relu(norm(layer(x)))
        return torch.log_softmax(self.head(torch.max(x, dim=2).values), dim=-1)


def get_inputs():
    return [torch.randn(CLOUDS, POINTS, 3) * (0.3 + 2 * torch.rand(CLOUDS, 1, 3))]


def get_init_inputs():
    return [WIDTH, CLASSES]
