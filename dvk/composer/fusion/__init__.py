"""Fusion of primitives into kernels: the nodes that share a kernel, and the loops of each."""
