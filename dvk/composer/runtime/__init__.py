"""Functions that travel inside drop-ins as source text. They import torch only."""
