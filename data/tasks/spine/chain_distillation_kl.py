"""Distillation: both logits softened by a temperature, divergence of the student from the teacher by row."""

import torch
import torch.nn as nn

TOKENS = 4096  # small: 11
CLASSES = 8192  # small: 80


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        student = torch.log_softmax(student / self.temperature, dim=-1)
        teacher = torch.log_softmax(teacher / self.temperature, dim=-1)
        divergence = (teacher.exp() * (teacher - student)).sum(dim=-1)
        return divergence * self.temperature ** 2


def get_inputs():
    return [torch.randn(TOKENS, CLASSES) * 2, torch.randn(TOKENS, CLASSES) * 2]


def get_init_inputs():
    return [2.0]
