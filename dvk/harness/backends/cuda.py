"""CUDA C++ through `torch.utils.cpp_extension.load_inline`: needs a GPU, nvcc, a C++ compiler and ninja."""

from __future__ import annotations

import os
import shutil

from dvk import machine


class Cuda:
    """Kernels in CUDA C++ that nvcc compiles."""

    install = (
        "use a machine with an NVIDIA GPU, and install the CUDA toolkit (nvcc on PATH or CUDA_HOME set), g++ and ninja"
    )

    def available(self) -> str | None:
        if not machine.gpu_names():
            return "no NVIDIA GPU is visible"
        home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
        if not (shutil.which("nvcc") or os.path.exists(os.path.join(home, "bin", "nvcc"))):
            return "nvcc was not found: install the CUDA toolkit, or set CUDA_HOME"
        if not (shutil.which(os.environ.get("CXX") or "g++")):
            return "no C++ compiler was found: install g++, or set CXX"
        return None

    def env(self, device: str) -> dict[str, str]:
        return {}

    def untimed(self, device: str) -> str | None:
        return None
