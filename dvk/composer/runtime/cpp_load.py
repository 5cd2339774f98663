"""Compile and load the C++ kernels of a drop-in. The text travels inside it, as that of `guards.py` does."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from typing import Any


def dvk_loaded(load: Callable[..., Any], *given: Any) -> Any:
    """Result of `load`; None, with a warning, if it fails.

    Raises:
        RuntimeError: it fails, and $DVK_STRICT is set. So does OSError.
    """
    try:
        made = load(*given)
    except (RuntimeError, OSError) as error:
        if os.environ.get("DVK_STRICT"):
            raise
        warnings.warn(f"running the original computation: {error}")  # noqa: B028
        return None
    if made is None:
        warnings.warn("no C++ compiler found (g++ or $CXX): running the original computation")  # noqa: B028
    return made


def dvk_compile(source: str, flags: tuple[str, ...]) -> ctypes.CDLL | None:
    """Compile C++ once per machine and load it; None without a compiler.

    Raises:
        RuntimeError: the compiler refused the source.
        OSError: $CXX cannot be run, or the library cannot be loaded.
    """
    command = shlex.split(os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "")
    if not command:
        return None
    with open("/proc/cpuinfo" if os.path.exists("/proc/cpuinfo") else os.devnull) as file:
        cpu = next((line for line in file if line.startswith(("flags", "Features"))), "")
    key = hashlib.sha256("\0".join([source, *command, *flags, cpu]).encode()).hexdigest()[:24]
    folder = os.environ.get("DVK_CACHE") or os.path.join(
        tempfile.gettempdir(), f"dvk-{os.getuid()}"
    )
    folder = os.path.join(folder, "cpp")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid():
        # Never load a file that another user may have put there.
        folder = tempfile.mkdtemp(prefix="dvk-")
    path = os.path.join(folder, key + ".so")
    if not os.path.exists(path):
        handle, aside = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
        done = subprocess.run(
            [*command, "-x", "c++", "-", "-o", aside, *flags],
            input=source.encode(),
            capture_output=True,
        )
        if done.returncode:
            os.unlink(aside)
            raise RuntimeError(
                "the C++ compiler failed:\n" + done.stderr.decode(errors="replace")[:4000]
            )
        os.replace(aside, path)
    return ctypes.CDLL(path)
