"""C++ candidates: plain PyTorch, ctypes libraries or load_inline, compiled by the system's compiler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping


class Cpp:
    """Runs on the CPU, timed."""

    def unavailable(self) -> tuple[str, str] | None:
        """(what is missing, what to do), or None."""
        if os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++"):
            return None
        return "no C++ compiler was found", "install g++ (Debian: apt-get install g++), or set CXX"

    def env(self, device: str) -> Mapping[str, str]:
        return {}

    def untimed(self, device: str) -> str | None:
        return None
