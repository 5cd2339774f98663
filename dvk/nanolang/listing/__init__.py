"""The listing that nano reads: a graph as a short text with symbolic sizes."""
