"""Message passing over a batch of molecules: two rounds over lists of bonds with an MLP, then the mean of every molecule."""

import torch
import torch.nn as nn
import torch.nn.functional as F

MOLECULES = 512  # small: 3
ATOMS = 12000  # small: 14
BONDS = 52000  # small: 40
WIDTH = 128  # small: 8
BOND_FEATURES = 16  # small: 4


class Round(nn.Module):
    def __init__(self, width, bond_features):
        super().__init__()
        self.bond = nn.Linear(bond_features, width)
        self.keep = nn.Parameter(torch.randn(1) * 0.3)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
    def forward(self, x, bonds, source, target):
        messages = F.relu(x.index_select(0, source) + self.bond(bonds))
        return self.mlp(((1 + self.keep) * x).index_add(0, target, messages))


class Model(nn.Module):
    def __init__(self, molecules, width, bond_features):
        super().__init__()
        self.molecules = molecules
        self.rounds = nn.ModuleList([Round(width, bond_features) for _ in range(2)])
        self.head = nn.Linear(width, 1)
    def forward(self, atoms, bonds, source, target, molecule):
        x = atoms
        for step in self.rounds:
            x = F.relu(step(x, bonds, source, target))
        total = torch.zeros(self.molecules, x.shape[1], device=x.device, dtype=x.dtype).index_add(0, molecule, x)
        count = torch.zeros(self.molecules, device=x.device, dtype=x.dtype).index_add(0, molecule, torch.ones_like(x[:, 0]))
        return self.head(total / count.clamp(min=1.0).unsqueeze(1)).squeeze(1)


def get_inputs():
    source, target = torch.randint(0, ATOMS, (BONDS,)), torch.randint(0, ATOMS, (BONDS,))
    molecule = torch.randint(0, MOLECULES, (ATOMS,)).sort().values
    return [torch.randn(ATOMS, WIDTH), torch.randn(BONDS, BOND_FEATURES), source, target, molecule]


def get_init_inputs():
    return [MOLECULES, WIDTH, BOND_FEATURES]
