"""Click model: dense features through an MLP, categories through tables, pairwise dot products, an MLP on top, sigmoid."""

import torch
import torch.nn as nn

BATCH = 4096  # small: 7
DENSE = 13  # small: 5
TABLES = 16  # small: 4
ROWS = 20000  # small: 30
WIDTH = 32  # small: 6
HIDDEN = 256  # small: 10


class Model(nn.Module):
    def __init__(self, dense, tables, rows, width, hidden):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(tables)])
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, offset=-1))
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, dense, categories):
        x = self.bottom(dense)
        found = torch.stack([x] + [table(categories[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(found, found.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat((x, products), dim=1))).squeeze(1)


def get_inputs():
    return [torch.randn(BATCH, DENSE), torch.randint(0, ROWS, (BATCH, TABLES))]


def get_init_inputs():
    return [DENSE, TABLES, ROWS, WIDTH, HIDDEN]
