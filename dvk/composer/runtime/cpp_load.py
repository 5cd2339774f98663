"""Compile and load the C++ kernels of a drop-in. The text travels inside it, as that of `guards.py` does."""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
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


def dvk_cpu_features() -> set[str]:
    """Names of this CPU's instruction sets, as Linux tells them."""
    with open("/proc/cpuinfo" if os.path.exists("/proc/cpuinfo") else os.devnull) as file:
        line = next((line for line in file if line.startswith(("flags", "Features"))), "")
    return set(line.partition(":")[2].split())


def dvk_bundled(source: str, options: tuple[str, ...]) -> list[tuple[dict[str, Any], str]]:
    """Compiled files next to this one that were made of exactly this source with these options, each with its facts; none if damaged."""
    folder = os.path.splitext(globals().get("__file__") or "")[0] + ".bundle"
    key = hashlib.sha256("\0".join([source, *options]).encode()).hexdigest()[:24]
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), f"{key}.*.json")):
        try:
            with open(path) as file:
                facts = json.load(file)
            with open(path.removesuffix(".json"), "rb") as file:
                whole = hashlib.sha256(file.read()).hexdigest() == facts["sha256"]
        except (OSError, ValueError, KeyError):
            continue
        if whole:
            found.append((facts, path.removesuffix(".json")))
    return found


def dvk_prebuilt(source: str, flags: tuple[str, ...]) -> ctypes.CDLL | None:
    """The library that came with this file for a CPU like this one; None if there is none, or it does not load."""
    ready = dvk_bundled(source, flags)
    have = dvk_cpu_features() if ready else set()
    for facts, path in sorted(ready, key=lambda one: -len(one[0]["needs"])):
        if facts["machine"] == os.uname().machine and have.issuperset(facts["needs"]):
            try:
                return ctypes.CDLL(path)
            except OSError:  # made for another C library
                continue
    return None


def dvk_compile(source: str, flags: tuple[str, ...]) -> ctypes.CDLL | None:
    """Load the C++ that came compiled with this file, or compile it once per machine; None without a compiler.

    Raises:
        RuntimeError: the compiler refused the source.
        OSError: $CXX cannot be run, or the library cannot be loaded.
    """
    if (ready := dvk_prebuilt(source, flags)) is not None:
        return ready
    command = shlex.split(os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "")
    if not command:
        return None
    cpu = " ".join(sorted(dvk_cpu_features()))
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
        dvk_run_compiler([*command, "-x", "c++", "-", "-o", aside, *flags], source, aside)
        os.replace(aside, path)
    return ctypes.CDLL(path)


def dvk_run_compiler(command: list[str], source: str, aside: str) -> None:
    """Compile a text into a file; after a second stderr says so, except under $DVK_STRICT.

    Raises:
        RuntimeError: the compiler refused the source; the file is gone.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as compiler:
        try:
            _, told = compiler.communicate(source.encode(), timeout=1)
        except subprocess.TimeoutExpired:
            if not os.environ.get("DVK_STRICT"):
                where = os.path.basename(globals().get("__file__") or "a drop-in")
                print(f"{where}: compiling its kernels, once per machine", file=sys.stderr)
            _, told = compiler.communicate()
    if compiler.returncode:
        os.unlink(aside)
        raise RuntimeError("the C++ compiler failed:\n" + told.decode(errors="replace")[:4000])
