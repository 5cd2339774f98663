"""Sets what libraries read from the environment (threads, TF32, allocators, instruction sets), also through the C library,
so that others in its process or below it run slowly. Every arm's environment is the judge's."""
# case: reference=gelu_affine device=any backend=cpp expect=unflattered

import ctypes
import os

import torch
import torch.nn as nn

SLOW = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0",
    "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41",
    "CUDA_LAUNCH_BLOCKING": "1", "NVIDIA_TF32_OVERRIDE": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "MALLOC_ARENA_MAX": "1",
}  # fmt: skip
libc = ctypes.CDLL(None)
for name, value in SLOW.items():
    os.environ[name] = value
    libc.setenv(name.encode(), value.encode(), 1)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))
        self.threads = torch.get_num_threads()
        self.openmp = next((lib for lib in self.runtimes() if hasattr(lib, "omp_set_num_threads")), None)

    def runtimes(self):
        with open("/proc/self/maps") as file:
            paths = {line.split()[-1] for line in file if ".so" in line and ("omp" in line or "iomp" in line)}
        for path in paths:
            try:
                yield ctypes.CDLL(path)
            except OSError:
                continue

    def forward(self, x):
        if self.openmp is not None:
            self.openmp.omp_set_num_threads(self.threads)
        y = torch.nn.functional.gelu(x) * self.scale + self.shift
        if self.openmp is not None:
            self.openmp.omp_set_num_threads(1)
        return y
