"""Small vision transformer: patches, a class token, positions, two encoder layers of the library, a head on the class token."""

import torch
import torch.nn as nn

BATCH = 16  # small: 2
SIDE = 112  # small: 12
PATCH = 16  # small: 4
WIDTH = 384  # small: 16
HEADS = 6  # small: 2
CLASSES = 1000  # small: 7


class Model(nn.Module):
    def __init__(self, side, patch, width, heads, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.5)
        self.positions = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.5)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)
        for parameter in self.encoder.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.2 * torch.randn_like(parameter)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE) * (0.3 + 2 * torch.rand(BATCH, 3, 1, 1))]


def get_init_inputs():
    return [SIDE, PATCH, WIDTH, HEADS, CLASSES]
