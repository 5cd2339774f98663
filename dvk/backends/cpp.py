"""C++ called through ctypes, and plain PyTorch: compiled, checked and timed on the CPU."""

from __future__ import annotations

import shutil

from dvk import machine
from dvk.backends import Backend


class Cpp(Backend):
    """Kernels in C++ that the candidate compiles with g++, or with $CXX."""

    title = "C++"
    devices = ("cpu",)
    install = "install g++ (apt-get install g++), or set CXX to a C++ compiler"
    codegen = "dvk.composer.codegen.cpp.codegen:CppCodegen"

    def available(self) -> str | None:
        compiler = machine.cxx()[0]
        return (
            None
            if shutil.which(compiler)
            else f"the C++ compiler `{compiler}` was not found: {self.install}"
        )
