"""Functions that travel inside every CUDA drop-in: NVRTC and the driver's launch call, through ctypes.

As in `guards.py`, their source text is copied into `best.py`: torch and the standard library only, each standing alone or on the others
here. A process with a module `dvk_record` makes no driver call: the recorder supplies the kernel instead (`dvk_record.cuda_kernel(source,
name, options)` → `kernel(grid, block, shared_bytes, args)`).
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import torch

from dvk.composer.runtime.cpp_load import dvk_bundled


def dvk_nvrtc() -> ctypes.CDLL:
    """NVRTC of torch's own CUDA version, from torch's wheels or the CUDA toolkit.

    Raises:
        RuntimeError: it is not installed.
    """
    major = (torch.version.cuda or "").split(".")[0]
    site = os.path.dirname(os.path.dirname(torch.__file__))
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    places = [
        f"{site}/nvidia/cu{major}*/lib",
        f"{site}/nvidia/cuda_nvrtc/lib",
        f"{site}/torch/lib",
        f"{toolkit}/lib64",
        f"/usr/local/cuda-{major}*/lib64",
        f"{toolkit}/targets/*/lib",
    ]
    found = [
        path
        for place in places
        for path in sorted(glob.glob(f"{place}/libnvrtc*.so.{major}*"))
        if "alt" not in path
    ]
    for path in found:
        if os.path.basename(path).startswith("libnvrtc.so"):
            for part in glob.glob(os.path.dirname(path) + "/libnvrtc-builtins.so.*"):
                # Some wheels do not give the path of their second library; a loaded library is found by its name.
                ctypes.CDLL(part)
            return ctypes.CDLL(path)
    try:
        return ctypes.CDLL(f"libnvrtc.so.{major}")
    except OSError:
        raise RuntimeError(
            f"NVRTC for CUDA {major} was not found: pip install nvidia-cuda-nvrtc"
        ) from None


def dvk_cubin(source: str, options: tuple, capability: tuple) -> bytes:
    """Machine code for a compute capability: what came with this file, this user's cache, or NVRTC; PTX if NVRTC is older than the GPU.

    Raises:
        RuntimeError: NVRTC is missing, or refused the source.
    """
    for facts, ready in dvk_bundled(source, options):
        if facts["arch"] == f"sm_{10 * capability[0] + capability[1]}":
            with open(ready, "rb") as file:
                return file.read()
    library = dvk_nvrtc()
    numbers = (ctypes.c_int * 2)()
    library.nvrtcVersion(ctypes.byref(numbers), ctypes.byref(numbers, 4))
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(known)
    asked = 10 * capability[0] + capability[1]
    arch = f"sm_{asked}" if asked in known else f"compute_{max(k for k in known if k <= asked)}"
    options = (f"--gpu-architecture={arch}", *options)
    key = hashlib.sha256("\0".join([source, *options, str(tuple(numbers))]).encode()).hexdigest()
    folder = os.environ.get("DVK_CACHE") or os.path.join(
        tempfile.gettempdir(), f"dvk-{os.getuid()}"
    )
    folder = os.path.join(folder, "cubin")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.getuid():
        # Never load what another user may have put there.
        folder = tempfile.mkdtemp(prefix="dvk-")
    path = os.path.join(folder, key)
    if os.path.exists(path):
        with open(path, "rb") as file:
            digest, image = file.read(32), file.read()
        if hashlib.sha256(image).digest() == digest:
            return image
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    )
    size = ctypes.c_size_t()
    if status:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        raise RuntimeError("NVRTC failed:\n" + log.value.decode(errors="replace")[:4000])
    kind = "CUBIN" if arch.startswith("sm_") else "PTX"
    getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{kind}")(program, buffer)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    image = buffer.raw
    handle, aside = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(hashlib.sha256(image).digest() + image)
    os.replace(aside, path)
    return image


def dvk_cuda_context(driver: Any, device: int) -> None:
    """Give the thread the device's context: one that has not called CUDA yet has none."""
    current, primary = ctypes.c_void_p(), ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(current))
    if not current:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), device)
        driver.cuCtxSetCurrent(primary)


def dvk_cuda_entry(
    driver: Any, source: str, name: str, flags: tuple, device: int, aligned: bool
) -> Any:
    """A kernel's function on a device, loaded into the current context.

    Raises:
        RuntimeError: NVRTC or the driver refused.
    """
    capability = torch.cuda.get_device_capability(device)
    image = dvk_cubin(source, (*flags, f"-DDVK_ALIGNED={int(aligned)}"), capability)
    module, entry = ctypes.c_void_p(), ctypes.c_void_p()
    status = driver.cuModuleLoadData(ctypes.byref(module), image)
    status = status or driver.cuModuleGetFunction(ctypes.byref(entry), module, name.encode())
    if status:
        raise RuntimeError(f"the CUDA driver refused the kernel {name}: error {status}")
    return entry


