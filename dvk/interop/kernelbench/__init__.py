"""KernelBench's data set and result files."""
