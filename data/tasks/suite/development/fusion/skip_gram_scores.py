"""Skip-gram with negative sampling: embeddings of a word and of its contexts, dot products, log-sigmoid."""

import torch
import torch.nn as nn
import torch.nn.functional as F

PAIRS = 16384  # small: 11
NEGATIVES = 15  # small: 4
VOCABULARY = 100000  # small: 60
WIDTH = 128  # small: 14


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.contexts = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.words.weight, std=0.3)
        nn.init.normal_(self.contexts.weight, std=0.3)

    def forward(self, word, contexts):
        scores = (self.words(word).unsqueeze(1) * self.contexts(contexts)).sum(dim=-1)
        positive, negative = scores[:, 0], scores[:, 1:]
        return -F.logsigmoid(positive) - F.logsigmoid(-negative).sum(dim=1)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (PAIRS,)), torch.randint(0, VOCABULARY, (PAIRS, 1 + NEGATIVES))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