def dvk_cuda_held(driver: Any, source: str, name: str, flags: tuple) -> Callable[..., tuple]:
    """A function that gives a kernel's entry on a device, and room for its arguments: each 8 bytes, a tensor's address or a size."""
    functions: dict = {}

    def held(device: int, aligned: bool, count: int) -> tuple:
        dvk_cuda_context(driver, device)
        if (device, aligned) not in functions:
            made = dvk_cuda_entry(driver, source, name, flags, device, aligned)
            functions[device, aligned] = made
        values = (ctypes.c_uint64 * count)()
        places = (ctypes.c_void_p * count)(
            *(ctypes.addressof(values) + 8 * n for n in range(count))
        )
        return functions[device, aligned], values, places

    return held


def dvk_cuda_kernel(
    source: str, name: str, grid: int | None, threads: int, flags: tuple
) -> Callable[..., None]:
    """A function that launches a kernel on tensors, on the current stream; loaded for this device before this returns.

    Without a `grid` the number of blocks is the launch's first argument, and sizes follow the tensors.

    Raises:
        RuntimeError: NVRTC or the driver refused.
        OSError: there is no driver.
    """
    recorder = sys.modules.get("dvk_record")
    if recorder is not None:
        kernel = recorder.cuda_kernel(source, name, (*flags, "-DDVK_ALIGNED=1"))
        if grid is None:
            return lambda blocks, *given: kernel((blocks, 1, 1), (threads, 1, 1), 0, given)
        return lambda *tensors: kernel((grid, 1, 1), (threads, 1, 1), 0, tensors)
    driver = ctypes.CDLL("libcuda.so.1")
    start, raw_stream, whoami = (
        driver.cuLaunchKernel,
        torch._C._cuda_getCurrentRawStream,
        threading.get_ident,
    )
    pointer, number, one, none = ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint(1), ctypes.c_uint(0)
    after = (one, one, number(threads), one, one, none)
    shape = (number(grid or 0), *after)
    made = dvk_cuda_held(driver, source, name, flags)
    ready: dict = {}

    def launch(*tensors: torch.Tensor) -> None:
        device = tensors[0].get_device()
        addresses = [t.data_ptr() for t in tensors]
        bits = 0
        for address in addresses:
            bits |= address
        # The driver reads the arguments from memory: separate for each thread.
        key = (device, not bits & 15, whoami())
        held = ready.get(key)
        if held is None:
            held = ready[key] = made(device, key[1], len(tensors))
        entry, values, places = held
        values[:] = addresses
        status = start(entry, *shape, pointer(raw_stream(device)), places, None)
        if status:
            raise RuntimeError(f"launching the kernel {name} failed: CUDA error {status}")

    def launch_sized(blocks: int, *given: Any) -> None:
        device = given[0].get_device()
        passed = [g if type(g) is int else g.data_ptr() for g in given]
        aligned = not any(p & 15 for g, p in zip(given, passed) if type(g) is not int)
        key = (device, aligned, whoami())
        held = ready.get(key)
        if held is None:
            held = ready[key] = made(device, aligned, len(given))
        entry, values, places = held
        values[:] = passed
        stream = pointer(raw_stream(device))
        status = start(entry, number(blocks), *after, stream, places, None)
        if status:
            raise RuntimeError(f"launching the kernel {name} failed: CUDA error {status}")

    torch.cuda.current_stream().query()  # torch's own context is the one to load into
    made(torch.cuda.current_device(), True, 0)
    return launch_sized if grid is None else launch


def dvk_cuda_load(prelude: str, sources: list, table: list, flags: tuple) -> list:
    """The launchers of all kernels, compiled in parallel: NVRTC releases Python's lock while it works.

    Raises:
        RuntimeError: there is no CUDA device, or NVRTC or the driver refused.
        OSError: there is no driver.
    """
    from concurrent.futures import ThreadPoolExecutor

    if "dvk_record" not in sys.modules:
        if not torch.cuda.is_available():
            raise RuntimeError("no CUDA device is available")
        capability = torch.cuda.get_device_capability()
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda text: dvk_cubin(prelude + text, (*flags, "-DDVK_ALIGNED=1"), capability),
                    sources,
                )
            )
    return [
        dvk_cuda_kernel(prelude + sources[number], name, grid, threads, flags)
        for number, name, grid, threads in table
    ]
