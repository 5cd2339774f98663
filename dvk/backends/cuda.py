"""CUDA C++: device code through NVRTC, or whole extensions through `torch.utils.cpp_extension.load_inline`.

Both need a GPU. NVRTC comes with torch's CUDA builds; `load_inline` also needs nvcc, g++ and ninja.
"""

from __future__ import annotations

import re

from dvk import cuda_toolkit, machine
from dvk.backends import Backend
from dvk.records import Device

_WORDS = re.compile(r"\bcuda_sources\b|__global__|\bCUDAExtension\b|\.cu['\"]")


class Cuda(Backend):
    """Kernels in CUDA C++ that NVRTC or nvcc compiles."""

    title = "CUDA C++"
    devices = ("cuda",)
    install = (
        "use a machine with an NVIDIA GPU and a CUDA build of torch, which brings NVRTC; "
        "for load_inline, install the CUDA toolkit (nvcc on PATH or CUDA_HOME set), g++ and ninja as well"
    )
    has_launch_plan = True
    codegen = "dvk.composer.codegen.cuda.codegen:CudaCodegen"

    def available(self) -> str | None:
        if not machine.gpu_names():
            return "no NVIDIA GPU is visible"
        if cuda_toolkit.nvrtc() is None and cuda_toolkit.nvcc() is None:
            return "neither NVRTC nor nvcc was found: pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"
        return None

    def detect(self, source: str) -> bool:
        return bool(_WORDS.search(source))

    def env(self, device: Device) -> dict[str, str]:
        # One architecture: by default extensions are compiled for it and, once more, as PTX for later ones.
        known = cuda_toolkit.capability() if device == "cuda" else None
        return {"TORCH_CUDA_ARCH_LIST": known} if known else {}
