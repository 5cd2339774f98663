"""Functions that travel inside every drop-in: their source text is copied into `best.py`.

They may use torch and the standard library only, and each must stand alone: the drop-in has no
dvk to import. What they promise is tested here as ordinary functions.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile

import torch


def dvk_config(module: torch.nn.Module) -> str | None:
    """Hash of what a graph was captured under besides tensor values; None when hooks would be skipped."""
    parts = []
    for path, child in module.named_modules():
        if path and (child._forward_hooks or child._forward_pre_hooks):
            return None
        parts.append(f"{path}:{type(child).__name__ if path else ''}:{child.training}")
        for key, value in sorted(vars(child).items()):
            items = value if isinstance(value, (tuple, list)) else (value,)
            if not key.startswith("_") and all(isinstance(i, (bool, int, float, str, type(None))) for i in items):
                parts.append(f"{key}={value!r}")
        for kind in (child._parameters, child._buffers):
            parts.extend(f"{key}:{tuple(t.shape)}:{t.dtype}" for key, t in kind.items() if t is not None)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def dvk_compile(source: str, flags: tuple[str, ...]) -> ctypes.CDLL | None:
    """Compile C++ once a machine and load it; None where there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return None
    with open("/proc/cpuinfo") if os.path.exists("/proc/cpuinfo") else open(os.devnull) as file:
        cpu = next((line for line in file if line.startswith(("flags", "Features"))), "")
    key = hashlib.sha256("\0".join([source, compiler, *flags, cpu]).encode()).hexdigest()[:24]
    folder = os.path.join(os.environ.get("DVK_CACHE") or os.path.join(tempfile.gettempdir(), f"dvk-{os.getuid()}"), "cpp")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, key + ".so")
    if not os.path.exists(path):
        handle, aside = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
        done = subprocess.run([compiler, "-x", "c++", "-", "-o", aside, *flags], input=source.encode(), capture_output=True)
        if done.returncode:
            os.unlink(aside)
            raise RuntimeError("the C++ compiler failed:\n" + done.stderr.decode(errors="replace")[:4000])
        os.replace(aside, path)
    return ctypes.CDLL(path)


def dvk_derived(module, name, sources, make):
    """A tensor computed from weights, made again whenever one of them is written or replaced."""
    key = tuple((t.data_ptr(), t._version) for t in sources)
    held = module.__dict__.setdefault("_dvk_derived_values", {})
    if name not in held or held[name][0] != key:
        held[name] = (key, make(*sources))
    return held[name][1]


def dvk_strided(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """`tensor` in the layout a kernel was written for."""
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def dvk_replay(module, inputs):
    """Run the fused program as one CUDA graph: fresh inputs are copied in, results are copied out."""
    addresses = tuple(t.data_ptr() for t in module.state_dict(keep_vars=True).values())
    held = module.__dict__.get("_dvk_graph")
    if held is None or held[0] != addresses:
        static = tuple(t.clone() if isinstance(t, torch.Tensor) else t for t in inputs)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module._dvk_run(*static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module._dvk_run(*static)
        tensors = [t for t in static if isinstance(t, torch.Tensor)]
        held = module._dvk_graph = (addresses, graph, tensors, result)
    _, graph, tensors, result = held
    torch._foreach_copy_(tensors, [t for t in inputs if isinstance(t, torch.Tensor)])
    graph.replay()
    return torch.utils._pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, result)
