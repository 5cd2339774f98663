"""Where the time of a call goes: torch.profiler, Nsight Compute, occupancy."""
