"""Compilation of CUDA C++ text with NVRTC, for several architectures at once; needs no GPU and no toolkit.

The library comes with torch's CUDA wheels (`pip install nvidia-cuda-nvrtc` elsewhere) or the CUDA toolkit. Results are
cached under `$DVK_HOME/cache/cubin` by content, options, version of NVRTC and headers; a damaged entry is created again.
NVRTC is used instead of nvcc for speed: a small kernel takes 0.02–0.1 s against 0.3 s, and no host code is compiled.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from dvk import cuda_toolkit, resources
from dvk.errors import MachineError
from dvk.harness.toolchain.compiler_log import first_error

__all__ = ["CompileError", "NvrtcLibrary", "CompiledModule", "compile_cuda", "first_error"]

INSTALL = "install NVRTC: pip install nvidia-cuda-nvrtc, or the CUDA toolkit"
STANDARD = "--std=c++17"
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


class CompileError(Exception):
    """NVRTC refused the text: the first error, with its line. `log` holds its whole output."""

    def __init__(self, message: str, log: str):
        super().__init__(message)
        self.log = log


@dataclass(frozen=True)
class CompiledModule:
    """Result for one text and one architecture."""

    arch: str
    """`sm_90` for machine code, `compute_90` for PTX."""
    image: bytes
    """A cubin, or PTX text."""
    kernels: dict[str, dict[str, int]] = field(default_factory=dict)
    """By mangled name: registers, spill_bytes (loads and stores), shared_bytes (static); empty for PTX."""
    seconds: float = 0.0
    """Compile time in seconds, 0 from the cache."""
    cached: bool = False


class NvrtcLibrary:
    """A loaded NVRTC.

    Args:
        path: its library; found if absent.

    Raises:
        MachineError: there is none, or it cannot be loaded.
    """

    def __init__(self, path: Path | None = None):
        path = path or cuda_toolkit.nvrtc()
        if path is None:
            raise MachineError("NVRTC was not found", INSTALL)
        try:
            for part in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
                if "alt" not in part.name:
                    # Wheels of CUDA 13 do not name the path of this library; once loaded it is found by its name.
                    ctypes.CDLL(str(part))
            self._lib = ctypes.CDLL(str(path))
        except OSError as error:
            raise MachineError(f"NVRTC cannot be loaded from `{path}`: {error}", INSTALL) from None
        self.path = path
        numbers = (ctypes.c_int * 2)()
        self._lib.nvrtcVersion(ctypes.byref(numbers), ctypes.byref(numbers, 4))
        self.version: tuple[int, int] = (numbers[0], numbers[1])

    def architectures(self) -> list[int]:
        """Return compute capabilities that it compiles for, as 90 for 9.0."""
        count = ctypes.c_int()
        self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._lib.nvrtcGetSupportedArchs(known)
        return sorted(known)

    def compile(
        self, source: str, arch: str, options: Sequence[str] = (), name: str = "kernel.cu"
    ) -> tuple[bytes, str]:
        """Return machine code (`sm_…`) or PTX (`compute_…`), and the log; safe to call from several threads.

        Raises:
            CompileError: it refused.
            MachineError: it does not support the architecture.
        """
        lib, program = self._lib, ctypes.c_void_p()
        flags = [f"--gpu-architecture={arch}", *options]
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            status = lib.nvrtcCompileProgram(program, len(flags), array)
            log = self._text(program, "ProgramLog").decode(errors="replace").rstrip("\0")
            if status and "--gpu-architecture" in log.partition("\n")[0]:
                known = ", ".join(f"sm_{number}" for number in self.architectures())
                raise MachineError(
                    f"NVRTC {self.version[0]}.{self.version[1]} makes no code for `{arch}`",
                    f"it knows {known}",
                )
            if status:
                # Unknown options and internal failures of NVRTC are no faults of the text, but the log shows them.
                raise CompileError(
                    first_error(log, {name: source}) or f"NVRTC failed with status {status}", log
                )
            return self._text(program, "CUBIN" if arch.startswith("sm_") else "PTX"), log
        finally:
            lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        getattr(self._lib, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw[: size.value]


_loaded: dict[Path | None, NvrtcLibrary] = {}
_loading = threading.Lock()


def library(path: Path | None = None) -> NvrtcLibrary:
    """Return the process's NVRTC at `path`, loaded once.

    Raises:
        MachineError: there is none.
    """
    with _loading:
        if path not in _loaded:
            _loaded[path] = NvrtcLibrary(path)
        return _loaded[path]


def compile_cuda(
    source: str,
    archs: Sequence[str] = ("sm_90",),
    *,
    options: Sequence[str] = (),
    headers: bool | None = None,
    nvrtc: NvrtcLibrary | None = None,
    folder: Path | None = None,
    name: str = "kernel.cu",
) -> dict[str, CompiledModule]:
    """Compile a text for every requested architecture, in parallel.

    Args:
        source: device code; kernels are found by name if they are `extern "C"`.
        archs: `sm_90`, `sm_90a`, … for cubins, `compute_90` for PTX.
        options: further NVRTC options; `--std=c++17` unless one names a standard.
        headers: let `#include` find CUDA's headers; by default if the text includes anything.
        nvrtc: the library; default: the process's.
        folder: the cache; default: `$DVK_HOME/cache/cubin`.
        name: the text's name in error messages.

    Returns:
        Architecture → its result.

    Raises:
        CompileError: the text is wrong; the message is its first error with the line.
        MachineError: NVRTC is missing, or does not support an architecture.
    """
    lib = nvrtc or library()
    flags = list(options)
    if not any("std=" in flag for flag in flags):
        flags.insert(0, STANDARD)
    if headers or (headers is None and "#include" in source):
        flags += [f"--include-path={path}" for path in cuda_toolkit.include_folders()]
    folder = folder or resources.home() / "cache" / "cubin"

    def one(arch: str) -> CompiledModule:
        return _compiled(lib, source, arch, flags, folder, name)

    wanted = list(dict.fromkeys(archs))
    if len(wanted) == 1:
        return {wanted[0]: one(wanted[0])}
    with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        return dict(zip(wanted, pool.map(one, wanted), strict=True))


def _compiled(
    lib: NvrtcLibrary, source: str, arch: str, flags: list[str], folder: Path, name: str
) -> CompiledModule:
    key = hashlib.sha256(
        "\0".join([source, arch, *flags, *map(str, lib.version), name]).encode()
    ).hexdigest()
    path = folder / key[:2] / key
    kept = _read(path)
    if kept is not None:
        return CompiledModule(arch, kept[1], kept[0], cached=True)
    began = time.perf_counter()
    verbose = ["--ptxas-options=-v"] if arch.startswith("sm_") else []
    image, log = lib.compile(source, arch, [*flags, *verbose], name)
    module = CompiledModule(arch, image, resource_use(log), time.perf_counter() - began)
    _write(path, module)
    return module


def resource_use(log: str) -> dict[str, dict[str, int]]:
    """Return registers, spilled bytes and static shared memory by kernel, from the output of `ptxas -v`."""
    result: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            current = result[entry[1]] = {"registers": 0, "spill_bytes": 0, "shared_bytes": 0}
        elif spills := _SPILLS.search(line):
            current["spill_bytes"] = int(spills[2]) + int(spills[3])
        elif used := _USED.search(line):
            current["registers"] = int(used[1])
            shared = _SHARED.search(line)
            current["shared_bytes"] = int(shared[1]) if shared else 0
    return result


def _read(path: Path) -> tuple[dict[str, dict[str, int]], bytes] | None:
    """Read an entry of the cache: digest, then one line of facts, then the image; None if it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    facts, _, image = body.partition(b"\n")
    kernels: dict[str, dict[str, int]] = json.loads(facts)
    return kernels, image


def _write(path: Path, module: CompiledModule) -> None:
    """Write a whole entry or none; an unwritable cache costs time, not results."""
    body = json.dumps(module.kernels).encode() + b"\n" + module.image
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(aside, path)
    except OSError:
        return
