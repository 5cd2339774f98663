"""Distillation: divergence of the student's softened probabilities from the teacher's."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 4096  # cpu: 512  # small: 6
CLASSES = 16000  # cpu: 2048  # small: 37


TEMPERATURE = 2.0


class Model(nn.Module):
    def forward(self, student, teacher):
        log_p = F.log_softmax(student / TEMPERATURE, dim=-1)
        q = F.softmax(teacher.detach() / TEMPERATURE, dim=-1)
        return F.kl_div(log_p, q, reduction="batchmean") * TEMPERATURE**2


def get_inputs():
    return [2.0 * torch.randn(TOKENS, CLASSES), 2.0 * torch.randn(TOKENS, CLASSES)]


def get_init_inputs():
    return []
