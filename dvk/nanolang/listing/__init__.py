"""What nano reads: a graph as a short listing with symbolic sizes."""
