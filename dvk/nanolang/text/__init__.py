"""What nano writes: kernels and calls as a short text, and how a drop-in is made from it."""
