"""Communication between the judge's processes: frames, lent tensors, memory, faults."""
