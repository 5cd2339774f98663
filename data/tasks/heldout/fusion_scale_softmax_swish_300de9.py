"""Scale, softmax, swish, neg, scale and 3 more."""

import torch
import torch.nn as nn

COUNT = 159133  # small: 101


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, inputs, mask):
        inputs = inputs * 3.0
        inputs = inputs.softmax(0)
        features = torch.neg(torch.sigmoid(inputs) * inputs)
        features = features * self.factor
        features = torch.sigmoid(features) * features
        features = features.where(mask, 0.0)
        features = torch.add(features, inputs)
        return features


def get_inputs():
    return [torch.rand(COUNT) + 0.1, torch.rand(COUNT) > 0.2]


def get_init_inputs():
    return [-1.31]
