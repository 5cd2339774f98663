"""dvk — make PyTorch code faster with kernels it writes, proves and remembers."""

__version__ = "0.1.0"
