"""From primitives to kernels: which nodes share a kernel, and the loops of each."""
