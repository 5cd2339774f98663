"""CUDA candidates built with torch's load_inline: they need a GPU and nvcc."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


class Cuda:
    """Runs on a GPU, timed."""

    def unavailable(self) -> tuple[str, str] | None:
        """(what is missing, what to do), or None."""
        from dvk.harness.backends import gpu_name

        if not gpu_name():
            return "CUDA candidates need an NVIDIA GPU, and none was found", "run on a GPU machine, or use --backend triton or cpp"
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        if shutil.which("nvcc") is None and not (Path(home) / "bin" / "nvcc").exists():
            return "CUDA candidates need nvcc, and none was found", "install the CUDA toolkit, or set CUDA_HOME"
        return None

    def env(self, device: str) -> Mapping[str, str]:
        return {}

    def untimed(self, device: str) -> str | None:
        return None
