"""Profiles of calls: torch.profiler, Nsight Compute, occupancy."""
