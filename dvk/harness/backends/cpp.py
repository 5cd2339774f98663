"""C++ called through ctypes, and plain PyTorch: compiled, checked and timed on the CPU."""

from __future__ import annotations

import shutil

from dvk import machine
from dvk.harness.toolchain.cpp_sanitize import sanitizer_env

__all__ = ["Cpp", "sanitizer_env"]


class Cpp:
    """Kernels in C++ that the candidate compiles with g++, or with $CXX."""

    install = "install g++ (apt-get install g++), or set CXX to a C++ compiler"

    def available(self) -> str | None:
        compiler = machine.cxx()[0]
        return None if shutil.which(compiler) else f"the C++ compiler `{compiler}` was not found: {self.install}"

    def env(self, device: str) -> dict[str, str]:
        return {}

    def untimed(self, device: str) -> str | None:
        return None
