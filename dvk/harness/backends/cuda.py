"""CUDA C++: device code through NVRTC, or whole extensions through `torch.utils.cpp_extension.load_inline`.

Both need a GPU. NVRTC comes with torch's CUDA builds; `load_inline` needs nvcc, g++ and ninja as well, and is made
faster by what `extension` sets up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from dvk import machine
from dvk.harness.toolchain import nvrtc


class Cuda:
    """Kernels in CUDA C++ that NVRTC or nvcc compiles."""

    install = (
        "use a machine with an NVIDIA GPU and a CUDA build of torch, which brings NVRTC; "
        "for load_inline, install the CUDA toolkit (nvcc on PATH or CUDA_HOME set), g++ and ninja as well"
    )

    def available(self) -> str | None:
        if not machine.gpu_names():
            return "no NVIDIA GPU is visible"
        if nvrtc.find() is None and compiler() is None:
            return "neither NVRTC nor nvcc was found: pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"
        return None

    def env(self, device: str) -> dict[str, str]:
        # One architecture: by default extensions are compiled for it and, once more, as PTX for later ones.
        known = capability() if device == "cuda" else None
        return {"TORCH_CUDA_ARCH_LIST": known} if known else {}

    def untimed(self, device: str) -> str | None:
        return None


def compiler() -> str | None:
    """nvcc's path, None where there is no toolkit."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    beside = os.path.join(home, "bin", "nvcc")
    return shutil.which("nvcc") or (beside if os.path.exists(beside) else None)


@cache
def capability() -> str | None:
    """Compute capability of the first GPU, as `9.0`; asked of the driver's own tool, so no CUDA context is opened."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    first = done.stdout.strip().partition("\n")[0].strip()
    return first if first.replace(".", "", 1).isdigit() else None
